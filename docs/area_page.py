"""Page of area, delay and energy by cell library, which is generated from the record of ``benchmarks/area.py``."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from page_text import ROOT, table

__all__ = ["area_page"]

#: Units in the comparison of cell libraries.
_COMPARED = ("f16 x16", "s8 x32", "e4m3 e5m2 x16", "hopper", "blackwell")
#: Units of `sptc`, and units of Vortex with equal format and number of products.
_EQUAL_PRODUCTS = {
    **{f"f16 x{count}": f"Vortex TFR, f16 x{count} + f32" for count in (4, 8, 16)},
    **{f"s8 x{count}": f"Vortex TFR, s8 x{count} + s32" for count in (4, 32)},
    "e4m3 e5m2 x8": "Vortex TFR, e4m3 and e5m2 x8 + f32",
}
#: Figure of arrays in cell libraries with integrated clock gates, in per cent.
_CLOCK_GATES = ["area of the unit that clock gates add"]
_INTRODUCTION = """\
# Area, delay and energy by cell library

`python benchmarks/area.py --liberty FILE --record NAME` measures one cell library, with the recipe of `sptc area`.
A value with a range in parentheses is the median over several orders of the ports, with least and largest value. The
[area guide](../../guides/area.md) describes the recipe and the functions of the compared designs. No figure includes
wires, placement or a clock tree. A *kept product* is a product of a stored element of A.
"""


def area_page(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the page of areas, with a comparison of the cell libraries and the tables of each library."""
    libraries: dict[str, Any] = json.loads((ROOT / "benchmarks" / "area.json").read_text(encoding="utf-8"))
    parts = [_INTRODUCTION, _compared(libraries), _beside_vortex(libraries), _energy_ratios(libraries)]
    parts += [_of_library(name, entry) for name, entry in libraries.items()]
    yield "index.md", "\n".join(parts)


def _median(value: float | Sequence[float]) -> float:
    return value if isinstance(value, int | float) else value[0]


def _shown(value: float | Sequence[float] | None) -> str:
    """Return a value as text with four digits, followed by its range if the values of the port orders differ."""
    if value is None:
        return ""
    if isinstance(value, int | float):
        return f"{value:,.4g}" if value < 10_000 else f"{value:,.0f}"
    median, least, largest = (_shown(one) for one in value)
    return median if least == largest else f"{median} ({least} to {largest})"


def _added(figures: Mapping[str, Any], name: str) -> str:
    """Return the increase of a figure by sparsity in per cent, as text."""
    dense, sparse = (figures.get(f"{name}, {kind}") for kind in ("dense", "sparse"))
    return f"{100 * (_median(sparse) / _median(dense) - 1):+.1f} %" if dense and sparse else ""


def _compared(libraries: Mapping[str, Any]) -> str:
    heads = ["unit, with wires in place of registers", "library", "um2 per kept product, dense", "gate equivalents"]
    heads += ["area that sparsity adds", "ps, dense", "delay that sparsity adds", "fJ per kept product, sparse"]
    rows = []
    for name in _COMPARED:
        for library, entry in libraries.items():
            if figures := entry.get("units", {}).get(name):
                energy = entry.get("energy", {}).get(name, {}).get("sparse, normal")
                shown = (_shown(figures.get(f"{figure}, dense")) for figure in ("area", "gates", "delay"))
                area, gates, delay = shown
                added = _added(figures, "area"), _added(figures, "delay")
                rows.append((f"`{name}`", library, area, gates, added[0], delay, added[1], _shown(energy)))
    return "## Libraries compared\n\n" + table(heads, rows)


def _beside_vortex(libraries: Mapping[str, Any]) -> str:
    heads = [
        "products",
        "library",
        "um2 per product, sptc dense",
        "um2, Vortex TFR",
        "difference of area",
        "ps, sptc dense",
    ]
    heads += ["ps, Vortex TFR", "difference of delay"]
    rows = []
    for name, other in _EQUAL_PRODUCTS.items():
        for library, entry in libraries.items():
            pair = entry.get("units", {}).get(name), entry.get("others", {}).get(other)
            if all(pair):
                cells: list[str] = []
                for figure in ("area, dense", "delay, dense"):
                    ours, theirs = (figures[figure] for figures in pair)
                    cells += [_shown(ours), _shown(theirs), f"{100 * (_median(ours) / _median(theirs) - 1):+.1f} %"]
                rows.append((f"`{name}`", library, *cells))
    return "\n\n## Units with equal products\n\n" + table(heads, rows) if rows else ""


