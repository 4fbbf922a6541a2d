"""Reports of the area measurements of a datapath as tables and as JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ..infra.escapes import one_line
from .area import Amounts, Stage, Survey
from .price import Measurement, versions
from .recipe import Recipe

__all__ = [
    "about",
    "as_dict",
    "columns",
    "headers",
    "heading",
    "measured_as_dict",
    "number",
    "scatter",
    "seconds",
    "table",
    "values",
]

_UNITS = {"area": "the library's", "gates": "NAND2", "delay": "ps", "depth": "gates"}
_HEADERS = {"area": "area", "gates": "gates", "delay": "delay [ps]", "depth": "depth"}
#: Name of the pipeline stage that only selects operands.
_SELECTING = "select"
_VARIES = "the results of one synthesis vary by several per cent: --liberty FILE --orders 5 gives medians and scatter"
_APART = "stages are synthesised separately, so the sum differs from the flattened unit, which is optimised as a whole"


def about(recipe: Recipe) -> dict[str, Any]:
    """Return the conditions of measurements as values for JSON: versions, library and synthesis options."""
    library = recipe.library
    nand2 = library.nand2 if library else None
    return {
        "versions": versions(place=recipe.place),
        "library": library
        and {
            "file": library.name,
            "sha256": library.sha256,
            "corner": library.corner,
            "nand2": nand2 and {"cell": nand2.name, "area": nand2.area},
        },
        "fpga": recipe.fpga,
        "combinational": recipe.combinational,
        "least_area": recipe.least_area,
        "clock_gating": recipe.clock_gating,
        "orders": recipe.orders,
        "units": {name: _UNITS.get(name, "cells") for name in (*recipe.amounts, recipe.longest) if name},
    }


def heading(recipe: Recipe) -> list[str]:
    """Return the conditions of the measurements from :func:`about` as lines of text."""
    library = recipe.library
    lines = ["  ".join(f"{name} {version}" for name, version in versions(place=recipe.place).items())]
    if library:
        lines.append(f"library: {one_line(library.name)}  SHA-256 {library.sha256}")
        lines += [f"corner: {one_line(library.corner)}"] if library.corner else []
        gates = f"; gates: area in units of {library.nand2.name} ({library.nand2.area:g})" if library.nand2 else ""
        lines.append(
            f"area: in the library's unit{gates}; delay: longest path from register to register, without wires"
        )
    elif recipe.fpga:
        placed = "; delay: longest path between registers after routing, including input and result registers"
        lines.append(f"FPGA: {recipe.fpga}, cells before placement{placed if recipe.place else ''}")
    else:
        lines.append("gates: equivalents of a static CMOS NAND2 (four transistors); depth: gates on the longest path")
    if recipe.least_area:
        lines.append("mapped for the least area")
    if recipe.clock_gating:
        lines.append("registers with an enable have gated clocks")
    if recipe.orders > 1:
        lines.append(f"medians over {recipe.orders} orders of the ports; scatter: range around the median")
    elif library:
        lines.append("results of one order of the ports: --orders 5 gives medians and scatter")
    return [*lines, "pipeline registers replaced by wires"] if recipe.combinational else lines


def columns(rows: Sequence[Sequence[str]], left: int = 1) -> list[str]:
    """Format rows as lines of aligned columns. The first `left` columns are left-aligned, all others right-aligned."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    lines = []
    for row in rows:
        words = [word.ljust(width) for word, width in zip(row[:left], widths, strict=False)]
        words += [word.rjust(width) for word, width in zip(row[left:], widths[left:], strict=True)]
        lines.append("  ".join(words).rstrip())
    return lines


def number(value: float | None) -> str:
    """Format a number: integers in full, others with one decimal, values below 1 with three digits, None as ``-``."""
    if value is None:
        return "-"
    if value == round(value) or abs(value) >= 1000:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 1 else f"{value:.3g}"


