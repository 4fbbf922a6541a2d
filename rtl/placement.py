"""What is undefined of where ``tcgen05.mma`` finds its operands: flags beside what the tensor cores are told."""

from amaranth.hdl import Cat, Module
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .fetch import descriptor_layout, sets_reserved
from .tensor_memory import COLUMN_BITS
from .tensor_operands import Operand, columns_of, operand_request_layout
from .warp import COLUMNS

__all__ = ["Placement", "placement_layout"]

_ALL_COLUMNS = 1 << COLUMN_BITS
#: What the third reserved field of a descriptor of ``tcgen05`` holds.
_FIXED = 1


def placement_layout() -> data.StructLayout:
    """Return the layout of what is undefined of an instruction.

    Fields
    ------
    overlap : 1
        D shares a column of tensor memory with another operand.
    misaligned : 1
        Metadata starts at an odd column.
    beyond : 1
        An operand reaches beyond the last column.
    reserved : 1
        A descriptor of shared memory sets a reserved bit, or does not hold what it must.
    """
    return data.StructLayout(dict.fromkeys(("overlap", "misaligned", "beyond", "reserved"), 1))


class Placement(wiring.Component):
    """Say what is undefined of where an instruction's operands are. Combinational; its results do not depend on it.

    Members
    -------
    taken : In(1)
        An instruction is taken in this cycle.
    request : In(operand_request_layout())
        What it has in tensor memory.
    d_column : In(9)
        Its first column of D.
    a_descriptor, b_descriptor : In(descriptor_layout())
        Its operands in shared memory.
    undefined : Out(placement_layout())
        What is undefined of it.

    Notes
    -----
    Source: PTX ISA, matrix descriptor of ``tcgen05`` and data path layouts; that D lies apart from the others, as
    :func:`sptc.tcgen05_mma` demands. Descriptors of absolute leading addresses and swizzles in atoms of 32 bytes, which
    the hardware does not have, count as reserved.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "taken": In(1),
                "request": In(operand_request_layout()),
                "d_column": In(COLUMN_BITS),
                "a_descriptor": In(descriptor_layout()),
                "b_descriptor": In(descriptor_layout()),
                "undefined": Out(placement_layout()),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the comparisons of ranges of columns."""
        m = Module()
        request, d = self.request, self.d_column
        d_end = d + (request.last_panel + 1) * COLUMNS
        ranges = [columns_of(request, operand) for operand in Operand]
        overlaps = [present & (first < d_end) & (d < first + count) for present, first, count in ranges]
        beyond = [present & (first + count > _ALL_COLUMNS) for present, first, count in ranges]
        reserved = sets_reserved(self.b_descriptor, _FIXED) | (
            request.a_shared & sets_reserved(self.a_descriptor, _FIXED)
        )
        for name, value in (
            ("overlap", Cat(overlaps).any()),
            ("misaligned", request.sparse & request.metadata_column[0]),
            ("beyond", Cat(*beyond, d_end > _ALL_COLUMNS).any()),
            ("reserved", reserved),
        ):
            m.d.comb += self.undefined[name].eq(self.taken & value)
        return m
