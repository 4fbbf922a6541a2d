"""The array behind streams: nothing lost, nothing twice, nothing late, whatever the neighbours do."""

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest
from amaranth.hdl import Module, ResetInserter, Signal
from amaranth.lib import data
from amaranth.sim import Simulator, SimulatorContext
from numpy.typing import NDArray
from sptc.golden.matrix import multiply
from sptc.golden.registers import CONTAINERS
from sptc.isa.instructions import Instruction, every_instruction
from sptc.isa.operands import MatrixOperands
from sptc.rtl.config import CUTS, PRESETS, CoreConfig
from sptc.rtl.core import Core, tile_layout, tile_result_layout
from sptc.rtl.metadata import RuleCode
from sptc.rtl.round import ResultCode
from sptc.rtl.step import control_layout
from sptc.sim.benches.random_operands import distributions, random_codes

TINY = PRESETS["tiny"]
ONE = replace(TINY, rows=1, columns=1)
#: What tiny computes in one step, so that the golden model gives the result of a tile.
ONE_STEP = [
    instruction
    for instruction in every_instruction("mma")
    if TINY.holds(instruction)
    and instruction.m == 16
    and instruction.stored_k * instruction.container_bits == 8 * TINY.step_bytes
]
TAG = data.StructLayout({"place": 9, "last": 1})
RESULTS = {"f32": ResultCode.F32, "f16": ResultCode.F16, "s32": ResultCode.S32}


@dataclass(frozen=True, eq=False)
class Tile:
    """One tile as the core takes it, and what must come back."""

    payload: int
    d: NDArray[np.uint32]
    d_bits: int
    overflow: int
    illegal: list[int]
    tag: int


@dataclass(frozen=True)
class Cycle:
    """The handshakes of one cycle, as they are at its closing clock edge."""

    reset: bool
    i_valid: int
    i_ready: int
    o_valid: int
    o_ready: int
    result: int

    @property
    def accepts(self) -> bool:
        return bool(self.i_valid and self.i_ready)

    @property
    def delivers(self) -> bool:
        return bool(self.o_valid and self.o_ready)


