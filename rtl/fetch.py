"""A matrix descriptor to the operands it leads to: addresses of core matrices, and what is requested of them.

A *core matrix* is eight units of 16 bytes, 128 bytes in all. A *panel* is eight rows of A or columns of B: two core
matrices of A (32 stored bytes a row), four of B (64 bytes a column), of a dense instruction's two as well.
"""

from collections.abc import Sequence

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out

__all__ = [
    "ADDRESS_BITS",
    "CORE_MATRICES",
    "PANEL_ROWS",
    "UNIT_BITS",
    "CoreMatrixAddress",
    "SwizzleCode",
    "descriptor_layout",
    "panel_layout",
    "panel_request_layout",
    "sets_reserved",
    "shared_memory_signature",
    "transposed",
]

PANEL_ROWS = 8
#: Core matrices of a panel of B; of A, and where A is dense, half as many.
CORE_MATRICES = 4
#: Bits of an address, in units of 16 bytes.
ADDRESS_BITS = 14
UNIT_BITS = 128
_ELEMENT_BITS = 16  #: of operands that may be MN-major


class SwizzleCode(enum.Enum, shape=2):
    """Swizzle mode of a ``wgmma`` descriptor."""

    NONE = 0
    B128 = 1
    B64 = 2
    B32 = 3


def descriptor_layout() -> data.StructLayout:
    """Return the layout of a matrix descriptor (PTX ISA 9.7.15.5.1 and 9.7.16.4.1).

    Fields
    ------
    start, leading, stride : 14
        In units of 16 bytes.
    base_offset : 3
        Row of banks on which the swizzle pattern starts.
    swizzle : SwizzleCode
        Permutation of the units.
    reserved0, reserved1, reserved2, reserved3 : 2, 2, 3, 10
        Zero, but for reserved2 of ``tcgen05``, which is 1.
    """
    return data.StructLayout(
        {
            "start": ADDRESS_BITS,
            "reserved0": 2,
            "leading": ADDRESS_BITS,
            "reserved1": 2,
            "stride": ADDRESS_BITS,
            "reserved2": 3,
            "base_offset": 3,
            "reserved3": 10,
            "swizzle": SwizzleCode,
        }
    )


def sets_reserved(descriptor: data.View, fixed: int = 0) -> Value:
    """Return whether a descriptor sets a reserved bit, or its third reserved field does not hold `fixed`."""
    others = Cat(descriptor[f"reserved{number}"] for number in (0, 1, 3))
    return others.any() | (descriptor.reserved2 != fixed)


def panel_request_layout() -> data.StructLayout:
    """Return the layout of what a fetcher is asked for.

    Fields
    ------
    descriptor : descriptor_layout()
        Where the operand lies.
    panel : 5
        Which eight rows of A or columns of B.
    mn_major : 1
        Neighbours in memory are neighbours in M or N (16-bit elements), not in K.
    short : 1
        Two core matrices, not four: a panel of A, or of a dense instruction's B.
    """
    return data.StructLayout({"descriptor": descriptor_layout(), "panel": 5, "mn_major": 1, "short": 1})


def panel_layout() -> data.ArrayLayout:
    """Return the layout of a panel: eight rows of 64 bytes, K ascending; a short one fills the first 32 of each."""
    return data.ArrayLayout(CORE_MATRICES * UNIT_BITS, PANEL_ROWS)


def shared_memory_signature() -> wiring.Signature:
    """Return the port to a shared memory that reads eight units a cycle.

    Members
    -------
    read : Out(1)
        The addresses are meant.
    address : Out(14).array(8)
        Units, that is byte addresses without their lowest four bits.
    data : In(128).array(8)
        Their contents, one cycle later.
    """
    return wiring.Signature(
        {
            "read": Out(1),
            "address": Out(ADDRESS_BITS).array(PANEL_ROWS),
            "data": In(UNIT_BITS).array(PANEL_ROWS),
        }
    )


class CoreMatrixAddress(wiring.Component):
    """Compute the addresses of the eight units of a core matrix. Combinational; addresses wrap at 2**18 bytes.

    Members
    -------
    request : In(panel_request_layout())
        Operand and panel.
    segment : In(2)
        Which core matrix of the panel, along K.
    address : Out(14).array(8)
        Units: of the panel's rows if K-major, of eight consecutive k if MN-major.

    Notes
    -----
    Source: PTX ISA canonical layouts; every formula read out element by element on an H200.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "request": In(panel_request_layout()),
                "segment": In(range(CORE_MATRICES)),
                "address": Out(ADDRESS_BITS).array(PANEL_ROWS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the base of the core matrix, its eight rows and the swizzle."""
        m = Module()
        descriptor, mn_major = self.request.descriptor, self.request.mn_major
        # K-major: panels follow the stride and core matrices the units of a row; MN-major: the other way round.
        outer, unit = Mux(mn_major, self.segment, self.request.panel), Mux(mn_major, self.request.panel, self.segment)
        swizzle = descriptor.swizzle
        exchanged = mn_major & (swizzle == SwizzleCode.NONE)
        along = Mux(exchanged, descriptor.stride, descriptor.leading)
        across = Mux(exchanged, descriptor.leading, descriptor.stride)
        # log2 of the units of a row of the pattern, and those units less one
        exponent = Signal(2)
        mask = Signal(3)
        m.d.comb += [
            exponent.eq(-swizzle.as_value()),
            mask.eq((1 << exponent) - 1),
        ]
        base = Signal(ADDRESS_BITS)
        m.d.comb += base.eq(descriptor.start + outer * across + (unit >> exponent) * along + (unit & mask))
        for row in range(PANEL_ROWS):
            linear = Signal(ADDRESS_BITS, name=f"linear_{row}")
            m.d.comb += [
                linear.eq(base + (row << exponent if row else 0)),
                self.address[row].eq(linear ^ ((linear[3:6] - descriptor.base_offset)[:3] & mask)),
            ]
        return m


def transposed(core_matrix: Sequence[Value], row: int) -> Value:
    """Return 16 bytes of a row, of a core matrix whose units are of eight consecutive k: an element of each."""
    return Cat(core_matrix[k].word_select(row, _ELEMENT_BITS) for k in range(PANEL_ROWS))
