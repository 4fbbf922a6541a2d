"""Execute ``cp.async``: copies from global to shared memory, delayed as long as PTX allows.

Source: PTX ISA, "Data Movement and Conversion Instructions: Asynchronous copy". A copy reads and writes memory when its
thread waits for its group, when ``cp.async.mbarrier.arrive`` is executed because no thread can continue without it, or
at the end of the kernel: a missing wait therefore gives wrong results.
"""

import re
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .barriers import barriers, mbarrier_reader
from .machine import Machine, Step, not_modelled
from .program import Address, Immediate, Instruction, Negated, Operand, Register
from .registers import Mask, Reader

__all__ = ["ThreadGroups", "copy_step", "group_step"]


#: Parts that the opcode of a non-bulk ``cp.async`` may have between its dots.
_KNOWN = {
    *("cp", "async", "ca", "cg", "shared", "shared::cta", "global"),
    *("L2::cache_hint", "L2::64B", "L2::128B", "L2::256B"),
}


@dataclass(eq=False)
class _Pending:
    """An asynchronous copy, issued by several threads, that has not completed."""

    execute: Callable[[NDArray[np.bool_] | None], None]
    #: Threads whose copy is pending, or None if all threads have a pending copy.
    mask: Mask
    #: For each thread, number of the group to which its asynchronous copy belongs.
    group: NDArray[np.int64]
    #: Registers that the asynchronous work reads or writes when it completes.
    registers: frozenset[int]


class ThreadGroups:
    """Asynchronous work that each thread commits in groups and waits for. The oldest group completes first."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        #: Number of the group that each thread commits next; one element while all threads have the same number.
        self.open = np.zeros(1, np.int64)
        self.pending: deque[_Pending] = deque()
        machine.at_exit.append(lambda: self.wait(None, 0, closed=False))

    def add(self, mask: Mask, execute: Callable[[Mask], None], registers: frozenset[int] = frozenset()) -> _Pending:
        """Add asynchronous work of the threads in a mask to the open groups of these threads, and return the work."""
        self.pending.append(_Pending(execute, None if mask is None else mask.copy(), self.open, registers))
        return self.pending[-1]

    def complete(self, work: _Pending) -> None:
        """Complete asynchronous work and the earlier work of its threads, if the work is still pending."""
        if work in self.pending:
            due = {*list(self.pending)[: self.pending.index(work) + 1]}
            self._complete(lambda other: np.array([other in due]), work.mask)

    def uses(self, registers: frozenset[int], mask: Mask) -> bool:
        """Return whether pending asynchronous work reads or writes registers of the threads in a mask."""
        return any(
            work.registers & registers and (mask is None or work.mask is None or (mask & work.mask).any())
            for work in self.pending
        )

    def commit(self, mask: Mask) -> None:
        """For each thread in a mask, commit the copies since its previous commit as one group."""
        self.open = self.open + 1 if mask is None else np.where(mask, self.open + 1, self.open)

    def wait(self, mask: Mask, left: int, *, closed: bool = True) -> None:
        """Complete each thread's committed groups of work, except the last `left`; all work if `closed` is False."""
        last = self.open - left - 1 if closed else self.open
        self._complete(lambda work: work.group <= last, mask)

    def _complete(self, is_due: Callable[[_Pending], NDArray[np.bool_]], mask: Mask) -> None:
        """Complete the pending work that is due, for those of its threads that are in a mask."""
        due_works: list[tuple[Callable[[Mask], None], Mask]] = []
        for _ in range(len(self.pending)):
            work = self.pending.popleft()
            due = is_due(work)
            if mask is None and due.all():
                due_works.append((work.execute, work.mask))
                continue
            chosen = np.broadcast_to(due, (self.machine.count,))
            chosen = chosen if mask is None else chosen & mask
            chosen = chosen if work.mask is None else chosen & work.mask
            rest = ~chosen if work.mask is None else work.mask & ~chosen
            if chosen.any():
                due_works.append((work.execute, chosen))
            if rest.any():
                work.mask = rest
                self.pending.append(work)
        self.execute(due_works)

    def execute(self, works: list[tuple[Callable[[Mask], None], Mask]]) -> None:
        """Complete copies or other asynchronous work in list order; each function gets the mask of its threads."""
        for work, chosen in works:
            work(chosen)


def group_step(ins: Instruction, groups: ThreadGroups) -> Step | None:
    """Return a function that commits a group of copies or waits for groups, or None if the instruction does neither."""
    if "commit_group" in ins.words:
        return groups.commit
    if "wait_all" in ins.words:
        return lambda mask: groups.wait(mask, 0, closed=False)
    if "wait_group" not in ins.words:
        return None
    (left,) = ins.operands
    if not isinstance(left, Immediate):
        raise not_modelled(ins, "the number of groups that may stay pending must be a constant")
    number = left.value
    return lambda mask: groups.wait(mask, number)


