"""Floating-point results of CUDA cores: NaN, subnormals, and values of bf16.

Source: PTX ISA, floating-point instructions. Results of f32 are rounded to nearest even, subnormals are kept unless an
instruction has ``.ftz``, and a NaN result is the canonical one: 0x7fffffff for f32, 0x7fff for f16 and bf16 (measured
on an H100).
"""

import numpy as np
from numpy.typing import NDArray

__all__ = ["bf16_values", "canonical", "flushed"]

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


def bf16_values(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """Return the values of bf16 codes."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
