"""Commands and flags of a warpgroup are right, and several warpgroups take turns without affecting each other."""

from collections import deque

import numpy as np
import pytest
from amaranth.hdl import Module, Signal
from sptc.isa.instructions import parse
from sptc.isa.timing import RegisterCycles, timing
from sptc.rtl.commits import GROUPS
from sptc.rtl.life_cycle import Operation
from sptc.rtl.tensor_core import TENSOR_CORE
from sptc.rtl.tensor_cores import RegisterDelivery
from sptc.rtl.warp import Warp
from sptc.rtl.warpgroup import Warpgroup
from sptc.tests.rtl.conftest import simulate_clocked

INSTRUCTION = "wgmma.mma_async.sp.sync.aligned.m64n{}k32.f32.f16.f16"
COUNTS = [2, pytest.param(3, marks=pytest.mark.regression)]


class BusyWarp(Warp):
    """Stand-in for an array. A panel (eight columns) takes as many cycles as in an array of 32 units."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        cycles = TENSOR_CORE.warp_blocks
        left = Signal(range(cycles + 1))
        m.d.comb += [self.i.ready.eq(left <= 1), self.o.valid.eq(left == 1)]
        with m.If(left != 0):
            m.d.sync += left.eq(left - 1)
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += left.eq(cycles)
        return m


def test_commands() -> None:
    dut = Warpgroup(TENSOR_CORE, warp_class=BusyWarp)

    async def bench(ctx) -> None:
        await check_flags(ctx, dut)
        await check_room(ctx, dut)

    simulate_clocked(dut, bench)


async def check_room(ctx, dut: Warpgroup) -> None:
    """Check that commits are accepted while a multiplication waits for accumulators, up to `GROUPS` pending groups."""
    ctx.set(dut.c.valid, 0)
    ctx.set(dut.accessed, 0)
    for operation, count in ((Operation.MULTIPLY, 1), (Operation.COMMIT, GROUPS)):
        ctx.set(dut.i.payload.operation, operation)
        ctx.set(dut.i.valid, 1)
        for _ in range(count):
            assert ctx.get(dut.i.ready)
            await ctx.tick()
    assert (ctx.get(dut.pending), ctx.get(dut.i.ready)) == (GROUPS, 0)
    for pending in range(GROUPS):
        ctx.set(dut.i.payload.operation, Operation.WAIT)
        ctx.set(dut.i.payload.pending, pending)
        assert not ctx.get(dut.i.ready)
    ctx.set(dut.i.payload.operation, Operation.FENCE)
    assert ctx.get(dut.i.ready)


async def check_flags(ctx, dut: Warpgroup) -> None:
    """Check the flags of missing fences, accesses before a commit or a wait, and reserved bits of both descriptors."""
    multiply, commit, fence, wait = Operation.MULTIPLY, Operation.COMMIT, Operation.FENCE, Operation.WAIT
    # Steps: command or access; number of groups that a wait leaves, or descriptor with a reserved bit; expected flags.
    steps: list[tuple[object, object, set[str]]] = [
        (multiply, None, {"unfenced"}), (fence, None, set()), (multiply, None, set()),
        ("access", None, {"uncommitted"}), (commit, None, set()), ("access", None, {"unwaited"}), (fence, None, set()),
        (multiply, "b_descriptor", {"reserved"}), (multiply, "a_descriptor", set()),  # not flagged: A is in registers
        (multiply, "a_descriptor of A in shared memory", {"reserved"}), (commit, None, set()),
        (wait, 1, set()), ("access", None, {"unwaited"}), (wait, 0, set()), ("access", None, set()),
    ]  # fmt: skip
    found: list[set[str]] = []

    payload = dut.i.payload
    ctx.set(dut.c.valid, 1)
    ctx.set(dut.o.ready, 1)
    for word, detail, _ in steps:
        ctx.set(dut.accessed, word == "access")
        ctx.set(dut.i.valid, word != "access")
        ctx.set(payload.b_descriptor.reserved1, detail == "b_descriptor")
        ctx.set(payload.a_descriptor.reserved1, str(detail).startswith("a_descriptor"))
        ctx.set(payload.a_shared, str(detail).endswith("shared memory"))
        ctx.set(payload.operation, word if isinstance(word, Operation) else multiply)
        ctx.set(payload.pending, detail if word is wait else 0)
        while word != "access" and not ctx.get(dut.i.ready):
            await ctx.tick()
        found.append({name for name, _ in dut.undefined.shape() if ctx.get(dut.undefined[name])})
        await ctx.tick()

    for number, ((*step, flags), flagged) in enumerate(zip(steps, found, strict=True)):
        assert flagged == flags, f"step {number}: {step}"


def test_a_reset_ends_the_delivery_of_registers() -> None:
    """A reset in any cycle of a delivery does not change how long later deliveries take."""
    dut, reset = RegisterDelivery(RegisterCycles()), Signal()

    async def bench(ctx) -> None:
        for cycle in range(1, 18):
            ctx.set(dut.sparse, 1)
            ctx.set(dut.narrow, 0)
            ctx.set(dut.pending, 1)
            await ctx.tick().repeat(cycle)
            ctx.set(reset, 1)
            await ctx.tick()
            ctx.set(reset, 0)
            for sparse, narrow, cycles in ((1, 0, 18), (1, 1, 16), (0, 0, 13), (0, 1, 13), (1, 0, 18)):
                ctx.set(dut.sparse, sparse)
                ctx.set(dut.narrow, narrow)
                for number in range(1, cycles + 1):
                    assert ctx.get(dut.end) == (number == cycles), f"reset in cycle {cycle}, delivery {sparse, narrow}"
                    await ctx.tick()

    simulate_clocked(dut, bench, reset=reset)


class Showing(Warp):
    """Stand-in for an array. One cycle after a panel, it outputs A and the accumulator of the panel."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        d, i = self.o.payload.d[0], self.i.payload
        m.d.comb += self.i.ready.eq(~self.o.valid | self.o.ready)
        with m.If(self.i.ready):
            m.d.sync += [self.o.valid.eq(self.i.valid), d[0].eq(i.c[0][0]), d[1].eq(i.a[0][0])]
        return m


