"""The parts of a warpgroup: each there once, as often as the hardware has it, and nothing left out."""

from dataclasses import replace

import pytest
from sptc.errors import Error
from sptc.rtl.config import PRESETS
from sptc.rtl.emit import emit
from sptc.synth.area import survey, warpgroup_parts
from sptc.synth.netlist import modules
from sptc.synth.parts import Part
from sptc.synth.recipe import Recipe
from sptc.synth.report import table

TINY = replace(PRESETS["tiny"], name="own", rows=2, columns=4)
ARRAYS = 4


@pytest.fixture(scope="module")
def parts() -> list[Part]:
    return warpgroup_parts(TINY)


def test_how_many_there_are(parts: list[Part]) -> None:
    counts = {part.name: part.count for part in parts}
    assert next(iter(counts)) == "unit"
    assert counts["unit"] == ARRAYS * TINY.rows * TINY.columns
    assert counts["decoder of a row"] == ARRAYS * TINY.rows
    assert counts["order of a column"] == ARRAYS * TINY.columns
    assert counts["panels or mma"] == counts["control of an array"] == ARRAYS
    assert counts["fetch of operands"] == counts["instructions held, and groups"] == 1


def test_every_module_is_in_one_part(parts: list[Part]) -> None:
    """All registers of the whole are in the parts, as often as there are these."""
    whole = modules(emit(TINY, "warpgroup", "top", language="rtlil", with_unit=False))
    kept = sum(part.count * part.netlist.text.count("cell $dff") for part in parts if part.netlist)
    assert kept == sum(text.count("cell $dff") for text in whole.values())


@pytest.mark.regression
def test_what_they_take() -> None:
    found = survey(TINY, Recipe(), jobs=2, twin=False, closer=("warpgroup",))
    units, *others = found.warpgroup
    assert units.amounts == {name: units.count * amount for name, amount in found.unit.amounts.items()}
    assert all(part.amounts["gates"] > 0 for part in others)
    assert found.warpgroup_sum
    assert found.warpgroup_sum["gates"] == sum(part.amounts["gates"] for part in found.warpgroup)
    beside = 100 - 100 * units.amounts["gates"] / found.warpgroup_sum["gates"]
    assert f"\n{beside:.1f} % of it is beside the units\n" in table(found)


def test_a_datapath_that_serves_no_warp() -> None:
    with pytest.raises(Error, match="step_bytes must be 16 or 32"):
        warpgroup_parts(replace(TINY, step_bytes=4))
