"""When a warpgroup hands on its panels, by the law of what was measured; what they hold is for the compiled model."""

import sys

import pytest
from amaranth.sim import Simulator
from sptc.isa.instructions import Instruction, parse
from sptc.isa.timing import timing
from sptc.rtl.life_cycle import Operation
from sptc.rtl.round import ResultCode
from sptc.rtl.tensor_core import TENSOR_CORE
from sptc.rtl.warpgroup import Warpgroup
from sptc.tests.rtl.busy_warp import AnsweringWarp, BusyWarp

sys.set_int_max_str_digits(0)  # Amaranth's simulator writes values as decimal text into what it compiles
SPARSE = "wgmma.mma_async.sp.sync.aligned.m64n{}k32.{}.f16.f16"
DENSE = "wgmma.mma_async.sync.aligned.m64n{}k16.{}.f16.f16"
#: Multiplications until the pace is steady, and those that are timed.
FIRST, TIMED = 4, 8


class Tensor(BusyWarp):
    """Takes eight columns as an array of 32 units does."""

    cycles = TENSOR_CORE.warp_blocks


def panels_handed_on(instruction: Instruction, a_from: str) -> list[int]:
    """Cycles in which eight columns are multiplied, of one instruction behind the other."""
    dut = Warpgroup(TENSOR_CORE, warp_class=Tensor)
    wanted = (FIRST + TIMED) * instruction.n // 8
    found: list[int] = []

    async def bench(ctx) -> None:
        payload = dut.i.payload
        ctx.set(payload.operation, Operation.MULTIPLY)
        ctx.set(payload.last_panel, instruction.n // 8 - 1)
        ctx.set(payload.a_shared, a_from == "shared")
        ctx.set(payload.control.sparse, bool(instruction.sparse))
        ctx.set(payload.control.result, ResultCode.F16 if instruction.d.bits == 16 else ResultCode.F32)
        ctx.set(dut.i.valid, 1)
        ctx.set(dut.c.valid, 1)
        cycle = 0
        while len(found) < wanted:
            assert cycle < 100 + 40 * wanted, "nothing is multiplied any more"
            if ctx.get(dut.c.ready):
                found.append(cycle)
            await ctx.tick()
            cycle += 1

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return found


@pytest.mark.parametrize("a_from", ["registers", "shared"])
@pytest.mark.parametrize("n", [8, 16, 40, 64, pytest.param(72, marks=pytest.mark.regression)])
@pytest.mark.parametrize(("text", "d"), [(SPARSE, "f32"), (SPARSE, "f16"), (DENSE, "f32")])
def test_the_interval_is_the_laws(text: str, d: str, n: int, a_from: str) -> None:
    instruction = parse(text.format(n, d))
    panels = panels_handed_on(instruction, a_from)[:: n // 8]
    law = timing(instruction, "sm_90", a_from)
    assert law is not None
    assert (panels[FIRST + TIMED - 1] - panels[FIRST - 1]) / TIMED == law.interval


class Answering(AnsweringWarp):
    """Takes eight columns as an array of 32 units does."""

    cycles = TENSOR_CORE.warp_blocks


@pytest.mark.parametrize("pending", [0, 1])
def test_a_wait(pending: int) -> None:
    """It is taken once no more groups are under way than it says: behind the last result of one before."""
    dut = Warpgroup(TENSOR_CORE, warp_class=Answering)
    multiply, commit, wait = Operation.MULTIPLY, Operation.COMMIT, Operation.WAIT
    told = [multiply, multiply, commit, multiply, commit, wait]
    results: list[int] = []
    taken: list[int] = []

    async def bench(ctx) -> None:
        ctx.set(dut.i.payload.last_panel, 1)
        ctx.set(dut.i.payload.pending, pending)
        ctx.set(dut.c.valid, 1)
        ctx.set(dut.o.ready, 1)
        for cycle in range(200):
            ctx.set(dut.i.valid, len(taken) < len(told))
            if len(taken) < len(told):
                ctx.set(dut.i.payload.operation, told[len(taken)])
            if ctx.get(dut.o.valid):
                results.append(cycle)
            if ctx.get(dut.i.valid) and ctx.get(dut.i.ready):
                taken.append(cycle)
            await ctx.tick()

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert len(results) == 6
    assert taken[-1] == results[5 - 2 * pending] + 2


def test_what_is_undefined_is_flagged() -> None:
    """No fence; a fence; an access before the commit, and before the wait; and a descriptor with a reserved bit."""
    dut = Warpgroup(TENSOR_CORE, warp_class=Answering)
    multiply, commit, fence = Operation.MULTIPLY, Operation.COMMIT, Operation.FENCE
    told = [multiply, fence, multiply, "access", commit, "access", fence, "reserved"]
    found: list[set[str]] = []

    async def bench(ctx) -> None:
        payload = dut.i.payload
        ctx.set(dut.c.valid, 1)
        ctx.set(dut.o.ready, 1)
        for word in told:
            ctx.set(dut.accessed, word == "access")
            ctx.set(dut.i.valid, word != "access")
            ctx.set(payload.b_descriptor.reserved1, word == "reserved")
            ctx.set(payload.operation, word if isinstance(word, Operation) else multiply)
            while word != "access" and not ctx.get(dut.i.ready):
                await ctx.tick()
            found.append({name for name, _ in dut.undefined.shape() if ctx.get(dut.undefined[name])})
            await ctx.tick()

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    none: set[str] = set()
    assert found == [{"unfenced"}, none, none, {"uncommitted"}, none, {"unwaited"}, none, {"reserved"}]
