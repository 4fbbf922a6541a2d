"""Alignment: the largest exponent of a step, and shifters that truncate toward zero."""

from amaranth.hdl import Cat, Const, Module, Mux, ShapeLike, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["ALIGNED_EXPONENT_BITS", "NO_EXPONENT", "Align", "MaxExponent"]

#: Signed width of exponents once biases and block scales have entered.
ALIGNED_EXPONENT_BITS = 11
#: Below every real exponent: that of a term that does not count.
NO_EXPONENT = -(1 << (ALIGNED_EXPONENT_BITS - 1))


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
        Exponents; terms that do not count carry the least one there is.
    largest : Out(shape)
        Their maximum.

    Notes
    -----
    Source: E = max(product exponents, exp(c), e_zero), measured on an H200.
    """

    def __init__(self, count: int, shape: ShapeLike) -> None:
        self.count = count
        self.shape = shape
        super().__init__({"exponents": In(shape).array(count), "largest": Out(shape)})

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
        m.d.comb += self.largest.eq(level[0])
        return m


class Align(wiring.Component):
    """Shift a magnitude right, dropping what falls off: truncation toward zero. Combinational.

    ``output = floor(magnitude * 2**(padding - distance))``, as long as `magnitude` reaches no bit from `reach` on; what
    stands there is not shifted.

    Parameters
    ----------
    magnitude_bits : int
        Width of the input.
    padding : int
        Bits of the output below the input's last bit; negative drops bits before the shift.
    distance_bits : int
        Width of the distance.
    reach : int, optional
        Low bits of the output that are shifted; all by default.

    Members
    -------
    magnitude : In(magnitude_bits)
        Unsigned significand.
    distance : In(distance_bits)
        Exponents below the largest.
    output : Out(magnitude_bits + padding)
        The shifted magnitude.

    Notes
    -----
    Source: no sticky bit, each term truncated on its magnitude (measured on an H200).
    """

    def __init__(self, magnitude_bits: int, padding: int, distance_bits: int, reach: int | None = None) -> None:
        self.magnitude_bits = magnitude_bits
        self.padding = padding
        self.distance_bits = distance_bits
        self.output_bits = magnitude_bits + padding
        self.reach = self.output_bits if reach is None else min(reach, self.output_bits)
        super().__init__(
            {
                "magnitude": In(magnitude_bits),
                "distance": In(distance_bits),
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
        amount_bits = max(1, (self.reach - 1).bit_length())
        amount, beyond = self.distance[:amount_bits], self.distance[amount_bits:].any()
        shifted = Mux(beyond, 0, padded[: self.reach] >> amount)[: self.reach]
        m.d.comb += self.output.eq(Cat(shifted, padded[self.reach :]))
        return m
