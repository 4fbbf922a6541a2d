"""Sparse matrices of the library compressed-tensors: non-zero values, and a bitmask with one bit per element."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ..errors import OperandError

__all__ = ["BITMASK_PARTS", "dense_from_bitmask"]

#: Names of the arrays of a bitmask checkpoint. The 2:4 format ``bitmask`` has no row offsets.
BITMASK_PARTS = ("compressed", "bitmask", "shape", "row_offsets")


def dense_from_bitmask(arrays: Mapping[str, NDArray]) -> NDArray:
    """Return the dense matrix of a ``sparse-bitmask`` checkpoint, with +0 where no bit is set.

    The arrays are ``compressed``, the non-zero values row by row; ``bitmask``, uint8 of shape (rows, columns / 8
    rounded up), the first column in the lowest bit; ``shape``; and ``row_offsets``, the index of the first value of
    every row. Raise an `OperandError` if the arrays contradict each other.

    Source: ``sparse_bitmask.py`` of compressed-tensors 0.10.2, which does not store -0.0. Where the original matrix has
    -0.0, the returned matrix has +0.
    """
    values, mask, shape, offsets = (arrays[name] for name in BITMASK_PARTS)
    sizes = shape.ravel().tolist() if shape.dtype.kind in "iu" and shape.size == 2 else [0, 0]
    rows, columns = int(sizes[0]), int(sizes[1])
    if rows < 1 or columns < 1 or mask.shape != (rows, -(-columns // 8)) or mask.dtype.itemsize != 1:
        raise OperandError(f"a {mask.dtype.name} bitmask of shape {mask.shape} does not fit a matrix {tuple(sizes)}")
    octets = np.ascontiguousarray(mask).view(np.uint8)
    bits = np.unpackbits(octets, axis=1, bitorder="little").view(bool)
    if bits[:, columns:].any():
        raise OperandError(f"the bitmask marks elements beyond column {columns - 1}")
    kept = bits[:, :columns]
    counts = kept.sum(1)
    if values.ndim != 1 or len(values) != counts.sum():
        raise OperandError(
            f"the bitmask marks {counts.sum()} elements, but there are {values.size} values of shape {values.shape}"
        )
    if not np.array_equal(offsets.ravel(), np.cumsum(counts) - counts):
        raise OperandError("the row offsets do not match the bitmask")
    dense = np.zeros((rows, columns), values.dtype)
    dense[kept] = values
    return dense
