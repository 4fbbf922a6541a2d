"""Kinds mxf4 and mxf4nvf4: exact groups of 16 products, block scales, then one truncated sum.

``trunc`` is that of :mod:`~sptc.golden.fused`::

    d = round(trunc(c) + sum of trunc(scale_a * scale_b * sum of 16 products))
"""

import numpy as np
from numpy.typing import NDArray

from ..isa.formats import Format
from ..isa.numerics import BLOCK_GROUP, Numerics
from .accumulator import accumulator_exponents, finite_part
from .decode import Scales, Terms
from .fused import align_accumulator, power_of_two, special_classes
from .rounding import round_sum, round_terms
from .trace import Trace

__all__ = ["grouped_step"]


def grouped_step(
    a: Terms,
    b: Terms,
    c: NDArray[np.float32],
    accumulator: Format,
    numerics: Numerics,
    scales: Scales,
    traces: list[Trace] | None = None,
) -> NDArray[np.float32]:
    """Add the scaled groups of one step to the accumulator and round once.

    Parameters
    ----------
    a, b : Terms, shape (L, ...)
        Stored e2m1 operands, whose last axis may be 1, and selected operands.
    c : ndarray of float32, shape (...)
        Accumulator: (rows, n) of a block of matrices, or outputs in any other arrangement.
    accumulator : Format
        f32.
    numerics : Numerics
        F, e_zero and rounding.
    scales : Scales, shape (L / 16, ...)
        Block scales of each group.
    traces : list of Trace, optional
        List to which the trace of the step is appended.
    """
    products = (a.values * b.values).reshape(-1, BLOCK_GROUP, *c.shape)
    nan = np.isnan(scales.significands)
    significands = np.where(nan, 0, scales.significands)
    # A group that merely cancels to zero still counts in the maximum; one without a non-zero product does not.
    participates = (products != 0).any(axis=1) & (significands != 0)
    exponents = np.where(participates, scales.exponents, np.int32(numerics.zero_exponent))
    finite_c = finite_part(c)
    c_exponents = accumulator_exponents(finite_c, accumulator, numerics.zero_exponent)
    e_max = np.maximum(c_exponents, np.maximum(exponents.max(axis=0), np.int32(numerics.zero_exponent)))
    shift = np.int32(numerics.alignment_bits) - e_max
    terms = products.sum(axis=1, dtype=np.float64) * significands
    terms *= power_of_two(exponents + shift, terms.dtype)
    c_aligned = align_accumulator(finite_c, shift)
    aligned = terms if traces is None else terms.copy()
    truncated, c_truncated = round_terms(terms, numerics.alignment), round_terms(c_aligned, numerics.alignment)
    total = truncated.sum(axis=0) + c_truncated
    total *= power_of_two(-shift, total.dtype)
    rounded = round_sum(total, numerics.rounding)
    if traces is None and finite_c is c and not nan.any():
        return rounded
    special = special_classes(a, b, c, scales)
    result = np.where(np.isfinite(special), rounded, special)
    if traces is not None:
        traces.append(Trace(
            exponents, participates, c_exponents, e_max, aligned, c_aligned, truncated, c_truncated, total, special,
            result,
        ))  # fmt: skip
    return result
