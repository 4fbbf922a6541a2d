"""Python interface of ``drivers/components.cpp``: structured arrays of inputs in, of outputs out."""

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .driver import CompiledModel

__all__ = ["ComponentLibrary"]


class _Vectors(ctypes.Structure):
    _fields_ = (("places", ctypes.c_void_p), ("count", ctypes.c_size_t), ("bytes", ctypes.c_size_t))


class ComponentLibrary(CompiledModel):
    """Combinational components of one compiled model.

    The library is built with ``drivers/components.cpp``; `ports` are those of the model, in the order of its
    configuration.
    """

    prefix, checks = "components", False
    arguments = (ctypes.c_size_t, *[ctypes.c_void_p] * 4)

    def __init__(self, library: Path, ports: Sequence[str]) -> None:
        super().__init__(ctypes.CDLL(str(library)))
        self._numbers = {port: number for number, port in enumerate(ports)}

    def run(self, vectors: NDArray, outputs: np.dtype) -> NDArray:
        """Return the outputs for vectors of some inputs, shape (count,), as an array of the type `outputs`."""
        assert vectors.flags.c_contiguous
        answers = np.zeros(len(vectors), outputs)
        # `_in` and `_out` keep the arrays of places alive during the call.
        (_in, given), (_out, got) = (self._described(layout) for layout in (vectors.dtype, outputs))
        self.run_driver(len(vectors), ctypes.byref(given), vectors.ctypes.data, ctypes.byref(got), answers.ctypes.data)
        return answers

    def _described(self, layout: np.dtype) -> tuple[NDArray[np.int32], _Vectors]:
        """Return the places of the ports in a vector, and the structure that the driver takes."""
        fields: Mapping[str, Any] = layout.fields or {}
        places = np.array(
            [(self._numbers[port], offset, field.itemsize) for port, (field, offset, *_) in fields.items()], np.int32
        )
        return places, _Vectors(places.ctypes.data, len(places), layout.itemsize)
