"""When a warpgroup hands on its panels, by the law of what was measured, and what it takes and flags of commands."""

from collections import deque

import numpy as np
import pytest
from amaranth.hdl import Signal
from sptc.isa.instructions import Instruction, parse
from sptc.isa.timing import timing
from sptc.rtl.commits import GROUPS
from sptc.rtl.life_cycle import Operation
from sptc.rtl.round import ResultCode
from sptc.rtl.tensor_core import TENSOR_CORE
from sptc.rtl.warpgroup import Warpgroup
from sptc.tests.rtl.busy_warp import AnsweringWarp, BusyWarp
from sptc.tests.rtl.simulation import simulate_clocked

SPARSE = "wgmma.mma_async.sp.sync.aligned.m64n{}k32.{}.f16.f16"
DENSE = "wgmma.mma_async.sync.aligned.m64n{}k16.{}.f16.f16"
#: Multiplications until the pace is steady, and those that are timed.
FIRST, TIMED = 4, 8


class Tensor(BusyWarp):
    """Takes eight columns as an array of 32 units does."""

    cycles = TENSOR_CORE.warp_blocks


class Answering(AnsweringWarp):
    """Takes eight columns as an array of 32 units does."""

    cycles = TENSOR_CORE.warp_blocks


async def panels_handed_on(ctx, dut: Warpgroup, instruction: Instruction, a_from: str) -> list[int]:
    """Return the cycles in which eight columns are multiplied, of one instruction behind the other."""
    wanted = (FIRST + TIMED) * instruction.n // 8
    found: list[int] = []
    payload = dut.i.payload
    ctx.set(payload.operation, Operation.MULTIPLY)
    ctx.set(payload.last_panel, instruction.n // 8 - 1)
    ctx.set(payload.a_shared, a_from == "shared")
    ctx.set(payload.control.sparse, bool(instruction.sparse))
    ctx.set(payload.control.result, ResultCode.F16 if instruction.d.bits == 16 else ResultCode.F32)
    ctx.set(dut.i.valid, 1)
    ctx.set(dut.c.valid, 1)
    cycle = 0
    while len(found) < wanted:
        assert cycle < 100 + 40 * wanted, "nothing is multiplied any more"
        if ctx.get(dut.c.ready):
            found.append(cycle)
        await ctx.tick()
        cycle += 1
    return found


@pytest.mark.regression
def test_the_interval_is_the_laws() -> None:
    dut, reset = Warpgroup(TENSOR_CORE, warp_class=Tensor), Signal()

    async def bench(ctx) -> None:
        for text, d in ((SPARSE, "f32"), (SPARSE, "f16"), (DENSE, "f32")):
            for n in (8, 16, 32):
                for a_from in ("registers", "shared"):
                    instruction = parse(text.format(n, d))
                    ctx.set(reset, 1)
                    await ctx.tick()
                    ctx.set(reset, 0)
                    panels = (await panels_handed_on(ctx, dut, instruction, a_from))[:: n // 8]
                    law = timing(instruction, "sm_90", a_from)
                    assert law is not None
                    interval = (panels[FIRST + TIMED - 1] - panels[FIRST - 1]) / TIMED
                    assert interval == law.interval, f"{instruction}, A from {a_from}"

    simulate_clocked(dut, bench, reset=reset)


class Groups:
    """Committed groups that are pending, by what was taken and delivered.

    A group leaves two cycles after its last result, or after its commit, and one leaves in a cycle at the most.
    """

    def __init__(self) -> None:
        self.issued = 0  # panels of instructions that were taken
        self.delivered: list[int] = []  # cycle of each result
        self._needs: deque[tuple[int, int]] = deque()  # of each group: results before its end, cycle of its commit
        self._left = 0  # when the one before left

    def commit(self, cycle: int) -> None:
        self._needs.append((self.issued, cycle))

    def pending(self, cycle: int) -> int:
        """Return how many are pending in a cycle, of which nothing has been noted yet."""
        while self._needs:
            results, committed = self._needs[0]
            if results > len(self.delivered):
                break
            leaves = max(self._left + 1, 2 + max([committed, *self.delivered[:results][-1:]]))
            if leaves > cycle:
                break
            self._left = leaves
            self._needs.popleft()
        return len(self._needs)


def test_commands(rng: np.random.Generator) -> None:
    dut, reset = Warpgroup(TENSOR_CORE, warp_class=Answering), Signal()

    async def bench(ctx) -> None:
        await check_waits_and_commits(ctx, dut, rng)
        ctx.set(reset, 1)
        await ctx.tick()
        ctx.set(reset, 0)
        await check_flags(ctx, dut)

    simulate_clocked(dut, bench, reset=reset)


async def check_waits_and_commits(ctx, dut: Warpgroup, rng: np.random.Generator) -> None:
    """Random commands: a wait is taken once no more groups are pending than it says, a commit where there is room."""
    kinds = rng.choice(
        [Operation.MULTIPLY, Operation.COMMIT, Operation.WAIT, Operation.FENCE], 300, p=[0.3, 0.5, 0.15, 0.05]
    )
    commands = deque((kind, int(rng.integers(3)), int(rng.integers(8))) for kind in kinds)
    groups = Groups()
    waited: set[int] = set()

    cycle, offered = 0, False
    while commands:
        assert cycle < 40 * len(kinds), "nothing is taken any more"
        operation, last_panel, pending = commands[0]
        offered = offered or bool(rng.random() < 0.8)
        ctx.set(dut.i.valid, offered)
        ctx.set(dut.i.payload.operation, operation)
        ctx.set(dut.i.payload.last_panel, last_panel)
        ctx.set(dut.i.payload.pending, pending)
        ctx.set(dut.c.valid, bool(rng.random() < 0.7))
        ctx.set(dut.o.ready, 1)
        there = groups.pending(cycle)
        ready = ctx.get(dut.i.ready)
        assert ctx.get(dut.pending) == there, f"cycle {cycle}"
        if operation == Operation.WAIT:
            assert ready == (there <= pending), f"cycle {cycle}: wait for all but {pending} of {there} groups"
        elif operation == Operation.COMMIT:
            assert ready == (there < GROUPS), f"cycle {cycle}: commit behind {there} groups"
        elif operation == Operation.FENCE:
            assert ready, f"cycle {cycle}: a fence waits"
        if ctx.get(dut.o.valid):
            groups.delivered.append(cycle)
        if offered and ready:
            if operation == Operation.MULTIPLY:
                groups.issued += last_panel + 1
            elif operation == Operation.COMMIT:
                groups.commit(cycle)
            elif operation == Operation.WAIT:
                waited.add(there)
            commands.popleft()
            offered = False
        await ctx.tick()
        cycle += 1

    assert len(waited) > 3, "hardly any wait was taken with groups pending"


async def check_flags(ctx, dut: Warpgroup) -> None:
    """Fences, accesses before a commit and around waits that leave groups, and reserved bits of either descriptor."""
    multiply, commit, fence, wait = Operation.MULTIPLY, Operation.COMMIT, Operation.FENCE, Operation.WAIT
    # What is told, with the groups that a wait leaves or the descriptor that has a reserved bit; and what is flagged.
    steps: list[tuple[object, object, set[str]]] = [
        (multiply, None, {"unfenced"}),
        (fence, None, set()),
        (multiply, None, set()),
        ("access", None, {"uncommitted"}),
        (commit, None, set()),
        ("access", None, {"unwaited"}),
        (fence, None, set()),
        (multiply, "b_descriptor", {"reserved"}),
        (multiply, "a_descriptor", set()),  # of an A in registers
        (multiply, "a_descriptor of A in shared memory", {"reserved"}),
        (commit, None, set()),
        (wait, 1, set()),
        ("access", None, {"unwaited"}),
        (wait, 0, set()),
        ("access", None, set()),
        *((step, None, set()) for _ in range(3) for step in (fence, multiply, commit)),
        (wait, 2, set()),
        ("access", None, {"unwaited"}),
        (wait, 5, set()),
        ("access", None, {"unwaited"}),
        (wait, 1, set()),
        ("access", None, {"unwaited"}),
        (wait, 0, set()),
        ("access", None, set()),
    ]
    found: list[set[str]] = []

    payload = dut.i.payload
    ctx.set(dut.c.valid, 1)
    ctx.set(dut.o.ready, 1)
    for word, detail, _ in steps:
        ctx.set(dut.accessed, word == "access")
        ctx.set(dut.i.valid, word != "access")
        ctx.set(payload.b_descriptor.reserved1, detail == "b_descriptor")
        ctx.set(payload.a_descriptor.reserved1, str(detail).startswith("a_descriptor"))
        ctx.set(payload.a_shared, str(detail).endswith("shared memory"))
        ctx.set(payload.operation, word if isinstance(word, Operation) else multiply)
        ctx.set(payload.pending, detail if word is wait else 0)
        while word != "access" and not ctx.get(dut.i.ready):
            await ctx.tick()
        found.append({name for name, _ in dut.undefined.shape() if ctx.get(dut.undefined[name])})
        await ctx.tick()

    for number, ((*step, flags), flagged) in enumerate(zip(steps, found, strict=True)):
        assert flagged == flags, f"step {number}: {step}"
