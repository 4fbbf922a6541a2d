"""The metadata stage decodes metadata nibbles to multiplexer selects, and flags illegal nibbles."""

from amaranth.hdl import Cat, Const, Module, Mux, Value
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out

from ..isa import metadata as isa
from .cells.described import DescribedSignature
from .config import MUXES, CoreConfig

__all__ = ["KEPT_UNITS", "MetadataStage", "NibbleDecoder", "RuleCode", "selects_layout"]

#: Number of kept elements per chunk: elements that A stores, and elements of B that metadata selects.
KEPT_UNITS = 2


class RuleCode(enum.Enum, shape=3):
    """Hardware codes of metadata rules (sets of legal nibbles), named as in :data:`sptc.isa.metadata.RULES`."""

    PLAIN = 0
    ORDERED = 1
    TF32 = 2
    WGMMA = 3
    TCGEN05 = 4


class NibbleDecoder(wiring.Component):
    """Decode one metadata nibble to two multiplexer selects, one for each stored element of A. Combinational.

    ``i0 = nibble & 3`` is the index of the unit that stored slot 0 selects, and ``i1 = nibble >> 2`` is the index for
    stored slot 1. With ``mux3``, slot 0 reaches units 0 to 2, and slot 1 reaches units 1 to 3. Under the plain rule the
    indices of the two slots are exchanged if that makes both units reachable. A slot whose unit is not reachable
    selects nothing. Whether a nibble is legal does not affect the selection.

    Source: PTX ISA 9.7.14.6.1 (rules); measured on an H200 for all sixteen nibbles (two independent 4:1 multiplexers);
    code that the CUDA 13.0 assembler emits for sm_100a and sm_120a (the exchange; 3:1 multiplexers are our inference).

    Parameters
    ----------
    mux : str
        ``mux4`` or ``mux3``.
    """

    def __init__(self, mux: str) -> None:
        if mux not in MUXES:
            raise ValueError(f"mux must be {' or '.join(map(repr, MUXES))}, not {mux!r}")
        self.mux = mux
        ports = {
            "nibble": (In(4), "Metadata nibble of the chunk."),
            "rule": (In(RuleCode), "Metadata rule of the step; under a code without a rule no nibble is legal."),
            "index0": (Out(2), "Unit index of slot 0, after any exchange."),
            "index1": (Out(2), "Unit index of slot 1, after any exchange."),
            "select0": (Out(4), "One-hot form of index0; zero for an unreachable unit."),
            "select1": (Out(4), "One-hot form of index1; zero for an unreachable unit."),
            "swap": (Out(1), "The two stored units of A must be exchanged."),
            "legal": (Out(1), "The rule defines the nibble."),
        }
        super().__init__(DescribedSignature(ports))

    def elaborate(self, platform: object) -> Module:
        """Build the decoder of one metadata nibble."""
        m = Module()
        n = self.nibble
        i0, i1 = n[:2], n[2:]
        if self.mux == "mux3":
            # The 3:1 multiplexer of kept element 0 cannot select unit 3 of a chunk, and that of kept element 1 cannot
            # select unit 0. If i0 = 3 or i1 = 0, different indices are therefore exchanged. Nibbles before and after:
            #
            #     i1 i0        01     02     03     13     23
            #     exchanged    10     20     30     31     32
            plain = self.rule == RuleCode.PLAIN
            m.d.comb += self.swap.eq(plain & ((n[0] & ~n[3]) | (n[1] & ~n[2])))
        m.d.comb += [
            self.index0.eq(Mux(self.swap, i1, i0)),
            self.index1.eq(Mux(self.swap, i0, i1)),
        ]
        reach0, reach1 = (0b0111, 0b1110) if self.mux == "mux3" else (0b1111, 0b1111)
        m.d.comb += [
            self.select0.eq(_one_hot(self.index0) & reach0),
            self.select1.eq(_one_hot(self.index1) & reach1),
        ]
        # Key: codes of metadata rules (sets of legal nibbles). Value: the nibbles that only these rules contain.
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


