"""Row of dot-product units, compiled by Verilator to a shared library that is cached on disk."""

import ctypes
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...infra.loader import load_library
from ...rtl.config import CoreConfig
from .driver import CompiledModel, driver
from .libraries import Libraries
from .row_interface import row_interface

__all__ = ["CompiledRow", "RowModel", "row_driver"]

#: Top module.
TOP = "row"


def row_driver(config: CoreConfig, *, top: str = TOP, more: Sequence[str] = ()) -> dict[str, str]:
    """Return the C++ driver of a row model; parameters `top`, `more` as for :func:`~sptc.sim.engine.driver.driver`."""
    return driver("row.cpp", {"is_clocked": bool(config.cuts)}, top=top, more=more)


class RowModel(CompiledModel):
    """Model of one row of dot-product units, in a library built from ``drivers/row.cpp`` or ``computed_row.cpp``.

    The result of the step that enters in cycle t is recorded in cycle t + `latency`.
    """

    prefix, checks = "row", False
    arguments = (ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p)

    def __init__(self, library: Path, latency: int = 0) -> None:
        super().__init__(load_library(library))
        self._latency = latency

    def run(self, steps: NDArray[np.uint32]) -> NDArray[np.uint64]:
        """Compute one step per cycle, shape (count, words); return the result words, shape (count,)."""
        return self.run_cycles(steps, len(steps) + self._latency)[self._latency :]

    def run_cycles(
        self, steps: NDArray[np.uint32], cycles: int, enables: NDArray[np.uint8] | None = None
    ) -> NDArray[np.uint64]:
        """Return the result word after each clock edge; without `enables`, the pipeline is enabled in every cycle."""
        results = np.empty(cycles, np.uint64)
        enabled = None if enables is None else enables.ctypes.data
        self.run_driver(len(steps), steps.ctypes.data, cycles, enabled, results.ctypes.data)
        return results


class CompiledRow:
    """Row of dot-product units compiled by Verilator; each step has `words` 32-bit words.

    It is built on first use and cached in :func:`~sptc.infra.cache.cache_folder`. A batch of steps with one common
    control word can run on a model that is specialised for this word. Raise a `BackendError` if the simulator or a
    compiler is missing or fails; it says what to install.
    """

    def __init__(self, config: CoreConfig, words: int) -> None:
        computed = driver("computed_row.cpp", {"step_words": words})
        self._libraries = Libraries(config, "row", TOP, row_driver(config), computed)
        # Results are recorded after the clock edge, so the last pipeline register adds no cycle to the recorded
        # latency.
        self._general = RowModel(self._libraries.of_every_instruction(), config.latency - bool(config.cuts))
        self._specialised: dict[Path, RowModel] = {}
        self._words = words
        low, width = row_interface(config).step["control"]
        self._word, self._bit, self._mask = low // 32, low % 32, np.uint32((1 << width) - 1 << low % 32)
        assert self._bit + width <= 32, "the control word is within a word of a step"

    def run(self, steps: NDArray[np.uint32]) -> NDArray[np.uint64]:
        """Compute steps in order, shape (count, words); return one result word per step, shape (count,)."""
        steps = np.ascontiguousarray(steps)
        assert steps.dtype == np.uint32
        assert steps.shape[1] == self._words
        return self._model_for(steps).run(steps)

    def _model_for(self, steps: NDArray[np.uint32]) -> RowModel:
        words = steps[:, self._word] & self._mask
        if not len(words) or (words != words[0]).any():
            return self._general
        library = self._libraries.of({int(words[0]) >> self._bit: len(words)})
        if library == self._libraries.of_every_instruction():
            return self._general
        if library not in self._specialised:
            self._specialised[library] = RowModel(library)
        return self._specialised[library]
