"""When a warp of wgmma hands on its panels; what they hold is for the bench and the proofs."""

from typing import Any

import numpy as np
import pytest
from sptc.rtl.config import PRESETS
from sptc.rtl.wgmma import WgmmaWarp
from sptc.tests.rtl.busy_warp import BusyWarp
from sptc.tests.rtl.simulation import simulate_clocked

PANELS = 4


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("a_shared", [False, True])
@pytest.mark.parametrize("blocks", [1, 20])
def test_cycles(sparse: bool, a_shared: bool, blocks: int) -> None:
    """Two instructions back to back, accumulators always there."""
    warp_class = type("SlowWarp", (BusyWarp,), {"cycles": blocks})
    dut = WgmmaWarp(PRESETS["hopper"], warp_class=warp_class)
    taken: list[int] = []
    started: list[int] = []

    async def bench(ctx) -> None:
        ctx.set(dut.i.payload.last_panel, PANELS - 1)
        ctx.set(dut.i.payload.a_shared, a_shared)
        ctx.set(dut.i.payload.control.sparse, sparse)
        ctx.set(dut.i.valid, 1)
        ctx.set(dut.c.valid, 1)
        for cycle in range(150):
            if ctx.get(dut.i.ready):
                started.append(cycle)
            if ctx.get(dut.c.ready):
                taken.append(cycle)
            await ctx.tick()

    simulate_clocked(dut, bench)
    less = 0 if sparse else 2
    first = (12 if a_shared else 6) - less
    assert started[:2] == [0, taken[PANELS - 1]]
    assert taken[0] == first
    assert np.diff(taken[:PANELS]).tolist() == [max(blocks, 5 - less)] * (PANELS - 1)
    assert taken[PANELS] - taken[PANELS - 1] == max(first, blocks)


@pytest.mark.parametrize("negated", [False, True])
def test_a_from_shared_memory(negated: bool) -> None:
    """Where each register comes from, by the fragment of the manual: units hold their address, words their place.

    Metadata and sparsity selector of each lane go along.
    """
    made: list[BusyWarp] = []

    class Seen(BusyWarp):
        def __init__(self, *arguments: Any, **others: Any) -> None:
            super().__init__(*arguments, **others)
            made.append(self)

    dut = WgmmaWarp(PRESETS["hopper"], warp_class=Seen)
    warp, stride, leading = 2, 11, 300
    found, metadata = np.zeros((32, 4), np.int64), []

    async def memory(ctx) -> None:
        async for _, _, *addresses in ctx.tick().sample(*dut.memory.address):
            for row, address in enumerate(addresses):
                ctx.set(dut.memory.data[row], sum(4 * address + word << 32 * word for word in range(4)))

    async def bench(ctx) -> None:
        payload = dut.i.payload
        for field, value in (("stride", stride), ("leading", leading)):
            ctx.set(payload.a_descriptor[field], value)
        for field, value in (("a_shared", 1), ("warp", warp), ("negated", negated)):
            ctx.set(payload[field], value)
        for lane in range(32):
            ctx.set(payload.e[lane], 0x9E3779B9 * (lane + 1) % (1 << 32))
        ctx.set(payload.sparsity_selector, 2)
        ctx.set(dut.i.valid, 1)
        ctx.set(dut.c.valid, 1)
        (busy,) = made
        for _ in range(40):
            if ctx.get(busy.i.valid):
                break
            await ctx.tick()
        for lane, register in np.ndindex(found.shape):
            found[lane, register] = ctx.get(busy.i.payload.a[lane][register])
        metadata.extend(ctx.get(busy.i.payload.e[lane]) for lane in range(32))
        assert ctx.get(busy.i.payload.sparsity_selector) == 2

    simulate_clocked(dut, bench, memory)
    lane, register = np.indices(found.shape)
    row = 16 * warp + lane // 4 + 8 * (register % 2)
    unit = row % 8 + row // 8 * stride + register // 2 * leading
    # Two of f16 in a register, whose code is zero.
    np.testing.assert_array_equal(found, (4 * unit + lane % 4) ^ (0x80008000 if negated else 0))
    assert metadata == [0x9E3779B9 * (lane + 1) % (1 << 32) for lane in range(32)]
