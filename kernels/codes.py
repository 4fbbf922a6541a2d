"""Decode the codes of any float format to values, and round values to codes in any rounding mode.

Formats are those of :mod:`sptc.isa.formats`, and f64. Values are float64, which is exact for every format. A NaN result
of an instruction is the canonical NaN: 0x7fffffff for f32, 0x7fff for f16 and bf16 (measured on an H100).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..isa.formats import FORMATS, Specials
from ..tensors.encode import decode_codes, encode
from .program import size_of

__all__ = ["Rounding", "canonical", "decoded", "encoded", "flushed"]

#: Formats that numpy has as floating-point types.
_NUMPY = ("f16", "f32", "f64")
_SMALLEST_NORMAL = np.float32(2.0**-126)


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


def flushed(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Replace subnormal numbers by zeros with the same sign."""
    small = np.abs(x) < _SMALLEST_NORMAL
    return np.where(small, np.copysign(np.float32(0), x), x) if small.any() else x


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
        with np.errstate(invalid="ignore"):  # The conversion of a signalling NaN would give a warning.
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
