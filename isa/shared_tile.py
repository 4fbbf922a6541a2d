"""Placement of A or B in shared memory by a matrix descriptor: offsets, address formulas and checks."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..errors import OperandError
from .formats import Format
from .instructions import Instruction
from .memory import (
    GENERATIONS,
    SWIZZLES,
    UNIT_BYTES,
    SharedDescriptor,
    SharedMap,
    Swizzle,
    encode_descriptor,
    shared_map,
)
from .tcgen05 import KINDS, Opcode

__all__ = ["MAJORS", "SharedTile", "TileShape", "check_tile", "packed_tile", "tile_shape"]

#: Names of the memory orders (majors) of an operand in messages. The keys are the short names.
MAJORS = {"k": "K-major", "mn": "MN-major"}
#: Maximum bytes of shared memory of a CTA on sm_90 and sm_100.
_MOST_BYTES = 227 * 1024


@dataclass(frozen=True)
class TileShape:
    """Size of an operand in shared memory, in elements and in units of 16 bytes."""

    operand: str  #: Name of the operand, ``a`` or ``b``
    fmt: Format
    mn: int  #: Number of rows of A or columns of B in one CTA
    k: int  #: Number of stored columns of A, or of rows of B
    element_bits: int  #: Distance in bits between consecutive elements of a 16-byte unit
    unit_elements: int  #: Number of elements in a 16-byte unit of shared memory

    def map(self, tile: "SharedTile") -> SharedMap:
        """Return the byte address and low bit of each element, shape (mn, k)."""
        return shared_map(
            tile.descriptor, self.mn, self.k, self.element_bits, major=tile.major, unit_elements=self.unit_elements
        )


@dataclass(frozen=True)
class SharedTile:
    """Placement of an operand in shared memory: matrix descriptor, and memory order (K-major or MN-major)."""

    descriptor: SharedDescriptor
    major: str = "k"  #: Memory order (major), ``k`` or ``mn``

    def encoded(self, family: str) -> int:
        """Return the matrix descriptor in the format of `family`, or raise an `OperandError` for an invalid field."""
        d = self.descriptor
        return encode_descriptor(d.start, d.leading_offset, d.stride_offset, d.swizzle.name, d.base_offset, family)

    def formulas(self, shape: TileShape, inner: str, outer: str) -> dict[str, str]:
        """Return the byte address and low bit of an element as Python expressions of two indices.

        The indices have the names `inner`, which counts elements that are adjacent in memory, and `outer`, which counts
        rows of such elements.
        """
        d, swizzle, bits = self.descriptor, self.descriptor.swizzle, shape.element_bits
        leading, stride = "LBO", "SBO"
        if self.major == "mn" and swizzle.units == 1:
            leading, stride = stride, leading
        unit, rows = f"{inner}//{shape.unit_elements}", swizzle.pattern_rows
        terms = [f"{swizzle.row_bytes}*({outer} % {rows})", f"{stride}*({outer}//{rows})"]
        terms += [f"{leading}*({unit}//{swizzle.units})", f"16*({unit} % {swizzle.units})"]
        if swizzle.units == 1:
            terms[2:] = [f"{leading}*({unit})"]
        terms = [*([str(d.start)] if d.start else []), *terms]
        in_unit = f"{inner} % {shape.unit_elements}"
        byte = f"{bits}*({in_unit})//8" if bits % 8 else f"{bits // 8}*({in_unit})" if bits > 8 else in_unit
        if swizzle.units == 1:
            formulas = {"byte": f"{' + '.join(terms)} + {byte}"}
        else:
            turned = f"(unit >> 7) - {d.base_offset}" if d.base_offset else "unit >> 7"
            mask = swizzle.row_bytes // swizzle.atom_bytes - 1
            permuted = f"(unit ^ ({turned} & {mask})*{swizzle.atom_bytes})"
            formulas = {"unit": " + ".join(terms), "byte": f"{permuted} + {byte}"}
        return formulas | ({"low bit": f"{bits}*({in_unit}) % 8"} if bits % 8 else {})

    def problems(self, shape: TileShape) -> Iterator[str]:
        """Yield messages about elements of an operand that overlap, or that are beyond the end of shared memory."""
        where = shape.map(self)
        name = shape.operand.upper()
        places = np.sort((where.addresses * 8 + where.low_bits).ravel())
        if shared := int((np.diff(places) < where.element_bits).sum()):
            yield f"{shared} of {places.size} elements of {name} share bytes with others: the offsets are too small"
        if (beyond := where.first_beyond(_MOST_BYTES)) is not None:
            yield f"{name} reaches byte {beyond}, beyond the {_MOST_BYTES} bytes of a CTA"


def tile_shape(i: Instruction, operand: str, opcode: Opcode | None = None) -> TileShape:
    """Return the shape of A or B in the shared memory of one CTA.

    Raise an `OperandError` for ``mma``, which reads A and B from registers.
    """
    if i.family == "mma":
        raise OperandError(f"{i} reads A and B from registers, not from shared memory")
    ctas = opcode.cta_group if opcode else 1
    fmt, mn, k = (i.a, i.m, i.stored_k) if operand == "a" else (i.b, i.n, i.k)
    bits = fmt.container_bits if i.family == "tcgen05" else i.container_bits
    return TileShape(operand, fmt, mn // ctas, k, bits, i.padded_unit(fmt) or 8 * UNIT_BYTES // bits)


def packed_tile(
    i: Instruction,
    operand: str,
    opcode: Opcode | None = None,
    *,
    swizzle: str = "none",
    major: str = "k",
    offsets: tuple[int | None, int | None] = (None, None),
    start: int = 0,
    base_offset: int = 0,
) -> SharedTile:
    """Return the placement of A or B in shared memory with a given swizzle and memory order (K-major or MN-major).

    `swizzle` and `major` are keys of :data:`~sptc.isa.memory.SWIZZLES` and :data:`MAJORS`. `offsets` are the leading
    and the stride byte offset; by default they leave no gaps between swizzle patterns. Raise an `OperandError` if the
    instruction cannot read the operand in this way, or a field of the descriptor is out of range.
    """
    shape = tile_shape(i, operand, opcode)
    check_tile(i, opcode, shape.fmt, swizzle, major)
    pattern = SWIZZLES[swizzle]
    leading, stride = _packed(pattern, shape, major)
    leading = leading if offsets[0] is None else offsets[0]
    stride = stride if offsets[1] is None else offsets[1]
    tile = SharedTile(SharedDescriptor(start, leading, stride, base_offset, pattern), major)
    tile.encoded(i.family)  # raises an error if a descriptor field is out of range
    return tile


def _packed(swizzle: Swizzle, shape: TileShape, major: str) -> tuple[int, int]:
    """Return the leading and stride byte offsets with which swizzle patterns follow each other without gaps."""
    pattern = swizzle.pattern_rows * swizzle.row_bytes
    outer = shape.mn if major == "k" else shape.k
    column = -(-outer // swizzle.pattern_rows) * pattern
    return (pattern, column) if major == "mn" and swizzle.units == 1 else (column, pattern)


def check_tile(i: Instruction, opcode: Opcode | None, fmt: Format, swizzle: str, major: str) -> None:
    """Raise an `OperandError` unless an instruction can read a tile with this swizzle and `major`: ``k`` or ``mn``."""
    if swizzle not in GENERATIONS[i.family].swizzles.values():
        accepted = ", ".join(GENERATIONS[i.family].swizzles.values())
        raise OperandError(f"{i.family} does not have the swizzle {swizzle!r}; the swizzle must be {accepted}")
    name = str(opcode or i)
    transposes = KINDS[opcode.kind].transposes if opcode else i.container_bits == 16
    if major == "mn" and not transposes:
        raise OperandError(f"{name} reads .{fmt.name} operands in K-major order only")
    if (SWIZZLES[swizzle].atom_bytes > UNIT_BYTES) != (major == "mn" and fmt.name == "tf32"):
        needs = "needs" if fmt.name == "tf32" and major == "mn" else "cannot have"
        raise OperandError(f"a {MAJORS[major]} .{fmt.name} operand of {name} {needs} the swizzle '128B with 32B atoms'")
