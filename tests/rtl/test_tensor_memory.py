"""Metadata and scales from tensor memory: when the reader takes and gives what, and whole tiles behind it on a warp."""

import ctypes
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import pytest
import sptc
from amaranth.sim import Simulator, SimulatorContext
from numpy.typing import NDArray
from sptc.golden.registers import CONTAINERS, pack, unpack
from sptc.golden.tensor_memory import gather_tensor
from sptc.infra.verilator import compile_library
from sptc.isa.fragments import a_fragment, accumulator_fragment, b_fragment
from sptc.isa.instruction_descriptor import InstructionDescriptor, encode_instruction_descriptor
from sptc.isa.instructions import Instruction
from sptc.isa.memory import decode_descriptor, encode_descriptor, shared_map
from sptc.isa.tcgen05 import instructions_of, parse_opcode
from sptc.isa.tensor_memory import LAYOUTS, accumulator_map, metadata_map, scale_map
from sptc.rtl.config import PRESETS
from sptc.rtl.emit import emit
from sptc.rtl.metadata import RuleCode
from sptc.rtl.step import control_layout
from sptc.rtl.tensor_memory import TENSOR_LANES, TensorMemoryReader
from sptc.rtl.warp import ScaleSizeCode, warp_operands_layout, warp_result_layout
from sptc.sim.benches.random_operands import random_codes
from sptc.sim.benches.tensor_memory_items import place, random_tiles, registers, request, twin
from sptc.sim.engine.steps import control_word

sys.set_int_max_str_digits(0)  # Amaranth's simulator writes values as decimal text into what it compiles

Random = np.random.Generator
BLACKWELL = replace(PRESETS["blackwell"], rows=1, columns=2)
ROWS, COLUMNS, LANES = 16, 8, 32


def read(work: Sequence[tuple[int, NDArray[np.uint32]]]) -> tuple[list[int], list[int], list[int]]:
    """Make requests back to back; return the results, the cycles of the reads and those of the deliveries."""
    reader, results, reads, deliveries = TensorMemoryReader(), [], [], []

    async def bench(context: SimulatorContext) -> None:
        waiting, cycle = list(work), 0
        context.set(reader.o.ready, 1)
        while len(results) < len(work):
            context.set(reader.i.valid, bool(waiting))
            if waiting:
                context.set(reader.i.payload.as_value(), waiting[0][0])
            await context.delay(1e-8)
            ports = (reader.i.ready, reader.memory.read, reader.memory.column, reader.o.valid)
            taken, reading, column, valid = (context.get(port) for port in ports)
            if valid:
                results.append(context.get(reader.o.payload.as_value()))
                deliveries.append(cycle)
            if reading:
                reads.append(cycle)
            await context.tick()
            if reading:
                for lane in range(TENSOR_LANES):
                    context.set(reader.memory.data[lane], int(waiting[0][1][lane, column]))
            if waiting and taken:
                waiting.pop(0)
            cycle += 1
            assert cycle < 10 * len(work)

    simulator = Simulator(reader)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return results, reads, deliveries


def test_every_register_comes_from_its_place(rng: Random) -> None:
    tiles = list(islice(random_tiles(rng), 24))
    results, *_ = read([(tile.payload, tile.memory) for tile in tiles])
    for tile, result in zip(tiles, results, strict=True):
        tile.check(result)


def test_what_is_read_is_not_anything(rng: Random) -> None:
    """What the check above rests on: it sees one wrong bit, in any of the words that are meant."""
    tile = next(tile for tile in random_tiles(rng) if len(tile.scales) == 2 and tile.instruction.scale_size == 4)
    (result,), *_ = read([(tile.payload, tile.memory)])
    tile.check(result)
    for bit in rng.integers(0, 3 * LANES * 32, 40).tolist():
        with pytest.raises(AssertionError):
            tile.check(result ^ 1 << bit)


def test_latency_and_interval(rng: Random) -> None:
    """As many cycles as columns, and one more."""
    tiles = list(islice(random_tiles(rng), 24))
    assert {tile.reads for tile in tiles} >= {1, 2, 4}
    _, reads, deliveries = read([(tile.payload, tile.memory) for tile in tiles])
    assert len(reads) == sum(tile.reads for tile in tiles)
    starts = np.cumsum([0, *(tile.reads + 1 for tile in tiles)])
    assert deliveries == starts[1:].tolist()
    assert reads == [start + n for start, tile in zip(starts, tiles, strict=False) for n in range(tile.reads)]


