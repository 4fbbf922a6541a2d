"""Exact signed multiplication by recoded digits."""

from amaranth.hdl import Cat, Const, Module, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .compressor import compress
from .platforms import OPERATORS

__all__ = ["BoothMultiplier"]


class BoothMultiplier(wiring.Component):
    """Multiply two signed numbers. Combinational.

    Radix-4 Booth digits of `b` select 0, 1 or 2 times `a`, with either sign: half as many rows as `b` has bits. The
    rows are added in carry-save form, with one carry-propagating addition at the end. Elaborated for
    :data:`~sptc.rtl.cells.platforms.OPERATORS` it is one multiplication; the proof ``operands.exact`` shows that they
    are the same.

    Parameters
    ----------
    bits : int
        Width of the operands.

    Members
    -------
    a, b : In(signed(bits))
        Operands; not both may be the most negative number.
    product : Out(signed(2 * bits - 1))
        Their product.
    """

    def __init__(self, bits: int) -> None:
        self.bits = bits
        super().__init__(
            {"a": In(signed(bits)), "b": In(signed(bits)), "product": Out(signed(2 * bits - 1))},
        )

    def elaborate(self, platform: object) -> Module:
        """Build the rows and add them."""
        m = Module()
        if platform == OPERATORS:
            m.d.comb += self.product.eq(self.a * self.b)
            return m
        columns: list[list[Value]] = [[] for _ in self.product]
        # The sign of a row has a negative weight: it enters inverted, and this constant restores the sum.
        correction = -sum(1 << (low + self.bits) for low in range(0, self.bits, 2))
        for place, column in enumerate(columns):
            if correction >> place & 1:
                column.append(Const(1, 1))
        digits = Cat(Const(0, 1), self.b, self.b[-1])
        for low in range(0, self.bits, 2):
            row, negation = self._row(m, digits[low : low + 3])
            for place, bit in ((low + 1, negation), *enumerate(row, low)):
                if place < len(columns):
                    columns[place].append(bit)
        first, second = compress(m, columns)
        m.d.comb += self.product.eq(first + second)
        return m

    def _row(self, m: Module, digit: Value) -> tuple[Value, Value]:
        """Return the digit's multiple of `a` with its sign bit inverted, and a bit of twice the row's lowest weight.

        A negative multiple is the complement and one; the lowest bit and that one are added at once.
        """
        negative = digit[2]
        single = Signal()
        double = Signal()
        magnitude = Signal(self.bits + 1)
        row = Signal(self.bits + 1)
        negation = Signal()
        m.d.comb += [
            single.eq(digit[0] ^ digit[1]),
            double.eq((digit[2] & ~digit[1] & ~digit[0]) | (~digit[2] & digit[1] & digit[0])),
            magnitude.eq(
                (Cat(self.a, self.a[-1]) & single.replicate(self.bits + 1))
                | (Cat(Const(0, 1), self.a) & double.replicate(self.bits + 1))
            ),
            row.eq(Cat(magnitude[0], magnitude[1:] ^ negative.replicate(self.bits))),
            negation.eq(negative & ~magnitude[0]),
        ]
        return Cat(row[:-1], ~row[-1]), negation
