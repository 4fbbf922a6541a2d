"""Proofs about the two streams of a tensor core, ``wgmma`` and ``mma``: when an ``mma`` starts, and where results go.

The array is replaced by a stand-in that holds two items, since a warp is proved separately.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from amaranth.hdl import Cat, Const, Module, Signal, Value
from amaranth.lib import data

from ..rtl.config import CoreConfig
from ..rtl.tensor_core import TensorCore
from ..rtl.warp import Warp
from .harness import Harness, opened
from .properties import Parameters, Topic
from .sizes import LANES, REGISTERS, ROWS
from .stand_ins import DEPTH, Queue
from .streams import Flow, bare

__all__ = ["TENSOR_CORE", "Echo", "EchoEverywhere", "words_of_result"]

TENSOR_CORE = Topic("tensor_core")
#: Minimum number of cycles between the starts of two ``mma``. Keys: whether the ``mma`` is sparse (1 or 0), and whether
#: its A takes four registers (1 or 0). The numbers of cycles are measured on an H200, and not read from the design.
_PACES = {(0, 0): 4, (0, 1): 6, (1, 0): 6, (1, 1): 8}


class Echo(Warp):
    """Stand-in for an array of dot-product units: a queue of two results, each with the lowest bits of A and of B."""

    #: Number of operand bits that this stand-in for an array of dot-product units copies to its results.
    bits = 2

    def elaborate(self, platform: object) -> Module:
        """Build a queue of results, which stands in for the dot-product units of the array."""
        m, queue = Module(), Queue("items", self.bits, reset_less=False)
        m.d.comb += [self.i.ready.eq(queue.count != DEPTH), self.o.valid.eq(queue.count != 0)]
        self.show(m, queue.entries[0])
        queue.build(m, self.i.valid & self.i.ready, self.o.valid & self.o.ready, self.shown())
        return m

    def shown(self) -> Value:
        """Return the two operand bits that this stand-in for an array of dot-product units copies to its results."""
        return Cat(self.i.payload.a[0][0][0], self.i.payload.b[0][0][0])

    def show(self, m: Module, first: Value) -> None:
        """Drive the first word of a result with the operand bits in the oldest entry of the queue of results."""
        m.d.comb += self.o.payload.d[0][0].eq(first)


class EchoEverywhere(Echo):
    """Stand-in for an array of dot-product units. It computes nothing, and copies operand bits to every result word.

    Every word of a result has four bits of the input and the number of the word.
    """

    bits = 4

    def show(self, m: Module, first: Value) -> None:
        """Set each word of a result to `first`, the oldest queue entry, in the low bits, and the word number above."""
        for place, word in words_of_result(self.o.payload):
            m.d.comb += word.eq(Cat(first, Const(place, 8)))


def words_of_result(result: data.View) -> Iterator[tuple[int, Value]]:
    """Yield (number, word) for each word of a result: D registers of all lanes, then metadata flags of all rows."""
    for lane, register in product(range(LANES), range(REGISTERS)):
        yield lane * REGISTERS + register, result.d[lane][register]
    for row in range(ROWS):
        yield LANES * REGISTERS + row, result.illegal[row]


def _streams(config: CoreConfig) -> Iterator[Parameters]:
    """Yield a 4 x 4 array of dot-product units for ``mma`` and for ``wgmma``. All array sizes have the same control."""
    array = replace(bare(config), rows=4, columns=4)
    if array.serves_warp:
        yield from ((array, of_panels) for of_panels in (False, True))


# Upper bound on the cycles needed to reach every cover condition: the time in which two instructions start and leave.
@TENSOR_CORE.property("order", _streams, cycles=16)
def _order(h: Harness, config: CoreConfig, of_panels: bool) -> None:
    """Every result returns to its own stream (``wgmma`` or ``mma``), in order, whatever happens in the other stream.

    No ``mma`` begins while a panel of ``wgmma`` (eight columns of D) waits to be multiplied, or before the register
    file has delivered the operands of the ``mma``. An offered ``mma`` begins as soon as no panel waits, its operands
    are delivered and the array accepts it.
    """
    reset = h.clocked()
    core = h.add("core", opened(TensorCore(config, warp_class=Echo)))
    own, other = (core.panel, core.i) if of_panels else (core.i, core.panel)
    own_result, other_result = (core.panel_result, core.o) if of_panels else (core.o, core.panel_result)
    flow = Flow(h, reset, own, own_result, DEPTH)
    waits = h.free("panel_waits")
    h.m.d.comb += [
        other.valid.eq(h.free("other_valid") & ~reset),
        other_result.ready.eq(h.free("other_ready") & ~reset),
        core.panel_waits.eq(waits),
        own.payload.a[0][0].eq(flow.marks),
        own.payload.b[0][0].eq(of_panels),
        other.payload.a[0][0].eq(h.free("noise")),
        other.payload.b[0][0].eq(not of_panels),
        core.i.payload.long.eq(h.free("long")),
        core.i.payload.control.sparse.eq(h.free("sparse")),
    ]
    h.assume(~core.panel.valid | waits)
    shown = own_result.payload.d[0][0]
    flow.claim(h, shown[0], shown[:2], reset)
    h.claim("own", ~own_result.valid | (shown[1] == of_panels))
    h.claim("not_the_others", ~other_result.valid | (other_result.payload.d[0][0][1] != of_panels))

    warp = core.parts.warp
    whole = Value.cast(warp.i.payload) == Value.cast(own.payload)
    h.claim("whole", ~(own.valid & own.ready) | (warp.i.valid & whole))
    begins = h.named("begins", core.i.valid & core.i.ready)
    h.claim("panels_first", ~(begins & waits))
    left = Signal(range(max(_PACES.values())), name="left")
    with h.m.If(begins):
        for (sparse, long), pace in _PACES.items():
            with h.m.If((core.i.payload.control.sparse == sparse) & (core.i.payload.long == long)):
                h.m.d.sync += left.eq(pace - 1)
    with h.m.Elif(left != 0):
        h.m.d.sync += left.eq(left - 1)
    h.claim("pace", ~begins | (left == 0))
    # Number of instructions of both input streams that are in the tensor core; the modelled tensor core has a limit.
    count = Signal(range(DEPTH + 1), name="count")
    taken = Cat(stream.valid & stream.ready for stream in (core.i, core.panel)).any()
    delivered = Cat(stream.valid & stream.ready for stream in (core.o, core.panel_result)).any()
    h.m.d.sync += count.eq(count + taken - delivered)
    h.claim("begins_at_once", ~(core.i.valid & ~waits & (left == 0) & (count != DEPTH)) | begins)
    h.claim("takes_panels", ~(core.panel.valid & (count != DEPTH)) | core.panel.ready)
    h.claim("offers", (count == 0) | core.o.valid | core.panel_result.valid)
    h.cover("beside", own_result.valid & (count == DEPTH) & (flow.inside == 1))