def selects_layout(config: CoreConfig) -> data.ArrayLayout:
    """Return the layout of the decoded metadata of a row of A: a 4-bit select signal for each element that is kept.

    A select is one-hot or zero. The first index is the number of the chunk. Chunks have 8-bit units, or 16-bit units if
    all elements are wide.
    """
    lanes = config.chunks // 2 if config.always_wide else config.chunks
    return data.ArrayLayout(data.ArrayLayout(isa.UNITS_PER_CHUNK, KEPT_UNITS), lanes)


class MetadataStage(wiring.Component):
    """Decode the metadata of one row of A for one cycle, for all dot-product units of the row. Combinational.

    Source: which elements of B are multiplied by a row of A depends only on the metadata of this row (measured on an
    H200).
    """

    def __init__(self, config: CoreConfig) -> None:
        self.config = config
        bits = 8 * config.step_bytes
        nibbles = "Metadata nibbles in the order of nibble_order; in dense steps each nibble is 0b0100."
        stored = "Stored elements of A; with 3:1 multiplexers, the two kept elements of a chunk may be exchanged."
        ports = {
            "a": (In(bits), "Stored elements of A."),
            "nibbles": (In(4 * config.chunks), nibbles),
            "wide": (In(1), "Elements take 16 bits or more."),
            "sparse": (In(1), "The step is sparse: metadata selects B."),
            "rule": (In(RuleCode), "Rule that nibbles are checked against."),
            "stored": (Out(bits), stored),
            "selects": (Out(selects_layout(config)), "One-hot select of each kept element; zero selects no unit."),
            "illegal": (Out(config.chunks), "Bit c: the rule does not define the nibble of chunk c; 0 in dense steps."),
        }
        super().__init__(DescribedSignature(ports))

    def elaborate(self, platform: object) -> Module:
        """Build the nibble decoders. With 3:1 multiplexers, also build the exchange of kept elements of A."""
        m = Module()
        config = self.config
        wide = self.wide if config.interleaved else Const(config.always_wide)
        decoders = []
        for lane, select in enumerate(self.selects):
            m.submodules[f"metadata{lane}"] = decoder = NibbleDecoder(config.mux)
            m.d.comb += [
                decoder.nibble.eq(self.nibbles.word_select(lane, 4)),
                decoder.rule.eq(self.rule),
                select[0].eq(decoder.select0),
                select[1].eq(decoder.select1),
            ]
            decoders.append(decoder)
        # If the configuration interleaves chunks along K, a chunk of 16-bit elements uses two decoders, which get the
        # same nibble.
        by_chunk = {True: decoders[::2] if config.interleaved else decoders, False: decoders}
        flags = {width: Cat(self.sparse & ~decoder.legal for decoder in by_chunk[width]) for width in by_chunk}
        m.d.comb += self.illegal.eq(Mux(wide, flags[True], flags[False]))
        if config.mux == "mux3":
            exchanged = {width: self._exchanged(by_chunk[width], 16 if width else 8) for width in by_chunk}
            m.d.comb += self.stored.eq(Mux(wide, exchanged[True], exchanged[False]))
        else:
            m.d.comb += self.stored.eq(self.a)
        return m

    def _exchanged(self, decoders: list[NibbleDecoder], bits: int) -> Value:
        """Return A with two stored elements exchanged wherever the decoder of their metadata nibble sets `swap`."""
        pairs = [self.a[first : first + 2 * bits] for first in range(0, len(self.a), 2 * bits)]
        return Cat(
            Mux(decoder.swap, Cat(pair[bits:], pair[:bits]), pair)
            for decoder, pair in zip(decoders, pairs, strict=False)
        )


def _one_hot(index: Value) -> Value:
    return Cat(index == position for position in range(isa.UNITS_PER_CHUNK))