def copy_step(machine: Machine, ins: Instruction) -> Step:
    """Return a function that executes a non-bulk ``cp.async``."""
    groups = machine.unit("cp.async", ThreadGroups)
    if commit_or_wait := group_step(ins, groups):
        return commit_or_wait
    if ins.words[2] == "mbarrier":
        return _arrival(machine, ins, groups)
    if unknown := [word for word in ins.words if word not in _KNOWN]:
        raise not_modelled(ins, f"the qualifier '.{unknown[0]}' is not supported")
    destination, source, size, *rest = ins.operands
    if not isinstance(size, Immediate) or size.value not in (4, 8, 16):
        raise not_modelled(ins)
    octets = size.value
    # After the size, cp.async may have the number of bytes to read and, with `.L2::cache_hint`, a cache policy.
    hint = "L2::cache_hint" in ins.opcode
    lengths = [operand for operand in rest if not isinstance(operand, Address)][: len(rest) - hint]
    read_length = _length_reader(machine, lengths[0], octets) if lengths else None
    to, origin = machine.places(destination, "shared", ins, octets), _origins(machine, ins, source, octets, read_length)
    shift = octets.bit_length() - 1

    def step(mask: Mask) -> None:
        at = machine.every(to(mask)[1])
        length = machine.every(read_length()) if read_length else None
        reads = mask
        if length is not None and (length == 0).any():
            reads = (length > 0) if mask is None else mask & (length > 0)
        start = None
        if reads is None or reads.any():
            start = machine.every(origin(reads))

        def execute(chosen: Mask) -> None:
            threads = slice(None) if chosen is None else chosen
            if machine.checker:
                machine.checker.ends(at[threads], octets, "write")
                machine.checker.wrote(ins, chosen, at, octets, start)
            target, places = machine.views["shared"][octets], at[threads] >> shift
            if start is None:
                target[places] = 0
                return
            data = machine.views["global"][octets].take(start[threads] >> shift)
            if length is not None:
                data = _filled(data, length[threads], octets)
            target[places] = data

        if machine.checker:
            written = at if mask is None else at[mask]
            machine.checker.overwrite(ins, machine.active(mask), written, octets)
            machine.checker.begins(ins, written, octets, "write")
        groups.add(mask, execute)

    return step


def _arrival(machine: Machine, ins: Instruction, groups: ThreadGroups) -> Step:
    """Execute ``cp.async.mbarrier.arrive``: a thread arrives at an ``mbarrier`` after its earlier copies."""
    if not re.fullmatch(r"cp\.async\.mbarrier\.arrive(\.noinc)?(\.shared(::cta)?)?\.b64", ins.opcode):
        raise not_modelled(ins)
    state, objects = barriers(machine), mbarrier_reader(machine, ins, ins.operands[0])

    def step(mask: Mask) -> None:
        at = np.zeros(machine.count, np.int64)
        at[machine.active(mask)] = places = objects(mask)
        state.require(places, ins)
        if "noinc" not in ins.words:  # the phase expects one more arrival for each of these arrivals
            np.add.at(state.pending, places, 1)

        def execute(chosen: Mask) -> None:
            exceeds = state.exceeds(at[machine.active(chosen)], 1)
            for threads in map(machine.active, machine.warps(chosen) if exceeds else [chosen]):
                if machine.checker:
                    machine.checker.arrive([("mbarrier", place) for place in at[threads].tolist()], threads)
                state.arrive(at[threads], 1, ins)

        copies, work = list(groups.pending), groups.add(mask, execute)
        clocks = machine.checker.issued(machine.active(mask)) if machine.checker else nullcontext()

        def complete() -> None:
            # The arrival orders what its threads did before this instruction, and the copies. Copies that a wait has
            # completed in the meantime are recorded with a later time.
            with clocks if all(copy in groups.pending for copy in copies) else nullcontext():
                groups.complete(work)

        machine.queue.append(complete)

    return step


def _length_reader(machine: Machine, operand: Operand, octets: int) -> Reader:
    """Return a function that gives the number of bytes that each thread reads. A true predicate operand means 0."""
    if not (isinstance(operand, Negated) or (isinstance(operand, Register) and operand.type == "pred")):
        return machine.reader(operand, "u32")
    ignores = machine.reader(operand, "pred")
    return lambda: np.where(ignores(), np.uint32(0), np.uint32(octets))


def _origins(
    machine: Machine, ins: Instruction, source: Operand, octets: int, read_length: Reader | None
) -> Callable[[Mask], NDArray[np.int64]]:
    """Return a function that computes and checks the offsets in global memory from which the threads copy.

    The bytes from an offset to the end of its 16-byte word can be read, even if a thread copies fewer bytes.
    """
    if read_length is None:
        whole = machine.places(source, "global", ins, octets)
        return lambda mask: whole(mask)[1]
    places = machine.places(source, "global", ins)

    def origins(mask: Mask) -> NDArray[np.int64]:
        at, lengths = machine.every(places(mask)[1]), np.minimum(machine.every(read_length()), octets)
        threads = machine.active(mask)
        if (wrong := at[threads] & octets - 1 != 0).any():
            thread = int(threads[wrong.argmax()])
            raise machine.fault(ins, f"the address of an access is not a multiple of {octets} bytes", thread)
        for length in np.unique(lengths[threads]).tolist():
            same = threads[lengths[threads] == length]
            if (outside := machine.memory.outside(at[same], length)) is not None:
                thread = int(same[outside.argmax()])
                raise machine.fault(ins, f"an access of {length} bytes is not inside global memory", thread)
        return at

    return origins


def _filled(data: NDArray, length: NDArray[np.uint32], octets: int) -> NDArray:
    """Return copied data with zeros in place of the bytes beyond the length that each thread reads."""
    if (length == octets).all():
        return data
    flat = data.view(np.uint8).reshape(len(data), octets).copy()
    flat[np.arange(octets) >= length[:, None]] = 0
    return flat.view(data.dtype).reshape(data.shape)