@dataclass(frozen=True, eq=False)
class Whole:
    """One instruction of ``tcgen05`` with its images, its matrices, and what it leaves in tensor memory."""

    instruction: Instruction
    descriptor: InstructionDescriptor
    addresses: tuple[int, ...]
    tmem: NDArray[np.uint32]
    a: NDArray
    b: NDArray
    d: tuple[NDArray, NDArray]  # before and after


E_AT, SFA_AT, SFB_AT, D_AT = 10, 12, 20, 256


def whole(text: str, n: int, types: dict[str, str], rng: Random) -> Whole:
    opcode = parse_opcode(text)
    i = next(
        i for i in instructions_of(opcode)
        if (i.m, i.n) == (TENSOR_LANES, n) and all(getattr(i, name).name == fmt for name, fmt in types.items())
    )  # fmt: skip
    layout, bits = LAYOUTS["D"], i.container_bits
    size = i.scale_size or 0
    ids = [int(rng.choice(range(0, 4, size))) if size else 0 for _ in range(2)]
    descriptor = InstructionDescriptor(
        instruction=i, sparsity_selector=int(rng.integers(i.sparsity_selectors)), scale_id_a=ids[0], scale_id_b=ids[1]
    )
    tmem, smem = rng.integers(0, 1 << 32, (128, 512), np.uint32), rng.integers(0, 256, 1 << 16, np.uint8)
    given, codes = {}, []
    for name, lines, k, start in (("a", i.m, i.stored_k, 0), ("b", i.n, i.k, 1 << 15)):
        given[name] = encode_descriptor(start, 16 * lines, 128, family="tcgen05")
        matrix = random_codes(getattr(i, name), "mid", (lines, k), rng) << getattr(i, name).ignored_low_bits
        where = shared_map(decode_descriptor(given[name], "tcgen05"), lines, k, bits)
        if bits == 4:
            smem[where.addresses[:, ::2]] = matrix[:, ::2] | matrix[:, 1::2] << 4
        else:
            codes_of_bytes = matrix.astype(CONTAINERS[bits])[..., None].view(np.uint8)
            smem[where.addresses[..., None] + np.arange(bits // 8)] = codes_of_bytes
        codes.append(matrix.astype(CONTAINERS[bits]))
    assert i.rule
    legal = np.array(sorted(i.rule.legal), np.uint8)
    nibbles = legal[rng.integers(0, len(legal), (i.m, i.chunks))]
    assert nibbles.size > 100 * len(legal)
    place(tmem, metadata_map(layout, i, descriptor.sparsity_selector, E_AT), nibbles)
    if i.scale_format:
        for name, lines, at, byte in (("scale_a", i.m, SFA_AT, ids[0]), ("scale_b", i.n, SFB_AT, ids[1])):
            given[name] = at
            scales = random_codes(i.scale_format, "mid", (lines, size), rng).astype(np.uint8)
            place(tmem, scale_map(name, lines, size, byte, at), scales)
    where = accumulator_map(layout, i.n, i.d.bits, D_AT)
    place(tmem, where, random_codes(i.d, "mid", (i.m, i.n), rng))
    idesc = encode_instruction_descriptor(opcode, descriptor)
    after = sptc.tcgen05_mma(text, tmem, D_AT, given["a"], given["b"], idesc, e=E_AT, smem=smem,
                             scale_a=given.get("scale_a"), scale_b=given.get("scale_b"))  # fmt: skip
    before_and_after = tuple(gather_tensor(image[None], where)[0] for image in (tmem, after))
    return Whole(i, descriptor, (E_AT, SFA_AT, SFB_AT), tmem, *codes, before_and_after)


DRIVER = """
extern "C" int run_warp(size_t count, const char* in, size_t in_bytes, char* out, size_t out_bytes) {
    static Vwarp top;
    size_t offered = 0, taken = 0;
    top.rst = 0;
    top.o___05Fready = 1;
    for (size_t cycle = 0; taken < count; cycle++) {
        if (cycle > 1000 * count) return 1;
        top.i___05Fvalid = offered < count;
        if (offered < count) std::memcpy(&top.i___05Fpayload, in + offered * in_bytes, in_bytes);
        top.clk = 0;
        top.eval();
        if (top.o___05Fvalid) std::memcpy(out + taken++ * out_bytes, &top.o___05Fpayload, out_bytes);
        offered += top.i___05Fvalid && top.i___05Fready;
        top.clk = 1;
        top.eval();
    }
    return 0;
}
"""
Warps = Callable[[Sequence[int]], list[int]]


@pytest.fixture(scope="module")
def warps(tmp_path_factory: pytest.TempPathFactory) -> Warps:
    """Execute instructions on the warp of blackwell, compiled."""
    library = tmp_path_factory.mktemp("warp") / "warp.so"
    compile_library(emit(BLACKWELL, "warp", "warp"), "warp", DRIVER, library, optimisation=("-O0",))
    execute = ctypes.CDLL(str(library)).run_warp
    in_bytes, out_bytes = (4 * -(-layout().size // 32) for layout in (warp_operands_layout, warp_result_layout))

    def run(payloads: Sequence[int]) -> list[int]:
        given = b"".join(payload.to_bytes(in_bytes, "little") for payload in payloads)
        results = (ctypes.c_char * (out_bytes * len(payloads)))()
        sizes = ctypes.c_size_t(in_bytes), ctypes.c_size_t(out_bytes)
        assert execute(ctypes.c_size_t(len(payloads)), given, sizes[0], results, sizes[1]) == 0, "the warp hangs"
        octets = np.frombuffer(results, np.uint8).reshape(len(payloads), out_bytes)
        return [int.from_bytes(result.tobytes(), "little") for result in octets]

    return run


KINDS = [
    ("f16", {"a": "f16", "d": "f16"}),
    ("f16", {"a": "bf16", "d": "f32"}),
    ("tf32", {}),
    ("f8f6f4", {"a": "e4m3", "b": "e5m2", "d": "f32"}),
    ("mxf8f6f4.block_scale", {"a": "e5m2", "b": "e4m3"}),
    ("mxf4nvf4.block_scale.block32", {}),
    ("mxf4nvf4.block_scale.block16", {"scale_format": "ue4m3"}),
]


@pytest.mark.regression
@pytest.mark.parametrize(("kind", "types"), KINDS)
def test_whole_tiles_on_a_warp(kind: str, types: dict[str, str], warps: Warps, rng: Random) -> None:
    """Reader and warp, tile by tile of 16 x 8, leave what ``tcgen05.mma.sp`` leaves."""
    case = whole(f"tcgen05.mma.sp.cta_group::1.kind::{kind}", 40, types, rng)
    i, descriptor = case.instruction, case.descriptor
    control = control_word(BLACKWELL, i, last=True)
    rule = RuleCode.TF32 if kind == "tf32" else RuleCode.TCGEN05
    assert control_layout().from_bits(control).rule.value == rule.value
    in_registers = replace(twin(i), a=i.a, b=i.b, c=i.c, d=i.d)
    places = [(rows, panel) for rows in range(TENSOR_LANES // ROWS) for panel in range(i.n // COLUMNS)]
    asked = [request(i, case.addresses[: 3 if i.scale_size else 1], descriptor.sparsity_selector, *at) for at in places]
    results, *_ = read([(payload, case.tmem) for payload in asked])
    payloads, wanted = [], []
    for (rows, panel), result in zip(places, results, strict=True):
        of_rows, of_columns = slice(ROWS * rows, ROWS * (rows + 1)), slice(COLUMNS * panel, COLUMNS * (panel + 1))
        before, after = (d[of_rows, of_columns] for d in case.d)
        fields = {name: words[0].tolist() for name, words in registers(result).items()}
        fragments = (a_fragment, case.a[of_rows]), (b_fragment, case.b[of_columns].T), (accumulator_fragment, before)
        for name, (fragment, matrix) in zip("abc", fragments, strict=True):
            held = pack(matrix[None], fragment(in_registers))[0]
            fields[name] = np.pad(held, ((0, 0), (0, 4 - held.shape[1]))).tolist()
        fields |= {
            "control": control_layout().from_bits(control),
            "long": True,
            "sparsity_selector": int(rng.integers(in_registers.sparsity_selectors)),
            "scale_size": ScaleSizeCode[f"X{i.scale_size or 1}"],
            "byte_a": descriptor.scale_id_a,
            "byte_b": descriptor.scale_id_b,
            "thread_a": int(rng.integers(2)),
            "thread_b": int(rng.integers(4)),
        }
        payloads.append(int(warp_operands_layout().const(fields).as_value().value))
        wanted.append(after)
    got = []
    for result in warps(payloads):
        octets = result.to_bytes(warp_result_layout().size // 8, "little")
        d = np.frombuffer(octets[: 16 * LANES], "<u4").reshape(1, LANES, 4)
        fragment = accumulator_fragment(in_registers)
        got.append(unpack(d[..., : fragment.registers], fragment)[0])
        assert not any(octets[16 * LANES :]), "flags of legal metadata"
    np.testing.assert_array_equal(np.array(got), np.array(wanted))
    assert (case.d[0] != case.d[1]).mean() > 0.5
