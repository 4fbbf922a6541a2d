"""What the tensor cores of a CTA hand to their arrays, by the index maps: of a CTA of half as many rows."""

from collections import deque
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pytest
from amaranth.hdl import Module
from numpy.typing import NDArray
from sptc.golden.registers import unpack_nibbles, unpack_scales
from sptc.golden.tensor_memory import gather_tensor
from sptc.isa.instructions import Instruction, every_instruction
from sptc.isa.memory import encode_descriptor
from sptc.isa.tcgen05 import parse_shaped
from sptc.isa.tensor_memory import LAYOUTS, a_map, metadata_map, scale_map
from sptc.rtl.fetch import descriptor_layout
from sptc.rtl.step import control_layout
from sptc.rtl.tcgen05 import TCGEN05_ARRAY, CtaOperation, Tcgen05
from sptc.rtl.warp import ScaleSizeCode, Warp
from sptc.sim.engine.steps import control_word
from sptc.tests.rtl.operand_words import (
    ALL_COLUMNS,
    COLUMNS,
    LANES,
    MEMORY_BYTES,
    REGISTERS,
    ROWS,
    UNIT_BYTES,
    a_registers,
    accumulator_registers,
    accumulator_words,
    b_registers,
    columns_from,
    serve_accumulators,
    serve_shared_memory,
    shared_octets,
    words_of,
    write_columns,
)
from sptc.tests.rtl.simulation import simulate_clocked

TENSOR_LANES = 128
#: Of the little CTA: two groups of 32 lanes, so that block scales of A have a second column.
ARRAYS = 4
KINDS = [
    "tcgen05.mma.sp.cta_group::1.kind::f16 (m128n{}k32.f32.f16.f16)",
    "tcgen05.mma.sp.cta_group::1.kind::f16 (m128n{}k32.f16.f16.f16)",
    "tcgen05.mma.cta_group::1.kind::f16 (m128n{}k16.f32.bf16.bf16)",
    "tcgen05.mma.sp.cta_group::1.kind::f8f6f4 (m128n{}k64.f32.e4m3.e5m2)",
    "tcgen05.mma.sp.cta_group::1.kind::mxf8f6f4.block_scale (m128n{}k64.f32.e4m3.e4m3.ue8m0)",
    "tcgen05.mma.sp.cta_group::1.kind::mxf4nvf4.block_scale.block16 (m128n{}k128.f32.e2m1.e2m1.ue4m3)",
]
INSTRUCTIONS = 12
STARTS = ("d_column", "a_column", "metadata_column", "scale_a_column", "scale_b_column")


@dataclass(frozen=True, eq=False)
class Work:
    """One instruction, and the operands that its addresses lead to."""

    instruction: Instruction
    fields: dict[str, int]
    descriptors: dict[str, int]
    a: NDArray[np.uint8]
    b: NDArray[np.uint8]  # of a pair, what this CTA has of it
    nibbles: NDArray[np.uint8] | None
    scales: dict[str, NDArray[np.uint8]]

    @property
    def panels(self) -> int:
        return self.instruction.n // COLUMNS

    def panel(self, place: int) -> tuple[int, int | None]:
        """Return which eight columns of D are in some place, and which of this CTA's panels of B that takes, if any."""
        if not self.fields["pair"]:
            return place, place
        half, is_second = place // 2, place % 2
        return half + is_second * self.panels // 2, half if is_second == self.fields["odd"] else None


