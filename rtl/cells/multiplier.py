"""Exact radix-4 multiplier for signed or unsigned numbers."""

from collections.abc import Iterator

from amaranth.hdl import Cat, Const, Module, Shape, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .compressor import compress
from .described import DescribedSignature
from .platforms import has_operators

__all__ = ["Multiplier"]

#: Maximum width in bits of signed operands for which Booth recoding is used. Multipliers of wider operands use base-4
#: digits from 0 to 3 instead, with an adder that computes three times `a`.
_RECODED_BITS = 8

#: Type of a partial-product row: the position of its lowest bit, its bits, and a value of at most one bit that is added
#: one position above the lowest bit.
_Row = tuple[int, Value, Value]


class Multiplier(wiring.Component):
    """Multiply two signed or unsigned numbers exactly. Combinational.

    Each two bits of `b` select 0, 1, 2 or 3 times `a`, so there are half as many partial-product rows as bits of `b`.
    Only the highest row of a signed `b` can be negative. Three times `a` is computed once, by an adder; this is not the
    longest path, since the exponents take longer. Short signed numbers are recoded instead, to Booth digits from -2 to
    2. The rows are added in carry-save form, with one carry-propagating addition at the end. If
    :func:`~sptc.rtl.cells.platforms.has_operators` is true for the platform, the multiplier is one operator; the proof
    ``operands.exact`` shows that both implementations give the same product.

    Parameters
    ----------
    bits : int
        Width of the operands in bits.
    signed : bool
        Whether the operands and the product are signed.
    """

    def __init__(self, bits: int, *, signed: bool) -> None:
        self.bits = bits
        self.signed = signed
        operand = Shape(bits, signed)
        ports = {
            "a": (In(operand), "First operand."),
            "b": (In(operand), "Second operand, whose digits select multiples of a."),
            "product": (Out(Shape(2 * bits, signed)), "Product of a and b."),
        }
        super().__init__(DescribedSignature(ports))

    def elaborate(self, platform: object) -> Module:
        """Build the rows of partial products and the carry-save tree that adds them."""
        m = Module()
        if has_operators(platform):
            m.d.comb += self.product.eq(self.a * self.b)
            return m
        # Partial-product rows of a signed 12-bit multiplier. Each row starts at the position of the lower of its two
        # bits of `b`:
        #
        #     bits of `b`         11, 10      9, 8       7, 6       5, 4       3, 2       1, 0
        #     multiple of `a`     -2 ... 1    0 ... 3    0 ... 3    0 ... 3    0 ... 3    0 ... 3
        columns: list[list[Value]] = [[] for _ in self.product]
        constant = 0
        for low, row, negation in self._recoded_rows(m) if self._recoded else self._rows(m):
            bits = [*row]
            if self.signed:  # A sign bit s has a negative weight. Since -s = ~s - 1, add ~s, and -1 to `constant`.
                bits[-1] = ~bits[-1]
                constant -= 1 << low + len(bits) - 1
            for place, bit in (*enumerate(negation, low + 1), *enumerate(bits, low)):
                if place < len(columns):
                    columns[place].append(bit)
        for place, column in enumerate(columns):
            if constant >> place & 1:
                column.append(Const(1, 1))
        first, second = compress(m, columns)
        m.d.comb += self.product.eq(first + second)
        return m

    @property
    def _recoded(self) -> bool:
        return self.signed and self.bits <= _RECODED_BITS

    def _rows(self, m: Module) -> Iterator[_Row]:
        """Yield the partial-product rows for base-4 digits (0 to 3) of `b`, then the row for the top bits of `b`."""
        bits = self.bits + 2
        one = Cat(self.a, *([self.a[-1] & self.signed] * 2))
        two = Cat(Const(0, 1), one[:-1])
        three = Signal(bits)
        m.d.comb += three.eq(one + two)
        above = (self.bits - self.signed) // 2 * 2
        for low in range(0, above, 2):
            lower, upper = self.b[low], self.b[low + 1]
            row = Signal(bits)
            m.d.comb += row.eq(
                one & (lower & ~upper).replicate(bits)
                | two & (upper & ~lower).replicate(bits)
                | three & (lower & upper).replicate(bits)
            )
            yield low, row, Const(0, 0)
        left = self.b[above:]
        if self.signed:  # highest Booth digit of `b`: -1 or 0 from the sign bit, or -2 to 1 from the top two bits
            yield above, *self._recoded_row(m, Cat(Const(0, 1), left, left[-1])[:3])
        elif len(left):
            yield above, self.a & left.replicate(self.bits), Const(0, 0)

    def _recoded_rows(self, m: Module) -> Iterator[_Row]:
        # The Booth digit at the even bit n of `b` is b[n - 1] + b[n] - 2 * b[n + 1], with a zero below bit 0.
        digits = Cat(Const(0, 1), self.b, self.b[-1])
        for low in range(0, self.bits, 2):
            yield low, *self._recoded_row(m, digits[low : low + 3])

    def _recoded_row(self, m: Module, digit: Value) -> tuple[Value, Value]:
        """Return the multiple of `a` that a Booth digit of `b` selects, and a bit that corrects negative multiples.

        A negative multiple is the one's complement plus 1. The returned multiple already has this 1 added to its lowest
        bit. The returned bit is the carry out of this addition, and has twice the weight of the lowest bit.
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
        return row, negation
