"""Committed groups of instructions: how many are not finished, in order."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from .tensor_core import IN_FLIGHT

__all__ = ["GROUPS", "Commits"]

#: Committed groups that may be pending, as the widest operand of ``wait_group`` here can say.
GROUPS = 8
#: Of the numbers of instructions, of which two that are compared are less than half of all apart.
_COUNT_BITS = 5


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
        The instructions so far, and of no earlier group, are one; only where there is `room`.
    room : Out(1)
        Another group can be committed.
    pending : Out(range(9))
        Groups that are not finished.
    finished : Out(1)
        The oldest of them is, from the next cycle on.
    """

    def __init__(self, in_flight: int = IN_FLIGHT) -> None:
        self.in_flight = in_flight
        inputs = dict.fromkeys(("issued", "multiplied", "last", "delivered", "commit"), In(1))
        super().__init__(inputs | {"room": Out(1), "pending": Out(range(GROUPS + 1)), "finished": Out(1)})

    def elaborate(self, platform: object) -> Module:
        """Build the queue of panels, that of groups, and the two counts."""
        m = Module()
        m.submodules.ends = ends = SyncFIFO(width=1, depth=self.in_flight)
        m.submodules.marks = marks = SyncFIFO(width=_COUNT_BITS, depth=GROUPS)
        issued, finished = (Signal(_COUNT_BITS, name=name) for name in ("instructions_issued", "instructions_finished"))
        m.d.comb += [
            ends.w_en.eq(self.multiplied),
            ends.w_data.eq(self.last),
            ends.r_en.eq(self.delivered),
            marks.w_en.eq(self.commit),
            marks.w_data.eq(issued),
            # In order: a group is finished when no fewer instructions are than had been issued at its commit.
            self.finished.eq(marks.r_rdy & ~(finished - marks.r_data)[_COUNT_BITS - 1]),
            marks.r_en.eq(self.finished),
            self.pending.eq(marks.level),
            self.room.eq(marks.w_rdy),
        ]
        m.d.sync += [
            issued.eq(issued + self.issued),
            finished.eq(finished + (self.delivered & ends.r_data[0])),
        ]
        return m
