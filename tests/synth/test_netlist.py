"""Netlists of parts of the hardware have the right cells and black boxes."""

import re
from dataclasses import replace
from pathlib import Path
from textwrap import indent

import pytest
from sptc.infra.yosys import run_yosys
from sptc.rtl.config import PRESETS, CoreConfig
from sptc.synth.netlist import Netlist, around_units, modules, stages, unit


def cells_of(netlist: Netlist, folder: Path) -> dict[str, int]:
    """Return the number of cells of each type that Yosys finds in the flattened top module."""
    (folder / "netlist.il").write_text(netlist.text)
    printed = run_yosys(folder, "read_rtlil netlist.il\nhierarchy -check -top top\nproc\nflatten\nstat\n")
    return {name: int(count) for count, name in re.findall(r"^ +(\d+)   (\S+)$", printed, re.MULTILINE)}


def test_units() -> None:
    """The netlist of a unit depends on sparsity and pipeline registers, but not on the configuration's name."""
    config = CoreConfig(name="one", formats=("s8",), step_bytes=4, cuts=("reduce",))
    whole = unit(config)
    assert whole.text == unit(replace(config, name="other")).text
    assert str(whole) == "unit"
    dense = unit(replace(config, sparse=False))
    assert str(dense) == "dense unit"
    assert len(dense.text) < len(whole.text)
    assert "wire width 1 input" in whole.text
    top = modules(unit(config, combinational=True).text)["top"]
    assert not re.search(r"input \d+ \\enable", top)
    assert re.search(r"connect \\enable 1'1", top)
    assert unit(config, fpga=True).text.count("cell $mul ") > 0 == whole.text.count("cell $mul ")


@pytest.mark.regression
@pytest.mark.parametrize(("sparse", "most"), [(False, 100), (True, 300)], ids=["control", "decoders"])
def test_the_units_of_an_array_are_black_boxes(sparse: bool, most: int, tmp_path: Path) -> None:
    """Outside its units, a dense array has only pipeline control; a sparse array also has row decoders and flags."""
    config = CoreConfig(name="six", formats=("s8",), step_bytes=4, rows=2, columns=3, cuts=("reduce",), sparse=sparse)
    array = around_units(config, "core")
    cells = cells_of(array, tmp_path)
    assert cells["top_unit"] == 6
    assert not re.search(r"module \\top_unit\.", array.text)
    assert sum(count for name, count in cells.items() if name != "top_unit") < most


@pytest.mark.regression
def test_a_warp_holds_its_array() -> None:
    config = replace(PRESETS["tiny"], formats=("s8",))
    warp = around_units(config, "warp")
    assert "module \\top.core\n" in warp.text
    assert warp.text.count("\n  cell \\top_unit ") == config.rows * config.columns


@pytest.mark.regression
def test_stages_of_a_netlist_and_of_a_unit(tmp_path: Path) -> None:
    ports = "wire input 0 \\i\nwire output 1 \\o\n"
    inverter = "cell $not $1\nparameter \\A_WIDTH 1\nparameter \\A_SIGNED 0\nparameter \\Y_WIDTH 1\n"
    inside = {"top": "wire width 2 input 0 \\x\nwire width 2 output 1 \\y\n"}
    for n in "01":
        inside["top"] += f"cell \\top.part{n} \\part{n}\nconnect \\i \\x [{n}]\nconnect \\o \\y [{n}]\nend\n"
        inside[f"top.part{n}"] = f"{ports}cell \\top.part{n}.inner \\inner\nconnect \\i \\i\nconnect \\o \\o\nend\n"
        inside[f"top.part{n}.inner"] = f"{ports}{inverter}connect \\A \\i\nconnect \\Y \\o\nend\n"
    texts = [f"module \\{name}\n{indent(text, '  ')}end\n" for name, text in inside.items()]
    nested = "".join(["attribute \\top 1\n", *texts])
    assert list(modules(nested)) == ["top", "top.part0", "top.part0.inner", "top.part1", "top.part1.inner"]
    parts, between = stages(Netlist("whole", nested))
    assert list(parts) == ["part0", "part1"]
    assert parts["part0"].text == parts["part1"].text
    assert list(modules(parts["part0"].text)) == ["top", "top.inner"]
    assert cells_of(parts["part0"], tmp_path)["$not"] == 1
    rest = cells_of(between, tmp_path)
    assert (rest["top.part0"], rest["top.part1"]) == (1, 1)
    assert "$not" not in rest
    whole = unit(CoreConfig(name="two", formats=("s8",), step_bytes=4, cuts=("reduce",)))
    parts, between = stages(whole)
    assert len(parts) > 1
    assert sum(len(modules(part.text)) for part in parts.values()) + 1 == len(modules(whole.text))
    assert {f"top.{name}" for name in parts} <= cells_of(between, tmp_path).keys()
