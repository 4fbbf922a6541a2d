"""Operand selection: four units of B in, two out, for every chunk of a step, and the decoder of a row's metadata."""

from amaranth.hdl import Cat, Const, Module, Mux, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..isa.metadata import UNITS_PER_CHUNK
from .adder import kept
from .config import CoreConfig
from .metadata import MetadataDecoder, RuleCode

__all__ = ["OperandSelect", "RowDecode", "Selector", "selects_layout"]

_KEPT_UNITS = 2


class Selector(wiring.Component):
    """Pick one of the four units of a chunk, or of several chunks side by side. Combinational.

    ``output = OR of units[i] where select[i]``, part by part: the selected unit, or zero if none is.

    Parameters
    ----------
    unit_bits : int
        Width of a unit: 16 or 8.
    parts : int
        Parts of a unit that are picked by themselves: where chunks take turns byte by byte, the two bytes.

    Members
    -------
    units : In(unit_bits).array(4)
        The chunk, lowest k first.
    select : In(parts).array(4)
        Of each part one unit, or none.
    output : Out(unit_bits)
        The operand.

    Notes
    -----
    Source: measured on an H200 for 8- and 16-bit units and all sixteen nibbles.
    """

    def __init__(self, unit_bits: int, parts: int = 1) -> None:
        self.unit_bits = unit_bits
        self.parts = parts
        super().__init__(
            {
                "units": In(unit_bits).array(UNITS_PER_CHUNK),
                "select": In(parts).array(UNITS_PER_CHUNK),
                "output": Out(unit_bits),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the gates."""
        m = Module()
        width = self.unit_bits // self.parts
        gated = [
            unit & Cat(bit.replicate(width) for bit in select)
            for unit, select in zip(self.units, self.select, strict=True)
        ]
        # Two AND-OR-invert gates and a NAND for each bit. Their nets are kept: a mapper that merges them with what
        # follows makes more of them.
        halves = [
            kept(m, ~(even | odd), f"half_{place}")
            for place, (even, odd) in enumerate(zip(gated[::2], gated[1::2], strict=True))
        ]
        m.d.comb += self.output.eq(~(halves[0] & halves[1]))
        return m


def selects_layout(config: CoreConfig) -> data.ArrayLayout:
    """Return the decoded metadata of a row's step: of each lane that selects, for either stored slot one unit of four.

    A lane is a chunk of 8-bit units; of a datapath of wide elements alone, one of 16-bit units. One-hot, or no unit.
    """
    lanes = config.chunks // 2 if _always_wide(config) else config.chunks
    return data.ArrayLayout(data.ArrayLayout(UNITS_PER_CHUNK, _KEPT_UNITS), lanes)


class RowDecode(wiring.Component):
    """Decode the metadata of a row's step; all units of the row select by it. Combinational.

    Parameters
    ----------
    config : CoreConfig
        Step size, selector, and which unit widths its formats need.

    Members
    -------
    a : In(8 * step_bytes)
        Stored elements of A.
    nibbles : In(4 * chunks)
        Metadata in the order of :func:`~sptc.rtl.order.nibble_order`; that of dense steps is
        :data:`~sptc.rtl.order.DENSE_NIBBLE`.
    wide : In(1)
        Elements take 16 bits or more.
    sparse : In(1)
        The step selects.
    rule : In(RuleCode)
        Rule that legality is reported under.
    stored : Out(8 * step_bytes)
        A; in a ``mux3`` build with the elements exchanged where the selector exchanges their operands.
    selects : Out(selects_layout(config))
        The unit that each stored slot meets.
    illegal : Out(chunks)
        Chunks whose nibble the rule does not define; none for dense steps.

    Notes
    -----
    Source: what a row of A meets depends on nothing but its metadata (measured on an H200).
    """

    def __init__(self, config: CoreConfig) -> None:
        self.config = config
        bits = 8 * config.step_bytes
        super().__init__(
            {
                "a": In(bits),
                "nibbles": In(4 * config.chunks),
                "wide": In(1),
                "sparse": In(1),
                "rule": In(RuleCode),
                "stored": Out(bits),
                "selects": Out(selects_layout(config)),
                "illegal": Out(config.chunks),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the decoders, and in a ``mux3`` build the exchange."""
        m = Module()
        config = self.config
        wide = self.wide if config.interleaved else Const(_always_wide(config))
        decoders = []
        for lane, select in enumerate(self.selects):
            m.submodules[f"metadata{lane}"] = decoder = MetadataDecoder(config.selector)
            m.d.comb += [
                decoder.nibble.eq(self.nibbles.word_select(lane, 4)),
                decoder.rule.eq(self.rule),
                select[0].eq(decoder.select0),
                select[1].eq(decoder.select1),
            ]
            decoders.append(decoder)
        # A chunk of wide elements is two lanes, with one nibble.
        by_chunk = {True: decoders[::2] if config.interleaved else decoders, False: decoders}
        flags = {width: Cat(self.sparse & ~decoder.legal for decoder in by_chunk[width]) for width in by_chunk}
        m.d.comb += self.illegal.eq(Mux(wide, flags[True], flags[False]))
        if config.selector == "mux3":
            exchanged = {width: self._exchanged(by_chunk[width], 16 if width else 8) for width in by_chunk}
            m.d.comb += self.stored.eq(Mux(wide, exchanged[True], exchanged[False]))
        else:
            m.d.comb += self.stored.eq(self.a)
        return m

    def _exchanged(self, decoders: list[MetadataDecoder], bits: int) -> Value:
        """Return A with the two units of a chunk exchanged where its decoder says so."""
        pairs = [self.a[first : first + 2 * bits] for first in range(0, len(self.a), 2 * bits)]
        return Cat(
            Mux(decoder.swap, Cat(pair[bits:], pair[:bits]), pair)
            for decoder, pair in zip(decoders, pairs, strict=False)
        )


class OperandSelect(wiring.Component):
    """Pair every stored element of a step with its operand of B. Combinational.

    Each chunk of B has four units, of 16 bits for wide elements and of 8 bits for the others, and its metadata names
    those that meet the two stored units of A. A unit is an element for 2:4, half a tf32 for 1:2, and a pair of 4-bit
    elements for pair-wise 4:8. One circuit serves every granularity: see :func:`~sptc.rtl.order.byte_order`.

    Parameters
    ----------
    config : CoreConfig
        Step size, and which unit widths its formats need.

    Members
    -------
    b : In(16 * step_bytes)
        B in the order of :func:`~sptc.rtl.order.byte_order`.
    selects : In(selects_layout(config))
        What :class:`RowDecode` decoded.
    selected : Out(8 * step_bytes)
        The B operand of each stored element, at the byte that :func:`~sptc.rtl.order.selected_byte` says.

    Notes
    -----
    Source: one selector serves every granularity (measured on an H200).
    """

    def __init__(self, config: CoreConfig) -> None:
        self.config = config
        bits = 8 * config.step_bytes
        super().__init__({"b": In(2 * bits), "selects": In(selects_layout(config)), "selected": Out(bits)})

    def elaborate(self, platform: object) -> Module:
        """Build the selectors."""
        m = Module()
        config = self.config
        unit_bits = 16 if _always_wide(config) else 8
        parts = 2 if config.interleaved else 1
        lanes = list(self.selects)
        for group in range(len(lanes) // parts):
            together = lanes[parts * group : parts * (group + 1)]
            chunk = self.b.word_select(group, UNITS_PER_CHUNK * parts * unit_bits)
            for slot in range(_KEPT_UNITS):
                m.submodules[f"select{slot}_{group}"] = selector = Selector(parts * unit_bits, parts)
                for unit in range(UNITS_PER_CHUNK):
                    m.d.comb += [
                        selector.units[unit].eq(chunk.word_select(unit, parts * unit_bits)),
                        selector.select[unit].eq(Cat(lane[slot][unit] for lane in together)),
                    ]
                output = self.selected.word_select(_KEPT_UNITS * group + slot, parts * unit_bits)
                m.d.comb += output.eq(selector.output)
        return m


def _always_wide(config: CoreConfig) -> bool:
    return all(element.container_bits >= 16 for element in config.elements)
