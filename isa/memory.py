"""Shared-memory matrix descriptors, and index maps from operand elements to byte addresses.

A 64-bit matrix descriptor gives the placement of an operand of ``wgmma`` or ``tcgen05.mma`` in shared memory. The
operand is divided into *units* of 16 bytes. The offsets of the descriptor give the address of each unit, and
:class:`Swizzle` then permutes the units.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import OperandError, shown
from .instructions import Instruction

__all__ = [
    "ADDRESS_SPACE",
    "GENERATIONS",
    "SWIZZLES",
    "UNIT_BYTES",
    "SharedDescriptor",
    "SharedMap",
    "Swizzle",
    "decode_descriptor",
    "encode_descriptor",
    "operand_map",
    "shared_map",
    "unit_address",
]

Index = NDArray[np.intp]

#: Size in bytes of the unit of data that descriptors and swizzles move as a whole.
UNIT_BYTES = 16
_FIELD_BITS = 14
_FIELD_MASK = (1 << _FIELD_BITS) - 1
#: Descriptor bit of sm_103 that turns the leading offset into an absolute address.
_ABSOLUTE = 1 << 52
#: Number of bytes of shared memory that a descriptor can address.
ADDRESS_SPACE = UNIT_BYTES << _FIELD_BITS


@dataclass(frozen=True)
class Swizzle:
    """A permutation of 16-byte units in shared memory that spreads the rows of a matrix over the banks.

    The banks together form rows of 128 bytes. The low bits of (row number - base offset) are XORed into those bits of
    the address that number the atoms, the pieces of a row that move as a whole. The effect of base offsets was measured
    on an H200.
    """

    name: str  #: Name of the swizzle mode in PTX
    row_bytes: int  #: Width of the swizzle pattern in bytes, or one unit without swizzle
    atom_bytes: int = UNIT_BYTES  #: Granularity of the swizzle's permutation of addresses, in bytes
    #: Number of rows of the swizzle pattern. The stride offset leads from one pattern to the next.
    pattern_rows: int = 8

    @property
    def units(self) -> int:
        """Number of 16-byte units per row of the swizzle pattern."""
        return self.row_bytes // UNIT_BYTES

    def apply(self, address: Any, base_offset: Any = 0) -> Any:
        """Apply the swizzle to a byte address, or to an array of byte addresses."""
        return address ^ (((address >> 7) - base_offset) & self.row_bytes // self.atom_bytes - 1) * self.atom_bytes


SWIZZLES: dict[str, Swizzle] = {
    record.name: record
    for record in (
        Swizzle("none", 16),
        Swizzle("32B", 32),
        Swizzle("64B", 64),
        Swizzle("128B", 128),
        Swizzle("128B with 32B atoms", 128, atom_bytes=32, pattern_rows=4),
    )
}


@dataclass(frozen=True)
class _Generation:
    """Descriptor fields that differ between ``wgmma`` and ``tcgen05``."""

    swizzle_bit: int
    swizzles: dict[int, str]
    fixed_bit: int = 0  # Lowest bit and width of the field that must hold `fixed_value`
    fixed_bits: int = 0
    fixed_value: int = 0


#: Matrix descriptor formats by instruction family (PTX ISA 9.7.15.5.1 and 9.7.16.4.1).
GENERATIONS: dict[str, _Generation] = {
    "wgmma": _Generation(62, {0: "none", 1: "128B", 2: "64B", 3: "32B"}),
    "tcgen05": _Generation(
        61,
        {0: "none", 1: "128B with 32B atoms", 2: "128B", 4: "64B", 6: "32B"},
        fixed_bit=46,
        fixed_bits=3,
        fixed_value=1,
    ),
}


@dataclass(frozen=True)
class SharedDescriptor:
    """A decoded 64-bit matrix descriptor."""

    #: Start address, leading and stride offset in bytes: multiples of 16 below 2**18.
    start: int
    leading_offset: int
    stride_offset: int
    #: Number, modulo 8, of the 128-byte row at which the swizzle pattern starts, or 0 for its natural boundary.
    base_offset: int
    swizzle: Swizzle  #: Swizzle mode: the permutation of 16-byte units


def decode_descriptor(value: int, family: str = "wgmma") -> SharedDescriptor:
    """Decode a 64-bit matrix descriptor of ``"wgmma"`` or ``"tcgen05"``. The two families have different formats.

    Raise an `OperandError` if the value is not a 64-bit number, sets a reserved bit, or has an undefined swizzle mode
    or a wrong value in a fixed field.
    """
    if not 0 <= value < 1 << 64:
        number = f"{value:#x}" if value.bit_length() <= 128 else shown(value)
        raise OperandError(f"a shared-memory descriptor must be a 64-bit number, not {number}")
    generation = GENERATIONS[family]
    fixed_mask = (1 << generation.fixed_bits) - 1
    swizzle_code = value >> generation.swizzle_bit
    # Bits 13:0 start, 29:16 leading offset, 45:32 stride offset (in units), 51:49 base offset, then the swizzle mode.
    defined = _FIELD_MASK | _FIELD_MASK << 16 | _FIELD_MASK << 32 | 7 << 49
    defined |= fixed_mask << generation.fixed_bit | (1 << 64) - (1 << generation.swizzle_bit)
    if family == "tcgen05" and value & _ABSOLUTE:
        raise OperandError(
            f"descriptor {value:#018x} of tcgen05 has an absolute leading address, which is not modelled; bit 52 must "
            f"be 0"
        )
    if reserved := value & ~defined:
        raise OperandError(f"descriptor {value:#018x} of {family} sets the reserved bits {reserved:#x}")
    if (value >> generation.fixed_bit & fixed_mask) != generation.fixed_value:
        raise OperandError(
            f"descriptor {value:#018x} of {family} must hold {generation.fixed_value:#05b} in bits "
            f"{generation.fixed_bit + generation.fixed_bits - 1}:{generation.fixed_bit}"
        )
    if swizzle_code not in generation.swizzles:
        accepted = ", ".join(f"{code} ({name})" for code, name in generation.swizzles.items())
        raise OperandError(
            f"descriptor {value:#018x} of {family} has the swizzle mode {swizzle_code}; expected {accepted}"
        )
    return SharedDescriptor(
        start=(value & _FIELD_MASK) * UNIT_BYTES,
        leading_offset=(value >> 16 & _FIELD_MASK) * UNIT_BYTES,
        stride_offset=(value >> 32 & _FIELD_MASK) * UNIT_BYTES,
        base_offset=value >> 49 & 7,
        swizzle=SWIZZLES[generation.swizzles[swizzle_code]],
    )


def encode_descriptor(
    start: int,
    leading_offset: int,
    stride_offset: int,
    swizzle: str = "none",
    base_offset: int = 0,
    family: str = "wgmma",
) -> int:
    """Encode a matrix descriptor of ``"wgmma"`` or ``"tcgen05"``, the inverse of :func:`decode_descriptor`.

    Start address and offsets are in bytes, `base_offset` is 0 to 7, and `swizzle` is a key of :data:`SWIZZLES`. Raise
    an `OperandError` if a number is misaligned or out of range, or the family lacks the swizzle.
    """
    for name, value in (("start", start), ("leading offset", leading_offset), ("stride offset", stride_offset)):
        if value % UNIT_BYTES or not 0 <= value < ADDRESS_SPACE:
            raise OperandError(
                f"the {name} of a descriptor must be a multiple of {UNIT_BYTES} bytes "
                f"from 0 to {ADDRESS_SPACE - UNIT_BYTES}, not {shown(value)}"
            )
    if not 0 <= base_offset < 8:
        raise OperandError(f"the base offset of a descriptor must be 0 to 7, not {base_offset}")
    generation = GENERATIONS[family]
    codes = {name: code for code, name in generation.swizzles.items()}
    if swizzle not in codes:
        raise OperandError(f"the swizzle of a descriptor of {family} must be {', '.join(codes)}, not {shown(swizzle)}")
    return (
        start // UNIT_BYTES
        | leading_offset // UNIT_BYTES << 16
        | stride_offset // UNIT_BYTES << 32
        | generation.fixed_value << generation.fixed_bit
        | base_offset << 49
        | codes[swizzle] << generation.swizzle_bit
    )


@dataclass(frozen=True, eq=False)
class SharedMap:
    """Map of matrix elements to bytes and bits of shared memory."""

    #: Byte that holds the lowest bit of each element, and position of this bit in the byte (0 for whole bytes); shape
    #: (mn, k).
    addresses: Index
    low_bits: Index
    element_bits: int

    def first_beyond(self, size: int) -> int | None:
        """Return the lowest byte address at or above `size` that an element occupies, or None if there is none."""
        last = self.addresses + (self.low_bits + self.element_bits - 1) // 8
        beyond = last >= size
        return max(size, int(self.addresses[beyond].min())) if beyond.any() else None


def unit_address(descriptor: SharedDescriptor, outer: Any, unit: Any, major: str) -> Any:
    """Return the byte address of a 16-byte unit of an operand, as an integer or an array of integers.

    `outer` is the index of a row of A or a column of B if `major` is ``"k"``, and an index along K otherwise. `unit`
    counts the units along the other dimension.
    """
    swizzle = descriptor.swizzle
    leading, stride, rows = descriptor.leading_offset, descriptor.stride_offset, swizzle.pattern_rows
    if major == "mn" and swizzle.units == 1:
        leading, stride = stride, leading
    address = (
        descriptor.start
        + outer % rows * swizzle.row_bytes
        + outer // rows * stride
        + unit // swizzle.units * leading
        + unit % swizzle.units * UNIT_BYTES
    )
    return swizzle.apply(address, descriptor.base_offset)


@lru_cache(maxsize=256)
def shared_map(
    descriptor: SharedDescriptor, mn: int, k: int, element_bits: int, *, major: str = "k", unit_elements: int = 0
) -> SharedMap:
    """Return the map of A or B to shared memory.

    `mn` is the number of rows of A or of columns of B, and `k` the number of stored columns of A or of rows of B.
    `element_bits` is the distance in bits from one element to the next inside a unit. With `major` ``"k"``, neighbours
    in memory are neighbours in K; with ``"mn"``, they are neighbours in M or N. `unit_elements` is the number of
    elements in a unit, or 0 if elements fill the unit: a unit of padded 4-bit or 6-bit elements holds 16 elements.

    Source: PTX ISA canonical layouts; every formula was confirmed element by element on an H200.
    """
    per_unit = unit_elements or UNIT_BYTES * 8 // element_bits
    mn_index, k_index = np.arange(mn)[:, None], np.arange(k)[None, :]
    inner, outer = (k_index, mn_index) if major == "k" else (mn_index, k_index)
    bit = inner % per_unit * element_bits
    addresses = unit_address(descriptor, outer, inner // per_unit, major) + bit // 8
    low_bits = np.broadcast_to(bit % 8, addresses.shape)
    addresses.flags.writeable = False
    return SharedMap(addresses, low_bits, element_bits)


def operand_map(
    instruction: Instruction, operand: str, descriptor: SharedDescriptor, *, transposed: bool = False
) -> SharedMap:
    """Return the shared-memory map of A, shape (m, stored k), or of B, shape (n, k), of a ``wgmma``.

    With `transposed` (imm-trans in PTX), the operand is MN-major instead of K-major.
    """
    mn, k = (instruction.m, instruction.stored_k) if operand == "a" else (instruction.n, instruction.k)
    return shared_map(descriptor, mn, k, instruction.container_bits, major="mn" if transposed else "k")
