"""Numpy arrays and torch tensors as arguments of compiled kernels."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import KernelError
from .launch import KernelRun

__all__ = ["Memories", "element_type"]


def element_type(value: Any) -> str:
    """Return the name of the element type of an array or tensor, or an empty string for any other value."""
    dtype = getattr(value, "dtype", None)
    if dtype is None or not hasattr(value, "shape") or isinstance(value, np.generic):
        return ""
    return str(dtype).removeprefix("torch.")


class Memories:
    """Buffers of the array and tensor arguments of a launch. A tensor that is passed twice has one buffer."""

    def __init__(self) -> None:
        self._arrays: dict[int, tuple[Any, NDArray]] = {}

    def array(self, value: Any) -> NDArray:
        """Return an array unchanged, or the memory of a tensor as an array of integers as wide as its elements.

        Raises
        ------
        KernelError
            The tensor is not in the memory of the CPU.
        """
        if id(value) not in self._arrays:
            self._arrays[id(value)] = value, value if isinstance(value, np.ndarray) else _memory(value)
        return self._arrays[id(value)][1]

    def add_results(self, run: KernelRun) -> None:
        """Add the tensors to a launch's results, so that :meth:`KernelRun.after` accepts tensors and arrays."""
        for value, array in self._arrays.values():
            if not isinstance(value, np.ndarray):
                result = __import__("torch").from_numpy(run.after(array).copy()).view(value.dtype)
                run.buffers.append((value, result.reshape(value.shape)))


def _memory(tensor: Any) -> NDArray:
    if tensor.device.type != "cpu":
        raise KernelError(f"tensors must be in the memory of the CPU, not of {tensor.device}")
    integers = {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}
    torch = __import__("torch")
    array: NDArray = tensor.view(getattr(torch, integers[tensor.element_size()])).numpy()
    return array
