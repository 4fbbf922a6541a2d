"""Streams of payloads through a core or a warp, cycle by cycle."""

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np
from amaranth.hdl import Module, ResetInserter, Signal
from amaranth.sim import SimulatorContext
from sptc.rtl.core import Core
from sptc.rtl.warp import Warp
from sptc.tests.rtl.simulation import simulate_clocked

Work = TypeVar("Work")


@dataclass(frozen=True)
class Cycle:
    """The handshakes of one cycle, as they are at its closing clock edge."""

    reset: bool
    i_valid: int
    i_ready: int
    o_valid: int
    o_ready: int
    result: int

    @property
    def accepts(self) -> bool:
        return bool(self.i_valid and self.i_ready)

    @property
    def delivers(self) -> bool:
        return bool(self.o_valid and self.o_ready)


def run(
    dut: Core | Warp,
    payloads: Sequence[int],
    rng: np.random.Generator,
    *,
    gaps: Sequence[float] = (0,),
    stalls: Sequence[float] = (0,),
    cycles: int | None = None,
    resets: Collection[int] = (),
) -> list[Cycle]:
    """Offer payloads in order and return every cycle.

    `gaps` are the chances that a cycle offers nothing new, `stalls` that it takes nothing; they take turns, 32 cycles
    each. An offer stands until it is accepted; between offers the payload is noise. The run ends some cycles after
    the last result that no reset has prevented, or after `cycles`.
    """
    top, reset = Module(), Signal()
    top.submodules.dut = ResetInserter(reset)(dut) if resets else dut
    top.d.sync += Signal(name="heartbeat").eq(1)  # a core without registers has no clock of its own
    i_payload, o_payload = dut.i.payload.as_value(), dut.o.payload.as_value()
    log: list[Cycle] = []

    async def bench(context: SimulatorContext) -> None:
        waiting, offered, under_way, tail = deque(payloads), False, 0, 2 * dut.config.latency + 4
        while tail and len(log) != cycles:
            assert len(log) < 1000 * len(payloads), "it hangs"
            phase = len(log) // 32
            resetting = len(log) in resets
            if not offered and waiting and not resetting:
                offered = rng.random() >= gaps[phase % len(gaps)]
            noise = int.from_bytes(rng.bytes(len(i_payload) // 8), "little")
            context.set(reset, resetting)
            context.set(dut.i.valid, offered and not resetting)
            context.set(i_payload, waiting[0] if offered else noise)
            context.set(dut.o.ready, not resetting and rng.random() >= stalls[phase % len(stalls)])
            ports = (dut.i.valid, dut.i.ready, dut.o.valid, dut.o.ready, o_payload)
            cycle = Cycle(resetting, *(await context.tick().sample(*ports))[2:])
            log.append(cycle)
            if cycle.accepts:
                waiting.popleft()
                offered = False
            under_way = 0 if resetting else under_way + cycle.accepts - cycle.delivers
            tail -= not waiting and not under_way

    simulate_clocked(top, bench)
    return log


def accepted(log: Sequence[Cycle]) -> list[int]:
    """Return the cycles in which an offer is accepted."""
    return [number for number, cycle in enumerate(log) if cycle.accepts]


def first_valid(log: Sequence[Cycle]) -> list[int]:
    """Return the cycles in which a result appears."""
    free = [True, *(cycle.delivers or not cycle.o_valid for cycle in log)]
    return [number for number, cycle in enumerate(log) if cycle.o_valid and free[number]]


def check_stalls(log: Sequence[Cycle]) -> None:
    """A result that is not taken stays as it is."""
    stalls = [(before, after) for before, after in pairwise(log) if before.o_valid and not before.o_ready]
    assert stalls, "the test never stalled"
    for before, after in stalls:
        assert after.o_valid
        assert after.result == before.result


def survivors(log: Sequence[Cycle], given: Sequence[Work]) -> list[Work]:
    """Return those of which the results are delivered; a reset must forget the others, and no result is of before."""
    under_way: deque[Work] = deque()
    offered, delivered, forgotten = iter(given), [], 0
    for cycle in log:
        if cycle.reset:
            forgotten += len(under_way)
            under_way.clear()
            continue
        if cycle.accepts:
            under_way.append(next(offered))
        if cycle.o_valid:
            assert under_way, "a result of before the reset"
        if cycle.delivers:
            delivered.append(under_way.popleft())
    assert forgotten
    assert delivered
    assert len(delivered) + forgotten == len(given)
    return delivered
