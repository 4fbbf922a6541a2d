"""Functions that convert f16 and f32 accumulators between codes and values, read their exponents, and scale them."""

import numpy as np
from numpy.typing import NDArray

from ..isa.formats import Format

__all__ = ["accumulator_exponents", "decode_accumulator", "encode_accumulator", "finite_part", "scale_accumulator"]


def decode_accumulator(codes: NDArray) -> NDArray[np.float32]:
    """Decode accumulator codes (uint16 for f16, uint32 for f32) to float32 values."""
    return codes.view(np.float16).astype(np.float32) if codes.dtype == np.uint16 else codes.view(np.float32)


def encode_accumulator(values: NDArray[np.float32], dtype: np.dtype) -> NDArray:
    """Encode float32 results as f16 codes if `dtype` is uint16, else as f32 codes. NaN becomes the canonical NaN."""
    if dtype == np.uint16:
        with np.errstate(over="ignore"):
            codes = values.astype(np.float16).view(np.uint16)
        return np.where(np.isnan(values), np.uint16(0x7FFF), codes)
    return np.where(np.isnan(values), np.uint32(0x7FFFFFFF), values.view(np.uint32))


def finite_part(c: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the accumulator `c` with 0 in place of NaN and Inf, or the same array if all its elements are finite."""
    finite = np.isfinite(c)
    return c if finite.all() else np.where(finite, c, np.float32(0))


def accumulator_exponents(c: NDArray[np.float32], fmt: Format, zero_exponent: int) -> NDArray[np.int32]:
    """Return the exponents of accumulators: `fmt.minimum_exponent` for subnormals, `zero_exponent` for zero."""
    biased = (c.view(np.int32) >> np.int32(23)) & np.int32(0xFF)
    exponents = np.maximum(biased - 127, fmt.minimum_exponent)
    return np.where(c == 0, np.int32(zero_exponent), exponents)


def scale_accumulator(codes: NDArray, fmt: Format, exponent: int) -> tuple[NDArray, NDArray[np.bool_]]:
    """Multiply accumulators by ``2**-exponent``. Return codes, and a mask: False if no public source states the result.

    `exponent` is 1 to 15. A result is unknown if the result or its operand is subnormal: no public source states
    whether the datapath normalises or rounds a subnormal number. Zeros, Infs and NaNs are unchanged and known.
    """
    top = (1 << fmt.exponent_bits) - 1
    field = codes >> codes.dtype.type(fmt.fraction_bits) & codes.dtype.type(top)
    kept = (codes & codes.dtype.type((1 << fmt.bits - 1) - 1) == 0) | (field == top)
    scaled = np.where(kept, codes, codes - codes.dtype.type(exponent << fmt.fraction_bits))
    return scaled, kept | (field > exponent)