def table(survey: Survey) -> str:
    """Return an area survey as the text of a report."""
    fields = "  ".join(f"{name} = {_word(value)}" for name, value in survey.config.used_fields.items())
    lines = [*heading(survey.recipe), fields, "", *columns(_parts(survey))]
    if survey.recipe.place and survey.unit.longest:
        lines.append(f"after routing: {1e6 / survey.unit.longest:.1f} MHz")
    for what, overhead in (("unit", survey.overhead), ("array", survey.array_overhead)):
        if overhead is not None:
            ranges = survey.overhead_scatter if what == "unit" else {}
            shares = (
                f"{value:+.1f} % {_name(survey.recipe, name)}{_range(ranges.get(name))}"
                for name, value in overhead.items()
            )
            lines.append(f"sparsity, against the dense {what}: {', '.join(shares)}")
    if survey.overhead is not None and not survey.recipe.library and not survey.recipe.fpga:
        lines.append(_VARIES)
    if survey.refusal:
        lines.append(f"no warp: {survey.refusal}")
    if survey.between and survey.stages_sum:
        every = [*survey.stages, Stage("between the stages", 1, survey.between.amounts, survey.between.longest)]
        lines += ["", *columns(_shares(survey.recipe, "stage", every, survey.stages_sum)), _APART]
    if survey.parts_sum:
        lines += ["", *columns(_shares(survey.recipe, f"part of {survey.top}", survey.parts, survey.parts_sum))]
        lines.append(_beside_units(survey, survey.parts_sum))
    if survey.formats:
        lines += ["", *columns(_formats(survey))]
        lines += [f"no unit without {share.name}: {share.refusal}" for share in survey.formats if share.refusal]
    return "\n".join([*lines, f"{survey.seconds:.1f} s"])


def _word(value: object) -> str:
    return (",".join(map(str, value)) or "none") if isinstance(value, tuple) else str(value)


def _range(ends: tuple[float, float] | None) -> str:
    return f" ({ends[0]:+.1f} to {ends[1]:+.1f})" if ends else ""


def scatter(measurement: Measurement, recipe: Recipe) -> list[str]:
    """Return table cells: deviations of the least and largest figure, over all orders of ports, from the median."""
    names = [*recipe.amounts, *(["longest"] if recipe.longest else [])]
    ends = [measurement.scatter.get(name) for name in names]
    return ["-" if end is None else f"{end[0]:+.1f} to {end[1]:+.1f} %" for end in ends]


def _name(recipe: Recipe, key: str) -> str:
    return str(recipe.longest) if key == "longest" else key


def headers(recipe: Recipe) -> list[str]:
    """Return the column headers for the measurements of a synthesis recipe."""
    names = [*recipe.amounts, *([recipe.longest] if recipe.longest else [])]
    return [_HEADERS.get(name, name) for name in names]


def values(recipe: Recipe, amounts: Mapping[str, float], longest: float | None = None) -> list[str]:
    """Return the table cells of a measurement, one for each column header of :func:`headers`."""
    return [*(number(amounts.get(name)) for name in recipe.amounts), *([number(longest)] if recipe.longest else [])]


def seconds(measurement: Measurement) -> str:
    """Return the duration of a measurement as text, or a note that the result is cached."""
    return "cached" if measurement.cached else f"{measurement.seconds:.1f}"


def _parts(survey: Survey) -> list[list[str]]:
    """Return the table rows of the dot-product unit, of the array and of the warp around the array."""
    kind = "unit" if survey.config.sparse else "dense unit"
    recipe = survey.recipe
    scatters = [f"scatter of {name}" for name in headers(recipe)] if recipe.orders > 1 else []
    rows = [["part", "count", *headers(recipe), *scatters, "seconds"]]

    def measured(name: str, measurement: Measurement | None, amounts: Amounts | None = None) -> None:
        if measurement:
            words = values(recipe, amounts or measurement.amounts, measurement.longest)
            ends = [] if not scatters else ["-"] * len(scatters) if amounts else scatter(measurement, recipe)
            rows.append([name, "1", *words, *ends, seconds(measurement)])

    def added(name: str, count: int, amounts: Amounts | None) -> None:
        if amounts:
            rows.append([name, str(count), *values(recipe, amounts), *["-"] * len(scatters), ""])

    measured(kind, survey.unit)
    measured(f"{kind}, full adders", survey.unit_with_adders)
    measured("dense unit", survey.twin)
    measured("dense unit, full adders", survey.twin_with_adders)
    if survey.core:
        added("units", survey.config.rows * survey.config.columns, survey.units)
    measured("around the units", survey.core)
    measured("around dense units", survey.core_twin)
    added("array", 1, survey.array)
    measured("around the array", survey.warp, survey.warp_alone)
    added("warp", 1, survey.whole)
    return rows


