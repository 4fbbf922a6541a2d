"""Decode operands from codes to values, exponents and classes (NaN, Inf, finite)."""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ..isa.formats import Format, Specials

__all__ = ["NARROW", "WIDE", "Precision", "Scales", "Terms", "decode", "decode_scale", "precision_for"]


@dataclass(frozen=True, eq=False)
class Precision:
    """numpy types that hold the values and exponents of operands exactly."""

    value: np.dtype  #: numpy type that holds every product of two operands exactly
    exponent: np.dtype  #: numpy type that holds the sum of two operand exponents
    #: Exponent assigned to a zero operand. Twice this value fits the type `exponent`. This value plus any operand's
    #: exponent is below `lowest_product_exponent`.
    zero_exponent: int
    lowest_product_exponent: int  #: Lower bound on the exponent of a product of two nonzero operands


#: Numpy types for formats of up to five exponent bits: their products (22 bits, 2**-48 to 2**32) are exact in f32.
NARROW = Precision(np.dtype(np.float32), np.dtype(np.int8), -60, -32)
#: Numpy types for bf16 and tf32: their products (between 2**-272 and 2**256) are exact in f64.
WIDE = Precision(np.dtype(np.float64), np.dtype(np.int16), -8000, -300)


def precision_for(*formats: Format) -> Precision:
    """Return the narrowest numpy types that hold products of the given formats exactly."""
    return NARROW if all(fmt.exponent_bits <= 5 for fmt in formats) else WIDE


@dataclass(frozen=True, eq=False)
class Terms:
    """Decoded operands: value, exponent and class (NaN, Inf, zero or finite) of each element."""

    values: NDArray  #: Signed operand values of type `Precision.value`, or 0 for NaN and Inf
    #: Exponent of each operand, of type `Precision.exponent`. Exponents of subnormals are not normalised. The exponent
    #: of zero, NaN and Inf is `Precision.zero_exponent`.
    exponents: NDArray
    #: Class of each operand: NaN, +-Inf, 0 or +-1 (finite). None if every operand is finite. Multiplying and adding
    #: classes in IEEE arithmetic gives the NaN and Inf results of a dot product.
    classes: NDArray[np.float32] | None

    def take(self, rows: NDArray[np.intp]) -> "Terms":
        """Return the operands at the indices `rows` along the first axis."""
        classes = None if self.classes is None else self.classes.take(rows, axis=0)
        return Terms(self.values.take(rows, axis=0), self.exponents.take(rows, axis=0), classes)

    def with_classes(self) -> "Terms":
        """Return the operands with the field `classes` computed. Products of a NaN or an Inf need this field."""
        if self.classes is not None:
            return self
        return Terms(self.values, self.exponents, np.sign(self.values).astype(np.float32))


@dataclass(frozen=True, eq=False)
class Scales:
    """Scale of A times scale of B, for each group of products of one dot product that shares block scales."""

    #: Significand of the scale of A times that of B, shape (groups, ...), or NaN where a scale is NaN.
    significands: NDArray[np.float64]
    exponents: NDArray[np.int32]  #: Exponent of the scale of A plus that of B, shape (groups, ...)

    @property
    def nan(self) -> NDArray[np.bool_]:
        """Mask of the outputs for which a block scale of any group is NaN."""
        return np.asarray(np.isnan(self.significands).any(axis=0), np.bool_)


def _fields(fmt: Format) -> tuple[NDArray, NDArray, NDArray, NDArray]:
    """Return sign (+-1), integer significand, exponent and class (NaN, Inf, 0, +-1) of every code of a float format."""
    code = np.arange(1 << fmt.bits)
    fraction = code & ((1 << fmt.fraction_bits) - 1)
    field = code >> fmt.fraction_bits & ((1 << fmt.exponent_bits) - 1)
    sign = np.where(code >> (fmt.bits - 1) & 1, -1, 1) if fmt.signed else np.ones_like(code)
    hidden = (field > 0) if fmt.subnormals else np.ones_like(field, bool)
    significand = fraction | hidden.astype(int) << fmt.fraction_bits
    exponent = np.maximum(field, int(fmt.subnormals)) - fmt.bias
    classes = sign * np.sign(significand).astype(np.float32)
    top = field == (1 << fmt.exponent_bits) - 1
    if fmt.specials is Specials.IEEE:
        classes[top] = np.where(fraction[top] == 0, sign[top] * np.float32(np.inf), np.float32(np.nan))
    elif fmt.specials is Specials.NAN:
        classes[top & (fraction == (1 << fmt.fraction_bits) - 1)] = np.nan
    return sign, significand, exponent, classes


@lru_cache(maxsize=32)
def _table(fmt: Format, precision: Precision) -> tuple[Terms, NDArray[np.bool_]]:
    """Return the decoded values of all codes of a float format, and a mask of the codes that are NaN or Inf."""
    sign, significand, exponent, classes = _fields(fmt)
    special = ~np.isfinite(classes)
    zero = special | (significand == 0)
    values = np.ldexp((sign * significand).astype(precision.value), exponent - fmt.fraction_bits)
    terms = Terms(
        np.where(zero, 0, values).astype(precision.value),
        np.where(zero, precision.zero_exponent, exponent).astype(precision.exponent),
        classes.astype(np.float32),
    )
    return terms, special


def decode(codes: NDArray, fmt: Format, precision: Precision, low_bit: int = 0) -> Terms:
    """Decode operand codes, each in an unsigned integer, to `Terms` (values, exponents, classes) of the same shape.

    `precision` is the result of :func:`precision_for` for the formats of A and B. `low_bit` is the lowest bit of the
    element in its container; other bits are ignored.
    """
    table, special = _table(fmt, precision)
    if low_bit:
        codes = codes >> low_bit
    if codes.dtype.itemsize * 8 != fmt.bits:
        codes = codes & ((1 << fmt.bits) - 1)
    return (table if special.take(codes).any() else replace(table, classes=None)).take(codes)


def decode_scale(codes: NDArray[np.uint8], fmt: Format) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Decode block scales to significands (NaN for a NaN scale) and exponents. Subnormals are not normalised."""
    _, significand, exponent, classes = _fields(fmt)
    significands = np.where(np.isnan(classes), np.nan, significand / (1 << fmt.fraction_bits))
    meaningful = codes & ((1 << fmt.bits) - 1)
    return significands.take(meaningful), exponent.take(meaningful)
