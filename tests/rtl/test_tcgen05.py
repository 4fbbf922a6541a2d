"""When the tensor cores of a CTA multiply, by the law of what was measured; what, is for the compiled model."""

from itertools import product

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from sptc.isa.instructions import Instruction
from sptc.isa.tcgen05 import Opcode, parse_shaped
from sptc.isa.tcgen05_timing import tcgen05_timing
from sptc.rtl.tcgen05 import TCGEN05_ARRAY, CtaOperation, Tcgen05
from sptc.tests.rtl.busy_warp import AnsweringWarp
from sptc.tests.rtl.simulation import simulate_clocked

DENSE = "tcgen05.mma.cta_group::{}.kind::f16 (m{}n{}k16.f32.f16.f16)"
SPARSE = "tcgen05.mma.sp.cta_group::{}.kind::f16 (m{}n{}k32.f32.f16.f16)"
#: Instructions until the pace is steady, and those that are timed.
FIRST, TIMED = 3, 4
N = 64


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


async def panels_written(ctx, dut: Ctas, opcode: Opcode, instruction: Instruction, a_from: str) -> list[int]:
    """Return the cycles in which eight columns are written, of one instruction behind the other, on the same D.

    Of tensor memory no more is read for those that are taken than metadata of 16-bit elements and A.
    """
    wanted = (FIRST + TIMED) * instruction.n // 8
    columns, most = 0, opcode.sparse + (8 if a_from == "tensor" else 0)
    written: list[list[int]] = [[] for _ in dut.ctas]
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
    assert all(found == written[0] for found in written)
    assert -2 * most <= columns <= 0, "what is read is not what the instructions have there"
    return written[0]


@pytest.mark.regression
@pytest.mark.parametrize("ctas", [1, 2])
def test_the_interval_is_the_laws(ctas: int) -> None:
    dut, reset = Ctas(ctas), Signal()

    async def bench(ctx) -> None:
        for text, a_from in product((DENSE, SPARSE) if ctas == 1 else (SPARSE,), ("tensor", "shared")):
            ctx.set(reset, 1)
            await ctx.tick()
            ctx.set(reset, 0)
            opcode, instruction = parse_shaped(text.format(ctas, 128 * ctas, N))
            panels = (await panels_written(ctx, dut, opcode, instruction, a_from))[N // 8 - 1 :: N // 8]
            law = tcgen05_timing(opcode, instruction, a_from)
            interval = (panels[FIRST + TIMED - 1] - panels[FIRST - 1]) / TIMED
            assert interval == law.interval, f"{instruction}, A from {a_from}"

    simulate_clocked(dut, bench, reset=reset)
