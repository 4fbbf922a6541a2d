"""Intermediate values of one truncated fused dot-product-add (T-FDPA), from exponents to result."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Step", "Trace"]


@dataclass(frozen=True, eq=False)
class Trace:
    """Intermediate values of one rounded sum of products and an accumulator.

    A term is a product, or a scaled group of 16 products. Arrays have the shape of the accumulator; arrays of terms
    have an axis of terms in front. A term that is zero, NaN or Inf does not participate in the maximum of the
    exponents; a group whose sum cancels to zero participates.
    """

    #: Exponents of the terms, not normalised, plus exponents of block scales, shape (terms, ...). Valid only for terms
    #: whose exponents are included in the maximum e_max.
    exponents: NDArray[np.int32]
    #: Mask of terms whose exponents are included in the maximum e_max, shape (terms, ...).
    participates: NDArray[np.bool_]
    #: Exponents of the accumulator. Valid only where they are included in the maximum e_max.
    c_exponents: NDArray[np.int32]
    #: Largest exponent (e_max) of the terms, accumulator and lower bound e_zero. All terms are aligned to e_max.
    e_max: NDArray[np.int32]
    #: Terms, shape (terms, ...), and accumulator before truncation, in units of 2**(e_max - F) with F alignment bits.
    #: The values are exact, except that terms of type f32 that are below 2**-126 units may be inexact or zero.
    aligned: NDArray
    c_aligned: NDArray[np.float64]
    #: Terms (int32 or float) and accumulator as integers in units of the last bit kept, truncated toward zero or
    #: rounded as `Numerics.alignment` states.
    truncated: NDArray
    c_truncated: NDArray[np.float64]
    total: NDArray[np.float64]  #: Value of the exact sum of truncated terms and truncated accumulator
    #: NaN or Inf where operands, scales or the accumulator make the result NaN or Inf; elsewhere any finite number.
    special: NDArray[np.float32]
    #: New accumulator: field `special` where `special` is NaN or Inf, and the rounded field `total` elsewhere.
    result: NDArray[np.float32]

    @property
    def c_participates(self) -> NDArray[np.bool_]:
        """Mask of accumulators whose exponents are included in e_max: those that are finite and not zero."""
        return self.c_aligned != 0

    @property
    def ordinary(self) -> NDArray[np.bool_]:
        """Mask of results that no NaN or Inf operand determines: rounded sums, including those that overflow to Inf."""
        return np.isfinite(self.special)


@dataclass(frozen=True, eq=False)
class Step:
    """One step (rounded sum of products and accumulator) of an instruction: operand codes and intermediate values."""

    #: Indices of the stored elements of A in this step, in the order of the terms, shape (products,).
    elements: NDArray[np.intp]
    #: Codes of A and of the selected elements of B, in the formats of the instruction, as unsigned integers of shape
    #: (products, rows, 1) and (products, rows, n).
    a: NDArray
    b: NDArray
    trace: Trace | None  #: Trace of the step, or None for integer instructions, which align no terms
