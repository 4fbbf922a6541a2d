"""What a float step does inside, from its operands: terms, distances, exact sum and rounding (numerics, section 2)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...golden.decode import WIDE, Terms, decode, decode_scale
from ...golden.fused import accumulator_exponents, power_of_two
from ...golden.rounding import round_sum
from ...isa.numerics import BLOCK_GROUP
from .operands import Operands
from .operations import Operation

__all__ = ["Evaluation", "evaluate"]

#: Below every exponent.
_NO_EXPONENT = -4096
_CANONICAL_NAN = {"f16": 0x7FFF, "f32": 0x7FFFFFFF}


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Steps of one float operation, evaluated.

    Attributes
    ----------
    operation : Operation
        What was asked for.
    operands : Operands
        Of the steps.
    a, b : Terms, shape (count, slots)
        Decoded operands of each slot, with classes where `special` says that any is NaN or Inf.
    special : bool
        Some operand of some step is NaN or Inf.
    c : ndarray of float64, shape (count,)
        Accumulators.
    scale_nan : ndarray of bool, shape (count,)
        A block scale is NaN.
    values : ndarray of float64, shape (count, terms)
        Exact terms: products, or scaled groups; 0 for special products.
    exponents : ndarray of int32, shape (count, terms)
        Their exponents, not normalised, where they count.
    counts : ndarray of bool, shape (count, terms)
        The term's exponent takes part in the maximum.
    c_exponents : ndarray of int32, shape (count,)
        Exponents of the accumulators, where `c_counts`.
    c_counts : ndarray of bool, shape (count,)
        The accumulator is finite and not zero.
    largest : ndarray of int32, shape (count,)
        E, the exponent that terms are aligned to.
    aligned, c_aligned : ndarray of float64, shape (count, terms) and (count,)
        Terms in units of the last bit kept, 2**(E - F), not yet truncated.
    total : ndarray of float64, shape (count,)
        Exact sum of the truncated terms.
    rounded : ndarray of float32, shape (count,)
        The sum, rounded.
    nan, positive_inf, negative_inf : ndarray of bool, shape (count,)
        What products, scales and accumulator call for whatever the sum.
    """

    operation: Operation
    operands: Operands
    a: Terms
    b: Terms
    special: bool
    c: NDArray[np.float64]
    scale_nan: NDArray[np.bool_]
    values: NDArray[np.float64]
    exponents: NDArray[np.int32]
    counts: NDArray[np.bool_]
    c_exponents: NDArray[np.int32]
    c_counts: NDArray[np.bool_]
    largest: NDArray[np.int32]
    aligned: NDArray[np.float64]
    c_aligned: NDArray[np.float64]
    total: NDArray[np.float64]
    rounded: NDArray[np.float32]
    nan: NDArray[np.bool_]
    positive_inf: NDArray[np.bool_]
    negative_inf: NDArray[np.bool_]

    @property
    def ordinary(self) -> NDArray[np.bool_]:
        """Steps whose result is the rounded sum."""
        return ~(self.nan | self.positive_inf | self.negative_inf)

    @property
    def codes(self) -> NDArray[np.uint32]:
        """Result registers that follow."""
        floats = np.float16 if self.operation.result == "f16" else np.float32
        bits = np.uint16 if self.operation.result == "f16" else np.uint32
        with np.errstate(over="ignore"):
            value = np.where(self.positive_inf, np.inf, np.where(self.negative_inf, -np.inf, self.rounded))
            codes = value.astype(floats).view(bits).astype(np.uint32)
        return np.where(self.nan, np.uint32(_CANONICAL_NAN[self.operation.accumulator.name]), codes)


