"""Exact sums of many signed terms, by several levels of carry-save adders."""

from collections.abc import Sequence

from amaranth.hdl import Cat, Const, Module, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .described import DescribedSignature
from .pipeline import delayed
from .platforms import has_operators

__all__ = ["CarrySaveTree", "sum_bits"]


def sum_bits(term_bits: int, count: int) -> int:
    """Return the width of a signed sum of `count` signed terms of `term_bits` bits each."""
    return term_bits + (count - 1).bit_length()


class CarrySaveTree(wiring.Component):
    """Reduce signed terms, each with an increment bit, to two words and a carry bit whose sum is the sum of all terms.

    Combinational, or with registers after one level of adders, after all levels, or both. Each of these two registers
    adds a latency of one enabled cycle.

    ``word0 + word1 + carry = sum of terms + number of increments``, modulo the width of the words. A negated magnitude
    is its one's complement plus one. This one is an increment, in the free lowest bit of a carry word. If
    :func:`~sptc.rtl.cells.platforms.has_operators` is true for the platform, a binary tree of additions gives the sum
    in `word0`. In this case the first register is before all additions, and the second register is halfway.

    Source: sums inside a step are exact and without intermediate normalisation (measured on an H200), so the order of
    additions cannot matter.

    Parameters
    ----------
    term_bits : sequence of int
        Signed width of each term.
    total_bits : int
        Width of the words; :func:`sum_bits` returns the width that holds every sum.
    registered_level : int, optional
        Number of levels of adders before the first register. If the tree has fewer levels, the register is after all
        levels. None: no register of this kind.
    registered : bool
        Whether there is a register after all levels of adders.
    """

    def __init__(
        self, term_bits: Sequence[int], total_bits: int, registered_level: int | None = None, registered: bool = False
    ) -> None:
        self.term_bits = tuple(term_bits)
        self.total_bits = total_bits
        self.registered_level = registered_level
        self.registered = registered
        terms = {f"term{index}": (In(signed(bits)), "Term of the sum.") for index, bits in enumerate(self.term_bits)}
        ports = {
            "enable": (In(1, init=1), "Clock enable of the pipeline registers."),
            **terms,
            "increments": (In(len(self.term_bits)), "One bit per term, added to the sum: 1 for a one's complement."),
            "word0": (Out(total_bits), "First word of the sum in carry-save form."),
            "word1": (Out(total_bits), "Second word of the sum in carry-save form."),
            "carry": (Out(1), "Carry that must be added to word0 and word1."),
        }
        super().__init__(DescribedSignature(ports))

    @property
    def terms(self) -> list[Value]:
        """Input ports of all terms of the tree, in order."""
        return [getattr(self, f"term{index}") for index in range(len(self.term_bits))]

    def elaborate(self, platform: object) -> Module:
        """Build the levels of carry-save adders. The shortest words are added first."""
        m = Module()
        # The sign bit of a term has a negative weight. The tree adds the inverted sign, and a constant corrects the
        # sum, so no sign is extended. For the sign s of a term of w bits,
        # -s * 2**(w - 1) = ~s * 2**(w - 1) - 2**(w - 1).
        words: list[Value] = [Cat(term[:-1], ~term[-1]) for term in self.terms]
        constant = -sum(1 << bits - 1 for bits in self.term_bits)
        words.append(Const(constant % (1 << self.total_bits), self.total_bits))
        increments = list(self.increments)
        if has_operators(platform):
            m.d.comb += self.word0.eq(self._total(m, words, increments))
            return m
        level, waiting = 0, self.registered_level is not None
        while waiting or len(words) > 2:
            if waiting and (level == self.registered_level or len(words) <= 2):
                words, increments = self._registered(m, words), self._registered(m, increments)
                waiting = False
                continue
            following: list[Value] = []
            for first, second, third in zip(words[::3], words[1::3], words[2::3], strict=False):
                lowest = increments.pop() if increments else Const(0, 1)
                following += self.row(m, first, second, third, lowest)
            words = [*following, *words[len(words) // 3 * 3 :]]
            level += 1
        # Each carry-save adder has taken one increment bit. One increment bit is left, since the tree has one adder
        # fewer than increment bits; this bit becomes the carry output.
        outputs: list[Value] = [*words, *increments]
        if self.registered:
            outputs = self._registered(m, outputs)
        m.d.comb += [port.eq(value) for port, value in zip((self.word0, self.word1, self.carry), outputs, strict=True)]
        return m

    def _total(self, m: Module, words: list[Value], increments: list[Value]) -> Value:
        """Return the sum of words and increment bits, from a binary tree of two-input additions."""
        if self.registered_level is not None:
            words, increments = self._registered(m, words), self._registered(m, increments)
        levels = (len(words) - 1).bit_length()
        for level in range(levels):
            following: list[Value] = []
            for first, second in zip(words[::2], words[1::2], strict=False):
                total = Signal(min(self.total_bits, max(len(first), len(second)) + 1))
                m.d.comb += total.eq(first + second + (increments.pop() if increments else 0))
                following.append(total)
            words = [*following, *words[len(words) // 2 * 2 :]]
            if self.registered and level == (levels - 1) // 2:
                words, increments = self._registered(m, words), self._registered(m, increments)
        return words[0]

    def _registered(self, m: Module, values: list[Value]) -> list[Value]:
        """Return the values, each delayed by a pipeline register. Constants need no register."""
        return [
            value if isinstance(value, Const) else delayed(m, value, 1, self.enable, "register") for value in values
        ]

    def row(self, m: Module, first: Value, second: Value, third: Value, lowest: Value) -> tuple[Value, Value]:
        """Return sum word and carry word of a carry-save adder. `lowest` becomes the lowest bit of the carry word."""
        bits = max(len(first), len(second), len(third))
        # Bits of the sum word (`total`) and of the carry word of a carry-save adder:
        #
        #     bit       n                                  0
        #     total     XOR of the three words             XOR of the three words
        #     carry     majority of the bits n - 1         lowest
        total = Signal(bits)
        carry = Signal(min(bits + 1, self.total_bits))
        m.d.comb += [
            total.eq(first ^ second ^ third),
            carry.eq(Cat(lowest, (first & second) | (third & (first | second)))),
        ]
        return total, carry
