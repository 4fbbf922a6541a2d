"""Matrix descriptors of shared memory, addresses of core matrices, and requests for panels (eight rows or columns).

A *core matrix* is eight units of 16 bytes, 128 bytes in all. A *panel* is eight rows of A or eight columns of B. A
panel of A has two core matrices (32 stored bytes a row). A panel of B has four core matrices (64 bytes a column), or
two core matrices in a dense instruction.
"""

from collections.abc import Sequence

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out

from .cells.described import DescribedLayout, DescribedSignature

__all__ = [
    "ADDRESS_BITS",
    "CORE_MATRICES",
    "LAST_PANEL",
    "PANEL_BITS",
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
#: Number of core matrices (8 x 16 bytes) in a panel (eight columns) of B, for sparse instructions. A panel (eight rows)
#: of A, and a panel of B for dense instructions, have half as many core matrices.
CORE_MATRICES = 4
#: Width of a shared-memory address in bits. Addresses count words of 16 bytes.
ADDRESS_BITS = 14
UNIT_BITS = 128
#: Width of a panel number in bits. N is at most 256 columns, and a panel of B has eight columns.
PANEL_BITS = 5
#: Text that documents the instruction field for N (number of columns of D) in port tables.
LAST_PANEL = "Number of the last panel of B: N / 8 - 1, since a panel has eight columns."
_ELEMENT_BITS = 16  #: Width in bits of elements that may be MN-major. Other elements must be K-major.


class SwizzleCode(enum.Enum, shape=2):
    """Swizzle mode of a matrix descriptor of ``wgmma`` or ``tcgen05``."""

    NONE = 0
    B128 = 1
    B64 = 2
    B32 = 3


def descriptor_layout() -> DescribedLayout:
    """Return the layout of a 64-bit matrix descriptor (PTX ISA 9.7.15.5.1 and 9.7.16.4.1)."""
    return DescribedLayout(
        {
            "start": (ADDRESS_BITS, "Start address of the matrix in shared memory, in units of 16 bytes."),
            "reserved0": (2, "Reserved; must be 0."),
            "leading": (ADDRESS_BITS, "Leading-dimension offset of PTX, in units of 16 bytes."),
            "reserved1": (2, "Reserved; must be 0."),
            "stride": (ADDRESS_BITS, "Stride-dimension offset of PTX, in units of 16 bytes."),
            "reserved2": (3, "Reserved; must be 0 for wgmma, and 1 for tcgen05."),
            "base_offset": (3, "Base offset of PTX: start of the swizzle pattern, in rows of 128 bytes."),
            "reserved3": (10, "Reserved; must be 0."),
            "swizzle": (SwizzleCode, "Swizzle mode: width in bytes of the rows in which 16-byte words are permuted."),
        }
    )


def sets_reserved(descriptor: data.View, fixed: int = 0) -> Value:
    """Return whether a matrix descriptor has a nonzero reserved bit, or a value other than `fixed` in `reserved2`."""
    others = Cat(descriptor[f"reserved{number}"] for number in (0, 1, 3))
    return others.any() | (descriptor.reserved2 != fixed)


def panel_request_layout() -> DescribedLayout:
    """Return the layout of a request for a panel (eight rows of A or eight columns of B) in shared memory."""
    mn_major = (
        "1: elements that are consecutive in memory are consecutive in M or N (only with 16-bit elements); 0: in K."
    )
    short = "1: the panel has two core matrices (A, or B of a dense instruction); 0: it has four."
    return DescribedLayout(
        {
            "descriptor": (descriptor_layout(), "Matrix descriptor of the operand."),
            "panel": (PANEL_BITS, "Number of the panel: panel p has rows of A, or columns of B, from 8 p to 8 p + 7."),
            "mn_major": (1, mn_major),
            "short": (1, short),
        }
    )


def panel_layout() -> data.ArrayLayout:
    """Return the layout of a panel: eight rows of 64 bytes, K ascending. A short panel uses 32 bytes per row."""
    return data.ArrayLayout(CORE_MATRICES * UNIT_BITS, PANEL_ROWS)


def shared_memory_signature() -> DescribedSignature:
    """Return the signature of a shared-memory port that reads eight words of 16 bytes in each cycle."""
    address = "Addresses of eight 16-byte words to read: byte addresses divided by 16."
    data = "Word n is the word at address n; valid in the cycle after read."
    return DescribedSignature(
        {
            "read": (Out(1), "The eight words at the addresses are read in this cycle."),
            "address": (Out(ADDRESS_BITS).array(PANEL_ROWS), address),
            "data": (In(UNIT_BITS).array(PANEL_ROWS), data),
        }
    )


class CoreMatrixAddress(wiring.Component):
    """Compute the addresses of the eight 16-byte words of a core matrix. Combinational. Addresses wrap at 2**18 bytes.

    Source: PTX ISA canonical layouts; every formula checked element by element on an H200.
    """

    def __init__(self) -> None:
        address = "Addresses of 16-byte words: one per row of the panel if K-major, one per k (of eight) if MN-major."
        ports = {
            "request": (In(panel_request_layout()), "Request for a panel of A or B."),
            "segment": (In(range(CORE_MATRICES)), "Number of the core matrix in the panel, along K."),
            "address": (Out(ADDRESS_BITS).array(PANEL_ROWS), address),
        }
        super().__init__(DescribedSignature(ports))

    def elaborate(self, platform: object) -> Module:
        """Build the base address of the core matrix, the addresses of its eight rows, and the swizzle."""
        m = Module()
        descriptor, mn_major = self.request.descriptor, self.request.mn_major
        # A core matrix begins at start + `outer` * `across` + offset of the 16-byte word `unit` in a row. In a K-major
        # operand, `outer` is the number of the panel, and `unit` is the number of the core matrix in the panel. In an
        # MN-major operand, the number of the panel is `unit`, and the number of the core matrix is `outer`.
        outer, unit = Mux(mn_major, self.segment, self.request.panel), Mux(mn_major, self.request.panel, self.segment)
        swizzle = descriptor.swizzle
        exchanged = mn_major & (swizzle == SwizzleCode.NONE)
        along = Mux(exchanged, descriptor.stride, descriptor.leading)
        across = Mux(exchanged, descriptor.leading, descriptor.stride)
        # `exponent` is log2 of the number of 16-byte words in a row of the swizzle pattern, and `mask` is this number
        # less one. `exponent` is the negated code of the swizzle mode, modulo 4: 0 for NONE, 3 for B128, 2 for B64, and
        # 1 for B32.
        exponent = Signal(2)
        mask = Signal(3)
        m.d.comb += [
            exponent.eq(-swizzle.as_value()),
            mask.eq((1 << exponent) - 1),
        ]
        base = Signal(ADDRESS_BITS)
        m.d.comb += base.eq(descriptor.start + outer * across + (unit >> exponent) * along + (unit & mask))
        # Bits of the address of a 16-byte word, before the swizzle (`linear`) and after it (`address`):
        #
        #     bit         13 ... 6    5 4 3               2 1 0
        #     linear                  row of 128 bytes    word in that row
        #     address     linear      linear              word XOR (row - base_offset) & mask
        for row in range(PANEL_ROWS):
            linear = Signal(ADDRESS_BITS, name=f"linear_{row}")
            m.d.comb += [
                linear.eq(base + (row << exponent if row else 0)),
                self.address[row].eq(linear ^ ((linear[3:6] - descriptor.base_offset)[:3] & mask)),
            ]
        return m


def transposed(core_matrix: Sequence[Value], row: int) -> Value:
    """Return 16 bytes of a row of an MN-major core matrix: one 16-bit element from each 16-byte word of the matrix."""
    return Cat(core_matrix[k].word_select(row, _ELEMENT_BITS) for k in range(PANEL_ROWS))
