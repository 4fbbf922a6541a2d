"""The control of a stream component that reads each of its items from a memory, part by part."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["ReadControl"]


class ReadControl(wiring.Component):
    """Read an item's parts, one a cycle, and offer the item once the last has arrived.

    A request is taken with its last read. What was read arrives a cycle later; of ``n`` parts the item is offered
    ``n + 1`` cycles after the first read, and the next item's reads begin in the cycle in which it is taken.

    Members
    -------
    i_valid, i_ready : In(1), Out(1)
        Handshake of the requests.
    o_valid, o_ready : Out(1), In(1)
        Handshake of the items.
    last : In(1)
        The part that is next is the last of the request at the input.
    read : Out(1)
        It is read in this cycle.
    arriving : Out(1)
        What was read in the cycle before arrives.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "i_valid": In(1),
                "i_ready": Out(1),
                "o_valid": Out(1),
                "o_ready": In(1),
                "last": In(1),
                "read": Out(1),
                "arriving": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the flags of what arrives and what is complete."""
        m = Module()
        # Means something while something arrives.
        arriving_last = Signal(reset_less=True)
        full = Signal()
        free = Signal()
        m.d.comb += [
            # A first part is read only when the item before has left, or leaves now. Of the parts behind it this always
            # holds: the last is still to come.
            free.eq(~(self.arriving & arriving_last) & (~full | self.o_ready)),
            self.read.eq(self.i_valid & free),
            self.i_ready.eq(free & self.last),
            self.o_valid.eq(full),
        ]
        m.d.sync += [self.arriving.eq(self.read), arriving_last.eq(self.last)]
        with m.If(self.o_ready):
            m.d.sync += full.eq(0)
        with m.If(self.arriving & arriving_last):
            m.d.sync += full.eq(1)
        return m
