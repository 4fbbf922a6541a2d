"""The arrays of a warpgroup get the A, B, metadata and accumulators that the index maps state."""

from collections import deque
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from sptc.isa.instructions import Instruction, parse
from sptc.rtl.life_cycle import Operation
from sptc.rtl.tensor_core import TENSOR_CORE
from sptc.rtl.tensor_cores import WARPS
from sptc.rtl.warpgroup import Warpgroup
from sptc.tests.rtl import panels as operands
from sptc.tests.rtl.conftest import simulate_clocked
from sptc.tests.rtl.panels import COLUMNS, LANES, MEMORY_BYTES, REGISTERS, ROWS, Inverting

KINDS = [
    "wgmma.mma_async.sp.sync.aligned.m64n24k32.f32.f16.f16",
    "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16",
    "wgmma.mma_async.sp.sync.aligned.m64n16k16.f32.tf32.tf32",
    "wgmma.mma_async.sp.sync.aligned.m64n24k64.f32.e4m3.e5m2",
    "wgmma.mma_async.sync.aligned.m64n24k32.s32.s8.u8",
]
INSTRUCTIONS = 10


@dataclass(frozen=True, eq=False)
class Work:
    """An instruction, and the registers that its arrays must receive."""

    instruction: Instruction
    fields: dict[str, int]
    descriptors: dict[str, int]
    registers: dict[str, NDArray[np.uint32]]
    a: NDArray[np.uint32]  # registers of A, array shape (warp, lane, register)
    panels: list[NDArray[np.uint32]]  # registers of B of each panel, array shape (lane, register)

    @property
    def reads(self) -> int:
        """Number of core matrices that are read: four per panel of B (two if dense), and two per eight rows of A."""
        return len(self.panels) * (4 if self.instruction.sparse else 2) + 16 * self.fields["a_shared"]


def draw(number: int, smem: NDArray[np.uint8], rng: np.random.Generator) -> Work:
    """Draw a random instruction. A and B have different properties, such as majors and swizzles, where possible."""
    i = parse(KINDS[number % len(KINDS)])
    fields = {name: int(rng.integers(2)) for name in ("a_shared", "add", "sparsity_selector")}
    wide = i.container_bits == 16
    fields["a_transposed"] = int(wide and fields["a_shared"] and rng.integers(2))
    fields["b_transposed"] = int(wide) - fields["a_transposed"]
    fields |= {"negated": int(not i.a.is_integer and number % 2 == 0), "last_panel": i.n // COLUMNS - 1}
    descriptors = operands.draw_descriptors(rng, "wgmma")
    octets = partial(operands.shared_octets, smem, i.container_bits, family="wgmma")
    shapes = {"a": (WARPS, LANES, REGISTERS), "e": (WARPS, LANES)}
    registers = {name: rng.integers(0, 1 << 32, shape, np.uint32) for name, shape in shapes.items()}
    a = registers["a"]
    if fields["a_shared"]:
        rows = octets(descriptors["a"], WARPS * ROWS, 32, mn_major=fields["a_transposed"])
        a = np.array([operands.a_registers(of_warp) for of_warp in rows.reshape(WARPS, ROWS, 32)])
    b = octets(descriptors["b"], i.n, 64 if i.sparse else 32, mn_major=fields["b_transposed"])
    panels = [operands.b_registers(of_panel) for of_panel in b.reshape(-1, COLUMNS, b.shape[1])]
    signs = np.uint32({8: 0x80808080, 16: 0x80008000, 32: 0x80000000}[i.container_bits] * fields["negated"])
    return Work(i, fields, descriptors, registers, a ^ signs, panels)


def put(ctx, payload, one: Work) -> None:
    operands.offer(ctx, payload, Operation.MULTIPLY, TENSOR_CORE, one)
    for name, words in one.registers.items():
        ctx.set(payload[name].as_value(), operands.bits_of(words))


def check_array(ctx, array: int, warp: Inverting, one: Work, panel: int, c: NDArray[np.uint32]) -> None:
    """Compare the inputs of an array with the expected rows of A, metadata, panel of B, and accumulators."""
    payload = warp.i.payload
    where = f"{one.instruction}, {one.fields}, panel {panel}, array {array}"
    for name, expected in (("a", one.a[array]), ("b", one.panels[panel]), ("c", c * np.uint32(one.fields["add"]))):
        result = operands.lanes_of(ctx, payload[name], REGISTERS)
        np.testing.assert_array_equal(result[:, : expected.shape[1]], expected, f"{name} of {where}")
    if one.instruction.sparse:
        e = operands.words_of(ctx.get(payload.e.as_value()), LANES)
        np.testing.assert_array_equal(e, one.registers["e"][array], f"metadata of {where}")
        assert ctx.get(payload.sparsity_selector) == one.fields["sparsity_selector"], where


def test_every_array_gets_its_operands(rng: np.random.Generator) -> None:
    """Arrays get the operands of consecutive instructions of all kinds, also with gaps or stalls of C and D."""
    arrays: list[Inverting] = []
    dut = Warpgroup(TENSOR_CORE, warp_class=type("Array", (Inverting,), {"made": arrays}))
    smem = rng.integers(0, 256, MEMORY_BYTES, dtype=np.uint8)
    work = [draw(number, smem, rng) for number in range(INSTRUCTIONS)]
    panels = deque((one, panel) for one in work for panel in range(len(one.panels)))
    results: deque[NDArray[np.uint32]] = deque()

    async def bench(ctx) -> None:
        accepted = reads = 0
        c = rng.integers(0, 1 << 32, (WARPS, LANES, REGISTERS), np.uint32)
        put(ctx, dut.i.payload, work[0])
        for _ in range(200 * INSTRUCTIONS):
            if not panels and not results:
                break
            ctx.set(dut.i.valid, accepted < INSTRUCTIONS and int(rng.integers(2)))
            ctx.set(dut.c.valid, int(rng.integers(4)) > 0)
            ctx.set(dut.c.payload.as_value(), operands.bits_of(c))
            ctx.set(dut.o.ready, int(rng.integers(4)) > 0)
            if ctx.get(dut.c.valid) and ctx.get(dut.c.ready):
                one, panel = panels.popleft()
                for array, warp in enumerate(arrays):
                    assert ctx.get(warp.i.valid)
                    check_array(ctx, array, warp, one, panel, c[array])
                results.append(~(c * np.uint32(one.fields["add"])))
                c = rng.integers(0, 1 << 32, c.shape, np.uint32)
            if ctx.get(dut.o.valid) and ctx.get(dut.o.ready):
                for array, of_array in enumerate(results.popleft()):
                    d = operands.lanes_of(ctx, dut.o.payload[array].d, REGISTERS)
                    np.testing.assert_array_equal(d, of_array, f"D of array {array}")
            taken = ctx.get(dut.i.valid) and ctx.get(dut.i.ready)
            reads += ctx.get(dut.memory.read)
            await ctx.tick()
            accepted += taken
            if taken and accepted < INSTRUCTIONS:
                put(ctx, dut.i.payload, work[accepted])
        assert not panels, "multiplications have stopped too early"
        assert not results, "results are missing"
        assert reads == sum(one.reads for one in work)

    simulate_clocked(dut, bench, partial(operands.serve_shared_memory, port=dut.memory, memory=smem))
