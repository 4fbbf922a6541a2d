"""Decode the codes of any float format to values, and round values to codes in any rounding mode.

Formats are those of :mod:`sptc.isa.formats`, and f64. Values are float64, which is exact for every format.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..isa.formats import FORMATS, Format, Specials
from ..tensors.encode import decode_codes

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


def _rounded(steps: NDArray[np.float64], mode: str, negative: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Round the magnitudes of numbers to integers; `negative` marks the negative numbers."""
    if mode == "rn":
        return np.rint(steps)
    down = np.floor(steps)
    if mode == "rna":
        return down + (steps - down >= 0.5)
    if mode == "rz":
        return down
    return np.where(negative == (mode == "rm"), np.ceil(steps), down)


def _magnitude_codes(values: NDArray[np.float64], fmt: Format) -> NDArray[np.int64]:
    """Return the codes of magnitudes that are exact in the format, or one step above its largest finite number."""
    _, exponent = np.frexp(values)
    least = fmt.minimum_exponent
    exponent = np.where(values == 0, least, np.maximum(exponent - 1, least))
    steps = np.ldexp(values, fmt.fraction_bits - exponent).astype(np.int64)
    # A normal number has its hidden one in bit `fraction_bits` of `steps`, which adds 1 to the exponent field.
    return steps + (exponent - least << fmt.fraction_bits)


def encoded(values: NDArray[np.float64], name: str, rounding: Rounding) -> NDArray[np.uint32]:
    """Return the codes of values rounded to a format. A code of ``tf32`` is in the upper 19 bits of a 32-bit word.

    An overflow gives infinity, or NaN if the format has no infinity. It gives the largest finite number if the format
    has neither, if `saturate` is set, or if the rounding mode rounds the value toward zero.
    """
    fmt = FORMATS[name]
    if not fmt.subnormals:
        return _scale_codes(values, rounding)
    nan, negative = np.isnan(values), np.signbit(values)
    if rounding.relu:
        values = np.where(negative & ~nan, 0.0, values)
        negative = negative & nan
    infinite = np.isinf(values)
    magnitude = np.where(nan | infinite, 0.0, np.abs(values))
    _, exponent = np.frexp(magnitude)
    unit = np.maximum(exponent - 1, fmt.minimum_exponent) - fmt.fraction_bits
    magnitude = np.ldexp(_rounded(np.ldexp(magnitude, -unit), rounding.mode, negative), unit)
    over = infinite | (magnitude > fmt.maximum)
    codes = _magnitude_codes(np.where(over, 0.0, magnitude), fmt)
    largest, sign = int(_magnitude_codes(np.array(fmt.maximum), fmt)), 1 << fmt.bits - 1
    special = {
        Specials.IEEE: (largest + 1, sign - 1),
        Specials.NAN: (sign - 1, sign - 1),
        Specials.NONE: (largest,) * 2,
    }
    beyond, missing = special[fmt.specials]
    inward = {"rz": True, "rm": ~negative, "rp": negative}.get(rounding.mode, False) & ~infinite
    codes = np.where(over, np.where(inward | rounding.saturate, largest, beyond), codes)
    codes = np.where(nan, missing, np.where(negative, codes | sign, codes))
    return (codes << fmt.ignored_low_bits).astype(np.uint32)


def _scale_codes(values: NDArray[np.float64], rounding: Rounding) -> NDArray[np.uint32]:
    """Round to powers of two (ue8m0), toward zero or up. Zero and values that are too small give the smallest power."""
    fmt = FORMATS["ue8m0"]
    infinite = np.isinf(values)
    fraction, exponent = np.frexp(np.where(infinite | ~(values > 0), 2.0**-fmt.bias, values))
    power = exponent - 1 + ((fraction > 0.5) if rounding.mode == "rp" else 0)
    over = infinite & (values > 0) | (power > fmt.bias)
    codes = np.clip(power + fmt.bias, 0, 2 * fmt.bias)
    codes = np.where(over, 2 * fmt.bias + (not rounding.saturate), codes)
    return np.where(np.isnan(values), 2 * fmt.bias + 1, codes).astype(np.uint32)
