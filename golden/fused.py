"""The truncated fused dot-product-add (T-FDPA): align, truncate, sum exactly, round once.

``trunc`` drops the bits below ``2**(e_max - F)``, toward zero::

    d = round(trunc(c) + sum of trunc(a * b))
"""

import numpy as np
from numpy.typing import NDArray

from ..isa.formats import Format
from ..isa.numerics import Alignment, Numerics
from .accumulator import accumulator_exponents, finite_part
from .decode import WIDE, Precision, Scales, Terms
from .rounding import round_sum, round_terms
from .stages import power_of_two, special_values
from .trace import Trace

__all__ = ["fused_step"]

#: With at most 26 alignment bits (F), an int32 holds the sum of eight aligned terms: each term is below 2**(F + 2) in
#: units of the last bit kept.
_INT32_ALIGNMENT_BITS, _TERMS_PER_INT32 = 26, 8


def fused_step(
    a: Terms,
    b: Terms,
    c: NDArray[np.float32],
    accumulator: Format,
    numerics: Numerics,
    precision: Precision,
    scales: Scales | None = None,
    traces: list[Trace] | None = None,
) -> NDArray[np.float32]:
    """Add aligned products to the accumulator, round the sum once, and return the new accumulator.

    Parameters
    ----------
    a, b : Terms, shape (products, ...)
        Stored elements of A, whose last axis may be 1, and selected elements of B. The products overwrite `b.values`.
    c : ndarray of float32, shape (...)
        Accumulator of each output; the shape is (rows, n) or any other.
    accumulator : Format
        Format of the accumulator, f32 or f16.
    numerics, precision : Numerics, Precision
        `numerics`: number F of alignment bits, lower bound e_zero of e_max, rounding. `precision`: numpy types.
    scales : Scales, shape (1, ...), optional
        Block scales whose significand is 1 (ue8m0). Their exponents are added to those of the products.
    traces : list of Trace, optional
        List to which the trace of the step is appended.
    """
    # Find results that are NaN or Inf first, since the exact sum needs finite operands.
    special = special_values(a, b, c, scales)
    finite_c = c if special is None else finite_part(c)

    # e_max = max(exponents of products, exponent of c, e_zero)
    exponents = np.add(a.exponents, b.exponents, dtype=precision.exponent)
    largest = exponents.max(axis=0).astype(np.int32)
    has_product = largest >= precision.lowest_product_exponent
    scale_exponents = np.int32(0) if scales is None else scales.exponents[0]
    c_exponents = accumulator_exponents(finite_c, accumulator, numerics.zero_exponent)
    e_max = np.maximum(c_exponents, np.int32(numerics.zero_exponent))
    np.maximum(e_max, largest + scale_exponents, out=e_max, where=has_product)

    # Exact products in units of the last bit kept, 2**(e_max - F), where F is the number of alignment bits
    shift = np.int32(numerics.alignment_bits) - e_max
    aligned = np.multiply(a.values, b.values, out=b.values)  # overwrite b.values: a new array would exceed the cache
    negative = aligned < 0 if numerics.alignment is Alignment.DOWN else None
    aligned *= power_of_two(shift + scale_exponents, precision.value)
    c_aligned = finite_c * power_of_two(shift, WIDE.value)

    # Truncate the aligned terms, sum them exactly, round the sum once
    integer = np.int32 if numerics.alignment_bits <= _INT32_ALIGNMENT_BITS else np.float64
    truncated = round_terms(aligned, numerics.alignment, integer, negative)
    c_truncated = round_terms(c_aligned, numerics.alignment, np.float64)
    total = (_exact_sum(truncated) + c_truncated) * power_of_two(-shift, WIDE.value)
    rounded = round_sum(total, numerics.rounding)
    result = rounded if special is None else np.where(np.isfinite(special), rounded, special)
    if traces is not None:
        traces.append(
            Trace(
                exponents=exponents + scale_exponents,
                participates=exponents >= precision.lowest_product_exponent,
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


def _exact_sum(truncated: NDArray) -> NDArray[np.float64]:
    if truncated.dtype != np.int32:
        return np.asarray(truncated.sum(axis=0, dtype=np.float64))
    groups = truncated.reshape(-1, min(_TERMS_PER_INT32, len(truncated)), *truncated.shape[1:])
    return np.add.reduce(np.add.reduce(groups, axis=1, dtype=np.int32), axis=0, dtype=np.float64)
