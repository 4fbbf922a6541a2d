"""Verilator's coverage files: read, merged, summed up."""

import json
from pathlib import Path

import pytest
from sptc.cli import main
from sptc.errors import FileError
from sptc.sim.coverage.code import CodeCoverage


def point(kind: str, line: int, name: str, count: int, path: str = "/a/bench.v") -> str:
    fields = {"f": path, "l": line, "n": 1, "t": kind, "page": f"v_{kind}/bench", "o": name, "h": "bench"}
    return "C '" + "".join(f"\x01{key}\x02{value}" for key, value in fields.items()) + f"' {count}"


def written(path: Path, *points: str) -> Path:
    path.write_text("\n".join(["# SystemC::Coverage-3", *points]) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    first = [point("line", 3, "block", 0), point("line", 9, "block", 4), point("toggle", 3, "q[0]:0->1", 0)]
    second = [
        point("line", 3, "block", 2, "/b/bench.v"),
        point("toggle", 3, "q[0]:0->1", 0),
        point("branch", 5, "if", 1),
    ]
    return written(tmp_path / "first.dat", *first), written(tmp_path / "second.dat", *second)


def test_points(files: tuple[Path, Path]) -> None:
    report = CodeCoverage.read(files[0]).report()
    assert {kind: (row["points"], row["hit"], row["percentage"]) for kind, row in report.items()} == {
        "line": (2, 1, 50.0),
        "toggle": (1, 0, 0.0),
    }
    assert report["line"]["missing"] == ["bench line 3 block"]


def test_merge(files: tuple[Path, Path]) -> None:
    """Hits add up, wherever the design lay; the order does not matter, and a point without a hit stays."""
    first, second = map(CodeCoverage.read, files)
    merged = first.merge(second)
    assert merged.hits == second.merge(first).hits
    assert merged.hits["line", "bench line 3 block"] == 2
    counts = {kind: (row["points"], row["hit"]) for kind, row in merged.report().items()}
    assert counts == {"line": (2, 2), "toggle": (1, 0), "branch": (1, 1)}


def test_the_command(files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """Lines and toggles alone decide no status."""
    assert main(["coverage", *map(str, files)]) == 0
    assert "line: 2 of 2 blocks of statements that ran, 100.00 %" in capsys.readouterr().out
    assert main(["coverage", "--json", "--missing", "1", str(files[0])]) == 0
    assert json.loads(capsys.readouterr().out)["code"]["toggle"]["missing"] == ["bench line 3 q[0]:0->1"]


def test_a_damaged_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "cut.dat", point("line", 3, "block", 1)[:-3])
    with pytest.raises(FileError, match=r"cut\.dat is a damaged coverage file of Verilator$"):
        CodeCoverage.read(path)
    assert main(["coverage", str(path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_another_file(tmp_path: Path) -> None:
    path = tmp_path / "other.dat"
    path.write_text("nothing", encoding="utf-8")
    assert not CodeCoverage.is_one(path)
    assert not CodeCoverage.is_one(tmp_path / "none.dat")
    with pytest.raises(FileError, match="is no coverage file of Verilator"):
        CodeCoverage.read(path)
