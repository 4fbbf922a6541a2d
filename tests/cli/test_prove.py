"""``sptc prove`` prints results and counterexamples, writes traces, and rejects invalid input with one line."""

import re
from collections.abc import Generator
from pathlib import Path

import pytest
from amaranth.hdl import Signal
from sptc.cli import prove
from sptc.formal import catalogue
from sptc.formal.harness import Harness
from sptc.formal.proof import Outcome, settle
from sptc.formal.properties import Case, Topic
from sptc.formal.record import read_record
from sptc.tests.cli.command_line import CommandLine

COMMAND = "prove"
BROKEN = Topic("broken")


@BROKEN.property("always", lambda config: [(config.mux,)])
def _always(h: Harness, mux: str) -> None:
    """Two nibbles are never equal."""
    differ = h.free("one", 4) != h.free("other", 4)
    h.claim("differ", differ)
    h.cover("differ", differ)


@BROKEN.property("late", lambda config: [()], cycles=lambda: 4)
def _late(h: Harness) -> None:
    """A counter never reaches three."""
    h.clocked()
    count = h.observed["count"] = Signal(2, name="count")
    with h.m.If(h.free("go")):
        h.m.d.sync += count.eq(count + 1)
    h.claim("three", count != 3)
    h.cover("one", count == 1)


@BROKEN.property("empty", lambda config: [()])
def _empty(h: Harness) -> None:
    """No value is both three and four."""
    value = h.free("value", 4)
    h.claim("not_both", (value != 3) | (value != 4))
    h.cover("both", (value == 3) & (value == 4))


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "PROPERTIES", tuple(BROKEN))


def test_the_table_and_json(cli: CommandLine) -> None:
    lines = cli.text("metadata.legal", "rounding.specials", "--preset", "tiny", "hopper", "--verbose").splitlines()
    assert lines[0].split() == ["property", "of", "presets", "engine", "depth", "result", "seconds"]
    row = r"metadata\.legal +mux4 +tiny hopper +Bitwuzla +all inputs +proved +\d+\.\d"
    assert sum(re.fullmatch(row, line) is not None for line in lines) == 1
    assert len(lines) == 1 + 1 + 5 + 2
    assert re.fullmatch(r"6 proved; \d+ s of processor time", lines[-2])
    assert lines[-1] == "all 6 proofs of 2 properties succeeded"
    report = cli.json("core.order", "--preset", "tiny")
    assert (report["proved"], report["failed"]) == (1, 0)
    (row,) = report["proofs"]
    expected = {"property": "core.order", "engine": "ABC pdr", "depth": "no bound", "result": "proved"}
    assert row.items() >= (expected | {"presets": ["tiny"], "counterexample": [], "broken": []}).items()
    assert row["statement"].startswith("An array of dot-product units loses, duplicates or reorders no results")
    assert all(row["covers"].values())


def test_what_is_recorded_is_not_proved_again(tmp_path: Path, cli: CommandLine) -> None:
    record = tmp_path / "proved.json"
    both = ["metadata.legal", "metadata.selects"]
    for names, engines in ((both[:1], ["Bitwuzla"]), (both, ["record", "Bitwuzla"])):
        proofs = cli.json(*names, "--preset", "tiny", "--record", record)["proofs"]
        assert [row["engine"] for row in proofs] == engines
        assert {row["result"] for row in proofs} == {"proved"}
    assert [proof.property for proof in read_record(record).proofs] == both
    record.write_text("{}")
    cli.refuses("metadata", "--preset", "tiny", "--record", record, message="proved.json is not a record of proofs")
    assert record.read_text() == "{}"


