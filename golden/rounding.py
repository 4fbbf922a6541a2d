"""Rounding of each aligned term, and of the exact sum of the aligned terms.

Every exact sum fits into a float64: it has at most 49 bits, and its last bit is worth 2**-317 or more. A zero result is
always +0 (measured on an H200).
"""

import numpy as np
from numpy.typing import NDArray

from ..isa.numerics import Alignment, Rounding

__all__ = ["round_sum", "round_terms", "toward_zero"]

_DROPPED_E8M13_BITS = np.uint32((1 << 10) - 1)


def round_terms(
    aligned: NDArray, alignment: Alignment, dtype: type[np.generic], negative: NDArray[np.bool_] | None = None
) -> NDArray:
    """Round aligned terms or accumulators, in units of ``2**(e_max - F)`` with F alignment bits, to integers.

    The numpy type of the result, int32 or float64, must hold the integers. Rounding down needs the mask `negative` of
    negative terms if a term may have underflowed to zero.
    """
    if alignment is Alignment.NEAREST:
        aligned = np.rint(aligned)
    elif alignment is Alignment.DOWN:
        aligned = np.floor(aligned)
        if negative is not None:
            np.minimum(aligned, -1, out=aligned, where=negative)
    return np.trunc(aligned) if dtype is np.float64 else aligned.astype(dtype)


def toward_zero(exact: NDArray[np.float64], dtype: type[np.floating] = np.float32) -> NDArray[np.float32]:
    """Truncate exact sums to f32 or f16, also to subnormals. Magnitudes from 2**128 (f32) or 2**16 (f16) give Inf."""
    with np.errstate(over="ignore"):
        rounded = exact.astype(dtype)
    magnitude = np.abs(exact)
    beyond = (np.abs(rounded) > magnitude) & (magnitude < 2.0 ** np.finfo(dtype).maxexp)
    bits = rounded.view(f"u{rounded.itemsize}")
    bits -= beyond  # take the next code toward zero, which is the largest finite number if `rounded` is Inf
    return rounded.astype(np.float32, copy=False) + np.float32(0)  # adding +0 changes -0 to +0


def _nearest_e8m13(exact: NDArray[np.float64]) -> NDArray[np.float32]:
    """Round exact sums to nearest even with 14 significant bits, fewer for subnormals of f32."""
    last = np.maximum(np.frexp(exact)[1] - 1, -126) - 13
    with np.errstate(over="ignore"):
        return np.ldexp(np.rint(np.ldexp(exact, -last)), last).astype(np.float32) + np.float32(0)


def round_sum(exact: NDArray[np.float64], rounding: Rounding) -> NDArray[np.float32]:
    """Round finite exact sums to float32 by any rounding except ``EXACT``. An f16 result is stored as an f32."""
    if rounding in (Rounding.RNE_F16, Rounding.RNE_F32):
        with np.errstate(over="ignore"):
            nearest = exact.astype(np.float16) if rounding is Rounding.RNE_F16 else exact
            return nearest.astype(np.float32) + np.float32(0)
    if rounding is Rounding.RZ_F16:
        return toward_zero(exact, np.float16)
    if rounding is Rounding.RNE_E8M13:
        return _nearest_e8m13(exact)
    rounded = toward_zero(exact)
    if rounding is Rounding.RZ_E8M13:
        finite = np.isfinite(rounded)
        bits = rounded.view(np.uint32)
        bits[finite] &= ~_DROPPED_E8M13_BITS
        bits[bits == 0x80000000] = 0
    return rounded
