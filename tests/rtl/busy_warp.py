"""What stands for a warp where only the hand-over of operands and results is looked at."""

from amaranth.hdl import Module, Signal
from sptc.rtl.tensor_core import TENSOR_CORE
from sptc.rtl.warp import Warp


class BusyWarp(Warp):
    """Takes eight columns as an array of 32 units does and answers none."""

    cycles = TENSOR_CORE.warp_blocks

    def elaborate(self, platform: object) -> Module:
        m = Module()
        left = Signal(8)
        m.d.comb += self.i.ready.eq(left == 0)
        with m.If(left != 0):
            m.d.sync += left.eq(left - 1)
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += left.eq(self.cycles - 1)
        return m


class AnsweringWarp(BusyWarp):
    """Gives a result for every operand, as many cycles later as it is busy with it."""

    def elaborate(self, platform: object) -> Module:
        m = super().elaborate(platform)
        taken = self.i.valid & self.i.ready
        later = Signal(range(20))
        m.d.comb += self.o.valid.eq(later == 1)
        with m.If(later != 0):
            m.d.sync += later.eq(later - 1)
        with m.If(taken):
            m.d.sync += later.eq(self.cycles)
        return m
