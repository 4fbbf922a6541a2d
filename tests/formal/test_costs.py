"""What proofs cost: every property has figures, and the quick set is quick and says what it leaves out."""

import pytest
from sptc.cli import main
from sptc.formal.catalogue import PROPERTIES
from sptc.formal.costs import COSTS, LEFT_OUT, NOT_THERE, ONLY_OF_TINY, is_quick
from sptc.formal.properties import cases
from sptc.rtl.config import PRESETS

QUICK = [case for case in cases(PROPERTIES, [PRESETS["tiny"], PRESETS["hopper"]]) if is_quick(case)]


def test_every_property_has_figures() -> None:
    assert [*COSTS] == [item.name for item in PROPERTIES]
    for cost in COSTS.values():
        assert 0 <= max(cost.tiny, cost.hopper) <= cost.every != 0


def test_the_quick_set_is_quick() -> None:
    """Two minutes of two cores, of which the figures had half; what is asked of both datapaths counts twice here."""
    found = {(case.subject.name, preset) for case in QUICK for preset in case.presets}
    assert sum(getattr(COSTS[name], preset) for name, preset in found) < 2 * 2 * 120


def test_what_the_quick_set_leaves_out() -> None:
    """By property, and never a whole topic."""
    kept = {case.subject.name for case in QUICK}
    assert COSTS.keys() - kept == {*LEFT_OUT, *NOT_THERE}
    assert {name.partition(".")[0] for name in kept} == {name.partition(".")[0] for name in COSTS}
    of_hopper = {case.subject.name for case in QUICK if case.presets == ("hopper",)}
    assert not of_hopper & {*ONLY_OF_TINY}


def test_the_help_names_what_is_left_out(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "10000")
    with pytest.raises(SystemExit):
        main(["prove", "--help"])
    text = capsys.readouterr().out
    assert f"nothing of {', '.join(LEFT_OUT)}, of {', '.join(ONLY_OF_TINY)} only" in text
    assert f"and {', '.join(NOT_THERE)} are of neither" in text


def test_the_list_says_what_each_costs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prove", "--list", "metadata.legal"]) == 0
    cost = COSTS["metadata.legal"]
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "metadata.legal"
    assert lines[2] == f"    {cost.tiny:g} s of tiny, {cost.hopper:g} s of hopper, {cost.every:g} s of every preset"
