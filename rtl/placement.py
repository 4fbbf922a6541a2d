"""Flags for addresses of ``tcgen05.mma`` operands that PTX leaves undefined."""

from typing import Any

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .cells.described import DescribedLayout, DescribedSignature
from .config import CoreConfig
from .fetch import sets_reserved
from .tensor_memory import COLUMN_BITS
from .tensor_operands import Operand, columns_of, operand_request, operand_request_layout
from .warp import COLUMNS

__all__ = ["Placement", "placement_layout"]

_ALL_COLUMNS = 1 << COLUMN_BITS
#: Required value of the field `reserved2` in a matrix descriptor of ``tcgen05``.
_FIXED = 1


def placement_layout() -> DescribedLayout:
    """Return the layout of the flags for undefined operand addresses of one ``tcgen05.mma`` instruction."""
    reserved = "A matrix descriptor has a nonzero reserved bit, or its field reserved2 is not 1."
    return DescribedLayout(
        {
            "overlap": (1, "D and another operand have a column of tensor memory in common."),
            "misaligned": (1, "The metadata starts at an odd column of tensor memory."),
            "beyond": (1, "An operand extends beyond the last column of tensor memory, column 511."),
            "reserved": (1, reserved),
        }
    )


class Placement(wiring.Component):
    """Flag undefined addresses of an instruction's operands. Combinational. The flags do not affect results.

    Source: PTX ISA, matrix descriptor of ``tcgen05`` and data path layouts. D must not overlap other operands, as
    :func:`sptc.tcgen05_mma` requires. Descriptors with absolute leading addresses or with swizzle atoms of 32 bytes,
    which the hardware does not support, count as reserved.

    Parameters
    ----------
    config : CoreConfig
        The array.
    instruction : StructLayout
        Fields of an instruction; all fields of :func:`~sptc.rtl.tcgen05.tcgen05_layout` except ``operation``.
    """

    def __init__(self, config: CoreConfig, instruction: data.StructLayout) -> None:
        self.config = config
        ports = {
            "taken": (In(1), "The instruction is accepted in this cycle."),
            "instruction": (In(instruction), "Instruction."),
            "undefined": (Out(placement_layout()), "Flags of undefined operand addresses of the instruction."),
        }
        super().__init__(DescribedSignature(ports))

    def elaborate(self, platform: object) -> Module:
        """Build the comparisons of the column ranges that the operands occupy in tensor memory."""
        m = Module()
        request: Any = Signal(operand_request_layout())
        m.d.comb += operand_request(self.config, request, self.instruction)
        d = self.instruction.d_column
        # The end of a column range has one bit more than a column number. A range that exceeds the last column
        # therefore sets `beyond`, and does not wrap around to column 0.
        d_end = d + (request.last_panel + 1) * COLUMNS
        ranges = [columns_of(request, operand) for operand in Operand]
        overlaps = [present & (first < d_end) & (d < first + count) for present, first, count in ranges]
        beyond = [present & (first + count > _ALL_COLUMNS) for present, first, count in ranges]
        reserved = sets_reserved(self.instruction.b_descriptor, _FIXED) | (
            request.a_shared & sets_reserved(self.instruction.a_descriptor, _FIXED)
        )
        for name, value in (
            ("overlap", Cat(overlaps).any()),
            ("misaligned", request.sparse & request.metadata_column[0]),
            ("beyond", Cat(*beyond, d_end > _ALL_COLUMNS).any()),
            ("reserved", reserved),
        ):
            m.d.comb += self.undefined[name].eq(self.taken & value)
        return m
