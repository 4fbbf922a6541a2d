"""The list of a top module's parts has every part once, with the number of instances of the part."""

import gc
from dataclasses import replace
from typing import Any

import pytest
from sptc.rtl.config import PRESETS
from sptc.rtl.emit import emit
from sptc.rtl.tcgen05 import TCGEN05_ARRAY, Tcgen05
from sptc.rtl.warp import Warp
from sptc.rtl.warpgroup import Warpgroup
from sptc.synth import parts as hierarchy
from sptc.synth.area import survey
from sptc.synth.netlist import modules
from sptc.synth.parts import TOPS, names_of, parts_of
from sptc.synth.recipe import Recipe
from sptc.synth.report import table

TINY = replace(PRESETS["tiny"], name="own", formats=("s8",), rows=2, columns=4)
ARRAYS = 4


@pytest.mark.regression
def test_every_module_is_in_one_part() -> None:
    parts = parts_of(TINY, "warpgroup")
    counts = {part.name: part.count for part in parts}
    assert next(iter(counts)) == "unit"
    assert counts["unit"] == ARRAYS * TINY.rows * TINY.columns
    assert counts["decoder of a row"] == ARRAYS * TINY.rows
    assert counts["order of a column"] == ARRAYS * TINY.columns
    assert counts["panels or mma"] == counts["control of an array"] == ARRAYS
    assert counts["panels to operands"] == ARRAYS
    assert all(counts[name] == 1 for name in ("fetch of operands", "storage of A", "instruction slots"))
    whole = modules(emit(TINY, "warpgroup", "top", language="rtlil", with_unit=False))
    kept = sum(part.count * part.netlist.text.count("cell $dff") for part in parts if part.netlist)
    assert kept == sum(text.count("cell $dff") for text in whole.values())


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
@pytest.mark.parametrize("top", TOPS)
def test_every_part_is_in_the_hardware(top: str) -> None:
    config = replace(TINY, rows=4, columns=4)
    of_cta = replace(TINY, rows=TCGEN05_ARRAY.rows, columns=TCGEN05_ARRAY.columns)
    tops = {"warp": lambda: Warp(config), "warpgroup": lambda: Warpgroup(config), "tcgen05": lambda: Tcgen05(of_cta)}
    places: set[str] = set()

    def enter(component: Any, place: str) -> None:
        if place in places:  # a module of the same kind was visited before
            return
        places.add(place)
        if place in names_of(top):
            for name, (part, _) in component.elaborate(None)._named_submodules.items():
                enter(part, hierarchy._place(f"{place}.{name}"))

    enter(tops[top](), "")
    gc.collect()  # free unused components here, where Amaranth's warnings about them are off
    assert names_of(top).keys() <= places


@pytest.mark.regression
def test_area_of_the_parts() -> None:
    measurement = survey(TINY, Recipe(), jobs=2, twin=False, top="warp")
    units, *others = measurement.parts
    assert units.amounts == {name: units.count * amount for name, amount in measurement.unit.amounts.items()}
    assert all(part.amounts["gates"] > 0 for part in others)
    assert measurement.parts_sum["gates"] == sum(part.amounts["gates"] for part in measurement.parts)
    beside = 100 - 100 * units.amounts["gates"] / measurement.parts_sum["gates"]
    assert f"\n{beside:.1f} % of the area is outside the units\n" in table(measurement)


def module(name: str, *others: str) -> str:
    """Return the RTLIL text of a module with a register, a helper module, and instances of the modules `others`."""
    cells = [f"cell \\{name}.{other} \\{other}\nend\n" for other in ("helper", *others)]
    helper = f"module \\{name}.helper\nwire width 1 input 0 \\i\ncell $not $1\nend\nend\n"
    return f"module \\{name}\nwire width 1 input 0 \\i\ncell $dff $1\nend\n{''.join(cells)}end\n{helper}"


def test_parts_of_a_small_hierarchy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules of one kind, from two arrays of two units, form one part with their helper modules."""
    text = module("top", "tensor_cores") + module("top.tensor_cores", "fetch", "core_0", "core_1")
    text += module("top.tensor_cores.fetch")
    for core in ("top.tensor_cores.core_0", "top.tensor_cores.core_1"):
        text += module(core, "warp") + module(f"{core}.warp", "core")
        text += module(f"{core}.warp.core", "unit_0", "unit_1", "decode_row_0")
        text += "".join(module(f"{core}.warp.core.{name}") for name in ("unit_0", "unit_1", "decode_row_0"))
    monkeypatch.setattr("sptc.synth.parts.emit_around_units", lambda config, top: text)
    monkeypatch.setattr("sptc.synth.parts.black_box_of_unit", lambda config, unit: "")
    by_name = {part.name: part for part in parts_of(TINY, "warpgroup")}
    assert {name: part.count for name, part in by_name.items()} == {
        "unit": 4, "wgmma groups, waits and flags": 1, "instruction slots": 1, "fetch of operands": 1,
        "panels or mma": 2, "registers to operands, results to registers": 2, "control of an array": 2,
        "decoder of a row": 2,
    }  # fmt: skip
    assert by_name["unit"].netlist is None
    for part in by_name.values():
        if part.netlist:
            assert [part.netlist.text.count(cell) for cell in ("cell $dff", "cell $not")] == [1, 1], part.name
