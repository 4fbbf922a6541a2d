"""The fetch of a warpgroup: a core matrix in every cycle, B first, nothing lost or exchanged, whatever waits."""

import sys
from collections.abc import Iterator

import numpy as np
import pytest
from amaranth.sim import Simulator
from sptc.rtl.operand_fetch import OperandFetch

sys.set_int_max_str_digits(0)  # Amaranth's simulator writes values as decimal text into what it compiles
STRIDE, LEADING = 8, 64
A_START = 1024
PANELS = 12


def unit(start: int, panel: int, segment: int, row: int) -> int:
    """Address of 16 bytes of a K-major operand without swizzle."""
    return start + panel * STRIDE + segment * LEADING + row


class Run:
    """Panels of B and of A through a fetch; what is read holds its address."""

    def __init__(self, short: bool, takes: Iterator[bool], asks: Iterator[bool], a_panels: int = 8) -> None:
        self.reads: list[int] = []
        self.panels: list[list[int]] = []
        self.taken: list[int] = []
        self.a: list[tuple[int, int, list[int]]] = []
        self._dut = OperandFetch()

        async def bench(ctx) -> None:
            await self._bench(ctx, short, takes, asks, a_panels)

        simulator = Simulator(self._dut)
        simulator.add_clock(1e-6)
        simulator.add_process(self._memory)
        simulator.add_testbench(bench)
        simulator.run()

    async def _memory(self, ctx) -> None:
        memory = self._dut.memory
        async for _, _, reads, *addresses in ctx.tick().sample(memory.read, *memory.address):
            for row, address in enumerate(addresses):
                ctx.set(memory.data[row], address if reads else -1)

    async def _bench(self, ctx, short: bool, takes: Iterator[bool], asks: Iterator[bool], a_panels: int) -> None:
        dut, of_b, of_a = self._dut, 0, 0
        waits = {"a": False, "b": False}
        for stream, start in ((dut.b, 0), (dut.a, A_START)):
            descriptor = stream.payload.descriptor
            for name, value in (("start", start), ("stride", STRIDE), ("leading", LEADING)):
                ctx.set(descriptor[name], value)
        ctx.set(dut.b.payload.short, short)
        ctx.set(dut.a.payload.short, 1)
        for cycle in range(1000):
            # What is once asked for stays.
            waits = {
                "b": of_b < PANELS and (waits["b"] or next(asks)),
                "a": of_a < a_panels and (waits["a"] or next(asks)),
            }
            ctx.set(dut.b.valid, waits["b"])
            ctx.set(dut.a.valid, waits["a"])
            ctx.set(dut.b.payload.panel, of_b)
            ctx.set(dut.a.payload.panel, of_a)
            ctx.set(dut.a_tag, of_a % 2)
            ctx.set(dut.panels.ready, next(takes))
            if ctx.get(dut.memory.read):
                self.reads.append(cycle)
            if ctx.get(dut.panels.valid) and ctx.get(dut.panels.ready):
                rows = [ctx.get(row) for row in dut.panels.payload]
                self.taken.append(cycle)
                self.panels.append([row >> 128 * place & (1 << 128) - 1 for row in rows for place in range(4)])
            if ctx.get(dut.arriving):
                arrived = dut.core_matrix
                assert ctx.get(arrived.tag) == ctx.get(arrived.panel) % 2
                rows = [ctx.get(row) for row in arrived.rows]
                self.a.append((ctx.get(arrived.panel), ctx.get(arrived.segment), rows))
            taken_b = waits["b"] and ctx.get(dut.b.ready)
            taken_a = waits["a"] and ctx.get(dut.a.ready)
            of_b, of_a = of_b + taken_b, of_a + taken_a
            waits = {"b": waits["b"] and not taken_b, "a": waits["a"] and not taken_a}
            await ctx.tick()
            if len(self.panels) == PANELS and len(self.a) == 2 * a_panels:
                return
        raise AssertionError("something was not delivered")


def always() -> Iterator[bool]:
    while True:
        yield True


def sometimes(rng: np.random.Generator, share: float) -> Iterator[bool]:
    while True:
        yield bool(rng.random() < share)


@pytest.mark.parametrize("short", [False, True])
def test_every_core_matrix_arrives(rng: np.random.Generator, short: bool) -> None:
    """In order and at its place, with gaps in what is asked for and stalls in what is taken."""
    run = Run(short, sometimes(rng, 0.4), sometimes(rng, 0.6))
    segments = 2 if short else 4
    for panel, found in enumerate(run.panels):
        held = np.array(found).reshape(8, 4)[:, :segments].tolist()
        assert held == [[unit(0, panel, segment, row) for segment in range(segments)] for row in range(8)]
    wanted = [(p, s, [unit(A_START, p, s, row) for row in range(8)]) for p in range(8) for s in range(2)]
    assert run.a == wanted


@pytest.mark.parametrize("short", [False, True])
def test_the_port_never_rests(short: bool) -> None:
    """As long as something is asked for and there is room."""
    run = Run(short, always(), always())
    assert run.reads == list(range(PANELS * (2 if short else 4) + 16))


def test_b_comes_first() -> None:
    """A is read in the cycles that B leaves: a panel of two core matrices every fourth cycle leaves half of them."""

    def every_fourth() -> Iterator[bool]:
        return (cycle % 4 == 3 for cycle in range(10**6))

    beside, alone = (Run(True, every_fourth(), always(), a_panels) for a_panels in (8, 0))
    assert beside.taken == alone.taken
    assert beside.reads[:32] == list(range(32))
