"""Leading-zero counter for words of any width."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .described import DescribedSignature
from .platforms import OPERATORS

__all__ = ["LeadingZeros"]


class LeadingZeros(wiring.Component):
    """Count the leading zeros of a word. Combinational.

    A balanced tree combines the counts of neighbouring parts of the word, which are computed in parallel. For a
    simulator (:data:`~sptc.rtl.cells.platforms.OPERATORS`) the word is halved repeatedly, which takes fewer operations,
    but more of them in series.

    Parameters
    ----------
    bits : int
        Width of the word.
    """

    def __init__(self, bits: int) -> None:
        self.bits = bits
        ports = {
            "word": (In(bits), "Word whose leading zeros are counted; count is undefined if the word is zero."),
            "count": (Out(range(bits + 1)), "Number of leading zeros."),
        }
        super().__init__(DescribedSignature(ports))

    def elaborate(self, platform: object) -> Module:
        """Build the tree that counts leading zeros."""
        m = Module()
        width = 1 << (self.bits - 1).bit_length()
        padding = width - self.bits
        # Append ones below the lowest bit until the width is a power of two. Ones do not change the leading-zero count.
        word = Cat(Const((1 << padding) - 1, padding), self.word)
        m.d.comb += self.count.eq(self._halved(m, word) if platform == OPERATORS else self._joined(m, word))
        return m

    def _halved(self, m: Module, word: Value) -> Value:
        count: list[Value] = []
        while len(word) > 1:
            half = len(word) // 2
            upper_is_zero = Signal()
            rest = Signal(half)
            m.d.comb += [
                upper_is_zero.eq(~word[half:].any()),
                rest.eq(Mux(upper_is_zero, word[:half], word[half:])),
            ]
            count.insert(0, upper_is_zero)
            word = rest
        return Cat(count)

    def _joined(self, m: Module, word: Value) -> Value:
        parts: list[tuple[Value, Value]] = [(bit, Const(0, 0)) for bit in word]
        while len(parts) > 1:
            joined: list[tuple[Value, Value]] = []
            for (low_any, low_count), (high_any, high_count) in zip(parts[::2], parts[1::2], strict=True):
                some = Signal()
                count = Signal(len(low_count) + 1)
                m.d.comb += [
                    some.eq(low_any | high_any),
                    count.eq(Cat(Mux(high_any, high_count, low_count), ~high_any)),
                ]
                joined.append((some, count))
            parts = joined
        return parts[0][1]
