"""Trace of a step: every value of a truncated fused dot-product-add (T-FDPA), from exponents to result."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Step", "Trace"]


@dataclass(frozen=True, eq=False)
class Trace:
    """Values of the arithmetic of one step.

    A term is a product, or a scaled group of 16 products. Arrays have the shape of the accumulator; arrays of terms
    have an axis of terms in front. A term that is zero, NaN or Inf does not participate in the maximum of the
    exponents; a group whose sum cancels to zero does.

    Attributes
    ----------
    exponents : ndarray of int32, shape (terms, ...)
        Exponents of the terms, not normalised, with those of block scales; meaningless unless the term participates.
    participates : ndarray of bool, shape (terms, ...)
        Whether the term participates in the maximum of the exponents.
    c_exponents : ndarray of int32
        Exponents of the accumulator; meaningless unless it participates.
    e_max : ndarray of int32
        Largest of these exponents and e_zero, to which all terms are aligned.
    aligned, c_aligned : ndarray of float, shape (terms, ...) and that of the accumulator
        Terms and accumulator in units of the last bit kept, 2**(e_max - F), before truncation. Exact, except that
        :data:`~sptc.golden.decode.NARROW` terms below 2**-126 of a unit may be inexact or zero.
    truncated, c_truncated : ndarray of int32 or float64, shapes alike
        The same, truncated toward zero.
    total : ndarray of float64
        Exact sum of the truncated terms and accumulator, in units of 1.
    special : ndarray of float32
        NaN or Inf where operands, scales or the accumulator require it, finite elsewhere.
    result : ndarray of float32
        New accumulator: `special` where it is NaN or Inf, the rounded `total` elsewhere.
    """

    exponents: NDArray[np.int32]
    participates: NDArray[np.bool_]
    c_exponents: NDArray[np.int32]
    e_max: NDArray[np.int32]
    aligned: NDArray
    c_aligned: NDArray[np.float64]
    truncated: NDArray
    c_truncated: NDArray[np.float64]
    total: NDArray[np.float64]
    special: NDArray[np.float32]
    result: NDArray[np.float32]

    @property
    def c_participates(self) -> NDArray[np.bool_]:
        """Where the accumulator is finite and not zero."""
        return self.c_aligned != 0

    @property
    def ordinary(self) -> NDArray[np.bool_]:
        """Where the result is the rounded sum, which may overflow to Inf."""
        return np.isfinite(self.special)


@dataclass(frozen=True, eq=False)
class Step:
    """One step of an instruction: its operands and its trace.

    Attributes
    ----------
    elements : ndarray of intp, shape (products,)
        Indices of the stored elements of A, in the order of the terms.
    a, b : ndarray of unsigned integers, shapes (products, rows, 1) and (products, rows, n)
        Codes that are multiplied, in the formats of the instruction.
    trace : Trace or None
        None for integers, whose products are summed exactly.
    """

    elements: NDArray[np.intp]
    a: NDArray
    b: NDArray
    trace: Trace | None
