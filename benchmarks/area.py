"""Area and delay of units, compared with published units of equal numbers of products; and overhead of sparsity.

``python benchmarks/area.py --liberty osu018_stdcells.lib`` synthesises every unit with the recipe of ``sptc area
--liberty osu018_stdcells.lib --orders 5``. Debian's package qflow-tech-osu018 contains the library. Each figure is the
median of five port orders, since ABC's heuristics give other results for other port orders. The published designs were
measured with the same recipe, with wires in place of their registers.
"""

import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

from measure import Row, options, show
from sptc.errors import Error
from sptc.infra.pools import cores
from sptc.rtl.config import PRESETS, STAGE_CUTS, CoreConfig
from sptc.synth.liberty import Library
from sptc.synth.netlist import around_units, unit
from sptc.synth.price import Measurement, Request, measure, measure_all
from sptc.synth.recipe import Recipe
from tqdm import tqdm

#: Published units, synthesised by the same recipe with library osu018: number of products, area per product in 1000
#: square microns, and delay in ns.
PUBLISHED = {
    "Vortex TFR, f16 x4 + f32": (4, 55.8, 14.6),
    "Vortex TFR, f16 x8 + f32": (8, 53.2, 15.3),
    "Vortex TFR with nine dense formats, products of f16": (4, 143.0, 18.9),
    "Vortex, s8 x4 + s32": (4, 19.3, 5.6),
    "fpnew SDOTP, f16 x2 + f32, correctly rounded": (2, 90.7, 26.6),
}
_FOUR_STAGES = STAGE_CUTS[1:]
_F16 = CoreConfig(name="f16", formats=("f16",), rows=1, columns=1, cuts=_FOUR_STAGES)
_S8 = CoreConfig(name="s8", formats=("s8",), rows=1, columns=1, cuts=_FOUR_STAGES)
#: Measured units by name. The number in a name is the number of products per cycle; for `hopper`, of f16 products.
UNITS = {
    **{f"f16 x{products}": replace(_F16, step_bytes=2 * products) for products in (4, 8, 16)},
    **{f"s8 x{products}": replace(_S8, step_bytes=products) for products in (4, 8, 16, 32)},
    "hopper x16": PRESETS["hopper"],
}
#: Units that are also measured in arrays, and numbers of rows and columns of these square arrays.
ARRAYS = ("f16 x16", "s8 x32", "hopper x16")
SIDES = (4, 1)
#: Units for `--small`: few products, and a preset reduced to two formats.
SMALL_UNITS = {
    "f16 x2": replace(_F16, step_bytes=4),
    "s8 x4": replace(_S8, step_bytes=4),
    "tiny x4": replace(PRESETS["tiny"], formats=("s8", "u8"), step_bytes=4),
}
SMALL_ARRAYS = ("s8 x4",)
#: Upper bounds for dense units: area per product in 1000 square microns, and delay in ns.
BOUNDS = {"f16 x8": (44.0, 15.0), "f16 x16": (41.0, 15.5), "s8 x32": (13.0, 7.5), "hopper x16": (78.0, 20.0)}
BEGIN, END = "<!-- area table -->", "<!-- end of area table -->"
PAGE = Path(__file__).parents[1] / "docs" / "guides" / "area.md"


@dataclass(frozen=True)
class Figures:
    """Medians for a unit: area per product in 1000 square microns, delay in ns, overhead of sparsity in per cent."""

    products: int
    dense: float
    dense_ns: float
    with_adders: float
    sparse: float
    sparse_ns: float


@dataclass(frozen=True)
class Overheads:
    """Median figures of square arrays of units with pipeline registers; the keys are the units per side, 4 or 1."""

    area: dict[int, float]  #: Area of a dense array in 1000 square microns per multiplication
    #: Area that sparsity adds in per cent, and the share of the sparse array outside its units in per cent: metadata
    #: decoders, reordering of B and control.
    added: dict[int, float]
    around: dict[int, float]
    #: Delay of the longest stage of the dense unit in ns, and delay that sparsity adds to this stage in per cent.
    stage_ns: float
    delay: float


