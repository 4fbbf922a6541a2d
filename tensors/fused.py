"""Fused multiply-adds of numbers with at most 24 significant bits."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["fused"]


def fused(a: NDArray, b: NDArray, c: NDArray) -> NDArray[np.float64]:
    """Return a * b + c rounded to odd at 53 bits, so that a second rounding, to at most 51 bits, is correct.

    The product is exact in float64. The exact sum is result plus remainder (Knuth's two-sum). Where the remainder is
    not zero, the last bit becomes one: a second rounding then gives the same number as one rounding of the exact sum.
    """
    x, y = a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)
    total = x + y
    part = total - x
    remainder = (x - (total - part)) + (y - part)
    inexact = (remainder != 0) & np.isfinite(total)
    if not inexact.any():
        return total
    bits = total.view(np.int64)
    toward_zero = (remainder > 0) != (total > 0)
    return np.where(inexact, (bits - toward_zero) | 1, bits).view(np.float64)