@pytest.mark.parametrize("count", COUNTS)
def test_several_warpgroups_are_as_fast_as_one(count: int) -> None:
    """Warpgroups take turns with whole multiplications. The interval is the same as for one warpgroup."""
    dut, reset = Warpgroup(TENSOR_CORE, count=count, warp_class=BusyWarp), Signal()

    async def bench(ctx) -> None:
        for n, a_shared in ((16, True), (16, False), (64, False), (64, True)):
            ctx.set(reset, 1)
            await ctx.tick()
            ctx.set(reset, 0)
            await _check_turns(ctx, dut, n, a_shared)

    simulate_clocked(dut, bench, reset=reset)


async def _check_turns(ctx, dut: Warpgroup, n: int, a_shared: bool) -> None:
    """Let all warpgroups multiply concurrently. Check that warpgroups take turns, and that the interval is right."""
    count, panels = len(dut.i), n // 8
    first, timed = 2 * count, 4 * count
    found: list[tuple[int, int]] = []
    for i, c in zip(dut.i, dut.c, strict=True):
        ctx.set(i.payload.last_panel, panels - 1)
        ctx.set(i.payload.a_shared, a_shared)
        ctx.set(i.payload.control.sparse, 1)
        ctx.set(i.valid, 1)
        ctx.set(c.valid, 1)
    cycle = 0
    while len(found) < (first + timed) * panels:
        assert cycle < 100 + 40 * (first + timed) * panels, "multiplications have stopped too early"
        takes = [number for number, c in enumerate(dut.c) if ctx.get(c.ready)]
        assert len(takes) <= 1
        found.extend((cycle, number) for number in takes)
        await ctx.tick()
        cycle += 1
    owners = [number for _, number in found[::panels]]
    assert owners == [(owners[0] + place) % count for place in range(len(owners))]
    assert all(number == owners[place // panels] for place, (_, number) in enumerate(found))
    begun = [cycle for cycle, _ in found[::panels]]
    law = timing(parse(INSTRUCTION.format(n)), "sm_90", "shared" if a_shared else "registers")
    interval = (begun[first + timed - 1] - begun[first - 1]) / timed
    assert interval == law.interval, f"n={n}, A {'shared' if a_shared else 'in registers'}"


class _Side:
    """State of one warpgroup: its remaining commands, its pending panels, and its completed waits."""

    def __init__(self, rng: np.random.Generator) -> None:
        kinds = rng.choice([Operation.MULTIPLY, Operation.COMMIT, Operation.WAIT, Operation.FENCE], 40)
        self.commands = deque((kind, int(rng.integers(3)), int(rng.integers(1 << 20))) for kind in kinds)
        self.offered = False
        self.accumulator = 0  # accumulator that is offered to the hardware, or zero if none is
        self.to_multiply: deque[int] = deque()  # value of A for each panel that has not been multiplied
        self.due: deque[tuple[int, int]] = deque()  # accumulator and value of A of each expected result
        self.lengths: deque[int] = deque()
        self.issued = self.finished = self.delivered = 0
        self.marks: deque[int] = deque()

    @property
    def is_done(self) -> bool:
        return not self.commands and not self.due and not self.to_multiply and not self.marks


@pytest.mark.parametrize("count", COUNTS)
def test_warpgroups_do_not_affect_each_other(count: int, seed: int) -> None:
    """With random commands, accumulators and stalls, results and waits do not depend on other warpgroups."""
    rng = np.random.default_rng([seed, count])
    dut = Warpgroup(TENSOR_CORE, count=count, warp_class=Showing)
    sides = [_Side(rng) for _ in range(count)]

    async def bench(ctx) -> None:
        cycle = 0
        while not all(side.is_done for side in sides):
            cycle += 1
            assert cycle < 5_000, "the warpgroups hang"
            for side, i, c, o in zip(sides, dut.i, dut.c, dut.o, strict=True):
                side.offered |= bool(side.commands) and bool(rng.integers(2))
                ctx.set(i.valid, side.offered)
                if side.offered:
                    operation, of, a = side.commands[0]
                    ctx.set(i.payload.operation, operation)
                    ctx.set(i.payload.pending, of)
                    ctx.set(i.payload.last_panel, of)
                    ctx.set(i.payload.add, 1)
                    ctx.set(i.payload.a[0][0][0], a)
                if side.to_multiply and not side.accumulator and rng.integers(2):
                    side.accumulator = int(rng.integers(1, 1 << 32))
                ctx.set(c.valid, side.accumulator != 0)
                ctx.set(c.payload[0][0][0], side.accumulator)
                ctx.set(o.ready, int(rng.integers(2)))
            for side, pending in zip(sides, dut.pending, strict=True):
                assert len(side.marks) <= ctx.get(pending)
            for side, i, c, o in zip(sides, dut.i, dut.c, dut.o, strict=True):
                _take(ctx, side, i)
                if ctx.get(o.valid) and ctx.get(o.ready):
                    d = o.payload[0].d[0]
                    assert side.due, "a result goes to the wrong warpgroup"
                    assert (ctx.get(d[0]), ctx.get(d[1])) == side.due.popleft()
                    side.delivered += 1
                    if side.delivered == side.lengths[0]:
                        side.lengths.popleft()
                        side.finished, side.delivered = side.finished + 1, 0
                if ctx.get(c.valid) and ctx.get(c.ready):
                    side.due.append((side.accumulator, side.to_multiply.popleft()))
                    side.accumulator = 0
                while side.marks and side.marks[0] <= side.finished:
                    side.marks.popleft()
            await ctx.tick()

    simulate_clocked(dut, bench)
    assert all(side.finished == side.issued for side in sides)


def _take(ctx, side: _Side, i) -> None:
    """Update the state of a warpgroup with the command that it accepts in this cycle, if any."""
    if not (ctx.get(i.valid) and ctx.get(i.ready)):
        return
    operation, of, a = side.commands.popleft()
    side.offered = False
    if operation == Operation.MULTIPLY:
        side.to_multiply.extend([a] * (of + 1))
        side.lengths.append(of + 1)
        side.issued += 1
    elif operation == Operation.COMMIT:
        side.marks.append(side.issued)
    elif operation == Operation.WAIT:
        assert len(side.marks) <= of, "a wait ends before its groups are complete"
