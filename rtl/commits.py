"""Committed groups of instructions: how many are not finished, in order."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .operand_slots import SLOTS
from .tensor_core import IN_FLIGHT

__all__ = ["GROUPS", "Commits"]

#: Committed groups that may be pending, as the widest operand of ``wait_group`` here can say.
GROUPS = 8


class Commits(wiring.Component):
    """Follow instructions to their last result, and committed groups to their last instruction.

    Parameters
    ----------
    in_flight : int
        Panels that may be multiplied and not delivered.

    Members
    -------
    issued : In(1)
        An instruction is taken.
    multiplied, last : In(1)
        A panel is multiplied; it is the last one of its instruction.
    delivered : In(1)
        A panel of results is delivered.
    commit : In(1)
        The instructions so far, and of no earlier group, are one; only where there is `room`, and nothing is issued.
    room : Out(1)
        Another group can be committed.
    pending : Out(range(9))
        Groups that are not finished.
    remaining : Out(range), eight
        Of each of these, the oldest first: instructions that it waits for; behind them anything.
    finished : Out(1)
        The oldest of them is, from the next cycle on.
    """

    def __init__(self, in_flight: int = IN_FLIGHT) -> None:
        self.in_flight = in_flight
        self.most = SLOTS + in_flight
        inputs = dict.fromkeys(("issued", "multiplied", "last", "delivered", "commit"), In(1))
        outputs = {"room": Out(1), "pending": Out(range(GROUPS + 1)), "finished": Out(1)}
        super().__init__(inputs | outputs | {"remaining": Out(range(self.most + 1)).array(GROUPS)})

    def elaborate(self, platform: object) -> Module:
        """Build the list of panels, the count of instructions, and the list of groups."""
        m = Module()
        # Of the panels that are multiplied, the oldest first: is it the last of its instruction?
        ends, inside = Signal(self.in_flight), Signal(range(self.in_flight + 1))
        unfinished = Signal(range(self.most + 1))
        finishes = self.delivered & ends[0]
        behind = self.pending - self.finished
        m.d.comb += [
            self.finished.eq((self.pending != 0) & (self.remaining[0] == 0)),
            self.room.eq(self.pending != GROUPS),
        ]
        m.d.sync += [
            inside.eq(inside + self.multiplied - self.delivered),
            ends.eq((ends | ((self.multiplied & self.last) << inside)) >> self.delivered),
            unfinished.eq(unfinished + self.issued - finishes),
            self.pending.eq(behind + self.commit),
        ]
        left = [count - (finishes & (count != 0)) for count in self.remaining]
        for place, count in enumerate(self.remaining):
            moved = Mux(self.finished, left[min(place + 1, GROUPS - 1)], left[place])
            m.d.sync += count.eq(Mux(self.commit & (behind == place), unfinished - finishes, moved))
        return m
