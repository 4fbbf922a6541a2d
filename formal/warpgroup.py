"""Progress of a warpgroup: whatever is asked of it, it does something until all is done.

Arrays are cut away, since they are proved by themselves, and the register file is one of few cycles.
"""

from collections.abc import Iterator

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data

from ..isa.timing import RegisterCycles
from ..rtl.config import CoreConfig
from ..rtl.life_cycle import Operation
from ..rtl.round import ResultCode
from ..rtl.warpgroup import Warpgroup
from .fetch import NAMED_FETCH
from .harness import Harness
from .progress import Held, claim_progress, decided
from .properties import Parameters
from .sizes import WARPS
from .streams import SMALL_ARRAY, Flow
from .tensor_core import DEPTH, Echo, words_of_result
from .wgmma import WGMMA

__all__ = ["WGMMA"]

_REGISTERS = RegisterCycles(1, 2, 2, {(False, False): 1, (False, True): 2, (True, False): 2, (True, True): 2})
#: Cycles in which nothing is seen to move: the register file's, and those of the fetch and of the arrays behind it.
_QUIET = 9


def _lengths(config: CoreConfig) -> Iterator[Parameters]:
    """Instructions of one panel, and of two."""
    yield from ((panels,) for panels in (1, 2))


def _cycles(*_: object) -> int:
    """Cycles in which an instruction with A in shared memory is multiplied."""
    return 40


def _decides() -> data.StructLayout:
    """Return the layout of what decides when something happens, beside the number of panels."""
    return data.StructLayout(dict.fromkeys(("a_shared", "sparse", "half"), 1))


class _Shown(Echo):
    """Shows of each item the lowest bit of C, that of the metadata, and the warp that it says it is of."""

    bits = 4

    def shown(self) -> Value:
        """Return what is shown."""
        return Cat(self.i.payload.c[0][0][0], self.i.payload.e[0][0], self.i.payload.c[0][1][:2])

    def show(self, m: Module, first: Value) -> None:
        """Let every word of the result show it, and its own place."""
        for place, word in words_of_result(self.o.payload):
            m.d.comb += word.eq(Cat(first, Const(place, 8)))


@WGMMA.property("progress", _lengths, cycles=_cycles)
def _progress(h: Harness, panels: int) -> None:
    """While a multiplication is held or offered, something is read, multiplied, delivered or taken.

    That is in less than so many cycles in which accumulators are there and results are taken, whatever lies between,
    and whatever one of the arrays multiplies for other warps. Nothing comes out that was not asked for. A commit or a
    wait that is offered instead holds nothing up, and `commits.order` says that it is taken.
    """
    reset = h.clocked()
    group = h.add("group", Warpgroup(SMALL_ARRAY, _REGISTERS, warp_class=Echo, fetch_class=NAMED_FETCH))
    told, asked = group.i.payload, decided(h, "told", group.i, _decides(), reset)
    fair = h.named("fair", h.free("environment") & ~reset)
    c_waits = Signal(name="c_waits")
    h.m.d.sync += c_waits.eq(group.c.valid & ~group.c.ready)
    h.m.d.comb += [
        told.operation.eq(Operation.MULTIPLY),
        told.last_panel.eq(panels - 1),
        told.a_shared.eq(asked.a_shared),
        told.control.sparse.eq(asked.sparse),
        told.control.result.eq(Mux(asked.half, ResultCode.F16, ResultCode.F32)),
        group.c.valid.eq((fair | c_waits) & ~reset),
        group.o.ready.eq(fair),
        *(result.ready.eq(fair) for result in group.mma_result),
        group.mma.valid.eq(h.free("mma_valid") & ~reset),
    ]
    taken = h.named("taken", group.i.valid & group.i.ready)
    multiplied = h.named("multiplied", group.c.valid & group.c.ready)
    delivered = h.named("delivered", group.o.valid & group.o.ready)
    inside = Signal(range(DEPTH + 1), name="inside")
    h.m.d.sync += inside.eq(inside + multiplied - delivered)
    owed = h.named("owed", (Held(h, taken, multiplied, panels).left != 0) | (inside != 0))
    moves = Cat(taken, multiplied, delivered, group.memory.read).any()
    claim_progress(h, moves, fair, group.i.valid | owed, reset, _QUIET)
    h.claim("nothing_from_nothing", ~group.o.valid | owed)
    passed = Signal(name="passed")
    h.m.d.sync += passed.eq(passed | delivered)
    h.cover("beside", passed & ~owed & Cat(result.valid for result in group.mma_result).any())


@WGMMA.property("shared", _lengths, cycles=_cycles)
def _shared(h: Harness, panels: int) -> None:
    """Of two warpgroups that share the tensor cores each gets its own results, once and in order, and its turn.

    A result is of the accumulators that its warpgroup gave and of its own instruction, every word of it, flags too, of
    its own warp and at its place; while a multiplication of one is offered, at most one of the other is taken. Either
    has gaps, stalls and results that wait. Both are alike, so that results of the first speak of both.
    """
    reset = h.clocked()
    shared = h.add("shared", Warpgroup(SMALL_ARRAY, _REGISTERS, 2, warp_class=_Shown, fetch_class=NAMED_FETCH))
    flow = Flow(h, reset, shared.c[0], shared.o[0], DEPTH)
    for number, i in enumerate(shared.i):
        told, asked = i.payload, decided(h, f"told_{number}", i, _decides(), reset)
        h.m.d.comb += [
            told.operation.eq(Operation.MULTIPLY),
            told.last_panel.eq(panels - 1),
            told.a_shared.eq(asked.a_shared),
            *(told.e[warp][0][0].eq(number) for warp in range(WARPS)),
            told.add.eq(1),
            told.control.sparse.eq(asked.sparse),
            told.control.result.eq(Mux(asked.half, ResultCode.F16, ResultCode.F32)),
        ]
    for warp in range(WARPS):
        h.m.d.comb += [
            shared.c[0].payload[warp][0][0][0].eq(flow.marks),
            shared.c[1].payload[warp][0][0][0].eq(h.free(f"noise_{warp}")),
            *(c.payload[warp][0][1].eq(warp) for c in shared.c),
        ]
    h.m.d.comb += [
        shared.c[1].valid.eq(h.free("other_c_valid") & ~reset),
        shared.o[1].ready.eq(h.free("other_o_ready") & ~reset),
    ]
    shown = shared.o[0].payload[0].d[0][0]
    flow.claim(h, shown[0], shown[:1], reset)
    for warp in range(WARPS):
        right = [
            word == Cat(shown[0], Const(0, 1), Const(warp, 2), Const(place, 8))
            for place, word in words_of_result(shared.o[0].payload[warp])
        ]
        h.claim(f"own_{warp}", ~shared.o[0].valid | Cat(right).all())
    taken = [i.valid & i.ready for i in shared.i]
    for number, i in enumerate(shared.i):
        passed_by = Signal(2, name=f"passed_by_{number}")
        h.m.d.sync += passed_by.eq(Mux(reset | taken[number] | ~i.valid, 0, passed_by + taken[1 - number]))
        h.claim(f"turn_{number}", passed_by < 2)
