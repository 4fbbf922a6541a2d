"""``sptc prove``: the table, JSON, counterexamples, traces, and one line for whatever is wrong."""

import json
import re
from collections.abc import Generator
from pathlib import Path

import pytest
from amaranth.hdl import Signal
from sptc.cli import main, prove
from sptc.formal import catalogue
from sptc.formal.harness import Harness
from sptc.formal.proof import Outcome, settle
from sptc.formal.properties import Case, Topic

# Workers are forked on purpose, from a process whose numerical library has threads; newer Pythons warn of any fork.
pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")

BROKEN = Topic("broken")


@BROKEN.property("always", lambda config: [(config.mux,)])
def _always(h: Harness, mux: str) -> None:
    """Two nibbles are never equal."""
    h.claim("differ", h.free("one", 4) != h.free("other", 4))


@BROKEN.property("late", lambda config: [()], cycles=lambda: 4)
def _late(h: Harness) -> None:
    """A counter never comes to three."""
    h.clocked()
    count = h.observed["count"] = Signal(2, name="count")
    with h.m.If(h.free("go")):
        h.m.d.sync += count.eq(count + 1)
    h.claim("three", count != 3)


@BROKEN.property("empty", lambda config: [()])
def _empty(h: Harness) -> None:
    """Nothing is three and four."""
    value = h.free("value", 4)
    h.claim("not_both", (value != 3) | (value != 4))
    h.cover("both", (value == 3) & (value == 4))


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "PROPERTIES", tuple(BROKEN))


def exit_status(*words: object) -> object:
    """Return the status of a call that may end inside the parser."""
    try:
        return main(["prove", *map(str, words)])
    except SystemExit as end:
        return end.code


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status("metadata.legal", "rounding.specials", "--preset", "tiny", "hopper") == 0
    output, errors = capsys.readouterr()
    assert errors == ""
    lines = output.splitlines()
    assert lines[0].split() == ["property", "of", "presets", "engine", "depth", "result", "seconds"]
    row = r"metadata\.legal +mux4 +tiny hopper +Bitwuzla +all inputs +proved +\d+\.\d"
    assert sum(re.fullmatch(row, line) is not None for line in lines) == 1
    assert len(lines) == 1 + 1 + 5 + 1
    assert re.fullmatch(r"6 proved; \d+ s of work", lines[-1])


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status("core.order", "--preset", "tiny", "--json") == 0
    output, errors = capsys.readouterr()
    assert errors == ""
    found = json.loads(output)
    assert (found["proved"], found["failed"]) == (1, 0)
    (row,) = found["proofs"]
    assert (row["property"], row["engine"], row["depth"], row["result"]) == (
        "core.order",
        "ABC pdr",
        "no bound",
        "proved",
    )
    assert row["presets"] == ["tiny"]
    assert row["statement"].startswith("Nothing is lost")
    assert all(row["covers"].values())
    assert row["counterexample"] == row["broken"] == []


