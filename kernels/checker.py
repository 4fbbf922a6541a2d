"""Order of accesses to shared memory: races, and what the asynchronous proxy reads without a fence.

Every warp has a clock of all warps of its CTA, which says how far it has seen each of them (vector clocks); a barrier
or an ``mbarrier`` hands the clocks of those that arrive to those that wait. A second clock says how far the
asynchronous proxy has seen each warp: ``fence.proxy.async`` of a warp sets it to the first, so that the writer's fence
counts as well as that of a warp behind a barrier. Each word of shared memory keeps who wrote it last and when, how many
copies in flight may still write it, and how many multiplications in flight may still read it.

Threads of a warp count as ordered among themselves; so what is reported is undefined by PTX ("Memory Consistency
Model", "Async proxy"), and not all that is undefined is reported. Clusters are not checked.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .machine import Machine, Mask
from .program import Instruction

__all__ = ["Checker"]

_WARP, _WORD = 32, 4
#: Writer of a word that nobody has written.
_NOBODY = -1


class Checker:
    """Clocks of the warps of a machine, and the last writer of each word of shared memory.

    Parameters
    ----------
    machine : Machine
        Threads and memory.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.warps = machine.threads // _WARP
        # The last column is the asynchronous proxy as a writer: bulk copies.
        shape = (machine.ctas, self.warps, self.warps + 1)
        self.seen = np.zeros(shape, np.int32)
        self.seen[:, np.arange(self.warps), np.arange(self.warps)] = 1
        #: How far the asynchronous proxy has seen each warp, as each warp knows.
        self.fenced = np.zeros(shape, np.int32)
        words = machine.shared.size // _WORD
        self.writer = np.full(words, _NOBODY, np.int16)
        self.time = np.zeros(words, np.int32)
        self.line = np.zeros(words, np.int32)
        #: Work in flight that may still read or write each word: how much, and the line of the latest.
        self.in_flight = {name: np.zeros(words, np.int16) for name in ("read", "write")}
        self.in_flight_line = {name: np.zeros(words, np.int32) for name in ("read", "write")}
        #: First word of the opcode at each line.
        self.opcodes = {ins.line: ins.words[0] for ins in machine.kernel.instructions}
        #: Clocks that arrivals left at barriers.
        self.left: dict[Any, tuple[NDArray[np.int32], NDArray[np.int32]]] = {}
        self.bulk_time = 0

    # Words of shared memory

    def _words(self, at: NDArray[np.int64], octets: int) -> NDArray[np.int64]:
        first = at[:, None] // _WORD
        return (first + np.arange(max(octets // _WORD, 1))).reshape(-1)

    def _of_threads(self, mask: Mask, at: NDArray[np.int64], octets: int) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
        """Return the words that the threads of a mask touch, and the number of the thread of each."""
        threads = self.machine.active(mask)
        words = self._words(self.machine.every(at)[threads], octets)
        return words, threads.repeat(len(words) // max(len(threads), 1))

    def wrote(self, ins: Instruction, mask: Mask, at: NDArray[np.int64], octets: int) -> None:
        """Note a write of threads to shared memory."""
        words, threads = self._of_threads(mask, at, octets)
        self._not_in_flight(ins, words, "read")
        cta, warp = np.divmod(threads // _WARP, self.warps)
        self.writer[words], self.time[words], self.line[words] = warp, self.seen[cta, warp, warp], ins.line

    def reads(self, ins: Instruction, mask: Mask, at: NDArray[np.int64], octets: int) -> None:
        """Check a read of threads from shared memory: each word was written before, as the thread knows."""
        words, threads = self._of_threads(mask, at, octets)
        self._not_in_flight(ins, words, "write")
        writer = self.writer[words]
        cta, warp = np.divmod(threads // _WARP, self.warps)
        unseen = (writer != _NOBODY) & (writer != warp) & (self.seen[cta, warp, writer] < self.time[words])
        if unseen.any():
            first = int(unseen.argmax())
            self._report(ins, words[first], "reads", "and no barrier orders the two", int(threads[first]))

    def wrote_in_bulk(self, ins: Instruction, place: int, octets: int, barrier: int) -> None:
        """Note a write of the asynchronous proxy, of which a barrier tells."""
        self.bulk_time += 1
        words = np.arange(place // _WORD, (place + octets) // _WORD)
        self._not_in_flight(ins, words, "read")
        self.writer[words], self.time[words], self.line[words] = self.warps, self.bulk_time, ins.line
        clock = np.zeros((2, self.warps + 1), np.int32)
        clock[:, self.warps] = self.bulk_time
        self._leave(("mbarrier", barrier), clock[0], clock[1])

    def reads_in_bulk(self, ins: Instruction, threads: Sequence[int], places: NDArray[np.int64]) -> None:
        """Check a read of the asynchronous proxy that threads of one CTA began: every word was fenced.

        Parameters
        ----------
        ins : Instruction
            The instruction.
        threads : sequence of int
            First threads of the warps that began it.
        places : ndarray of int64
            Bytes that are read.
        """
        words = np.unique(places // _WORD)
        self._not_in_flight(ins, words, "write")
        cta = threads[0] // self.machine.threads
        warps = [thread % self.machine.threads // _WARP for thread in threads]
        fenced = self.fenced[cta, warps].max(0)
        fenced[self.warps] = self.seen[cta, warps, self.warps].max()
        writer = self.writer[words]
        unseen = (writer != _NOBODY) & (fenced[writer] < self.time[words])
        if unseen.any():
            word = words[int(unseen.argmax())]
            what = (
                "and no fence.proxy.async lies between"
                if self.writer[word] < self.warps
                else "and no wait lies between"
            )
            self._report(ins, word, "reads", what, threads[0])

    def begins(self, ins: Instruction, places: NDArray[np.int64], access: str) -> None:
        """Note that bytes may be read or written until the work ends, ``access`` ``"read"`` or ``"write"``."""
        words = np.unique(places // _WORD)
        self.in_flight[access][words] += 1
        self.in_flight_line[access][words] = ins.line

    def ends(self, places: NDArray[np.int64], access: str) -> None:
        """Note that such work is over."""
        self.in_flight[access][np.unique(places // _WORD)] -= 1

    def _not_in_flight(self, ins: Instruction, words: NDArray[np.int64], access: str) -> None:
        """Check that no work in flight still has access to words: ``"read"`` to what is written, or ``"write"``."""
        busy = self.in_flight[access][words] > 0
        if busy.any():
            line = int(self.in_flight_line[access][words[int(busy.argmax())]])
            other = "wgmma" if self.opcodes[line] == "wgmma" else "copy"
            touches = "reads" if access == "write" else "overwrites"
            kind = f"{touches[:-1]} of what a {other} still {access}s"
            what = f"it {touches} shared memory that the {other} of line {line} may still {access}"
            self.machine.report(ins, kind, "Memory Consistency Model", what)

    def _report(self, ins: Instruction, word: int, verb: str, why: str, thread: int) -> None:
        start, size = int(word) * _WORD, self.machine.shared_bytes
        by = int(self.writer[word])
        who = f"warp {by}" if by < self.warps else "the asynchronous proxy"
        kind = "no proxy fence" if "fence" in why else "race"
        rule = "Async proxy" if "fence" in why else "Memory Consistency Model"
        self.machine.report(
            ins,
            kind,
            rule,
            f"it {verb} shared memory that {who} wrote at line {int(self.line[word])}, {why}",
            f"address {start % size:#x}, {self.machine.who(thread)}",
        )

    # Clocks

    def _warps_of(self, mask: Mask) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        warps = np.unique(self.machine.active(mask) // _WARP)
        return warps // self.warps, warps % self.warps

    def fence(self, mask: Mask) -> None:
        """Let the asynchronous proxy see all that the warps of the threads have seen."""
        cta, warp = self._warps_of(mask)
        self.fenced[cta, warp] = np.maximum(self.fenced[cta, warp], self.seen[cta, warp])

    def _leave(self, barrier: Any, seen: NDArray[np.int32], fenced: NDArray[np.int32]) -> None:
        before = self.left.get(barrier)
        self.left[barrier] = (seen, fenced) if before is None else (
            np.maximum(before[0], seen), np.maximum(before[1], fenced)
        )  # fmt: skip

    def arrive(self, barriers: Sequence[Any], threads: NDArray[np.intp]) -> None:
        """Leave the clocks of threads at barriers, one for each thread."""
        pairs = dict.fromkeys(zip(barriers, (threads // _WARP).tolist(), strict=True))
        for barrier, number in pairs:
            cta, warp = divmod(number, self.warps)
            self._leave(barrier, self.seen[cta, warp].copy(), self.fenced[cta, warp].copy())
        for number in {number for _, number in pairs}:
            cta, warp = divmod(number, self.warps)
            self.seen[cta, warp, warp] += 1

    def wait(self, barriers: Sequence[Any], threads: NDArray[np.intp]) -> None:
        """Take the clocks that arrivals left at barriers, one for each thread."""
        for barrier, number in dict.fromkeys(zip(barriers, (threads // _WARP).tolist(), strict=True)):
            if (clocks := self.left.get(barrier)) is not None:
                cta, warp = divmod(number, self.warps)
                self.seen[cta, warp] = np.maximum(self.seen[cta, warp], clocks[0])
                self.fenced[cta, warp] = np.maximum(self.fenced[cta, warp], clocks[1])