def test_properties_of_a_datapath_and_the_list(cli: CommandLine) -> None:
    """Datapaths with 8 bytes per step skip properties of warps; integer datapaths skip properties of negation."""
    words = ("--formats", "s4,u4", "--step-bytes", 8)
    proofs = cli.json("metadata.legal", "warp.order", "wgmma.operands", *words)["proofs"]
    assert [(row["property"], row["presets"]) for row in proofs] == [("metadata.legal", ["own"])]
    cli.refuses("warp", "validity.warp", *words, message="there is nothing to prove")
    names = re.findall(r"^\w+\.\w+$", cli.text("--list", "metadata", "warp.order"), re.MULTILINE)
    assert names == ["metadata.legal", "metadata.selects", "metadata.exchange", "metadata.chunk", "warp.order"]
    assert cli.json("--list").keys() == {item.name for item in catalogue.PROPERTIES}
    assert " s for all of blackwell, rtx-blackwell" in cli.text("--list", "metadata.exchange")
    cli.refuses("unit.v", message="properties of sptc's own hardware, not Verilog files")


@pytest.mark.usefixtures("broken")
def test_what_is_broken_or_vacuous(cli: CommandLine) -> None:
    waves = Path("new/waves")
    output = cli.text("broken.always", "--preset", "tiny", "--trace", waves, status=1)
    assert output.startswith("1 of 1 proof failed: broken.always is broken\n")
    assert "broken.always of mux4 is broken: Two nibbles are never equal.\n  does not hold: differ\n" in output
    values = re.search(r"^  one = (0b[01]{4}), other = (0b[01]{4})$", output, re.MULTILINE)
    assert values
    assert values.group(1) == values.group(2)
    path = waves / "broken.always-0.vcd"
    assert f"  waves: {path}\n" in output
    assert "$var wire 4" in path.read_text()
    output = cli.text("broken.empty", status=1)
    assert output.startswith("1 of 1 proof failed: broken.empty is vacuous\n")
    assert "\n  never reached: cover_both\n" in output


@pytest.mark.usefixtures("broken")
def test_reports_of_what_is_broken(cli: CommandLine) -> None:
    output = cli.text("broken.late", status=1)
    assert "does not hold: three" in output
    cycles = re.findall(r"^  cycle (\d): (.*)$", output, re.MULTILINE)
    assert [number for number, _ in cycles] == ["0", "1", "2", "3"]
    counts = [count for _, words in cycles for count in re.findall(r"count = ([01b]+)", words)]
    assert counts == ["0b00", "0b01", "0b10", "0b11"]
    output = cli.text("broken.always", "broken.late", "--first", "--jobs", "1", status=1)
    assert re.fullmatch(r"1 of 1 proof failed: broken\.\w+ is broken; 2 proofs not attempted\n.*", output, re.DOTALL)
    report = cli.json("broken", "--first", "--jobs", "1", status=1)
    assert (len(report["proofs"]), report["failed"]) == (1, 1)
    cli.text("broken.empty", "broken.always", "--preset", "tiny", "--record", "proved.json", status=1)
    assert not Path("proved.json").exists()


def test_each_outcome_is_printed_at_once(monkeypatch: pytest.MonkeyPatch, cli: CommandLine) -> None:
    def settled(cases: list[Case], jobs: int, limit: float, *_: object) -> Generator[tuple[Outcome, None], None, None]:
        for number, case in enumerate(cases):
            # One line is printed before each outcome: the header, or the previous outcome.
            assert len(cli.capsys.readouterr().out.splitlines()) == 1, number
            yield settle(case, limit), None

    monkeypatch.setattr(prove, "_settled", settled)
    assert cli.status("metadata.legal", "metadata.selects", "--preset", "tiny", "--verbose") == 0


def test_bad_words(cli: CommandLine) -> None:
    cli.refuses_each(
        (["metadta"], "there is no property 'metadta'; did you mean metadata? (topics: metadata, selection, "),
        (["--preset", "tiny", "hopper", "--products", "4"], "options that change a configuration need one preset"),
        (["metadata.legal", "--seconds", "1e300"], "must be a number above 0 and at most 1,000,000, not '1e300'"),
        (["--list", "--preset", "tiny"], "--preset has no effect with --list"),
        (["metadata.legal", "--record", "none/file"], "none/file cannot be written"),
        (["metadata.legal", "--trace", "/dev/null"], "the folder /dev/null cannot be created ("),
    )
