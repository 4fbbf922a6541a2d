"""Order and timing of a warp's instructions and results. Stand-ins replace the dot-product units."""

import gc
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeVar

import numpy as np
import pytest
from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.sim import SimulatorContext
from numpy.typing import NDArray
from sptc.rtl.cells.pipeline import delayed
from sptc.rtl.config import CUTS, PRESETS, ConfigError, CoreConfig
from sptc.rtl.round import ResultCode
from sptc.rtl.step import control_layout
from sptc.rtl.unit import Unit
from sptc.rtl.warp import Warp, warp_operands_layout, warp_result_layout
from sptc.tests.rtl.conftest import simulate_clocked

Random = np.random.Generator
Work = TypeVar("Work")


@dataclass(frozen=True)
class Cycle:
    """Handshakes of one cycle, as sampled at the clock edge at its end."""

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


def run(dut: Warp, payloads: list[int], rng: Random, *, gaps=(0,), stalls=(0,), resets=()) -> list[Cycle]:
    """Offer payloads in order and return every cycle.

    `gaps` are probabilities that no new payload is offered in a cycle, and `stalls` that no result is accepted; each
    value applies for 32 cycles, then the next one. An offer stays until it is accepted; otherwise the payload is
    random. The run ends some cycles after the last result that no reset has dropped.
    """
    reset, i_payload, o_payload = Signal(), dut.i.payload.as_value(), dut.o.payload.as_value()
    log: list[Cycle] = []

    async def bench(context: SimulatorContext) -> None:
        waiting, offered, under_way, tail = deque(payloads), False, 0, 2 * dut.config.latency + 4
        while tail:
            assert len(log) < 1000 * len(payloads), "the warp hangs"
            phase = len(log) // 32
            resetting = len(log) in resets
            if not offered and waiting and not resetting:
                offered = rng.random() >= gaps[phase % len(gaps)]
            noise = int.from_bytes(rng.bytes(len(i_payload) // 8), "little")
            context.set(reset, resetting)
            context.set(dut.i.valid, offered and not resetting)
            context.set(i_payload, waiting[0] if offered else noise)
            context.set(dut.o.ready, not resetting and rng.random() >= stalls[phase % len(stalls)])
            ports = (dut.i.valid, dut.i.ready, dut.o.valid, dut.o.ready, o_payload)
            cycle = Cycle(resetting, *(await context.tick().sample(*ports))[2:])
            log.append(cycle)
            if cycle.accepts:
                waiting.popleft()
                offered = False
            under_way = 0 if resetting else under_way + cycle.accepts - cycle.delivers
            tail -= not waiting and not under_way

    simulate_clocked(dut, bench, reset=reset if resets else None)
    return log


def accepted(log: Sequence[Cycle]) -> list[int]:
    return [number for number, cycle in enumerate(log) if cycle.accepts]


def check_stalls(log: Sequence[Cycle]) -> None:
    stalls = [(before, after) for before, after in pairwise(log) if before.o_valid and not before.o_ready]
    assert stalls, "the test never stalled a result"
    for before, after in stalls:
        assert after.o_valid
        assert after.result == before.result


def survivors(log: Sequence[Cycle], given: Sequence[Work]) -> list[Work]:
    """Return the items whose results must be delivered. A reset drops all items in flight."""
    under_way: deque[Work] = deque()
    offered, delivered, forgotten = iter(given), [], 0
    for cycle in log:
        if cycle.reset:
            forgotten += len(under_way)
            under_way.clear()
            continue
        if cycle.accepts:
            under_way.append(next(offered))
        if cycle.o_valid:
            assert under_way, "the output has a result of an item that a reset has dropped"
        if cycle.delivers:
            delivered.append(under_way.popleft())
    assert forgotten
    assert delivered
    assert len(delivered) + forgotten == len(given)
    return delivered


TINY = PRESETS["tiny"]
LAYOUT, RESULT = warp_operands_layout(), warp_result_layout()
LANES = 32


@dataclass(frozen=True, eq=False)
class Case:
    """An instruction with its registers and its expected result."""

    name: str
    payload: int
    d: NDArray[np.uint32]  # shape (lane, register)
    long: bool


def check_results(cases: Sequence[Case], log: Sequence[Cycle]) -> None:
    """Check that the log contains the result of each instruction, once and in order."""
    results = [cycle.result for cycle in log if cycle.delivers]
    assert len(results) == len(cases)
    for case, bits in zip(cases, results, strict=True):
        registers = np.frombuffer(bits.to_bytes(RESULT.size // 8, "little")[: 16 * LANES], "<u4").reshape(LANES, 4)
        wrong = np.argwhere(registers[:, : case.d.shape[1]] != case.d)
        assert wrong.tolist() == [], f"{case.name}: wrong (lane, register)"
        assert bits >> RESULT["illegal"].offset == 0, case.name


class Stamp(Unit):
    """Cheap stand-in for a unit: d = 3 c + the sum of A's words, so that results show operands and the order of
    steps.
    """

    def elaborate(self, platform: object) -> Module:
        m = Module()
        a = sum((self.step.a.word_select(i, 32) for i in range(self.config.step_bytes // 4)), Const(0))
        result = Cat((3 * self.step.c + a)[:32], self.step.overflow)
        m.d.comb += self.result.eq(delayed(m, result, self.config.latency, self.enable, "stamp"))
        return m


def stamp_case(config: CoreConfig, long: bool, rng: Random) -> Case:
    """Return a random instruction for stand-ins, with its expected result."""
    a, c = rng.integers(0, 1 << 32, (2, LANES, 4), np.uint32)
    control = control_layout().const({"result": ResultCode.S32})
    payload = LAYOUT.const({"a": a.tolist(), "c": c.tolist(), "long": long, "control": control})
    # Register 2 h + s of A, in the four lanes of quad g, has a part of half h of row 8 s + g.
    row_sums = np.repeat(a.reshape(8, 4, 2, 2).sum(1, dtype=np.uint32), 4, axis=0)  # shape (lane, h, s)
    of_register = np.repeat(row_sums, 2, axis=2)  # registers 2 s and 2 s + 1 of D belong to row 8 s + g
    d = 3 * c + of_register[:, 0]
    if long:
        d = 3 * d + of_register[:, 1] if config.step_bytes == 16 else d + of_register[:, 1]
    return Case("long" if long else "short", payload.as_value().value, d.astype(np.uint32), long)


def steps(config: CoreConfig, case: Case) -> int:
    return 2 if case.long and config.step_bytes == 16 else 1


def test_the_interval_of_an_h200() -> None:
    """`warp_interval` of one step is eight cycles, as measured for a short sparse instruction. Other tests compare the
    hardware with `warp_interval`.
    """
    assert PRESETS["hopper"].warp_interval(1) == 8


#: Rows and columns of an array, pipeline cuts, and bytes per step. In some arrays, a step waits for the previous step.
ARRAYS = [
    *((4, 8, CUTS[1:4], 16), (8, 8, (), 16), (2, 2, CUTS, 32), (4, 4, CUTS, 16)),
    *((4, 4, CUTS, PRESETS["hopper"].step_bytes), (1, 1, CUTS[:1], 16), (16, 8, CUTS, 16)),
]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("rows", "columns", "cuts", "step_bytes"), ARRAYS)
def test_any_array(rows: int, columns: int, cuts: tuple[str, ...], step_bytes: int, rng: Random) -> None:
    """Consecutive and single instructions take the expected cycles, and give the right results, also with gaps and
    stalls.
    """
    config = replace(TINY, rows=rows, columns=columns, cuts=cuts, step_bytes=step_bytes)
    cases = [stamp_case(config, long, rng) for long in (True, False, False, True, True, False)]
    blocks = 128 // (rows * columns)
    counts = [steps(config, case) for case in cases]
    intervals = [config.warp_interval(count) for count in counts]
    for count, cycles in zip(counts, intervals, strict=True):  # intervals are longer if step 2 waits for step 1
        assert cycles == blocks * count or (count > 1 and blocks <= config.latency)
    for share in (0, 0.9):
        log = run(Warp(config, Stamp), [case.payload for case in cases], rng, gaps=(share,))
        check_results(cases, log)
        assert share or np.diff(accepted(log)).tolist() == intervals[:-1]
        free = [True, *(cycle.delivers or not cycle.o_valid for cycle in log)]
        valid = [number for number, cycle in enumerate(log) if cycle.o_valid and free[number]]
        latencies = [after - before for before, after in zip(accepted(log), valid, strict=True)]
        assert latencies == [config.warp_latency(count) for count in counts]
    cases = [stamp_case(config, bool(rng.integers(2)), rng) for _ in range(12 if blocks < 64 else 6)]
    share = 1 - 1 / (1 + 2 * min(blocks, 8))
    log = run(Warp(config, Stamp), [case.payload for case in cases], rng, gaps=(share,), stalls=(share,))
    check_results(cases, log)
    check_stalls(log)


def test_a_reset_forgets_the_instruction(rng: Random) -> None:
    """A reset at any point of the first instruction removes it: the next result belongs to the second instruction."""
    config = replace(TINY, rows=4, columns=8, cuts=CUTS)
    warp = Warp(config, Stamp)
    given = [stamp_case(config, bool(rng.integers(2)), rng) for _ in range(40)]
    resets = set(np.cumsum(rng.integers(1, 50, 16)).tolist())
    log = run(warp, [case.payload for case in given], rng, gaps=(0.5,), stalls=(0.9,), resets=resets)
    check_results(survivors(log, given), log)


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
def test_what_cannot_serve_a_warp() -> None:
    rows_and_columns, step_bytes = "rows and columns must divide 16 and 8", "step_bytes must be 16 or 32"
    for changes, message in (
        ({"rows": 3}, f"{rows_and_columns} to serve a warp, not 3 and 2"),
        ({"columns": 3}, f"{rows_and_columns} to serve a warp, not 1 and 3"),
        ({"columns": 16}, f"{rows_and_columns} to serve a warp, not 1 and 16"),
        ({"step_bytes": 8}, f"{step_bytes} to serve a warp, not 8"),
        ({"step_bytes": 64}, f"{step_bytes} to serve a warp, not 64"),
        ({"formats": ("e2m1/4",), "scales": ("ue4m3",)}, "step_bytes must be 32 to serve a warp with e2m1/4, not 16"),
    ):
        with pytest.raises(ConfigError, match=f"^{message}$"):
            Warp(replace(TINY, **changes))
    gc.collect()  # Free the component that was not elaborated here, while its warning is off.
