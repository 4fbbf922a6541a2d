"""Tensor maps in their 128-byte form, and the units of 16 bytes of which tiles consist.

Source: PTX ISA, "Tensors" and ``cp.async.bulk.tensor``. PTX does not publish the bits of a map: here a map is 128 bytes
in a format of this model, written by :meth:`MapRecord.encoded`, so that it can lie in parameters or in memory.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from ..errors import KernelError
from ..isa.memory import SWIZZLES as PATTERNS
from ..isa.memory import UNIT_BYTES
from .program import size_of

__all__ = ["FIELDS", "FILLS", "MAP_BYTES", "SWIZZLES", "MapRecord", "element_bits"]

MAP_BYTES = 128
_RANKS = 5
#: Byte layout of a tensor map, with the field names and codes of ``tensormap.replace``. Strides are in bytes, and
#: ``rank`` is the number of axes minus 1. All-zero bytes mean no tensor map.
_LAYOUT = np.dtype([
    ("global_address", "<u8"), ("global_stride", "<u8", _RANKS - 1), ("global_dim", "<u4", _RANKS),
    ("box_dim", "<u4", _RANKS), ("element_stride", "<u4", _RANKS), ("rank", "u1"), ("elemtype", "u1"),
    ("interleave_layout", "u1"), ("swizzle_mode", "u1"), ("fill_mode", "u1"), ("swizzle_atomicity", "u1"),
])  # fmt: skip
#: Byte offset, size in bytes and number of values of each field of a tensor map.
FIELDS: dict[str, tuple[int, int, int]] = {
    name: (field[1], field[0].base.itemsize, prod(field[0].shape)) for name, field in (_LAYOUT.fields or {}).items()
}
#: PTX element type for each code in a tensor map.
_ELEMENTS = {0: "u8", 1: "u16", 2: "u32", 3: "s32", 4: "u64", 5: "s64", 6: "f16", 7: "f32", 8: "f32.ftz", 9: "f64",
             10: "bf16", 11: "tf32", 12: "tf32.ftz", 13: "b4x16", 14: "b4x16_p64", 15: "b6x16_p32"}  # fmt: skip
_CODES = {name: code for code, name in _ELEMENTS.items()}
#: Number of bits of an element, for each type with elements of less than a byte.
_BITS = {"b4x16": 4, "b4x16_p64": 4, "b6x16_p32": 6}
#: For element types with padding: number of elements in a row of a box. The first coordinate is a multiple of it.
_PADDED_ROW = 128
#: Swizzle modes, and fill values. The index of each in its tuple is its code in CUDA.
SWIZZLES = ("none", "32B", "64B", "128B", "128B with 32B atoms")
FILLS = ("zeros", "nan")
#: Code of the swizzle mode 128B, which has atoms of 16 or 32 bytes.
_WIDEST = SWIZZLES.index("128B")
_FLOATS = ("f16", "bf16", "f32", "f32.ftz", "tf32", "tf32.ftz", "f64")


def element_bits(element: str) -> int:
    """Return the number of bits of one element of a PTX element type in global memory."""
    return _BITS.get(element) or 8 * size_of(element.removesuffix(".ftz"))


@dataclass(frozen=True)
class MapRecord:
    """A tensor in global memory, and the box that one copy moves. Axes are listed in order from the innermost axis."""

    #: Address in global memory of the element whose indices are all 0.
    address: int
    #: Size of the tensor in elements along each axis.
    shape: tuple[int, ...]
    #: Distance in bytes between neighbouring elements along each axis except the innermost.
    strides: tuple[int, ...]
    #: Size of the box that one copy moves, in elements along each axis.
    box: tuple[int, ...]
    #: PTX element type: ``u8`` to ``u64``, ``s32``, ``s64``, ``f16``, ``bf16``, ``f32``, ``f64``, ``f32.ftz``,
    #: ``tf32``, ``tf32.ftz``, ``b4x16``, ``b4x16_p64`` or ``b6x16_p32``.
    element: str
    #: Swizzle of shared memory: ``none``, ``32B``, ``64B``, ``128B`` or ``128B with 32B atoms``.
    swizzle: str = "none"
    #: Value of elements outside the tensor: ``zeros`` or ``nan``.
    fill: str = "zeros"

    def __post_init__(self) -> None:
        rank = len(self.shape)
        if not 1 <= rank <= _RANKS or len(self.box) != rank or len(self.strides) != rank - 1:
            raise KernelError(
                f"a tensor map has 1 to {_RANKS} axes, a box of equal length, and strides of all outer axes; "
                f"not {self.shape[::-1]}, {self.box[::-1]} and {self.strides[::-1]}"
            )
        if self.swizzle not in SWIZZLES or self.fill not in FILLS or self.element not in _CODES:
            raise KernelError(
                f"a tensor map has a swizzle of {', '.join(SWIZZLES)}, a fill of {' or '.join(FILLS)} and elements "
                f"of {', '.join(_CODES)}; not {self.swizzle!r}, {self.fill!r} and {self.element!r}"
            )
        if self.shape[0] * self.bits % 8:
            raise KernelError(
                f"the rows of a tensor of {self.element} must be whole bytes, not {self.shape[0]} elements"
            )
        if any(not 0 < side < 1 << 32 for side in self.shape):
            raise KernelError(f"the axes of a tensor map have 1 to 2^32 - 1 elements; not {self.shape[::-1]}")
        if any(not 0 < side <= 256 for side in self.box) or self.box[0] * self.bits % (8 * UNIT_BYTES):
            raise KernelError(
                f"a box must have sides of 1 to 256 elements, and rows of a multiple of 16 bytes, not {self.box[::-1]}"
            )
        if self.unit_octets < UNIT_BYTES and (self.box[0] != _PADDED_ROW or self.shape[0] % _PADDED_ROW):
            raise KernelError(
                f"a tensor map of {self.element} needs box rows of {_PADDED_ROW} elements, and tensor rows of a "
                f"multiple of {_PADDED_ROW} elements, not {self.box[0]} and {self.shape[0]}"
            )
        row = self.row_units * UNIT_BYTES
        if self.swizzle != "none" and row > (most := PATTERNS[self.swizzle].row_bytes):
            raise KernelError(f"the rows of a box have {row} bytes; the swizzle {self.swizzle} allows at most {most}")
        if self.fill == "nan" and self.element not in _FLOATS:
            raise KernelError(f"a fill of nan requires elements of type {', '.join(_FLOATS)}, not {self.element}")
        unit = UNIT_BYTES if self.unit_octets == UNIT_BYTES else 2 * UNIT_BYTES
        if self.address % unit or any(stride % unit or not 0 <= stride < 1 << 40 for stride in self.strides):
            raise KernelError(
                f"address and strides of a tensor map must be multiples of {unit} bytes, the strides 0 to 2^40; "
                f"not {self.address:#x} and {self.strides[::-1]}"
            )

    @property
    def bits(self) -> int:
        """Number of bits of one element in global memory."""
        return element_bits(self.element)

    @property
    def unit_octets(self) -> int:
        """Number of bytes of global memory that a copy moves to 16 bytes of shared memory. The rest is padding."""
        return 2 * self.bits if "_p" in self.element else UNIT_BYTES

    @property
    def first_step(self) -> int:
        """The first coordinate of a box must be a multiple of this number of elements."""
        return _PADDED_ROW if self.unit_octets < UNIT_BYTES else max(8 * UNIT_BYTES // self.bits, 1)

    @property
    def row_units(self) -> int:
        """Number of units of 16 bytes of shared memory in a row of a box."""
        return self.box[0] * self.bits // (8 * self.unit_octets)

    @property
    def box_bytes(self) -> int:
        """Number of bytes of a box (the part of a tensor that one copy moves), as an ``mbarrier`` counts them.

        Padding does not count: CUTLASS expects this number of bytes.
        """
        return prod(self.box) * self.bits // 8

    def units(self, corner: list[int]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return the units of 16 bytes of a box, whose first element has the coordinates `corner`.

        The results are, for each unit, its offset in bytes from the tensor's address, the number of its bytes that the
        tensor contains, and its offset in bytes in the tile before the swizzle.
        """
        columns = np.arange(self.row_units)
        offsets = corner[0] * self.bits // 8 + columns * self.unit_octets
        octets = np.where(offsets >= 0, np.clip(self.shape[0] * self.bits // 8 - offsets, 0, self.unit_octets), 0)
        for start, side, extent, stride in zip(corner[1:], self.box[1:], self.shape[1:], self.strides, strict=True):
            index = np.arange(start, start + side)
            offsets = np.add.outer(index * stride, offsets).ravel()
            octets = np.multiply.outer((index >= 0) & (index < extent), octets).ravel()
        # A row that is shorter than the swizzle pattern occupies the length of the pattern. Measured on an H200.
        pitch = max(self.row_units * UNIT_BYTES, PATTERNS[self.swizzle].row_bytes)
        places = np.add.outer(np.arange(len(offsets) // len(columns)) * pitch, columns * UNIT_BYTES).ravel()
        return offsets, octets, places

    def encoded(self) -> bytes:
        """Return the tensor map in its form of 128 bytes."""
        rank, record = len(self.shape), np.zeros((), _LAYOUT)
        for name, values in (("global_stride", self.strides), ("global_dim", self.shape), ("box_dim", self.box)):
            record[name][: len(values)] = values
        record["element_stride"][:rank] = 1
        record["global_address"], record["rank"], record["elemtype"] = self.address, rank - 1, _CODES[self.element]
        swizzle = SWIZZLES.index(self.swizzle)
        record["swizzle_mode"], record["swizzle_atomicity"] = min(swizzle, _WIDEST), max(swizzle - _WIDEST, 0)
        record["fill_mode"] = FILLS.index(self.fill)
        return record.tobytes().ljust(MAP_BYTES, b"\0")

    @classmethod
    @lru_cache(maxsize=64)
    def decoded(cls, octets: bytes) -> "MapRecord | None":
        """Decode a tensor map from its 128 bytes. Return None for fewer bytes, or if its address is zero.

        Raises
        ------
        KernelError
            A field has a value that PTX does not allow, or that is not modelled.
        """
        if len(octets) < MAP_BYTES:
            return None
        address, strides, shape, box, steps, rank, element, interleave, swizzle, fill, atoms = (
            field.tolist() for field in np.frombuffer(octets, _LAYOUT, 1)[0]
        )
        if not address:
            return None
        rank += 1
        modelled = swizzle <= _WIDEST and atoms <= (swizzle == _WIDEST)
        if element not in _ELEMENTS or interleave or not modelled or fill >= len(FILLS):
            raise KernelError(
                f"a tensor map with codes {element=}, {interleave=}, {swizzle=}, {atoms=}, {fill=} is not modelled"
            )
        if any(step != 1 for step in steps[:rank]):
            raise KernelError("a tensor map has element strides other than 1, which is not modelled")
        return cls(
            address,
            tuple(shape[:rank]),
            tuple(strides[: rank - 1]),
            tuple(box[:rank]),
            _ELEMENTS[element],
            SWIZZLES[swizzle + atoms],
            FILLS[fill],
        )
