"""Checker of the order of accesses to shared memory: data races, and reads by the asynchronous proxy without a fence.

Every warp has a vector clock: for each warp of its cluster, the time up to which it has seen that warp's accesses. A
barrier or an ``mbarrier`` passes the clocks of arriving threads to waiting threads. A second vector clock holds, for
each warp, the time up to which the asynchronous proxy sees its writes; ``fence.proxy.async`` sets the second clock to
the first; the fence may therefore precede or follow a barrier. Each word of shared memory has a record of its last
write, of the copies in flight that may still write it, and of the multiplications in flight that may still read it.

Accesses by threads of one warp are assumed to be ordered. Every reported access is undefined by PTX ("Memory
Consistency Model", "Async proxy"), but not every undefined access is reported.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..isa.memory import UNIT_BYTES
from .machine import WARP, Machine
from .memory import cells_of, views
from .program import Instruction
from .registers import Mask
from .tensor_order import TensorOrder
from .tiles import CopiedTiles

__all__ = ["Checker"]

_WORD = 4
#: Number that is recorded, in place of a warp number, for a word that was never accessed.
_NOBODY = -1
#: Limit for the number of recorded accesses. Above this limit, accesses that are no longer the last access to any word
#: are dropped.
_MOST_ACCESSES = 1 << 22
#: Initial capacity of the table of accesses. The table grows when it is full.
_FIRST_ACCESSES = 1 << 10


class Checker:
    """Vector clocks of the warps of a batch of CTAs, and the last writer of each word of shared memory."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        #: Number of warps per cluster. The vector clock of each warp has one component for every warp of the cluster.
        self.warps = machine.threads * machine.launch.cluster_size // WARP
        # A vector clock has one component for each warp, one for writes of the asynchronous proxy, and one for tcgen05.
        shape = (machine.ctas // machine.launch.cluster_size, self.warps, self.warps + 2)
        #: Two vector clocks of each warp. Clock `seen`: time up to which the warp has seen the accesses of each warp.
        #: Clock `fenced`: time up to which the asynchronous proxy sees the writes of each warp.
        self.seen, self.fenced = self.clocks = np.zeros((2, *shape), np.int32)
        self.seen[:, np.arange(self.warps), np.arange(self.warps)] = 1
        #: Number of the last ``tcgen05`` instruction whose completion each warp has observed.
        self.done = self.seen[..., self.warps + 1]
        self.tensor_cores: TensorOrder | None = None
        words = machine.shared.size // _WORD
        #: Access number of the last write, and of the last read by threads, of each word of shared memory.
        self.last = {verb: views(np.zeros(words, np.uint32)) for verb in ("wrote", "read")}
        #: Warp (or proxy), time and line of each access, indexed by the access number. Number 0 means no access.
        self.accesses = np.full((3, _FIRST_ACCESSES), _NOBODY, np.int32)
        self.count = 1
        #: Key: ``wrote`` or ``read``. Value: number of the access up to which all warps have seen all writes or all
        #: reads by threads. Only accesses with larger numbers must be checked.
        self.settled = {"wrote": 0, "read": 0}
        self.number_of_warp = np.arange(machine.count // WARP, dtype=np.uint32)
        #: Key: ``read`` or ``write``. Value, for each word of shared memory: number of unfinished copies and
        #: multiplications that may still read or write the word, and line of the latest such copy or multiplication.
        self.in_flight = {name: views(np.zeros(words, np.uint16)) for name in ("read", "write")}
        self.in_flight_line = {name: views(np.zeros(words, np.uint32)) for name in ("read", "write")}
        #: Number of shared-memory cells (1, 2 or 4 words) that unfinished copies and multiplications read, and write.
        self.flying = {"read": 0, "write": 0}
        #: First part of the opcode (before the first dot) of the instruction at each line.
        self.opcodes = {ins.line: ins.words[0] for ins in machine.kernel.instructions}
        #: For each barrier: the vector clocks `seen` and `fenced` that threads stored in the barrier when they arrived.
        self.left: dict[Any, NDArray[np.int32]] = defaultdict(lambda: np.zeros((2, self.warps + 2), np.int32))
        #: Two vector clocks of each word of shared memory with strong accesses, shape (2, words, components), and the
        #: index of each word of shared memory in this array.
        self.word_clocks = np.zeros((2, 0, self.warps + 2), np.int32)
        self.slot_of_word = np.zeros(0, np.int64)
        self.bulk_time = 0
        #: Record of the copies to shared memory. It is None if the kernel has no ``wgmma`` descriptors to compare the
        #: copies with.
        self.tiles = CopiedTiles(machine) if "wgmma" in self.opcodes.values() else None

    # Methods that check and record reads and writes of shared memory

    def _of_threads(
        self, mask: Mask, at: NDArray[np.int64], octets: int
    ) -> tuple[int, NDArray[np.int64], NDArray[np.intp]]:
        """Return the words per cell (unit of checking), the index of each accessed cell, and each access's thread."""
        threads, every = self.machine.active(mask), self.machine.every(at)
        count, cells = cells_of(every if mask is None else every[threads], octets)
        return count, cells, threads if len(cells) == len(threads) else threads.repeat(len(cells) // len(threads))

    def _add(self, writers: NDArray | int, times: NDArray | int, line: int) -> int:
        """Record accesses under consecutive numbers, and return the first number."""
        size = np.size(writers)
        if self.count + size > self.accesses.shape[1]:
            if self.count > _MOST_ACCESSES:
                self._drop()
            self.accesses = np.pad(self.accesses, ((0, 0), (0, self.count + size)), constant_values=_NOBODY)
        first, self.count = self.count, self.count + size
        for row, values in enumerate((writers, times, line)):
            self.accesses[row, first : self.count] = values
        return first

    def _drop(self) -> None:
        """Drop accesses that are no longer the last access to any word, and renumber the remaining accesses."""
        live = np.zeros(self.count, np.bool_)
        live[0] = True
        for last in self.last.values():
            live[last[1]] = True
        numbers = np.cumsum(live, dtype=np.uint32) - np.uint32(1)
        for verb, last in self.last.items():
            last[1][:] = numbers[last[1]]
            self.settled[verb] = int(numbers[self.settled[verb]])
        kept = np.flatnonzero(live)
        self.accesses[:, : len(kept)], self.count = self.accesses[:, kept], len(kept)

    def _note(self, ins: Instruction, verb: str, count: int, cells: NDArray[np.int64], threads: NDArray) -> None:
        """Record that each thread wrote or read (`verb` says which) a cell: `count` adjacent words of shared memory."""
        own = np.arange(self.warps)
        first = self._add(np.tile(own, len(self.seen)), self.seen[:, own, own].ravel(), ins.line)
        last = self.last[verb][count]
        cell = (self.number_of_warp + np.uint32(first)).repeat(count).view(last.dtype)
        last[cells] = cell.repeat(WARP) if threads is self.machine.thread_numbers else cell[threads // WARP]

    def _unseen(
        self, verb: str, count: int, cells: NDArray[np.int64], threads: NDArray[np.intp]
    ) -> tuple[int, int] | None:
        """Find a word whose last access is not ordered before a thread's access. Return word and thread, or None."""
        numbers = self.last[verb][count].take(cells).view(np.uint32)
        if not numbers.size or int(numbers.max()) <= self.settled[verb]:
            return None
        writer, time, _ = self.accesses[:, numbers]
        group, warp = self.warps_of(threads.repeat(count) if len(threads) > 1 else threads)
        unseen = (writer != _NOBODY) & (writer != warp) & (self.seen[group, warp, writer] < time)
        if not unseen.any():
            return None
        first, inside = divmod(int(unseen.argmax()), count)
        return int(cells[first]) * count + inside, int(threads[first % len(threads)])

    def wrote(
        self,
        ins: Instruction,
        mask: Mask,
        at: NDArray[np.int64],
        octets: int,
        origins: NDArray[np.int64] | None = None,
    ) -> None:
        """Check and record a write to shared memory. `origins` are the offsets in global memory that a copy reads."""
        count, cells, threads = self._of_threads(mask, at, octets)
        self._not_in_flight(ins, count, cells, "read")
        if self.tiles:
            if origins is not None:
                origins = self.machine.every(origins)[self.machine.active(mask)][:, None] + np.arange(0, octets, _WORD)
            self.tiles.write(ins, count, cells, origins)
        self._overwrite(ins, threads, count, cells, whole=octets >= _WORD)
        if octets >= _WORD and (at_fault := self._unseen("wrote", count, cells, threads)):
            self._report(ins, "overwrites", "and no barrier orders the two accesses", *at_fault)
        self._note(ins, "wrote", count, cells, threads)

    def overwrite(self, ins: Instruction, threads: NDArray[np.intp], at: NDArray[np.int64], octets: int) -> None:
        """Check that earlier reads are ordered before copies to offsets `at`. `threads`: one, or one per offset."""
        count, cells = cells_of(at, octets)
        self._overwrite(ins, threads.repeat(len(cells) // len(at)) if len(threads) > 1 else threads, count, cells)

    def _overwrite(
        self,
        ins: Instruction,
        threads: NDArray[np.intp],
        count: int,
        cells: NDArray[np.int64],
        *,
        whole: bool = True,
    ) -> None:
        """Check that earlier reads are ordered before a write. If `whole` is False, check only reads by ``tcgen05``."""
        if self.tensor_cores and threads.size:
            self.tensor_cores.overwrite(ins, count, cells, self.done[self.warps_of(threads)], int(threads[0]))
        if whole and (at_fault := self._unseen("read", count, cells, threads)):
            self._report(ins, "overwrites", "and no barrier orders the two accesses", *at_fault, did="read")

    def warps_of(self, threads: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the cluster of each thread, and the number of the thread's warp in the cluster."""
        group, warp = np.divmod(threads // WARP, self.warps)
        return group, warp

    def reads(self, ins: Instruction, mask: Mask, at: NDArray[np.int64], octets: int) -> None:
        """Check that the last write to each word that threads read is ordered before the read, and record the read."""
        count, cells, threads = self._of_threads(mask, at, octets)
        self._not_in_flight(ins, count, cells, "write")
        if self.tiles:
            self.tiles.read(count, cells)
        if at_fault := self._unseen("wrote", count, cells, threads):
            self._report(ins, "reads", "and no barrier orders the two accesses", *at_fault)
        self._note(ins, "read", count, cells, threads)

    def wrote_in_bulk(
        self, ins: Instruction, at: NDArray[np.int64], barrier: int, origins: NDArray[np.int64] | None = None
    ) -> None:
        """Record a bulk copy to units of 16 bytes at the offsets `at`, which completes at an ``mbarrier``.

        `origins` are the offsets in global memory of the copied words.
        """
        self.bulk_time += 1
        count, cells = cells_of(at, UNIT_BYTES)
        self._not_in_flight(ins, count, cells, "read")
        if self.tiles:
            self.tiles.write(ins, count, cells, origins)
        number = self._add(self.warps, self.bulk_time, ins.line)
        self.last["wrote"][count][cells] = np.full(count, number, np.uint32).view(self.last["wrote"][count].dtype)
        self._leave(("mbarrier", barrier), self.bulk_time, self.warps)

    def reads_in_bulk(self, ins: Instruction, threads: Sequence[int], at: NDArray[np.int64], octets: int) -> None:
        """Check that ``fence.proxy.async`` follows the last write to every word that the asynchronous proxy reads.

        `threads` are the first threads of the warps that started the read; `octets` bytes are read at each offset `at`.
        """
        count, cells = cells_of(at, octets)
        self._not_in_flight(ins, count, cells, "write")
        if self.tiles:
            self.tiles.read(count, cells)
        group, warps = self.warps_of(np.array(threads))
        fenced = self.fenced[group, warps].max(0)
        fenced[self.warps] = self.seen[group, warps, self.warps].max()
        writer, time, _ = self.accesses[:, self.last["wrote"][count].take(cells).view(np.uint32)]
        unseen = (writer != _NOBODY) & (fenced[writer] < time)
        if unseen.any():
            first, inside = divmod(int(unseen.argmax()), count)
            word = int(cells[first]) * count + inside
            fence = writer[first * count + inside] < self.warps
            what = f"and no {'fence.proxy.async' if fence else 'wait'} lies between the accesses"
            self._report(ins, "reads", what, word, threads[0])

    def begins(self, ins: Instruction, at: NDArray[np.int64], octets: int, access: str) -> None:
        """Record the start of asynchronous work on bytes of shared memory. `access` is ``"read"`` or ``"write"``."""
        count, cells = cells_of(at, octets)
        ones, line = views(np.ones(8, np.uint16))[count][0], views(np.full(4, ins.line, np.uint32))[count][0]
        np.add.at(self.in_flight[access][count], cells, ones)
        self.in_flight_line[access][count][cells] = line
        self.flying[access] += len(cells)

    def ends(self, at: NDArray[np.int64], octets: int, access: str) -> None:
        """Record the end of asynchronous work that reads or writes bytes of shared memory."""
        count, cells = cells_of(at, octets)
        np.subtract.at(self.in_flight[access][count], cells, views(np.ones(8, np.uint16))[count][0])
        self.flying[access] -= len(cells)

    def _not_in_flight(self, ins: Instruction, count: int, cells: NDArray[np.int64], access: str) -> None:
        """Report accesses to words of shared memory that unfinished asynchronous work may still read or write."""
        if not self.flying[access]:
            return
        busy = self.in_flight[access][count].take(cells)
        if busy.any():
            first, inside = divmod(int((busy.view(np.uint16) > 0).argmax()), count)
            line = int(self.in_flight_line[access][1][int(cells[first]) * count + inside])
            other = "wgmma" if self.opcodes[line] == "wgmma" else "copy"
            touches = "reads" if access == "write" else "overwrites"
            kind = f"{touches[:-1]} of data that a {other} still {access}s"
            what = f"the instruction {touches} shared memory that the {other} of line {line} may still {access}"
            self.machine.report(ins, kind, "Memory Consistency Model", what)

    def _report(self, ins: Instruction, verb: str, why: str, word: int, thread: int, did: str = "wrote") -> None:
        start, size = word * _WORD, self.machine.shared_bytes
        by, _, line = self.accesses[:, self.last[did][1][word]].tolist()
        who = self._warp_name(by, thread) if by < self.warps else "the asynchronous proxy"
        kind = "no proxy fence" if "fence" in why else "race" if did == "wrote" else "overwrite of data read by a warp"
        rule = "Async proxy" if "fence" in why else "Memory Consistency Model"
        what = f"the instruction {verb} shared memory that {who} {did} at line {line}, {why}"
        self.machine.report(ins, kind, rule, what, f"address {start % size:#x}, {self.machine.who(thread)}")

    def _warp_name(self, warp: int, thread: int) -> str:
        """Return a warp's name for a message about `thread`; the name includes the warp's CTA if it is another CTA."""
        each, own = self.machine.threads // WARP, thread // self.machine.threads
        size = self.machine.launch.cluster_size
        cta = own // size * size + warp // each
        return f"warp {warp % each}" + (f" of CTA {self.machine.place_of(cta)}" if cta != own else "")

    # Methods that pass vector clocks between warps and barriers

    def fence(self, mask: Mask) -> None:
        """Execute ``fence.proxy.async``: the asynchronous proxy then sees all writes ordered before the fence."""
        group, warp = self.warps_of(np.unique(self.machine.active(mask) // WARP) * WARP)
        self.fenced[group, warp] = np.maximum(self.fenced[group, warp], self.seen[group, warp])

    def _leave(self, barrier: Any, clocks: NDArray[np.int32] | int, component: int | slice = slice(None)) -> None:
        """Merge vector clocks, or one component of a clock, into the vector clocks that are stored at a barrier."""
        left = self.left[barrier][:, component]
        np.maximum(left, clocks, out=left)

    def complete(self, barriers: Sequence[Any], number: int) -> None:
        """In each barrier, store the number of the latest ``tcgen05`` instruction that has completed."""
        for barrier in barriers:
            self._leave(barrier, number, self.warps + 1)

    def join(self, ctas: NDArray[np.intp]) -> None:
        """Merge the vector clocks of all warps of each given CTA, which meet at a barrier of the whole CTA."""
        size, each = self.machine.launch.cluster_size, self.machine.threads // WARP
        seen_by_cta, fenced_by_cta = (
            clocks.reshape(self.machine.ctas, each, -1) for clocks in (self.seen, self.fenced)
        )
        seen, row, own = seen_by_cta[ctas], np.arange(len(ctas))[:, None], np.arange(each)
        column = own + ctas[:, None] % size * each
        times = seen[row, own, column] + 1
        seen[:] = seen.max(1, keepdims=True)
        seen[row, own, column] = times
        seen_by_cta[ctas], fenced_by_cta[ctas] = seen, fenced_by_cta[ctas].max(1, keepdims=True)
        if len(ctas) == len(self.seen) and size == 1:
            self.settled["read"] = self.count - 1
            if not self.bulk_time:
                self.settled["wrote"] = self.count - 1

    def arrive(self, barriers: Sequence[Any], threads: NDArray[np.intp]) -> None:
        """Each thread arrives at one barrier: store the vector clocks of the thread's warp in that barrier."""
        pairs = dict.fromkeys(zip(barriers, (threads // WARP).tolist(), strict=True))
        for barrier, number in pairs:
            group, warp = divmod(number, self.warps)
            self._leave(barrier, self.clocks[:, group, warp])
        for number in {number for _, number in pairs}:
            group, warp = divmod(number, self.warps)
            self.seen[group, warp, warp] += 1

    def issued(self, threads: NDArray[np.intp]) -> AbstractContextManager[None]:
        """Return a context in which the warps of the threads have the vector clocks of this moment.

        Asynchronous work that is executed in the context counts as work of this moment.
        """
        group, warp = self.warps_of(np.unique(threads // WARP) * WARP)
        clocks = self.clocks[:, group, warp]
        self.seen[group, warp, warp] += 1
        return self._with_clocks(group, warp, clocks)

    @contextmanager
    def strong(self, mask: Mask, at: NDArray[np.int64], octets: int) -> Iterator[None]:
        """Return a context: it orders its accesses after earlier, and before later, strong accesses to the same words.

        PTX also requires fences to order other accesses; this method assumes that the kernel has these fences.
        """
        threads = self.machine.active(mask)
        words = self.machine.every(at)[threads][:, None] // _WORD + np.arange(max(octets // _WORD, 1))
        warps = np.unique(threads // WARP)
        keys = np.unique(words * (self.machine.count // WARP) + (threads // WARP)[:, None])
        word, number = np.divmod(keys, self.machine.count // WARP)
        group, warp = np.divmod(number, self.warps)
        slots = self._slots(word)
        warp_index: Any = (slice(None), group, warp)
        word_index: Any = (slice(None), slots)
        np.maximum.at(self.clocks, warp_index, self.word_clocks[word_index])
        yield
        np.maximum.at(self.word_clocks, word_index, self.clocks[warp_index])
        group, warp = np.divmod(warps, self.warps)
        self.seen[group, warp, warp] += 1

    def _slots(self, words: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the index, in `word_clocks`, of the vector clocks of each word, and add new words."""
        if not self.slot_of_word.size:
            self.slot_of_word = np.full(self.machine.shared.size // _WORD, _NOBODY, np.int64)
        new = np.unique(words[self.slot_of_word[words] == _NOBODY])
        count = self.word_clocks.shape[1]
        self.slot_of_word[new] = np.arange(count, count + len(new))
        self.word_clocks = np.pad(self.word_clocks, ((0, 0), (0, len(new)), (0, 0))) if len(new) else self.word_clocks
        return self.slot_of_word[words]

    @contextmanager
    def _with_clocks(
        self, group: NDArray[np.intp], warp: NDArray[np.intp], clocks: NDArray[np.int32]
    ) -> Iterator[None]:
        now = self.clocks[:, group, warp]
        self.clocks[:, group, warp] = clocks
        try:
            yield
        finally:
            self.clocks[:, group, warp] = now

    def wait(self, barriers: Sequence[Any], threads: NDArray[np.intp]) -> None:
        """Each thread waits at one barrier: merge the barrier's vector clocks into those of the thread's warp."""
        for barrier, number in dict.fromkeys(zip(barriers, (threads // WARP).tolist(), strict=True)):
            if (clocks := self.left.get(barrier)) is not None:
                group, warp = divmod(number, self.warps)
                self.clocks[:, group, warp] = np.maximum(self.clocks[:, group, warp], clocks)
