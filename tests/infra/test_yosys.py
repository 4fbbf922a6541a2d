"""Yosys in a process of its own."""

import importlib.util
import re
from pathlib import Path

import pytest
from sptc.errors import BackendError
from sptc.infra.installation import install_line
from sptc.infra.yosys import run_yosys


def test_what_a_script_prints(tmp_path: Path) -> None:
    assert "hello" in run_yosys(tmp_path, "log hello\nlog world\n")
    assert list(tmp_path.iterdir()) == []


def test_without_yosys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BackendError, match=f"^this needs Yosys: install it with `{re.escape(install_line('yosys'))}`$"):
        run_yosys(tmp_path, "")


def test_a_script_that_fails(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match=r"^Yosys failed: ERROR: .*nothing"):
        run_yosys(tmp_path, "hierarchy -top nothing\n")


def test_a_script_that_takes_too_long(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match=r"^Yosys took longer than 0.01 seconds$"):
        run_yosys(tmp_path, "log hello\n", timeout=0.01)
