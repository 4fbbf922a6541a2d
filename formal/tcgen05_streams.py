"""Proofs about the tensor cores of a CTA: they make progress until all results are written, and results are in order.

Arrays are replaced by stand-ins, since they are proved separately.
"""

from itertools import product

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream

from ..rtl.accumulators import Accumulators
from ..rtl.round import ResultCode
from ..rtl.tcgen05 import CtaOperation, Tcgen05
from .fetch import with_names
from .harness import Harness, opened, replace_logic
from .progress import PendingPanels, claim_progress, decided
from .properties import once
from .ring import claim_ring
from .sizes import LANES, REGISTERS, ROWS
from .slot_states import claim_fetch_of_a, claim_fetch_of_b, claim_turns
from .stand_ins import ARRAYS, DEPTH
from .streams import SMALL_ARRAY, Flow
from .tcgen05 import TCGEN05
from .tensor_core import Echo, EchoEverywhere

__all__ = ["TCGEN05"]


#: Upper bound on the cycles needed to reach every cover condition: the time in which an instruction with A in shared
#: memory is multiplied, and the results of the instruction are written.
_CYCLES = 40
#: Instruction fields that affect the timing, in addition to the number of panels (eight columns of D each).
_FIELDS = data.StructLayout(dict.fromkeys(("a_shared", "sparse", "half", "add", "odd", "elsewhere"), 1))


# Parameter sets: instructions with one panel (eight columns of D) or two panels, executed by one CTA or by a CTA pair.
@TCGEN05.property("progress", lambda _: [(1, False), (2, False), (2, True)], cycles=_CYCLES)
def _progress(h: Harness, panels: int, pair: bool) -> None:
    """An offered or unfinished ``tcgen05.mma`` progresses: a request, read, multiplication, write or transfer happens.

    Of two cycles in which the other CTA of a pair waits for this CTA, at least one has such an event, whatever happens
    in the cycles between them. An instruction may use the accumulators of the previous instruction. No result is
    written that was not requested.
    """
    reset = h.clocked()
    cta = h.add("cta", opened(Tcgen05(SMALL_ARRAY, warp_class=Echo)))
    fetch = with_names(cta.parts.fetch)
    payload, fields = cta.i.payload, decided(h, "command", cta.i, _FIELDS, reset)
    fair = h.named("fair", h.free("other_waits") & ~reset)
    multiplied = h.named("multiplied", cta.parts.array_0.i.valid)
    other = Signal(name="other_still_waits")
    h.m.d.sync += other.eq(cta.other_waits & ~multiplied)
    h.m.d.comb += [
        payload.operation.eq(CtaOperation.MULTIPLY),
        payload.last_panel.eq(panels - 1),
        *(payload[name].eq(fields[name]) for name in ("a_shared", "add", "odd")),
        payload.pair.eq(pair),
        payload.d_column.eq(fields.elsewhere << 6),
        payload.control.sparse.eq(fields.sparse),
        payload.control.result.eq(Mux(fields.half, ResultCode.F16, ResultCode.F32)),
        cta.other_waits.eq((fair | other) & ~reset),
    ]
    taken = h.named("taken", cta.i.valid & cta.i.ready)
    written = h.named("written", cta.accumulators.write)
    slots = PendingPanels(h, taken, multiplied, panels)
    inside, kept, due = (Signal(range(11), name=name) for name in ("inside", "kept", "due"))
    requests = cta.parts.accumulators.i
    requested = h.named("requested", requests.valid & requests.ready)
    h.m.d.sync += [
        inside.eq(inside + multiplied - written),
        kept.eq(kept + requested - multiplied),
        due.eq(due + requested - written),
    ]
    owed = h.named("owed", (slots.left != 0) | (inside != 0))
    moves = Cat(taken, multiplied, written, cta.memory.read, cta.tensor.read, requested).any()
    h.cover("is_quiet", claim_progress(h, "moves", moves | reset | ~(cta.i.valid | owed), fair, 2) != 0)
    h.claim("nothing_from_nothing", ~written | owed)
    # Invariants that the proof engine needs: the design requested all operands that it has read but not used yet.
    h.claim("due", due == kept + inside)
    h.claim("read_ahead", slots.left == kept + slots.count("accumulators", requested))
    own, b = panels // 2 if pair else panels, Signal(range(3), name="panels_of_b")
    fetched = h.named("fetched", fetch.b.valid & fetch.b.ready)
    used = h.named("used", fetch.panels.valid & fetch.panels.ready)
    h.m.d.sync += b.eq(b + fetched - used)
    h.claim("fetched", slots.count("b_to_use", used, own) == b + slots.count("b_to_fetch", fetched, own))
    claim_ring(h, "due", opened(cta.parts.accumulators).parts.due, due)
    claim_turns(h, cta.parts.slots, "a", "b", "words", "d")
    claim_fetch_of_a(h, cta.parts, cta.arrays)
    claim_fetch_of_b(h, fetch, b)
    h.cover("written", written & ~cta.i.valid)


