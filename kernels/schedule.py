"""Execution of a kernel: threads at the same instruction run together, those with the smallest program counter first.

Diverged threads therefore reconverge where the compiler joins the branches. Threads at a barrier wait for the other
threads of their CTA. Asynchronous work is executed when no thread can continue without it. If there is none, threads
at an ``mbarrier.try_wait`` or ``test_wait`` continue with the result false.
"""

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from ..errors import KernelError
from .access import ACCESS
from .arithmetic import ARITHMETIC
from .barriers import WaitStep, barrier_step, barriers, wait_step
from .bulk_copies import any_copy_step, map_step
from .calls import call_step
from .cluster_launch import cluster_launch_step
from .comparison import COMPARISON
from .convergence import Convergence
from .conversion import conversion_step
from .cta_barriers import CtaBarriers
from .machine import Builder, Machine, Step, not_modelled
from .mma import mma_step, mma_steps
from .program import Instruction, Register, Symbol, size_of
from .registers import Mask, Reader
from .tensor_memory import tcgen05_step
from .warps import WARPS
from .wgmma import waiting_for_wgmma, wgmma_registers, wgmma_step

__all__ = ["Program"]

_BUILDERS: dict[str, Builder] = {
    **ARITHMETIC, **COMPARISON, **ACCESS, **WARPS, "cvt": conversion_step, "cp": any_copy_step, "tensormap": map_step,
    "mbarrier": barrier_step, "mma": mma_step, "wgmma": wgmma_step, "tcgen05": tcgen05_step,
    "clusterlaunchcontrol": cluster_launch_step, "call": call_step,
}  # fmt: skip
_BRANCHES, _CONTROL = ("bra", "brx"), ("bra", "brx", "ret", "exit")
#: Number of rounds (runs of the threads at one program counter) after which the threads that have waited longest run
#: first, and asynchronous work is executed, so that spinning threads cannot block other threads.
_FAIR_ROUNDS = 1024
#: Number of scheduler rounds after which waits for an ``mbarrier`` return false, so that spinning threads cannot block
#: the waiting threads.
_SPIN_ROUNDS = 64 * _FAIR_ROUNDS
#: Maximum number of times that ``mbarrier`` waits return false while no barrier and no program counter changes. Beyond
#: this number, or earlier if no register changes either, the launch is reported as deadlocked.
_FUTILE_WAITS = 1 << 14
#: Maximum number of instructions that are not modelled, or of unfinished barriers, that one error message lists.
_NAMED = 20


def _guarded(machine: Machine, ins: Instruction, step: Step) -> Step:
    """Return a function that executes an instruction only for threads whose guard is true."""
    if ins.guard is None:
        return step
    read = machine.reader(ins.guard, "pred")

    def guarded(mask: Mask) -> None:
        guard = read()
        if mask is not None:
            guard = guard & mask
        if guard.all():
            step(None if mask is None or guard.size == machine.count else mask)
        elif guard.any():
            step(np.array(machine.every(guard)))

    return guarded


