"""Kinds mxf4 and mxf4nvf4: exact groups of 16 products, block scales, then one truncated sum (numerics, section 4)."""

import numpy as np
from numpy.typing import NDArray

from ..isa.formats import Format
from ..isa.numerics import BLOCK_GROUP, Numerics
from .decode import Terms
from .fused import accumulator_exponents, align_accumulator, power_of_two, special_results
from .rounding import round_sum

__all__ = ["grouped_step"]


def grouped_step(
    a: Terms,
    b: Terms,
    c: NDArray[np.float32],
    accumulator: Format,
    numerics: Numerics,
    scale_significands: NDArray[np.float64],
    scale_exponents: NDArray[np.int64],
) -> NDArray[np.float32]:
    """Add one step of scaled groups to the accumulator, rounding once.

    Parameters
    ----------
    a : Terms, shape (L, rows, 1) or (L, rows, n)
        Stored e2m1 operands.
    b : Terms, shape (L, rows, n)
        Selected e2m1 operands.
    c : ndarray of float32, shape (rows, n)
        Accumulator.
    accumulator : Format
        f32.
    numerics : Numerics
        F, e_zero and rounding.
    scale_significands, scale_exponents : ndarray, shape (L / 16, rows, n)
        Product of the significands and sum of the exponents of the two scales of each group; NaN marks a NaN scale.

    Returns
    -------
    ndarray of float32, shape (rows, n)
    """
    products = (a.values * b.values).reshape(-1, BLOCK_GROUP, *c.shape)
    nan_scale = np.isnan(scale_significands)
    significands = np.where(nan_scale, 0, scale_significands)
    # A group that merely cancels to zero still counts in the maximum; one without a non-zero product does not.
    counts = (products != 0).any(axis=1) & (significands != 0)
    exponents = np.where(counts, scale_exponents, numerics.zero_exponent).astype(np.int32)
    finite_c = np.where(np.isfinite(c), c, np.float32(0))
    largest = accumulator_exponents(finite_c, accumulator, numerics.zero_exponent)
    largest = np.maximum(largest, np.maximum(exponents.max(axis=0), np.int32(numerics.zero_exponent)))
    shift = np.int32(numerics.alignment_bits) - largest
    terms = products.sum(axis=1, dtype=np.float64) * significands
    terms *= power_of_two(exponents + shift, terms.dtype)
    total = np.trunc(terms, out=terms).sum(axis=0) + align_accumulator(finite_c, shift)
    total *= power_of_two(-shift, total.dtype)
    result = special_results(round_sum(total, numerics.rounding), None, None, c)
    return np.where(nan_scale.any(axis=0), np.float32(np.nan), result)
