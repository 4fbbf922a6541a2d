"""What is said of proofs: totals, long runs, waves."""

import re
from pathlib import Path

import pytest
from sptc.formal.model import Trace
from sptc.formal.proof import Outcome
from sptc.formal.properties import Case, Engine, Property
from sptc.formal.report import Table, as_dict, counterexample, write_trace

ITEM = Property("test.one", "It holds.", lambda h: None, lambda config: [()], Engine.SOLVER, lambda: 1)
CASE = Case(ITEM, (), ("tiny", "ampere"))


def outcome(result: str, cycles: int = 0) -> Outcome:
    """Make one; a broken one counts cycles."""
    steps = [{"count": cycle, "fixed": 1} for cycle in range(cycles)]
    trace = Trace({"count": 8, "fixed": 1}, steps) if cycles else None
    values = tuple({name: str(value) for name, value in step.items()} for step in steps)
    covers = {"proved": {"cover_some": 3}, "vacuous": {"cover_some": 3, "cover_none": None}}.get(result, {})
    return Outcome(CASE, "ABC pdr", "no bound", result, 0.25, covers, trace, values, ("claim_small",) * bool(cycles))


def test_totals_say_what_was_found() -> None:
    """Each kind of result by its name, and what was not asked."""
    table = Table([CASE] * 7)
    for result in ("proved", "vacuous", "undecided", "proved", "broken"):
        assert re.search(rf"tiny ampere +ABC pdr +no bound +{result} +0\.2$", table.row(outcome(result)))
    assert table.total == "2 proved, 1 vacuous, 1 undecided, 1 broken; 2 not asked; 1 s of work"


@pytest.mark.parametrize("result", ["proved", "vacuous", "undecided", "broken"])
def test_plain_values(result: str) -> None:
    found = as_dict(outcome(result, 2 if result == "broken" else 0))
    assert (found["property"], found["presets"], found["result"]) == ("test.one", ["tiny", "ampere"], result)
    assert found["covers"] == outcome(result).covers
    assert found["broken"] == (["claim_small"] if result == "broken" else [])
    assert [values["count"] for values in found["counterexample"]] == (["0", "1"] if result == "broken" else [])


def test_of_a_long_run_the_end_is_shown() -> None:
    """There the claim breaks. What stays as it is is said once."""
    lines = counterexample(outcome("broken", 100)).splitlines()
    assert lines[:2] == ["test.one of - is broken: It holds.", "  does not hold: small"]
    assert lines[2:] == [f"  cycle {cycle}: count = {cycle}" for cycle in range(60, 100)]
    assert counterexample(outcome("broken", 2)).splitlines()[2:] == [
        "  cycle 0: count = 0, fixed = 1",
        "  cycle 1: count = 1",
    ]


def test_waves_show_every_cycle(tmp_path: Path) -> None:
    """A change stands at the time of its cycle."""
    broken = outcome("broken", 4)
    assert broken.trace
    write_trace(broken.trace, tmp_path / "run.vcd")
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
