"""The reduce stage: every aligned term and the accumulator, in one exact sum."""

from amaranth.hdl import Const, Module, Mux, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .config import CoreConfig
from .group import GROUP_SUM_BITS
from .reduce import SumTree
from .widths import Widths

__all__ = ["Accumulate"]


class Accumulate(wiring.Component):
    """Add every aligned term and the accumulator. Combinational.

    ``total = c_term + (sum of terms + sum of group_sums) * 2**integer_bits + sum of group_terms``, the sums of 4-bit
    integers only where `integer_groups` is set. No reachable terms overflow the total.

    Parameters
    ----------
    config : CoreConfig
        Formats and step size; trees of what it lacks are not built.

    Members
    -------
    terms : In(signed(Widths.term_bits)).array(config.term_slots)
        Aligned products in units of the alignment grid, or integers.
    group_sums : In(signed(13)).array(groups)
        Exact sums of 16 products of 4-bit elements.
    group_terms : In(signed(Widths.group_term_bits)).array(groups)
        Scaled groups of packed e2m1 in units of the block grid.
    integer_groups : In(1)
        The 4-bit elements are integers.
    c_term : In(signed(Widths.total_bits))
        The aligned accumulator.
    total : Out(signed(Widths.total_bits))
        The exact sum.

    Notes
    -----
    Source: sums inside a step are exact and without intermediate normalisation (measured on an H200).
    """

    def __init__(self, config: CoreConfig) -> None:
        self.config = config
        self.widths = widths = Widths(config)
        super().__init__(
            {
                "terms": In(signed(widths.term_bits)).array(config.term_slots),
                "group_sums": In(signed(GROUP_SUM_BITS)).array(widths.integer_groups),
                "group_terms": In(signed(widths.group_term_bits)).array(widths.scaled_groups),
                "integer_groups": In(1),
                "c_term": In(signed(widths.total_bits)),
                "total": Out(signed(widths.total_bits)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the trees."""
        m = Module()
        total: Value = self.c_term
        integers: Value = Const(0, signed(1))
        for name, gate in (("terms", Const(1)), ("group_sums", self.integer_groups), ("group_terms", Const(1))):
            ports = getattr(self, name)
            if not ports:
                continue
            m.submodules[f"{name}_tree"] = tree = SumTree(len(ports), len(ports[0]))
            m.d.comb += [term.eq(port) for term, port in zip(tree.terms, ports, strict=True)]
            if name == "group_terms":
                total = total + tree.total
            else:
                integers = integers + Mux(gate, tree.total, 0)
        m.d.comb += self.total.eq(total + (integers << self.widths.integer_bits))
        return m
