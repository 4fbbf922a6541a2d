"""Completion of commit groups of instructions, in program order."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .cells.described import DescribedSignature
from .operand_slots import SLOTS

__all__ = ["GROUPS", "PENDING_BITS", "Commits"]

#: Width in bits of the operand N of ``wait_group``, and maximum number of pending commit groups.
PENDING_BITS = 3
GROUPS = 1 << PENDING_BITS


class Commits(wiring.Component):
    """Track instructions until their last result is written, and commit groups until their last instruction completes.

    Parameters
    ----------
    in_flight : int
        Maximum number of panels that are multiplied and not yet delivered.
    """

    def __init__(self, in_flight: int) -> None:
        self.in_flight = in_flight
        self.most = SLOTS + in_flight
        commit = (
            "The instructions accepted since the previous commit become a group. Must be 0 if room is 0 or issued is 1."
        )
        remaining = (
            "Number of unfinished instructions that each pending group waits for, the oldest group first. Entries from "
            "number `pending` on are undefined."
        )
        finished = "The oldest pending group is finished; pending counts it for the last time in this cycle."
        ports = {
            "issued": (In(1), "An instruction is accepted in this cycle."),
            "multiplied": (In(1), "A panel is multiplied in this cycle."),
            "last": (In(1), "The panel that is multiplied is the last panel of its instruction."),
            "delivered": (In(1), "A panel of results is delivered in this cycle."),
            "commit": (In(1), commit),
            "room": (Out(1), "A commit can be accepted in this cycle."),
            "pending": (Out(range(GROUPS + 1)), "Number of groups that are not finished."),
            "finished": (Out(1), finished),
            "remaining": (Out(range(self.most + 1)).array(GROUPS), remaining),
        }
        super().__init__(DescribedSignature(ports))

    def elaborate(self, platform: object) -> Module:
        """Build the FIFO of panels, the counter of unfinished instructions, and the FIFO of commit groups."""
        m = Module()
        # One bit for each panel whose results are not yet delivered. Bit 0 belongs to the oldest panel. The bit of an
        # instruction's last panel is set.
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
        # Instructions finish in order. Each commit group has a count of all instructions that were unfinished at its
        # commit, including those of older groups. Each finished instruction therefore lowers every count that is not
        # zero.
        left = [count - (finishes & (count != 0)) for count in self.remaining]
        for place, count in enumerate(self.remaining):
            moved = Mux(self.finished, left[min(place + 1, GROUPS - 1)], left[place])
            m.d.sync += count.eq(Mux(self.commit & (behind == place), unfinished - finishes, moved))
        return m
