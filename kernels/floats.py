"""Floating-point arithmetic of CUDA cores: correctly rounded sums, products and fused multiply-adds of f16, bf16, f32.

Source: PTX ISA, floating-point instructions. Results of f32 are rounded to nearest even, subnormals are kept unless an
instruction has ``.ftz``, and a NaN result is the canonical one: 0x7fffffff for f32, 0x7fff for f16 and bf16 (measured
on an H100).
"""

import numpy as np
from numpy.typing import NDArray

__all__ = ["bf16_bits", "bf16_values", "canonical", "flushed", "fused", "odd_sum"]

_SMALLEST = np.float32(2.0**-126)


def flushed(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Replace subnormal numbers by zeros with the same sign."""
    small = np.abs(x) < _SMALLEST
    return np.where(small, np.copysign(np.float32(0), x), x) if small.any() else x


def canonical(x: NDArray) -> NDArray:
    """Replace every NaN of f16, f32 or f64 values by the canonical NaN of the type."""
    nan = x != x
    if not nan.any():
        return x
    bits = x.view(f"<u{x.dtype.itemsize}")
    one = {2: 0x7FFF, 4: 0x7FFFFFFF, 8: 0x7FFFFFFFFFFFFFFF}[x.dtype.itemsize]
    return np.where(nan, bits.dtype.type(one), bits).view(x.dtype)


def odd_sum(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return x + y rounded to odd, so that a second rounding, to at most 51 bits, is correct.

    The sum of two float64 values is exactly result plus remainder (Knuth's two-sum). Where the remainder is not zero,
    the last bit becomes one: a second rounding then gives the same number as one rounding of the exact sum.
    """
    total = x + y
    part = total - x
    remainder = (x - (total - part)) + (y - part)
    inexact = (remainder != 0) & np.isfinite(total)
    if not inexact.any():
        return total
    bits = total.view(np.int64)
    toward_zero = (remainder > 0) != (total > 0)
    return np.where(inexact, (bits - toward_zero) | 1, bits).view(np.float64)


def fused(a: NDArray, b: NDArray, c: NDArray) -> NDArray[np.float64]:
    """Return a * b + c, rounded to odd at 53 bits. Significands of the operands have at most 24 bits."""
    return odd_sum(a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64))


def bf16_values(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """Return the values of bf16 codes."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def bf16_bits(values: NDArray[np.float64]) -> NDArray[np.uint16]:
    """Round values to bf16, to nearest even. Every NaN becomes the canonical NaN.

    The values are float64 that are exact or rounded to odd. They are first rounded to odd at 24 bits.
    """
    with np.errstate(over="ignore"):
        near = values.astype(np.float32)
    bits = near.view(np.uint32)
    back = near.astype(np.float64)
    outside = (np.abs(back) > np.abs(values)).astype(np.uint32)
    odd = np.where(back != values, (bits - outside) | np.uint32(1), bits)
    rounded = (odd + np.uint32(0x7FFF) + (odd >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(values), np.uint16(0x7FFF), rounded.astype(np.uint16))
