"""The record of proofs is complete. Only a proof of a recorded problem is skipped. Reports and waveforms are right."""

import gc
import re
from collections import Counter
from pathlib import Path

import pytest
from sptc.errors import FileError
from sptc.formal.catalogue import PROPERTIES
from sptc.formal.digest import problem_digest
from sptc.formal.harness import Harness
from sptc.formal.model import Trace
from sptc.formal.proof import Outcome
from sptc.formal.properties import Case, Engine, Property, cases
from sptc.formal.record import RECORD, Proof, Record, read_record, settle_unless_recorded
from sptc.formal.report import Table, counterexample, write_trace
from sptc.rtl.config import PRESETS


def case(limit: int = 16) -> Case:
    def build(h: Harness) -> None:
        value = h.free("value", 4)
        h.claim("small", value < limit)
        h.cover("five", value == 5)

    return Case(Property("test.small", "It is small.", build, lambda config: [()], Engine.SOLVER, lambda: 1), (), ())


def test_the_shipped_record_names_every_property_of_every_preset() -> None:
    recorded = Counter((proof.property, proof.case, proof.presets) for proof in read_record(RECORD).proofs)
    needed = Counter((case.subject.name, case.described, case.presets) for case in cases(PROPERTIES, PRESETS.values()))
    assert recorded == needed, "the record is incomplete; run `sptc prove --record formal/proved.json`"


def test_only_a_recorded_problem_is_not_proved_again() -> None:
    outcome, proof = settle_unless_recorded(case(), None, {})
    assert (outcome.result, outcome.engine) == ("proved", "Bitwuzla")
    again, same = settle_unless_recorded(case(), None, {proof.digest: proof})
    assert (again.result, again.engine, same) == ("proved", "record", proof)
    known = {problem_digest(case().harness()): Proof("test.small", "-", (), "", "Bitwuzla", 0.1)}
    assert settle_unless_recorded(case(15), None, known)[0].result == "broken"


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
@pytest.mark.parametrize(("kind", "message"), [("cover", "claims nothing"), ("claim", "has no cover")])
def test_what_is_not_stated_or_not_covered_is_no_proof(kind: str, message: str) -> None:
    def build(h: Harness) -> None:
        getattr(h, kind)("five", h.free("value", 4) != 5)

    empty = Property("test.empty", "It is empty.", build, lambda config: [()], Engine.SOLVER, lambda: 1)
    with pytest.raises(AssertionError, match=rf"test\.empty {message}"):
        settle_unless_recorded(Case(empty, (), ()), None, {})
    gc.collect()  # free components that were never elaborated, while the test ignores warnings about them


def test_a_record_is_read_as_it_was_written_and_others_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "proved.json"
    assert read_record(path) == Record(None, ())
    proofs = [Proof("a.b", "mux4", ("tiny", "ampere"), f"{place:016x}", "ABC pdr", place / 4) for place in range(3)]
    record = Record("0123", tuple(proofs[:2])).with_proof(proofs[2])
    record.write(path)
    assert read_record(path) == record
    assert record.by_digest["0" * 15 + "1"] == proofs[1]
    for text in ("", "[]", '{"sources": null}', '{"sources": null, "proofs": [{"property": "a"}]}'):
        path.write_text(text)
        with pytest.raises(FileError, match="is not a record of proofs"):
            pytest.fail(f"{text} is read as {read_record(path)}")


ITEM = Property("test.one", "It holds.", lambda h: None, lambda config: [()], Engine.SOLVER, lambda: 1)
CASE = Case(ITEM, (), ("tiny", "ampere"))


def outcome(result: str, cycles: int = 0) -> Outcome:
    steps = [{"count": cycle, "fixed": 1} for cycle in range(cycles)]
    trace = Trace({"count": 8, "fixed": 1}, steps) if cycles else None
    values = tuple({name: str(value) for name, value in step.items()} for step in steps)
    covers = {"proved": {"cover_some": 3}, "vacuous": {"cover_some": 3, "cover_none": None}}.get(result, {})
    return Outcome(CASE, "ABC pdr", "no bound", result, 0.25, covers, trace, values, ("claim_small",) * bool(cycles))


def test_totals_say_what_was_found() -> None:
    table = Table([CASE] * 7)
    for result in ("proved", "vacuous", "undecided", "proved", "broken"):
        assert re.search(rf"tiny ampere +ABC pdr +no bound +{result} +0\.2$", table.row(outcome(result)))
    assert table.total == "2 proved, 1 vacuous, 1 undecided, 1 broken; 2 not tried; 1 s of processor time"


def test_of_a_long_run_the_end_is_shown() -> None:
    lines = counterexample(outcome("broken", 100)).splitlines()
    assert lines[:2] == ["test.one of - is broken: It holds.", "  does not hold: small"]
    assert lines[2:] == [f"  cycle {cycle}: count = {cycle}" for cycle in range(60, 100)]
    short = counterexample(outcome("broken", 2)).splitlines()
    assert short[2:] == ["  cycle 0: count = 0, fixed = 1", "  cycle 1: count = 1"]


def test_waves_show_every_cycle(tmp_path: Path) -> None:
    write_trace(outcome("broken", 4).trace, tmp_path / "run.vcd")
    text = (tmp_path / "run.vcd").read_text(encoding="ascii")
    (name,) = re.findall(r"\$var wire 8 (\S+) count \$end", text)
    found, now = {}, -1
    for line in text.splitlines():
        if line.startswith("#"):
            now = int(line[1:])
        elif line.startswith("b") and line.split()[1] == name:
            found[now] = int(line.split()[0][1:], 2)
    assert found == {0: 0, 1000: 1, 2000: 2, 3000: 3}
    assert now == 4000
