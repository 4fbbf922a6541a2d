"""Sweeps: every point in its place, those that are no configuration too."""

import json
from pathlib import Path

import pytest
from sptc.errors import Error
from sptc.synth.liberty import Library
from sptc.synth.recipe import Recipe
from sptc.synth.sweep import Grid, Point, points, sweep
from sptc.synth.sweep_report import plot_sweep, sweep_as_dict, sweep_table

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")

GRID = Grid(
    formats=(("s8",), ("f16",)), alignments=(12,), step_bytes=(4, 8), muxes=("mux4",), cuts=((), ("multiply", "reduce"))
)


@pytest.fixture
def found(library: Library) -> list[Point]:
    return sweep(GRID, Recipe(library=library), jobs=2)


def test_a_grid() -> None:
    """The last axis runs fastest; what packed e2m1 needs comes with it."""
    grid = Grid((("s8",), ("e2m1/4",)), (8, 36), (8,), ("mux4", "mux3"), ((),), sparse=False)
    found = points(grid)
    assert [str(point) for point in found[:3]] == [
        "s8 F=8 8 B mux4 none",
        "s8 F=8 8 B mux3 none",
        "s8 F=36 8 B mux4 none",
    ]
    assert len(found) == 8
    packed = found[-1].config
    assert (packed.scales, packed.block_alignment_bits) == (("ue8m0", "ue4m3"), 36)
    assert (packed.alignment_bits, packed.fp8_alignment_bits) == (36, 36)
    assert not any(point.config and point.config.sparse for point in found)


@pytest.mark.regression
def test_a_sweep(found: list[Point]) -> None:
    assert [point.place for point in found] == [point.place for point in points(GRID)]
    small, cut, large, _ = found[:4]
    assert small.products == {"s8": 4}
    assert large.products == {"s8": 8}
    assert large.measurement.amounts["area"] > 1.5 * small.measurement.amounts["area"]
    assert cut.measurement.longest < small.measurement.longest
    assert cut.products_per_ns["s8"] == pytest.approx(4000 / cut.measurement.longest)
    for point in found[4:]:
        assert (point.config, point.measurement, point.products) == (None, None, {})
        assert point.refusal.startswith("alignment_bits must be at least 20")


@pytest.mark.regression
def test_its_reports(found: list[Point], library: Library, tmp_path: Path) -> None:
    recipe = Recipe(library=library)
    lines = sweep_table(found, recipe).splitlines()
    header = next(place for place, line in enumerate(lines) if line.startswith("formats"))
    assert lines[header].split()[:5] == ["formats", "mux", "cuts", "F", "step"]
    rows = lines[header + 1 :]
    assert len(rows) == 8
    assert rows[1].split()[:5] == ["s8", "mux4", "multiply,reduce", "12", "4"]
    assert rows[5].endswith(
        "alignment_bits must be at least 20, the fraction bits of a product of these formats, not 12"
    )
    values = json.loads(json.dumps(sweep_as_dict(found, recipe)))
    assert values["points"][0]["configuration"]["step_bytes"] == 4
    assert values["points"][0]["products_per_cycle"] == {"s8": 4}
    assert values["points"][0]["unit"]["delay"] == found[0].measurement.longest
    assert (values["points"][4]["configuration"], values["points"][4]["unit"]) == (None, None)
    plot_sweep(found, recipe, tmp_path / "sweep.svg")
    text = (tmp_path / "sweep.svg").read_text()
    wanted = ("unit: area against throughput, little.lib", "a nanosecond", "s8", "8 B multiply,reduce", "area [library")
    assert all(word in text for word in wanted)


def test_several_formats_share_a_cycle() -> None:
    (point,) = points(Grid((("f16", "s8"),), (24,), (16,), ("mux4",), ((),)))
    assert point.products == {"f16": 8, "s8": 16}
    assert "8-16" in sweep_table([point], Recipe())


def test_a_grid_without_a_configuration() -> None:
    grid = Grid((("f16",), ("s9",)), (8,), (4,), ("mux4",), ((),))
    with pytest.raises(
        Error, match=r"^no point of the grid is a configuration; of f16 F=8 4 B mux4 none, alignment_bits"
    ):
        sweep(grid, Recipe())
