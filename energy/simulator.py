"""Toggles of the nets of a mapped netlist: library cells on many streams at once, cycle by cycle.

Every net has a bit for each stream, and gates of one function that settle together are one operation on all of theirs.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .netlist import Bit
from .plan import Plan

__all__ = ["STREAMS_OF_A_WORD", "Lanes", "Simulator", "packed", "unpacked"]

STREAMS_OF_A_WORD = 64
#: A bit for each stream, of some nets, shape (nets, words).
Lanes = NDArray[np.uint64]
_ONES = ~np.uint64(0)


def packed(bits: NDArray[np.uint8]) -> Lanes:
    """Return zeros and ones, shape (streams, nets), by nets; the streams fill whole words."""
    return np.packbits(np.ascontiguousarray(bits.T), axis=1, bitorder="little").view(np.uint64)


def unpacked(lanes: Lanes) -> NDArray[np.uint8]:
    """Return zeros and ones, shape (streams, nets)."""
    return np.unpackbits(np.ascontiguousarray(lanes).view(np.uint8), axis=1, bitorder="little").T


class Simulator:
    """A netlist that is stepped, with a count of what its nets do.

    A cycle is :meth:`begin`, a :meth:`put` for each input that changes, and :meth:`settle`.

    Parameters
    ----------
    plan : Plan
        Of the netlist; registers hold zero at first, and every one takes what it sees in every cycle. Where gates take
        time, all that their outputs do until the netlist is settled is counted, however short; otherwise a net toggles
        once in a cycle or not at all.
    words : int
        As many times 64 streams.

    Attributes
    ----------
    cycles : int
        That were counted, of all streams together.
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
        """Of each net, in the cycles that were counted."""
        return {net: int(self._toggles[row]) for net, row in self._plan.rows.items() if not isinstance(net, str)}

    def rows_of(self, nets: Sequence[Bit]) -> NDArray[np.intp]:
        """Return where nets are, for :meth:`put` and :meth:`get`."""
        return np.array([self._plan.rows[net] for net in nets], np.intp)

    def begin(self) -> None:
        """Let all registers take what they see."""
        values = self._values
        np.copyto(self._before, values)
        for held in self._plan.registers:
            taken = self._before[held.data]
            values[held.outputs] = held.compute(dict(zip(held.states, (taken, ~taken), strict=False)), _ONES)

    def put(self, rows: NDArray[np.intp], lanes: Lanes) -> None:
        """Change nets that come from outside."""
        self._values[rows] = lanes

    def get(self, rows: NDArray[np.intp]) -> Lanes:
        """Return what nets have."""
        return self._values[rows]

    def settle(self, *, counted: bool) -> None:
        """Let the gates follow, and count what happened since the cycle before if told so."""
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
        """Let the gates follow, a unit of time after the other, and count what they do."""
        values = self._values
        for time in range(1, self._plan.depth + 1):
            following = []
            for gates in self._plan.gates:
                # A gate is settled when so much time has passed as the longest way to it takes.
                first = int(np.searchsorted(gates.latest, time))
                if first < len(gates.latest):
                    new = gates.compute({pin: values[rows[first:]] for pin, rows in gates.pins.items()}, _ONES)
                    following.append((slice(gates.outputs.start + first, gates.outputs.stop), new))
            for outputs, new in following:
                if counted:
                    self._toggles[outputs] += _ones(values[outputs] ^ new)
                values[outputs] = new


def _ones(lanes: Lanes) -> NDArray[np.int64]:
    """Return the number of ones of each net."""
    return np.bitwise_count(lanes).sum(axis=1, dtype=np.int64)
