"""Proofs about metadata decoding: legal nibbles, select signals, and pairs that 3:1 multiplexers exchange."""

from amaranth.hdl import Array, Cat, Const, Mux, Signal, Value

from ..isa.metadata import UNITS_PER_CHUNK
from ..rtl.config import CoreConfig
from ..rtl.metadata import NibbleDecoder, RuleCode
from ..rtl.order import OrderedSelect
from .harness import Harness
from .properties import Topic, anonymous
from .selection import UNIT_BITS, UNREACHED, assume_possible_width, chunk_muxes, exchanged_nibble

__all__ = ["METADATA", "legal"]

METADATA = Topic("metadata")


def legal(nibble: Value, rule: RuleCode) -> Value:
    """Return whether a metadata rule defines a nibble, as stated in PTX ISA 9.7.14.6.1, 9.7.15.6.1 and 9.7.16."""
    i0, i1 = nibble[:2], nibble[2:]
    return {
        RuleCode.PLAIN: i0 != i1,
        RuleCode.ORDERED: i0 < i1,
        RuleCode.TF32: (nibble == 0b0100) | (nibble == 0b1110),
        RuleCode.WGMMA: i0 != i1,
        RuleCode.TCGEN05: (i0 != i1) & (i0 != 3) & (i1 != 0),
    }[rule]


@METADATA.property("legal", lambda config: [(config.mux,)])
def _legality(h: Harness, mux: str) -> None:
    """A nibble is flagged as legal if and only if the rule code is valid and the rule defines the nibble.

    Every nibble that the rule ORDERED defines is also legal under the rule PLAIN.
    """
    nibble, rule = h.free("nibble", 4), h.free("rule", RuleCode)
    decoder = h.add("decoder", NibbleDecoder(mux), nibble=nibble, rule=rule)
    known: Value = Const(0)
    for code in RuleCode:
        runs = rule == code
        known = known | runs
        h.claim(code.name.lower(), ~runs | (decoder.legal == legal(nibble, code)))
        h.cover(f"{code.name.lower()}_legal", runs & decoder.legal)
        h.cover(f"{code.name.lower()}_illegal", runs & ~decoder.legal)
    h.claim("unknown_rule", known | ~decoder.legal)
    ordered = h.add("ordered", NibbleDecoder(mux), nibble=nibble, rule=RuleCode.ORDERED)
    plain = h.add("plain", NibbleDecoder(mux), nibble=nibble, rule=RuleCode.PLAIN)
    h.claim("ordered_is_plain", ~ordered.legal | plain.legal)


@METADATA.property("selects", lambda config: [(config.mux,)])
def _selects(h: Harness, mux: str) -> None:
    """Each select signal is one-hot at the nibble's index, or zero if a 3:1 multiplexer does not reach this index.

    A nibble that the step's metadata rule defines never selects a unit that a multiplexer does not reach. The proof
    excludes the rule WGMMA, because no GPU with 3:1 multiplexers has ``wgmma``.
    """
    nibble, rule = h.free("nibble", 4), h.free("rule", RuleCode)
    decoder = h.add("decoder", NibbleDecoder(mux), nibble=nibble, rule=rule)
    indices = exchanged_nibble(h, decoder, nibble)
    for slot, (index, select) in enumerate(((decoder.index0, decoder.select0), (decoder.index1, decoder.select1))):
        h.named(f"select{slot}", select)
        one_hot = Cat(select == 1 << unit for unit in range(UNITS_PER_CHUNK)).any()
        h.claim(f"index{slot}", index == indices.word_select(slot, 2))
        h.claim(f"one_hot{slot}", one_hot | ((select == 0) & (mux == "mux3")))
        h.claim(f"equal{slot}", ~one_hot | (select == Const(1, 4) << index))
        unreachable = (index == UNREACHED[slot]) & (mux == "mux3")
        h.claim(f"reach{slot}", one_hot == ~unreachable)
        foreign = (rule == RuleCode.WGMMA) & (mux == "mux3")
        h.claim(f"defined{slot}", one_hot | ~decoder.legal | foreign)
        for unit in range(UNITS_PER_CHUNK):
            if mux == "mux4" or unit != UNREACHED[slot]:
                h.cover(f"select{slot}_{unit}", select[unit])
    # The nibble selects elements i0 and i1 of four in B for two stored elements of A. Under the rule of plain ``.sp``,
    # the stored elements are exchanged if i0 > i1. The exception is i0 = 2 with i1 = 1: without an exchange, the first
    # 3:1 multiplexer reaches element 2, and the second 3:1 multiplexer reaches element 1.
    i0, i1 = nibble[:2], nibble[2:]
    falls = (i0 > i1) & ~((i0 == 2) & (i1 == 1))
    plain = (rule == RuleCode.PLAIN) & (mux == "mux3")
    h.claim("exchange", (plain & (i0 == i1)) | (decoder.swap == (plain & falls)))