class _Shown(EchoEverywhere):
    """Stand-in for an array of dot-product units. It copies the lowest bit of C and the array number to its results."""

    def shown(self) -> Value:
        """Return the operand bits that this stand-in for an array of dot-product units copies to its results."""
        return Cat(self.i.payload.c[0][0][0], self.i.payload.c[0][1][:3])


@TCGEN05.property("results", once, cycles=_CYCLES)
def _results(h: Harness) -> None:
    """The tensor cores' results for a panel (eight columns of D) are written once, in order, each word at its position.

    The metadata flags of the panel are output in the same cycle, each at the position of its row. Memories may accept
    at any time.
    """
    reset = h.clocked()
    source, sink = (stream.Signature(1).create(path=(name,)) for name in ("source", "sink"))
    flow = Flow(h, reset, source, sink, DEPTH)

    def accumulators(store: Accumulators) -> Module:
        """Build a stand-in for the accumulators. Each word has the array number; one bit marks one transfer."""
        m = Module()
        m.d.comb += [
            store.i.ready.eq(1),
            store.c.valid.eq(source.valid),
            source.ready.eq(store.c.ready),
            sink.valid.eq(store.o.valid),
            store.o.ready.eq(sink.ready),
        ]
        for array, of_array in enumerate(store.c.payload):
            m.d.comb += [of_array[0][0].eq(flow.marks), of_array[0][1].eq(array)]
        return m

    cta = h.add("cta", opened(Tcgen05(SMALL_ARRAY, ARRAYS, warp_class=_Shown)))
    with_names(cta.parts.fetch)
    replace_logic(cta.parts.accumulators, accumulators)
    payload, fields = cta.i.payload, decided(h, "command", cta.i, _FIELDS, reset)
    h.m.d.comb += [
        payload.operation.eq(CtaOperation.MULTIPLY),
        payload.add.eq(1),
        *(payload[name].eq(fields[name]) for name in ("a_shared", "odd")),
        payload.pair.eq(fields.elsewhere),
        payload.last_panel.eq(1),
        payload.control.sparse.eq(fields.sparse),
        cta.other_waits.eq(h.free("other_waits")),
    ]
    result = cta.parts.accumulators.o.payload
    shown = result[0][0][0]
    flow.claim(h, shown[0], shown[:1], reset)
    for array in range(ARRAYS):
        right = []
        for place, (lane, register) in enumerate(product(range(LANES), range(REGISTERS))):
            right.append(result[array][lane][register] == Cat(shown[0], Const(array, 3), Const(place, 8)))
        for row in range(ROWS):
            flags = Cat(shown[0], Const(array, 3), Const(LANES * REGISTERS + row, 8))
            right.append(cta.illegal[ROWS * array + row] == flags)
        h.claim(f"own_{array}", ~flow.o_valid | Cat(right).all())