def test_a_datapath_of_one_s_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By options alone, by a file, and by what is changed of a preset; what is said of it is the same."""
    file = tmp_path / "mine.json"
    file.write_text(json.dumps({"name": "own", "formats": ["f16", "e4m3"], "step_bytes": 16}))
    said = []
    for words in (
        ("--formats", "f16,e4m3", "--products", 8),
        ("--config", file),
        ("--preset", "tiny", "--products", 8),
    ):
        assert exit_status("metadata.selects", "metadata.legal", *words, "--json") == 0
        proofs = json.loads(capsys.readouterr().out)["proofs"]
        said.append([(row["property"], row["parameters"], row["presets"]) for row in proofs])
    assert said[0] == said[1]
    assert {name for name, *_ in said[0]} == {name for name, *_ in said[2]} == {"metadata.selects", "metadata.legal"}
    assert {preset for *_, presets in said[0] for preset in presets} == {"own"}


def test_what_a_datapath_lacks_is_not_asked(capsys: pytest.CaptureFixture[str]) -> None:
    """A row of eight bytes a step serves no warp, and integers have no sign to invert."""
    words = ("--formats", "s4,u4", "--step-bytes", 8)
    assert exit_status("metadata.legal", "warp.order", "wgmma.negation", *words, "--json") == 0
    assert [row["property"] for row in json.loads(capsys.readouterr().out)["proofs"]] == ["metadata.legal"]
    assert exit_status("warp", "validity.warp", *words) == 2
    assert capsys.readouterr().err.startswith("sptc prove: there is nothing to prove")


def test_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status("--list", "metadata", "warp.order") == 0
    names = re.findall(r"^\w+\.\w+$", capsys.readouterr().out, re.MULTILINE)
    assert names == ["metadata.legal", "metadata.selects", "metadata.exchange", "metadata.chunk", "warp.order"]
    assert exit_status("--list", "--json") == 0
    assert json.loads(capsys.readouterr().out).keys() == {item.name for item in catalogue.PROPERTIES}


@pytest.mark.usefixtures("broken")
def test_what_is_broken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its values are printed, decoded; waves are written where asked."""
    waves = tmp_path / "new" / "waves"
    assert exit_status("broken.always", "--preset", "tiny", "--trace", waves) == 1
    output = capsys.readouterr().out
    assert "broken.always of mux4 is broken: Two nibbles are never equal.\n  does not hold: differ\n" in output
    values = re.search(r"^  one = (0b[01]{4}), other = (0b[01]{4})$", output, re.MULTILINE)
    assert values
    assert values.group(1) == values.group(2)
    path = waves / "broken.always-0.vcd"
    assert f"  waves: {path}\n" in output
    assert "$var wire 4" in path.read_text()


@pytest.mark.usefixtures("broken")
def test_a_run_is_printed_cycle_by_cycle(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status("broken.late") == 1
    output = capsys.readouterr().out
    assert "does not hold: three" in output
    cycles = re.findall(r"^  cycle (\d): (.*)$", output, re.MULTILINE)
    assert [number for number, _ in cycles] == ["0", "1", "2", "3"]
    assert [count for _, words in cycles for count in re.findall(r"count = ([01b]+)", words)] == [
        "0b00",
        "0b01",
        "0b10",
        "0b11",
    ]


@pytest.mark.usefixtures("broken")
def test_the_first_that_is_broken_ends_it(capsys: pytest.CaptureFixture[str]) -> None:
    """What is left is counted."""
    assert exit_status("broken.always", "broken.late", "--first", "--jobs", "1") == 1
    lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"0 proved, 1 broken; 2 not asked; \d+ s of work", lines[-1])
    assert exit_status("broken", "--first", "--jobs", "1", "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert (len(found["proofs"]), found["failed"]) == (1, 1)


def test_each_line_is_printed_as_it_comes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def settled(wanted: list[Case], jobs: int, limit: float) -> Generator[Outcome, None, None]:
        for number, case in enumerate(wanted):
            assert len(capsys.readouterr().out.splitlines()) == 1, number  # the head, or the outcome before
            yield settle(case, limit)

    monkeypatch.setattr(prove, "_settled", settled)
    assert exit_status("metadata.legal", "metadata.selects", "--preset", "tiny") == 0


@pytest.mark.usefixtures("broken")
def test_what_is_vacuous(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status("broken.empty") == 1
    output = capsys.readouterr().out
    assert "0 proved, 1 vacuous" in output
    assert "\n  never reached: cover_both\n" in output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["metadta"], "there is no property 'metadta'; did you mean metadata? (topics: metadata, selection, "),
        (["--preset", "tiny", "hopper", "--products", "4"], "options change one datapath, not several"),
        (["--preset", "tiny", "--config", "x.json"], "argument --config: not allowed with argument --preset"),
        (["--config", "missing.json"], "missing.json cannot be read"),
        (["--preset", "volta"], "argument --preset: invalid choice: 'volta'"),
        (["--seconds", "0"], "argument --seconds: "),
        (["--jobs", "0"], "argument --jobs: "),
    ],
)
def test_bad_words(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status(*words) == 2
    output, errors = capsys.readouterr()
    assert output == ""
    assert errors.startswith(f"sptc prove: {message}")
    assert errors.count("\n") == 1


def test_a_place_that_holds_no_traces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert exit_status("metadata.legal", "--trace", tmp_path / "file") == 2
    assert capsys.readouterr().err.startswith(f"sptc prove: {tmp_path / 'file'} cannot hold traces (")
