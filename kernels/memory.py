"""Memories of a kernel: global memory with its allocations, and the address ranges of generic addresses.

The windows of the state spaces begin at constants of this model, since PTX does not define generic addresses. Global
memory begins at ``GLOBAL_BASE``. A gap follows every allocation, so that accesses beyond an allocation are detected.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from ..errors import KernelError
from .program import Kernel

__all__ = ["GLOBAL_BASE", "LOCAL_WINDOW", "PARAMETER_WINDOW", "SHARED_WINDOW", "UNSIGNED", "GlobalMemory",
           "cells_of", "parameter_space", "pieces_of", "views"]  # fmt: skip

SHARED_WINDOW, LOCAL_WINDOW, PARAMETER_WINDOW, GLOBAL_BASE = 1 << 40, 1 << 41, 1 << 42, 1 << 44
#: Unsigned numpy type for each width in bytes.
UNSIGNED: dict[int, np.dtype] = {size: np.dtype(f"<u{size}") for size in (1, 2, 4, 8)}
#: Number of bytes of the grid's workspace, which contains the barrier of cooperative groups. ``%envreg1`` (upper half)
#: and ``%envreg2`` (lower half) contain the address of the workspace.
_WORKSPACE_BYTES = 32
#: Alignment of an allocation in bytes, and minimum number of unallocated bytes after the allocation.
_ALIGNMENT = 512
_WORD = 4
#: Numpy type for each floating-point type of a kernel parameter.
_FLOATS = {"f16": "<f2", "f32": "<f4", "f64": "<f8"}


def views(array: NDArray) -> dict[int, NDArray]:
    """Return views of an array as wider elements (up to 16 bytes), by the number of array elements in one of them."""
    types = UNSIGNED | {16: np.dtype(np.complex128)}
    return {size // array.itemsize: array.view(dtype) for size, dtype in types.items() if size >= array.itemsize}


def cells_of(at: NDArray[np.int64], octets: int) -> tuple[int, NDArray[np.int64]]:
    """Divide accesses into cells of 1, 2 or 4 words, the units of checking. Return words per cell and cell indices."""
    count = 4 if octets % 16 == 0 else 2 if octets % 8 == 0 else 1
    first, several = at >> count.bit_length() + 1, octets // (_WORD * count)
    return count, first if several <= 1 else (first[:, None] + np.arange(several)).reshape(-1)


def pieces_of(octets: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    """Return the sorted offsets of the aligned words that contain the bytes `octets`, and the word size, 16 or 4."""
    words = np.unique(octets // _WORD)
    rows = np.unique(words // 4)
    return (16 * rows, 16) if 4 * len(rows) == len(words) else (_WORD * words, _WORD)


class GlobalMemory:
    """Global memory of a device: an allocation for each array, each named variable and the workspace of the grid.

    Allocations begin at multiples of 512 bytes.
    """

    def __init__(self, arrays: Iterable[NDArray], variables: Mapping[str, bytes]) -> None:
        named = [np.frombuffer(content, np.uint8) for content in variables.values()]
        contents = [*arrays, *named, np.zeros(_WORKSPACE_BYTES, np.uint8)]
        parts = [np.ascontiguousarray(content).reshape(-1).view(np.uint8) for content in contents]
        steps = [-(-part.size // _ALIGNMENT) * _ALIGNMENT + _ALIGNMENT for part in parts]
        *self._starts, end = accumulate(steps, initial=_ALIGNMENT)
        self._ends = [start + part.size for start, part in zip(self._starts, parts, strict=True)]
        self.octets = np.zeros(end + _ALIGNMENT, np.uint8)
        for start, part in zip(self._starts, parts, strict=True):
            self.octets[start : start + part.size] = part
        self.views = views(self.octets)
        #: Addresses of all arrays and variables, address of the grid's workspace, and addresses of the variables by
        #: name.
        *self.addresses, self.workspace = (GLOBAL_BASE + start for start in self._starts)
        self.variables = dict(zip(variables, self.addresses[len(parts) - 1 - len(named) :], strict=True))

    def read(self, address: int, array: NDArray) -> NDArray:
        """Return a copy of global memory at an address, in the shape and type of an array."""
        start = address - GLOBAL_BASE
        return self.octets[start : start + array.nbytes].view(array.dtype).reshape(array.shape).copy()

    def contains(self, low: int, end: int) -> bool:
        """Return whether bytes `low` to `end` are in one allocation."""
        which = bisect_right(self._starts, low) - 1
        return which >= 0 and end <= self._ends[which]

    def outside(self, places: NDArray[np.int64], size: int) -> NDArray[np.bool_] | None:
        """Return a mask of the accesses that exceed the allocations, or None if no access exceeds them.

        Each access has `size` bytes, at the offsets `places` from ``GLOBAL_BASE``.
        """
        if self.contains(int(places.min()), int(places.max()) + size):
            return None
        if not self._starts:
            return np.ones(places.shape, np.bool_)
        index = np.searchsorted(self._starts, places, "right") - 1
        wrong = (index < 0) | (places + size > np.array(self._ends)[index])
        return wrong if wrong.any() else None


def parameter_space(kernel: Kernel, values: Sequence[int | float | bytes]) -> bytes:
    """Return the bytes of parameter space. An argument is bytes, or a number that is stored in the parameter's type.

    Raises
    ------
    KernelError
        The value of an integer parameter has a fractional part.
    """
    space = bytearray(max((p.offset + p.size for p in kernel.parameters), default=0))
    for parameter, value in zip(kernel.parameters, values, strict=True):
        if isinstance(value, bytes):
            octets = value
        elif parameter.type in _FLOATS:
            with np.errstate(over="ignore"):
                octets = np.array(value).astype(_FLOATS[parameter.type]).tobytes()
        elif value != int(value):
            raise KernelError(
                f"the parameter {parameter.name} of type .{parameter.type} must be an integer, not {value}"
            )
        else:
            octets = (int(value) & (1 << 8 * parameter.size) - 1).to_bytes(parameter.size, "little")
        space[parameter.offset : parameter.offset + parameter.size] = octets.ljust(parameter.size, b"\0")
    return bytes(space)
