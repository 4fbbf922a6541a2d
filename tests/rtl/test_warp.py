"""A warp has the right order and timing of instructions and results. Stand-ins replace the dot-product units."""

import gc
from collections import deque
from collections.abc import Collection
from dataclasses import replace

import numpy as np
import pytest
from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.sim import SimulatorContext
from sptc.rtl.cells.pipeline import delayed
from sptc.rtl.config import CUTS, PRESETS, ConfigError, CoreConfig
from sptc.rtl.round import ResultCode
from sptc.rtl.step import control_layout
from sptc.rtl.unit import Unit
from sptc.rtl.warp import Warp, warp_operands_layout
from sptc.sim.benches.items import Item
from sptc.sim.benches.scoreboard import Cycle, Scoreboard
from sptc.tests.rtl.conftest import simulate_clocked

Random = np.random.Generator
TINY = PRESETS["tiny"]
LANES = 32
#: A warp is assumed to hang after this number of cycles without a result, or with an unaccepted instruction.
PATIENCE = 1000
#: Rows and columns of an array, pipeline cuts, and bytes per step. In some arrays, a step waits for the previous step.
ARRAYS = [
    *((4, 8, CUTS[1:4], 16), (8, 8, (), 16), (2, 2, CUTS, 32), (4, 4, CUTS, 16)),
    *((4, 4, CUTS, PRESETS["hopper"].step_bytes), (1, 1, CUTS[:1], 16), (16, 8, CUTS, 16)),
]


