"""What a library does to a sum before it stores it, bit by bit.

Everything is f32 under IEEE rules, round to nearest even (RNE), in this order; what is not given is left out:

1. an s32 sum becomes f32, if anything follows that is no s32;
2. times the scale of the row of A, times the scale of the column of B;
3. ``alpha`` times that, plus ``beta`` times C: C's product is rounded, the rest is one fused multiply-add;
4. plus the bias;
5. ReLU: what is below zero becomes +0, a NaN stays;
6. rounded to the type of the result. f16 and bf16 overflow to infinity, or toward zero to the largest number; e4m3 and
   e5m2 become their largest number (``.satfinite``), as does s8. Every NaN becomes the canonical one, all bits but the
   sign set.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..errors import OperandError
from ..golden.registers import CONTAINERS
from ..isa.formats import FORMATS
from ..tensors.element_types import named_dtype
from ..tensors.encode import decode_codes, encode

__all__ = ["RESULTS", "Epilogue", "check_shape", "result_dtype", "rounded_values", "to_codes"]

#: numpy's or ml_dtypes' type of each result.
RESULTS = {
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
    "s32": "int32",
    "s8": "int8",
}
_SATURATING = ("e4m3", "e5m2", "s8")


@dataclass(frozen=True, eq=False, kw_only=True)
class Epilogue:
    """What is done to sums; arrays are of float32 and of the shape of the product, or broadcast to it.

    Attributes
    ----------
    scale_a, scale_b : ndarray or None
        Scales of the rows of A, shape (M, 1), and of the columns of B, shape (1, N).
    alpha : float
        Factor of the product.
    beta, c : float, and ndarray or None
        Factor of C, and C.
    bias : ndarray or None
        Addend.
    relu : bool
        Nothing below zero is left.
    """

    scale_a: NDArray[np.float32] | None = None
    scale_b: NDArray[np.float32] | None = None
    alpha: float = 1.0
    beta: float = 1.0
    c: NDArray[np.float32] | None = None
    bias: NDArray[np.float32] | None = None
    relu: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether sums stay as they are."""
        arrays = (self.scale_a, self.scale_b, self.c, self.bias)
        return all(array is None for array in arrays) and self.alpha == 1 and not self.relu

    def check(self, shape: tuple[int, int]) -> None:
        """Raise unless every array is of the shape of a product, or broadcasts to it."""
        for name in ("scale_a", "scale_b", "c", "bias"):
            if (array := getattr(self, name)) is not None:
                check_shape(name, array, shape)

    def mapped(self, change: Callable[[NDArray[np.float32]], NDArray[np.float32]]) -> "Epilogue":
        """Return one whose arrays are changed."""
        scale_a, scale_b, c, bias = (
            None if array is None else change(array) for array in (self.scale_a, self.scale_b, self.c, self.bias)
        )
        return replace(self, scale_a=scale_a, scale_b=scale_b, c=c, bias=bias)

    def take(self, shape: tuple[int, int], rows: slice | NDArray, columns: slice | NDArray) -> "Epilogue":
        """Return that of some rows and columns of a product of a shape."""
        return self.mapped(lambda array: np.broadcast_to(array, shape)[rows][:, columns])

    def turned(self, shape: tuple[int, int]) -> "Epilogue":
        """Return that of the transpose of a product of a shape; the scale of A is still the first factor."""
        return self.mapped(lambda array: np.broadcast_to(array, shape).T)

    def exactly(self, sums: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return what all of it makes of sums in float64, the reference for errors."""
        with np.errstate(over="ignore", invalid="ignore"):
            for scale in (self.scale_a, self.scale_b):
                sums = sums if scale is None else sums * scale
            sums = sums * self.alpha + (0 if self.c is None else np.float64(self.beta) * self.c)
            sums = sums if self.bias is None else sums + self.bias
            return np.maximum(sums, 0) if self.relu else sums

    def apply(self, sums: NDArray) -> NDArray:
        """Return sums, float32 or int32, with everything done to them but the last rounding."""
        if self.is_empty:
            return sums
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            found = sums.astype(np.float32)
            for scale in (self.scale_a, self.scale_b):
                if scale is not None:
                    found = found * scale
            alpha = np.float32(self.alpha)
            if self.c is not None:
                found = _fused(found, alpha, np.float32(self.beta) * self.c)
            elif alpha != 1:
                found = found * alpha
            if self.bias is not None:
                found = found + self.bias
            return np.where(found < 0, np.float32(0), found) if self.relu else found


def check_shape(name: str, array: NDArray, shape: tuple[int, int]) -> None:
    """Raise unless an array is of the shape of a product, or broadcasts to it.

    Raises
    ------
    OperandError
        It does not.
    """
    try:
        fits = np.broadcast_shapes(array.shape, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise OperandError(f"{name} of shape {array.shape} does not broadcast to the product's, {shape}")


def _fused(x: NDArray[np.float32], y: np.float32, z: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return x y + z rounded once, RNE.

    The product is exact in float64. The sum is rounded to odd there, so that the second rounding, to float32, sees on
    which side of a tie it lies.
    """
    product, addend = x.astype(np.float64) * np.float64(y), z.astype(np.float64)
    total = product + addend
    behind = total - product
    error = (product - (total - behind)) + (addend - behind)
    inexact = np.isfinite(total) & (error != 0) & (total.view(np.uint64) & np.uint64(1) == 0)
    odd = np.nextafter(total, np.where(error > 0, np.inf, -np.inf))
    return np.where(inexact, odd, total).astype(np.float32)


def to_codes(values: NDArray, result: str, rounding: str = "RNE") -> NDArray:
    """Round what an epilogue gave to codes of a result.

    Parameters
    ----------
    values : ndarray of float32 or int32, shape (M, N)
        Numbers.
    result : str
        Key of :data:`RESULTS`.
    rounding : str
        ``RNE``, or ``RZ``, toward zero.

    Returns
    -------
    ndarray of uint8, uint16 or uint32
        Codes.
    """
    fmt = FORMATS[result]
    container = CONTAINERS[fmt.bits]
    if values.dtype == np.int32:
        if result == "s32":
            return values.view(np.uint32)
        if result == "s8":
            return values.clip(-128, 127).astype(np.int8).view(np.uint8)
        values = values.astype(np.float32)
    missing = np.isnan(values)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        if result == "f32":
            codes = values.view(np.uint32)
        elif result == "f16" and rounding == "RNE":
            codes = values.astype(np.float16).view(np.uint16)
        elif result == "bf16" and rounding == "RNE":
            bits = values.view(np.uint32)
            codes = ((bits + np.uint32(0x7FFF) + (bits >> 16 & 1)) >> 16).astype(np.uint16)
        else:
            codes = _encoded(np.where(missing, 0, values), result, rounding)
    return np.where(missing & (not fmt.is_integer), container.type((1 << fmt.bits - 1) - 1), codes)


def _encoded(values: NDArray[np.float32], result: str, rounding: str) -> NDArray:
    fmt, exact = FORMATS[result], values.astype(np.float64)
    if fmt.is_integer and rounding == "RZ":
        exact = np.trunc(exact)
    codes = encode(exact, fmt, saturate=result in _SATURATING)
    if rounding == "RZ" and not fmt.is_integer:
        beyond = np.abs(decode_codes(codes, fmt)) > np.abs(exact)
        codes = codes - beyond.astype(codes.dtype)
    return codes


def rounded_values(values: NDArray[np.float32], result: str) -> NDArray[np.float32]:
    """Round float32 numbers to a type, RNE, and return them as float32."""
    codes = to_codes(values, result)
    if result == "f16":
        found = codes.view(np.float16).astype(np.float32)
    elif result == "bf16":
        found = (codes.astype(np.uint32) << np.uint32(16)).view(np.float32)
    else:
        found = decode_codes(codes, FORMATS[result]).astype(np.float32)
    return np.where(np.isnan(values), np.float32(np.nan), found)


def result_dtype(result: str) -> np.dtype:
    """Return the type of an array of results.

    Raises
    ------
    OperandError
        There is no such result.
    FileError
        It is a type of ``ml_dtypes``, which is missing.
    """
    if not isinstance(result, str) or result not in RESULTS:
        raise OperandError(f"the result must be one of {', '.join(RESULTS)}, not {result!r}")
    return named_dtype(RESULTS[result])
