"""Python interface of ``drivers/stream.cpp``: compiled models of a core or a warp."""

import ctypes
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .array_units import FUNCTIONS, unit_functions
from .driver import driver
from .pattern import pattern_constants

__all__ = ["StreamModel", "stream_driver"]


def stream_driver(ports: Sequence[str], top: str, more: Sequence[str] = ()) -> dict[str, str]:
    """Return the C++ that drives a model of a component with one result for each item.

    Parameters
    ----------
    ports : sequence of str
        Ports of the component, among them those of the streams ``i`` and ``o``.
    top : str
        Top module.
    more : sequence of str
        Further driver files for the same model.
    """
    return driver("stream.cpp", pattern_constants(), top=top, ports=ports, more=more)


class StreamModel:
    """One component of a compiled library.

    Parameters
    ----------
    library : ctypes.CDLL
        Library built with ``drivers/stream.cpp``.
    units : Path, optional
        Library of its units; None if `library` contains them.
    """

    def __init__(self, library: ctypes.CDLL, units: Path | None = None) -> None:
        self._library = library
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        library.stream_create.restype = pointer
        library.stream_create.argtypes = [pointer] * len(FUNCTIONS)
        library.stream_destroy.argtypes = [pointer]
        library.stream_run.restype = ctypes.c_char_p
        library.stream_run.argtypes = [*[pointer] * 6, number, pointer, *[number] * 3, pointer]
        self._handle = library.stream_create(*unit_functions(units))

    def check(
        self, items: bytes, expected: bytes, count: int, pattern: NDArray[np.uint16], longest_wait: int
    ) -> tuple[str, int]:
        """Run at most as many cycles as the pattern has, and compare results.

        Parameters
        ----------
        items, expected : bytes
            Payloads of `count` items and of their results.
        count : int
            Number of items.
        pattern : ndarray of uint16
            :class:`~sptc.sim.engine.pattern.CycleBits` of every cycle.
        longest_wait : int
            Largest number of cycles for which a result may be late, and for which an item may be refused.

        Returns
        -------
        tuple of str and int
            Broken rule, empty for none, and number of items taken.
        """
        return self._run(items, expected, (None,) * 3, count, pattern, len(pattern), longest_wait)

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

        Parameters
        ----------
        items : ndarray of uint32, shape (count, words)
            Payloads of the items.
        results : ndarray of uint32, shape (count, words)
            Filled with the results.
        accepted, done : ndarray of int64, shape (count,)
            Filled with the cycles in which each item was taken and its result was taken.
        pattern : ndarray of uint16
            :class:`~sptc.sim.engine.pattern.CycleBits` of each cycle, repeated; without resets.
        longest_wait : int
            As in :meth:`check`.
        """
        filled = tuple(array.ctypes.data for array in (results, accepted, done))
        cycles = np.iinfo(np.int64).max
        return self._run(items.ctypes.data, None, filled, len(items), pattern, cycles, longest_wait)[0]

    def _run(
        self,
        items: bytes | int,
        expected: bytes | None,
        filled: tuple[int | None, ...],
        count: int,
        pattern: NDArray[np.uint16],
        cycles: int,
        longest_wait: int,
    ) -> tuple[str, int]:
        taken = ctypes.c_int64()
        broken = self._library.stream_run(
            self._handle, items, expected, *filled, count, pattern.ctypes.data, len(pattern), cycles, longest_wait,
            ctypes.byref(taken),
        )  # fmt: skip
        return (broken or b"").decode(), taken.value

    def select_fault(self, number: int) -> None:
        """Activate a fault of a model that has faults; zero for none."""
        self._library.select_fault(ctypes.c_void_p(self._handle), number)

    def __del__(self) -> None:
        if handle := getattr(self, "_handle", None):
            self._library.stream_destroy(handle)
