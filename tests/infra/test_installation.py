"""The `pip install` command in error messages names a checkout by its path and a wheel by its name."""

import shlex
import sys
from pathlib import Path

import pytest
from sptc.infra import installation
from sptc.infra.installation import install_line


def test_of_this_checkout() -> None:
    assert shlex.split(install_line("area"))[-3:] == ["install", "-e", f"{Path(__file__).resolve().parents[2]}[area]"]


def test_of_a_checkout_and_of_a_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "a checkout"  # this name has a space, so a shell needs quotes around the path
    root.mkdir()
    monkeypatch.setattr(installation, "_ROOT", root)
    (tmp_path / "pip").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert install_line("area") == "pip install 'sptc[area]'"
    assert install_line() == "pip install sptc"
    (root / "pyproject.toml").touch()
    assert install_line("area") == f"pip install -e '{root}[area]'"
    assert install_line() == f"pip install -e '{root}'"
    (root / "pyproject.toml").unlink()  # sptc now counts as a wheel; pip on PATH is of another Python or missing
    monkeypatch.setattr(sys, "executable", "/opt/my tools/bin/python")
    assert install_line("dask") == "'/opt/my tools/bin/python' -m pip install 'sptc[dask]'"
    monkeypatch.setenv("PATH", "")
    assert install_line("dask") == "'/opt/my tools/bin/python' -m pip install 'sptc[dask]'"
