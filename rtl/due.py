"""What is due, in order: a short list whose oldest entry leaves first and of which every entry is seen."""

from amaranth.hdl import Module, Mux, ShapeLike
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["DueList"]


class DueList(wiring.Component):
    """Entries that wait for something, the oldest first.

    Parameters
    ----------
    shape : shape-like
        Of an entry.
    most : int
        That it has room for; nothing may come where there is none.

    Members
    -------
    push, pop : In(1)
        An entry comes; the oldest leaves.
    entry : In(shape)
        The one that comes.
    entries : Out(shape), so many
        Those that are there, and behind them anything.
    count : Out(range)
        How many are.
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
        """Build the list: what comes goes behind the last that stays."""
        m = Module()
        behind = self.count - self.pop
        m.d.sync += self.count.eq(behind + self.push)
        for place, one in enumerate(self.entries):
            following = self.entries[place + 1] if place + 1 < self.most else one
            m.d.sync += one.eq(Mux(self.push & (behind == place), self.entry, Mux(self.pop, following, one)))
        return m
