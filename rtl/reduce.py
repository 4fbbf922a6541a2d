"""Accumulator trees: exact sums of signed terms."""

from amaranth.hdl import Module, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["SumTree", "sum_bits"]


def sum_bits(term_bits: int, count: int) -> int:
    """Return the signed width that holds the sum of `count` signed terms of `term_bits`."""
    return term_bits + (count - 1).bit_length()


class SumTree(wiring.Component):
    """Sum signed terms exactly, as a balanced tree. Combinational.

    A granularity uses as many terms as a step holds, 8 for tf32, 16 for 16-bit, 32 for 8-bit elements; the rest are
    zero. Order cannot matter, since nothing is rounded.

    Parameters
    ----------
    count : int
        Terms.
    term_bits : int
        Signed width of a term.

    Members
    -------
    terms : In(signed(term_bits)).array(count)
        Terms.
    total : Out(signed(sum_bits(term_bits, count)))
        Their sum.

    Notes
    -----
    Source: sums inside a step are exact and without intermediate normalisation (measured on an H200).
    """

    def __init__(self, count: int, term_bits: int) -> None:
        self.count = count
        self.term_bits = term_bits
        super().__init__(
            {"terms": In(signed(term_bits)).array(count), "total": Out(signed(sum_bits(term_bits, count)))}
        )

    def elaborate(self, platform: object) -> Module:
        """Build the tree, one named signal a node."""
        m = Module()
        level = [self.terms[i] for i in range(self.count)]
        bits = self.term_bits
        while len(level) > 1:
            bits += 1
            following = []
            for left, right in zip(level[::2], level[1::2], strict=False):
                node = Signal(signed(bits))
                m.d.comb += node.eq(left + right)
                following.append(node)
            level = following + level[len(level) // 2 * 2 :]
        m.d.comb += self.total.eq(level[0])
        return m
