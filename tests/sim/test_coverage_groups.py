"""Covergroups count hits, and coverage files of the package and of Verilator are read, merged and reported."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sptc.cli import main
from sptc.errors import FileError
from sptc.rtl.config import PRESETS
from sptc.sim.coverage.code import CodeCoverage
from sptc.sim.coverage.groups import VERSION, Axis, Coverage, Group
from sptc.sim.coverage.steps import StepCoverage

Random = np.random.Generator


def group(name: str = "colours", configuration: str = "tiny", reason: str = "No such paint.") -> Group:
    axes = (Axis("side", ("left", "right")), Axis("colour", ("red", "green", "blue")))
    made = Group(configuration, name, "Somebody painted it.", axes)
    made.declare_unreachable([[False, False, True], [False, False, False]], reason)
    return made


def random_coverage(rng: Random) -> Coverage:
    keys = [(name, configuration) for name in ("b", "a") for configuration in ("tiny", "ada")]
    groups = [group(*keys[place]) for place in rng.permutation(len(keys))[: int(rng.integers(1, 5))]]
    for each in groups:
        each.count(rng.integers(0, 2, 3), rng.integers(0, 3, 3))
    return Coverage(groups)


def test_bins() -> None:
    one = group()
    assert (one.bins, one.reachable, one.reached, one.percentage) == (6, 5, 0, 0.0)
    one.count(1, [0, 0, 2])
    assert one.hits.tolist() == [[0, 0, 0], [2, 0, 1]]
    assert (one.reached, one.percentage) == (2, 40.0)
    one.count(np.array([[0], [1]]), [0, 1, 2], where=np.array([[True, True, False], [False, True, False]]))
    assert one.hits.tolist() == [[1, 1, 0], [2, 1, 1]]
    assert (one.reached, one.reachable, one.percentage, one.contradictions) == (5, 5, 100.0, 0)


@pytest.mark.parametrize("places", [(2, 0), (0, 3), (-1, 0), (0, [0, 1, 3])])
def test_a_bin_outside_the_axes_is_an_error(places: tuple[int, int]) -> None:
    with pytest.raises(AssertionError, match="colours: a bin index is too large"):
        group().count(*places)
    group().count(*places, where=np.zeros(3, np.bool_))


def test_the_first_reason_stays() -> None:
    one = group()
    one.declare_unreachable([False, True, True], "Nobody likes it.")
    assert one.reasons == ["No such paint.", "Nobody likes it."]
    assert one.reason.tolist() == [[0, 2, 1], [0, 2, 2]]
    one.declare_unreachable(False, "Never said.")
    assert len(one.reasons) == 2


def test_reaching_the_unreachable_is_reported() -> None:
    one = group()
    one.count(0, 2)
    coverage = Coverage([one])
    assert (one.reached, one.contradictions, one.contradicted()) == (0, 1, ["left, blue"])
    report = coverage.report()
    assert report["contradicted"] == 1
    assert report["groups"][0]["contradicted"] == ["left, blue"]
    assert "CONTRADICTED, declared unreachable but reached: tiny: colours: left, blue" in coverage.table().splitlines()
    one.hits[:] = 1
    assert not coverage.complete
    one.hits[0, 2] = 0
    assert coverage.complete


def test_merging_adds_in_any_order(rng: Random) -> None:
    one, two = group(), group()
    one.count(0, [0, 1])
    two.count(0, [1, 2])
    merged = Coverage([one]).merge(Coverage([two]))
    assert merged["tiny", "colours"].hits.tolist() == [[1, 2, 1], [0, 0, 0]]
    assert merged["tiny", "colours"].contradicted() == ["left, blue"]
    assert one.hits.sum() == two.hits.sum() == 2
    merged["tiny", "colours"].hits += 1
    assert one.hits.sum() == 2
    for _ in range(20):
        a, b, c = (random_coverage(rng) for _ in range(3))
        assert a.merge(b).to_json() == b.merge(a).to_json()
        assert a.merge(b).merge(c).to_json() == a.merge(b.merge(c)).to_json()
        assert a.merge(Coverage()).to_json() == Coverage().merge(a).to_json()


def test_other_bins_do_not_merge_and_keys_are_unique() -> None:
    ours = Coverage([group()])
    axes = (Axis("side", ("left", "right")), Axis("colour", ("red",)))
    for other in (Group("tiny", "colours", "Somebody painted it.", axes), group(reason="Sold out.")):
        with pytest.raises(FileError, match="group 'colours' of configuration 'tiny' has different bins"):
            ours.merge(Coverage([other]))
    assert len([*ours.merge(Coverage([group(configuration="ada")]))]) == 2
    with pytest.raises(AssertionError, match="two covergroups"):
        Coverage([group(), group()])


def test_a_file_is_read_back_and_legible(tmp_path: Path, rng: Random) -> None:
    path = tmp_path / "coverage.json"
    for coverage in (Coverage(), random_coverage(rng), StepCoverage(PRESETS["rtx-blackwell"]).coverage):
        for each in coverage:
            each.hits += rng.integers(0, 3, each.shape) * rng.integers(0, 1 << 40)
        before = path.stat().st_ino if path.exists() else None
        coverage.write(path)
        assert path.stat().st_ino != before  # a new file, so that processes which read the old file are not disturbed
        read = Coverage.read(path)
        assert read.to_json() == coverage.to_json()
        for each in coverage:
            assert read[each.key].same_bins(each)
            assert read[each.key].meaning == each.meaning
            np.testing.assert_array_equal(read[each.key].hits, each.hits)
    assert [*tmp_path.iterdir()] == [path]
    # The file has a line for each row of hits along the last axis, and names the first ten missing bins of each group.
    coverage = StepCoverage(PRESETS["tiny"]).coverage
    text = coverage.to_json()
    assert len(text.splitlines()) < sum(each.hits.size // each.shape[-1] for each in coverage) + 15 * len([*coverage])
    assert max(map(len, text.splitlines())) < 1500
    (selection,) = [record for record in json.loads(text)["groups"] if record["name"] == "selection of 16 bits"]
    assert selection["missing"]["bins"] == 128
    assert len(selection["missing"]["first"]) == 10
    assert selection["missing"]["first"][0] == "f16 x f16 (2:4), nibble 0b0000, slot 0"


def test_the_table_and_its_percentages() -> None:
    colours, shades = group(), group("shades")
    colours.count([0, 1], [1, 2])
    shades.hits[~shades.unreachable] = 7
    coverage = Coverage([colours, shades])
    rows = [line.split()[-4:] for line in coverage.table(2).splitlines()[1:4]]  # rows of both groups and of the total
    assert rows == [["6", "5", "2", "40.0"], ["6", "5", "5", "100.0"], ["12", "10", "7", "70.0"]]
    assert coverage.table(0).splitlines()[-1] == "missing: tiny: colours: 3 bins"
    report = coverage.report(2)
    assert json.loads(json.dumps(report)) == report
    assert {key: report[key] for key in ("bins", "reachable", "reached", "contradicted", "complete")} == {
        "bins": 12, "reachable": 10, "reached": 7, "contradicted": 0, "complete": False,
    }  # fmt: skip
    many = Group("tiny", "many", "Any.", (Axis("place", tuple(map(str, range(5000)))),))
    many.hits[1:] = 1
    assert many.percentage < 100
    assert "99.9" in Coverage([many]).table()
    many.hits[0] = 1
    assert many.percentage == 100
    assert "100.0" in Coverage([many]).table()


#: Defects by name. Each function damages the content of a coverage file, or the first covergroup in the file.
DAMAGES: dict[str, Callable[[dict[str, Any], dict[str, Any]], object]] = {
    "one hit too few": lambda _, record: record["hits"][0].pop(),
    "negative hits": lambda _, record: record["hits"][0].__setitem__(0, -1),
    "half a hit": lambda _, record: record["hits"][0].__setitem__(0, 0.5),
    "too many hits": lambda _, record: record["hits"][0].__setitem__(0, 1 << 53),
    "no axes": lambda _, record: record.pop("axes"),
    "a bin outside the axes": lambda _, record: record["unreachable"][0].update(bins=[[2, 6]]),
    "bins of terabytes": lambda _, record: record.update(axes=[{"name": "x", "labels": [*"ab" * 500]}] * 4),
    "unreachable four times": lambda _, record: record["unreachable"][0].update(bins=[[0, 3]] * 4),
    "no name": lambda _, record: record.update(name=None),
    "the same group twice": lambda content, record: content["groups"].append(record),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_files(name: str) -> None:
    content = json.loads(Coverage([group()]).to_json())
    Coverage.from_json(json.dumps(content))
    DAMAGES[name](content, content["groups"][0])
    with pytest.raises(FileError, match=r"^here is a damaged coverage file"):
        Coverage.from_json(json.dumps(content), "here")


def test_other_files() -> None:
    for text, message in (
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "no JSON object whose field 'kind' is 'sptc coverage'"),
        ('{"kind": "a cake", "version": 1}', "no JSON object whose field 'kind' is 'sptc coverage'"),
        (Coverage().to_json().replace(f'"version": {VERSION}', '"version": 99'), "of version 99, but sptc reads"),
        ('{"kind": "sptc coverage", "version": 1}', "damaged"),
        ('{"kind": "sptc coverage", "version": 1, "groups": 5}', "damaged"),
    ):
        with pytest.raises(FileError, match=message):
            Coverage.from_json(text)


def point(kind: str, line: int, name: str, count: int, path: str = "/a/bench.v") -> str:
    fields = {"f": path, "l": line, "n": 1, "t": kind, "page": f"v_{kind}/bench", "o": name, "h": "bench"}
    return "C '" + "".join(f"\x01{key}\x02{value}" for key, value in fields.items()) + f"' {count}"


def written(path: Path, *points: str) -> Path:
    path.write_text("\n".join(["# SystemC::Coverage-3", *points]) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    toggle = point("toggle", 3, "q[0]:0->1", 0)
    first = [point("line", 3, "block", 0), point("line", 9, "block", 4), toggle]
    second = [point("line", 3, "block", 2, "/b/bench.v"), toggle, point("branch", 5, "if", 1)]
    return written(tmp_path / "first.dat", *first), written(tmp_path / "second.dat", *second)


def test_points_in_reports_and_the_command(files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    report = CodeCoverage.read(files[0]).report()
    rows = {kind: (row["points"], row["hit"], row["percentage"]) for kind, row in report.items()}
    assert rows == {"line": (2, 1, 50.0), "toggle": (1, 0, 0.0)}
    assert report["line"]["missing"] == ["bench line 3 block"]
    assert main(["coverage", *map(str, files)]) == 0
    assert "line: 2 of 2 blocks of statements that ran, 100.00 %" in capsys.readouterr().out
    assert main(["coverage", "--json", "--missing", "1", str(files[0])]) == 0
    assert json.loads(capsys.readouterr().out)["code"]["toggle"]["missing"] == ["bench line 3 q[0]:0->1"]


def test_merge(files: tuple[Path, Path]) -> None:
    """Merging files of Verilator adds their hits, in any order and from any folder, and keeps points without hits."""
    first, second = map(CodeCoverage.read, files)
    merged = first.merge(second)
    assert merged.hits == second.merge(first).hits
    assert merged.hits["line", "bench line 3 block"] == 2
    counts = {kind: (row["points"], row["hit"]) for kind, row in merged.report().items()}
    assert counts == {"line": (2, 2), "toggle": (1, 0), "branch": (1, 1)}


def test_a_damaged_file_and_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "cut.dat", point("line", 3, "block", 1)[:-3])
    with pytest.raises(FileError, match=r"cut\.dat is a damaged coverage file of Verilator \("):
        CodeCoverage.read(path)
    assert main(["coverage", str(path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    path = tmp_path / "other.dat"
    path.write_text("nothing", encoding="utf-8")
    assert not CodeCoverage.is_one(path)
    assert not CodeCoverage.is_one(tmp_path / "none.dat")
    with pytest.raises(FileError, match="is no coverage file of Verilator"):
        CodeCoverage.read(path)
