"""Two instruction slots: one instruction is multiplied while the operands of the next instruction are fetched."""

from collections.abc import Mapping

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .cells.described import DescribedSignature
from .fetch import PANEL_BITS, descriptor_layout, panel_request_layout

__all__ = ["SLOTS", "OperandSlots", "PanelRequests", "turn_signature"]

#: Number of instruction slots. One instruction is multiplied while the operands of the next instruction arrive.
SLOTS = 2


def turn_signature(instruction: data.StructLayout, *, awaited: bool) -> DescribedSignature:
    """Return the signature of a port that requests an operand, such as B, in turn for two instructions in progress.

    With `awaited`, the whole operand must have arrived before the first panel (eight columns) is multiplied.
    """
    ports = {
        "slot": (Out(range(SLOTS)), "Number of the slot whose operand is requested."),
        "pending": (Out(1), "The slot is occupied, and part of its operand remains to be requested."),
        "left": (Out(SLOTS), "Bit n is 1 if part of the operand of slot n remains to be requested."),
        "instruction": (Out(instruction), "Instruction in the slot."),
        "end": (In(1), "The last part of the operand is requested in this cycle; the next slot follows."),
    }
    if awaited:
        ports |= {
            "arrives": (In(SLOTS), "Bit n is 1 if the last part of the operand of slot n arrives in this cycle."),
            "arrived": (Out(SLOTS), "Bit n is 1 if slot n stores an instruction whose operand has arrived."),
        }
    return DescribedSignature(ports)


class OperandSlots(wiring.Component):
    """Accept instructions into two instruction slots, request their operands, and multiply in program order.

    The first panel (eight columns) can be multiplied one cycle after the instruction was accepted and the last of its
    awaited operands has arrived. The slot is free in the cycle after the last panel.

    Parameters
    ----------
    instruction : StructLayout
        Fields that are stored; ``last_panel`` is the number of panels less one.
    operands : dict of str to bool
        Name of each operand, which becomes a port of :func:`turn_signature`, and whether the whole operand must arrive
        before the first panel is multiplied. At least one operand must be awaited in this way. All other operands
        arrive panel by panel.
    """

    def __init__(self, instruction: data.StructLayout, operands: Mapping[str, bool]) -> None:
        self._operands = dict(operands)
        ports = {
            "i": (In(stream.Signature(instruction)), "Instructions."),
            "next_slot": (Out(range(SLOTS)), "Number of the slot that stores the next instruction."),
            "occupied": (Out(SLOTS), "Bit n is 1 if slot n stores an instruction."),
            "stored": (Out(instruction).array(SLOTS), "Contents of the slots."),
            "slot": (Out(range(SLOTS)), "Number of the slot whose instruction is multiplied."),
            "instruction": (Out(instruction), "Instruction that is multiplied."),
            "ready": (Out(1), "The slot to multiply has an instruction, and all awaited operands have arrived."),
            "panel": (Out(PANEL_BITS), "Number of panels of the instruction in slot that were multiplied before."),
            "last": (Out(1), "The next panel is the last panel of its instruction."),
            "multiply": (In(1), "A panel is multiplied in this cycle. Must be 0 if ready is 0."),
        }
        turns = {
            name: (Out(turn_signature(instruction, awaited=awaited)), "Requests for the operand.")
            for name, awaited in operands.items()
        }
        super().__init__(DescribedSignature(ports | turns))

    def elaborate(self, platform: object) -> Module:
        """Build two instruction buffers (slots), and pointers to the slot that is multiplied or gets an operand."""
        m = Module()
        # Multiplication and each operand have their own pointer to the two instruction slots. In this example,
        # instructions i0, i1 and i2 are accepted. Operand `a` takes three requests (r), and the data of the last
        # request arrive one cycle later (x). Then four panels (eight columns each) are multiplied (m). A slot waits (.)
        # while the pointer is at the other slot:
        #
        #     cycle     0    1    2    3    4    5    6    7    8    9    10   11   12
        #     slot 0    i0   r    r    r    x    m    m    m    m    i2   r    r    r
        #     slot 1         i1   .    .    r    r    r    x    .    m    m    m    m
        accepted, ends = Signal(), Signal()
        m.d.comb += [
            self.i.ready.eq(~self.occupied.bit_select(self.next_slot, 1)),
            accepted.eq(self.i.valid & self.i.ready),
            self.instruction.eq(Array(self.stored)[self.slot]),
            self.last.eq(self.panel == self.instruction.last_panel),
            ends.eq(self.multiply & self.last),
        ]
        m.d.sync += [
            self.occupied.eq((self.occupied | accepted << self.next_slot) & ~(ends << self.slot)),
            self.next_slot.eq(self.next_slot + accepted),
            self.slot.eq(self.slot + ends),
        ]
        with m.If(self.multiply):
            m.d.sync += self.panel.eq(Mux(self.last, 0, self.panel + 1))
        for slot in range(SLOTS):
            register = Signal(self.instruction.shape(), name=f"instruction_{slot}", reset_less=True)
            m.d.comb += self.stored[slot].eq(register)
            with m.If(accepted & (self.next_slot == slot)):
                m.d.sync += register.eq(self.i.payload)
        ready = []
        for name, awaited in self._operands.items():
            turn = getattr(self, name)
            m.d.comb += [
                turn.pending.eq(turn.left.bit_select(turn.slot, 1)),
                turn.instruction.eq(Array(self.stored)[turn.slot]),
            ]
            m.d.sync += [
                turn.slot.eq(turn.slot + turn.end),
                turn.left.eq(turn.left & ~(turn.end << turn.slot) | accepted << self.next_slot),
            ]
            if awaited:
                m.d.sync += turn.arrived.eq((turn.arrived | turn.arrives) & ~(ends << self.slot))
                ready.append(turn.arrived.bit_select(self.slot, 1))
        m.d.comb += self.ready.eq(Cat(ready).all())
        return m


class PanelRequests(wiring.Component):
    """Request the panels (eight rows or columns) of one operand in shared memory, in ascending order.

    Parameters
    ----------
    panels : int
        Maximum number of panels of an operand.
    """

    def __init__(self, panels: int) -> None:
        ports = {
            "pending": (In(1), "There are panels to request; all inputs must stay constant until end is 1."),
            "descriptor": (In(descriptor_layout()), "Matrix descriptor of the operand."),
            "mn_major": (In(1), "Field mn_major of the requests."),
            "short": (In(1), "Field short of the requests."),
            "last": (In(range(panels)), "Number of the last panel."),
            "o": (Out(stream.Signature(panel_request_layout())), "Requests for the panels, in ascending order."),
            "end": (Out(1), "The last request is accepted in this cycle."),
        }
        super().__init__(DescribedSignature(ports))

    def elaborate(self, platform: object) -> Module:
        """Build the counter of panels (eight rows or columns) that were requested from shared memory."""
        m = Module()
        panel, taken = Signal.like(self.last, name="panel"), Signal()
        m.d.comb += [
            self.o.valid.eq(self.pending),
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
