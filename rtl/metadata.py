"""Metadata decode: a nibble to the selects of two multiplexers, and whether the running instruction defines it."""

from amaranth.hdl import Cat, Module, Mux, Value
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In, Out

from ..isa import metadata as isa
from .config import SELECTORS

__all__ = ["MetadataDecoder", "RuleCode"]


class RuleCode(enum.Enum, shape=3):
    """Run-time rule; the names are those of :data:`sptc.isa.metadata.RULES`."""

    PLAIN = 0
    ORDERED = 1
    TF32 = 2
    WGMMA = 3
    TCGEN05 = 4


class MetadataDecoder(wiring.Component):
    """Decode one nibble. Combinational.

    ``i0 = nibble & 3`` selects the unit of stored slot 0, ``i1 = nibble >> 2`` that of slot 1. In a ``mux3`` build slot
    0 reaches units 0 to 2 and slot 1 units 1 to 3; a plain nibble's slots first trade places where that makes both
    reachable, and an unreachable unit selects nothing. Legality never changes what is selected.

    Parameters
    ----------
    selector : str
        ``mux4`` or ``mux3``.

    Members
    -------
    nibble : In(4)
        Metadata.
    rule : In(RuleCode)
        Rule of the running instruction; a code of none defines no nibble.
    index0, index1 : Out(2)
        Unit indices, after any exchange.
    select0, select1 : Out(4)
        The same, one-hot; none for an unreachable unit.
    swap : Out(1)
        The two stored elements of A must trade places.
    legal : Out(1)
        The rule defines the nibble.

    Notes
    -----
    Source: PTX ISA 9.7.14.6.1 (rules); measured on an H200 for all sixteen nibbles (two independent 4:1 multiplexers);
    code that the CUDA 13.0 assembler emits for sm_100a and sm_120a (the exchange; 3:1 multiplexers are our inference).
    """

    def __init__(self, selector: str) -> None:
        if selector not in SELECTORS:
            raise ValueError(f"selector must be {' or '.join(map(repr, SELECTORS))}, not {selector!r}")
        self.selector = selector
        super().__init__(
            {
                "nibble": In(4),
                "rule": In(RuleCode),
                "index0": Out(2),
                "index1": Out(2),
                "select0": Out(4),
                "select1": Out(4),
                "swap": Out(1),
                "legal": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the decoder."""
        m = Module()
        n = self.nibble
        i0, i1 = n[:2], n[2:]
        if self.selector == "mux3":
            plain = self.rule == RuleCode.PLAIN
            m.d.comb += self.swap.eq(plain & ((n[0] & ~n[3]) | (n[1] & ~n[2])))
        m.d.comb += [
            self.index0.eq(Mux(self.swap, i1, i0)),
            self.index1.eq(Mux(self.swap, i0, i1)),
        ]
        reach0, reach1 = (0b0111, 0b1110) if self.selector == "mux3" else (0b1111, 0b1111)
        m.d.comb += [
            self.select0.eq(_one_hot(self.index0) & reach0),
            self.select1.eq(_one_hot(self.index1) & reach1),
        ]
        # Nibbles that the same rules define, by those rules.
        groups: dict[tuple[RuleCode, ...], list[int]] = {}
        for nibble in range(1 << len(n)):
            rules = tuple(code for code in RuleCode if nibble in isa.RULES[code.name.lower()].legal)
            groups.setdefault(rules, []).append(nibble)
        legal = [
            Cat(self.rule == rule for rule in rules).any() & Cat(n == nibble for nibble in nibbles).any()
            for rules, nibbles in groups.items()
            if rules
        ]
        m.d.comb += self.legal.eq(Cat(legal).any())
        return m


def _one_hot(index: Value) -> Value:
    return Cat(index == position for position in range(isa.UNITS_PER_CHUNK))
