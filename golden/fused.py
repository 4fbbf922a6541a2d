"""One truncated fused dot-product-add (T-FDPA): align, truncate, sum, round (numerics, section 2)."""

import numpy as np
from numpy.typing import NDArray

from ..isa.formats import Format
from ..isa.numerics import Numerics
from .decode import Precision, Terms
from .rounding import round_sum

__all__ = ["accumulator_exponents", "align_accumulator", "fused_step", "power_of_two", "special_results"]

#: Aligned f16 and fp8 terms stay below 2**27, so eight of them sum exactly in 32 bits.
_TERMS_PER_INT32 = 8


def accumulator_exponents(c: NDArray[np.float32], fmt: Format, zero_exponent: int) -> NDArray[np.int32]:
    """Return exp(c): its format's minimum for subnormals, `zero_exponent` for zero."""
    biased = (c.view(np.uint32) >> np.uint32(23)).astype(np.int32) & 0xFF
    exponents = np.maximum(biased - 127, fmt.minimum_exponent)
    return np.where(c == 0, np.int32(zero_exponent), exponents)


def power_of_two(exponents: NDArray[np.int32], dtype: np.dtype) -> NDArray:
    """Return 2.0**exponents exactly, clipped to the normal range of `dtype`.

    Terms are far from the clip: what it changes is truncated to zero, or is zero already.
    """
    if dtype == np.float32:
        clipped = np.minimum(np.maximum(exponents, np.int32(-126)), np.int32(127))
        return (clipped + np.int32(127) << np.int32(23)).view(np.float32)
    clipped = np.minimum(np.maximum(exponents, np.int32(-1022)), np.int32(1023))
    return (clipped.astype(np.int64) + 1023 << 52).view(np.float64)


def align_accumulator(c: NDArray[np.float32], shift: NDArray[np.int32]) -> NDArray[np.float64]:
    """Return c in units of the grid, truncated toward zero."""
    aligned = c.astype(np.float64)
    aligned *= power_of_two(shift, aligned.dtype)
    return np.trunc(aligned, out=aligned)


def special_results(
    result: NDArray[np.float32],
    a_classes: NDArray[np.float32] | None,
    b_classes: NDArray[np.float32] | None,
    c: NDArray[np.float32],
) -> NDArray[np.float32]:
    """Put NaN and Inf where products or `c` call for them.

    Parameters
    ----------
    result : ndarray of float32, shape (rows, n)
        Results of the finite arithmetic; overwritten.
    a_classes, b_classes : ndarray of float32, shape (L, rows, 1) and (L, rows, n), or None
        Classes of the operands; None where all are finite.
    c : ndarray of float32, shape (rows, n)
        The accumulator.
    """
    with np.errstate(invalid="ignore"):
        total = np.where(np.isfinite(c), np.float32(0), c)
        if a_classes is not None and b_classes is not None:
            total = total + (a_classes * b_classes).sum(axis=0)
    return np.where(np.isfinite(total), result, total)


def fused_step(
    a: Terms,
    b: Terms,
    c: NDArray[np.float32],
    accumulator: Format,
    numerics: Numerics,
    precision: Precision,
    scale_exponents: NDArray[np.int32] | None = None,
) -> NDArray[np.float32]:
    """Add the products of one step to the accumulator, rounding once.

    Parameters
    ----------
    a : Terms, shape (L, rows, 1) or (L, rows, n)
        Stored operands.
    b : Terms, shape (L, rows, n)
        Selected operands; their values are overwritten.
    c : ndarray of float32, shape (rows, n)
        Accumulator.
    accumulator : Format
        Format of the accumulator, f32 or f16.
    numerics : Numerics
        F, e_zero and rounding.
    precision : Precision
        That of the terms.
    scale_exponents : ndarray of int32, shape (rows, n), optional
        Added to every product exponent (ue8m0 scales).

    Returns
    -------
    ndarray of float32, shape (rows, n)
        The new accumulator.
    """
    # E = max(product exponents, exp(c), e_zero)
    largest = np.add(a.exponents, b.exponents, dtype=precision.exponent).max(axis=0).astype(np.int32)
    has_product = largest >= precision.lowest_product_exponent
    if scale_exponents is not None:
        largest += scale_exponents
    c_finite = np.isfinite(c)
    finite_c = c if c_finite.all() else np.where(c_finite, c, np.float32(0))
    exponent = accumulator_exponents(finite_c, accumulator, numerics.zero_exponent)
    np.maximum(exponent, np.int32(numerics.zero_exponent), out=exponent)
    np.maximum(exponent, largest, out=exponent, where=has_product)

    # Products, exact, then in units of the grid 2**(E - F)
    shift = np.int32(numerics.alignment_bits) - exponent
    product_shift = shift if scale_exponents is None else shift + scale_exponents
    terms = np.multiply(a.values, b.values, out=b.values)
    terms *= power_of_two(product_shift, precision.value)
    if precision.value == np.float32:
        group = min(_TERMS_PER_INT32, len(terms))
        truncated = terms.astype(np.int32).reshape(-1, group, *c.shape)
        total = np.add.reduce(np.add.reduce(truncated, axis=1, dtype=np.int32), axis=0, dtype=np.float64)
    else:
        total = np.trunc(terms, out=terms).sum(axis=0)
    total += align_accumulator(finite_c, shift)

    total *= power_of_two(-shift, total.dtype)
    result = round_sum(total, numerics.rounding)
    if a.classes is not None or not c_finite.all():
        result = special_results(result, a.classes, b.classes, c)
    return result
