"""Streams of the tensor cores of a CTA: progress until all is written, and results in order.

Arrays are replaced by stand-ins, since they are proved separately.
"""

from collections.abc import Iterator
from itertools import product

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream

from ..rtl.accumulators import Accumulators
from ..rtl.config import CoreConfig
from ..rtl.round import ResultCode
from ..rtl.tcgen05 import CtaOperation, Tcgen05
from .fetch import NAMED_FETCH
from .harness import Harness, Opened
from .progress import Held, claim_progress, decided
from .properties import Parameters
from .sizes import LANES, REGISTERS, ROWS
from .stand_ins import ARRAYS
from .streams import SMALL_ARRAY, Flow
from .tcgen05 import TCGEN05
from .tensor_core import DEPTH, Echo, words_of_result

__all__ = ["TCGEN05"]


class _Cta(Opened, Tcgen05):
    """The tensor cores of a CTA with visible inputs of the arrays."""


def _lengths(config: CoreConfig) -> Iterator[Parameters]:
    """Instructions of one panel or of two, of one CTA or of a pair."""
    yield from ((1, False), (2, False), (2, True))


def _cycles(*_: object) -> int:
    """Cycles in which an instruction with A in shared memory is multiplied and written."""
    return 40


def _decides() -> data.StructLayout:
    """Return the layout of the fields that influence the timing, beside the number of panels."""
    return data.StructLayout(dict.fromkeys(("a_shared", "sparse", "half", "add", "odd", "elsewhere"), 1))


@TCGEN05.property("progress", _lengths, cycles=_cycles)
def _progress(h: Harness, panels: int, pair: bool) -> None:
    """While a multiplication is held or offered, something is requested, read, multiplied, written or taken.

    It happens in at least one of two cycles in which the other CTA of a pair waits for this one, whatever lies between.
    An instruction uses the accumulators of the one before, or others. Nothing is written that was not requested.
    """
    reset = h.clocked()
    cta = h.add("cta", _Cta(SMALL_ARRAY, warp_class=Echo, fetch_class=NAMED_FETCH))
    told, asked = cta.i.payload, decided(h, "told", cta.i, _decides(), reset)
    fair = h.named("fair", h.free("other_waits") & ~reset)
    multiplied = h.named("multiplied", cta.parts.array_0.i.valid)
    other = Signal(name="other_still_waits")
    h.m.d.sync += other.eq(cta.other_waits & ~multiplied)
    h.m.d.comb += [
        told.operation.eq(CtaOperation.MULTIPLY),
        told.last_panel.eq(panels - 1),
        *(told[name].eq(asked[name]) for name in ("a_shared", "add", "odd")),
        told.pair.eq(pair),
        told.d_column.eq(asked.elsewhere << 6),
        told.control.sparse.eq(asked.sparse),
        told.control.result.eq(Mux(asked.half, ResultCode.F16, ResultCode.F32)),
        cta.other_waits.eq((fair | other) & ~reset),
    ]
    taken = h.named("taken", cta.i.valid & cta.i.ready)
    written = h.named("written", cta.accumulators.write)
    held = Held(h, taken, multiplied, panels)
    inside, kept, due = (Signal(range(11), name=name) for name in ("inside", "kept", "due"))
    requests, fetch = cta.parts.accumulators.i, cta.parts.fetch
    requested = h.named("requested", requests.valid & requests.ready)
    h.m.d.sync += [
        inside.eq(inside + multiplied - written),
        kept.eq(kept + requested - multiplied),
        due.eq(due + requested - written),
    ]
    owed = h.named("owed", (held.left != 0) | (inside != 0))
    moves = Cat(taken, multiplied, written, cta.memory.read, cta.tensor.read, requested).any()
    claim_progress(h, moves, fair, cta.i.valid | owed, reset, 2)
    h.claim("nothing_from_nothing", ~written | owed)
    # Invariants that the engine needs: panels that are read ahead were requested and are not used yet.
    h.claim("due", due == kept + inside)
    h.claim("read_ahead", held.left == kept + held.wanted("accumulators", requested))
    own, b = panels // 2 if pair else panels, Signal(range(3), name="panels_of_b")
    fetched = h.named("fetched", fetch.b.valid & fetch.b.ready)
    used = h.named("used", fetch.panels.valid & fetch.panels.ready)
    h.m.d.sync += b.eq(b + fetched - used)
    h.claim("fetched", held.wanted("b_to_use", used, own) == b + held.wanted("b_to_fetch", fetched, own))
    h.cover("written", written & ~cta.i.valid)


class _Shown(Echo):
    """Shows the lowest bit of C and the array number of each item."""

    bits = 4

    def shown(self) -> Value:
        """Return the bits that are shown."""
        return Cat(self.i.payload.c[0][0][0], self.i.payload.c[0][1][:3])

    def show(self, m: Module, first: Value) -> None:
        """Drive every word of the result with these bits and its own place."""
        for place, word in words_of_result(self.o.payload):
            m.d.comb += word.eq(Cat(first, Const(place, 8)))


@TCGEN05.property("results", lambda _: [()], cycles=_cycles)
def _results(h: Harness) -> None:
    """The results of the arrays for a panel's accumulators are written once and in order, every word at its place.

    The flags of the same panel are beside them, each row's at its place. Memories accept at any time.
    """
    reset = h.clocked()
    given, taken = (stream.Signature(1).create(path=(name,)) for name in ("given", "taken"))
    flow = Flow(h, reset, given, taken, DEPTH)

    class Stand(Accumulators):
        """Stands for the accumulators: in every panel, words of each array show the mark and the array."""

        def elaborate(self, platform: object) -> Module:
            m = Module()
            m.d.comb += [
                self.i.ready.eq(1),
                self.c.valid.eq(given.valid),
                given.ready.eq(self.c.ready),
                taken.valid.eq(self.o.valid),
                self.o.ready.eq(taken.ready),
            ]
            for array, of_array in enumerate(self.c.payload):
                m.d.comb += [of_array[0][0].eq(flow.marks), of_array[0][1].eq(array)]
            return m

    parts = {"warp_class": _Shown, "fetch_class": NAMED_FETCH, "accumulators_class": Stand}
    cta = h.add("cta", _Cta(SMALL_ARRAY, ARRAYS, **parts))
    asked, payload = decided(h, "told", cta.i, _decides(), reset), cta.i.payload
    h.m.d.comb += [
        payload.operation.eq(CtaOperation.MULTIPLY),
        payload.add.eq(1),
        *(payload[name].eq(asked[name]) for name in ("a_shared", "odd")),
        payload.pair.eq(asked.elsewhere),
        payload.last_panel.eq(1),
        payload.control.sparse.eq(asked.sparse),
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
