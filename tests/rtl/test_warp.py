"""Instructions from registers: the warp's hardware against the golden model, and when it takes and gives what."""

import gc
import sys
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product

import numpy as np
import pytest
from amaranth.hdl import Cat, Const, Module, ResetInserter, Signal
from amaranth.sim import Simulator, SimulatorContext
from numpy.typing import NDArray
from sptc.golden.registers import pack
from sptc.isa.fragments import a_fragment, accumulator_fragment, b_fragment
from sptc.isa.instructions import Instruction, every_instruction, parse
from sptc.rtl.cells.pipeline import delayed
from sptc.rtl.config import CUTS, PRESETS, ConfigError, CoreConfig
from sptc.rtl.round import ResultCode
from sptc.rtl.step import control_layout
from sptc.rtl.unit import Unit
from sptc.rtl.warp import Warp, warp_operands_layout, warp_result_layout
from sptc.sim.benches.items import warp_item
from sptc.sim.benches.random_operands import Operands, distributions, random_operands

# Amaranth's simulator writes values as decimal text into the Python that it compiles. A warp reads 15,000 bits at once,
# more digits than Python converts unless told to.
sys.set_int_max_str_digits(0)

TINY = PRESETS["tiny"]
#: The cheapest warp that computes.
INTEGER = replace(TINY, formats=("s8",))
LAYOUT, RESULT = warp_operands_layout(), warp_result_layout()
LANES, ROWS = 32, 16
SP = "mma.sp.sync.aligned."
ORDERED = "mma.sp::ordered_metadata.sync.aligned."
DENSE = "mma.sync.aligned."
SHORT_S8, LONG_S8 = SP + "m16n8k32.row.col.s32.s8.s8.s32", SP + "m16n8k64.row.col.s32.s8.s8.s32"


@dataclass(frozen=True, eq=False)
class Case:
    """An instruction with its registers, and what must come back."""

    name: str
    payload: int
    d: NDArray[np.uint32]  # (32, registers)
    illegal: list[int]
    long: bool


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


def words(rng: np.random.Generator, *shape: int) -> NDArray[np.uint32]:
    return rng.integers(0, 1 << 32, shape, np.uint32)


