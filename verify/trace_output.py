"""Trace of one output of a register file (``.npz``) by the golden model and, on request, by the hardware.

A trace is printed as tables, or drawn as a picture: the bits of every term over one axis of bit positions.
"""

import importlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from ..api.backends import backend
from ..api.recorder import Recorder
from ..errors import Error, MetadataError, OperandError
from ..infra.figures import drawn, sheet
from ..isa.instructions import Instruction
from ..isa.numerics import Numerics
from ..isa.operands import MatrixOperands
from ..rtl.config import PRESET_OF_ARCHITECTURE, PRESETS
from ..sim.engine.signals import WatchedRow
from . import register_file
from .archive import Recorded
from .first_step import first_possible_step
from .replay import as_number
from .trace import (
    Difference,
    FileResult,
    OutputTrace,
    Step,
    as_code,
    file_verdict,
    first_difference,
    trace_as_dict,
    trace_as_html,
    trace_as_text,
)
from .trace_golden import golden_traces
from .trace_hardware import hardware_traces

__all__ = ["TracedOutput", "trace", "trace_chain"]


@dataclass(frozen=True, kw_only=True, repr=False)
class TracedOutput:
    """Trace of one output of an instruction, with conversion to text, JSON, HTML and SVG."""

    name: str  #: Name of the traced instruction with all options that affect the result
    case: int
    row: int
    column: int
    golden: OutputTrace  #: Trace (intermediate values) of the golden model
    hardware: OutputTrace | None  #: Trace of the hardware; None if not requested
    file: FileResult | None = None  #: Recorded result; None if the register file (``.npz``) has no D
    #: Word in the title before the number `case`: ``case`` (tile of a file) or ``instruction`` (along K).
    counted: str = "case"
    #: Numerics parameters of the golden model; None if the parameters of the architecture apply.
    numerics: Numerics | None = None

    @cached_property
    def difference(self) -> Difference | None:
        """First field that differs between golden model and hardware; None if no field differs, or without hardware."""
        return first_difference(self.golden, self.hardware) if self.hardware else None

    @property
    def agrees(self) -> bool:
        """Whether golden model, hardware and recorded result agree; a missing result is ignored."""
        return self.difference is None and (self.file is None or self.file.first_step is None)

    @property
    def title(self) -> str:
        """Title of the trace: instruction, architecture, and position of the output."""
        place = f"{self.counted} {self.case}, row {self.row}, column {self.column}"
        changes, changed = "", self.numerics
        if changed:
            changes = f" with L = {changed.step}, F = {changed.alignment_bits}, {changed.rounding.value}"
        return f"{self.name} on {self.golden.arch}{changes}: {place}"

    def as_dict(self) -> dict[str, object]:
        """Return all traces of the output as JSON data."""
        return {
            "name": self.name,
            "case": self.case,
            "row": self.row,
            "column": self.column,
            "golden": trace_as_dict(self.golden),
            "hardware": trace_as_dict(self.hardware) if self.hardware else None,
            "first_difference": str(self.difference) if self.difference else None,
            "file": self.file
            and {
                "d": as_code(self.file.d, self.golden.instruction.d.bits),
                "agrees": self.file.first_step is None,
                "first_possible_step": None if self.file.first_step is None else self.file.first_step + 1,
            },
        }

    def as_svg(self) -> bytes:
        """Draw each step of the golden model's trace as SVG: terms, sum and result, bit by bit.

        Text below the drawing states the first difference from the hardware, and the result of the file. Raise a
        `BackendError` if matplotlib is not installed.
        """
        golden, title = self.golden, self.title
        steps = [(step, list(_rows(golden, step))) for step in golden.steps]
        spans = [_span(step, rows) for step, rows in steps]
        width = _LEFT + _RIGHT + max(high - low for high, low in spans) * _CELL
        height = _TOP + sum(_GAP + len(rows) * _CELL for _, rows in steps) + 0.4
        with sheet(width, height) as axes:
            axes.text(0.1, 0.2, title, fontsize=min(9, 130 * width / len(title)), weight="bold", va="center")
            top = _TOP
            for number, ((step, rows), (high, low)) in enumerate(zip(steps, spans, strict=True)):
                axes.text(0.1, top, _heading(golden, number, step), fontsize=8, va="center")
                _draw(axes, step, rows, (high, low), top + 0.3)
                top += _GAP + len(rows) * _CELL
            axes.text(0.1, top, "; ".join(self._verdicts()), fontsize=8, va="center")
            return drawn(axes.figure)

    def _verdicts(self) -> list[str]:
        """Return the sentences below a trace picture that compare golden model, hardware and recorded result."""
        verdicts = file_verdict(self.golden, self.file)
        if self.hardware is None:
            return verdicts
        verdict = "agree in every field"
        if self.difference:
            verdict = f"first differ at {self.difference}: {self.difference.one}, {self.difference.other}"
        return [f"golden model and hardware {verdict}", *verdicts]

    def __str__(self) -> str:
        return trace_as_text(self.title, self.golden, self.hardware, self.file)

    def __repr__(self) -> str:
        return f"<trace of {self.title}>"

    def _repr_html_(self) -> str:
        return trace_as_html(self.title, self.golden, self.hardware, self.file)

    def _repr_svg_(self) -> str:
        return self.as_svg().decode()


