"""Progress of a CTA's tensor cores: whatever is asked of them, they do something until all is written.

Arrays are cut away, since they are proved by themselves.
"""

from collections.abc import Iterator
from dataclasses import replace

from amaranth.hdl import Cat, Mux, Signal
from amaranth.lib import data

from ..rtl.config import PRESETS, CoreConfig
from ..rtl.round import ResultCode
from ..rtl.tcgen05 import CtaOperation, Tcgen05
from .fetch import Names
from .harness import Harness, Opened
from .progress import Held, claim_progress, decided
from .properties import Parameters
from .streams import bare
from .tensor_core import TENSOR_CORE, Echo

__all__ = ["TENSOR_CORE"]

#: What surrounds the arrays is the same for every configuration.
_ARRAY = replace(bare(PRESETS["tiny"]), rows=4, columns=4)


class _Cta(Opened, Tcgen05):
    """The inputs of its arrays can be seen."""


def _lengths(config: CoreConfig) -> Iterator[Parameters]:
    """Instructions of one panel, and of two, of one CTA or of a pair."""
    yield from ((1, False), (2, False), (2, True))


def _cycles(*_: object) -> int:
    """Cycles in which an instruction with A in shared memory is multiplied and written."""
    return 40


def _decides() -> data.StructLayout:
    """Return the layout of what decides when something happens, beside the number of panels."""
    return data.StructLayout(dict.fromkeys(("a_shared", "sparse", "half", "add", "odd", "elsewhere"), 1))


@TENSOR_CORE.property("cta_progress", _lengths, cycles=_cycles)
def _progress(h: Harness, panels: int, pair: bool) -> None:
    """While a multiplication is held or offered, something is requested, read, multiplied, written or taken.

    Of two cycles in which the other CTA of a pair waits for this one that is in one at least, whatever lies between.
    Instructions have the accumulators of the one before or others. Nothing is written that was not asked for.
    """
    reset = h.clocked()
    cta = h.add("cta", _Cta(_ARRAY, warp_class=Echo, address_class=Names))
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
    # Without these the engine finds no invariant: what is read ahead is what was requested and is still to be used.
    h.claim("due", due == kept + inside)
    h.claim("read_ahead", held.left == kept + held.wanted("accumulators", requested))
    own, b = panels // 2 if pair else panels, Signal(range(3), name="panels_of_b")
    fetched = h.named("fetched", fetch.b.valid & fetch.b.ready)
    used = h.named("used", fetch.panels.valid & fetch.panels.ready)
    h.m.d.sync += b.eq(b + fetched - used)
    h.claim("fetched", held.wanted("b_to_use", used, own) == b + held.wanted("b_to_fetch", fetched, own))
    h.cover("written", written & ~cta.i.valid)
