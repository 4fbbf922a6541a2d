"""Exact sums of many signed terms: levels of carry-save adders."""

from collections.abc import Sequence

from amaranth.hdl import Cat, Const, Module, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .pipeline import delayed
from .platforms import OPERATORS

__all__ = ["CarrySaveTree", "sum_bits"]


def sum_bits(term_bits: int, count: int) -> int:
    """Return the signed width that holds the sum of `count` signed terms of `term_bits`."""
    return term_bits + (count - 1).bit_length()


class CarrySaveTree(wiring.Component):
    """Bring signed terms, and a bit for each, to two words with the same sum.

    Combinational, or with a register behind some level of its adders: latency one enabled cycle.

    ``word0 + word1 + carry = sum of terms + number of increments``, modulo the width of the words. A negated
    magnitude is its complement and one: the one is an increment, and takes the free lowest bit of a carry word.
    Elaborated for :data:`~sptc.rtl.cells.platforms.OPERATORS` the first word is the sum.

    Parameters
    ----------
    term_bits : sequence of int
        Signed width of each term.
    total_bits : int
        Width of the words; :func:`sum_bits` says which holds every sum.
    registered_level : int, optional
        Levels of adders in front of the register, or all where there are not so many; without one by default.

    Members
    -------
    enable : In(1)
        The register advances.
    term0, term1, ... : In(signed(term_bits[i]))
        Terms.
    increments : In(count)
        Ones.
    word0, word1, carry : Out(total_bits), Out(total_bits), Out(1)
        Their sum in carry-save form.

    Notes
    -----
    Source: sums inside a step are exact and without intermediate normalisation (measured on an H200); so their order
    cannot matter.
    """

    def __init__(self, term_bits: Sequence[int], total_bits: int, registered_level: int | None = None) -> None:
        self.term_bits = tuple(term_bits)
        self.total_bits = total_bits
        self.registered_level = registered_level
        super().__init__(
            {
                "enable": In(1, init=1),
                **{f"term{index}": In(signed(bits)) for index, bits in enumerate(self.term_bits)},
                "increments": In(len(self.term_bits)),
                "word0": Out(total_bits),
                "word1": Out(total_bits),
                "carry": Out(1),
            }
        )

    @property
    def terms(self) -> list[Value]:
        """The terms."""
        return [getattr(self, f"term{index}") for index in range(len(self.term_bits))]

    def elaborate(self, platform: object) -> Module:
        """Build the rows of adders, those of the shortest words first."""
        m = Module()
        # A sign has a negative weight: it enters inverted, and the constant makes it good; none needs to be extended.
        words: list[Value] = [Cat(term[:-1], ~term[-1]) for term in self.terms]
        constant = -sum(1 << bits - 1 for bits in self.term_bits)
        words.append(Const(constant % (1 << self.total_bits), self.total_bits))
        if platform == OPERATORS:
            registered = int(self.registered_level is not None)
            m.d.comb += self.word0.eq(delayed(m, sum([*words, *self.increments]), registered, self.enable, "total"))
            return m
        increments = list(self.increments)
        level, waiting = 0, self.registered_level is not None
        while waiting or len(words) > 2:
            if waiting and (level == self.registered_level or len(words) <= 2):
                words, increments, waiting = self._held(m, words), self._held(m, increments), False
                continue
            following: list[Value] = []
            for first, second, third in zip(words[::3], words[1::3], words[2::3], strict=False):
                lowest = increments.pop() if increments else Const(0, 1)
                following += self._row(m, first, second, third, lowest)
            words = [*following, *words[len(words) // 3 * 3 :]]
            level += 1
        m.d.comb += [
            self.word0.eq(words[0]),
            self.word1.eq(words[1]),
            # The rows are one less than the increments.
            self.carry.eq(Cat(increments)),
        ]
        return m

    def _held(self, m: Module, values: list[Value]) -> list[Value]:
        """Return values behind the register."""
        return [value if isinstance(value, Const) else delayed(m, value, 1, self.enable, "held") for value in values]

    def _row(self, m: Module, first: Value, second: Value, third: Value, lowest: Value) -> tuple[Value, Value]:
        """Return the sum bits of three words and their carries above a lowest bit."""
        bits = max(len(first), len(second), len(third))
        total = Signal(bits)
        carry = Signal(min(bits + 1, self.total_bits))
        m.d.comb += [
            total.eq(first ^ second ^ third),
            carry.eq(Cat(lowest, (first & second) | (third & (first | second)))),
        ]
        return total, carry
