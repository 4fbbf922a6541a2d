"""What units take beside published ones: area of a multiplication, delay, and what sparsity adds.

``python benchmarks/area.py --liberty osu018_stdcells.lib`` (Debian's qflow-tech-osu018 ships it) synthesises every unit
with the recipe of ``sptc area --liberty``; the other designs were measured with it too, registers taken for wires.
"""

import sys
import time
from dataclasses import replace
from pathlib import Path

from measure import Row, options, show
from sptc.errors import Error
from sptc.infra.pools import cores
from sptc.rtl.config import PRESETS, CoreConfig
from sptc.synth.liberty import Library
from sptc.synth.netlist import unit
from sptc.synth.price import Measurement, measure, measure_all
from sptc.synth.recipe import Recipe
from tqdm import tqdm

FOUR_STAGES = ("multiply", "align", "reduce", "round")
#: Measured by the recipe with the library osu018: multiplications, square microns each in thousands, nanoseconds.
PUBLISHED = {
    "Vortex TFR, f16 x4 + f32": (4, 55.8, 14.6),
    "Vortex TFR, f16 x8 + f32": (8, 53.2, 15.3),
    "Vortex TFR, nine dense formats, of f16": (4, 143.0, 18.9),
    "Vortex, s8 x4 + s32": (4, 19.3, 5.6),
    "fpnew SDOTP, f16 x2 + f32, correctly rounded": (2, 90.7, 26.6),
}
UNITS = {
    "f16": CoreConfig(name="f16", formats=("f16",), fp8_alignment_bits=25, rows=1, columns=1, cuts=FOUR_STAGES),
    "s8": CoreConfig(name="s8", formats=("s8",), rows=1, columns=1, cuts=FOUR_STAGES),
    "hopper": PRESETS["hopper"],
}
#: For `--small`: two products of f16 or four of s8, and a preset of which little more is left.
SMALL_UNITS = {
    "f16": replace(UNITS["f16"], step_bytes=4),
    "s8": replace(UNITS["s8"], step_bytes=4),
    "tiny": replace(PRESETS["tiny"], formats=("s8", "u8"), step_bytes=4),
}
#: What is promised: thousands of square microns a multiplication, and nanoseconds.
BOUNDS = {"f16": (42.0, 16.0), "s8": (17.5, None), "hopper": (85.0, None)}
STAGE_NS = 5.0
OVERHEAD = {"area": 6.0, "delay": 5.0}
BEGIN, END = "<!-- area table -->", "<!-- end of area table -->"
PAGE = Path(__file__).parents[1] / "docs" / "guides" / "area.md"


def products(config: CoreConfig) -> int:
    """Return the multiplications a cycle of the widest format but tf32, which has half of them."""
    return min(config.slots_of(element) for element in config.elements if element.container_bits < 32)


def measured(units: dict[str, CoreConfig], library: Library) -> dict[str, Measurement]:
    """Measure every unit, as many at a time as there are cores; at last the last alone, with its conversion."""
    wires, adders = Recipe(library=library, combinational=True), Recipe(library, combinational=True, full_adders=True)
    wanted = {}
    for name, config in units.items():
        dense = unit(replace(config, sparse=False), combinational=True)
        wanted[f"{name} dense"] = (dense, wires)
        wanted[f"{name} sparse"] = (unit(config, combinational=True), wires)
        wanted[f"{name} adders"] = (dense, adders)
    wanted["f16 stages"] = (unit(replace(units["f16"], sparse=False)), Recipe(library=library))
    with tqdm(total=len(wanted), unit="unit", disable=None, leave=False) as bar:

        def progress(done: int, _total: int) -> None:
            bar.update(done - bar.n)

        found = measure_all(wanted, cores(), progress=progress)
    start = time.perf_counter()
    last = unit([*units.values()][-1])
    conversion = time.perf_counter() - start
    alone = measure(last, Recipe(library=library))
    return found | {"report": replace(alone, seconds=conversion + alone.seconds)}