def trace(
    file: str | Path | Recorded,
    case: int = 0,
    row: int = 0,
    column: int = 0,
    *,
    hardware: bool = True,
    numerics: Numerics | None = None,
) -> TracedOutput:
    """Trace one output of a register file (``.npz``) with the golden model and, on request, with the hardware.

    If the file has D, the recorded value of the output is compared with that of the golden model.

    Parameters
    ----------
    file : path or register file
        Path or content of the register file.
    case, row, column : int
        Position of the output.
    hardware : bool
        Whether to trace the hardware, too. Building it for Amaranth's simulator takes some seconds.
    numerics : Numerics, optional
        Numerics of the golden model, by default those of the architecture, see :func:`sptc.numerics`.

    Raises
    ------
    FileError, OperandError
        The file is no register file; or the output does not exist, or is in a disabled lane of tensor memory.
    InstructionError, MetadataError, BackendError
        The file cannot be computed.
    """
    recorded = register_file.read(file) if isinstance(file, str | Path) else file
    i = recorded.instruction
    for name, number, count in (("case", case, recorded.cases), ("row", row, i.m), ("column", column, i.n)):
        if not 0 <= number < count:
            raise OperandError(f"{name} must be 0 to {count - 1} in this register file, not {number}")
    try:
        operands = _operands(recorded.take(slice(case, case + 1)), row, column)
    except MetadataError as error:
        raise error.at((case,), "case") from None
    if not recorded.writes(row, column):
        raise OperandError(
            f"column {column} of row {row} is in a lane of tensor memory that disable_output_lane disables; the "
            "instruction does not write D there"
        )
    [golden] = golden_traces(i, recorded.arch, operands, numerics)
    traces = hardware_traces(i, recorded.arch, operands) if hardware else iter(())
    result = None
    if recorded.d is not None:
        d = int(recorded.matrix(recorded.d[case : case + 1])[0, row, column])
        result = FileResult(d, None if d == golden.d else first_possible_step(golden, operands, d, numerics))
    return TracedOutput(
        name=recorded.name,
        case=case,
        row=row,
        column=column,
        golden=golden,
        hardware=next(traces, None),
        file=result,
        numerics=numerics,
    )


def trace_chain(
    instruction: Instruction,
    arch: str,
    operands: MatrixOperands,
    row: int,
    column: int,
    *,
    hardware: bool = True,
    numerics: Numerics | None = None,
) -> Iterator[TracedOutput]:
    """Trace one output of a matrix product. Each instruction along K adds to the previous result and has its own trace.

    The operands are one row of A, one column of B and one element of C, with any number of instructions along K. `row`
    and `column` are the position of the output in the product, for titles; `hardware` and `numerics` are as for
    :func:`trace`. Raise an `InstructionError` or a `BackendError` if the architecture does not have the instruction or
    its datapath lacks a format, and an `OperandError` if C and D differ in type, so that no second instruction can
    follow.
    """
    i = instruction
    watched = WatchedRow(PRESETS[PRESET_OF_ARCHITECTURE[arch]]) if hardware else None
    c = operands.c
    for number, step in enumerate(operands.steps(i)):
        if number and i.c is not i.d:
            raise OperandError(
                f"{i}: accumulator type {i.c.name} and result type {i.d.name} differ, so a result cannot "
                "be the accumulator of the next instruction along K"
            )
        one = replace(step, c=c)
        [golden] = golden_traces(i, arch, one, numerics)
        other = next(hardware_traces(i, arch, one, watched)) if watched else None
        yield TracedOutput(
            name=str(i),
            case=number,
            row=row,
            column=column,
            golden=golden,
            hardware=other,
            counted="instruction",
            numerics=numerics,
        )
        c = np.full_like(c, golden.d)


