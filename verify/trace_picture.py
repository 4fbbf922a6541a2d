"""Pictures of traces: the bits of every term over one axis of bit positions, with the bits that are cut."""

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ..infra.figures import drawn, figure
from .replay import as_number
from .trace import OutputTrace, Step, first_difference

__all__ = ["trace_as_svg"]

#: Sizes in inches.
_CELL, _LEFT, _RIGHT, _TOP, _GAP = 0.17, 2.1, 1.2, 0.6, 0.75
#: Most bit positions drawn below the last bit kept.
_BELOW = 16
_KEPT, _CUT, _SUM, _ROUNDED = "#cfe2f3", "#eeeeee", "#d9ead3", "#fff2cc"


@dataclass(frozen=True)
class _Row:
    """A number drawn as bits.

    Attributes
    ----------
    label : str
        Text before the bits.
    value : Fraction
        Value in units of the last bit kept.
    colour : str
        Colour of the kept bits.
    note : str
        Text after the bits.
    """

    label: str
    value: Fraction
    colour: str
    note: str


def trace_as_svg(title: str, golden: OutputTrace, hardware: OutputTrace | None) -> bytes:
    """Draw each step as SVG: terms, their sum and the result, bit by bit.

    Parameters
    ----------
    title : str
        Title of the picture.
    golden : OutputTrace
        Trace to draw.
    hardware : OutputTrace or None
        Trace whose first difference is written below the picture.

    Raises
    ------
    BackendError
        matplotlib is not installed.
    """
    steps = [(step, list(_rows(golden, step))) for step in golden.steps]
    spans = [_span(step, rows) for step, rows in steps]
    columns = max(high - low for high, low in spans)
    width = _LEFT + _RIGHT + columns * _CELL
    height = _TOP + sum(_GAP + len(rows) * _CELL for _, rows in steps) + 0.4
    with figure(width, height, **{"font.family": "DejaVu Sans"}) as whole:
        axes = whole.add_axes((0, 0, 1, 1))
        axes.set_xlim(0, width)
        axes.set_ylim(height, 0)
        axes.set_axis_off()
        axes.text(0.1, 0.2, title, fontsize=min(9, 130 * width / len(title)), weight="bold", va="center")
        top = _TOP
        for number, ((step, rows), (high, low)) in enumerate(zip(steps, spans, strict=True)):
            axes.text(0.1, top, _heading(golden, number, step), fontsize=8, va="center")
            _draw(axes, step, rows, (high, low), top + 0.3)
            top += _GAP + len(rows) * _CELL
        axes.text(0.1, top, _verdict(golden, hardware), fontsize=8, va="center")
        return drawn(whole)


def _heading(trace: OutputTrace, number: int, step: Step) -> str:
    heading = f"step {number + 1} of {len(trace.steps)}"
    if step.e_max is None or step.alignment_bits is None:
        return heading + (": exact" if step.total is not None else ": a special value decides")
    return f"{heading}: e_max {step.e_max}, F {step.alignment_bits}; right of the line, bits are cut off"


def _verdict(golden: OutputTrace, hardware: OutputTrace | None) -> str:
    if hardware is None:
        return ""
    parted = first_difference(golden, hardware)
    if parted is None:
        return "golden model and hardware agree in every field"
    return f"golden model and hardware part at {parted}: {parted.one}, {parted.other}"


def _rows(trace: OutputTrace, step: Step) -> Iterator[_Row]:
    """Yield the rows of a step, in units of the last bit kept; integers in units of one."""
    if step.total is None:
        return
    unit = Fraction(2) ** ((step.e_max or 0) - (step.alignment_bits or 0))
    if not step.terms[0].elements:
        for product in step.products:
            yield _Row(f"element {product.element}, row {product.selected}", Fraction(product.value), _KEPT, "")
    for term in step.terms:
        name = f"element {term.elements[0]}" if term.elements else "C"
        if len(term.elements) > 1:
            name = f"elements {term.elements[0]} to {term.elements[-1]}"
        selected = {product.element: product.selected for product in step.products}
        if len(term.elements) == 1:
            name += f", row {selected[term.elements[0]]}"
        note = "" if term.shift is None else f"shift {term.shift}"
        yield _Row(name, Fraction(term.value) / unit, _KEPT, note)
    yield _Row("sum", Fraction(step.total), _SUM, "")
    result = _value(trace, step.d)
    if result is not None:
        yield _Row(step.rounding, result / unit, _ROUNDED, f"0x{step.d:x}")


def _value(trace: OutputTrace, code: int) -> Fraction | None:
    """Return the value of a result; None for Inf and NaN."""
    number = as_number(code, trace.instruction.d)
    try:
        return Fraction(number)
    except (OverflowError, ValueError):
        return None


def _span(step: Step, rows: list[_Row]) -> tuple[int, int]:
    """Return the drawn bit positions: one above the highest, and the lowest."""
    high = max([int(abs(row.value)).bit_length() for row in rows], default=1) + 1
    below = max([_lowest(row.value) for row in rows], default=0) if step.e_max is not None else 0
    return high, -min(below, _BELOW)


def _lowest(value: Fraction) -> int:
    """Return the number of binary places after the point; the value is a sum of powers of two."""
    return value.denominator.bit_length() - 1


def _draw(axes: Any, step: Step, rows: list[_Row], span: tuple[int, int], top: float) -> None:
    patches: Any = importlib.import_module("matplotlib.patches")
    high, low = span
    line = _LEFT + high * _CELL
    if step.alignment_bits is not None:
        place = _LEFT + (high - step.alignment_bits - 0.5) * _CELL
        axes.text(place, top - 0.1, "e_max", fontsize=6, ha="center", va="center")
    for number, row in enumerate(rows):
        y = top + number * _CELL
        axes.text(_LEFT - 0.1, y + _CELL / 2, row.label, fontsize=7, ha="right", va="center")
        axes.text(_LEFT + (high - low) * _CELL + 0.08, y + _CELL / 2, row.note, fontsize=7, va="center")
        magnitude = int(abs(row.value) * 2**-low)
        if row.value < 0:
            axes.text(_LEFT - 0.05, y + _CELL / 2, "\u2212", fontsize=7, ha="center", va="center")
        for place in range(-low - min(-low, _lowest(row.value)), magnitude.bit_length()):
            x = _LEFT + (high - low - 1 - place) * _CELL
            colour = row.colour if place >= -low else _CUT
            axes.add_patch(patches.Rectangle((x, y), _CELL, _CELL, facecolor=colour, edgecolor="white", linewidth=0.5))
            axes.text(x + _CELL / 2, y + _CELL / 2, str(magnitude >> place & 1), fontsize=5.5, ha="center", va="center")
    if rows and low < 0:
        axes.plot([line, line], [top - 0.05, top + len(rows) * _CELL + 0.05], color="#b00020", linewidth=1)
