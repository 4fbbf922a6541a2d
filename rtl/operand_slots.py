"""Two instructions are held: one multiplies while the operands of the next arrive."""

from collections.abc import Mapping

from amaranth.hdl import Array, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .fetch import descriptor_layout, panel_request_layout

__all__ = ["PANEL_BITS", "SLOTS", "OperandSlots", "PanelRequests", "turn_signature"]

#: Instructions that are held.
SLOTS = 2
#: Bits of the number of a panel: eight columns of up to 256.
PANEL_BITS = 5


def turn_signature(instruction: data.StructLayout) -> wiring.Signature:
    """Return the port at which one operand is brought, for one slot after the other.

    Members
    -------
    slot : Out(1)
        Whose operand is brought.
    wanted : Out(1)
        The slot is occupied, and not all of its operand has been requested.
    left, missing : Out(2)
        Of each slot: not all of its operand has been requested; not all of it has arrived.
    instruction : Out(instruction)
        What the slot holds.
    end : In(1)
        The rest of it is requested in this cycle: the other slot's follows.
    arrived : In(2)
        Of each slot: the rest of the operand arrives in this cycle. Without meaning if nothing waits for it.
    """
    return wiring.Signature(
        {
            "slot": Out(range(SLOTS)),
            "wanted": Out(1),
            "left": Out(SLOTS),
            "missing": Out(SLOTS),
            "instruction": Out(instruction),
            "end": In(1),
            "arrived": In(SLOTS),
        }
    )


class OperandSlots(wiring.Component):
    """Hold two instructions: taken, brought their operands and multiplied in turns.

    An instruction can be multiplied one cycle after it was taken and the last of its awaited operands has arrived. Its
    slot is free in the cycle after its last panel.

    Parameters
    ----------
    instruction : StructLayout
        What is held of an instruction; ``last_panel`` is its number of panels less one.
    operands : dict of str to bool
        Names of the operands, each a port of :func:`turn_signature`, and whether nothing is multiplied before all of it
        has arrived. The others come as streams.

    Members
    -------
    i : In(stream of instruction)
        Instructions.
    next_slot : Out(1)
        Where one is taken into.
    occupied : Out(2)
        Which slots hold an instruction.
    held : Out(instruction), two
        What the slots hold.
    slot : Out(1)
        Which of them is multiplied.
    instruction : Out(instruction)
        What that one holds.
    ready : Out(1)
        It is there, and all that is awaited of it.
    panel : Out(5)
        Its panels that have been multiplied.
    last : Out(1)
        The next one is its last.
    multiply : In(1)
        A panel is multiplied in this cycle; only while it is `ready`.
    """

    def __init__(self, instruction: data.StructLayout, operands: Mapping[str, bool]) -> None:
        self._operands = dict(operands)
        super().__init__(
            {
                "i": In(stream.Signature(instruction)),
                "next_slot": Out(range(SLOTS)),
                "occupied": Out(SLOTS),
                "held": Out(instruction).array(SLOTS),
                "slot": Out(range(SLOTS)),
                "instruction": Out(instruction),
                "ready": Out(1),
                "panel": Out(PANEL_BITS),
                "last": Out(1),
                "multiply": In(1),
            }
            | {name: Out(turn_signature(instruction)) for name in operands}
        )

    def elaborate(self, platform: object) -> Module:
        """Build the slots, the order in which they are multiplied, and that in which each operand is brought."""
        m = Module()
        taken, ends = Signal(), Signal()
        m.d.comb += [
            self.i.ready.eq(~self.occupied.bit_select(self.next_slot, 1)),
            taken.eq(self.i.valid & self.i.ready),
            self.instruction.eq(Array(self.held)[self.slot]),
            self.last.eq(self.panel == self.instruction.last_panel),
            ends.eq(self.multiply & self.last),
        ]
        m.d.sync += [
            self.occupied.eq((self.occupied | taken << self.next_slot) & ~(ends << self.slot)),
            self.next_slot.eq(self.next_slot + taken),
            self.slot.eq(self.slot + ends),
        ]
        with m.If(self.multiply):
            m.d.sync += self.panel.eq(Mux(self.last, 0, self.panel + 1))
        for slot in range(SLOTS):
            held = Signal(self.instruction.shape(), name=f"instruction_{slot}", reset_less=True)
            m.d.comb += self.held[slot].eq(held)
            with m.If(taken & (self.next_slot == slot)):
                m.d.sync += held.eq(self.i.payload)
        awaited: Value = Const(0)
        for name, is_awaited in self._operands.items():
            turn = getattr(self, name)
            comes = taken << self.next_slot
            m.d.comb += [
                turn.wanted.eq(turn.left.bit_select(turn.slot, 1)),
                turn.instruction.eq(Array(self.held)[turn.slot]),
            ]
            m.d.sync += [
                turn.slot.eq(turn.slot + turn.end),
                turn.left.eq(turn.left & ~(turn.end << turn.slot) | comes),
                turn.missing.eq(turn.missing & ~turn.arrived | comes),
            ]
            if is_awaited:
                awaited |= turn.missing.bit_select(self.slot, 1)
        m.d.comb += self.ready.eq(self.occupied.bit_select(self.slot, 1) & ~awaited)
        return m


class PanelRequests(wiring.Component):
    """Request the panels of one operand in shared memory, in order.

    Parameters
    ----------
    panels : int
        The most that an operand has.

    Members
    -------
    wanted : In(1)
        They are to be requested; all below stays until `end`.
    descriptor : In(descriptor_layout())
        Where the operand lies.
    mn_major, short : In(1)
        As in :func:`~sptc.rtl.fetch.panel_request_layout`.
    last : In(range(panels))
        Number of the last panel.
    o : Out(stream of panel_request_layout())
        The requests.
    end : Out(1)
        The last one is taken in this cycle.
    """

    def __init__(self, panels: int) -> None:
        super().__init__(
            {
                "wanted": In(1),
                "descriptor": In(descriptor_layout()),
                "mn_major": In(1),
                "short": In(1),
                "last": In(range(panels)),
                "o": Out(stream.Signature(panel_request_layout())),
                "end": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the count of the panels."""
        m = Module()
        panel, taken = Signal.like(self.last, name="panel"), Signal()
        m.d.comb += [
            self.o.valid.eq(self.wanted),
            self.o.payload.descriptor.eq(self.descriptor),
            self.o.payload.panel.eq(panel),
            self.o.payload.mn_major.eq(self.mn_major),
            self.o.payload.short.eq(self.short),
            taken.eq(self.o.valid & self.o.ready),
            self.end.eq(taken & (panel == self.last)),
        ]
        with m.If(taken):
            m.d.sync += panel.eq(Mux(self.end, 0, panel + 1))
        return m
