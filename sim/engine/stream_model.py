"""Python interface of ``drivers/stream.cpp``: compiled models of a core or a warp."""

import ctypes
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .array_units import unit_functions
from .driver import CompiledModel, driver, pattern_constants

__all__ = ["StreamModel", "stream_driver"]


def stream_driver(ports: Sequence[str], top: str, more: Sequence[str] = ()) -> dict[str, str]:
    """Return the C++ that drives a model with one result for each item; parameters as for :func:`.driver.driver`."""
    return driver("stream.cpp", pattern_constants(), top=top, ports=ports, more=more)


class StreamModel(CompiledModel):
    """One component of a library built with ``drivers/stream.cpp``; its units may be in another library."""

    prefix = "stream"
    arguments = (*[ctypes.c_void_p] * 5, ctypes.c_int64, ctypes.c_void_p, *[ctypes.c_int64] * 3, ctypes.c_void_p)

    def __init__(self, library: ctypes.CDLL, units: Path | None = None) -> None:
        super().__init__(library, *unit_functions(units))

    def check(
        self, items: bytes, expected: bytes, count: int, pattern: NDArray[np.uint16], longest_wait: int
    ) -> tuple[str, int]:
        """Run `count` items and compare results; return the broken rule, empty for none, and the number of items taken.

        `items` and `expected` are payloads. The pattern has the :class:`~sptc.sim.engine.driver.CycleBits` of each
        cycle that may run. A result may be late, and an item refused, for `longest_wait` cycles.
        """
        taken = ctypes.c_int64()
        limits = len(pattern), len(pattern), longest_wait
        broken = self.run_driver(items, expected, *[None] * 3, count, pattern.ctypes.data, *limits, ctypes.byref(taken))
        return broken, taken.value

    def record(
        self,
        items: NDArray[np.uint32],
        results: NDArray[np.uint32],
        accepted: NDArray[np.int64],
        done: NDArray[np.int64],
        pattern: NDArray[np.uint16],
        longest_wait: int,
    ) -> str:
        """Run until every item has its result; return the broken rule, empty for none.

        `results`, and the cycles `accepted` and `done` in which each item and its result were taken, are filled, with
        an element for each item. The pattern repeats and has no resets.
        """
        filled = (array.ctypes.data for array in (results, accepted, done))
        limits = len(pattern), np.iinfo(np.int64).max, longest_wait
        taken = ctypes.c_int64()
        return self.run_driver(
            items.ctypes.data, None, *filled, len(items), pattern.ctypes.data, *limits, ctypes.byref(taken)
        )
