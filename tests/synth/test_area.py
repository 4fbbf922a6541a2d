"""In area surveys, the areas of parts add up to the whole, and the areas of sparsity, stages and formats are right."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from sptc.rtl.config import CUTS, CoreConfig
from sptc.synth import area
from sptc.synth.area import Stage, Survey, survey
from sptc.synth.liberty import Library
from sptc.synth.netlist import stages, unit
from sptc.synth.plot import plot_survey
from sptc.synth.price import Measurement
from sptc.synth.recipe import Recipe
from sptc.synth.report import as_dict, table
from sptc.tests.synth.netlists import nands


def measured(gates: float, depth: float | None = 10.0) -> Measurement:
    return Measurement({"gates": gates}, depth, {}, 1.5)


@pytest.fixture
def made_up() -> Survey:
    return Survey(
        config=CoreConfig(name="made-up", formats=("s8", "u8"), rows=2, columns=3), recipe=Recipe(), seconds=3.0,
        unit=measured(1100, 22), twin=measured(1000, 20), unit_with_adders=None, twin_with_adders=None,
        core=measured(30), core_twin=measured(10), warp=measured(400), refusal="", formats=(), top="", parts=(),
        stages=(Stage("multiply", 4, {"gates": 600}, 9), Stage("round", 1, {"gates": 200}, 8)), between=measured(200),
    )  # fmt: skip


def test_parts_and_sums_in_the_table(made_up: Survey) -> None:
    assert made_up.units == {"gates": 6600}
    assert made_up.array == {"gates": 6630}
    assert made_up.warp_alone == {"gates": 370}
    assert made_up.whole == {"gates": 7000}
    assert made_up.stages_sum == {"gates": 1000}
    assert made_up.overhead == {"gates": 10.0, "longest": 10.0}
    assert made_up.array_overhead == {"gates": pytest.approx(100 * (6630 - 6010) / 6010)}
    text = table(made_up)
    rows = [line.split() for line in text.splitlines()]
    for row in (
        ["part", "count", "gates", "depth", "seconds"], ["unit", "1", "1100", "22", "1.5"],
        ["dense", "unit", "1", "1000", "20", "1.5"], ["units", "6", "6600", "-"],
        ["around", "dense", "units", "1", "10", "10", "1.5"], ["array", "1", "6630", "-"],
        ["around", "the", "array", "1", "370", "10", "1.5"], ["warp", "1", "7000", "-"],
        ["multiply", "4", "600", "9", "60.0"], ["sum", "1", "1000", "-", "100.0"],
    ):  # fmt: skip
        assert row in rows
    assert "\nsparsity, against the dense unit: +10.0 % gates, +10.0 % depth\n" in text
    assert "\nsparsity, against the dense array: +10.3 % gates\n" in text
    assert "\nthe results of one synthesis vary by several per cent: --liberty FILE --orders 5 gives" in text
    assert "  formats = s8,u8  scales = none  step_bytes = 32  mux = mux4  " in text
    assert "the sum differs from the flattened unit" in text


@pytest.mark.regression
def test_a_survey(least: CoreConfig, library: Library, tmp_path: Path) -> None:
    result = survey(least, Recipe(library=library, full_adders=True), jobs=2, closer=("stage", "format"))
    assert result.twin_with_adders
    assert result.twin.amounts["area"] < result.unit.amounts["area"]
    assert result.overhead["area"] > 0
    assert result.unit_with_adders.cells["ADD"] > 10
    assert "ADD" not in result.unit.cells
    assert result.unit_with_adders.amounts["area"] < result.unit.amounts["area"]
    assert result.core.cells["top_unit"] == 2
    assert result.core_twin.amounts["area"] < result.core.amounts["area"]
    assert result.array_overhead["area"] > result.overhead["area"]
    assert result.array["area"] == pytest.approx(2 * result.unit.amounts["area"] + result.core.amounts["area"])
    assert (result.warp, result.refusal) == (None, "step_bytes must be 16 or 32 in the array of a warp, not 4")
    assert sum(stage.count for stage in result.stages) == len(stages(unit(least))[0])
    parts = sum(stage.amounts["area"] for stage in result.stages) + result.between.amounts["area"]
    assert result.stages_sum["area"] == pytest.approx(parts)
    assert [share.name for share in result.formats] == ["s8", "u8"]
    for share in result.formats:
        assert share.amounts["area"] == result.unit.amounts["area"] - share.without.amounts["area"] > 0
    values = json.loads(json.dumps(as_dict(result)))
    nand2 = {"cell": "NAND2", "area": 4.0}
    shown = {"file": "little.lib", "sha256": library.sha256, "corner": library.corner, "nand2": nand2}
    assert values["library"] == shown
    assert values["units"] == {"area": "the library's", "gates": "NAND2", "delay": "ps"}
    assert values["unit"]["area"] == result.unit.amounts["area"]
    assert "cached" in table(replace(result, unit=replace(result.unit, cached=True)))
    plot_survey(result, tmp_path / "stages.svg")
    first = (tmp_path / "stages.svg").read_text()
    assert all(word in first for word in ("between the stages", "area [library's unit]", "least: "))
    plot_survey(result, tmp_path / "stages.svg")
    assert (tmp_path / "stages.svg").read_text() == first


@pytest.mark.regression
def test_a_unit_without_registers(least: CoreConfig, library: Library, tmp_path: Path) -> None:
    least = replace(least, cuts=CUTS)
    measurement = survey(least, Recipe(library=library, combinational=True), jobs=2, twin=False)
    registered = survey(least, Recipe(library=library), jobs=2, twin=False)
    assert "FLOP" not in measurement.unit.cells
    assert (measurement.core, measurement.array, measurement.whole) == (None, None, None)
    assert measurement.unit.longest > registered.unit.longest
    assert "\npipeline registers replaced by wires\n" in table(measurement)
    plot_survey(measurement, tmp_path / "unit.svg")
    assert "least: a unit" in (tmp_path / "unit.svg").read_text()


def test_stages_are_grouped(least: CoreConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {"part0": nands(2), "part11": nands(2), "lane_3": nands(5), "c": nands(1), "offset$88": nands(3)}
    monkeypatch.setattr(area, "stages", lambda whole: (parts, nands(4)))
    monkeypatch.setattr(area, "unit", lambda config, **how: nands(7))
    measurement = survey(least, Recipe(combinational=True), jobs=1, closer=("stage",))
    assert [(stage.name, stage.count, stage.amounts["gates"], stage.longest) for stage in measurement.stages] == [
        ("part", 2, 4, 1), ("lane", 1, 5, 1), ("c", 1, 1, 1), ("offset", 1, 3, 1),
    ]  # fmt: skip
    assert measurement.stages_sum == {"gates": 4 + 5 + 1 + 3 + 4}


@pytest.mark.regression
def test_cells_of_an_fpga(least: CoreConfig) -> None:
    measurement = survey(replace(least, sparse=False), Recipe(fpga="ice40"), jobs=1)
    assert measurement.unit.amounts["LUT"] > 100
    assert measurement.unit.amounts["FF"] > 10
    assert measurement.core is None
    some = replace(measurement.unit, amounts={name: 2 * amount for name, amount in measurement.unit.amounts.items()})
    twins = replace(measurement, unit=some, twin=measurement.unit)
    assert twins.overhead == {name: 100.0 for name, amount in measurement.unit.amounts.items() if amount}
    assert "mux" not in twins.overhead


def test_a_format_that_cannot_be_left_out(least: CoreConfig) -> None:
    measurement = survey(replace(least, formats=("s8",), sparse=False), Recipe(), jobs=1, closer=("format",))
    (share,) = measurement.formats
    assert (share.without, share.amounts) == (None, {})
    assert "\nno unit without s8: formats must be a tuple of at least one format, not ()\n" in table(measurement)


def test_a_picture_of_an_array(made_up: Survey, tmp_path: Path) -> None:
    plot_survey(replace(made_up, stages=(), between=None), tmp_path / "warp.svg")
    text = (tmp_path / "warp.svg").read_text()
    for word in ("a warp with an array of 2x3 units", "6 units", "gates [NAND2]", "6,600", "370"):
        assert word in text
