"""Convergence of threads: each thread waits at an instruction ``.sync`` for the threads that must execute it together.

Source: PTX ISA, ``shfl.sync``, ``vote.sync``, ``redux.sync``, ``elect.sync`` and ``bar.warp.sync``: a thread waits
until all threads of the member mask that have not exited execute the same instruction, or a ``bar.warp.sync`` with the
same member mask. At an instruction ``.sync.aligned`` without a member mask, a thread waits for all threads of its warp;
at ``wgmma``, this model waits for all threads of the warpgroup.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .machine import LANE_BITS, WARP, WARPGROUP, Machine
from .program import Instruction
from .registers import Reader

__all__ = ["Convergence"]

#: Key: first part of the opcode of an instruction with a member mask. Value: index of the operand with this mask.
_MEMBER_MASKS = {"shfl": 4, "vote": 2, "match": 2, "redux": 2, "elect": 1, "bar": 0}


@dataclass(frozen=True)
class _Meeting:
    """Condition under which threads may execute an instruction ``.sync``."""

    group: int  #: Number of threads that wait for each other: those of a warp or of a warpgroup
    members: Reader | None  #: Function that reads the member masks, or None if all threads of the group are members
    guard: Reader | None  #: Function that reads the guard predicate, or None without a guard
    is_barrier: bool  #: Whether the instruction is ``bar.warp.sync``, which threads may execute at different lines


class Convergence:
    """Threads that wait at instructions ``.sync`` for other threads of their warp or warpgroup.

    `counters` are the program counters of all threads, and `alive` tells which threads have not exited. Both arrays
    belong to the caller, which modifies them in place.
    """

    def __init__(self, machine: Machine, counters: NDArray[np.int64], alive: NDArray[np.bool_]) -> None:
        self.machine, self.counters, self.alive = machine, counters, alive
        #: Threads that wait at the instruction to which their program counter points.
        self.waiting = np.zeros(machine.count, np.bool_)
        #: Threads at a complete ``bar.warp.sync``. They pass the barrier when they are executed the next time.
        self.passing = np.zeros(machine.count, np.bool_)
        #: Member mask of each thread that waits.
        self._masks = np.zeros(machine.count, np.uint32)
        self._meetings: dict[int, _Meeting] = {}
        self._barriers: list[int] = []
        self._largest_group = 1

    def __contains__(self, place: int) -> bool:
        return place in self._meetings

    def add(self, place: int, ins: Instruction) -> None:
        """Record that threads meet at the instruction at index `place` if its opcode has the qualifier ``.sync``."""
        words, machine = ins.words, self.machine
        if "sync" not in words:
            return
        index = _MEMBER_MASKS.get(words[0], len(ins.operands))
        members = machine.reader(ins.operands[index], "u32") if index < len(ins.operands) else None
        guard = machine.reader(ins.guard, "pred") if ins.guard else None
        group = WARPGROUP if words[0] == "wgmma" and not machine.threads % WARPGROUP else WARP
        self._meetings[place] = _Meeting(group, members, guard, words[0] == "bar")
        self._largest_group = max(self._largest_group, group)
        if words[0] == "bar":
            self._barriers.append(place)

    def converged(self, threads: NDArray[np.bool_]) -> bool:
        """Return whether no thread waits, and `threads` contains all or no threads of each warp (or warpgroup)."""
        if self.waiting.any() or self.passing.any():
            return False
        groups = threads.reshape(-1, self._largest_group)
        return np.array_equal(groups.any(1), groups.all(1))

    def arrive(self, place: int, threads: NDArray[np.bool_]) -> bool:
        """Return whether all `threads`, which have arrived at an instruction, execute the instruction now.

        Otherwise some of them wait until other threads arrive, or threads that waited are released, so that all
        released threads execute the instruction together when they arrive the next time.
        """
        meeting, passing = self._meetings[place], self.passing
        size = meeting.group
        here = self.waiting & (np.isin(self.counters, self._barriers) if meeting.is_barrier else self.counters == place)
        arrived = (threads | here) & ~passing
        guard = self.machine.every(meeting.guard()) if meeting.guard else np.ones(1, np.bool_)
        executing = arrived & (guard | here)
        missing = self.alive & ~arrived
        if meeting.members:
            np.copyto(self._masks, self.machine.every(meeting.members()), where=executing & ~here)
            complete = self._masks & self._lanes(missing) == 0
            if meeting.is_barrier:  # each thread waits for threads with the same member mask
                complete[:] = False
                for mask in np.unique(self._masks[executing]):
                    same = executing & (self._masks == mask)
                    complete |= same & (mask & self._lanes(self.alive & ~same) == 0)
        else:
            complete = ~missing.reshape(-1, size).any(1).repeat(size)
        stuck, released = executing & ~complete, here & complete
        self.waiting = self.waiting & ~released | stuck
        go = not (stuck & threads).any() and (meeting.is_barrier or not released.any())
        if meeting.is_barrier:
            self.passing = (passing | executing & complete) & ~(threads & go)
        return go

    def _lanes(self, threads: NDArray[np.bool_]) -> NDArray[np.uint32]:
        """Return for each thread a 32-bit mask of the lanes of its warp that are among `threads`."""
        return (threads.reshape(-1, WARP) * LANE_BITS).sum(1, dtype=np.uint32).repeat(WARP)

    def exits(self) -> None:
        """Release the threads that waited only for threads that have exited."""
        for place in np.unique(self.counters[self.waiting]).tolist():
            self.arrive(place, np.zeros_like(self.waiting))