def noise(bits: int, rng: np.random.Generator) -> int:
    return int.from_bytes(rng.bytes(-(-bits // 8)), "little") >> (-bits % 8)


def word(codes: NDArray) -> int:
    return int.from_bytes(np.ascontiguousarray(codes).tobytes(), "little")


def integer_result(
    instruction: Instruction, a: NDArray, b: NDArray, nibbles: NDArray, accumulators: NDArray[np.int64]
) -> tuple[NDArray[np.uint32], int]:
    """Return the registers of an s8 tile and its overflow flags, from exact sums."""
    a, b = a.view(np.int8).astype(np.int64), b.view(np.int8).astype(np.int64)
    total = accumulators.copy()
    for row, slot in np.ndindex(a.shape):
        k = slot
        if instruction.sparse:
            nibble = nibbles[row, slot // 2]
            k = 4 * (slot // 2) + (nibble >> 2 if slot % 2 else nibble & 3)
        total[row] += a[row, slot] * b[k]
    outside = (total < -(1 << 31)) | (total >= 1 << 31)
    if instruction.satfinite:
        total, outside = total.clip(-(1 << 31), (1 << 31) - 1), np.zeros_like(outside)
    flags = sum(1 << int(output) for output in np.flatnonzero(outside))
    return (total & 0xFFFFFFFF).astype(np.uint32), flags


def integer_accumulators(shape: tuple[int, int], rng: np.random.Generator) -> NDArray[np.int64]:
    """Return sums such as an earlier step leaves: of 32 bits, or a little beyond either end."""
    anywhere = rng.integers(-(1 << 31), 1 << 31, shape)
    ends = rng.choice([-(1 << 31), (1 << 31) - 1], shape) + rng.integers(-(1 << 18), 1 << 18, shape)
    return np.where(rng.random(shape) < 0.5, anywhere, ends)


def tile(config: CoreConfig, instruction: Instruction, rng: np.random.Generator) -> Tile:
    """Return a random tile; what the instruction does not have is noise."""
    rows, columns = config.rows, config.columns
    container = CONTAINERS[instruction.container_bits]
    distribution = str(rng.choice(distributions(instruction)))
    a = random_codes(instruction.a, distribution, (rows, instruction.stored_k), rng).astype(container)
    b = random_codes(instruction.b, distribution, (instruction.k, columns), rng).astype(container)
    nibbles = rng.integers(0, 16, (rows, instruction.chunks)).astype(np.uint8)
    overflow_in = noise(rows * columns, rng)
    if instruction.d.is_integer:
        accumulators = integer_accumulators((rows, columns), rng)
        overflow_in = sum(1 << int(output) for output in np.flatnonzero(accumulators != accumulators.astype(np.int32)))
        c = accumulators & 0xFFFFFFFF
        d, overflow = integer_result(instruction, a, b, nibbles, accumulators)
    else:
        c = random_codes(instruction.c, distribution, (rows, columns), rng)
        codes = c.astype(CONTAINERS[instruction.c.bits])
        given = MatrixOperands(a[None], b[None], codes[None], nibbles[None] if instruction.sparse else None)
        d = multiply(instruction, "sm_80", given)[0].astype(np.uint32)
        overflow = 0
        if instruction.c.bits == 16:
            c = c | rng.integers(0, 1 << 16, c.shape) << 16
    rule = RuleCode[instruction.rule.name.upper()] if instruction.rule else rng.choice(list(RuleCode))
    control = {
        "a": config.formats.index(instruction.a.name),
        "b": config.formats.index(instruction.b.name),
        "result": RESULTS[instruction.d.name],
        "saturate": instruction.satfinite if instruction.d.is_integer else noise(1, rng),
        "sparse": bool(instruction.sparse),
        "rule": rule,
    }
    b_bits, metadata_bits = b.shape[0] * instruction.container_bits, 4 * instruction.chunks
    above_b, above_metadata = 16 * config.step_bytes - b_bits, 4 * config.chunks - metadata_bits
    illegal = [
        sum(1 << chunk for chunk, nibble in enumerate(row) if nibble not in instruction.rule.legal)
        if instruction.rule
        else 0
        for row in nibbles.tolist()
    ]
    tag = noise(TAG.size, rng)
    payload = tile_layout(config, TAG).const(
        {
            "control": control_layout().const(control),
            "a": [word(row) for row in a],
            "metadata": [
                sum(int(nibble) << 4 * chunk for chunk, nibble in enumerate(row))
                | noise(above_metadata, rng) << metadata_bits
                for row in nibbles
            ],
            "scale_a": [noise(32, rng) for _ in range(rows)],
            "b": [word(column) | noise(above_b, rng) << b_bits for column in b.T],
            "scale_b": [noise(32, rng) for _ in range(columns)],
            "c": c.ravel().tolist(),
            "overflow": overflow_in,
            "tag": TAG.from_bits(tag),
        }
    )
    return Tile(payload.as_value().value, d, instruction.d.bits, overflow, illegal, tag)


def tiles(config: CoreConfig, count: int, rng: np.random.Generator) -> list[Tile]:
    """Return tiles of all one-step instructions of a configuration, in random order."""
    held = [instruction for instruction in ONE_STEP if config.holds(instruction)]
    order = [held[i % len(held)] for i in range(count)]
    rng.shuffle(order)
    return [tile(config, instruction, rng) for instruction in order]


def run(
    core: Core,
    payloads: Sequence[int],
    rng: np.random.Generator,
    *,
    gaps: Sequence[float] = (0,),
    stalls: Sequence[float] = (0,),
    cycles: int | None = None,
    resets: Collection[int] = (),
) -> list[Cycle]:
    """Offer payloads in order and return every cycle.

    `gaps` are the chances that a cycle offers nothing new, `stalls` that it takes nothing; they take turns, 32 cycles
    each. An offer stands until it is accepted; between offers the payload is noise. The run ends some cycles after
    the last result that no reset has prevented, or after `cycles`.
    """
    top, reset = Module(), Signal()
    top.submodules.core = ResetInserter(reset)(core) if resets else core
    top.d.sync += Signal(name="heartbeat").eq(1)  # a core without registers has no clock of its own
    i_payload, o_payload = core.i.payload.as_value(), core.o.payload.as_value()
    log: list[Cycle] = []

    async def bench(context: SimulatorContext) -> None:
        waiting, offered, under_way, tail = deque(payloads), False, 0, 2 * core.config.latency + 2
        while tail and len(log) != cycles:
            assert len(log) < 20 * len(payloads) + 100, "the core hangs"
            phase = len(log) // 32
            resetting = len(log) in resets
            if not offered and waiting and not resetting:
                offered = rng.random() >= gaps[phase % len(gaps)]
            context.set(reset, resetting)
            context.set(core.i.valid, offered and not resetting)
            context.set(i_payload, waiting[0] if offered else noise(len(i_payload), rng))
            context.set(core.o.ready, not resetting and rng.random() >= stalls[phase % len(stalls)])
            ports = (core.i.valid, core.i.ready, core.o.valid, core.o.ready, o_payload)
            cycle = Cycle(resetting, *(await context.tick().sample(*ports))[2:])
            log.append(cycle)
            if cycle.accepts:
                waiting.popleft()
                offered = False
            under_way = 0 if resetting else under_way + cycle.accepts - cycle.delivers
            tail -= not waiting and not under_way

    simulator = Simulator(top)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return log


def check_results(core: Core, expected: Sequence[Tile], log: Sequence[Cycle]) -> None:
    """The log delivers each tile's result, once and in order."""
    results = [cycle.result for cycle in log if cycle.delivers]
    assert len(results) == len(expected)
    layout = tile_result_layout(core.config, TAG)
    for number, (want, bits) in enumerate(zip(expected, results, strict=True)):
        result = layout.from_bits(bits)
        outputs = np.array([result.d[i] for i in range(want.d.size)]) & ((1 << want.d_bits) - 1)
        assert outputs.tolist() == want.d.ravel().tolist(), number
        assert result.overflow == want.overflow, number
        assert [result.illegal[row] for row in range(core.config.rows)] == want.illegal, number
        assert result.tag.as_bits() == want.tag, number


def check_stream_rules(log: Sequence[Cycle]) -> None:
    """A result that is not taken stays as it is, and holds back the tiles behind it."""
    stalled = 0
    for before, after in pairwise(log):
        if before.o_valid and not before.o_ready:
            assert after.o_valid
            assert after.result == before.result
            assert not before.i_ready
            stalled += 1
    assert stalled, "the test never stalled"


LONG = pytest.mark.regression


@pytest.mark.regression
@pytest.mark.parametrize("cuts", [pytest.param((), marks=LONG), TINY.cuts, pytest.param(CUTS, marks=LONG)], ids=len)
def test_random_stalls(cuts: tuple[str, ...], rng: np.random.Generator) -> None:
    config = replace(TINY, cuts=cuts)
    core, expected = Core(config, TAG), tiles(config, 48, rng)
    payloads = [tile.payload for tile in expected]
    log = run(core, payloads, rng, gaps=(0.5, 0, 0.7, 0), stalls=(0.5, 0.7, 0, 0.2))
    check_results(core, expected, log)
    check_stream_rules(log)


def test_rows_and_columns_meet(rng: np.random.Generator) -> None:
    """Every row of A with every column of B, each output with its own accumulator."""
    config = replace(TINY, formats=("s8",), rows=2, columns=2)
    core, expected = Core(config, TAG), tiles(config, 12, rng)
    check_results(core, expected, run(core, [tile.payload for tile in expected], rng))


@pytest.mark.regression
@pytest.mark.parametrize("cuts", [(), ("select",), ("align", "round"), ("select", "multiply", "reduce"), CUTS], ids=len)
def test_a_tile_every_cycle(cuts: tuple[str, ...], rng: np.random.Generator) -> None:
    config = replace(ONE, cuts=cuts)
    core, expected = Core(config, TAG), tiles(config, 16, rng)
    log = run(core, [tile.payload for tile in expected], rng)
    accepted = [number for number, cycle in enumerate(log) if cycle.accepts]
    delivered = [number for number, cycle in enumerate(log) if cycle.delivers]
    assert accepted == list(range(len(expected)))
    assert delivered == [number + len(cuts) for number in accepted]
    check_results(core, expected, log)


@pytest.mark.regression
def test_the_format_changes_every_cycle(rng: np.random.Generator) -> None:
    core = Core(TINY, TAG)
    by_format = [[i for i in ONE_STEP if i.a.name == name] for name in TINY.formats]
    kinds = [instruction for pair in zip(*by_format, strict=True) for instruction in pair]
    assert [instruction.a.name for instruction in kinds] == len(kinds) // 2 * ["f16", "s8"]
    expected = [tile(TINY, instruction, rng) for instruction in kinds + kinds]
    log = run(core, [tile.payload for tile in expected], rng)
    assert all(cycle.accepts for cycle in log[: len(expected)])
    check_results(core, expected, log)


@pytest.mark.regression
@pytest.mark.parametrize("cuts", [(), CUTS], ids=len)
def test_tags_return_with_their_tiles(cuts: tuple[str, ...], rng: np.random.Generator) -> None:
    """Equal operands, so that nothing but the tag tells the tiles apart."""
    config = replace(ONE, formats=("s8",), cuts=cuts)
    core, first = Core(config, TAG), tile(config, ONE_STEP[-1], rng)
    tag = tile_layout(config, TAG)["tag"]
    mask = (1 << tag.width) - 1 << tag.offset
    tags = rng.permutation(1 << tag.width)[:64].tolist()
    payloads = [first.payload & ~mask | number << tag.offset for number in tags]
    log = run(core, payloads, rng, gaps=(0, 0.5), stalls=(0.5, 0))
    assert len({cycle.result for cycle in log if cycle.delivers}) == len(tags)
    check_results(core, [replace(first, tag=number) for number in tags], log)


@pytest.mark.regression
def test_a_full_pipeline_takes_no_more(rng: np.random.Generator) -> None:
    config = replace(ONE, formats=("s8",), cuts=CUTS)
    core, expected = Core(config, TAG), tiles(config, 10, rng)
    log = run(core, [tile.payload for tile in expected], rng, stalls=(1,), cycles=20)
    assert [cycle.accepts for cycle in log] == [number < len(CUTS) for number in range(20)]
    assert [cycle.o_valid for cycle in log] == [number >= len(CUTS) for number in range(20)]


@pytest.mark.parametrize("cuts", [("select",), CUTS], ids=len)
def test_a_reset_forgets_what_is_under_way(cuts: tuple[str, ...], rng: np.random.Generator) -> None:
    config = replace(ONE, formats=("s8",), cuts=cuts)
    core, given = Core(config, TAG), tiles(config, 40, rng)
    resets = {20, 21, 30, 40, 50}
    log = run(core, [t.payload for t in given], rng, gaps=(0.2,), stalls=(0.6,), resets=resets)
    under_way: deque[Tile] = deque()
    offered, survivors, forgotten = iter(given), [], 0
    for cycle in log:
        if cycle.o_valid and not cycle.reset:
            assert under_way, "a result of before the reset"
        if cycle.reset:
            forgotten += len(under_way)
            under_way.clear()
        if cycle.delivers:
            survivors.append(under_way.popleft())
        if cycle.accepts:
            under_way.append(next(offered))
    assert forgotten
    assert survivors
    assert len(survivors) + forgotten == len(given)
    check_results(core, survivors, log)
