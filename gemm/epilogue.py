"""Epilogue of a matrix product: bit-exact operations on each sum before it is stored.

All operations are f32 under IEEE rules, round to nearest even (RNE), in this order. Steps without a parameter are left
out:

1. convert an s32 sum to f32, if one of steps 2 to 5 follows or the result is a float;
2. multiply by the scale of the row of A, then by the scale of the column of B, or in another order, see
   :data:`SCALE_ORDERS`;
3. multiply by ``alpha`` and add ``beta`` C: ``beta`` C is rounded, the other operations are one fused multiply-add;
4. add the bias;
5. ReLU: a negative number becomes +0, a NaN is kept;
6. round to the type of the result. f16 and bf16 overflow to infinity; with rounding toward zero, to the largest number.
   e4m3, e5m2 and s8 saturate to their largest number (``.satfinite``). In a float result every NaN becomes the
   canonical NaN: all bits set except the sign.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..errors import OperandError
from ..isa.formats import FORMATS
from ..operands.registers import CONTAINERS
from ..tensors.blocks import check_word
from ..tensors.element_types import TYPE_OF, named_dtype
from ..tensors.encode import decode_codes, encode
from ..tensors.fused import fused

__all__ = [
    "RESULTS", "SCALE_ORDERS", "Epilogue", "broadcasts", "check_shape", "result_dtype", "rounded_values",
    "scaling_factors", "to_codes",
]  # fmt: skip

#: Key: name of a result type. Value: name of its type in numpy or ``ml_dtypes``.
RESULTS = {name: TYPE_OF[name] for name in ("f32", "f16", "bf16", "e4m3", "e5m2", "s32", "s8")}
_SATURATING = ("e4m3", "e5m2", "s8")
#: Order in which a sum is multiplied by a scale of A and a scale of B; each product is rounded to f32. ``product``: the
#: two scales are multiplied by each other first.
SCALE_ORDERS = ("a then b", "b then a", "product")


@dataclass(frozen=True, eq=False, kw_only=True)
class Epilogue:
    """Parameters of an epilogue. Arrays are float32 and broadcast to the shape of the product."""

    #: Scales of the rows of A, shape (M, 1), and scales of the columns of B, shape (1, N).
    scale_a: NDArray[np.float32] | None = None
    scale_b: NDArray[np.float32] | None = None
    alpha: float = 1.0  #: Factor alpha by which the product A B is multiplied
    #: Factor beta, by which the matrix C is multiplied; and the matrix C, which is then added.
    beta: float = 1.0
    c: NDArray[np.float32] | None = None
    bias: NDArray[np.float32] | None = None  #: Bias that is added to the matrix product after scaling
    relu: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether the epilogue has no operation and leaves sums unchanged."""
        arrays = (self.scale_a, self.scale_b, self.c, self.bias)
        return all(array is None for array in arrays) and self.alpha == 1 and not self.relu

    def check(self, shape: tuple[int, int]) -> None:
        """Raise an error unless every array broadcasts to the shape of a product."""
        for name in ("scale_a", "scale_b", "c", "bias"):
            if (array := getattr(self, name)) is not None:
                check_shape(name, array, shape)

    def mapped(self, change: Callable[[NDArray[np.float32]], NDArray[np.float32]]) -> "Epilogue":
        """Return the epilogue with a function applied to each of its arrays."""
        scale_a, scale_b, c, bias = (
            None if array is None else change(array) for array in (self.scale_a, self.scale_b, self.c, self.bias)
        )
        return replace(self, scale_a=scale_a, scale_b=scale_b, c=c, bias=bias)

    def take(self, shape: tuple[int, int], rows: slice | NDArray, columns: slice | NDArray) -> "Epilogue":
        """Return the epilogue for the given rows and columns of a matrix product of shape `shape`."""
        return self.mapped(lambda array: np.broadcast_to(array, shape)[rows][:, columns])

    def turned(self, shape: tuple[int, int]) -> "Epilogue":
        """Return the epilogue for the transposed product. It multiplies by the scale of A first, as the original."""
        return self.mapped(lambda array: np.broadcast_to(array, shape).T)

    def exactly(self, sums: NDArray[np.float64]) -> NDArray[np.float64]:
        """Apply the epilogue in float64, to compute the reference from which errors are measured."""
        with np.errstate(over="ignore", invalid="ignore"):
            for scale in (self.scale_a, self.scale_b):
                sums = sums if scale is None else sums * scale
            sums = sums * self.alpha + (0 if self.c is None else np.float64(self.beta) * self.c)
            sums = sums if self.bias is None else sums + self.bias
            return np.maximum(sums, 0) if self.relu else sums

    def apply(self, sums: NDArray, scale_order: str = "a then b") -> NDArray:
        """Apply an epilogue, but not its final rounding, to float32 or int32 sums. `scale_order` orders the scales."""
        if self.is_empty:
            return sums
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            values = sums.astype(np.float32)
            if self.scale_a is not None and self.scale_b is not None:
                one, other = scaling_factors(values, self.scale_a, self.scale_b, scale_order)
                values = one * other
            elif (scale := self.scale_b if self.scale_a is None else self.scale_a) is not None:
                values = values * scale
            alpha = np.float32(self.alpha)
            if self.c is not None:
                values = fused(values, alpha, np.float32(self.beta) * self.c).astype(np.float32)
            elif alpha != 1:
                values = values * alpha
            if self.bias is not None:
                values = values + self.bias
            return np.where(values < 0, np.float32(0), values) if self.relu else values


