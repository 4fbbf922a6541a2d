"""Fixture that simulates a machine with a GPU, without a GPU, or with a GPU of another architecture."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sptc.gpu import device
from sptc.tests.cli.command_line import CommandLine

from .fake_cupy import H200, FakeCupy


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., FakeCupy]]:
    """Return a function that gives this machine a fake GPU with given properties, or no GPU if these are None."""

    def put(properties: dict | None = H200) -> FakeCupy:
        device.device.cache_clear()
        cupy = FakeCupy(properties)
        monkeypatch.setitem(sys.modules, "cupy", cupy)
        return cupy

    module = tmp_path / "version"
    module.write_text("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (root@)\n")
    monkeypatch.setattr(device, "_MODULE", module)
    device.device.cache_clear()
    device._function.cache_clear()
    yield put
    device.device.cache_clear()
    device._function.cache_clear()


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(capsys, "gpu")