def case(
    config: CoreConfig,
    arch: str,
    instruction: Instruction,
    rng: np.random.Generator,
    *,
    sparsity_selector: int = 0,
    operands: Operands | None = None,
    scales: tuple[tuple[int, int], tuple[int, int]] | None = None,
) -> Case:
    """Return an instruction on random operands; what it does not have is random too.

    `scales` are byte and thread ids of A and of B; random ones if not given.
    """
    if scales:
        drawn = random_operands(
            instruction, str(rng.choice(distributions(instruction))), 1, rng, sparsity_selector=sparsity_selector
        )
        assert drawn.scale_a
        assert drawn.scale_b
        operands = replace(drawn, scale_a=(drawn.scale_a[0], *scales[0]), scale_b=(drawn.scale_b[0], *scales[1]))
    item = warp_item(config, arch, instruction, rng, sparsity_selector=sparsity_selector, operands=operands)
    octets = item.expected.to_bytes(RESULT.size // 8, "little")
    first = RESULT["illegal"].offset // 8
    registers = np.frombuffer(octets[:first], "<u4").reshape(LANES, 4)
    d = registers[:, : accumulator_fragment(instruction).registers]
    illegal = np.frombuffer(octets[first:], "<u2").tolist()
    return Case(item.name, item.payload, d, illegal, a_fragment(instruction).registers == 4)


def run(
    warp: Warp,
    cases: Sequence[Case],
    rng: np.random.Generator,
    *,
    gap: int = 0,
    stall: int = 0,
    resets: Collection[int] = (),
) -> list[Cycle]:
    """Offer instructions in order and return every cycle.

    Before each offer pass up to `gap` idle cycles, before each result is taken up to `stall`. The run ends a while
    after the last result that no reset has prevented.
    """
    top, reset = Module(), Signal()
    top.submodules.warp = ResetInserter(reset)(warp) if resets else warp
    i_payload, o_payload = warp.i.payload.as_value(), warp.o.payload.as_value()
    log: list[Cycle] = []

    async def bench(context: SimulatorContext) -> None:
        waiting, under_way, tail = deque(case.payload for case in cases), 0, 2 * warp.config.latency + 4
        pause, hold = int(rng.integers(gap + 1)), int(rng.integers(stall + 1))
        while tail:
            assert len(log) < 1000 * len(cases), "the warp hangs"
            resetting = len(log) in resets
            offers = bool(waiting) and not pause and not resetting
            if offers:
                context.set(i_payload, waiting[0])
            context.set(reset, resetting)
            context.set(warp.i.valid, offers)
            context.set(warp.o.ready, not hold and not resetting)
            ports = (warp.i.valid, warp.i.ready, warp.o.valid, warp.o.ready, o_payload)
            cycle = Cycle(resetting, *(await context.tick().sample(*ports))[2:])
            log.append(cycle)
            pause = max(0, pause - 1)
            if cycle.accepts:
                waiting.popleft()
                pause = int(rng.integers(gap + 1))
            if cycle.delivers:
                hold = int(rng.integers(stall + 1))
            elif cycle.o_valid:
                hold = max(0, hold - 1)
            under_way = 0 if resetting else under_way + cycle.accepts - cycle.delivers
            tail -= not waiting and not under_way

    gc.disable()  # elaboration keeps all it makes: searching that for garbage takes a third of its time
    try:
        simulator = Simulator(top)
        simulator.add_clock(1e-6)
        simulator.add_testbench(bench)
        simulator.run()
    finally:
        gc.enable()
    return log


def accepted(log: Sequence[Cycle]) -> list[int]:
    return [number for number, cycle in enumerate(log) if cycle.accepts]


def first_valid(log: Sequence[Cycle]) -> list[int]:
    """Return the cycles in which a result appears."""
    free = [True, *(cycle.delivers or not cycle.o_valid for cycle in log)]
    return [number for number, cycle in enumerate(log) if cycle.o_valid and free[number]]


def check_results(cases: Sequence[Case], log: Sequence[Cycle]) -> None:
    """The log delivers the result of each instruction, once and in order."""
    results = [cycle.result for cycle in log if cycle.delivers]
    assert len(results) == len(cases)
    for case, bits in zip(cases, results, strict=True):
        octets = bits.to_bytes(RESULT.size // 8, "little")
        first = RESULT["illegal"].offset // 8
        registers = np.frombuffer(octets[:first], "<u4").reshape(LANES, 4)
        wrong = np.argwhere(registers[:, : case.d.shape[1]] != case.d)
        assert wrong.tolist() == [], f"{case.name}: (lane, register)"
        assert np.frombuffer(octets[first:], "<u2").tolist() == case.illegal, case.name


def check_stream_rules(log: Sequence[Cycle]) -> None:
    """A result that is not taken stays as it is."""
    stalls = [(before, after) for before, after in pairwise(log) if before.o_valid and not before.o_ready]
    assert stalls, "the test never stalled"
    for before, after in stalls:
        assert after.o_valid
        assert after.result == before.result


class Stamp(Unit):
    """A cheap stand-in: d = 3 c + the sum of the words of A, so that results tell operands and order of steps."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        a = sum((self.step.a.word_select(i, 32) for i in range(self.config.step_bytes // 4)), Const(0))
        result = Cat((3 * self.step.c + a)[:32], self.step.overflow)
        m.d.comb += self.result.eq(delayed(m, result, self.config.latency, self.enable, "stamp"))
        return m


def stamp_case(config: CoreConfig, long: bool, rng: np.random.Generator) -> Case:
    """Return an instruction of stand-ins."""
    a, c = words(rng, LANES, 4), words(rng, LANES, 4)
    control = control_layout().const({"result": ResultCode.S32})
    payload = LAYOUT.const({"a": a.tolist(), "c": c.tolist(), "long": long, "control": control})
    # Register 2 h + (row >= 8) of a quad is the half h of a row.
    row_sums = np.repeat(a.reshape(8, 4, 2, 2).sum(1, dtype=np.uint32), 4, axis=0)  # (lane, half, row >= 8)
    of_register = np.repeat(row_sums, 2, axis=2)  # accumulator registers 0 and 1 belong to the upper row
    d = 3 * c + of_register[:, 0]
    if long:
        d = 3 * d + of_register[:, 1] if config.step_bytes == 16 else d + of_register[:, 1]
    return Case("long" if long else "short", payload.as_value().value, d.astype(np.uint32), [0] * ROWS, long)


def steps(config: CoreConfig, case: Case) -> int:
    return 2 if case.long and config.step_bytes == 16 else 1


def instructions_of(config: CoreConfig) -> list[Instruction]:
    return [i for i in every_instruction("mma") if i.m == ROWS and config.holds(i)]


def test_one_instruction_of_each_width(rng: np.random.Generator) -> None:
    """Sparse ones of two steps and dense ones of one or two, with all sixteen nibbles and any selector."""
    groups: dict[tuple[object, ...], list[Instruction]] = {}
    for instruction in instructions_of(TINY):
        if not instruction.sparse or a_fragment(instruction).registers == 4:
            groups.setdefault((instruction.a.bits, bool(instruction.sparse)), []).append(instruction)
    assert len(groups) == 4
    drawn = [group[int(rng.integers(len(group)))] for group in groups.values()]
    cases = [case(TINY, "sm_80", i, rng, sparsity_selector=int(rng.integers(i.sparsity_selectors))) for i in drawn]
    check_results(cases, run(Warp(TINY), cases, rng))


@pytest.mark.regression
def test_every_instruction_of_tiny(rng: np.random.Generator) -> None:
    """Each with all sixteen nibbles; each shape, type and rule with all selectors, whatever the result format."""
    alike: dict[tuple[object, ...], list[Instruction]] = {}
    for instruction in instructions_of(TINY):
        alike.setdefault((instruction.k, instruction.a, instruction.sparse), []).append(instruction)
    assert [len(group) for group in alike.values()] == 12 * [2]
    cases = []
    for group in alike.values():
        selectors = group[0].sparsity_selectors
        rng.shuffle(group)
        turns = [(group[i % len(group)], i % selectors) for i in range(max(len(group), selectors))]
        cases += [
            case(TINY, "sm_80", instruction, rng, sparsity_selector=sparsity_selector)
            for instruction, sparsity_selector in turns
        ]
    rng.shuffle(cases)
    check_results(cases, run(Warp(TINY), cases, rng))


@pytest.mark.regression
def test_gaps_and_stalls(rng: np.random.Generator) -> None:
    config = replace(TINY, rows=2, columns=1)
    held = rng.permutation(instructions_of(config))[:8]
    cases = [case(config, "sm_80", i, rng, sparsity_selector=int(rng.integers(i.sparsity_selectors))) for i in held]
    log = run(Warp(config), cases, rng, gap=150, stall=150)
    check_results(cases, log)
    check_stream_rules(log)


SHAPES = [(1, 1), (1, 8), (16, 1), (2, 4), (4, 8), (16, 8)]


@pytest.mark.regression
@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_any_array_under_gaps_and_stalls(rows: int, columns: int, rng: np.random.Generator) -> None:
    """With a stand-in for the units; also where a step must wait for the one before to come out of the pipeline."""
    blocks = 128 // (rows * columns)
    count = 40 if blocks < 64 else 8
    cuts = CUTS if blocks < 64 else CUTS[:1]
    config = replace(TINY, rows=rows, columns=columns, cuts=cuts)
    cases = [stamp_case(config, bool(rng.integers(2)), rng) for _ in range(count)]
    log = run(Warp(config, Stamp), cases, rng, gap=4 * min(blocks, 8), stall=4 * min(blocks, 8))
    check_results(cases, log)
    check_stream_rules(log)


TIMINGS = [(4, 4, CUTS, 16), (4, 4, CUTS, 32), (4, 8, CUTS[1:4], 16), (8, 2, (), 16), (8, 8, (), 16), (2, 2, CUTS, 32)]


@pytest.mark.regression
@pytest.mark.parametrize(("rows", "columns", "cuts", "step_bytes"), TIMINGS)
def test_interval_and_latency(
    rows: int, columns: int, cuts: tuple[str, ...], step_bytes: int, rng: np.random.Generator
) -> None:
    config = replace(TINY, rows=rows, columns=columns, cuts=cuts, step_bytes=step_bytes)
    cases = [stamp_case(config, long, rng) for long in (True, False, False, True, True, False)]
    warp = Warp(config, Stamp)
    assert warp.blocks == 128 // (rows * columns)
    log = run(warp, cases, rng)
    check_results(cases, log)
    counts = [steps(config, case) for case in cases]
    intervals = [config.warp_interval(count) for count in counts]
    for count, cycles in zip(counts, intervals, strict=True):  # A later step may wait for the first one's results.
        assert cycles == warp.blocks * count or (count > 1 and warp.blocks <= config.latency)
    assert np.diff(accepted(log)).tolist() == intervals[:-1]
    latencies = [after - before for before, after in zip(accepted(log), first_valid(log), strict=True)]
    assert latencies == [config.warp_latency(count) for count in counts]


def test_an_idle_warp_answers_as_fast(rng: np.random.Generator) -> None:
    config = replace(TINY, rows=4, columns=4)
    cases = [stamp_case(config, bool(rng.integers(2)), rng) for _ in range(8)]
    warp = Warp(config, Stamp)
    log = run(warp, cases, rng, gap=60)
    check_results(cases, log)
    latencies = [after - before for before, after in zip(accepted(log), first_valid(log), strict=True)]
    assert latencies == [warp.blocks * steps(config, case) + config.latency + 1 for case in cases]


# A in the first and the second step of K, by row: both ways out of 32 bits and back.
HALVES = [*product((127, -128, 0), repeat=2), (127, -127), (-127, 127), (1, -1), (-1, 1), (1, 0), (0, 1), (-1, 0)]
EXTREMES = [(1 << 31) - 1, -(1 << 31), (1 << 31) - 2, -(1 << 31) + 1, 0, -1, 1 << 30, -(1 << 30)]


def test_two_steps_clamp_once(rng: np.random.Generator) -> None:
    """Only the whole sum is clamped, or wrapped: what leaves 32 bits in the first step may come back in the second."""
    cases, changed = [], 0
    for text in (
        SP + "m16n8k64.row.col.satfinite.s32.s8.s8.s32",
        LONG_S8,
        DENSE + "m16n8k32.row.col.satfinite.s32.s8.s8.s32",
        DENSE + "m16n8k32.row.col.s32.s8.s8.s32",
    ):
        instruction = parse(text)
        a = np.repeat(np.array(HALVES), 16, axis=1)
        b = np.full((instruction.k, 8), 127)
        c = np.array(EXTREMES)[None, :].repeat(ROWS, axis=0)
        operands = Operands(
            pack(a[None].astype(np.int8).view(np.uint8), a_fragment(instruction)),
            pack(b[None].astype(np.uint8), b_fragment(instruction)),
            pack((c & 0xFFFFFFFF)[None], accumulator_fragment(instruction)),
            np.full((1, LANES), 0x44444444, np.uint32) if instruction.sparse else None,
            0,
            None,
            None,
        )
        # By hand, not by the model: A meets 127 everywhere, whatever the metadata says.
        total = c + 127 * a.sum(axis=1)[:, None]
        after_first = c + 127 * a[:, :16].sum(axis=1)[:, None]
        limits = (-(1 << 31), (1 << 31) - 1)
        expected = total.clip(*limits) if instruction.satfinite else total
        clamped_twice = (after_first.clip(*limits) + 127 * a[:, 16:].sum(axis=1)[:, None]).clip(*limits)
        changed += np.count_nonzero(clamped_twice != total.clip(*limits))
        d = pack((expected & 0xFFFFFFFF)[None], accumulator_fragment(instruction))[0]
        cases.append(replace(case(INTEGER, "sm_80", instruction, rng, operands=operands), d=d))
    assert changed
    check_results(cases, run(Warp(INTEGER), cases, rng))


def test_a_reset_forgets_the_instruction(rng: np.random.Generator) -> None:
    """Whatever part of the first instruction is done, the next result is the second's."""
    config = replace(TINY, rows=4, columns=8, cuts=CUTS)
    warp = Warp(config, Stamp)
    given = [stamp_case(config, bool(rng.integers(2)), rng) for _ in range(40)]
    resets = set(np.cumsum(rng.integers(1, 50, 16)).tolist())
    log = run(warp, given, rng, gap=2, stall=20, resets=resets)
    under_way: deque[Case] = deque()
    offered, survivors, forgotten = iter(given), [], 0
    for cycle in log:
        if cycle.reset:
            forgotten += len(under_way)
            under_way.clear()
            continue
        if cycle.o_valid:
            assert under_way, "a result of before the reset"
        if cycle.delivers:
            survivors.append(under_way.popleft())
        if cycle.accepts:
            under_way.append(next(offered))
    assert forgotten
    assert survivors
    assert len(survivors) + forgotten == len(given)
    check_results(survivors, log)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": 3}, "rows and columns must divide 16 and 8 to serve a warp, not 3 and 2"),
        ({"columns": 3}, "rows and columns must divide 16 and 8 to serve a warp, not 1 and 3"),
        ({"columns": 16}, "rows and columns must divide 16 and 8 to serve a warp, not 1 and 16"),
        ({"step_bytes": 8}, "step_bytes must be 16 or 32 to serve a warp, not 8"),
        ({"step_bytes": 64}, "step_bytes must be 16 or 32 to serve a warp, not 64"),
    ],
)
@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
def test_what_cannot_serve_a_warp(changes: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{message}$"):
        Warp(replace(TINY, **changes))
    gc.collect()  # the half-made component complains of being unused; let it do so here


MXF8 = "row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32"
MXF4 = "row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0"
NVF4 = "row.col.kind::mxf4nvf4.block_scale.scale_vec"
#: Block-scaled instructions, with byte ids and thread ids of A and B: each id occurs with a scale of that size.
SCALED = [
    (ORDERED + f"m16n8k64.{MXF8}.e4m3.e5m2.f32.ue8m0", (0, 0), (3, 2)),
    (ORDERED + f"m16n8k64.{MXF8}.e2m1.e3m2.f32.ue8m0", (1, 1), (2, 3)),
    (DENSE + f"m16n8k32.{MXF8}.e2m3.e2m1.f32.ue8m0", (2, 1), (1, 0)),
    (DENSE + f"m16n8k32.{MXF8}.e5m2.e4m3.f32.ue8m0", (3, 0), (0, 1)),
    (ORDERED + f"m16n8k128.{MXF4}", (0, 1), (2, 1)),
    (DENSE + f"m16n8k64.{MXF4}", (2, 0), (0, 2)),
    (ORDERED + f"m16n8k128.{NVF4}::4X.f32.e2m1.e2m1.f32.ue4m3", (0, 1), (0, 3)),
    (DENSE + f"m16n8k64.{NVF4}::4X.f32.e2m1.e2m1.f32.ue4m3", (0, 0), (0, 0)),
    (DENSE + f"m16n8k64.{NVF4}::2X.f32.e2m1.e2m1.f32.ue8m0", (0, 1), (2, 3)),
    (ORDERED + f"m16n8k128.{NVF4}::4X.f32.e2m1.e2m1.f32.ue8m0", (0, 0), (0, 1)),
]


@pytest.mark.regression
def test_block_scales(rng: np.random.Generator) -> None:
    config = replace(PRESETS["rtx-blackwell"], rows=1, columns=1)
    cases = [case(config, "sm_120", parse(text), rng, scales=(a, b)) for text, a, b in SCALED]
    check_results(cases, run(Warp(config), cases, rng))


@pytest.mark.regression
def test_the_interval_of_an_h200(rng: np.random.Generator) -> None:
    """m16n8k32 of f16 every eight cycles, as measured; other formats in between make no difference."""
    hopper = replace(PRESETS["hopper"], formats=("f16", "tf32", "s8"))
    f16 = SP + "m16n8k32.row.col.f32.f16.f16.f32"
    texts = [
        f16,
        f16,
        SP + "m16n8k8.row.col.f32.tf32.tf32.f32",
        f16,
        SHORT_S8,
        DENSE + "m16n8k8.row.col.f16.f16.f16.f16",
        DENSE + "m16n8k32.row.col.s32.s8.s8.s32",
        f16,
    ]
    cases = [
        case(hopper, "sm_90", i, rng, sparsity_selector=int(rng.integers(i.sparsity_selectors)))
        for i in map(parse, texts)
    ]
    log = run(Warp(hopper), cases, rng)
    check_results(cases, log)
    assert np.diff(accepted(log)).tolist() == [8] * (len(texts) - 1)
