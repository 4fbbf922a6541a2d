"""Carry-skip adder of two words and a carry bit."""

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .described import DescribedSignature
from .platforms import has_operators

__all__ = ["Adder", "kept"]

#: Width in bits of one group in the carry-skip adder. A carry can skip a whole group.
_GROUP = 7


def kept(m: Module, value: Value, name: str) -> Signal:
    """Return a value as a named signal that synthesis does not optimise away.

    Area optimisation otherwise turns fast logic, such as the carries of :class:`Adder`, back into small and slow logic.
    """
    signal = Signal(len(value), name=name, attrs={"keep": 1})
    m.d.comb += signal.eq(value)
    return signal


class Adder(wiring.Component):
    """Add two words and a carry bit. Combinational.

    ``total = word0 + word1 + carry``, modulo the width. On the longest path, one group of bits generates a carry, the
    carry skips each further group in one gate, and the last group adds the carry. The adder is one operator if
    :func:`~sptc.rtl.cells.platforms.has_operators` is true for the platform.

    Parameters
    ----------
    bits : int
        Width of the words.
    """

    def __init__(self, bits: int) -> None:
        self.bits = bits
        ports = {
            "word0": (In(bits), "First summand."),
            "word1": (In(bits), "Second summand."),
            "carry": (In(1), "Carry into the lowest bit."),
            "total": (Out(bits), "Sum of word0, word1 and carry."),
        }
        super().__init__(DescribedSignature(ports))

    def elaborate(self, platform: object) -> Module:
        """Build the adder from groups of bits that a carry can skip."""
        m = Module()
        if has_operators(platform):
            m.d.comb += self.total.eq(self.word0 + self.word1 + self.carry)
            return m
        # Carry into each group of seven bits, for an adder of 21 bits:
        #
        #     group        bits 20 ... 14                            13 ... 7    6 ... 0
        #     carry in     carry_7 = makes_7 | passes_7 & carry_0    carry_0     self.carry
        carry: Value = self.carry
        totals = []
        for start in range(0, self.bits, _GROUP):
            first, second = self.word0[start : start + _GROUP], self.word1[start : start + _GROUP]
            size = len(first)
            total = Signal(size, name=f"total_{start}")
            m.d.comb += total.eq(first + second + carry)
            totals.append(total)
            makes = kept(m, (first + second)[size], f"makes_{start}")
            passes = kept(m, (first ^ second).all(), f"passes_{start}")
            carry = kept(m, makes | (passes & carry), f"carry_{start}")
        m.d.comb += self.total.eq(Cat(totals))
        return m
