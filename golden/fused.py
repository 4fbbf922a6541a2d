"""The truncated fused dot-product-add (T-FDPA): align, truncate, sum exactly, round once.

``trunc`` drops the bits below ``2**(e_max - F)``, toward zero::

    d = round(trunc(c) + sum of trunc(a * b))
"""

import numpy as np
from numpy.typing import NDArray

from ..isa.formats import Format
from ..isa.numerics import Alignment, Numerics
from .accumulator import accumulator_exponents, finite_part
from .decode import Precision, Scales, Terms
from .rounding import round_sum, round_terms
from .trace import Trace

__all__ = ["align_accumulator", "fused_step", "power_of_two", "special_classes"]

#: Aligned f16 and fp8 terms are below 2**27 (2**28 with one more alignment bit): eight of them sum exactly in 32 bits.
_TERMS_PER_INT32 = 8


def power_of_two(exponents: NDArray[np.int32], dtype: np.dtype) -> NDArray:
    """Return 2.0**exponents exactly, clipped to the normal range of `dtype`.

    Clipping changes no result: it affects only terms that are zero or are truncated to zero.
    """
    if dtype == np.float32:
        clipped = np.minimum(np.maximum(exponents, np.int32(-126)), np.int32(127))
        return (clipped + np.int32(127) << np.int32(23)).view(np.float32)
    clipped = np.minimum(np.maximum(exponents, np.int32(-1022)), np.int32(1023))
    return (clipped.astype(np.int64) + 1023 << 52).view(np.float64)


def align_accumulator(c: NDArray[np.float32], shift: NDArray[np.int32]) -> NDArray[np.float64]:
    """Return c in units of the last bit kept, ``2**(e_max - F)``, not truncated."""
    aligned = c.astype(np.float64)
    aligned *= power_of_two(shift, aligned.dtype)
    return aligned


def special_classes(a: Terms, b: Terms, c: NDArray[np.float32], scales: Scales | None) -> NDArray[np.float32]:
    """Return NaN or Inf where products, scales or `c` require it, finite numbers elsewhere."""
    with np.errstate(invalid="ignore"):
        total = np.where(np.isfinite(c), np.float32(0), c)
        if a.classes is not None and b.classes is not None:
            total = total + (a.classes * b.classes).sum(axis=0)
    return total if scales is None else np.where(scales.nan, np.float32(np.nan), total)


def _products(a: Terms, b: Terms, alignment: Alignment) -> tuple[NDArray, NDArray[np.bool_] | None]:
    """Return the products, which overwrite the values of `b`, and which are negative (None if not needed)."""
    terms = np.multiply(a.values, b.values, out=b.values)
    return terms, None if alignment is Alignment.TOWARD_ZERO else terms < 0


def _truncate(aligned: NDArray, alignment: Alignment, negative: NDArray[np.bool_] | None) -> NDArray:
    """Round aligned terms to integers as `alignment` says. An f64 array may be overwritten."""
    if alignment is not Alignment.TOWARD_ZERO:
        aligned = round_terms(aligned, alignment, negative)
    return aligned.astype(np.int32) if aligned.dtype == np.float32 else np.trunc(aligned, out=aligned)


def _exact_sum(truncated: NDArray) -> NDArray[np.float64]:
    if truncated.dtype != np.int32:
        return np.asarray(truncated.sum(axis=0), np.float64)
    groups = truncated.reshape(-1, min(_TERMS_PER_INT32, len(truncated)), *truncated.shape[1:])
    return np.add.reduce(np.add.reduce(groups, axis=1, dtype=np.int32), axis=0, dtype=np.float64)


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
    """Add the products of one step to the accumulator and round once.

    Parameters
    ----------
    a, b : Terms, shape (L, ...)
        Stored operands, whose last axis may be 1, and selected operands, whose values are overwritten.
    c : ndarray of float32, shape (...)
        Accumulator: (rows, n) of a block of matrices, or outputs in any other arrangement.
    accumulator : Format
        Format of the accumulator, f32 or f16.
    numerics, precision : Numerics, Precision
        F, e_zero and rounding; precision of the operands.
    scales : Scales, shape (1, ...), optional
        Block scales whose significand is 1 (ue8m0). Their exponents are added to those of the products.
    traces : list of Trace, optional
        List to which the trace of the step is appended.
    """
    # e_max = max(product exponents, exp(c), e_zero)
    largest = np.add(a.exponents, b.exponents, dtype=precision.exponent).max(axis=0).astype(np.int32)
    has_product = largest >= precision.lowest_product_exponent
    if scales is not None:
        largest += scales.exponents[0]
    finite_c = finite_part(c)
    c_exponents = accumulator_exponents(finite_c, accumulator, numerics.zero_exponent)
    e_max = np.maximum(c_exponents, np.int32(numerics.zero_exponent))
    np.maximum(e_max, largest, out=e_max, where=has_product)

    # Products, exact, then in units of the last bit kept, 2**(e_max - F)
    shift = np.int32(numerics.alignment_bits) - e_max
    terms, negative = _products(a, b, numerics.alignment)
    terms *= power_of_two(shift if scales is None else shift + scales.exponents[0], precision.value)
    c_aligned = align_accumulator(finite_c, shift)
    aligned = terms if traces is None else terms.copy()
    truncated, c_truncated = _truncate(terms, numerics.alignment, negative), round_terms(c_aligned, numerics.alignment)
    total = _exact_sum(truncated)
    total += c_truncated
    total *= power_of_two(-shift, total.dtype)
    rounded = round_sum(total, numerics.rounding)
    if traces is None and a.classes is None and finite_c is c and not (scales and scales.nan.any()):
        return rounded
    special = special_classes(a, b, c, scales)
    result = np.where(np.isfinite(special), rounded, special)
    if traces is not None:
        exponents = np.add(a.exponents, b.exponents, dtype=np.int32)
        traces.append(Trace(
            exponents if scales is None else exponents + scales.exponents,
            exponents >= precision.lowest_product_exponent,
            c_exponents, e_max, aligned, c_aligned, truncated, c_truncated, total, special, result,
        ))  # fmt: skip
    return result
