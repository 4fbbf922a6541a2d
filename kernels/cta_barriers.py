"""Numbered barriers of a CTA (``bar``, ``barrier``), and the barrier of a cluster (``barrier.cluster``).

Source: PTX ISA, ``bar``, ``barrier`` and ``barrier.cluster``.
"""

import numpy as np
from numpy.typing import NDArray

from .barriers import WaitStep
from .machine import Machine, not_modelled
from .program import Immediate, Instruction
from .registers import Writer

__all__ = ["CtaBarriers"]

#: Number of barriers per CTA, which instructions select by number.
_NUMBERS = 16


class CtaBarriers:
    """State of the barriers of CTAs and clusters: numbers of arrivals, and threads that wait."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.cluster_threads = machine.threads * machine.launch.cluster_size
        count = machine.count
        self.waiting = np.zeros(count, np.bool_)
        self.alive = machine.thread_numbers % machine.threads < machine.launch.threads
        #: Number of the barrier at which each waiting thread waits.
        self.number = np.zeros(count, np.int64)
        #: Number of arrivals at each barrier of each CTA, and number of arrivals that completes the barrier (0: all
        #: threads of the CTA).
        self.arrived = np.zeros((machine.ctas, _NUMBERS), np.int64)
        self.needed = np.zeros((machine.ctas, _NUMBERS), np.int64)
        #: Number of arrivals of each thread at its cluster's barrier, and the threads that wait at this barrier.
        self.cluster_arrivals = np.zeros(count, np.int64)
        self.at_cluster = np.zeros(count, np.bool_)
        #: Destination of each instruction ``bar.red``: its operation, and the function that writes the register.
        self.reductions: list[tuple[str, Writer]] = []
        #: For each thread that waits at ``bar.red``: its predicate, and the index of the instruction in `reductions`.
        self.predicate = np.zeros(count, np.bool_)
        self.reduction = np.full(count, -1)

    def step(self, ins: Instruction) -> WaitStep:
        """Return a function that executes a barrier instruction and returns the threads that continue."""
        words, operands = ins.words, list(ins.operands)
        if "cluster" in words:
            if "arrive" not in words:
                return self._cluster_wait
            return lambda mask: self._cluster_arrive(mask, releases="relaxed" not in words)
        machine, place = self.machine, len(self.reductions)
        reduces = "red" in words
        if reduces:
            kind = words[words.index("red") + 1]
            type_ = "u32" if kind == "popc" else "pred"
            if kind not in ("popc", "and", "or") or words[-1] != type_ or len(operands) not in (3, 4):
                raise not_modelled(ins)
            self.reductions.append((kind, machine.writer(operands.pop(0), type_)))
            read_predicate = machine.reader(operands.pop(), "pred")
        read = machine.reader(operands[0] if operands else Immediate(0), "u32")
        read_count = machine.reader(operands[1] if len(operands) > 1 else Immediate(0), "u32")
        waits = "arrive" not in words

        def arrive(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
            if reduces:
                self.predicate[mask] = machine.every(read_predicate())[mask]
                self.reduction[mask] = place
            elif waits and (whole := self._whole_ctas(mask, read(), read_count())) is not None:
                if machine.checker:
                    machine.checker.join(whole)
                return mask
            numbers = machine.every(read()).astype(np.int64)[mask]
            counts = machine.every(read_count()).astype(np.int64)[mask]
            if (numbers >= _NUMBERS).any():
                raise machine.fault(ins, f"the barrier number exceeds {_NUMBERS - 1}", int(np.flatnonzero(mask)[0]))
            ctas = machine.cta_of_thread[mask]
            arrivals = self.arrived.copy()
            np.add.at(arrivals, (ctas, numbers), 1)
            if (arrivals[ctas, numbers] > counts)[counts > 0].any() and len(warps := machine.warps(mask)) > 1:
                return np.logical_or.reduce([arrive(warp) for warp in warps])
            if machine.checker:
                barriers = [("bar", cta, number) for cta, number in zip(ctas.tolist(), numbers.tolist(), strict=True)]
                machine.checker.arrive(barriers, np.flatnonzero(mask))
            self.arrived = arrivals
            self.needed[ctas, numbers] = counts
            if waits:
                self.waiting |= mask
                self.number[mask] = numbers
            for cta, number in {divmod(key, _NUMBERS) for key in np.unique(ctas * _NUMBERS + numbers).tolist()}:
                if (over := self._settle(cta, number)) is not None:
                    raise machine.fault(ins, f"{over} threads arrive at barrier {number}, which expects fewer",
                                        int(np.flatnonzero(mask)[0]))  # fmt: skip
            return mask & ~self.waiting

        return arrive

    def _whole_ctas(
        self, mask: NDArray[np.bool_], numbers: NDArray[np.uint32], counts: NDArray[np.uint32]
    ) -> NDArray[np.intp] | None:
        """Return the CTAs of the arriving threads if all threads of each CTA arrive together, or None otherwise."""
        if numbers.size > 1 or counts.size > 1 or counts[0] not in (0, self.machine.threads) or numbers[0] >= _NUMBERS:
            return None
        threads = mask.reshape(self.machine.ctas, -1)
        some, every = threads.any(1), threads.all(1)
        ctas = np.flatnonzero(every)
        return None if (some != every).any() or self.arrived[ctas, numbers[0]].any() else ctas

    def _settle(self, cta: int, number: int) -> int | None:
        """Release the threads of a complete barrier. Return the number of arrivals if too many threads arrived."""
        threads = slice(cta * self.machine.threads, (cta + 1) * self.machine.threads)
        needed = int(self.needed[cta, number]) or int(self.alive[threads].sum())
        arrived = int(self.arrived[cta, number])
        if arrived > needed and self.needed[cta, number]:
            return arrived
        if arrived >= needed:
            self.arrived[cta, number] = 0
            of_cta = self.waiting[threads]
            released = of_cta & (self.number[threads] == number) & ~self.at_cluster[threads]
            if self.machine.checker:
                numbers = np.flatnonzero(released) + threads.start
                self.machine.checker.wait([("bar", cta, number)] * len(numbers), numbers)
            if self.reductions:
                self._reduce(np.flatnonzero(released) + threads.start)
            of_cta &= ~released
        return None

    def _reduce(self, threads: NDArray[np.intp]) -> None:
        """Write the results of ``bar.red`` to the registers of the threads that a barrier releases."""
        true = self.predicate[threads[self.reduction[threads] >= 0]]
        for index in np.unique(self.reduction[threads][self.reduction[threads] >= 0]).tolist():
            kind, write = self.reductions[index]
            result = np.uint32(true.sum()) if kind == "popc" else true.all() if kind == "and" else true.any()
            mask = np.zeros(self.machine.count, np.bool_)
            mask[threads[self.reduction[threads] == index]] = True
            write(mask, np.array([result]))
        self.reduction[threads] = -1

    def _cluster_arrive(self, mask: NDArray[np.bool_], *, releases: bool) -> NDArray[np.bool_]:
        if self.machine.checker and releases:
            threads = np.flatnonzero(mask)
            self.machine.checker.arrive(self._clusters(threads), threads)
        self.cluster_arrivals[mask] += 1
        self._settle_clusters()
        return mask

    def _cluster_wait(self, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
        self.at_cluster |= mask
        self.waiting |= mask
        self._settle_clusters()
        return mask & ~self.waiting

    def _settle_clusters(self) -> None:
        """Release a thread that waits at its cluster barrier if no live thread of the cluster has fewer arrivals."""
        size = self.cluster_threads
        never = np.iinfo(np.int64).max
        arrivals = np.where(self.alive, self.cluster_arrivals, never).reshape(-1, size)
        complete = (self.cluster_arrivals.reshape(-1, size) <= arrivals.min(1)[:, None]).reshape(-1)
        done = self.at_cluster & complete
        if self.machine.checker and done.any():
            threads = np.flatnonzero(done)
            self.machine.checker.wait(self._clusters(threads), threads)
        self.at_cluster &= ~done
        self.waiting &= ~done

    def _clusters(self, threads: NDArray[np.intp]) -> list[tuple[str, int]]:
        """Return the name by which the checker identifies the cluster barrier of each thread."""
        return [("cluster", thread // self.cluster_threads) for thread in threads.tolist()]

    def leave(self, mask: NDArray[np.bool_]) -> None:
        """Remove threads that have exited. Barriers for all threads of a CTA no longer wait for these threads."""
        self.alive &= ~mask
        ctas = np.unique(self.machine.cta_of_thread[mask])
        for cta in ctas[(self.arrived[ctas] > 0).any(1)].tolist():
            for number in np.flatnonzero(self.arrived[cta]).tolist():
                self._settle(cta, number)
        if self.at_cluster.any():
            self._settle_clusters()
