"""The arrays of a small CTA's tensor cores get the operands that the index maps find in memory."""

import gc
from collections import deque
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np
import pytest
from numpy.typing import NDArray
from sptc.isa.fragments import accumulator_fragment
from sptc.isa.instructions import Instruction, every_instruction, parse
from sptc.isa.tcgen05 import parse_shaped
from sptc.isa.tensor_memory import LAYOUTS, a_map, metadata_map, scale_map
from sptc.operands.registers import from_registers, to_registers, unpack_nibbles, unpack_scales
from sptc.operands.tensor_memory import gather_tensor
from sptc.rtl.config import ConfigError
from sptc.rtl.tcgen05 import TCGEN05_ARRAY, CtaOperation, Tcgen05
from sptc.rtl.warp import ScaleSizeCode
from sptc.tests.rtl import panels as operands
from sptc.tests.rtl.conftest import simulate_clocked
from sptc.tests.rtl.panels import COLUMNS, LANES, MEMORY_BYTES, REGISTERS, ROWS, Inverting

Random = np.random.Generator
ALL_COLUMNS, TENSORLANES = 512, 128
#: Number of arrays in the small CTA. Four arrays use two groups of 32 lanes of tensor memory, so block scales of A need
#: a second column.
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
#: Index maps from accumulators to registers of an array, for 32-bit and for 16-bit results.
FRAGMENTS = [accumulator_fragment(parse(f"mma.sync.aligned.m16n8k16.row.col.{d}.f16.f16.{d}")) for d in ("f32", "f16")]


def accumulator_registers(words: NDArray[np.uint32], half: bool) -> NDArray[np.uint32]:
    """Return the registers of each array with 8 columns of accumulators. For 16-bit results, two registers are zero."""
    codes = words.reshape(-1, ROWS, COLUMNS).astype(np.uint16 if half else np.uint32)
    registers = to_registers(codes, FRAGMENTS[half])
    return np.pad(registers, ((0, 0), (0, 0), (0, REGISTERS - registers.shape[2])))


def accumulator_words(registers: NDArray[np.uint32], half: bool) -> NDArray[np.unsignedinteger]:
    """Return eight columns of accumulators of all rows from registers: the inverse of `accumulator_registers`."""
    fragment = FRAGMENTS[half]
    return from_registers(registers[..., : fragment.registers], fragment).reshape(-1, COLUMNS)


def columns_from(first: int) -> NDArray[np.int64]:
    """Return the numbers of eight consecutive columns of tensor memory, where column 0 follows column 511."""
    return (first + np.arange(COLUMNS)) % ALL_COLUMNS


def write_columns(memory: NDArray[np.uint32], first: int, words: NDArray[np.unsignedinteger], half: bool) -> None:
    """Write eight columns of all lanes. If `half` is set, write only the lower half of each word."""
    mask, places = np.uint32(0xFFFF if half else 0xFFFFFFFF), columns_from(first)
    memory[:, places] = memory[:, places] & ~mask | words & mask


async def serve_accumulators(ctx, port, memory: NDArray[np.uint32]) -> None:
    """Simulation process that reads and writes eight columns of accumulators per cycle."""
    names = ("read", "read_column", "write", "write_column", "write_half")
    ports = (*(getattr(port, name) for name in names), port.write_data.as_value())
    async for _, _, read, column, write, target, half, data in ctx.tick().sample(*ports):
        if read:
            ctx.set(port.read_data.as_value(), operands.bits_of(memory[:, columns_from(column)]))
        if write:
            write_columns(memory, target, operands.words_of(data, memory.shape[0] * COLUMNS).reshape(-1, COLUMNS), half)


