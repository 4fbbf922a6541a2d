"""Integer instructions: the exact sum, then one clamp or wrap to 32 bits."""

import numpy as np
from numpy.typing import NDArray

from ..isa.formats import Format

__all__ = ["accumulate", "clamp", "decode_integer", "expand"]

#: Most products per sum: 256 * 255 * 255 < 2**24, so f32 sums them exactly in any order.
EXACT_F32_TERMS = 256


def decode_integer(codes: NDArray, fmt: Format) -> NDArray[np.float32]:
    """Decode 4-bit or 8-bit integers into f32."""
    if fmt.bits == 8:
        return codes.view(np.int8 if fmt.signed else np.uint8).astype(np.float32)
    values = codes.astype(np.float32)
    return np.where(codes >> 3 & 1, values - 16, values) if fmt.signed else values


def expand(stored: NDArray[np.float32], rows: NDArray[np.intp], k: int) -> NDArray[np.float32]:
    """Scatter the stored elements of A to the k logical columns.

    Parameters
    ----------
    stored : ndarray of float32, shape (..., kept)
        Stored elements.
    rows : ndarray of intp, shape (..., kept)
        Logical column of each. Elements that select the same column are added: each is multiplied by its row of B.
    k : int
        Logical columns.
    """
    kept = stored.shape[-1]
    flat = np.zeros(stored.size // kept * k, np.float32)
    where = rows.reshape(-1, kept) + np.arange(0, flat.size, k)[:, None]
    values = stored.reshape(-1, kept)
    np.add.at(flat, where.ravel(), values.ravel())
    return flat.reshape(*stored.shape[:-1], k)


def clamp(total: NDArray[np.int64]) -> NDArray[np.int32]:
    """Clamp exact sums to the range of s32."""
    return np.clip(total, -(2**31), 2**31 - 1).astype(np.int32)


def accumulate(
    a: NDArray[np.float32], b: NDArray[np.float32], c: NDArray[np.int32], satfinite: bool
) -> NDArray[np.int32]:
    """Return a @ b + c of one instruction, clamped or wrapped to 32 bits.

    Parameters
    ----------
    a, b : ndarray of float32, shape (..., m, k) and (..., k, n)
        Expanded A and B.
    c : ndarray of int32, shape (..., m, n)
        Accumulator.
    satfinite : bool
        Clamp instead of wrapping.
    """
    assert a.shape[-1] <= EXACT_F32_TERMS
    products = np.matmul(a, b)
    if not satfinite:
        return products.astype(np.int32) + c
    return clamp(products.astype(np.int64) + c)
