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

__all__ = ["FIELDS", "FILLS", "MAP_BYTES", "SWIZZLES", "MapRecord"]

MAP_BYTES = 128
_RANKS = 5
#: Byte layout of a tensor map, with the field names and codes of ``tensormap.replace``. Strides are in bytes, and
#: ``rank`` is the number of axes minus 1. All-zero bytes mean no tensor map.
_LAYOUT = np.dtype([
    ("global_address", "<u8"), ("global_stride", "<u8", _RANKS - 1), ("global_dim", "<u4", _RANKS),
    ("box_dim", "<u4", _RANKS), ("element_stride", "<u4", _RANKS), ("rank", "u1"), ("elemtype", "u1"),
    ("interleave_layout", "u1"), ("swizzle_mode", "u1"), ("fill_mode", "u1"),
])  # fmt: skip
#: Byte offset, size in bytes and number of values of each field of a tensor map.
FIELDS: dict[str, tuple[int, int, int]] = {
    name: (field[1], field[0].base.itemsize, prod(field[0].shape)) for name, field in (_LAYOUT.fields or {}).items()
}
#: PTX element type for each code in a tensor map.
_ELEMENTS = {0: "u8", 1: "u16", 2: "u32", 3: "s32", 4: "u64", 5: "s64", 6: "f16", 7: "f32", 8: "f32.ftz", 9: "f64",
             10: "bf16", 11: "tf32", 12: "tf32.ftz"}  # fmt: skip
_CODES = {name: code for code, name in _ELEMENTS.items()}
#: Swizzle modes, and fill values. The index of each in its tuple is its code in a tensor map.
SWIZZLES = ("none", "32B", "64B", "128B")
FILLS = ("zeros", "nan")
_FLOATS = ("f16", "bf16", "f32", "f32.ftz", "tf32", "tf32.ftz", "f64")


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
    #: PTX element type: ``u8`` to ``u64``, ``s32``, ``s64``, ``f16``, ``bf16``, ``f32``, ``f64``, ``f32.ftz``, ``tf32``
    #: or ``tf32.ftz``.
    element: str
    #: Swizzle of shared memory: ``none``, ``32B``, ``64B`` or ``128B``.
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
        if any(not 0 < side < 1 << 32 for side in self.shape):
            raise KernelError(f"the axes of a tensor map have 1 to 2^32 - 1 elements; not {self.shape[::-1]}")
        row = self.box[0] * self.element_bytes
        if any(not 0 < side <= 256 for side in self.box) or row % 16:
            raise KernelError(
                f"a box must have sides of 1 to 256 elements, and rows of a multiple of 16 bytes, not {self.box[::-1]}"
            )
        if self.swizzle != "none" and row > (most := PATTERNS[self.swizzle].row_bytes):
            raise KernelError(f"the rows of a box have {row} bytes; the swizzle {self.swizzle} allows at most {most}")
        if self.fill == "nan" and self.element not in _FLOATS:
            raise KernelError(f"a fill of nan requires elements of type {', '.join(_FLOATS)}, not {self.element}")
        if self.address % 16 or any(stride % 16 or not 0 <= stride < 1 << 40 for stride in self.strides):
            raise KernelError(
                f"address and strides of a tensor map must be multiples of 16 bytes, the strides 0 to 2^40; "
                f"not {self.address:#x} and {self.strides[::-1]}"
            )

    @property
    def element_bytes(self) -> int:
        """Number of bytes of one element of the tensor."""
        return size_of(self.element.removesuffix(".ftz"))

    @property
    def box_bytes(self) -> int:
        """Number of bytes of a box (the part of a tensor that one copy moves)."""
        return int(np.prod(self.box)) * self.element_bytes

    def units(self, corner: list[int]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return the units of 16 bytes of a box, whose first element has the coordinates `corner`.

        The results are, for each unit, its offset in bytes from the tensor's address, the number of its bytes that the
        tensor contains, and its offset in bytes in the tile before the swizzle.
        """
        size = self.element_bytes
        first, row_bytes = corner[0] * size, self.box[0] * size
        columns = np.arange(0, row_bytes, UNIT_BYTES)
        offsets = first + columns
        octets = np.where(offsets >= 0, np.clip(self.shape[0] * size - offsets, 0, UNIT_BYTES), 0)
        for start, side, extent, stride in zip(corner[1:], self.box[1:], self.shape[1:], self.strides, strict=True):
            index = np.arange(start, start + side)
            offsets = np.add.outer(index * stride, offsets).ravel()
            octets = np.multiply.outer((index >= 0) & (index < extent), octets).ravel()
        # A row that is shorter than the swizzle pattern occupies the length of the pattern. Measured on an H200.
        pitch = max(row_bytes, PATTERNS[self.swizzle].row_bytes)
        places = np.add.outer(np.arange(len(offsets) // len(columns)) * pitch, columns).ravel()
        return offsets, octets, places

    def encoded(self) -> bytes:
        """Return the tensor map in its form of 128 bytes."""
        rank, record = len(self.shape), np.zeros((), _LAYOUT)
        for name, values in (("global_stride", self.strides), ("global_dim", self.shape), ("box_dim", self.box)):
            record[name][: len(values)] = values
        record["element_stride"][:rank] = 1
        record["global_address"], record["rank"], record["elemtype"] = self.address, rank - 1, _CODES[self.element]
        record["swizzle_mode"], record["fill_mode"] = SWIZZLES.index(self.swizzle), FILLS.index(self.fill)
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
        address, strides, shape, box, steps, rank, element, interleave, swizzle, fill = (
            field.tolist() for field in np.frombuffer(octets, _LAYOUT, 1)[0]
        )
        if not address:
            return None
        rank += 1
        if element not in _ELEMENTS or interleave or swizzle >= len(SWIZZLES) or fill >= len(FILLS):
            raise KernelError(f"a tensor map with codes {element=}, {interleave=}, {swizzle=}, {fill=} is not modelled")
        if any(step != 1 for step in steps[:rank]):
            raise KernelError("a tensor map has element strides other than 1, which is not modelled")
        return cls(
            address,
            tuple(shape[:rank]),
            tuple(strides[: rank - 1]),
            tuple(box[:rank]),
            _ELEMENTS[element],
            SWIZZLES[swizzle],
            FILLS[fill],
        )
