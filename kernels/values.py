"""Numpy type for each PTX type, and conversion of constants to arrays."""

import numpy as np
from numpy.typing import NDArray

from .memory import UNSIGNED
from .program import Immediate, size_of

__all__ = ["constant", "numpy_type", "register_type"]


def register_type(type_: str) -> np.dtype:
    """Return the numpy type in which a register is stored: unsigned bits, or a bool for a predicate."""
    return np.dtype(np.bool_) if type_ == "pred" else UNSIGNED[size_of(type_)]


def numpy_type(type_: str) -> np.dtype:
    """Return the numpy type with which an instruction computes. Packed types and ``bf16`` remain unsigned bits."""
    if type_ == "pred":
        return np.dtype(np.bool_)
    size = size_of(type_)
    if type_ in ("f16", "f32", "f64"):
        return np.dtype(f"<f{size}")
    return np.dtype(f"<i{size}") if type_[0] == "s" else UNSIGNED[size]


def constant(value: Immediate, type_: str) -> NDArray:
    """Return a constant as an array with one element of a given type."""
    dtype = numpy_type(type_)
    if dtype == np.bool_:
        return np.array([bool(value.value)])
    if value.kind == "int":
        bits = value.value & (1 << 8 * dtype.itemsize) - 1
        return np.array([bits], UNSIGNED[dtype.itemsize]).view(dtype)
    size = 4 if value.kind == "f32" else 8
    number = np.array([value.value], UNSIGNED[size])
    if dtype.kind != "f":
        return number.view(dtype) if dtype.itemsize == size else number.astype(dtype)
    return number.view(f"<f{size}").astype(dtype)