@METADATA.property("exchange", lambda config: [(bits,) for bits in UNIT_BITS if config.mux == "mux3"])
def _exchange(h: Harness, unit_bits: int) -> None:
    """With the metadata of plain ``mma.sp``, two 3:1 multiplexers pair A and B in the same way as two 4:1 multiplexers.

    A pair is a stored element of A and the element of B by which the element of A is multiplied. The order of the two
    pairs may differ.
    """
    nibble = h.free("nibble", 4)
    stored = [h.free(f"stored{slot}", unit_bits) for slot in range(2)]
    units = [h.free(f"unit{unit}", unit_bits) for unit in range(UNITS_PER_CHUNK)]
    operands, swaps = [], []
    for mux in ("mux4", "mux3"):
        decoder, outputs = chunk_muxes(h, mux, mux, nibble, RuleCode.PLAIN, units)
        operands.append(outputs)
        swaps.append(decoder.swap)
    h.assume(legal(nibble, RuleCode.PLAIN))
    swap = h.named("swap", swaps[1])
    for slot in range(2):
        element = Mux(swap, stored[1 - slot], stored[slot])
        pairs = [Cat(stored[other], operands[0][other]) for other in (slot, 1 - slot)]
        h.claim(f"pair{slot}", Cat(element, operands[1][slot]) == Mux(swap, pairs[1], pairs[0]))
    h.cover("exchanged", swap)
    h.cover("in_place", ~swap)


@METADATA.property("chunk", lambda config: [(anonymous(config),)])
def _chunk(h: Harness, config: CoreConfig) -> None:
    """A metadata nibble affects only its own legality flag and the operands for its own two stored elements of A.

    The harness compares two copies of the selection whose inputs differ in one nibble. An illegal nibble therefore
    raises the flag of its own chunk only.
    """
    a, b = h.free("a", 8 * config.step_bytes), h.free("b", 16 * config.step_bytes)
    chunk = h.free("chunk", range(config.chunks))
    nibble, nibbles = h.free("other_nibble", 4), h.free("nibbles", 4 * config.chunks)
    wide, sparse, rule = h.free("wide"), h.free("sparse"), h.free("rule", RuleCode)
    changed = Signal(4 * config.chunks)
    h.m.d.comb += changed.eq(nibbles)
    h.m.d.comb += changed.word_select(chunk, 4).eq(nibble)
    first, second = (
        h.add(name, OrderedSelect(config), a=a, b=b, nibbles=value, wide=wide, sparse=sparse, rule=rule)
        for name, value in (("first", nibbles), ("second", changed))
    )
    assume_possible_width(h, config, wide)
    defined = Signal()
    words = [nibbles.word_select(index, 4) for index in range(config.chunks)]
    h.m.d.comb += defined.eq(Cat((rule == code) & legal(Array(words)[chunk], code) for code in RuleCode).any())
    chunks = Mux(wide, config.chunks // 2, config.chunks)
    h.claim("flag", first.illegal.bit_select(chunk, 1) == (sparse & (chunk < chunks) & ~defined))
    for index in range(config.chunks):
        other = index != chunk
        h.claim(f"flag{index}", ~other | (first.illegal[index] == second.illegal[index]))
        for bits, applies in ((16, ~wide), (32, wide)):
            place = slice(index * bits, (index + 1) * bits)
            if place.stop <= 8 * config.step_bytes:
                h.claim(f"operand{bits}_{index}", ~other | ~applies | (first.selected[place] == second.selected[place]))
                h.claim(f"stored{bits}_{index}", ~other | ~applies | (first.stored[place] == second.stored[place]))
    h.cover("illegal", first.illegal.any() & ~second.illegal.any())
    h.cover("changed", first.selected != second.selected)
