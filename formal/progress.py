"""Helpers for liveness properties: every stream makes progress within a bounded number of cycles."""

from amaranth.hdl import Signal, Value
from amaranth.lib import data, stream

from .harness import Harness
from .sizes import SLOTS

__all__ = ["PendingPanels", "claim_progress", "decided"]


def decided(h: Harness, name: str, source: stream.Interface, layout: data.StructLayout, reset: Value) -> data.View:
    """Drive `valid` of a stream with a free variable. Return free fields, which are constant while the stream waits."""
    fields = h.free(name, layout)
    waits, before = Signal(name=f"{name}_waits"), Signal(layout, name=f"{name}_before", reset_less=True)
    h.m.d.comb += source.valid.eq(h.free(f"{name}_valid") & ~reset)
    h.m.d.sync += [waits.eq(source.valid & ~source.ready), before.eq(fields)]
    h.assume(~waits | reset | (source.valid & (fields == before)))
    return fields


class PendingPanels:
    """Model of two slots, each for an accepted instruction with one or two panels (eight columns of D each).

    Longer instructions would need counters that are too large for the proof engine. If `taken` is 1, a slot takes an
    instruction of `panels` panels. If `multiplied` is 1, one panel is multiplied. `left` is the number of panels in the
    slots that are not multiplied yet.
    """

    def __init__(self, h: Harness, taken: Value, multiplied: Value, panels: int) -> None:
        self._h, self._taken, self._panels = h, taken, panels
        self._following = Signal(name="following")
        h.m.d.sync += self._following.eq(self._following ^ taken)
        self.left = self.count("multiplied", multiplied)

    def count(self, name: str, moved: Value, panels: int = 0) -> Value:
        """Return how many panels (eight columns of D) of all accepted instructions have not been transferred yet.

        One panel is transferred in each cycle in which `moved` is 1. For each instruction, `panels` panels are
        transferred, or all panels if `panels` is 0.
        """
        m, panels = self._h.m, panels or self._panels
        slot, place = Signal(name=f"{name}_slot"), Signal(name=f"{name}_place")
        pending = [Signal(name=f"{name}_{number}") for number in range(SLOTS)]
        last = self._h.named(f"{name}_last", moved & (place == panels - 1))
        m.d.sync += slot.eq(slot ^ last)
        with m.If(moved):
            m.d.sync += place.eq(~last)
        for number, is_pending in enumerate(pending):
            with m.If(last & (slot == number)):
                m.d.sync += is_pending.eq(0)
            with m.If(self._taken & (self._following == number)):
                m.d.sync += is_pending.eq(1)
        left = panels * sum(pending) - place
        return self._h.named(f"{name}_left", left, range(SLOTS * panels + 1))


def claim_progress(h: Harness, name: str, moves: Value, fair: Value, cycles: int) -> Signal:
    """Claim that fewer than `cycles` cycles with `fair` = 1 pass between two transfers (cycles with `moves` = 1).

    Return the counter of the cycles in which `fair` is 1.
    """
    quiet = Signal(range(cycles + 1), name=f"quiet_before_{name}")
    with h.m.If(moves):
        h.m.d.sync += quiet.eq(0)
    with h.m.Elif(fair):
        h.m.d.sync += quiet.eq(quiet + 1)
    h.claim(name, quiet < cycles)
    return quiet