def run(
    dut: Warp, items: list[Item], rng: Random, *, gaps: float = 0, stalls: float = 0, resets: Collection[int] = ()
) -> list[Cycle]:
    """Offer instructions to a warp in order, compare their results, and return a record of every cycle.

    `gaps` and `stalls` are the probabilities that no new item is offered, and that no result is accepted, in a cycle.
    """
    reset, i_payload, o_payload = Signal(), dut.i.payload.as_value(), dut.o.payload.as_value()
    log: list[Cycle] = []

    async def bench(context: SimulatorContext) -> None:
        scoreboard, waiting, offered, tail = Scoreboard(PATIENCE), deque(items), False, 2 * dut.config.latency + 4
        while tail:
            resetting = len(log) in resets
            if not offered and waiting and not resetting:
                offered = rng.random() >= gaps
            noise = int.from_bytes(rng.bytes(len(i_payload) // 8), "little")
            context.set(reset, resetting)
            context.set(dut.i.valid, offered and not resetting)
            context.set(i_payload, waiting[0].payload if offered else noise)
            context.set(dut.o.ready, not resetting and rng.random() >= stalls)
            ports = (dut.i.valid, dut.i.ready, dut.o.valid, dut.o.ready, o_payload)
            cycle = Cycle(resetting, *(await context.tick().sample(*ports))[2:])
            log.append(cycle)
            scoreboard.observe(cycle, waiting[0] if offered else None)
            if cycle.accepts:
                waiting.popleft()
                offered = False
            tail -= not waiting and not scoreboard.under_way

    simulate_clocked(dut, bench, reset=reset if resets else None)
    return log


class Stamp(Unit):
    """Stand-in for a unit that computes d = 3 c + sum of the words of A. Thus d depends on the order of the steps."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        a = sum((self.step.a.word_select(i, 32) for i in range(self.config.step_bytes // 4)), Const(0))
        result = Cat((3 * self.step.c + a)[:32], self.step.overflow)
        m.d.comb += self.result.eq(delayed(m, result, self.config.latency, self.enable, "stamp"))
        return m


def stamp_item(config: CoreConfig, long: bool, rng: Random) -> Item:
    """Return a random instruction, with the result that a warp of :class:`Stamp` units gives."""
    a, c = rng.integers(0, 1 << 32, (2, LANES, 4), np.uint32)
    control = control_layout().const({"result": ResultCode.S32})
    payload = warp_operands_layout().const({"a": a.tolist(), "c": c.tolist(), "long": long, "control": control})
    # Register 2 h + s of A, in the four lanes of quad g, has a part of half h of row 8 s + g.
    row_sums = np.repeat(a.reshape(8, 4, 2, 2).sum(1, dtype=np.uint32), 4, axis=0)  # axes: lane, half h of a row, s
    of_register = np.repeat(row_sums, 2, axis=2)  # in quad g, registers 2 s and 2 s + 1 of D have row 8 s + g
    d = 3 * c + of_register[:, 0]
    if long:
        d = 3 * d + of_register[:, 1] if config.step_bytes == 16 else d + of_register[:, 1]
    expected = int.from_bytes(d.astype("<u4").tobytes(), "little")  # no metadata nibble is flagged as illegal
    return Item("long" if long else "short", payload.as_value().value, expected, 0)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("rows", "columns", "cuts", "step_bytes"), ARRAYS)
def test_any_array(rows: int, columns: int, cuts: tuple[str, ...], step_bytes: int, rng: Random) -> None:
    """Instructions take the expected cycles and give the right results, with gaps between them and stalled results."""
    config = replace(TINY, rows=rows, columns=columns, cuts=cuts, step_bytes=step_bytes)
    lengths = (True, False, False, True, True, False)
    items = [stamp_item(config, long, rng) for long in lengths]
    blocks = 128 // (rows * columns)
    counts = [2 if long and step_bytes == 16 else 1 for long in lengths]
    intervals = [config.warp_interval(count) for count in counts]
    for count, cycles in zip(counts, intervals, strict=True):  # longer if step 2 waits for the result of step 1
        assert cycles == blocks * count or (count > 1 and blocks <= config.latency)
    for share in (0, 0.9):
        log = run(Warp(config, Stamp), items, rng, gaps=share)
        accepted = [number for number, cycle in enumerate(log) if cycle.accepts]
        assert share or np.diff(accepted).tolist() == intervals[:-1]
        free = [True, *(cycle.delivers or not cycle.o_valid for cycle in log)]
        valid = [number for number, cycle in enumerate(log) if cycle.o_valid and free[number]]
        latencies = [after - before for before, after in zip(accepted, valid, strict=True)]
        assert latencies == [config.warp_latency(count) for count in counts]
    items = [stamp_item(config, bool(rng.integers(2)), rng) for _ in range(12 if blocks < 64 else 6)]
    share = 1 - 1 / (1 + 2 * min(blocks, 8))
    log = run(Warp(config, Stamp), items, rng, gaps=share, stalls=share)
    assert any(cycle.o_valid and not cycle.o_ready for cycle in log), "the test never stalled a result"


def test_a_reset_forgets_the_instruction(rng: Random) -> None:
    """A reset removes the running instruction: the next result belongs to the instruction after it."""
    config = replace(TINY, rows=4, columns=8, cuts=CUTS)
    items = [stamp_item(config, bool(rng.integers(2)), rng) for _ in range(40)]
    resets = set(np.cumsum(rng.integers(1, 50, 16)).tolist())
    log = run(Warp(config, Stamp), items, rng, gaps=0.5, stalls=0.9, resets=resets)
    assert 0 < sum(cycle.delivers for cycle in log) < len(items)


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
def test_what_cannot_serve_a_warp() -> None:
    rows_and_columns, step_bytes = "rows must divide 16 and columns must divide 8", "step_bytes must be 16 or 32"
    for changes, message in (
        ({"rows": 3}, f"{rows_and_columns} in the array of a warp, not 3 and 2"),
        ({"columns": 3}, f"{rows_and_columns} in the array of a warp, not 1 and 3"),
        ({"columns": 16}, f"{rows_and_columns} in the array of a warp, not 1 and 16"),
        ({"step_bytes": 8}, f"{step_bytes} in the array of a warp, not 8"),
        ({"step_bytes": 64}, f"{step_bytes} in the array of a warp, not 64"),
        ({"formats": ("e2m1/4",), "scales": ("ue4m3",)}, "step_bytes must be 32 in .* a warp with e2m1/4, not 16"),
    ):
        with pytest.raises(ConfigError, match=f"^{message}$"):
            Warp(replace(TINY, **changes))
    gc.collect()  # Free the unused components here, where Amaranth's warnings are off.
