"""In-order FIFO with every entry visible."""

from amaranth.hdl import Module, Mux, ShapeLike
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["DueList"]


class DueList(wiring.Component):
    """Shift-register FIFO with every entry visible.

    Parameters
    ----------
    shape : shape-like
        Shape of an entry.
    most : int
        Capacity. Push into a full FIFO only together with a pop; pop only with `count` above zero.

    Members
    -------
    push, pop : In(1)
        Append `entry`; remove the oldest entry.
    entry : In(shape)
        Entry to append.
    entries : Out(shape), so many
        Entries, the oldest first; from `count` on they are undefined.
    count : Out(range)
        Number of entries.
    """

    def __init__(self, shape: ShapeLike, most: int) -> None:
        self.most = most
        super().__init__(
            {
                "push": In(1),
                "pop": In(1),
                "entry": In(shape),
                "entries": Out(shape).array(most),
                "count": Out(range(most + 1)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the shift register; a new entry goes behind the last one that stays."""
        m = Module()
        behind = self.count - self.pop
        m.d.sync += self.count.eq(behind + self.push)
        for place, one in enumerate(self.entries):
            following = self.entries[place + 1] if place + 1 < self.most else one
            m.d.sync += one.eq(Mux(self.push & (behind == place), self.entry, Mux(self.pop, following, one)))
        return m
