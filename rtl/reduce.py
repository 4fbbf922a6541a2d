"""The reduce stage computes the exact sum of all aligned terms and the accumulator."""

from collections.abc import Collection

from amaranth.hdl import Cat, Const, Module, Mux, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .cells.adder import Adder
from .cells.carry_save_tree import CarrySaveTree
from .cells.described import DescribedSignature
from .config import CoreConfig
from .product_group import GROUP_SUM_BITS
from .widths import Widths

__all__ = ["ReduceStage", "addends_signature"]

#: Number of adder levels before the ``align`` register. A register before all levels would store the most bits. A
#: register after more levels would let glitches of the alignment shifters pass through more adders, and would make the
#: pipeline stage before the register the slowest stage.
_REGISTERED_LEVEL = 3


def addends_signature(config: CoreConfig) -> DescribedSignature:
    """Return the signature (ports) of the aligned terms. A negative term is a one's complement and an increment bit."""
    widths = Widths(config)
    term, group = Out(signed(widths.term_bits)), Out(signed(widths.group_term_bits))
    terms = (
        "Aligned products, sign-extended to the widest: floats in units of 2**(E - F), integers times 2**integer_bits."
    )
    group_sums = "Exact sums of 16 products of 4-bit elements."
    group_terms = "Aligned scaled groups, or parts of groups, in units of 2**(E - F)."
    return DescribedSignature(
        {
            "terms": (term.array(config.term_slots), terms),
            "increments": (Out(1).array(config.term_slots), "Increments: 1 for each term that is a one's complement."),
            "group_sums": (Out(signed(GROUP_SUM_BITS)).array(widths.integer_groups), group_sums),
            "group_terms": (group.array(widths.scaled_groups * widths.parts), group_terms),
            "group_increments": (
                Out(widths.scaled_groups * widths.parts),
                "Increments: 1 for each of group_terms that is a one's complement.",
            ),
            "c_term": (Out(signed(widths.total_bits)), "Aligned accumulator."),
            "c_increment": (Out(1), "Increment: 1 if c_term is a one's complement."),
        }
    )


class ReduceStage(wiring.Component):
    """Add all aligned terms and the accumulator. Combinational, or with registers that add one cycle of latency each.

    ``total = c_term + sum of terms + sum of group_sums * 2**integer_bits + sum of group_terms + number of increments``,
    with `group_sums` only while `integer_groups` is set. Terms that can occur do not overflow the total.

    Source: sums inside a step are exact and without intermediate normalisation (measured on an H200).

    Parameters
    ----------
    config : CoreConfig
        Configuration with the formats and the step size. Logic for other formats is not built.
    cuts : collection of str, optional
        Pipeline registers: ``align`` is inside the adder tree, and ``tree`` is after the adder tree.
    """

    def __init__(self, config: CoreConfig, cuts: Collection[str] = ()) -> None:
        self.config = config
        self.cuts = cuts
        self.widths = Widths(config)
        ports = {
            "enable": (In(1, init=1), "Clock enable of the pipeline registers."),
            "i": (In(addends_signature(config)), "Terms to add."),
            "integer_groups": (In(1), "The 4-bit elements are integers."),
            "total": (Out(signed(self.widths.total_bits)), "Exact sum of all terms."),
        }
        super().__init__(DescribedSignature(ports))

    def elaborate(self, platform: object) -> Module:
        """Build the carry-save tree and the carry-propagate adder that adds its two output words."""
        m = Module()
        i = self.i
        # Number of addends of each kind, and bits of the total that these addends occupy, for two presets:
        #
        #     addend             ampere, total of 38 bits         blackwell, total of 49 bits
        #     terms              8 of 26 ... 0, 8 of 20 ... 0     32 of 27 ... 0
        #     group_sums         2 of 16 ... 4, integers
        #     group_terms                                         4 of 46 ... 0, packed e2m1
        #     c_term             37 ... 0                         48 ... 0
        low = Const(0, self.widths.integer_bits)
        terms = [term[: slot.term_bits].as_signed() for slot, term in zip(self.widths.slots, i.terms, strict=False)]
        group_sums = [Cat(low, Mux(self.integer_groups, total, 0)).as_signed() for total in i.group_sums]
        addends = [*terms, *group_sums, *i.group_terms, i.c_term]
        level = _REGISTERED_LEVEL if "align" in self.cuts else None
        m.submodules.tree = tree = CarrySaveTree(
            [len(term) for term in addends], self.widths.total_bits, level, "tree" in self.cuts
        )
        m.submodules.adder = adder = Adder(self.widths.total_bits)
        m.d.comb += [port.eq(term) for port, term in zip(tree.terms, addends, strict=True)]
        # The sums of groups of integer products are already in two's complement. Only aligned terms, scaled groups and
        # the accumulator have an increment bit, which completes their two's complement.
        m.d.comb += [
            tree.enable.eq(self.enable),
            tree.increments.eq(Cat(*i.increments, Const(0, len(group_sums)), i.group_increments, i.c_increment)),
            adder.word0.eq(tree.word0),
            adder.word1.eq(tree.word1),
            adder.carry.eq(tree.carry),
            self.total.eq(adder.total),
        ]
        return m
