"""The largest of several exponents, e_max."""

from amaranth.hdl import Module, Mux, ShapeLike, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["ALIGNED_EXPONENT_BITS", "LEAST_EXPONENT", "MaxExponent"]

#: Signed width of exponents once biases and block scales have entered.
ALIGNED_EXPONENT_BITS = 11
#: Below every real exponent: that of a term that does not participate.
LEAST_EXPONENT = -(1 << (ALIGNED_EXPONENT_BITS - 1))


class MaxExponent(wiring.Component):
    """The largest of several exponents, as a balanced tree. Combinational.

    Parameters
    ----------
    count : int
        Exponents.
    shape : shape-like
        Of an exponent.

    Members
    -------
    exponents : In(shape).array(count)
        Exponents; a term that does not participate carries the least there is.
    e_max : Out(shape)
        Their maximum.

    Notes
    -----
    Source: E = max(product exponents, exp(c), e_zero), measured on an H200.
    """

    def __init__(self, count: int, shape: ShapeLike) -> None:
        self.count = count
        self.shape = shape
        super().__init__({"exponents": In(shape).array(count), "e_max": Out(shape)})

    def elaborate(self, platform: object) -> Module:
        """Build the tree, one named signal a node."""
        m = Module()
        level = [self.exponents[i] for i in range(self.count)]
        while len(level) > 1:
            following = []
            for left, right in zip(level[::2], level[1::2], strict=False):
                winner = Signal(self.shape)
                m.d.comb += winner.eq(Mux(right > left, right, left))
                following.append(winner)
            level = following + level[len(level) // 2 * 2 :]
        m.d.comb += self.e_max.eq(level[0])
        return m
