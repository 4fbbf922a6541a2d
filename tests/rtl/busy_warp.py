"""What stands for a warp where only the hand-over of operands is looked at."""

from amaranth.hdl import Module, Signal
from sptc.rtl.warp import Warp


class BusyWarp(Warp):
    """Takes an operand every so many cycles and answers none."""

    cycles = 1

    def elaborate(self, platform: object) -> Module:
        m = Module()
        left = Signal(8)
        m.d.comb += self.i.ready.eq(left == 0)
        with m.If(left != 0):
            m.d.sync += left.eq(left - 1)
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += left.eq(self.cycles - 1)
        return m
