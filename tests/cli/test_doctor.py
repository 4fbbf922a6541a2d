"""``sptc doctor`` names missing packages and how to install them, and exits with 1 if the base package fails."""

import importlib.metadata
from pathlib import Path

import pytest
from sptc.cli import doctor
from sptc.infra import installation
from sptc.infra.installation import Requirement, install_line, requirements
from sptc.tests.cli.command_line import CommandLine

COMMAND = "doctor"
LINES = [
    "numpy>=2.0", "amaranth<0.6,>=0.5.10", 'absent-package>=1; extra == "area"', 'numpy<2; extra == "area"',
    'sptc[area]; extra == "formal"', 'triton>=3.6; sys_platform == "linux" and extra == "triton"',
]  # fmt: skip


@pytest.fixture
def metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the requirements of the package by the requirements in LINES."""
    monkeypatch.setattr(importlib.metadata, "requires", lambda _: LINES)


@pytest.mark.usefixtures("metadata")
def test_what_is_missing_and_how_to_add_it(cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPTC_CACHE", "cache")
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "model.so").write_bytes(bytes(2_000_000))
    report = cli.json()
    versions = {name: importlib.metadata.version(name) for name in ("numpy", "amaranth")}
    assert report["base"] == {"packages": versions, "missing": [], "install": None, "golden_model": True, "works": True}
    for extra in ("area", "formal"):
        assert report["extras"][extra]["missing"] == ["absent-package>=1", "numpy<2"]
        assert report["extras"][extra]["install"] == install_line(extra)
    assert report["cache"] == {"folder": str(tmp_path / "cache"), "files": 1, "bytes": 2_000_000, "writable": True}
    monkeypatch.setitem(doctor._TOOLS, "printf", (r"\377", "a byte that is not UTF-8"))
    text = cli.text()
    assert f"missing: absent-package>=1, numpy<2; {install_line('area')}" in text
    assert text.endswith("/cache: 1 file, 2.0 MB\n")
    Path("file").touch()
    for folder in ("file", "file/cache", "n" * 300):
        monkeypatch.setenv("SPTC_CACHE", folder)
        assert not (cli.json()["cache"]["writable"] and folder.startswith("file")), folder


def test_the_base_decides_the_status(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "requires", lambda _: ["absent-package>=1"])
    report = cli.json(status=1)["base"]
    assert (report["works"], report["missing"], report["install"]) == (False, ["absent-package>=1"], install_line())

    def none(_: str) -> list[str]:
        raise importlib.metadata.PackageNotFoundError

    monkeypatch.setattr(importlib.metadata, "requires", none)
    assert "the package sptc is not installed: install it with" in cli.text(status=1)
    monkeypatch.setattr(importlib.metadata, "requires", lambda _: ["numpy>=2.0"])
    cli.text()
    monkeypatch.setattr(doctor, "mma", lambda *operands: operands[3])
    assert "the golden model computes wrong results" in cli.text(status=1)


@pytest.mark.usefixtures("metadata")
def test_versions() -> None:
    assert [one.name for one in requirements("formal")] == ["absent-package", "numpy"]
    assert [one.name for one in requirements("triton")] == ["triton"]
    for expected, installed, fits in (
        ("<0.6,>=0.5.10", "0.5.10", True), ("<0.6,>=0.5.10", "0.5.9", False), ("<0.6,>=0.5.10", "0.6", False),
        (">=2.6", "2.13.0+cpu", True), ("==0.50.0.0.post130", "0.50.0.0.post130", True),
        ("==0.50.0.0.post130", "0.50.0.0", False), ("<=3", "3", True), ("", "1", True), ("", None, False),
    ):  # fmt: skip
        assert Requirement("x", expected, installed).fits == fits, (expected, installed)
    assert installation.requirements("nothing") == []
