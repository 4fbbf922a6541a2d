"""Progress of a warpgroup: whatever is asked of it, it does something until all is done.

Arrays are cut away, since they are proved by themselves, and the register file is one of few cycles.
"""

from collections.abc import Iterator
from dataclasses import replace

from amaranth.hdl import Cat, Mux, Signal, Value
from amaranth.lib import data

from ..isa.timing import RegisterCycles
from ..rtl.config import PRESETS, CoreConfig
from ..rtl.life_cycle import Operation
from ..rtl.operand_slots import SLOTS
from ..rtl.round import ResultCode
from ..rtl.warpgroup import Warpgroup
from .fetch import Names
from .harness import Harness
from .properties import Parameters
from .streams import bare
from .tensor_core import DEPTH, Echo
from .wgmma import WGMMA

__all__ = ["WGMMA"]

#: What surrounds the arrays is the same for every configuration.
_ARRAY = replace(bare(PRESETS["tiny"]), rows=4, columns=4)
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


@WGMMA.property("progress", _lengths, cycles=_cycles)
def _progress(h: Harness, panels: int) -> None:
    """While a multiplication is held or offered, something is read, multiplied, delivered or taken.

    That is in less than so many cycles in which accumulators are there and results are taken, whatever lies between,
    and whatever one of the arrays multiplies for other warps. Nothing comes out that was not asked for. A commit or a
    wait that is offered instead holds nothing up, and `commits.order` says that it is taken.
    """
    reset = h.clocked()
    group = h.add("group", Warpgroup(_ARRAY, _REGISTERS, warp_class=Echo, address_class=Names))
    told, asked = group.i.payload, h.free("told", _decides())
    fair = h.named("fair", h.free("environment") & ~reset)
    waits, before = Signal(name="told_waits"), Signal(_decides(), name="told_before", reset_less=True)
    c_waits = Signal(name="c_waits")
    h.m.d.sync += [
        waits.eq(group.i.valid & ~group.i.ready),
        before.eq(asked),
        c_waits.eq(group.c.valid & ~group.c.ready),
    ]
    h.assume(~waits | reset | (group.i.valid & (asked == before)))
    h.m.d.comb += [
        told.operation.eq(Operation.MULTIPLY),
        told.last_panel.eq(panels - 1),
        told.a_shared.eq(asked.a_shared),
        told.control.sparse.eq(asked.sparse),
        told.control.result.eq(Mux(asked.half, ResultCode.F16, ResultCode.F32)),
        group.i.valid.eq(h.free("i_valid") & ~reset),
        group.c.valid.eq((fair | c_waits) & ~reset),
        group.o.ready.eq(fair),
        *(result.ready.eq(fair) for result in group.mma_result),
        group.mma.valid.eq(h.free("mma_valid") & ~reset),
    ]
    taken = h.named("taken", group.i.valid & group.i.ready)
    multiplied = h.named("multiplied", group.c.valid & group.c.ready)
    delivered = h.named("delivered", group.o.valid & group.o.ready)
    owed = _follow(h, taken, multiplied, delivered, panels)
    moves = Cat(taken, multiplied, delivered, group.memory.read).any()
    quiet = Signal(range(_QUIET + 1), name="quiet")
    with h.m.If(moves | reset | ~(group.i.valid | owed)):
        h.m.d.sync += quiet.eq(0)
    with h.m.Elif(fair):
        h.m.d.sync += quiet.eq(quiet + 1)
    h.claim("moves", quiet < _QUIET)
    h.claim("nothing_from_nothing", ~group.o.valid | owed)
    passed = Signal(name="passed")
    h.m.d.sync += passed.eq(passed | delivered)
    h.cover("beside", passed & ~owed & Cat(result.valid for result in group.mma_result).any())
    h.cover("is_quiet", quiet != 0)


def _follow(h: Harness, taken: Value, multiplied: Value, delivered: Value, panels: int) -> Value:
    """Return whether any panel is still to be delivered.

    The slots are followed as the hardware does: a count of all panels would be beyond the engine.
    """
    following, now, place = (Signal(name=name) for name in ("following", "now", "place"))
    held = [Signal(name=f"held_{slot}") for slot in range(SLOTS)]
    inside = Signal(range(DEPTH + 1), name="inside")
    last = h.named("last", multiplied & (place == panels - 1))
    h.m.d.sync += [following.eq(following ^ taken), now.eq(now ^ last), inside.eq(inside + multiplied - delivered)]
    with h.m.If(multiplied):
        h.m.d.sync += place.eq(~last)
    for slot in range(SLOTS):
        with h.m.If(last & (now == slot)):
            h.m.d.sync += held[slot].eq(0)
        with h.m.If(taken & (following == slot)):
            h.m.d.sync += held[slot].eq(1)
    return h.named("owed", Cat(held).any() | (inside != 0))
