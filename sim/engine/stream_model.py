"""Models of a core or a warp behind ``drivers/stream.cpp``."""

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
    """Return the C++ that drives a model of a component that answers each item with one result.

    Parameters
    ----------
    ports : sequence of str
        Its ports, among them the streams ``i`` and ``o``.
    top : str
        Its top module.
    more : sequence of str
        Further drivers of it.
    """
    return driver("stream.cpp", pattern_constants(), top=top, ports=ports, more=more)


class StreamModel:
    """A component of a library.

    Parameters
    ----------
    library : ctypes.CDLL
        Of ``drivers/stream.cpp``.
    units : Path, optional
        The library of its units, unless it contains them.
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
        """Run as many cycles as a pattern has and compare results.

        Parameters
        ----------
        items, expected : bytes
            Payloads of `count` items and of their results.
        count : int
            Items.
        pattern : ndarray of uint16
            :class:`~sptc.sim.engine.pattern.CycleBits` of every cycle.
        longest_wait : int
            Cycles that a result may take, and an item be refused.

        Returns
        -------
        tuple of str and int
            The rule that is broken, empty for none, and how many items were taken.
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
        """Run until every item has its result; return the rule that is broken, empty for none.

        Parameters
        ----------
        items : ndarray of uint32, shape (count, words)
            Payloads.
        results : ndarray of uint32, shape (count, words)
            Is filled with their results.
        accepted, done : ndarray of int64, shape (count,)
            Are filled with the cycles in which each item was taken, and its result.
        pattern : ndarray of uint16
            Of each cycle, repeated.
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
