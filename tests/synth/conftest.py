"""Fixtures for tests of synthesis, which store their measurements in a separate cache."""

from pathlib import Path

import pytest
from sptc.rtl.config import CoreConfig
from sptc.synth.liberty import Library


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _cache(shared_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPTC_CACHE", str(shared_cache))


@pytest.fixture
def library(liberty: Path) -> Library:
    return Library.read(liberty)


@pytest.fixture
def least() -> CoreConfig:
    """A very small datapath, which Yosys synthesises in little time."""
    return CoreConfig(name="least", formats=("s8", "u8"), step_bytes=4, rows=2, columns=1, cuts=("reduce",))