@dataclass(frozen=True, eq=False)
class Work:
    """An instruction with its fields and descriptors, and the operands that memory holds at its addresses."""

    instruction: Instruction
    fields: dict[str, int]
    descriptors: dict[str, int]
    a: NDArray[np.uint8]
    b: NDArray[np.uint8]  # for a CTA pair, only the columns of B in this CTA
    nibbles: NDArray[np.uint8] | None
    scales: dict[str, NDArray[np.uint8]]

    @property
    def panels(self) -> int:
        return self.instruction.n // COLUMNS

    @property
    def reads(self) -> int:
        """Number of core matrices that are read: four per panel of B (two if dense), and two per eight rows of A."""
        of_b = self.panels // (1 + self.fields["pair"]) * (4 if self.instruction.sparse else 2)
        return of_b + 2 * self.fields["a_shared"] * ARRAYS * ROWS // 8

    @property
    def columns(self) -> int:
        """Number of tensor-memory columns that are read for metadata, block scales and A."""
        scales = 4 + -(-self.instruction.n // 32) if self.instruction.scale_size else 0
        metadata = (1 if self.instruction.wide else 2) if self.instruction.sparse else 0
        return metadata + scales + (0 if self.fields["a_shared"] else 8)

    def panel(self, place: int) -> tuple[int, int | None]:
        """Return the panels of D and B in turn `place`. The panel of B is None if the other CTA has it."""
        if not self.fields["pair"]:
            return place, place
        half, is_second = place // 2, place % 2
        return half + is_second * self.panels // 2, half if is_second == self.fields["odd"] else None


def draw(number: int, tmem: NDArray[np.uint32], smem: NDArray[np.uint8], rng: Random) -> Work:
    """Draw a random instruction. A and B have different properties, such as majors and byte ids, where possible."""
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
    fields["scale_size"] = ScaleSizeCode[f"X{size}"]
    ids = [*range(0, 4, size)]
    fields["byte_a"], fields["byte_b"] = rng.choice(ids, 2, replace=len(ids) < 2).tolist()
    descriptors = operands.draw_descriptors(rng, "tcgen05")
    octets = partial(operands.shared_octets, smem, bits, family="tcgen05")
    if fields["a_shared"]:
        a = octets(descriptors["a"], TENSORLANES, 32, mn_major=fields["a_transposed"])
    else:
        codes = gather_tensor(tmem[None], a_map(layout, i, fields["a_column"]))[0]
        a = codes[:, ::2] | codes[:, 1::2] << 4 if bits == 4 else codes.view(np.uint8)
    b = octets(descriptors["b"], i.n // (1 + fields["pair"]), 64 if i.sparse else 32, mn_major=fields["b_transposed"])
    nibbles = None
    if i.sparse:
        where = metadata_map(layout, i, fields["sparsity_selector"], fields["metadata_column"])
        nibbles = gather_tensor(tmem[None], where)[0]
    scales = {}
    if i.scale_size:
        for side, lines in (("a", TENSORLANES), ("b", i.n)):
            where = scale_map(f"scale_{side}", lines, size, fields[f"byte_{side}"], fields[f"scale_{side}_column"])
            scales[side] = gather_tensor(tmem[None], where)[0]
    return Work(i, fields, descriptors, np.ascontiguousarray(a), b, nibbles, scales)


@lru_cache(maxsize=1024)
def twin(instruction: Instruction) -> Instruction:
    """Return an ``mma.sp`` with the same K, type of A and number of scales, whose registers hold the same operands."""
    return next(
        i
        for i in every_instruction("mma")
        if i.sparse
        and i.m == ROWS
        and (i.k, i.a.name, i.scale_size) == (instruction.k, instruction.a.name, instruction.scale_size)
    )


def check_array(ctx, array: int, warp: Inverting, one: Work, panel: int, b: NDArray[np.uint8], c: NDArray) -> None:
    """Compare the inputs of an array with the expected rows of A, panel of B, and accumulators."""
    payload, i = warp.i.payload, one.instruction
    where = f"{i}, {one.fields}, columns {8 * panel} on, array {array}"
    rows = slice(ROWS * array, ROWS * (array + 1))

    signs = np.uint32(0x80008000 if one.fields["negated"] else 0)
    a, b_given, c_given = (operands.lanes_of(ctx, payload[name], REGISTERS) for name in "abc")
    np.testing.assert_array_equal(a, operands.a_registers(one.a[rows]) ^ signs, f"A of {where}")
    expected_b = operands.b_registers(b)
    np.testing.assert_array_equal(b_given[:, : expected_b.shape[1]], expected_b, f"B of {where}")
    registers = 2 if i.d.bits == 16 else REGISTERS
    np.testing.assert_array_equal(c_given[:, :registers], c[:, :registers], f"accumulators of {where}")
    if one.nibbles is not None:
        registers = operands.lanes_of(ctx, payload.e, 1).reshape(1, LANES)
        nibbles = unpack_nibbles(registers, twin(i), ctx.get(payload.sparsity_selector))[0]
        np.testing.assert_array_equal(nibbles, one.nibbles[rows], f"metadata of {where}")
    for side, lines in (("a", rows), ("b", slice(COLUMNS * panel, COLUMNS * (panel + 1)))):
        if one.scales:
            byte = ctx.get(payload[f"byte_{side}"])
            words = operands.lanes_of(ctx, payload[f"scale_{side}"], 1).reshape(1, LANES)
            scales = unpack_scales(words, twin(i), side, byte, 0)[0]
            np.testing.assert_array_equal(scales, one.scales[side][lines], f"scales of {side.upper()} of {where}")
            assert ctx.get(payload[f"thread_{side}"]) == 0
            assert ctx.get(payload.scale_size) == ScaleSizeCode[f"X{i.scale_size}"]


def test_every_array_gets_its_operands(rng: Random) -> None:
    """Each array gets its operands, for a CTA alone and for either CTA of a pair. The bench acts as the other CTA."""
    warps: list[Inverting] = []
    dut = Tcgen05(TCGEN05_ARRAY, ARRAYS, warp_class=type("Array", (Inverting,), {"made": warps}))
    smem = rng.integers(0, 256, MEMORY_BYTES, dtype=np.uint8)
    tmem = rng.integers(0, 1 << 32, (TENSORLANES, ALL_COLUMNS), np.uint32)
    work = [draw(number, tmem, smem, rng) for number in range(INSTRUCTIONS)]
    panels = deque((one, place) for one in work for place in range(one.panels))
    model = rng.integers(0, 1 << 32, (ROWS * ARRAYS, ALL_COLUMNS), np.uint32)  # expected accumulators
    accumulators = model.copy()

    async def tensor_memory(ctx) -> None:
        async for _, _, reads, column in ctx.tick().sample(dut.tensor.read, dut.tensor.column):
            for lane, word in enumerate(tmem[: ROWS * ARRAYS, column].tolist() if reads else ()):
                ctx.set(dut.tensor.data[lane], word)

    async def bench(ctx) -> None:
        accepted = waited = reads = columns = 0
        other = rng.integers(0, 256, (COLUMNS, 64), dtype=np.uint8)
        operands.offer(ctx, dut.i.payload, CtaOperation.MULTIPLY, TCGEN05_ARRAY, work[0])
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
                assert multiplies == (waits and ctx.get(dut.other_waits)), "one CTA of a pair multiplies alone"
                waited += waits and not multiplies
            else:
                assert not waits, "a CTA that is alone waits for another CTA"
            if multiplies:
                panels.popleft()
                b = other if own is None else one.b[COLUMNS * own : COLUMNS * (own + 1)]
                b = b[:, : one.b.shape[1]]
                if own is not None:
                    handed_on = ctx.get(dut.panel.as_value()).to_bytes(64 * COLUMNS, "little")
                    octets = np.frombuffer(handed_on, np.uint8).reshape(COLUMNS, 64)[:, : b.shape[1]]
                    np.testing.assert_array_equal(octets, b, "panel of B for the other CTA")
                half = one.instruction.d.bits == 16
                first = one.fields["d_column"] + COLUMNS * panel
                c = accumulator_registers(model[:, columns_from(first)], half) * np.uint32(one.fields["add"])
                for array, warp in enumerate(warps):
                    assert ctx.get(warp.i.valid)
                    check_array(ctx, array, warp, one, panel, b, c[array])
                write_columns(model, first, accumulator_words(~c, half), half)
                other = rng.integers(0, 256, (COLUMNS, 64), dtype=np.uint8)
            taken = ctx.get(dut.i.valid) and ctx.get(dut.i.ready)
            reads, columns = reads + ctx.get(dut.memory.read), columns + ctx.get(dut.tensor.read)
            await ctx.tick()
            accepted += taken
            if taken and accepted < INSTRUCTIONS:
                operands.offer(ctx, dut.i.payload, CtaOperation.MULTIPLY, TCGEN05_ARRAY, work[accepted])
        assert not panels, "multiplications have stopped too early"
        assert waited, "the CTA never waited for the other CTA of its pair"
        assert (reads, columns) == (sum(one.reads for one in work), sum(one.columns for one in work))
        await ctx.tick().repeat(10)

    memories = (
        partial(operands.serve_shared_memory, port=dut.memory, memory=smem),
        partial(serve_accumulators, port=dut.accumulators, memory=accumulators),
    )
    simulate_clocked(dut, bench, tensor_memory, *memories)
    np.testing.assert_array_equal(accumulators, model)


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
def test_block_scales_need_an_even_number_of_arrays() -> None:
    for arrays in (1, 3):
        with pytest.raises(ConfigError, match=f"^the number of arrays must be even with block scales, not {arrays}$"):
            Tcgen05(TCGEN05_ARRAY, arrays)
        assert Tcgen05(replace(TCGEN05_ARRAY, formats=("f16",), scales=()), arrays).arrays == arrays
    gc.collect()  # Free the unused components here, where Amaranth's warnings about unused components are off.