def per_product(measurement: Measurement, config: CoreConfig) -> float:
    """Return thousands of square microns a multiplication."""
    return measurement.amounts["area"] / products(config) / 1000


def nanoseconds(measurement: Measurement) -> float:
    """Return the delay of the longest path."""
    assert measurement.longest is not None
    return measurement.longest / 1000


def rows_of(units: dict[str, CoreConfig], found: dict[str, Measurement]) -> list[Row]:
    """Return the figures, each beside what is promised."""
    rows = []
    for name, config in units.items():
        dense, sparse, adders = (found[f"{name} {kind}"] for kind in ("dense", "sparse", "adders"))
        area, delay = (f"at most {bound:g}" if bound else "" for bound in BOUNDS.get(name, (None, None)))
        rows.append(Row(f"{name} dense, area a product", "k um2", per_product(dense, config), area))
        rows.append(Row(f"{name} dense, delay", "ns", nanoseconds(dense), delay))
        rows.append(Row(f"{name} dense with full-adder cells", "k um2", per_product(adders, config)))
        rows.append(Row(f"{name} sparse, area a product", "k um2", per_product(sparse, config)))
        for what, added in {
            "area": sparse.amounts["area"] / dense.amounts["area"],
            "delay": nanoseconds(sparse) / nanoseconds(dense),
        }.items():
            promise = f"at most {OVERHEAD[what]:g}"
            rows.append(Row(f"{name}, sparsity adds {what}", "%", 100 * (added - 1), promise))
        rows.append(Row(f"{name} dense, synthesis beside another", "s", dense.seconds))
    rows.append(
        Row("f16 dense in four stages, longest", "ns", nanoseconds(found["f16 stages"]), f"at most {STAGE_NS:g}")
    )
    report = f"{[*units][-1]} sparse in its stages, report of one unit"
    rows.append(Row(report, "s", found["report"].seconds, "at most 60"))
    return rows


def table(units: dict[str, CoreConfig], found: dict[str, Measurement]) -> str:
    """Return the table of the page on area."""
    lines = ["| unit | products | area of one, k um2 | with full-adder cells | delay, ns |", "|---|---|---|---|---|"]
    lines += [f"| {name} | {count} | {area:.1f} | | {delay:.1f} |" for name, (count, area, delay) in PUBLISHED.items()]
    for name, config in units.items():
        words = f"`{name}` preset, {' '.join(config.formats)}" if name in PRESETS else f"{name} alone"
        for kind in ("dense", "sparse"):
            area, delay = per_product(found[f"{name} {kind}"], config), nanoseconds(found[f"{name} {kind}"])
            adders = f"{per_product(found[f'{name} adders'], config):.1f}" if kind == "dense" else ""
            count = f"{products(config)} of f16" if len(config.formats) > 1 else products(config)
            lines.append(f"| **sptc {words}, {kind}** | {count} | {area:.1f} | {adders} | {delay:.1f} |")
    return "\n".join(lines)


def write(text: str) -> None:
    """Put a table between the marks in the page on area."""
    whole = PAGE.read_text(encoding="utf-8")
    before, _, rest = whole.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")


def main() -> None:
    """Run the benchmark."""
    parser = options(__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--liberty", type=Path, required=True, metavar="FILE", help="standard cells")
    parser.add_argument("--page", action="store_true", help="also write the table of docs/guides/area.md")
    chosen = parser.parse_args()
    if chosen.small and chosen.page:
        parser.error("--small has no figures for the page")
    units = SMALL_UNITS if chosen.small else UNITS
    try:
        found = measured(units, Library.read(chosen.liberty))
    except Error as error:
        sys.exit(str(error))
    show(rows_of(units, found), chosen.json)
    text = table(units, found)
    if chosen.page:
        write(text)


if __name__ == "__main__":
    main()
