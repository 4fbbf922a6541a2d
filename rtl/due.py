"""In-order FIFO with every entry visible at its outputs, not only the oldest entry."""

from amaranth.hdl import Module, Mux, ShapeLike
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .cells.described import DescribedSignature

__all__ = ["DueList"]


class DueList(wiring.Component):
    """Shift-register FIFO with every entry visible at its outputs, not only the oldest entry.

    Parameters
    ----------
    shape : shape-like
        Shape of an entry.
    most : int
        Capacity. Push into a full FIFO only together with a pop; pop only with `count` above zero.
    """

    def __init__(self, shape: ShapeLike, most: int) -> None:
        self.most = most
        ports = {
            "push": (In(1), "The value of entry is appended in this cycle."),
            "pop": (In(1), "The oldest entry is removed in this cycle."),
            "entry": (In(shape), "Entry to append."),
            "entries": (Out(shape).array(most), "Entries, the oldest first; undefined from number count on."),
            "count": (Out(range(most + 1)), "Number of entries."),
        }
        super().__init__(DescribedSignature(ports))

    def elaborate(self, platform: object) -> Module:
        """Build the shift register. A push writes behind the last entry that remains after a pop in the same cycle."""
        m = Module()
        behind = self.count - self.pop
        m.d.sync += self.count.eq(behind + self.push)
        for place, one in enumerate(self.entries):
            following = self.entries[place + 1] if place + 1 < self.most else one
            m.d.sync += one.eq(Mux(self.push & (behind == place), self.entry, Mux(self.pop, following, one)))
        return m
