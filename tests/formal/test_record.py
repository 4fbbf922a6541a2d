"""The record of proofs: complete, read and written whole, and believed for the same problem alone."""

import gc
from collections import Counter
from pathlib import Path

import pytest
from sptc.errors import FileError
from sptc.formal.catalogue import PROPERTIES
from sptc.formal.digest import problem_digest
from sptc.formal.harness import Harness
from sptc.formal.properties import Case, Engine, Property, cases
from sptc.formal.record import RECORD, Proof, Record, read_record, settle_unless_recorded
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
    assert recorded == needed, "`sptc prove --record formal/proved.json` completes the record"


def test_a_recorded_problem_is_not_proved_again() -> None:
    outcome, proof = settle_unless_recorded(case(), None, {})
    assert (outcome.result, outcome.engine) == ("proved", "Bitwuzla")
    again, same = settle_unless_recorded(case(), None, {proof.digest: proof})
    assert (again.result, again.engine, same) == ("proved", "record", proof)


def test_a_problem_that_changed_is_settled_anew() -> None:
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
    gc.collect()  # what was not elaborated warns when it goes


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "proved.json"
    assert read_record(path) == Record(None, ())
    proofs = [Proof("a.b", "mux4", ("tiny", "ampere"), f"{place:016x}", "ABC pdr", place / 4) for place in range(3)]
    record = Record("0123", tuple(proofs[:2])).with_proof(proofs[2])
    record.write(path)
    assert read_record(path) == record
    assert record.by_digest["0" * 15 + "1"] == proofs[1]


@pytest.mark.parametrize("text", ["", "[]", '{"sources": null}', '{"sources": null, "proofs": [{"property": "a"}]}'])
def test_what_is_no_record_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "proved.json"
    path.write_text(text)
    with pytest.raises(FileError, match="is no record of proofs"):
        read_record(path)
