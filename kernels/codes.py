"""Decode the codes of any float format to values, and round values to codes in any rounding mode.

Formats are those of :mod:`sptc.isa.formats`, and f64. Values are float64, which is exact for every format. PTX leaves
the bits of a NaN result open. Measured on an H100 and an H200: a NaN of f32 is 0x7fffffff, and a NaN of f16 or bf16 is
0x7fff; instructions with operands or results of f64 keep sign and payload of a NaN.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..isa.formats import FORMATS, Specials
from ..tensors.encode import decode_codes, encode
from .program import size_of

__all__ = ["Rounding", "canonical", "clamped", "converted_nan", "decoded", "encoded", "first_nan", "flushed"]

#: Formats for which numpy has a floating-point type.
_NUMPY = ("f16", "f32", "f64")
#: Widths in bits, for formats with NaN payloads: width of the stored significand, and width of the whole code.
_WIDTHS = {"f16": (10, 16), "f32": (23, 32), "f64": (52, 64)}


@dataclass(frozen=True)
class Rounding:
    """Rounding mode and clamping of a conversion from values to codes. Source: PTX ISA, ``cvt``."""

    #: Rounding mode: ``rn`` to nearest even, ``rna`` to nearest with ties away from zero, ``rz`` toward zero, ``rm``
    #: down, ``rp`` up.
    mode: str
    #: Whether overflow and infinities give the largest finite number.
    saturate: bool = False
    #: Whether negative values and -0 give +0. A NaN remains a NaN.
    relu: bool = False


def flushed(x: NDArray) -> NDArray:
    """Replace subnormal numbers of f16 or f32 values by zeros with the same sign."""
    small = np.abs(x) < np.finfo(x.dtype).smallest_normal
    return np.where(small, np.copysign(x.dtype.type(0), x), x) if small.any() else x


def clamped(x: NDArray) -> NDArray:
    """Clamp values to [0, 1]. NaN and -0 become +0."""
    return np.where(x > 0, np.minimum(x, x.dtype.type(1)), x.dtype.type(0))


def converted_nan(codes: NDArray, source: str, to: str) -> NDArray[np.uint64]:
    """Convert NaN codes of f16, f32 or f64: keep the sign and the upper bits of the payload, and set the quiet bit."""
    (low, width), (to_low, to_width) = _WIDTHS[source], _WIDTHS[to]
    wide = codes.astype(np.uint64)
    payload = wide & np.uint64((1 << low) - 1)
    payload = payload << np.uint64(to_low - low) if to_low > low else payload >> np.uint64(low - to_low)
    quiet = np.uint64((1 << to_width - 1) - (1 << to_low - 1))  # mask of the exponent and the quiet bit of a NaN
    return wide >> np.uint64(width - 1) << np.uint64(to_width - 1) | quiet | payload


def first_nan(result: NDArray[np.float64], *operands: NDArray[np.float64]) -> NDArray[np.float64]:
    """Replace every NaN of f64 results by the quiet form of the first NaN operand, or by 0xfff8000000000000."""
    nan = result != result
    if not nan.any():
        return result
    codes = np.full(nan.shape, 0xFFF8 << 48, np.uint64)
    for operand in reversed(operands):
        codes = np.where(operand != operand, converted_nan(operand.view(np.uint64), "f64", "f64"), codes)
    return np.where(nan, codes, result.view(np.uint64)).view(np.float64)


def canonical(x: NDArray) -> NDArray:
    """Replace every NaN of f16, f32 or f64 values by the canonical NaN of the type."""
    nan = x != x
    if not nan.any():
        return x
    bits = x.view(f"<u{x.dtype.itemsize}")
    return np.where(nan, bits.dtype.type(np.iinfo(bits.dtype).max >> 1), bits).view(x.dtype)


def decoded(codes: NDArray, name: str) -> NDArray[np.float64]:
    """Return the values of a format's codes. A code of ``tf32`` is in the upper 19 bits of a 32-bit word."""
    if name == "bf16":
        codes, name = codes.astype(np.uint32) << np.uint32(16), "f32"
    if name in _NUMPY:
        with np.errstate(invalid="ignore"):  # numpy would warn of the conversion of a signalling NaN.
            return codes.view(f"<f{codes.dtype.itemsize}").astype(np.float64)
    return decode_codes(codes, FORMATS[name])


def encoded(values: NDArray[np.float64], name: str, rounding: Rounding) -> NDArray:
    """Return the codes of values rounded to a format. A code of ``tf32`` is in the upper 19 bits of a 32-bit word.

    An overflow gives infinity, or NaN if the format has no infinity. It gives the largest finite number if the format
    has neither, if `saturate` is set, or if the rounding mode rounds the value toward zero.
    """
    if name == "f64" or (name in _NUMPY and rounding == Rounding("rn")):
        with np.errstate(over="ignore"):
            result = canonical(values.astype(f"<f{size_of(name)}"))
        return result.view(f"<u{size_of(name)}")
    fmt, nan = FORMATS[name], np.isnan(values)
    numbers = np.where(nan, 0.0, values)
    if rounding.relu or not fmt.signed:
        numbers = np.where(np.signbit(numbers), 0.0, numbers)
    saturate = rounding.saturate or fmt.specials is Specials.NONE
    codes = encode(numbers, fmt, saturate=saturate, rounding="RNE" if rounding.mode == "rn" else rounding.mode.upper())
    missing = (1 << fmt.bits - fmt.signed) - 1 << fmt.ignored_low_bits
    return np.where(nan, missing, codes).astype(np.uint32)
