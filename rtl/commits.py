"""Completion of commit groups of instructions, in program order."""

from amaranth.hdl import Module, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .cells.described import DescribedSignature
from .operand_slots import SLOTS
from .ring import Ring

__all__ = ["GROUPS", "PENDING_BITS", "Commits"]

#: Width in bits of the operand N of ``wait_group``, and maximum number of pending commit groups.
PENDING_BITS = 3
GROUPS = 1 << PENDING_BITS


class Commits(wiring.Component):
    """Track instructions until their last result is written, and commit groups until their last instruction completes.

    Parameters
    ----------
    in_flight : int
        Maximum number of panels (eight columns each) that are multiplied and not yet delivered.
    """

    def __init__(self, in_flight: int) -> None:
        self.in_flight = in_flight
        commit = (
            "The instructions accepted since the previous commit become a group. Must be 0 if room is 0 or issued is 1."
        )
        finished = "The oldest pending group is finished; this is the last cycle in which pending counts the group."
        ports = {
            "issued": (In(1), "An instruction is accepted in this cycle."),
            "multiplied": (In(1), "A panel is multiplied in this cycle."),
            "last": (In(1), "The panel that is multiplied is the last panel of its instruction."),
            "delivered": (In(1), "A panel of results is delivered in this cycle."),
            "commit": (In(1), commit),
            "room": (Out(1), "A commit can be accepted in this cycle."),
            "pending": (Out(range(GROUPS + 1)), "Number of groups that are not finished."),
            "finished": (Out(1), finished),
        }
        super().__init__(DescribedSignature(ports))

    def elaborate(self, platform: object) -> Module:
        """Build the FIFO of panels (eight columns), two counters of instructions, and the FIFO of commit groups."""
        m = Module()
        # Numbers of instructions that were issued and completed. Each commit group stores the number of instructions
        # issued before its commit, and is finished once this number of instructions has completed. Example with two
        # instructions and two groups, of which the second group is empty:
        #
        #     cycle                   0        1        2         3         4    5    6
        #     command                 issue    issue    commit    commit
        #     issued                  0        1        2         2         2    2    2
        #     completed               0        0        0         0         1    2    2
        #     numbers of groups                                   2         2    2    2     the oldest group first
        #                                                                   2    2
        #     finished                                                           1    1
        #
        # The numbers of issued and completed instructions wrap. At a commit, at most `SLOTS + in_flight` instructions
        # are not completed. One group finishes in each cycle, so a group whose instructions have completed waits at
        # most `GROUPS` cycles for older groups, in which at most `GROUPS` other instructions complete. The difference
        # between a stored number and `completed` therefore has the same sign as without wrapping.
        bits = max(SLOTS + self.in_flight, GROUPS - 1).bit_length() + 1
        issued, completed = (Signal(bits, name=name) for name in ("issued_before", "completed"))
        # FIFO with one bit for each panel (eight columns) whose results are not yet delivered: 1 for the last panel of
        # an instruction.
        m.submodules.ends = ends = Ring(1, self.in_flight)
        m.submodules.groups = groups = Ring(issued.shape(), GROUPS)
        unfinished = Signal(signed(bits))
        m.d.comb += [
            ends.push.eq(self.multiplied),
            ends.entry.eq(self.last),
            ends.pop.eq(self.delivered),
            groups.push.eq(self.commit),
            groups.entry.eq(issued),
            groups.pop.eq(self.finished),
            unfinished.eq(groups.oldest - completed),
            self.finished.eq((self.pending != 0) & (unfinished <= 0)),
            self.room.eq(self.pending != GROUPS),
        ]
        m.d.sync += [
            issued.eq(issued + self.issued),
            completed.eq(completed + (self.delivered & ends.oldest)),
            self.pending.eq(self.pending + self.commit - self.finished),
        ]
        return m
