"""Proofs about the progress of warpgroups: multiplications are accepted and completed, and results are delivered.

Arrays are replaced by stand-ins, since they are proved separately, and the register file takes few cycles.
"""

from typing import Any

from amaranth.hdl import Cat, Const, Mux, Signal, Value
from amaranth.lib import data

from ..isa.timing import RegisterCycles
from ..rtl.life_cycle import Operation
from ..rtl.round import ResultCode
from ..rtl.warpgroup import Warpgroup
from .fetch import with_names
from .harness import Harness, opened
from .progress import PendingPanels, claim_progress, decided
from .properties import Parameters
from .sizes import WARPS
from .slot_states import claim_fetch_of_a, claim_turns
from .stand_ins import DEPTH
from .streams import SMALL_ARRAY, Flow
from .tensor_core import Echo, EchoEverywhere, words_of_result
from .wgmma import WGMMA

__all__ = ["WGMMA"]

_REGISTERS = RegisterCycles(1, 2, 2, {(False, False): 1, (False, True): 2, (True, False): 2, (True, True): 2})
#: Upper bound on the cycles from one transfer that the proof observes to the next, if the environment is always ready.
#: In the cycles between the two transfers, the register file, the operand fetch or the tensor cores are busy.
_QUIET = 9


#: Parameter sets: instructions with one panel (eight columns of D), and instructions with two panels.
_LENGTHS: list[Parameters] = [(1,), (2,)]
#: Upper bound on the cycles needed to reach every cover condition: the time in which an instruction with A in shared
#: memory is multiplied.
_CYCLES = 40
#: Instruction fields that affect the timing, in addition to the number of panels (eight columns of D each).
_FIELDS = data.StructLayout(dict.fromkeys(("a_shared", "sparse", "half"), 1))


def _add(h: Harness, name: str, count: int, array: type[Echo]) -> Warpgroup:
    """Instantiate the hardware of `count` warpgroups, with stand-ins for dot-product arrays and address generator."""
    group = h.add(name, opened(Warpgroup(SMALL_ARRAY, _REGISTERS, count, warp_class=array)))
    with_names(opened(group.parts.tensor_cores).parts.fetch)
    return group


def _multiply(h: Harness, name: str, source: Any, panels: int, reset: Value, *others: Any) -> None:
    """Offer multiplications with N = 8 * `panels` at an input, in any cycles. `others`: further signal assignments."""
    payload, fields = source.payload, decided(h, name, source, _FIELDS, reset)
    h.m.d.comb += [
        payload.operation.eq(Operation.MULTIPLY),
        payload.last_panel.eq(panels - 1),
        payload.a_shared.eq(fields.a_shared),
        *others,
        payload.control.sparse.eq(fields.sparse),
        payload.control.result.eq(Mux(fields.half, ResultCode.F16, ResultCode.F32)),
    ]


class _Shown(EchoEverywhere):
    """Stand-in for an array of dot-product units. It returns a bit of C, a bit of the metadata, and the warp number."""

    def shown(self) -> Value:
        """Return the operand bits that this stand-in for an array of dot-product units copies to its results."""
        return Cat(self.i.payload.c[0][0][0], self.i.payload.e[0][0], self.i.payload.c[0][1][:2])


@WGMMA.property("progress", lambda _: _LENGTHS, cycles=_CYCLES)
def _progress(h: Harness, panels: int) -> None:
    """An offered or unfinished ``wgmma`` progresses: a read, multiplication, result delivery or transfer happens.

    At least one of nine cycles in which accumulators are offered and results are taken has such an event, whatever
    happens in the cycles between them, and whatever an array multiplies for other warps. No result is output that was
    not requested. Commits and waits cannot block the multiplications: `commits.order` proves that they are accepted.
    """
    reset = h.clocked()
    group = _add(h, "group", 1, Echo)
    _multiply(h, "command", group.i, panels, reset)
    fair = h.named("fair", h.free("environment") & ~reset)
    c_waits = Signal(name="c_waits")
    h.m.d.sync += c_waits.eq(group.c.valid & ~group.c.ready)
    h.m.d.comb += [
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
    owed = h.named("owed", (PendingPanels(h, taken, multiplied, panels).left != 0) | (inside != 0))
    moves = Cat(taken, multiplied, delivered, group.memory.read).any()
    h.cover("is_quiet", claim_progress(h, "moves", moves | reset | ~(group.i.valid | owed), fair, _QUIET) != 0)
    h.claim("nothing_from_nothing", ~group.o.valid | owed)
    # Invariants that the proof engine needs: the two instruction slots, and the reads of A for the slots, take turns.
    cores = group.parts.tensor_cores
    claim_turns(h, cores.parts.slots, "a", "b")
    claim_fetch_of_a(h, cores.parts, WARPS)
    passed = Signal(name="passed")
    h.m.d.sync += passed.eq(passed | delivered)
    h.cover("beside", passed & ~owed & Cat(result.valid for result in group.mma_result).any())


@WGMMA.property("shared", lambda _: _LENGTHS, cycles=_CYCLES)
def _shared(h: Harness, panels: int) -> None:
    """Two warpgroups that share the tensor cores get their own results, once and in order, and both are served.

    Every word of a result, its flags included, comes from the accumulators and the instruction of its warpgroup and
    from its own warp, and is at its own position. While one warpgroup offers a multiplication, at most one
    multiplication of the other warpgroup is taken. Both warpgroups may have idle cycles, stalls and results that wait.
    The warpgroups have the same hardware, so claims about the results of the first warpgroup suffice.
    """
    reset = h.clocked()
    shared = _add(h, "shared", 2, _Shown)
    flow = Flow(h, reset, shared.c[0], shared.o[0], DEPTH)
    for number, i in enumerate(shared.i):
        marks = [i.payload.e[warp][0][0].eq(number) for warp in range(WARPS)]
        _multiply(h, f"command_{number}", i, panels, reset, *marks, i.payload.add.eq(1))
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
