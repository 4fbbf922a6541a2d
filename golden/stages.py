"""Code that `fused_step` and `grouped_step` share: scaling by powers of two, and special values (NaN and Inf)."""

import numpy as np
from numpy.typing import NDArray

from .decode import Scales, Terms

__all__ = ["power_of_two", "special_values"]


def power_of_two(exponents: NDArray[np.int32], dtype: np.dtype) -> NDArray:
    """Return 2.0**exponents exactly, clipped to the normal range of `dtype`.

    Clipping changes no result: it affects only terms that are zero or are truncated to zero.
    """
    if dtype == np.float32:
        clipped = np.minimum(np.maximum(exponents, np.int32(-126)), np.int32(127))
        return (clipped + np.int32(127) << np.int32(23)).view(np.float32)
    clipped = np.minimum(np.maximum(exponents, np.int32(-1022)), np.int32(1023))
    return (clipped.astype(np.int64) + 1023 << 52).view(np.float64)


def special_values(a: Terms, b: Terms, c: NDArray[np.float32], scales: Scales | None) -> NDArray[np.float32] | None:
    """Return NaN or Inf for outputs that operands make NaN or Inf, else finite numbers; None if operands are finite."""
    c_finite = np.isfinite(c)
    nan_scales = None if scales is None else scales.nan
    if a.classes is None and c_finite.all() and (nan_scales is None or not nan_scales.any()):
        return None
    with np.errstate(invalid="ignore"):
        total = np.where(c_finite, np.float32(0), c)
        if a.classes is not None and b.classes is not None:
            total = total + (a.classes * b.classes).sum(axis=0)
    return total if nan_scales is None else np.where(nan_scales, np.float32(np.nan), total)