def evaluate(operation: Operation, operands: Operands) -> Evaluation:
    """Evaluate steps of one float operation."""
    bits = operation.zero_exponent
    a, b = (
        decode(codes, element.format, WIDE, element.low_bit)
        for codes, element in ((operands.a, operation.a), (operands.b, operation.b))
    )
    special = a.classes is not None or b.classes is not None
    if special:
        a, b = a.with_classes(), b.with_classes()
    c = _accumulators(operation, operands.c)
    finite_c = np.where(np.isfinite(c), c, np.float32(0))

    values, exponents, counts, scale_nan = _terms(operation, operands, a, b)
    c_exponents = accumulator_exponents(finite_c, operation.accumulator, bits)
    c_counts = finite_c != 0
    largest = np.where(counts, exponents, np.int32(_NO_EXPONENT)).max(axis=1)
    largest = np.maximum(np.maximum(largest, c_exponents), np.int32(bits))
    shift = operation.alignment_bits - largest
    aligned = values * power_of_two(shift, values.dtype)[:, None]
    c_aligned = finite_c.astype(np.float64) * power_of_two(shift, values.dtype)
    total = (np.trunc(aligned).sum(axis=1) + np.trunc(c_aligned)) * power_of_two(-shift, values.dtype)
    nan, positive_inf, negative_inf = _special(a, b, c, scale_nan)
    with np.errstate(invalid="ignore"):  # of signalling NaN
        c_values = c.astype(np.float64)
    return Evaluation(
        operation, operands, a, b, special, c_values, scale_nan, values, exponents, counts, c_exponents,
        c_counts, largest, aligned, c_aligned, total, round_sum(total, operation.rounding), nan, positive_inf,
        negative_inf,
    )  # fmt: skip


def _accumulators(operation: Operation, words: NDArray[np.uint32]) -> NDArray[np.float32]:
    if operation.result == "f16":
        return words.astype(np.uint16).view(np.float16).astype(np.float32)
    return words.view(np.float32)


def _terms(
    operation: Operation, operands: Operands, a: Terms, b: Terms
) -> tuple[NDArray[np.float64], NDArray[np.int32], NDArray[np.bool_], NDArray[np.bool_]]:
    """Return exact terms, their exponents, whether they count, and whether a scale is NaN."""
    products: NDArray[np.float64] = a.values * b.values
    if operation.scale == "none":
        exponents = np.add(a.exponents, b.exponents, dtype=np.int32)
        return products, exponents, np.not_equal(products, 0), np.zeros(len(products), np.bool_)
    significands, scale_exponents = scales_of(operation, operands)
    scale_nan = np.asarray(np.isnan(significands).any(axis=1), np.bool_)
    significands = np.where(np.isnan(significands), 0, significands)
    if operation.grouped:
        groups = products.reshape(len(products), -1, BLOCK_GROUP)
        values = groups.sum(axis=2) * significands * power_of_two(scale_exponents, products.dtype)
        return values, scale_exponents, (groups != 0).any(axis=2) & (significands != 0), scale_nan
    exponents = np.add(a.exponents, b.exponents, dtype=np.int32) + scale_exponents
    values = products * power_of_two(scale_exponents, products.dtype)
    return values, exponents, np.not_equal(products, 0), scale_nan


def scales_of(operation: Operation, operands: Operands) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """Return product of significands (NaN for a NaN scale) and sum of exponents of the scales, one column a group.

    One column for all of a step where products are scaled one by one.
    """
    columns = operation.terms if operation.grouped else 1
    significand_a, exponent_a = decode_scale(operands.scale_a[:, :columns], operation.scale_format)
    significand_b, exponent_b = decode_scale(operands.scale_b[:, :columns], operation.scale_format)
    return significand_a * significand_b, (exponent_a + exponent_b).astype(np.int32)


def _special(
    a: Terms, b: Terms, c: NDArray[np.float32], scale_nan: NDArray[np.bool_]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
    """Return whether the result is NaN, +Inf, -Inf whatever the sum."""
    with np.errstate(invalid="ignore"):
        total = np.where(np.isfinite(c), np.float32(0), c)
        if a.classes is not None and b.classes is not None:
            total = total + (a.classes * b.classes).sum(axis=1)
    nan = np.isnan(total) | scale_nan
    return nan, np.isposinf(total) & ~nan, np.isneginf(total) & ~nan
