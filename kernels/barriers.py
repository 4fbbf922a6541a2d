"""Barriers: ``mbarrier`` objects in shared memory, with phases and transaction counts.

Source: PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier". An object is eight bytes of shared
memory; the model stores its state elsewhere, so that a kernel cannot read or overwrite the state through these bytes.
Barriers of a CTA (``bar``, ``barrier``) are executed by :mod:`sptc.kernels.cta_barriers`.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from .machine import Machine, Step, not_modelled
from .program import Address, Instruction, Operand, Sink
from .registers import Mask

__all__ = ["Barriers", "barrier_step", "barriers", "mbarrier_reader", "wait_step"]

_BYTES = 8
#: Function that executes a barrier instruction for a mask of threads. It returns a mask of threads that may continue.
WaitStep = Callable[[NDArray[np.bool_]], NDArray[np.bool_]]


class Barriers:
    """State of all ``mbarrier`` objects of a batch of CTAs. An index is a byte offset in shared memory divided by 8."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        count = machine.shared.size // _BYTES
        #: Parity of the current phase of each ``mbarrier``.
        self.phase = np.zeros(count, np.int64)
        #: Number of arrivals that the current phase of each ``mbarrier`` still expects, and number of arrivals per
        #: phase. Both numbers are -1 where no ``mbarrier`` is initialised.
        self.pending = np.full(count, -1, np.int64)
        self.expected = np.full(count, -1, np.int64)
        #: Number of bytes that the current phase of each ``mbarrier`` still expects.
        self.bytes = np.zeros(count, np.int64)

    def initialise(self, places: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
        """Initialise ``mbarrier`` objects with the number of arrivals that each phase expects."""
        self.pending[places] = self.expected[places] = counts
        self.phase[places] = self.bytes[places] = 0

    def exceeds(self, places: NDArray[np.int64], counts: NDArray | int) -> bool:
        """Return whether an ``mbarrier`` gets more arrivals than its current phase still expects."""
        pending = self.pending.copy()
        np.subtract.at(pending, places, counts)
        return bool(((pending < 0) & (self.pending >= 0)).any())

    def arrive(self, places: NDArray[np.int64], counts: NDArray | int, ins: Instruction) -> None:
        """Count arrivals at ``mbarrier`` objects, and begin the next phase of each object that is complete."""
        self.require(places, ins)
        np.subtract.at(self.pending, places, counts)
        if (self.pending[places] < 0).any():
            raise self.machine.fault(ins, "an mbarrier gets more arrivals than its phase expects")
        self.settle(places)

    def expect(self, places: NDArray[np.int64], octets: NDArray[np.int64], ins: Instruction) -> None:
        """Add `octets` to the number of bytes that the current phase of each ``mbarrier`` expects."""
        self.require(places, ins)
        np.add.at(self.bytes, places, octets)

    def complete(self, place: int, octets: int, ins: Instruction) -> None:
        """Subtract `octets` copied bytes from the number of bytes that the current phase of an ``mbarrier`` expects."""
        self.expect(np.array([place]), np.array([-octets]), ins)
        self.settle(np.array([place]))

    def state(self) -> bytes:
        """Return the state of all ``mbarrier`` objects as bytes, so that two states can be compared."""
        return b"".join(array.tobytes() for array in (self.phase, self.pending, self.bytes))

    def require(self, places: NDArray[np.int64], ins: Instruction) -> None:
        """Raise an error unless every index refers to an initialised ``mbarrier``."""
        if (self.expected[places] < 0).any():
            raise self.machine.fault(ins, "no mbarrier.init has initialised an mbarrier at this address")

    def unfinished(self) -> list[str]:
        """Return a sentence with the pending arrivals and bytes of each ``mbarrier`` whose phase has begun."""
        begun = (self.expected > 0) & ((self.pending != self.expected) | (self.bytes != 0))
        size = self.machine.shared_bytes
        return [
            f"the mbarrier at {place * _BYTES % size:#x} of CTA {self.machine.place_of(place * _BYTES // size)} "
            f"expects {self.pending[place]} arrivals and {self.bytes[place]} bytes"
            for place in np.flatnonzero(begun).tolist()
        ]

    def settle(self, places: NDArray[np.int64]) -> None:
        """Begin the next phase of each ``mbarrier`` that has neither pending arrivals nor pending bytes."""
        which = np.unique(places)
        done = which[(self.pending[which] == 0) & (self.bytes[which] == 0)]
        if done.size:
            self.phase[done] ^= 1
            self.pending[done] = self.expected[done]
            self.machine.completed = True


def barriers(machine: Machine) -> Barriers:
    """Return the ``mbarrier`` state of a machine (a simulated batch of CTAs)."""
    return machine.unit("mbarrier", Barriers)


def mbarrier_reader(machine: Machine, ins: Instruction, operand: Operand) -> Callable[[Mask], NDArray[np.int64]]:
    """Return a function that takes a mask and returns the index of the ``mbarrier`` that each of its threads uses."""
    places = machine.places(operand, "shared" if "shared" in ins.opcode else "generic", ins, _BYTES)

    def objects(mask: Mask) -> NDArray[np.int64]:
        where, at = places(mask)
        if where != "shared":
            raise machine.fault(ins, "an mbarrier must be in shared memory")
        return machine.every(at)[machine.active(mask)] // _BYTES

    return objects


def barrier_step(machine: Machine, ins: Instruction) -> Step:
    """Return a function that executes an ``mbarrier`` instruction that does not wait."""
    words, state = ins.words, barriers(machine)
    kind = words[1]
    place = next(i for i, operand in enumerate(ins.operands) if isinstance(operand, Address))
    objects = mbarrier_reader(machine, ins, ins.operands[place])
    rest = ins.operands[place + 1 :]
    read = machine.reader(rest[0], "u32") if rest else None
    before = ins.operands[:place]
    write = machine.writer(before[0], "b64") if before and not isinstance(before[0], Sink) else None

    def counts(mask: Mask) -> NDArray[np.int64]:
        values = machine.every(read() if read else np.ones(1, np.uint32))
        return values[machine.active(mask)].astype(np.int64)

    def arrive(mask: Mask) -> None:
        at, arrivals = objects(mask), 1 if "expect_tx" in words else counts(mask)
        if state.exceeds(at, arrivals) and len(warps := machine.warps(mask)) > 1:
            for warp in warps:  # warps arrive one by one, as an arrival can complete the phase of the mbarrier
                arrive(warp)
            return
        if machine.checker:
            machine.checker.arrive([("mbarrier", place) for place in at.tolist()], machine.active(mask))
        if write:  # the state that mbarrier.arrive returns is the parity of the phase of the arrival
            state.require(at, ins)
            tokens = np.zeros(machine.count, np.uint64)
            tokens[machine.active(mask)] = state.phase[at].astype(np.uint64)
            write(mask, tokens)
        if "expect_tx" in words:
            state.expect(at, counts(mask), ins)
        state.arrive(at, arrivals, ins)

    steps: dict[str, Step] = {
        "init": lambda mask: state.initialise(objects(mask), counts(mask)),
        "inval": lambda mask: state.initialise(objects(mask), np.array([-1])),
        "expect_tx": lambda mask: state.expect(objects(mask), counts(mask), ins),
        "arrive": arrive,
    }
    if kind not in steps or "noComplete" in words:
        raise not_modelled(ins)
    return steps[kind]


def wait_step(machine: Machine, ins: Instruction) -> tuple[WaitStep, Step]:
    """Return two functions for ``mbarrier.try_wait`` or ``test_wait``: begin a wait, and end a wait with result false.

    The first function writes true for threads whose phase is complete, and returns these threads; the other threads
    wait. The second function writes false, for threads that continue although their phase is not complete.
    """
    state = barriers(machine)
    destination, address, phase = ins.operands[:3]
    objects, write = mbarrier_reader(machine, ins, address), machine.writer(destination, "pred")
    read = machine.reader(phase, "u32" if "parity" in ins.words else "u64")
    yes, no = np.ones(1, np.bool_), np.zeros(1, np.bool_)

    def wait(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
        at = objects(mask)
        state.require(at, ins)
        parity = machine.every(read())[mask].astype(np.int64) & 1
        passes = mask.copy()
        passes[mask] = state.phase[at] != parity
        if machine.checker:
            waited = [("mbarrier", place) for place in at[passes[mask]].tolist()]
            machine.checker.wait(waited, np.flatnonzero(passes))
        if passes.any():
            write(None if passes.all() else passes, yes if passes.all() else machine.every(yes))
        return passes

    return wait, lambda mask: write(mask, machine.every(no))
