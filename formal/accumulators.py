"""Proofs about accumulators in tensor memory: the order of reads, and the columns to which results are written.

The harness marks any one request and any one column. Arithmetic and the contents of the memory are abstracted.
"""

from typing import Any

from amaranth.hdl import Cat, Mux, Signal, Value
from amaranth.lib import data

from ..rtl.accumulators import Accumulators
from .harness import Harness, opened
from .properties import Topic, once
from .ring import claim_ring
from .sizes import COLUMN_BITS, COLUMNS
from .streams import Flow, constant, offered

__all__ = ["ACCUMULATORS"]

ACCUMULATORS = Topic("accumulators")
#: Limits of the model. `_KEPT`: panels (eight columns of D) whose accumulators were read and wait for multiplication,
#: as in the hardware. `_INSIDE`: panels in the arrays of dot-product units, fewer than in the hardware.
_KEPT, _INSIDE = 2, 1
#: Maximum number of panels (eight columns of D) whose results are outstanding.
_DUE = _KEPT + _INSIDE


#: Upper bound on the cycles needed to reach every cover condition: the time in which the accumulators of two panels
#: (eight columns each) of D are read, and the results of these panels are written.
_CYCLES = 12


@ACCUMULATORS.property("contents", once, cycles=_CYCLES)
def _contents(h: Harness) -> None:
    """Accumulators are delivered in request order, without loss or repetition, with the data read for each request.

    The proof does not cover requests that read no accumulators.
    """
    reset = h.clocked()
    # The proof needs only one dot-product array, with 16 tensor-memory lanes, because all lanes have the same wiring.
    store = h.add("store", Accumulators(1, _INSIDE))
    memory = store.memory
    flow = Flow(h, reset, store.i, store.c, _KEPT)
    request, _, _ = offered(h, "request", store.i, reset)
    h.m.d.comb += store.o.valid.eq(h.free("o_valid"))
    # Only the upper half of the columns of tensor memory contains ones. The request that the proof follows reads from
    # the upper half, and all other requests read from the lower half. Ones in delivered data thus identify the request.
    hit = Signal(reset_less=True, name="hit")
    h.assume(~flow.accepts | (request.add & (request.column[-1] == flow.marks)))
    h.m.d.sync += hit.eq(Mux(memory.read, memory.read_column[-1], h.free("noise")))
    h.m.d.comb += memory.read_data[0][0].eq(hit)
    token = h.named("token", store.c.payload[0][0][0][0])
    flow.claim(h, token, token, reset)
    flow.drains(h, 2, store.i.valid, store.c.ready)


@ACCUMULATORS.property("order", once, cycles=_CYCLES)
def _order(h: Harness) -> None:
    """Every result is written to the columns of its request. No column is read while its result is still to be written.

    Results are accepted in every cycle, and every read has the column number of its request. The proof assumes
    properties of an array that ``warp.order`` proves: the array returns no result without a panel, and accepts no panel
    while it is full, except in the cycle in which another panel leaves.
    """
    reset = h.clocked()
    store = h.add("store", opened(Accumulators(1, _INSIDE)))
    memory = store.memory
    request, _, _ = offered(h, "request", store.i, reset)
    h.m.d.comb += store.i.valid.eq(h.free("i_valid") & ~reset)
    accepts = h.named("accepts", store.i.valid & store.i.ready)
    marked = Signal(name="marked")
    marks = h.named("marks", h.free("mark") & accepts & ~marked)
    column = constant(h, "marked_column", COLUMN_BITS)
    h.assume(~marks | (request.column == column))
    # Model the arrays of dot-product units: a result may arrive in any cycle in which the arrays hold operands.
    due, inside = Signal(range(_DUE + 2), name="due"), Signal(range(_INSIDE + 1), name="inside")
    writes = h.named("writes", h.free("result") & (inside != 0) & ~reset)
    room = (inside != _INSIDE) | writes
    takes = h.named("takes", store.c.valid & store.c.ready)
    h.m.d.comb += [store.o.valid.eq(writes), store.c.ready.eq(h.free("c_ready") & room & ~reset)]
    h.m.d.sync += [
        due.eq(due + accepts - writes),
        inside.eq(inside + takes - writes),
        marked.eq(marked | marks),
    ]
    ahead, is_due, half = Signal(range(_DUE + 1), name="ahead"), Signal(name="is_due"), Signal(name="half")
    with h.m.If(marks):
        h.m.d.sync += [is_due.eq(1), ahead.eq(due - writes), half.eq(request.half)]
    with h.m.Elif(is_due & writes):
        h.m.d.sync += [is_due.eq(ahead != 0), ahead.eq(ahead - (ahead != 0))]
    listed: Any = data.View(store.parts.due.entry.shape(), claim_ring(h, "due", store.parts.due, due)(ahead))
    h.claim("marked", ~is_due | ((listed.column == column) & (listed.half == half)))
    h.claim("among_them", ~is_due | (ahead < due))
    h.claim("takes_results", store.o.ready)
    h.claim("written", memory.write == writes)
    marked_write = is_due & writes & (ahead == 0)
    h.claim("place", ~marked_write | ((memory.write_column == column) & (memory.write_half == half)))
    h.claim("read_column", ~memory.read | (accepts & request.add & (memory.read_column == request.column)))
    h.claim("not_while_due", ~(memory.read & is_due & _overlap(memory.read_column, column)))
    h.cover("reads_again", memory.read & marked & ~is_due & (request.column == column))
    h.cover("waits_for_its_own", store.i.valid & ~store.i.ready & is_due & (request.column == column) & request.add)
    h.cover("reads_beside", memory.read & is_due)
    h.cover("waits_for_a_write", store.i.valid & ~store.i.ready & (due == 1) & request.add)
    h.cover("written", marked_write)


def _overlap(a: Value, b: Value) -> Value:
    """Return whether columns `a` to `a` + 7 overlap columns `b` to `b` + 7, that is, include `b` or `b` + 7."""
    return Cat((a + i)[:COLUMN_BITS] == (b + j)[:COLUMN_BITS] for i in range(COLUMNS) for j in (0, COLUMNS - 1)).any()
