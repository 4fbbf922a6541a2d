"""The parts of a warpgroup: each there once, as often as the hardware has it, and nothing left out."""

from dataclasses import replace

import pytest
from sptc.errors import Error
from sptc.rtl.config import PRESETS
from sptc.rtl.emit import emit
from sptc.rtl.tensor_core import TENSOR_CORE
from sptc.synth.area import survey, warpgroup_parts
from sptc.synth.netlist import modules
from sptc.synth.recipe import Recipe
from sptc.synth.report import table

TINY = PRESETS["tiny"]
ARRAYS = 4


def test_how_many_there_are() -> None:
    counts = {part.name: part.count for part in warpgroup_parts(TENSOR_CORE)}
    of_array = TENSOR_CORE.rows * TENSOR_CORE.columns
    assert next(iter(counts)) == "unit"
    assert counts["unit"] == ARRAYS * of_array == 128
    assert counts["decoder of a row"] == ARRAYS * TENSOR_CORE.rows
    assert counts["order of a column"] == ARRAYS * TENSOR_CORE.columns
    assert counts["panels or mma"] == counts["control of an array"] == ARRAYS
    assert counts["fetch of operands"] == counts["instructions held, and groups"] == 1


def test_every_module_is_in_one_part() -> None:
    """All registers of the whole are in the parts, as often as there are these."""
    whole = modules(emit(TINY, "warpgroup", "top", language="rtlil", with_unit=False))
    parts = [part for part in warpgroup_parts(TINY) if part.netlist]
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
        warpgroup_parts(replace(TINY, name="own", step_bytes=4))
