"""The one rounding at the end of a step, from the exact sum.

Every exact sum fits a float64: at most 49 bits, the last one worth 2**-174 or more. A zero result is always +0
(measured on an H200).
"""

import numpy as np
from numpy.typing import NDArray

from ..isa.numerics import Rounding

__all__ = ["round_sum", "toward_zero_f32"]

_DROPPED_E8M13_BITS = np.uint32((1 << 10) - 1)


def toward_zero_f32(exact: NDArray[np.float64]) -> NDArray[np.float32]:
    """Truncate to f32, subnormals kept; 2**128 and beyond gives Inf."""
    with np.errstate(over="ignore"):
        rounded = exact.astype(np.float32)
    beyond = (np.abs(rounded) > np.abs(exact)) & (np.abs(exact) < 2.0**128)
    bits = rounded.view(np.uint32)
    bits -= beyond  # one code nearer to zero; Inf becomes the largest finite number
    bits[bits == 0x80000000] = 0
    return rounded


def round_sum(exact: NDArray[np.float64], rounding: Rounding) -> NDArray[np.float32]:
    """Round exact sums.

    Parameters
    ----------
    exact : ndarray of float64
        Finite exact sums.
    rounding : Rounding
        RZ-f32, RZ-E8M13 or RNE-f16.

    Returns
    -------
    ndarray of float32
        Results; those of RNE-f16 are f16 numbers held in f32.
    """
    if rounding is Rounding.RNE_F16:
        with np.errstate(over="ignore"):
            return exact.astype(np.float16).astype(np.float32) + np.float32(0)
    rounded = toward_zero_f32(exact)
    if rounding is Rounding.RZ_E8M13:
        finite = np.isfinite(rounded)
        bits = rounded.view(np.uint32)
        bits[finite] &= ~_DROPPED_E8M13_BITS
        bits[bits == 0x80000000] = 0
    return rounded
