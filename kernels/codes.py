"""Decode the codes of any float format to values, and round values to codes in any rounding mode.

Formats are those of :mod:`sptc.isa.formats`, and f64. Values are float64, which is exact for every format.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..isa.formats import FORMATS, Specials
from ..tensors.encode import decode_codes, encode

__all__ = ["Rounding", "decoded", "encoded"]


@dataclass(frozen=True)
class Rounding:
    """Rounding and range of a conversion to codes. Source: PTX ISA, ``cvt``."""

    #: Rounding mode: ``rn`` to nearest even, ``rna`` to nearest with ties away from zero, ``rz`` toward zero, ``rm``
    #: down, ``rp`` up.
    mode: str
    #: Whether overflow and infinities give the largest finite number.
    saturate: bool = False
    #: Whether negative values and -0 give +0. A NaN remains a NaN.
    relu: bool = False


def decoded(codes: NDArray, name: str) -> NDArray[np.float64]:
    """Return the values of a format's codes. A code of ``tf32`` is in the upper 19 bits of a 32-bit word."""
    if name in ("f16", "f32", "f64"):
        return codes.view(f"<f{codes.dtype.itemsize}").astype(np.float64)
    return decode_codes(codes, FORMATS[name])


def encoded(values: NDArray[np.float64], name: str, rounding: Rounding) -> NDArray[np.uint32]:
    """Return the codes of values rounded to a format. A code of ``tf32`` is in the upper 19 bits of a 32-bit word.

    An overflow gives infinity, or NaN if the format has no infinity. It gives the largest finite number if the format
    has neither, if `saturate` is set, or if the rounding mode rounds the value toward zero.
    """
    fmt, nan = FORMATS[name], np.isnan(values)
    numbers = np.where(nan, 0.0, values)
    if rounding.relu or not fmt.signed:
        numbers = np.where(np.signbit(numbers), 0.0, numbers)
    saturate = rounding.saturate or fmt.specials is Specials.NONE
    codes = encode(numbers, fmt, saturate=saturate, rounding="RNE" if rounding.mode == "rn" else rounding.mode.upper())
    missing = (1 << fmt.bits - fmt.signed) - 1 << fmt.ignored_low_bits
    return np.where(nan, missing, codes).astype(np.uint32)