def draw(number: int, tmem: NDArray[np.uint32], smem: NDArray[np.uint8], rng: np.random.Generator) -> Work:
    """Draw an instruction; what A and B both have, such as majors and byte ids, differs wherever it can."""
    kind = KINDS[number % len(KINDS)]
    _, i = parse_shaped(kind.format(48 if "block_scale" in kind else 16))
    bits, layout = i.container_bits, LAYOUTS["D"]
    fields = {name: int(rng.integers(2)) for name in ("a_shared", "add", "pair", "odd")}
    fields["a_transposed"] = int(bits == 16 and rng.integers(2))
    fields["b_transposed"] = int(bits == 16) - fields["a_transposed"]
    fields["negated"] = int(i.a.name == "f16" and rng.integers(2))
    fields |= {"last_panel": i.n // COLUMNS - 1, "sparsity_selector": int(rng.integers(i.sparsity_selectors or 1))}
    places = 16 * rng.choice(ALL_COLUMNS // 16 - 8, len(STARTS), replace=False)
    fields |= dict(zip(STARTS, places.tolist(), strict=True))
    size = i.scale_size or 1
    ids = [*range(0, 4, size)]
    fields["byte_a"], fields["byte_b"] = rng.choice(ids, 2, replace=len(ids) < 2).tolist()
    numbers, swizzles = rng.choice(60, (3, 2), replace=False), rng.permutation(["none", "32B", "64B", "128B"])
    descriptors = {
        name: encode_descriptor(
            *(UNIT_BYTES * int(one) for one in numbers[:, side]), str(swizzles[side]), int(rng.integers(8)),
            family="tcgen05",
        )
        for side, name in enumerate("ab")
    }  # fmt: skip
    octets = partial(shared_octets, smem, element_bits=bits, family="tcgen05")
    if fields["a_shared"]:
        a = octets(descriptors["a"], TENSOR_LANES, 32, mn_major=fields["a_transposed"])
    else:
        codes = gather_tensor(tmem[None], a_map(layout, i, fields["a_column"]))[0]
        a = codes[:, ::2] | codes[:, 1::2] << 4 if bits == 4 else codes.view(np.uint8)
    columns = i.n // (1 + fields["pair"])
    b = octets(descriptors["b"], columns, 64 if i.sparse else 32, mn_major=fields["b_transposed"])
    nibbles = None
    if i.sparse:
        where = metadata_map(layout, i, fields["sparsity_selector"], fields["metadata_column"])
        nibbles = gather_tensor(tmem[None], where)[0]
    scales = {}
    if i.scale_size:
        for side, lines in (("a", TENSOR_LANES), ("b", i.n)):
            where = scale_map(f"scale_{side}", lines, size, fields[f"byte_{side}"], fields[f"scale_{side}_column"])
            scales[side] = gather_tensor(tmem[None], where)[0]
    return Work(i, fields, descriptors, np.ascontiguousarray(a), b, nibbles, scales)


class Inverting(Warp):
    """Gives for every operand its accumulators inverted, two cycles later."""

    made: list["Inverting"]

    def __init__(self, *arguments: Any, **others: Any) -> None:
        super().__init__(*arguments, **others)
        self.made.append(self)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += self.i.ready.eq(~self.o.valid)
        m.d.sync += self.o.valid.eq(self.i.valid & self.i.ready)
        m.d.sync += self.o.payload.d.eq(~self.i.payload.c.as_value())
        return m


@pytest.fixture
def half_a_cta() -> tuple[Tcgen05, list[Inverting]]:
    """Return a CTA of four arrays, which is built in a third of the time, and its arrays once they are there."""
    warps: list[Inverting] = []
    return Tcgen05(TCGEN05_ARRAY, ARRAYS, warp_class=type("Array", (Inverting,), {"made": warps})), warps


@lru_cache(maxsize=1024)
def twin(instruction: Instruction) -> Instruction:
    """Return an ``mma.sp`` that reads metadata and block scales of the same granularity from registers."""
    return next(
        i
        for i in every_instruction("mma")
        if i.sparse
        and i.m == ROWS
        and (i.k, i.a.name, i.scale_size) == (instruction.k, instruction.a.name, instruction.scale_size)
    )


def offer(ctx, payload, one: Work) -> None:
    """Put an instruction at the input."""
    ctx.set(payload.operation, CtaOperation.MULTIPLY)
    ctx.set(payload.control, control_layout().from_bits(control_word(TCGEN05_ARRAY, one.instruction, last=True)))
    ctx.set(payload.scale_size, ScaleSizeCode[f"X{one.instruction.scale_size or 1}"])
    for name, value in one.fields.items():
        ctx.set(payload[name], value)
    for name, value in one.descriptors.items():
        ctx.set(payload[f"{name}_descriptor"], descriptor_layout().from_bits(value))


def check_array(ctx, array: int, warp: Inverting, one: Work, panel: int, b: NDArray[np.uint8], c: NDArray) -> None:
    """Compare what an array is given with its rows of A and a panel of B and D."""
    payload, i = warp.i.payload, one.instruction
    where = f"{i}, {one.fields}, columns {8 * panel} on, array {array}"
    rows = slice(ROWS * array, ROWS * (array + 1))

    def given(name: str, count: int) -> NDArray[np.uint32]:
        return words_of(ctx.get(payload[name].as_value()), LANES * count).reshape(LANES, count)

    signs = np.uint32(0x80008000 if one.fields["negated"] else 0)
    np.testing.assert_array_equal(given("a", REGISTERS), a_registers(one.a[rows]) ^ signs, f"A of {where}")
    expected_b = b_registers(b)
    np.testing.assert_array_equal(given("b", REGISTERS)[:, : expected_b.shape[1]], expected_b, f"B of {where}")
    registers = 2 if i.d.bits == 16 else REGISTERS
    np.testing.assert_array_equal(given("c", REGISTERS)[:, :registers], c[:, :registers], f"accumulators of {where}")
    if one.nibbles is not None:
        for selector in range(twin(i).sparsity_selectors):
            nibbles = unpack_nibbles(given("e", 1).reshape(1, LANES), twin(i), selector)[0]
            np.testing.assert_array_equal(nibbles, one.nibbles[rows], f"metadata of {where}, read with {selector}")
    for side, lines in (("a", rows), ("b", slice(COLUMNS * panel, COLUMNS * (panel + 1)))):
        if one.scales:
            byte = ctx.get(payload[f"byte_{side}"])
            scales = unpack_scales(given(f"scale_{side}", 1).reshape(1, LANES), twin(i), side, byte, 0)[0]
            np.testing.assert_array_equal(scales, one.scales[side][lines], f"scales of {side.upper()} of {where}")
            assert ctx.get(payload[f"thread_{side}"]) == 0
            assert ctx.get(payload.scale_size) == ScaleSizeCode[f"X{i.scale_size}"]


def test_every_array_gets_what_the_maps_say(
    half_a_cta: tuple[Tcgen05, list[Inverting]], rng: np.random.Generator
) -> None:
    """Operands from both memories, alone and as either CTA of a pair, whose other one the bench is."""
    dut, warps = half_a_cta
    smem = rng.integers(0, 256, MEMORY_BYTES, dtype=np.uint8)
    tmem = rng.integers(0, 1 << 32, (TENSOR_LANES, ALL_COLUMNS), np.uint32)
    work = [draw(number, tmem, smem, rng) for number in range(INSTRUCTIONS)]
    panels = deque((one, place) for one in work for place in range(one.panels))
    model = rng.integers(0, 1 << 32, (ROWS * ARRAYS, ALL_COLUMNS), np.uint32)  # accumulators, in a memory of their own
    accumulators = model.copy()

    async def tensor_memory(ctx) -> None:
        async for _, _, reads, column in ctx.tick().sample(dut.tensor.read, dut.tensor.column):
            for lane, word in enumerate(tmem[: ROWS * ARRAYS, column].tolist() if reads else ()):
                ctx.set(dut.tensor.data[lane], word)

    async def bench(ctx) -> None:
        accepted = waited = 0
        other = rng.integers(0, 256, (COLUMNS, 64), dtype=np.uint8)
        offer(ctx, dut.i.payload, work[0])
        for _ in range(200 * INSTRUCTIONS):
            if not panels:
                break
            one, place = panels[0]
            panel, own = one.panel(place)
            ctx.set(dut.i.valid, accepted < INSTRUCTIONS and int(rng.integers(2)))
            ctx.set(dut.other_waits, int(rng.integers(2)))
            ctx.set(dut.other_panel.as_value(), int.from_bytes(other.tobytes(), "little"))
            multiplies, waits = ctx.get(warps[0].i.valid), ctx.get(dut.waits)
            if one.fields["pair"]:
                assert multiplies == (waits and ctx.get(dut.other_waits)), "of a pair one CTA multiplies by itself"
                waited += waits and not multiplies
            else:
                assert not waits, "a CTA waits for another one though it is alone"
            if multiplies:
                panels.popleft()
                b = other if own is None else one.b[COLUMNS * own : COLUMNS * (own + 1)]
                b = b[:, : one.b.shape[1]]
                if own is not None:
                    handed_on = ctx.get(dut.panel.as_value()).to_bytes(64 * COLUMNS, "little")
                    octets = np.frombuffer(handed_on, np.uint8).reshape(COLUMNS, 64)[:, : b.shape[1]]
                    np.testing.assert_array_equal(octets, b, "the panel that the other CTA is given")
                half = one.instruction.d.bits == 16
                first = one.fields["d_column"] + COLUMNS * panel
                c = accumulator_registers(model[:, columns_from(first)], half) * np.uint32(one.fields["add"])
                for array, warp in enumerate(warps):
                    assert ctx.get(warp.i.valid)
                    check_array(ctx, array, warp, one, panel, b, c[array])
                write_columns(model, first, accumulator_words(~c, half), half)
                other = rng.integers(0, 256, (COLUMNS, 64), dtype=np.uint8)
            taken = ctx.get(dut.i.valid) and ctx.get(dut.i.ready)
            await ctx.tick()
            accepted += taken
            if taken and accepted < INSTRUCTIONS:
                offer(ctx, dut.i.payload, work[accepted])
        assert not panels, "nothing is multiplied any more"
        assert waited, "no CTA of a pair has waited"
        await ctx.tick().repeat(10)

    memories = (
        partial(serve_shared_memory, port=dut.memory, memory=smem),
        partial(serve_accumulators, port=dut.accumulators, memory=accumulators),
    )
    simulate_clocked(dut, bench, tensor_memory, *memories)
    np.testing.assert_array_equal(accumulators, model)
