"""Area, delay and energy of dot-product units, arrays and top modules in a cell library, and of published designs.

``python benchmarks/area.py --liberty FILE [FILE ...] --record NAME`` applies the recipe of ``sptc area --liberty FILE
--orders 5``: medians over five port orders, since the heuristics of ABC give different results for different port
orders. The record ``benchmarks/area.json`` has an entry for each cell library, from which the documentation generates
its tables. Measurements are cached, so that the same command resumes an interrupted run. No figure includes wires,
placement or a clock tree.
"""

import json
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from measure import Row, options, show
from sptc.cli.progress import progress_bar
from sptc.errors import Error, FileError
from sptc.gemm.product import dense_instruction
from sptc.infra.files import write_whole
from sptc.infra.pools import cores
from sptc.infra.reading import read_bytes, read_json
from sptc.isa.instructions import parse
from sptc.rtl.config import PRESETS, STAGE_CUTS, CoreConfig
from sptc.rtl.tcgen05 import TCGEN05_ARRAY
from sptc.synth.area import survey
from sptc.synth.energy.electrical import CellLibrary
from sptc.synth.energy.measure import MappedUnit
from sptc.synth.energy.operands import drawn
from sptc.synth.liberty import Library
from sptc.synth.netlist import Netlist, around_units, unit
from sptc.synth.price import Measurement, Request, measure_all, versions
from sptc.synth.recipe import Recipe
from tqdm import tqdm

RECORD = Path(__file__).with_name("area.json")
_ALONE = CoreConfig(name="alone", formats=("f16",), rows=1, columns=1, cuts=STAGE_CUTS[1:])


