"""Arithmetic of kinds mxf4 and mxf4nvf4: exact sums of products are scaled, truncated and added; D is rounded once.

``trunc`` is that of :mod:`~sptc.golden.fused`::

    d = round(trunc(c) + sum of trunc(scale_a * scale_b * sum of products))

Each sum of products has all 16 products of a group, or only :attr:`sptc.isa.numerics.Numerics.group` of them.
"""

import numpy as np
from numpy.typing import NDArray

from ..isa.formats import Format
from ..isa.numerics import BLOCK_GROUP, Numerics
from .accumulator import accumulator_exponents, finite_part
from .decode import WIDE, Scales, Terms
from .rounding import round_sum, round_terms
from .stages import power_of_two, special_values
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
    """Add block-scaled sums of products to the accumulator, round once, and return the new accumulator.

    The parameters are those of :func:`~sptc.golden.fused.fused_step`, but the elements are e2m1, and each group of 16
    products has block scales, shape (products / 16, ...). `numerics` also gives the number of products per sum.
    """
    # Find results that are NaN or Inf first, since the exact sum needs finite operands.
    special = special_values(a, b, c, scales)
    finite_c = c if special is None else finite_part(c)

    # e_max = max(exponents of the groups, exp(c), e_zero). A group whose sum cancels to zero counts in the maximum. A
    # group without a nonzero product does not count. If sums have fewer than 16 products, exp(c) counts only where no
    # scaled product has a larger exponent.
    products = (a.values * b.values).reshape(-1, BLOCK_GROUP, *c.shape)
    significands = np.where(np.isnan(scales.significands), 0, scales.significands)
    participates = (products != 0).any(axis=1) & (significands != 0)
    exponents = np.where(participates, scales.exponents, np.int32(numerics.zero_exponent))
    c_exponents = accumulator_exponents(finite_c, accumulator, numerics.zero_exponent)
    e_max = np.maximum(exponents.max(axis=0), np.int32(numerics.zero_exponent))
    late = np.zeros(c.shape, np.bool_)
    if numerics.group < BLOCK_GROUP:
        largest = (a.exponents + b.exponents).reshape(products.shape).max(axis=1) + exponents
        late = np.where(participates, largest, c_exponents).max(axis=0) > c_exponents
    np.maximum(e_max, c_exponents, out=e_max, where=~late)

    # Exact scaled sums of products in units of the last bit kept, 2**(e_max - F), with F alignment bits
    shift = np.int32(numerics.alignment_bits) - e_max
    aligned = products.sum(axis=1) * significands  # Each sum of products is a multiple of 1/4 up to 576: exact in f32.
    aligned *= power_of_two(exponents + shift, WIDE.value)
    c_aligned = finite_c * power_of_two(shift, WIDE.value)

    # Truncate the aligned terms, sum them exactly, round the sum once
    truncated = round_terms(aligned, numerics.alignment, np.float64)
    if late.any():
        parts = products.reshape(len(products), -1, numerics.group, *c.shape).sum(axis=2)
        scales_of_parts = significands * power_of_two(exponents + shift, WIDE.value)
        parts = round_terms(parts * scales_of_parts[:, None], numerics.alignment, np.float64)
        truncated = np.where(late, parts.sum(axis=1), truncated)
    c_truncated = round_terms(c_aligned, numerics.alignment, np.float64)
    total = (truncated.sum(axis=0) + c_truncated) * power_of_two(-shift, WIDE.value)
    rounded = round_sum(total, numerics.rounding)
    result = rounded if special is None else np.where(np.isfinite(special), rounded, special)
    if traces is not None:
        traces.append(
            Trace(
                exponents=exponents,
                participates=participates,
                c_exponents=c_exponents,
                e_max=e_max,
                aligned=aligned,
                c_aligned=c_aligned,
                truncated=truncated,
                c_truncated=c_truncated,
                total=total,
                special=np.zeros_like(c) if special is None else special,
                result=result,
            )
        )
    return result
