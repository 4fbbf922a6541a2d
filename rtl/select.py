"""Operand selection: four units of B in, two out, for every chunk of a step."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..isa.metadata import UNITS_PER_CHUNK
from .config import CoreConfig
from .metadata import MetadataDecoder, RuleCode

__all__ = ["OperandSelect", "Selector"]


class Selector(wiring.Component):
    """Pick two of the four units of a chunk. Combinational.

    ``output0 = OR of units[i] where select0[i]``, and the same for 1: the selected unit, or zero if none is.

    One circuit serves every granularity: a unit is an element for 2:4, half a tf32 for 1:2, and a pair of 4-bit
    elements for pair-wise 4:8.

    Parameters
    ----------
    unit_bits : int
        Width of a unit: 16 or 8.

    Members
    -------
    units : In(unit_bits).array(4)
        The chunk, lowest k first.
    select0, select1 : In(4)
        One-hot, or none.
    output0, output1 : Out(unit_bits)
        Operands of stored slots 0 and 1.

    Notes
    -----
    Source: measured on an H200 for 8- and 16-bit units and all sixteen nibbles.
    """

    def __init__(self, unit_bits: int) -> None:
        self.unit_bits = unit_bits
        super().__init__(
            {
                "units": In(unit_bits).array(UNITS_PER_CHUNK),
                "select0": In(UNITS_PER_CHUNK),
                "select1": In(UNITS_PER_CHUNK),
                "output0": Out(unit_bits),
                "output1": Out(unit_bits),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the multiplexers."""
        m = Module()
        for select, output in ((self.select0, self.output0), (self.select1, self.output1)):
            gated = [Mux(select[i], unit, 0) for i, unit in enumerate(self.units)]
            m.d.comb += output.eq(gated[0] | gated[1] | gated[2] | gated[3])
        return m


class OperandSelect(wiring.Component):
    """Pair every stored element of a step with its operand of B. Combinational.

    Sparse: each chunk of B (four units of 16 bits for wide elements, of 8 bits for the others) goes through a
    :class:`Selector` under its nibble. Dense: the low half of B passes as it stands.

    Parameters
    ----------
    config : CoreConfig
        Step size, selector, and which unit widths its formats need.

    Members
    -------
    a : In(8 * step_bytes)
        Stored elements of A.
    b : In(16 * step_bytes)
        B, twice as many bytes.
    nibbles : In(4 * chunks)
        Metadata; wide elements use the lower half.
    wide : In(1)
        Elements take 16 bits or more.
    sparse : In(1)
        Select by metadata.
    rule : In(RuleCode)
        Rule that legality is reported under.
    stored : Out(8 * step_bytes)
        A; in a ``mux3`` build with the elements exchanged where the selector exchanges their operands.
    selected : Out(8 * step_bytes)
        The B operand of each of them.
    illegal : Out(chunks)
        Chunks whose nibble the rule does not define; none for dense steps.

    Notes
    -----
    Source: one selector serves every granularity (measured on an H200).
    """

    def __init__(self, config: CoreConfig) -> None:
        self.config = config
        bits = 8 * config.step_bytes
        super().__init__(
            {
                "a": In(bits),
                "b": In(2 * bits),
                "nibbles": In(4 * config.chunks),
                "wide": In(1),
                "sparse": In(1),
                "rule": In(RuleCode),
                "stored": Out(bits),
                "selected": Out(bits),
                "illegal": Out(config.chunks),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the decoders and the selectors of every width needed."""
        m = Module()
        config = self.config
        decoders = []
        for chunk in range(config.chunks):
            m.submodules[f"metadata{chunk}"] = decoder = MetadataDecoder(config.selector)
            m.d.comb += [decoder.nibble.eq(self.nibbles.word_select(chunk, 4)), decoder.rule.eq(self.rule)]
            decoders.append(decoder)
        flags = Cat(~decoder.legal for decoder in decoders)
        m.d.comb += self.illegal.eq(Mux(self.sparse, Mux(self.wide, flags[: config.chunks // 2], flags), 0))

        widths = [bits for bits in (16, 8) if any((e.container_bits >= 16) == (bits == 16) for e in config.elements)]
        by_width = [self._select(m, bits, decoders) for bits in widths]
        stored, selected = by_width[0]
        if len(widths) > 1:
            narrow_stored, narrow_selected = by_width[1]
            selected = Mux(self.wide, selected, narrow_selected)
            stored = Mux(self.wide, stored, narrow_stored) if config.selector == "mux3" else stored
        m.d.comb += [
            self.stored.eq(stored),
            self.selected.eq(Mux(self.sparse, selected, self.b[: 8 * config.step_bytes])),
        ]
        return m

    def _select(self, m: Module, bits: int, decoders: list[MetadataDecoder]) -> tuple[Value, Value]:
        """Return A and selected B with units of so many bits."""
        stored, selected = [], []
        for chunk in range(8 * self.config.step_bytes // (2 * bits)):
            decoder = decoders[chunk]
            m.submodules[f"select{bits}_{chunk}"] = selector = Selector(bits)
            units = self.b.word_select(chunk, UNITS_PER_CHUNK * bits)
            m.d.comb += [selector.units[i].eq(units.word_select(i, bits)) for i in range(UNITS_PER_CHUNK)]
            m.d.comb += [selector.select0.eq(decoder.select0), selector.select1.eq(decoder.select1)]
            selected += [selector.output0, selector.output1]
            pair = self.a.word_select(chunk, 2 * bits)
            if self.config.selector == "mux3":
                pair = Mux(decoder.swap & self.sparse, Cat(pair[bits:], pair[:bits]), pair)
            stored.append(pair)
        a, b = (Signal(8 * self.config.step_bytes) for _ in range(2))
        m.d.comb += [a.eq(Cat(*stored)), b.eq(Cat(*selected))]
        return a, b