def _beside_units(survey: Survey, total: Amounts) -> str:
    """Return a text: fraction of area outside the dot-product units and, if known, of operand selection in a unit."""
    first = survey.recipe.amounts[0]
    units = survey.parts[0].amounts[first]
    line = f"{100 - 100 * units / total[first]:.1f} % of the area is outside the units"
    if survey.stages_sum:
        chosen = sum(stage.amounts[first] for stage in survey.stages if stage.name == _SELECTING)
        line += f"; {100 * chosen / survey.stages_sum[first]:.1f} % of the area of a unit selects operands"
    return line


def _shares(recipe: Recipe, what: str, parts: Sequence[Stage], total: Amounts) -> list[list[str]]:
    """Return table rows for the parts of a dot-product unit or top module, each with its share of all area or gates."""
    first = recipe.amounts[0]
    rows = [[what, "count", *headers(recipe), f"% of {_HEADERS.get(first, first)}"]]
    for stage in (*parts, Stage("sum", 1, total, None)):
        share = f"{100 * stage.amounts[first] / total[first]:.1f}" if total[first] else "-"
        rows.append([stage.name, str(stage.count), *values(recipe, stage.amounts, stage.longest), share])
    return rows


def _formats(survey: Survey) -> list[list[str]]:
    """Return table rows: what each element format adds to a dot-product unit, and the figures of a unit without it."""
    recipe = survey.recipe
    added = [_HEADERS.get(name, name) for name in recipe.amounts]
    rows = [["format", *(f"adds {word}" for word in added), *(f"{word} without" for word in headers(recipe))]]
    for share in survey.formats:
        without, amounts = share.without, [number(share.amounts.get(name)) for name in recipe.amounts]
        left = values(recipe, without.amounts, without.longest) if without else values(recipe, {})
        rows.append([share.name, *amounts, *left])
    return rows


def measured_as_dict(measurement: Measurement | None, recipe: Recipe) -> dict[str, Any] | None:
    """Return a measurement for JSON: area or gates, ``delay`` in ps or ``depth`` in gates, cells, and duration."""
    if measurement is None:
        return None
    longest = {recipe.longest: measurement.longest} if recipe.longest else {}
    rest = {"cells": measurement.cells, "seconds": measurement.seconds, "cached": measurement.cached}
    ends = {_name(recipe, name): [*of_name] for name, of_name in measurement.scatter.items()}
    return {**measurement.amounts, **longest, **({"scatter_percent": ends} if ends else {}), **rest}


def _as_dict(stage: Stage, recipe: Recipe) -> dict[str, Any]:
    longest = {recipe.longest: stage.longest} if recipe.longest else {}
    return {"count": stage.count, **stage.amounts, **longest}


def as_dict(survey: Survey) -> dict[str, Any]:
    """Return an area survey as plain values for JSON."""
    recipe = survey.recipe

    def plain(measurement: Measurement | None) -> dict[str, Any] | None:
        return measured_as_dict(measurement, recipe)

    overhead = survey.overhead
    return {
        **about(recipe),
        "configuration": asdict(survey.config),
        "unit": plain(survey.unit),
        "unit_with_full_adders": plain(survey.unit_with_adders),
        "dense_unit": plain(survey.twin),
        "dense_unit_with_full_adders": plain(survey.twin_with_adders),
        "sparsity_percent": overhead and {_name(recipe, name): value for name, value in overhead.items()},
        "sparsity_percent_scatter": {_name(recipe, name): [*ends] for name, ends in survey.overhead_scatter.items()},
        "array": survey.core
        and {
            "units": survey.units,
            "around_units": plain(survey.core),
            "sum": survey.array,
            "around_dense_units": plain(survey.core_twin),
            "sparsity_percent": survey.array_overhead,
        },
        "warp": survey.warp
        and {"around_units": plain(survey.warp), "around_array": survey.warp_alone, "sum": survey.whole},
        "no_warp": survey.refusal or None,
        "stages": [{"stage": stage.name} | _as_dict(stage, recipe) for stage in survey.stages],
        "between_stages": plain(survey.between),
        "stages_sum": survey.stages_sum,
        "top": survey.top or None,
        "parts": [{"part": part.name} | _as_dict(part, recipe) for part in survey.parts],
        "parts_sum": survey.parts_sum,
        "formats": [
            {"format": share.name, "adds": share.amounts or None, "without": plain(share.without)}
            | {"refusal": share.refusal or None}
            for share in survey.formats
        ],
        "seconds": survey.seconds,
    }
