"""Cycle-by-cycle simulation of a netlist of library cells, for many input streams in parallel, with toggle counts.

Every net has one bit per stream. Gates of one function that settle at the same time are evaluated in one operation.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .netlist import Bit
from .plan import Plan

__all__ = ["STREAMS_OF_A_WORD", "Lanes", "Simulator", "packed", "unpacked"]

STREAMS_OF_A_WORD = 64
#: Values of several nets, shape (nets, words). Each bit of a word belongs to another input stream.
Lanes = NDArray[np.uint64]
_ONES = ~np.uint64(0)


def packed(bits: NDArray[np.uint8]) -> Lanes:
    """Pack the bits of nets in parallel simulations, shape (streams, nets), into 64-bit words, shape (nets, words)."""
    return np.packbits(np.ascontiguousarray(bits.T), axis=1, bitorder="little").view(np.uint64)


def unpacked(lanes: Lanes) -> NDArray[np.uint8]:
    """Unpack 64-bit words, shape (nets, words), to the bits of parallel simulations, shape (streams, nets)."""
    return np.unpackbits(np.ascontiguousarray(lanes).view(np.uint8), axis=1, bitorder="little").T


class Simulator:
    """Simulates a netlist of library cells and counts the toggles of its nets.

    For each cycle, call :meth:`begin`, :meth:`put` for each changed input, and :meth:`settle`. Registers begin at zero
    and load their data in every cycle. If the gates of the plan have delays, all toggles of their outputs until the
    netlist settles are counted. Otherwise a net toggles at most once per cycle. The values of a net are stored in
    64-bit words, each for 64 streams; `cycles` counts the cycles of all streams together.
    """

    def __init__(self, plan: Plan, words: int) -> None:
        self.cycles = 0
        self._plan = plan
        self._values = np.zeros((max(plan.rows.values()) + 1, words), np.uint64)
        self._values[1] = _ONES
        self._before = self._values.copy()
        self._toggles = np.zeros(len(self._values), np.int64)

    @property
    def toggles(self) -> dict[Bit, int]:
        """Number of toggles of each net in the cycles that were counted."""
        return {net: int(self._toggles[row]) for net, row in self._plan.rows.items() if not isinstance(net, str)}

    def rows_of(self, nets: Sequence[Bit]) -> NDArray[np.intp]:
        """Return, for :meth:`put` and :meth:`get`, the row of each net in the array of simulated values."""
        return np.array([self._plan.rows[net] for net in nets], np.intp)

    def begin(self) -> None:
        """Apply a clock edge: all registers load their data."""
        values = self._values
        np.copyto(self._before, values)
        for group in self._plan.registers:
            taken = self._before[group.data]
            values[group.outputs] = group.compute(dict(zip(group.states, (taken, ~taken), strict=False)), _ONES)

    def put(self, rows: NDArray[np.intp], lanes: Lanes) -> None:
        """Set the values of input nets in all parallel simulations. `rows` are the nets' rows from :meth:`rows_of`."""
        self._values[rows] = lanes

    def get(self, rows: NDArray[np.intp]) -> Lanes:
        """Return values of nets for all input streams; :meth:`rows_of` gives the array rows `rows` of the nets."""
        return self._values[rows]

    def settle(self, *, counted: bool) -> None:
        """Evaluate all gates in topological order. With `counted`, also count the toggles since the previous cycle."""
        values, toggles = self._values, self._toggles
        if self._plan.glitches:
            self._settle_in_time(counted=counted)
        else:
            for gates in self._plan.gates:
                values[gates.outputs] = gates.compute({pin: values[rows] for pin, rows in gates.pins.items()}, _ONES)
        if counted:
            seen = slice(0, self._plan.sources if self._plan.glitches else len(values))
            toggles[seen] += _ones(values[seen] ^ self._before[seen])
            self.cycles += values.shape[1] * STREAMS_OF_A_WORD

    def _settle_in_time(self, *, counted: bool) -> None:
        """Evaluate all gates in steps of one time unit, and count every toggle, glitches included."""
        values = self._values
        for time in range(1, self._plan.depth + 1):
            following = []
            for gates in self._plan.gates:
                # The output of a gate has its final value when the time equals the gate's logic level.
                first = int(np.searchsorted(gates.latest, time))
                if first < len(gates.latest):
                    new = gates.compute({pin: values[rows[first:]] for pin, rows in gates.pins.items()}, _ONES)
                    following.append((slice(gates.outputs.start + first, gates.outputs.stop), new))
            for outputs, new in following:
                if counted:
                    self._toggles[outputs] += _ones(values[outputs] ^ new)
                values[outputs] = new


def _ones(lanes: Lanes) -> NDArray[np.int64]:
    return np.bitwise_count(lanes).sum(axis=1, dtype=np.int64)
