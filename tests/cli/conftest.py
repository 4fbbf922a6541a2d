"""Fixtures that the tests of commands share."""

from pathlib import Path

import pytest
from sptc.sim.engine.engine import engine_for
from sptc.tests.cli.command_line import CommandLine


@pytest.fixture
def cli(
    request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> CommandLine:
    """Helper that calls the command named by COMMAND in the test file, in a temporary folder."""
    monkeypatch.chdir(tmp_path)
    return CommandLine(capsys, getattr(request.module, "COMMAND", ""))


@pytest.fixture
def cache_of_netlists(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPTC_CACHE", str(tmp_path_factory.getbasetemp() / "netlists"))


@pytest.fixture(scope="session")
def compiled_engine() -> None:
    """Compile the hardware of sm_90 once, so that no test with a time limit waits for the compiler."""
    engine_for("sm_90")
