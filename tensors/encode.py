"""Convert numbers to codes, rounded once from float64, and decode codes exactly."""

import numpy as np
from numpy.typing import NDArray

from ..errors import OperandError
from ..golden.decode import decode, precision_for
from ..isa.formats import Format, Specials
from ..operands.registers import CONTAINERS

__all__ = ["container_type", "decode_codes", "encode"]


def encode(
    values: NDArray[np.float64], fmt: Format, *, saturate: bool, first_row: int = 0, rounding: str = "RNE"
) -> NDArray:
    """Round numbers, float64 of shape (rows, columns), to the codes of a format: uint8, uint16 or uint32.

    `saturate` is as for :func:`sptc.tensors.quantise.quantise`, and `first_row` the index of the first row, for
    messages. `rounding` is ``RNE`` to nearest even, ``RNA`` to nearest, ties away from zero, ``RZ`` toward zero, ``RM``
    down, or ``RP`` up. Codes of tf32 are float32 codes whose low 13 bits are zero.

    NaN becomes the positive quiet NaN; in formats without infinity its bits are all ones. Ties are rounded to the even
    code; in ue8m0, to the larger number. ue8m0 has no zero: values below 2**-127 become its smallest number. A finite
    number that is rounded toward zero never overflows. Raise an `OperandError` if a value is NaN and the format has no
    NaN; or, without saturation, if a value overflows a format without infinity and NaN, or is negative in an unsigned
    format.
    """
    not_a_number = np.isnan(values)
    if fmt.specials is Specials.NONE:
        _refuse(not_a_number, values, fmt, first_row, "has no NaN")
    magnitudes = np.abs(np.where(not_a_number, 0, values))
    negative = np.signbit(values) & ~not_a_number
    if fmt.is_integer:
        whole = np.copysign(_whole(magnitudes, rounding, negative), values)
        high = int(fmt.maximum)
        low = -high - 1 if fmt.signed else 0
        if not saturate:
            _refuse((whole < low) | (whole > high), values, fmt, first_row, f"has the range {low} to {high}")
        return (whole.clip(low, high).astype(np.int64) & ((1 << fmt.bits) - 1)).astype(container_type(fmt))
    if not fmt.signed:
        if not saturate:
            _refuse(negative & (magnitudes > 0), values, fmt, first_row, "has no negative numbers")
        magnitudes = np.where(negative, 0, magnitudes)
    codes = _magnitude_codes(magnitudes, fmt, rounding, negative)
    top = ((1 << fmt.exponent_bits) - 1) << fmt.fraction_bits
    ones = top | (1 << fmt.fraction_bits) - 1
    # For each kind of special values: largest finite code, and code of an overflow (infinity or NaN) if there is one.
    codes_of: dict[Specials, tuple[int, int | None]] = {Specials.IEEE: (top - 1, top), Specials.NAN: (ones - 1, ones)}
    largest, beyond = codes_of.get(fmt.specials, (ones, None))
    over = codes > largest
    if not saturate and beyond is None:
        _refuse(over, values, fmt, first_row, "has neither infinity nor NaN for a value beyond its range")
    inward = {"RZ": True, "RM": ~negative, "RP": negative}.get(rounding, False) & np.isfinite(values)
    codes = np.where(over, largest if saturate or beyond is None else np.where(inward, largest, beyond), codes)
    quiet = (1 << fmt.fraction_bits) - 1 if fmt.specials is Specials.NAN else 1 << max(fmt.fraction_bits - 1, 0)
    codes[not_a_number] = top | quiet if fmt.fraction_bits else top
    if fmt.signed:
        codes |= negative.astype(np.int64) << (fmt.bits - 1)
    return (codes << fmt.ignored_low_bits).astype(container_type(fmt))


def container_type(fmt: Format) -> np.dtype:
    """Return the unsigned type that holds one code of a format."""
    return CONTAINERS[next(bits for bits in (8, 16, 32) if bits >= fmt.container_bits)]


def _refuse(bad: NDArray[np.bool_], values: NDArray, fmt: Format, first_row: int, why: str) -> None:
    if bad.any():
        row, column = (int(part) for part in np.argwhere(bad)[0])
        raise OperandError(f"{fmt.name} {why}: {values[row, column]} at row {first_row + row}, column {column}")


def _whole(values: NDArray[np.float64], rounding: str, negative: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Round magnitudes to whole numbers; `negative` marks magnitudes of negative numbers."""
    if rounding == "RNE":
        return np.rint(values)
    down = np.floor(values)
    if rounding == "RNA":
        return down + (values - down >= 0.5)
    return down if rounding == "RZ" else np.where(negative == (rounding == "RM"), np.ceil(values), down)


def _magnitude_codes(
    magnitudes: NDArray[np.float64], fmt: Format, rounding: str, negative: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """Return the codes of absolute values. An overflow gives a code above the largest finite code."""
    magnitudes = np.minimum(magnitudes, 2.0 ** (fmt.maximum_exponent + 2))
    exponents = np.frexp(magnitudes)[1].astype(np.int64) - 1
    exponents = exponents.clip(fmt.minimum_exponent, fmt.maximum_exponent + 1)
    exponents[magnitudes == 0] = fmt.minimum_exponent
    significands = np.ldexp(magnitudes, fmt.fraction_bits - exponents)
    base = (exponents - fmt.minimum_exponent) << fmt.fraction_bits
    # A code is the significand plus `base`, an even number made from the exponent. rint() thus rounds ties to the even
    # code, and a carry out of the significand increments the exponent. ue8m0 has no fraction bits: 1.5 is rounded to 2.
    codes = base + _whole(significands, rounding, negative).astype(np.int64)
    return codes if fmt.subnormals else (codes - 1).clip(0)


def decode_codes(codes: NDArray, fmt: Format) -> NDArray[np.float64]:
    """Return the exact values of codes that :func:`encode` returned, including the signs of zeros.

    The codes are unsigned integers, whose bits above the width of the format are ignored.
    """
    if fmt.is_integer:
        numbers = codes.astype(np.int64) & ((1 << fmt.bits) - 1)
        if fmt.signed:
            numbers -= (numbers >> (fmt.bits - 1)) << fmt.bits
        return numbers.astype(np.float64)
    if fmt.name == "f32":
        with np.errstate(invalid="ignore"):  # The conversion of a signalling NaN would give a warning.
            return np.ascontiguousarray(codes, "<u4").view("<f4").astype(np.float64)
    terms = decode(codes, fmt, precision_for(fmt), fmt.ignored_low_bits)
    values = terms.values.astype(np.float64)
    if terms.classes is not None:
        values = np.where(np.isfinite(terms.classes), values, terms.classes)
    if fmt.signed:
        negative = codes >> (fmt.container_bits - 1) & 1
        values = np.where(negative == 1, -np.abs(values), values)
    return values