def products(config: CoreConfig) -> int:
    """Return the products per cycle of the widest format except tf32, which has half as many products."""
    return min(config.slots_of(element) for element in config.elements if element.container_bits < 32)


def measured(requests: dict[str, Request]) -> dict[str, Measurement]:
    """Measure each netlist with its ports in every order of the recipe, on all processor cores."""
    with tqdm(unit="run", disable=None, leave=False) as bar:

        def progress(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        return measure_all(requests, cores(), progress=progress)


def figures_of(units: dict[str, CoreConfig], recipe: Recipe) -> dict[str, Figures]:
    """Measure every unit alone, with wires in place of its registers."""
    wires, netlists = replace(recipe, combinational=True), {}
    for name, config in units.items():
        dense = unit(replace(config, sparse=False), combinational=True)
        netlists[f"{name} dense"] = dense, wires
        netlists[f"{name} sparse"] = unit(config, combinational=True), wires
        netlists[f"{name} adders"] = dense, replace(wires, full_adders=True)
    results = measured(netlists)

    def area(name: str, config: CoreConfig) -> float:
        return results[name].amounts["area"] / products(config) / 1000

    return {
        name: Figures(
            products(config),
            area(f"{name} dense", config),
            nanoseconds(results[f"{name} dense"]),
            area(f"{name} adders", config),
            area(f"{name} sparse", config),
            nanoseconds(results[f"{name} sparse"]),
        )
        for name, config in units.items()
    }


def nanoseconds(measurement: Measurement) -> float:
    """Return the delay of the longest path in ns."""
    assert measurement.longest is not None
    return measurement.longest / 1000


def overheads_of(config: CoreConfig, recipe: Recipe) -> Overheads:
    """Measure arrays of 4 x 4 units and of one unit, each with its pipeline registers, with and without sparsity."""
    netlists = {}
    for sparse in (True, False):
        netlists[f"unit {sparse}"] = unit(replace(config, sparse=sparse)), recipe
        for side in SIDES:
            sized = replace(config, rows=side, columns=side, sparse=sparse)
            netlists[f"around {side} {sparse}"] = around_units(sized, "core"), recipe
    results = measured(netlists)
    areas = {name: measurement.amounts["area"] for name, measurement in results.items()}

    def area(side: int, sparse: bool) -> float:
        return side * side * areas[f"unit {sparse}"] + areas[f"around {side} {sparse}"]

    stage_ns = nanoseconds(results["unit False"])
    return Overheads(
        area={side: area(side, False) / side / side / products(config) / 1000 for side in SIDES},
        added={side: 100 * (area(side, True) / area(side, False) - 1) for side in SIDES},
        around={side: 100 * areas[f"around {side} True"] / area(side, True) for side in SIDES},
        stage_ns=stage_ns,
        delay=100 * (nanoseconds(results["unit True"]) / stage_ns - 1),
    )


def rows_of(figures: dict[str, Figures], overheads: dict[str, Overheads], seconds: float) -> list[Row]:
    """Return the measured figures, each with its upper bound if it has one."""
    rows = []
    for name, one in figures.items():
        area, delay = (f"at most {bound:g}" if bound else "" for bound in BOUNDS.get(name, (None, None)))
        rows.append(Row(f"{name} dense, area per product", "k um2", one.dense, area))
        rows.append(Row(f"{name} dense, delay", "ns", one.dense_ns, delay))
        rows.append(Row(f"{name} dense with full-adder cells, area per product", "k um2", one.with_adders))
        rows.append(Row(f"{name} sparse, area per product", "k um2", one.sparse))
        rows.append(Row(f"{name} sparse, delay", "ns", one.sparse_ns))
    for name, added in overheads.items():
        for side in SIDES:
            array = f"{name}, array of {side} x {side}"
            rows.append(Row(f"{array} dense, area per product", "k um2", added.area[side]))
            rows.append(Row(f"{array}, area added by sparsity", "%", added.added[side]))
            rows.append(Row(f"{array} sparse, area outside the units", "%", added.around[side]))
        rows.append(Row(f"{name} dense, delay of the longest stage", "ns", added.stage_ns))
        rows.append(Row(f"{name}, delay that sparsity adds to the longest stage", "%", added.delay))
    rows.append(Row("time to measure the largest sparse unit with its stages", "s", seconds, "at most 60"))
    return rows


def table(figures: dict[str, Figures], overheads: dict[str, Overheads]) -> str:
    """Return the Markdown tables for the guide on area."""
    lines = ["| unit | products | area per product | area with full-adder cells | delay |", "|---|---|---|---|---|"]
    lines += [
        f"| {name} | {count} products | {area:.1f} k um2 | | {delay:.1f} ns |"
        for name, (count, area, delay) in PUBLISHED.items()
    ]
    for name, one in figures.items():
        words = name.partition(" ")[0]
        described = f"`{words}` preset, {' '.join(PRESETS[words].formats)}" if words in PRESETS else f"{words} alone"
        count = f"{one.products} products of f16" if words in PRESETS else f"{one.products} products"
        dense = f"{one.dense:.1f} k um2 | {one.with_adders:.1f} k um2 | {one.dense_ns:.1f} ns"
        lines.append(f"| **sptc {described}, dense** | {count} | {dense} |")
        lines.append(f"| **sptc {described}, sparse** | {count} | {one.sparse:.1f} k um2 | | {one.sparse_ns:.1f} ns |")
    lines += [
        "",
        "| array with its registers | units | area per product, dense | area that sparsity adds "
        "| area outside the units | longest stage, dense | delay that sparsity adds |",
        "|---|---|---|---|---|---|---|",
        *(
            f"| {name} products | {side} x {side} units | {one.area[side]:.1f} k um2 | {one.added[side]:.1f} % "
            f"| {one.around[side]:.1f} % | {one.stage_ns:.2f} ns | {one.delay:.1f} % |"
            for name, one in overheads.items()
            for side in SIDES
        ),
    ]
    return "\n".join(lines)


def write(text: str) -> None:
    """Replace the tables between the marks in the guide on area."""
    whole = PAGE.read_text(encoding="utf-8")
    before, _, rest = whole.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")


def main() -> None:
    """Measure areas and delays, print the figures and, on request, write the tables of the guide."""
    parser = options(__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--liberty", type=Path, nargs="+", required=True, metavar="FILE", help="standard cells")
    orders = "number of syntheses of each design, each with its ports in another order (default 5)"
    parser.add_argument("--orders", type=int, default=5, metavar="N", help=orders)
    parser.add_argument("--page", action="store_true", help="also write the tables of docs/guides/area.md")
    chosen = parser.parse_args()
    if chosen.small and chosen.page:
        parser.error("--page cannot be combined with --small")
    if chosen.orders < 1:
        parser.error("--orders must be at least 1")
    units, arrays = (SMALL_UNITS, SMALL_ARRAYS) if chosen.small else (UNITS, ARRAYS)
    try:
        recipe = Recipe(library=Library.read(*chosen.liberty), orders=1 if chosen.small else chosen.orders)
        figures = figures_of(units, recipe)
        overheads = {name: overheads_of(units[name], recipe) for name in arrays}
        start = time.perf_counter()
        last = unit([*units.values()][-1])
        conversion = time.perf_counter() - start
        seconds = conversion + measure(last, replace(recipe, orders=1)).seconds
    except Error as error:
        sys.exit(str(error))
    show(rows_of(figures, overheads, seconds), chosen.json)
    if chosen.page:
        write(table(figures, overheads))


if __name__ == "__main__":
    main()
