"""The trace of an output of a register file, from the golden model and optionally from the hardware."""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from ..api.backends import backend
from ..api.recorder import Recorder
from ..errors import Error, OperandError
from ..isa.operands import MatrixOperands
from . import register_file
from .archive import Recorded, load
from .trace import Difference, OutputTrace, first_difference, trace_as_dict
from .trace_golden import golden_traces
from .trace_hardware import hardware_traces
from .trace_picture import trace_as_svg
from .trace_text import trace_as_html, trace_as_text

__all__ = ["TracedOutput", "trace"]


@dataclass(frozen=True, kw_only=True, repr=False)
class TracedOutput:
    """Trace of one output of a register file; prints itself, and draws itself in a notebook.

    Attributes
    ----------
    name : str
        Instruction with all options that decide its result.
    case, row, column : int
        Place of the output.
    golden : OutputTrace
        Trace of the golden model.
    hardware : OutputTrace or None
        Trace of the hardware, if requested.
    """

    name: str
    case: int
    row: int
    column: int
    golden: OutputTrace
    hardware: OutputTrace | None

    @cached_property
    def difference(self) -> Difference | None:
        """First field in which both traces differ; None if they are equal or there is only one."""
        return first_difference(self.golden, self.hardware) if self.hardware else None

    @property
    def title(self) -> str:
        """Title: instruction, architecture and place of the output."""
        return f"{self.name} on {self.golden.arch}: case {self.case}, row {self.row}, column {self.column}"

    def as_dict(self) -> dict[str, object]:
        """Return the traces as JSON data."""
        parted = self.difference
        return {
            "name": self.name,
            "case": self.case,
            "row": self.row,
            "column": self.column,
            "golden": trace_as_dict(self.golden),
            "hardware": trace_as_dict(self.hardware) if self.hardware else None,
            "first_difference": str(parted) if parted else None,
        }

    def as_svg(self) -> bytes:
        """Return a picture of the bits of every term, as SVG.

        Raises
        ------
        BackendError
            matplotlib is not installed.
        """
        return trace_as_svg(self.title, self.golden, self.hardware)

    def __str__(self) -> str:
        return trace_as_text(self.title, self.golden, self.hardware)

    def __repr__(self) -> str:
        return f"<trace of {self.title}>"

    def _repr_html_(self) -> str:
        return trace_as_html(self.title, self.golden, self.hardware)

    def _repr_svg_(self) -> str:
        return self.as_svg().decode()


def trace(
    file: str | Path | Recorded, case: int = 0, row: int = 0, column: int = 0, *, hardware: bool = True
) -> TracedOutput:
    """Trace one output of a register file.

    Parameters
    ----------
    file : path or register file
        Path or content of the register file.
    case, row, column : int
        Place of the output.
    hardware : bool
        Trace the hardware too. It is built in Amaranth's simulator, which takes some seconds.

    Returns
    -------
    TracedOutput
        Traces of the golden model and, on request, of the hardware.

    Raises
    ------
    FileError
        The file is no register file.
    OperandError
        The output does not exist.
    InstructionError, MetadataError, BackendError
        The file cannot be computed.
    """
    held = register_file.interpret(load(file)) if isinstance(file, str | Path) else file
    i = held.instruction
    for name, number, count in (("case", case, held.cases), ("row", row, i.m), ("column", column, i.n)):
        if not 0 <= number < count:
            raise OperandError(f"{name} must be 0 to {count - 1}, as the register file has it, not {number}")
    operands = _output(_given(held.take(slice(case, case + 1))), row, column)
    [golden] = golden_traces(i, held.arch, operands)
    found = None
    if hardware:
        [found] = hardware_traces(i, held.arch, operands)
    return TracedOutput(name=held.name, case=case, row=row, column=column, golden=golden, hardware=found)


def _given(file: Recorded) -> MatrixOperands:
    """Return the matrices that a register file of one case passes to a back end."""
    recorder = Recorder(backend("golden"))
    file.run(recorder)
    if len(recorder.operands) != 1:
        raise Error(f"{file.name} is computed in {len(recorder.operands)} parts, and none can be traced")
    return recorder.operands[0]


def _output(operands: MatrixOperands, row: int, column: int) -> MatrixOperands:
    """Return the operands of one output; for two CTAs, `row` counts through the rows of both."""
    tile, row = divmod(row, operands.c.shape[1])
    one = operands.take(slice(tile, tile + 1), slice(row, row + 1))
    columns = slice(column, column + 1)
    scale_b = None if one.scale_b is None else one.scale_b[:, columns]
    return replace(one, b=one.b[:, :, columns], c=one.c[:, :, columns], scale_b=scale_b)
