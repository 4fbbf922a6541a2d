"""What a warpgroup takes and flags of commands; when, and with which operands, is for the compiled warpgroup."""

from sptc.rtl.commits import GROUPS
from sptc.rtl.life_cycle import Operation
from sptc.rtl.tensor_core import TENSOR_CORE
from sptc.rtl.warpgroup import Warpgroup
from sptc.tests.rtl.busy_warp import AnsweringWarp
from sptc.tests.rtl.simulation import simulate_clocked


def test_commands() -> None:
    dut = Warpgroup(TENSOR_CORE, warp_class=AnsweringWarp)

    async def bench(ctx) -> None:
        await check_flags(ctx, dut)
        await check_room(ctx, dut)

    simulate_clocked(dut, bench)


async def check_room(ctx, dut: Warpgroup) -> None:
    """Behind a multiplication that gets no accumulators a commit is taken until there are as many as can be counted."""
    ctx.set(dut.c.valid, 0)
    ctx.set(dut.accessed, 0)
    for operation, count in ((Operation.MULTIPLY, 1), (Operation.COMMIT, GROUPS)):
        ctx.set(dut.i.payload.operation, operation)
        ctx.set(dut.i.valid, 1)
        for _ in range(count):
            assert ctx.get(dut.i.ready)
            await ctx.tick()
    assert (ctx.get(dut.pending), ctx.get(dut.i.ready)) == (GROUPS, 0)
    for pending in range(GROUPS):
        ctx.set(dut.i.payload.operation, Operation.WAIT)
        ctx.set(dut.i.payload.pending, pending)
        assert not ctx.get(dut.i.ready)
    ctx.set(dut.i.payload.operation, Operation.FENCE)
    assert ctx.get(dut.i.ready)


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
