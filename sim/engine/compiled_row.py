"""Row (dot-product unit with metadata decoder), compiled by Verilator to a shared library that is cached on disk."""

import ctypes
from math import prod

import numpy as np
from numpy.typing import NDArray

from ...infra.loader import load_library
from ...infra.pools import threads_here
from ...rtl.config import CoreConfig
from .driver import CompiledModel, driver, members
from .libraries import Libraries
from .row_interface import row_interface
from .steps import Steps, step_words

__all__ = ["CompiledRow", "RowModel", "row_constants"]

#: Minimum number of outputs of a batch that is divided among threads; one thread computes a smaller batch.
_SHARED_OUTPUTS = 1 << 12


class _Batch(ctypes.Structure):
    """C structure ``Batch`` of ``drivers/batch.h``: input words of one dot product for each output of a batch."""

    _fields_ = (
        *members(ctypes.c_size_t, "tiles", "rows", "columns"),
        *members(ctypes.c_void_p, "row_words", "column_words", "previous"),
        ("threads", ctypes.c_size_t),
    )


def row_constants(config: CoreConfig) -> dict[str, int]:
    """Return constants for C++ drivers of a dot-product unit: number of input words, positions of fields and flags."""
    words = step_words(config)
    return {
        "is_clocked": bool(config.cuts),
        "step_words": words.total,
        "c_word": words.c.start,
        "control_word": words.control.start,
        "overflow_bit": words.overflow_bit,
        "result_overflow": words.result_overflow,
    }


class RowModel(CompiledModel):
    """Model of one row (dot-product unit), in a library built from ``drivers/row.cpp`` or ``computed_row.cpp``.

    The result of the step that enters in cycle t is recorded in cycle t + `latency`.
    """

    prefix, checks = "row", False
    arguments = (ctypes.POINTER(_Batch), ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p)

    def __init__(self, library: ctypes.CDLL, latency: int = 0) -> None:
        super().__init__(library)
        self._latency = latency

    def run(self, steps: Steps, previous: NDArray[np.uint64] | None = None) -> NDArray[np.uint64]:
        """Compute all outputs, one dot product per cycle; return the result words, shape (batch, m, n)."""
        results = self.run_cycles(steps, prod(steps.shape) + self._latency, previous=previous)
        return results[self._latency :].reshape(steps.shape)

    def run_cycles(
        self,
        steps: Steps,
        cycles: int,
        enables: NDArray[np.uint8] | None = None,
        previous: NDArray[np.uint64] | None = None,
    ) -> NDArray[np.uint64]:
        """Return the result word after each clock edge. Without `enables`, the pipeline advances in every cycle."""
        arrays = [steps.row, steps.column, previous, enables]
        assert all(array is None or array.flags.c_contiguous for array in arrays)
        *pointers, enabled = (None if array is None else array.ctypes.data for array in arrays)
        results = np.empty(cycles, np.uint64)
        threads = threads_here() if prod(steps.shape) >= _SHARED_OUTPUTS else 1
        self.run_driver(ctypes.byref(_Batch(*steps.shape, *pointers, threads)), cycles, enabled, results.ctypes.data)
        return results


class CompiledRow:
    """Row (dot-product unit with metadata decoder), compiled by Verilator.

    The model is built on first use and cached in :func:`~sptc.infra.cache.cache_folder`. A batch of steps with one
    common control word can run on a model that is specialised for this word. Raise a `BackendError` if the simulator or
    a compiler is missing or fails; the message names the tool to install.
    """

    def __init__(self, config: CoreConfig) -> None:
        constants = row_constants(config)
        clocked, computed = driver("row.cpp", constants, top="row"), driver("computed_row.cpp", constants)
        self._libraries = Libraries(config, "row", clocked, computed)
        # Results are recorded after the clock edge, so the last pipeline register adds no cycle to the recorded
        # latency.
        general = self._libraries.of_every_instruction()
        self._models = {general: RowModel(load_library(general), config.latency - bool(config.cuts))}
        low, width = row_interface(config).step["control"]
        self._word, self._bit, self._mask = low // 32, low % 32, np.uint32((1 << width) - 1 << low % 32)
        assert self._bit + width <= 32, "the control word must lie within one 32-bit word of a step"

    def run(self, steps: Steps, previous: NDArray[np.uint64] | None = None) -> NDArray[np.uint64]:
        """Compute one sum of products for each output of a batch, in order; return results, shape (batch, m, n)."""
        return self._model_for(steps).run(steps, previous)

    def _model_for(self, steps: Steps) -> RowModel:
        words = steps.row[..., self._word].ravel() & self._mask
        is_uniform = len(words) and (words == words[0]).all()
        library = self._libraries.of({int(words[0]) >> self._bit: prod(steps.shape)} if is_uniform else {})
        if library not in self._models:
            self._models[library] = RowModel(load_library(library))
        return self._models[library]