def _alone(formats: str, products: Iterable[int], bits: int, **fields: Any) -> dict[str, CoreConfig]:
    """Return configurations of dot-product units with the given formats, one for each number of products per cycle."""
    base = replace(_ALONE, formats=tuple(formats.split()), **fields)
    return {f"{formats} x{count}": replace(base, step_bytes=count * bits // 8) for count in products}


#: Configurations of measured dot-product units, by name. The number after the x is the number of products per cycle.
UNITS = {
    **_alone("f16", (4, 8, 16), 16),
    **_alone("s8", (4, 8, 16, 32), 8),
    **_alone("e4m3 e5m2", (8, 16, 32), 8),
    **{
        name.replace("e2m1/4", kind): config
        for kind, scales in (("mxf4", ("ue8m0",)), ("nvfp4", ("ue4m3",)))
        for name, config in _alone("e2m1/4", (16, 32, 64), 4, scales=scales).items()
    },
    **PRESETS,
}
#: Dot-product units that are also synthesised for the least area.
LEAST_AREA = ("f16 x16", "s8 x32")
#: Dot-product units that are also measured in square arrays with pipeline registers, and side lengths of the arrays.
ARRAYS = {
    "f16 x16": UNITS["f16 x16"],
    "f16 x16 with a register after selection": replace(UNITS["f16 x16"], cuts=STAGE_CUTS),
    "s8 x32": UNITS["s8 x32"],
    "hopper": UNITS["hopper"],
}
SIDES = (4, 1)
#: Top modules whose submodules are measured, each with the configuration of its arrays of dot-product units.
_HOPPER = replace(PRESETS["hopper"], rows=8, columns=4)
TOPS = {"warp": _HOPPER, "warpgroup": _HOPPER, "tcgen05": TCGEN05_ARRAY}
#: Sparse instructions whose energy is measured, by format. e4m3 uses `wgmma`, since sm_90 emulates `mma` of e4m3.
INSTRUCTIONS = {
    "f16": "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32",
    "bf16": "mma.sp.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32",
    "tf32": "mma.sp.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32",
    "e4m3": "wgmma.mma_async.sp.sync.aligned.m64n8k64.f32.e4m3.e4m3",
    "s8": "mma.sp.sync.aligned.m16n8k64.row.col.s32.s8.s8.s32",
}
#: Distributions of operands for the measurement of energy, and simulated cycles of each measurement.
DISTRIBUTIONS, CYCLES = ("zeros", "75%", "half", "positive", "normal"), 4_000
#: Unit for the energy of all formats, and single-format units whose energy is measured with normal operands. All units
#: have the products per cycle (L) and the alignment bits (F) of sm_90, whose golden model checks the results.
ENERGY_UNIT, ENERGY_ALONE = _HOPPER, ("f16 x16", "s8 x16", "s8 x32")

#: Maximum size in bytes of the netlist file of a published design.
_NETLIST_BYTES = 1 << 28
#: Designs that are measured with `--small`.
SMALL = ("s8 x4",)

#: Measured quantities of one design, by name: one number, or median, smallest and largest number of several syntheses.
Figures = dict[str, float | list[float]]
#: Section of ``area.json``. Key: name of a measured design. Value: figures of the design.
Section = dict[str, Figures]


Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Run:
    """Settings of a run: library and recipe of the synthesis, and names of the measured designs (empty for all)."""

    recipe: Recipe
    names: tuple[str, ...]
    others: Path | None  #: Folder with netlists of published designs
    cycles: int = CYCLES

    def chosen(self, names: Iterable[str]) -> list[str]:
        """Return which of the given designs, by name, are measured: all of them, or those that ``--names`` lists."""
        return [name for name in names if not self.names or name in self.names]

    def measured(self, requests: Mapping[Key, Request]) -> dict[Key, Measurement]:
        """Measure each netlist in several syntheses with different port orders, on all processor cores."""
        with progress_bar("run") as progress:
            return measure_all(requests, cores(), progress=progress)


def products(config: CoreConfig) -> int:
    """Return how many products a dot-product unit computes per cycle, in its widest format below 32 bits (not tf32)."""
    return min(config.slots_of(element) for element in config.elements if element.container_bits < 32)


def figures(measurement: Measurement, count: int, suffix: str) -> Figures:
    """Return area and gates per product, and the longest path in ps: median, least and largest of several syntheses."""
    measured = measurement.orders or (measurement,)
    result: Figures = {"orders": len(measured)}
    for name, median in measurement.figures.items():
        values = [one.figures[name] for one in measured]
        divisor, figure = (1, "delay") if name == "longest" else (count, name)
        result[f"{figure}, {suffix}"] = [value / divisor for value in (median, min(values), max(values))]
    return result


def units(run: Run) -> Section:
    """Measure every dot-product unit alone, dense and sparse, with wires in place of its pipeline registers."""
    wires = replace(run.recipe, combinational=True)
    chosen = {name: UNITS[name] for name in run.chosen(UNITS)}
    requests: dict[tuple[str, str], Request] = {}
    for name, config in chosen.items():
        dense = unit(replace(config, sparse=False), combinational=True)
        sparse = unit(config, combinational=True)
        requests |= {(name, "dense"): (dense, wires), (name, "sparse"): (sparse, wires)}
        if name not in PRESETS:
            requests[name, "dense with full-adder cells"] = dense, replace(wires, full_adders=True)
        if name in LEAST_AREA:
            least = replace(wires, least_area=True)
            requests |= {(name, "dense, least area"): (dense, least), (name, "sparse, least area"): (sparse, least)}
    section: Section = {name: {"products": products(config)} for name, config in chosen.items()}
    for (name, kind), measurement in run.measured(requests).items():
        section[name] |= figures(measurement, products(chosen[name]), kind)
    return section


def arrays(run: Run) -> Section:
    """Measure square arrays of pipelined dot-product units: area, and by how many % sparsity increases it."""
    section: Section = {}
    for name in run.chosen(ARRAYS):
        config = ARRAYS[name]
        requests: dict[str, Request] = {}
        for sparse in (True, False):
            requests[f"unit {sparse}"] = unit(replace(config, sparse=sparse)), run.recipe
            for side in SIDES:
                sized = replace(config, rows=side, columns=side, sparse=sparse)
                requests[f"around {side} {sparse}"] = around_units(sized, "core"), run.recipe
        library = run.recipe.library
        if library and library.has_clock_gate:
            requests["gated"] = unit(config), replace(run.recipe, clock_gating=True)
        results = run.measured(requests)
        count = products(config)
        own = figures(results["unit False"], count, "dense unit") | figures(results["unit True"], count, "sparse unit")
        if "gated" in results:
            gated, whole = (results[name].amounts["area"] for name in ("gated", "unit True"))
            own["area of the unit that clock gates add"] = 100 * (gated / whole - 1)
        longest = {sparse: results[f"unit {sparse}"].figures["longest"] for sparse in (True, False)}
        for side in SIDES:
            area = {
                sparse: side * side * results[f"unit {sparse}"].amounts["area"]
                + results[f"around {side} {sparse}"].amounts["area"]
                for sparse in (True, False)
            }
            around = results[f"around {side} True"].amounts["area"]
            section[f"{name}, {side} x {side} units"] = own | {
                "area, dense": area[False] / side / side / count,
                "area that sparsity adds": 100 * (area[True] / area[False] - 1),
                "area outside the units": 100 * around / area[True],
                "delay that sparsity adds": 100 * (longest[True] / longest[False] - 1),
            }
    return section


def tops(run: Run) -> Section:
    """Measure each part of the top modules, with all instances of the part, from one synthesis."""
    section: Section = {}
    for name in run.chosen(TOPS):
        with progress_bar("run") as progress:
            recipe = replace(run.recipe, orders=1)
            measured = survey(TOPS[name], recipe, jobs=cores(), twin=False, top=name, progress=progress)
        for part in measured.parts:
            area = part.amounts["area"]
            section[f"{name}: {part.name}"] = {
                "instances": part.count,
                "area": area,
                **({} if part.longest is None else {"delay": part.longest}),
            }
    return section


def others(run: Run) -> Section:
    """Measure published designs of other projects from their netlists, with wires in place of their registers.

    The file ``designs.json`` in the folder of netlists gives for each design the name of its RTLIL file, the name of
    its top module and the number of its products per cycle. Control inputs, such as enable and reset, of a design must
    be constants in the netlist.
    """
    if run.others is None:
        return {}
    wires = replace(run.recipe, combinational=True)
    path = run.others / "designs.json"
    try:
        designs = [
            (name, str(design["file"]), str(design["top"]), int(design["products"]))
            for name, design in read_json(path).items()
        ]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise FileError(f"{path} must be JSON with the keys file, top and products for each design") from error
    requests, section = dict[str, Request](), Section()
    for name, file, top, count in designs:
        if run.chosen([name]):
            text = read_bytes(run.others / file, _NETLIST_BYTES).decode(errors="replace")
            requests[name], section[name] = (Netlist(name, text, top), wires), {"products": count}
    for name, measurement in run.measured(requests).items():
        section[name] |= figures(measurement, int(section[name]["products"]), "dense")
    return section


def energy(run: Run) -> Section:
    """Measure energy per product, by format, in a dot-product unit for many formats and in units for one format."""
    assert run.recipe.library is not None
    library, section = run.recipe.library, Section()

    def measure(mapped: MappedUnit, name: str, fmt: str, distribution: str) -> None:
        sparse = parse(INSTRUCTIONS[fmt])
        for kind, i in (("sparse", sparse), ("dense", dense_instruction(sparse))):
            operands = drawn(i, distribution, mapped.tiles(i, run.cycles), np.random.default_rng(0))
            total = mapped.measure(i, "sm_90", operands, distribution).total
            section.setdefault(name, {})[f"{kind}, {distribution}"] = total

    formats = run.chosen(INSTRUCTIONS)
    if formats:
        mapped = MappedUnit(ENERGY_UNIT, CellLibrary.of(library), by_module=True)
        cases = [(fmt, distribution) for fmt in formats for distribution in DISTRIBUTIONS]
        for fmt, distribution in tqdm(cases, unit="case", disable=None, leave=False):
            measure(mapped, fmt, fmt, distribution)
    for name in tqdm(run.chosen(ENERGY_ALONE), unit="unit", disable=None, leave=False):
        mapped = MappedUnit(replace(UNITS[name], rows=8, columns=4), CellLibrary.of(library), by_module=False)
        measure(mapped, name, name.split()[0], "normal")
    return section


#: Key: name of a section of ``area.json``. Value: function that measures the designs of the section.
SECTIONS: dict[str, Callable[[Run], Section]] = {
    "units": units,
    "arrays": arrays,
    "tops": tops,
    "others": others,
    "energy": energy,
}


def rows_of(sections: Mapping[str, Section]) -> Iterator[Row]:
    """Yield a row of the printed table for each figure of the measured designs."""
    known = {"area": "um2", "delay": "ps", "gates": "gates", "products": "", "instances": "", "orders": ""}
    for section, designs in sections.items():
        for name, values in designs.items():
            for figure, value in values.items():
                word = "fJ" if section == "energy" else known.get(figure.partition(",")[0], "%")
                yield Row(f"{name}: {figure}", word, value[0] if isinstance(value, list) else value)


def record(name: str, library: Library, sections: Mapping[str, Section]) -> None:
    """Add figures of `sections` (groups of designs) to the record file, under the library's `name`. Keep all others."""
    whole = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    entry = whole.setdefault(name, {})
    entry |= {"date": date.today().isoformat(), "sha256": library.sha256, "tools": versions()}
    for section, designs in sections.items():
        entry[section] = entry.get(section, {}) | designs
    write_whole(RECORD, (json.dumps(whole, indent=1) + "\n").encode())


def main() -> None:
    """Measure the chosen groups of designs and print the figures. ``--record`` also writes them to the record file."""
    parser = options(__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--liberty", type=Path, nargs="+", required=True, metavar="FILE", help="standard cells")
    orders = "number of syntheses of each design, each synthesis with the ports in another order (default 5)"
    parser.add_argument("--orders", type=int, default=5, metavar="N", help=orders)
    parser.add_argument("--sections", nargs="+", choices=SECTIONS, default=[*SECTIONS], help="which designs to measure")
    parser.add_argument("--names", nargs="+", default=[], metavar="NAME", help="designs to measure (default: all)")
    parser.add_argument("--others", type=Path, metavar="FOLDER", help="folder with netlists of published designs")
    recorded = f"write the figures to benchmarks/{RECORD.name}, into the entry of the library NAME"
    parser.add_argument("--record", metavar="NAME", help=recorded)
    chosen = parser.parse_args()
    if chosen.small and chosen.record:
        parser.error("--record cannot be combined with --small")
    if chosen.orders < 1:
        parser.error("--orders must be at least 1")
    try:
        library = Library.read(*chosen.liberty)
        recipe = Recipe(library=library, orders=1 if chosen.small else chosen.orders)
        run = Run(recipe, SMALL if chosen.small else tuple(chosen.names), chosen.others)
        sections = {}
        for name in chosen.sections:
            sections[name] = SECTIONS[name](run)
            if chosen.record:
                record(chosen.record, library, {name: sections[name]})
    except Error as error:
        sys.exit(str(error))
    rows = [*rows_of(sections)]
    if not rows:
        parser.error("none of the given names of designs belongs to one of the given sections")
    show(rows, chosen.json)


if __name__ == "__main__":
    main()
