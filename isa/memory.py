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
    "TCGEN05_FIXED",
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

#: Size in bytes of the data unit in which matrix descriptors count offsets, and which swizzles move as a whole.
UNIT_BYTES = 16
#: For each field that the matrix descriptors of all families have, its lowest bit and its width in bits. Addresses and
#: offsets are in units of 16 bytes.
_FIELDS = {"start address": (0, 14), "leading byte offset": (16, 14), "stride byte offset": (32, 14),
           "base offset": (49, 3)}  # fmt: skip
#: Number of bytes of shared memory that a descriptor can address.
ADDRESS_SPACE = UNIT_BYTES << _FIELDS["start address"][1]


@dataclass(frozen=True)
class Swizzle:
    """A permutation of 16-byte units in shared memory that spreads the rows of a matrix over the banks.

    The banks together form rows of 128 bytes. The low bits of (row number - base offset) are XORed into those bits of
    the address that number the atoms, the pieces of a row that move as a whole. The effect of base offsets was measured
    on an H200.
    """

    name: str  #: Name of the swizzle mode in PTX
    row_bytes: int  #: Width of the swizzle pattern in bytes, or 16 without swizzle
    atom_bytes: int = UNIT_BYTES  #: Size in bytes of an atom, a piece of a row that the swizzle moves as a whole
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
    """Format of the matrix descriptors of ``wgmma`` or of ``tcgen05``."""

    swizzles: dict[int, str]
    fields: dict[str, tuple[int, int]]  # for each descriptor field, its lowest bit and its width in bits


#: For each instruction family, the format of its matrix descriptors (PTX ISA 9.7.15.5.1 and 9.7.16.4.1).
GENERATIONS: dict[str, _Generation] = {
    "wgmma": _Generation({0: "none", 1: "128B", 2: "64B", 3: "32B"}, {**_FIELDS, "swizzle": (62, 2)}),
    "tcgen05": _Generation(
        {0: "none", 1: "128B with 32B atoms", 2: "128B", 4: "64B", 6: "32B"},
        {**_FIELDS, "fixed": (46, 3), "leading offset mode": (52, 1), "swizzle": (61, 3)},
    ),
}
#: Value that the field ``fixed`` of a ``tcgen05`` matrix descriptor must hold.
TCGEN05_FIXED = 1


@dataclass(frozen=True)
class SharedDescriptor:
    """A decoded 64-bit matrix descriptor."""

    #: Start address, leading offset and stride offset in bytes. Each is a multiple of 16 below 2**18.
    start: int
    leading_offset: int
    stride_offset: int
    #: 0 if the swizzle pattern starts at a natural boundary, else the number of its first 128-byte row, modulo 8.
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
    generation, where = GENERATIONS[family], f"descriptor {value:#018x} of {family}"
    fields = {name: value >> low & (1 << width) - 1 for name, (low, width) in generation.fields.items()}
    defined = sum(((1 << width) - 1) << low for low, width in generation.fields.values())
    if fields.get("leading offset mode"):
        raise OperandError(f"{where} has an absolute leading address, which is not modelled; bit 52 must be 0")
    if reserved := value & ~defined:
        raise OperandError(f"{where} sets the reserved bits {reserved:#x}, which must be 0")
    if fields.get("fixed", TCGEN05_FIXED) != TCGEN05_FIXED:
        low, width = generation.fields["fixed"]
        raise OperandError(f"{where} must hold {TCGEN05_FIXED:#05b} in bits {low + width - 1}:{low}")
    if fields["swizzle"] not in generation.swizzles:
        accepted = ", ".join(f"{code} ({name})" for code, name in generation.swizzles.items())
        raise OperandError(f"{where} has the swizzle mode {fields['swizzle']}; expected {accepted}")
    return SharedDescriptor(
        start=fields["start address"] * UNIT_BYTES,
        leading_offset=fields["leading byte offset"] * UNIT_BYTES,
        stride_offset=fields["stride byte offset"] * UNIT_BYTES,
        base_offset=fields["base offset"],
        swizzle=SWIZZLES[generation.swizzles[fields["swizzle"]]],
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
    values = {
        "start address": start // UNIT_BYTES,
        "leading byte offset": leading_offset // UNIT_BYTES,
        "stride byte offset": stride_offset // UNIT_BYTES,
        "base offset": base_offset,
        "fixed": TCGEN05_FIXED,
        "leading offset mode": 0,
        "swizzle": codes[swizzle],
    }
    return sum(int(values[name]) << low for name, (low, _) in generation.fields.items())


@dataclass(frozen=True, eq=False)
class SharedMap:
    """Map of matrix elements to bytes and bits of shared memory."""

    #: Address of the byte that holds the lowest bit of each element, and position of this bit in the byte (0 if
    #: elements are whole bytes), shape (mn, k).
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
    """Return the map that gives the position of each element of A or B in shared memory.

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