class Program:
    """A kernel, compiled to Python functions, and the state of its threads on a machine (a simulated batch of CTAs)."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.code = machine, machine.kernel.instructions
        self.names = [ins.words[0] for ins in self.code]
        self.joins = frozenset(machine.kernel.labels.values())
        self.barriers = CtaBarriers(machine)
        self.counters = np.zeros(machine.count, np.int64)
        self.convergence = Convergence(machine, self.counters, self.barriers.alive)
        #: Threads that wait for a phase of an ``mbarrier``.
        self.asleep = np.zeros(machine.count, np.bool_)
        self.last_run = np.zeros(machine.count, np.int64)
        #: By instruction index: functions that execute instructions, functions that execute waits (they return the
        #: threads that continue), and functions that read guard predicates.
        self.steps: dict[int, Step] = {}
        self.waits: dict[int, WaitStep] = {}
        #: Key: index of an instruction ``mbarrier.try_wait`` or ``test_wait``. Value: function that writes false.
        self.failures: dict[int, Step] = {}
        self.guards: dict[int, Reader] = {}
        #: By instruction index: function that reads the index of a ``brx``, and the instruction index of each label.
        self.tables: dict[int, tuple[Reader, NDArray[np.int64]]] = {}
        self.asynchronous = wgmma_registers(machine)
        #: Key: index of the first instruction of a basic block (no branch, wait or inner label). Value: functions that
        #: execute it. The second dictionary is for whole warps or warpgroups. All other sets of threads use the
        #: first dictionary, whose blocks also end before an instruction ``.sync``.
        self.blocks: tuple[dict[int, list[Step]], dict[int, list[Step]]] = ({}, {})
        #: Number of executions of each block of instructions, by the index of its first instruction, as in `blocks`.
        self.block_runs: tuple[Counter[int], Counter[int]] = (Counter(), Counter())
        #: A sentence for each instruction that this model does not implement.
        self.problems: list[str] = []
        for place, ins in enumerate(self.code):
            try:
                self._bind(place, ins)
            except KernelError as error:
                text = str(error)
                self.problems.append(text if text.startswith("line ") else f"line {ins.line}: {ins.opcode}: {text}")
            except (
                ArithmeticError,
                AssertionError,
                LookupError,
                StopIteration,
                TypeError,
                ValueError,
            ):  # raised for invalid operands
                self.problems.append(f"line {ins.line}: {ins.opcode}: the operands do not fit the instruction")
        if not self.problems:
            self.steps |= mma_steps(machine, self.joins)

    def _bind(self, place: int, ins: Instruction) -> None:
        machine, words = self.machine, ins.words
        if words[0] in _CONTROL or words[:2] in (["mbarrier", "try_wait"], ["mbarrier", "test_wait"]):
            if ins.guard:
                self.guards[place] = machine.reader(ins.guard, "pred")
            if words[0] == "brx":
                index, *labels = ins.operands
                if (
                    words[1:] not in (["idx"], ["idx", "uni"])
                    or not isinstance(index, Register)
                    or size_of(index.type) != 4
                ):
                    raise not_modelled(ins)
                targets = [machine.kernel.labels[label.name] for label in labels if isinstance(label, Symbol)]
                self.tables[place] = machine.reader(index, "u32"), np.array(targets)
            if words[0] == "mbarrier":
                self.waits[place], self.failures[place] = wait_step(machine, ins)
        elif words[0] in ("bar", "barrier") and "warp" not in words:
            if ins.guard:
                raise not_modelled(ins, "barriers with a guard predicate are not supported")
            self.waits[place] = self.barriers.step(ins)
        elif words[0] in _BUILDERS:
            step = _BUILDERS[words[0]](machine, ins)
            touched = self.asynchronous.intersection(machine.numbers_of(ins.registers)) if self.asynchronous else None
            if touched and words[0] != "wgmma":
                step = waiting_for_wgmma(machine, ins, touched, step)
            self.steps[place] = _guarded(machine, ins, step)
            self.convergence.add(place, ins)
        else:
            raise not_modelled(ins)

    def _block(self, place: int, *, together: bool) -> list[Step]:
        """Return the functions that execute the block of instructions that begins at the index `place`."""
        steps: list[Step] = []
        while place in self.steps:
            if steps and (place in self.joins or (not together and place in self.convergence)):
                break
            steps.append(self.steps[place])
            place += 1
        return steps

    def run(self) -> None:
        """Run all threads until they exit. A program runs only once.

        Raises
        ------
        KernelError
            An instruction is not modelled, in which case nothing is executed and the message names all of them; or the
            kernel performs an operation that PTX forbids.
        """
        if self.problems:
            more = len(self.problems) - _NAMED
            raise KernelError("; ".join(self.problems[:_NAMED]) + (f"; and {more} more" if more > 0 else ""))
        with np.errstate(all="ignore"):
            self._run_rounds()
        for blocks, runs in zip(self.blocks, self.block_runs, strict=True):
            for place, times in runs.items():
                names = Counter(self.names[place : place + len(blocks[place])])
                self.machine.work.opcodes.update({name: times * number for name, number in names.items()})

    def _run_rounds(self) -> None:
        machine, ctas, rounds, futile = self.machine, self.barriers, 0, 0
        before = b"", b""
        while True:
            if machine.completed:
                self.asleep[:] = False
                machine.completed = False
            ready = ctas.alive & ~self.asleep & ~ctas.waiting & ~self.convergence.waiting
            if not ready.any():
                if machine.queue:  # no thread can continue before the queued asynchronous work is done
                    for _ in range(len(machine.queue)):
                        machine.queue.popleft()()
                    continue
                if not ctas.alive.any():
                    break
                now = self._state()
                futile = futile + 1 if now[0] == before[0] else 0
                if now == before or futile > _FUTILE_WAITS or not self.asleep.any():
                    raise self._deadlock()
                before = now
                self._end_waits()
                continue
            rounds += 1
            if rounds % _FAIR_ROUNDS == 0 and machine.queue:
                machine.queue.popleft()()
            elif rounds % _SPIN_ROUNDS == 0:
                self._end_waits()
            self._round(ready, fair=rounds % _FAIR_ROUNDS == 0)
        for work in machine.at_exit:
            work()

    def _state(self) -> tuple[bytes, bytes]:
        """Return the state of all threads as two byte strings: program counters and barriers, and registers."""
        arrays = (self.counters, self.barriers.arrived, self.barriers.cluster_arrivals)
        registers = b"".join(register.tobytes() for register in self.machine.registers)
        return barriers(self.machine).state() + b"".join(array.tobytes() for array in arrays), registers

    def _end_waits(self) -> None:
        """Let all threads that wait for a phase of an ``mbarrier`` continue with the result false."""
        for place in np.unique(self.counters[self.asleep]).tolist():
            threads = self.asleep & (self.counters == place)
            self.failures[place](threads)
            self.counters[threads] = place + 1
        self.asleep[:] = False

    def _deadlock(self) -> KernelError:
        code, alive = self.code, self.barriers.alive
        places = self.counters - self.barriers.waiting  # threads at a barrier have already advanced by one instruction
        waits = []
        for place in np.unique(places[alive]).tolist():
            threads = np.flatnonzero(alive & (places == place))
            ins = code[min(place, len(code) - 1)]
            first = self.machine.who(int(threads[0]))
            waits.append(f"{len(threads)} threads wait at line {ins.line} ({ins.opcode}), the first is {first}")
        waits += barriers(self.machine).unfinished()[:_NAMED]
        return KernelError(f"deadlock: {'; '.join(waits)}")

    def _round(self, ready: NDArray[np.bool_], *, fair: bool) -> None:
        """Run the threads with the smallest program counter until they diverge, wait or exit."""
        counters, names, work = self.counters, self.names, self.machine.work
        if fair:
            waited = np.where(ready, self.last_run, np.iinfo(np.int64).max)
            place = int(counters[waited.argmin()])
        else:
            place = int(counters[ready].min())
        threads = ready & (counters == place)
        everyone = bool(threads.all())
        mask: Mask = None if everyone else threads
        meetings = self.convergence
        together = meetings.converged(threads)
        blocks, runs = self.blocks[together], self.block_runs[together]
        live, executed, parted = int(np.count_nonzero(threads)), 0, False
        try:
            while True:
                if place not in blocks:
                    blocks[place] = self._block(place, together=together)
                if not together and place in meetings:
                    counters[threads] = place
                    if not meetings.arrive(place, threads):
                        break
                if block := blocks[place]:
                    for step in block:
                        step(mask)
                    executed += live * len(block)
                    runs[place] += 1
                    place += len(block)
                else:
                    executed += live if place < len(names) else 0
                    following = self._control(place, threads, everyone=everyone)
                    if following is None:
                        break
                    parted, place = not everyone and names[place] in _BRANCHES, following
                if parted or (not everyone and place in self.joins):
                    counters[threads] = place
                    break
                if executed > 1 << 22:
                    work.add(executed)
                    executed = 0
        finally:
            work.add(executed)
        self.last_run[threads] = work.thread_instructions

    def _control(self, place: int, threads: NDArray[np.bool_], *, everyone: bool) -> int | None:
        """Execute a branch, wait or exit. Return the next program counter if all threads continue there, or None."""
        if place in self.waits:
            return place + 1 if self._wait(place, threads, everyone=everyone) else None
        if place in self.tables:
            return self._indexed_branch(place, threads)
        if place < len(self.names) and self.names[place] == "bra":
            return self._branch(place, threads)
        leaving = self._guard(place, threads)
        self.counters[threads] = place + 1
        self.barriers.leave(leaving)
        self.convergence.exits()
        return None

    def _branch(self, place: int, threads: NDArray[np.bool_]) -> int | None:
        """Return the next program counter after a branch, or None if threads diverge."""
        (target,) = self.code[place].operands
        assert isinstance(target, Symbol)
        there = self.machine.kernel.labels[target.name]
        taken = self._guard(place, threads)
        if np.array_equal(taken, threads):
            return there
        if not taken.any():
            return place + 1
        self.counters[threads] = place + 1
        self.counters[taken] = there
        return None

    def _indexed_branch(self, place: int, threads: NDArray[np.bool_]) -> int | None:
        """Return the next program counter after ``brx``, or None if threads diverge."""
        read, targets = self.tables[place]
        index, taken = self.machine.every(read()), self._guard(place, threads)
        if (beyond := taken & (index >= len(targets))).any():
            raise self.machine.fault(self.code[place], f"the index is not below {len(targets)}", int(beyond.argmax()))
        self.counters[threads] = place + 1
        self.counters[taken] = targets[index[taken]]
        following = np.unique(self.counters[threads]).tolist()
        return following[0] if len(following) == 1 else None

    def _guard(self, place: int, threads: NDArray[np.bool_]) -> NDArray[np.bool_]:
        read = self.guards.get(place)
        return threads if read is None else threads & read()

    def _wait(self, place: int, threads: NDArray[np.bool_], *, everyone: bool) -> bool:
        """Return whether all threads continue after a wait. Waiting threads keep their program counters."""
        guarded = self._guard(place, threads)
        self.counters[threads] = place + 1
        if not guarded.any():
            return True
        passes = self.waits[place](guarded)
        if self.names[place] == "mbarrier":
            stuck = guarded & ~passes
            self.counters[stuck] = place
            self.asleep |= stuck
            return not stuck.any()
        return everyone and bool(passes.all())