def _operands(file: Recorded, row: int, column: int) -> MatrixOperands:
    """Return the operands of one output of a register file (``.npz``) with a single tile."""
    recorder = Recorder(backend("golden"))
    file.run(recorder)
    if len(recorder.operands) != 1:
        raise Error(f"{file.name} cannot be traced: it consists of {len(recorder.operands)} matrix products")
    operands = recorder.operands[0]
    tile, row = divmod(row, operands.c.shape[1])  # for a CTA pair, `row` counts the rows of both CTAs
    one = operands.take(slice(tile, tile + 1), slice(row, row + 1))
    columns = slice(column, column + 1)
    scale_b = None if one.scale_b is None else one.scale_b[:, columns]
    return replace(one, b=one.b[:, :, columns], c=one.c[:, :, columns], scale_b=scale_b)


#: Sizes in inches: side of a bit's cell, width of text on the left and on the right, height of title and of a heading.
_CELL, _LEFT, _RIGHT, _TOP, _GAP = 0.17, 2.1, 1.2, 0.6, 0.75
#: Maximum number of truncated bits that a row of a trace picture shows.
_BELOW = 16
_KEPT, _CUT, _SUM, _ROUNDED = "#cfe2f3", "#eeeeee", "#d9ead3", "#fff2cc"


@dataclass(frozen=True)
class _Row:
    """A row of a trace picture: a number drawn as bits, with text on both sides."""

    label: str  #: Text that is drawn to the left of the bits
    value: Fraction  #: Number whose bits are drawn, in units of the lowest bit that alignment keeps
    colour: str  #: Background colour of the bits that alignment does not truncate
    note: str  #: Text that is drawn to the right of the bits


def _heading(trace: OutputTrace, number: int, step: Step) -> str:
    heading = f"step {number + 1} of {len(trace.steps)}"
    if step.e_max is None or step.alignment_bits is None:
        return heading + (": exact" if step.total is not None else ": NaN or Inf decides the result")
    return f"{heading}: e_max {step.e_max}, F {step.alignment_bits}; right of the line, bits are cut off"


def _rows(trace: OutputTrace, step: Step) -> Iterator[_Row]:
    """Yield the rows in a picture of one sum, in units of the lowest bit that alignment keeps (1 for integers)."""
    if step.total is None:
        return
    unit = Fraction(2) ** ((step.e_max or 0) - (step.alignment_bits or 0))
    if not step.terms[0].elements:
        for product in step.products:
            yield _Row(f"element {product.element}, row {product.selected}", Fraction(product.value), _KEPT, "")
    selected = {product.element: product.selected for product in step.products}
    for term in step.terms:
        name = f"elements {term.elements[0]} to {term.elements[-1]}" if term.elements else "C"
        if len(term.elements) == 1:
            name = f"element {term.elements[0]}, row {selected[term.elements[0]]}"
        note = "" if term.shift is None else f"shift {term.shift}"
        yield _Row(name, Fraction(term.value) / unit, _KEPT, note)
    yield _Row("sum", Fraction(step.total), _SUM, "")
    result = as_number(step.d, trace.instruction.d)
    if isfinite(result):
        yield _Row(step.rounding, Fraction(result) / unit, _ROUNDED, f"0x{step.d:x}")


def _span(step: Step, rows: list[_Row]) -> tuple[int, int]:
    """Return the range of bits in the picture of one sum: one above the highest bit of all rows, and the lowest."""
    high = max([int(abs(row.value)).bit_length() for row in rows], default=1) + 1
    below = max([_lowest(row.value) for row in rows], default=0) if step.e_max is not None else 0
    return high, -min(below, _BELOW)


def _lowest(value: Fraction) -> int:
    """Return the number of binary digits after the point of an exact value."""
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