def _energy_ratios(libraries: Mapping[str, Any]) -> str:
    """Return the table of energies relative to normally distributed f16 operands of the sparse instruction."""
    measured = {name: entry["energy"] for name, entry in libraries.items() if "f16" in entry.get("energy", {})}
    rows = []
    for name, cases in next(iter(measured.values()), {}).items():
        if " x" in name:
            continue
        for case in cases:
            ratios = []
            for energy in measured.values():
                base, value = energy["f16"]["sparse, normal"], energy.get(name, {}).get(case)
                ratios.append("" if value is None else f"{value / base:.2f}")
            rows.append((name, case, *ratios))
    if not rows:
        return ""
    words = """
## Ratios of energies

Energy per kept product on the unit of `hopper`, relative to the sparse f16 instruction with normally distributed
operands. A ratio that is equal in all libraries belongs to the design, and a ratio that differs belongs to the library:

"""
    return words + table(["format", "instruction and operands", *measured], rows)


def _of_library(name: str, entry: Mapping[str, Any]) -> str:
    """Return the tables of one cell library."""
    measured = (
        f"Recorded on {entry['date']} with Yosys {entry['tools']['pyosys']}; SHA-256 of the library: "
        f"`{entry['sha256'][:16]}`"
    )
    parts = [f"\n## {name}\n\n{measured}."]
    unit_heads = ["design", "products", "um2 per kept product, dense", "dense, with full-adder cells"]
    unit_heads += ["um2, sparse", "area that sparsity adds", "ps, dense", "ps, sparse", "orders"]
    units = [
        (
            f"`{unit}`" if unit in entry.get("units", {}) else unit,
            figures["products"],
            _shown(figures.get("area, dense")),
            _shown(figures.get("area, dense with full-adder cells")),
            _shown(figures.get("area, sparse")),
            _added(figures, "area"),
            _shown(figures.get("delay, dense")),
            _shown(figures.get("delay, sparse")),
            figures["orders"],
        )
        for section in ("units", "others")
        for unit, figures in entry.get(section, {}).items()
    ]
    parts.append("### Units and other designs\n\n" + table(unit_heads, units))
    gated = all(_CLOCK_GATES[0] in figures for figures in entry.get("arrays", {}).values())
    arrays = [
        (
            array,
            _shown(figures["area, dense"]),
            f"{figures['area that sparsity adds']:.1f} %",
            f"{figures['area outside the units']:.1f} %",
            _shown(figures["delay, dense unit"]),
            f"{figures['delay that sparsity adds']:.1f} %",
            figures["orders"],
            *(f"{figures[name]:.1f} %" for name in _CLOCK_GATES if gated),
        )
        for array, figures in entry.get("arrays", {}).items()
    ]
    array_heads = ["array with pipeline registers", "um2 per kept product, dense", "area that sparsity adds"]
    array_heads += ["area outside the units", "ps of the longest stage, dense", "delay that sparsity adds", "orders"]
    array_heads += _CLOCK_GATES * gated
    if arrays:
        parts.append("### Arrays\n\n" + table(array_heads, arrays))
    if tops := entry.get("tops"):
        rows = [
            (top, figures["instances"], f"{figures['area']:,.0f}", _shown(figures.get("delay")))
            for top, figures in tops.items()
        ]
        parts.append("### Top modules by parts\n\n" + table(["part", "instances", "um2", "ps"], rows))
    if energy := entry.get("energy"):
        rows = [
            (case, figure, f"{value:,.1f}") for case, figures in energy.items() for figure, value in figures.items()
        ]
        heads = ["format or unit", "instruction and operands", "fJ per kept product"]
        parts.append("### Energy\n\n" + table(heads, rows))
    return "\n\n".join(parts)
