"""A tensor core's choice of what is multiplied: its pace, panels first, and every result to whom it belongs."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
from amaranth.hdl import Array, Module, Signal
from sptc.isa.timing import RegisterCycles
from sptc.rtl.tensor_core import TENSOR_CORE, TensorCore
from sptc.rtl.warp import Warp
from sptc.tests.rtl.simulation import simulate_clocked

PACES = RegisterCycles().of_mma
CYCLES, DEPTH = TENSOR_CORE.warp_blocks, 4


class EchoingWarp(Warp):
    """Takes an operand every four cycles; each result is the first register of A, and comes as late as it likes."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        left, held = Signal(8), Array(Signal(32, name=f"held_{place}") for place in range(DEPTH))
        first, count = Signal(range(DEPTH)), Signal(range(DEPTH + 1))
        taken, given = self.i.valid & self.i.ready, self.o.valid & self.o.ready
        m.d.comb += [
            self.i.ready.eq((left == 0) & (count != DEPTH)),
            self.o.valid.eq(count != 0),
            self.o.payload.d[0][0].eq(held[first]),
        ]
        m.d.sync += [count.eq(count + taken - given), first.eq(first + given), left.eq(left - (left != 0))]
        with m.If(taken):
            m.d.sync += [held[(first + count)[: (DEPTH - 1).bit_length()]].eq(self.i.payload.a[0][0]), left.eq(3)]
        return m


def run(dut: TensorCore, bench) -> None:
    simulate_clocked(dut, bench)


@pytest.mark.parametrize(("sparse", "long"), PACES)
def test_the_pace_of_the_register_file(sparse: bool, long: bool) -> None:
    dut = TensorCore(TENSOR_CORE, warp_class=EchoingWarp)
    begun: list[int] = []

    async def bench(ctx) -> None:
        ctx.set(dut.i.payload.control.sparse, sparse)
        ctx.set(dut.i.payload.long, long)
        ctx.set(dut.i.valid, 1)
        ctx.set(dut.o.ready, 1)
        for cycle in range(60):
            if ctx.get(dut.i.ready):
                begun.append(cycle)
            await ctx.tick()

    run(dut, bench)
    assert {later - earlier for earlier, later in pairwise(begun)} == {PACES[sparse, long]}


def test_a_panel_goes_first() -> None:
    """No instruction begins while one waits, and panels follow each other as if there were no instructions."""
    dut = TensorCore(TENSOR_CORE, warp_class=EchoingWarp)
    panels: list[int] = []

    async def bench(ctx) -> None:
        for results in (dut.o, dut.panel_result):
            ctx.set(results.ready, 1)
        ctx.set(dut.i.valid, 1)
        begun = 0
        for cycle in range(100):
            waits = cycle >= 20
            ctx.set(dut.panel_waits, waits)
            ctx.set(dut.panel.valid, cycle >= 30)
            begins = ctx.get(dut.i.ready)
            assert not (begins and waits)
            begun += begins
            if ctx.get(dut.panel.valid) and ctx.get(dut.panel.ready):
                panels.append(cycle)
            await ctx.tick()
        assert begun

    run(dut, bench)
    assert panels == [*range(30, 100, CYCLES)]


def test_results_reach_whom_they_belong_to(rng: np.random.Generator) -> None:
    """Both sources with gaps, both takers with stalls."""
    dut = TensorCore(TENSOR_CORE, warp_class=EchoingWarp)
    got: dict[str, list[int]] = {"i": [], "panel": []}
    given: dict[str, list[int]] = {"i": [], "panel": []}
    numbers: Iterator[int] = iter(range(1, 1 << 20))

    async def bench(ctx) -> None:
        streams = {"i": (dut.i, dut.o), "panel": (dut.panel, dut.panel_result)}
        offered: dict[str, int] = {}
        shares = rng.choice([0.2, 0.6, 1.0], (80, 4))
        shares[::4], shares[2::4] = (1, 0, 1, 1), (0, 1, 1, 1)  # where panels never cease, instructions starve
        for cycle in range(2400):
            share = shares[cycle // 30]
            for place, (name, (operands, results)) in enumerate(streams.items()):
                if name not in offered and rng.random() < share[place]:
                    offered[name] = next(numbers)
                    ctx.set(operands.payload.a[0][0], offered[name])
                    ctx.set(operands.payload.long, int(rng.integers(2)))
                ctx.set(operands.valid, name in offered)
                ctx.set(results.ready, bool(rng.random() < share[2 + place]))
            ctx.set(dut.panel_waits, "panel" in offered)
            for name, (operands, results) in streams.items():
                if ctx.get(results.valid) and ctx.get(results.ready):
                    got[name].append(ctx.get(results.payload.d[0][0]))
                if ctx.get(operands.valid) and ctx.get(operands.ready):
                    given[name].append(offered.pop(name))
            await ctx.tick()

    run(dut, bench)
    for name in given:
        assert len(given[name]) > 50
        assert got[name] == given[name][: len(got[name])]
        assert len(given[name]) - len(got[name]) <= DEPTH
