"""When the tensor cores of a CTA multiply, by the law of what was measured; what, is for the compiled model."""

import sys

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.sim import Simulator
from sptc.isa.instructions import Instruction
from sptc.isa.tcgen05 import Opcode, parse_shaped
from sptc.isa.tcgen05_timing import tcgen05_timing
from sptc.rtl.tcgen05 import TCGEN05_ARRAY, CtaOperation, Tcgen05
from sptc.tests.rtl.busy_warp import AnsweringWarp

sys.set_int_max_str_digits(0)  # Amaranth's simulator writes values as decimal text into what it compiles
DENSE = "tcgen05.mma.cta_group::{}.kind::f16 (m{}n{}k16.f32.f16.f16)"
SPARSE = "tcgen05.mma.sp.cta_group::{}.kind::f16 (m{}n{}k32.f32.f16.f16)"
#: Instructions until the pace is steady, and those that are timed.
FIRST, TIMED = 3, 4


class Tensor(AnsweringWarp):
    """Takes eight columns as an array of 32 units does."""

    cycles = TCGEN05_ARRAY.warp_blocks


class Ctas(wiring.Component):
    """One CTA, or a pair that hand each other B."""

    def __init__(self, count: int) -> None:
        self.ctas = [Tcgen05(TCGEN05_ARRAY, warp_class=Tensor) for _ in range(count)]
        super().__init__({})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for number, cta in enumerate(self.ctas):
            m.submodules[f"cta_{number}"] = cta
        if len(self.ctas) == 2:
            for mine, other in (self.ctas, self.ctas[::-1]):
                m.d.comb += [mine.other_waits.eq(other.waits), mine.other_panel.eq(other.panel)]
        return m


def panels_written(opcode: Opcode, instruction: Instruction, a_from: str) -> list[int]:
    """Cycles in which eight columns are written, of one instruction behind the other, on the same accumulators.

    Of tensor memory no more is read for those that are taken than metadata of 16-bit elements and A.
    """
    dut = Ctas(opcode.cta_group)
    wanted = (FIRST + TIMED) * instruction.n // 8
    columns, most = 0, opcode.sparse + (8 if a_from == "tensor" else 0)
    written: list[list[int]] = [[] for _ in dut.ctas]

    async def bench(ctx) -> None:
        nonlocal columns
        for number, cta in enumerate(dut.ctas):
            payload = cta.i.payload
            ctx.set(payload.operation, CtaOperation.MULTIPLY)
            for name, value in (
                ("last_panel", instruction.n // 8 - 1),
                ("a_shared", a_from == "shared"),
                ("add", 1),
                ("pair", opcode.cta_group == 2),
                ("odd", number),
            ):
                ctx.set(payload[name], value)
            ctx.set(payload.control.sparse, opcode.sparse)
            ctx.set(cta.i.valid, 1)
        cycle = 0
        while len(written[0]) < wanted:
            assert cycle < 300 + 40 * wanted, "nothing is multiplied any more"
            columns += ctx.get(dut.ctas[0].tensor.read) - most * ctx.get(dut.ctas[0].i.valid & dut.ctas[0].i.ready)
            for cta, found in zip(dut.ctas, written, strict=True):
                if ctx.get(cta.accumulators.write):
                    found.append(cycle)
            await ctx.tick()
            cycle += 1

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert all(found == written[0] for found in written)
    assert -2 * most <= columns <= 0, "what is read is not what the instructions have there"
    return written[0]


@pytest.mark.parametrize("a_from", ["tensor", "shared"])
@pytest.mark.parametrize(
    ("text", "ctas", "n"),
    [(DENSE, 1, 64), (SPARSE, 1, 64), pytest.param(SPARSE, 2, 64, marks=pytest.mark.regression)],
)
def test_the_interval_is_the_laws(text: str, ctas: int, n: int, a_from: str) -> None:
    opcode, instruction = parse_shaped(text.format(ctas, 128 * ctas, n))
    panels = panels_written(opcode, instruction, a_from)[n // 8 - 1 :: n // 8]
    assert (panels[FIRST + TIMED - 1] - panels[FIRST - 1]) / TIMED == tcgen05_timing(
        opcode, instruction, a_from
    ).interval
