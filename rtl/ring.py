"""In-order FIFO whose registers are used in turn. Its output ports show the contents of every register."""

from functools import reduce
from operator import or_

from amaranth.hdl import Module, Mux, ShapeLike, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .cells.described import DescribedSignature

__all__ = ["Ring"]


class Ring(wiring.Component):
    """FIFO of registers that are written and read in turn, with two one-hot pointers. Latency: one cycle.

    Parameters
    ----------
    shape : shape-like
        Shape of an entry.
    most : int
        Capacity in entries. Push into a full FIFO only together with a pop, and pop only a valid entry.
    """

    def __init__(self, shape: ShapeLike, most: int) -> None:
        self.most = most
        first = (
            "One-hot number of the register with the oldest entry, or, in an empty FIFO, of the register to be written "
            "next."
        )
        ports = {
            "push": (In(1), "The value of entry is stored in this cycle."),
            "pop": (In(1), "The oldest entry is removed in this cycle."),
            "entry": (In(shape), "Entry to store."),
            "oldest": (Out(shape), "Oldest entry; undefined if the FIFO is empty."),
            "first": (Out(most, init=1), first),
            "valid": (Out(most), "Bit n is 1 if register n has an entry."),
            "entries": (Out(shape).array(most), "Contents of the registers."),
        }
        super().__init__(DescribedSignature(ports))

    def elaborate(self, platform: object) -> Module:
        """Build the registers of the FIFO, and two pointers: to the register to read and to the register to write."""
        m = Module()
        # Example of a FIFO with three registers. Bit 0, for register 0, is on the right:
        #
        #     cycle      0      1      2      3      4
        #     push       1      1      1      0      1
        #     pop        0      0      1      1      1
        #     first      001    001    001    010    100
        #     written    001    010    100    001    001
        #     valid      000    001    011    110    100
        written = Signal(self.most, init=1)
        with m.If(self.push):
            m.d.sync += written.eq(written.rotate_left(1))
        with m.If(self.pop):
            m.d.sync += self.first.eq(self.first.rotate_left(1))
        m.d.sync += self.valid.eq(self.valid & ~Mux(self.pop, self.first, 0) | Mux(self.push, written, 0))
        selected = []
        for place, entry in enumerate(self.entries):
            register = Signal.like(self.entry, name=f"entry_{place}", reset_less=True)
            with m.If(self.push & written[place]):
                m.d.sync += register.eq(self.entry)
            m.d.comb += entry.eq(register)
            selected.append(Mux(self.first[place], Value.cast(register), 0))
        m.d.comb += self.oldest.eq(reduce(or_, selected))
        return m
