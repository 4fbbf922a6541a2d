"""Alignment: the largest exponent of a step, and shifters that truncate toward zero."""

from collections.abc import Sequence

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["ALIGNED_EXPONENT_BITS", "Align", "MaxExponent"]

#: Signed width of exponents once biases and block scales have entered.
ALIGNED_EXPONENT_BITS = 11


class MaxExponent(wiring.Component):
    """The largest of several signed exponents, as a balanced tree. Combinational.

    Parameters
    ----------
    count : int
        Exponents.

    Members
    -------
    exponents : In(signed(11)).array(count)
        Exponents; terms that are zero carry the floor e_zero, or anything below it.
    largest : Out(signed(11))
        Their maximum.

    Notes
    -----
    Source: E = max(product exponents, exp(c), e_zero), measured on an H200.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        shape = signed(ALIGNED_EXPONENT_BITS)
        super().__init__({"exponents": In(shape).array(count), "largest": Out(shape)})

    def elaborate(self, platform: object) -> Module:
        """Build the tree, one named signal a node."""
        m = Module()
        level = [self.exponents[i] for i in range(self.count)]
        while len(level) > 1:
            following = []
            for left, right in zip(level[::2], level[1::2], strict=False):
                winner = Signal(signed(ALIGNED_EXPONENT_BITS))
                m.d.comb += winner.eq(Mux(left > right, left, right))
                following.append(winner)
            level = following + level[len(level) // 2 * 2 :]
        m.d.comb += self.largest.eq(level[0])
        return m


class Align(wiring.Component):
    """Shift a magnitude right, dropping what falls off: truncation toward zero. Combinational.

    ``output = floor(magnitude * 2**(padding - distance))``, then low ``short[i]`` bits cleared where ``shorten[i]``.

    Parameters
    ----------
    magnitude_bits : int
        Width of the input.
    padding : int
        Grid bits below the input's last bit; negative drops bits before the shift.
    short : sequence of int
        Low grid bits that each bit of `shorten` clears.

    Members
    -------
    magnitude : In(magnitude_bits)
        Unsigned significand.
    distance : In(signed(11))
        Exponents below the largest; must not be negative.
    shorten : In(len(short))
        Keep fewer alignment bits.
    output : Out(magnitude_bits + padding)
        In units of the grid.

    Notes
    -----
    Source: no sticky bit, each term truncated on its magnitude (measured on an H200).
    """

    def __init__(self, magnitude_bits: int, padding: int, short: Sequence[int] = ()) -> None:
        self.magnitude_bits = magnitude_bits
        self.padding = padding
        self.short = tuple(short)
        self.output_bits = magnitude_bits + padding
        super().__init__(
            {
                "magnitude": In(magnitude_bits),
                "distance": In(signed(ALIGNED_EXPONENT_BITS)),
                "shorten": In(len(self.short)),
                "output": Out(self.output_bits),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the shifter."""
        m = Module()
        if self.padding >= 0:
            padded: Value = Cat(Const(0, self.padding), self.magnitude)
        else:
            padded = self.magnitude[-self.padding :]
        amount_bits = max(1, (self.output_bits - 1).bit_length())
        amount = self.distance.as_unsigned()[:amount_bits]
        beyond = self.distance.as_unsigned()[amount_bits:-1].any()
        shifted = Mux(beyond, 0, padded >> amount)[: self.output_bits]
        for control, bits in enumerate(self.short):
            shifted = Mux(self.shorten[control], Cat(Const(0, bits), shifted[bits:]), shifted)
        m.d.comb += self.output.eq(shifted)
        return m