def check_shape(name: str, array: NDArray, shape: tuple[int, int]) -> None:
    """Raise an `OperandError` unless an array broadcasts to the shape of a product."""
    if not broadcasts(array, shape):
        raise OperandError(f"{name} of shape {array.shape} does not broadcast to the shape of the product, {shape}")


def broadcasts(array: NDArray, shape: tuple[int, ...]) -> bool:
    """Return whether an array broadcasts to a shape."""
    try:
        return np.broadcast_shapes(array.shape, shape) == shape
    except ValueError:
        return False


def scaling_factors(
    values: NDArray[np.float32], scale_a: NDArray[np.float32], scale_b: NDArray[np.float32], order: str
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return two factors whose product is `values` scaled in the given order, one of :data:`SCALE_ORDERS`."""
    if order == "product":
        return values, scale_a * scale_b
    return (values * scale_a, scale_b) if order == "a then b" else (values * scale_b, scale_a)


def to_codes(values: NDArray, result: str, rounding: str = "RNE", saturate: bool | None = None) -> NDArray:
    """Convert float32 or int32 to codes of a type of :data:`RESULTS`; round as :func:`~sptc.tensors.encode.encode`.

    The default of `saturate` depends on the type, see the description of this module.
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
        elif result == "f16" and rounding == "RNE" and saturate is None:
            codes = values.astype(np.float16).view(np.uint16)
        elif result == "bf16" and rounding == "RNE" and saturate is None:
            bits = values.view(np.uint32)
            codes = ((bits + np.uint32(0x7FFF) + (bits >> 16 & 1)) >> 16).astype(np.uint16)
        else:
            numbers = np.where(missing, 0, values).astype(np.float64)
            chosen = result in _SATURATING if saturate is None else saturate
            codes = encode(numbers, fmt, saturate=chosen, rounding=rounding)
    return np.where(missing & (not fmt.is_integer), container.type((1 << fmt.bits - 1) - 1), codes)


def rounded_values(values: NDArray[np.float32], result: str) -> NDArray[np.float32]:
    """Round float32 numbers to a type (RNE) and return them as float32."""
    codes = to_codes(values, result)
    if result == "f16":
        stored = codes.view(np.float16).astype(np.float32)
    elif result == "bf16":
        stored = (codes.astype(np.uint32) << np.uint32(16)).view(np.float32)
    else:
        stored = decode_codes(codes, FORMATS[result]).astype(np.float32)
    return np.where(np.isnan(values), np.float32(np.nan), stored)


def result_dtype(result: str) -> np.dtype:
    """Return the numpy dtype of a result type; raise an `OperandError` if there is no such result type.

    Raise a `FileError` if the type needs ``ml_dtypes``, and this package is not installed.
    """
    check_word("the result", result, RESULTS)
    return named_dtype(RESULTS[result])
