"""Order of accesses to tensor memory, and order of shared-memory accesses by ``tcgen05.mma`` and ``tcgen05.cp``.

Multiplications and copies are numbered in the order of issue. A commit stores the number of its thread's last
instruction at an ``mbarrier``. For a thread that has waited there, all instructions up to this number are complete: the
number is one more component of the clocks of :mod:`sptc.kernels.checker`. For each word of tensor memory, the checker
stores the number of the last multiplication or copy that writes it, and the last warp that loaded or stored it; for
each word of shared memory, the number of the last multiplication or copy that reads it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..isa.tensor_memory import COLUMNS, LANES
from .machine import Machine
from .memory import cells_of, pieces_of, views
from .program import Instruction

__all__ = ["Accesses", "TensorOrder"]

_WORD = 4
_NOBODY = -1
#: Section of the PTX ISA that defines the order of ``tcgen05`` instructions.
_RULE = "tcgen05 Memory Consistency Model"
_Index = Any


@dataclass(frozen=True)
class Accesses:
    """Words of tensor memory and bytes of shared memory that a multiplication or copy accesses in each of its CTAs."""

    #: Indices of the words of tensor memory that are written, and indices of the words that are read.
    written: NDArray[np.intp]
    read: NDArray[np.intp]
    #: Columns of the words of tensor memory that are accessed.
    columns: NDArray[np.intp]
    #: Offsets in shared memory that are read, and the number of bytes that are read at each offset.
    at: NDArray[np.int64]
    octets: int

    @classmethod
    def of(cls, written: NDArray[np.bool_], read: NDArray[np.bool_], shared: list[NDArray[np.int64]]) -> "Accesses":
        """Convert masks (128, 512) of written and read tensor-memory words, and shared-memory offsets, to accesses."""
        at, octets = pieces_of(np.concatenate([places.ravel() for places in shared]))
        columns = np.flatnonzero((written | read).any(0))
        return cls(np.flatnonzero(written), np.flatnonzero(read), columns, at, octets)


class TensorOrder:
    """Data of the checker: numbers of asynchronous ``tcgen05`` instructions, and last accesses to each memory word."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.checker = machine, machine.checker
        #: Line number in the PTX text of each multiplication and copy, indexed by the number of the instruction.
        self.lines = [0]
        #: Number of the last multiplication or copy that each thread issued.
        self._last: dict[int, int] = {}
        shape = (machine.ctas, LANES * COLUMNS)
        #: Number of the last multiplication or copy that writes each word of tensor memory.
        self.number = np.zeros(shape, np.int32)
        #: For each word of tensor memory: the last warp that loaded or stored the word, the time and line of this
        #: access, and whether it was a store.
        self.warp = np.full(shape, _NOBODY, np.int16)
        self.time, self.warp_line = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
        self.stored = np.zeros(shape, np.bool_)
        machine.checker.tensor_cores = self
        #: Number of the last multiplication or copy that reads each word of shared memory.
        self.shared_number = views(np.zeros(machine.shared.size // _WORD, np.uint32))

    def access(self, ins: Instruction, threads: NDArray[np.intp], words: _Index, *, is_store: bool) -> None:
        """Check and record tensor-memory accesses. `words` has CTA, lane and column, each of shape (threads, words)."""
        group, warp = self.checker.warps_of(threads)
        cta, lane, column = words
        words = cta, lane * COLUMNS + column
        late = self.number[words] > self.checker.done[group, warp][:, None]
        if late.any():
            thread, place = np.argwhere(late)[0].tolist()
            line = self.lines[int(self.number[words][thread, place])]
            verb = "overwrites" if is_store else "reads"
            what = f"the instruction {verb} tensor memory that line {line} may still write"
            self._report(ins, "tensor memory accessed before the wait", what, int(threads[thread]))
        own = np.broadcast_to(warp[:, None], late.shape)
        self.warp[words], self.warp_line[words], self.stored[words] = own, ins.line, is_store
        self.time[words] = self.checker.seen[group, warp, warp][:, None]

    def issue(self, ins: Instruction, thread: int, ctas: Sequence[int], accesses: Accesses) -> None:
        """Check and record the memory accesses of a multiplication or copy that a thread issues, in each given CTA."""
        number = self._last[thread] = len(self.lines)
        self.lines.append(ins.line)
        (group,), (warp,) = self.checker.warps_of(np.array([thread]))
        for cta in ctas:
            for words, verb in ((accesses.written, "overwrites"), (accesses.read, "reads")):
                owner = self.warp[cta][words]
                unseen = (owner != _NOBODY) & (owner != warp)
                unseen &= self.checker.seen[group, warp, owner] < self.time[cta][words]
                if verb == "reads":
                    unseen &= self.stored[cta][words]
                if unseen.any():
                    first = int(unseen.argmax())
                    did = "stored" if self.stored[cta][words][first] else "loaded"
                    what = (
                        f"the instruction {verb} tensor memory that warp {owner[first]} {did} at line "
                        f"{self.warp_line[cta][words][first]}, and no barrier orders the two accesses"
                    )
                    self._report(ins, "race on tensor memory", what, thread)
            self.number[cta, accesses.written] = number
        if accesses.at.size:
            starts = np.array(ctas)[:, None] * self.machine.shared_bytes
            at = (accesses.at + starts).ravel()
            self.checker.reads_in_bulk(ins, [thread], at, accesses.octets)
            count, cells = cells_of(at, accesses.octets)
            kept = self.shared_number[count]
            kept[cells] = np.full(count, number, np.uint32).view(kept.dtype)

    def committed(self, thread: int) -> int:
        """Return the number of a thread's last multiplication or copy, which a commit of the thread waits for."""
        return self._last.get(thread, 0)

    def overwrite(
        self, ins: Instruction, count: int, cells: NDArray[np.int64], done: NDArray[np.integer], thread: int
    ) -> None:
        """Report a write to shared memory that an unfinished ``tcgen05`` (with number above `done`) may still read."""
        numbers = self.shared_number[count].take(cells).view(np.uint32).reshape(-1, count)
        late = numbers > done[:, None]
        if late.any():
            line = self.lines[int(numbers[late][0])]
            what = f"the instruction overwrites shared memory that line {line} may still read"
            self._report(ins, "overwrite of data that tcgen05 still reads", what, thread)

    def _report(self, ins: Instruction, kind: str, what: str, thread: int) -> None:
        self.machine.report(ins, kind, _RULE, what, self.machine.who(thread))
