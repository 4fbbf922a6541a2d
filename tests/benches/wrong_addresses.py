"""A mistake for the benches of what reads shared memory to find."""

from functools import partial

from amaranth.hdl import Module
from sptc.rtl.fetch import CoreMatrixAddress
from sptc.rtl.operand_fetch import OperandFetch

__all__ = ["WRONG_FETCH", "WithoutBaseOffset"]


class WithoutBaseOffset(CoreMatrixAddress):
    """Addresses of core matrices that know no base offset of their descriptor."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.right = right = CoreMatrixAddress()
        m.d.comb += [right.request.eq(self.request), right.request.descriptor.base_offset.eq(0)]
        m.d.comb += [right.segment.eq(self.segment), *(self.address[i].eq(right.address[i]) for i in range(8))]
        return m


#: A fetch with these addresses.
WRONG_FETCH = partial(OperandFetch, address_class=WithoutBaseOffset)
