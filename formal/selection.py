"""Proofs about operand selection: metadata selects the right elements of B, and no other element has any influence."""

from amaranth.hdl import Array, Cat, Const, Mux, Value

from ..isa.metadata import UNITS_PER_CHUNK
from ..rtl.cells.operand_mux import OperandMux
from ..rtl.config import CoreConfig
from ..rtl.metadata import NibbleDecoder, RuleCode
from ..rtl.order import OrderedSelect
from .harness import Harness
from .properties import Parameters, Topic, anonymous

__all__ = [
    "SELECTION",
    "UNIT_BITS",
    "UNREACHED",
    "assume_possible_width",
    "chunk_muxes",
    "exchanged_nibble",
    "is_wide",
    "selected_byte",
]

SELECTION = Topic("selection")
UNIT_BITS = (8, 16)
#: Index (0 to 3) of the element of B that the first 3:1 multiplexer cannot select, and the same for the second one.
UNREACHED = (3, 0)


def _muxes(config: CoreConfig) -> list[Parameters]:
    return [(config.mux, bits) for bits in UNIT_BITS]


def chunk_muxes(
    h: Harness, name: str, mux: str, nibble: Value, rule: Value | RuleCode, units: list[Value]
) -> tuple[NibbleDecoder, list[Value]]:
    """Instantiate the decoder and both multiplexers of a metadata nibble. Return decoder and selected elements of B."""
    decoder = h.add(f"{name}_decoder", NibbleDecoder(mux), nibble=nibble, rule=rule)
    outputs = []
    for slot, one_hot in enumerate((decoder.select0, decoder.select1)):
        select = h.add(f"{name}_select{slot}", OperandMux(len(units[0])))
        h.m.d.comb += [port.eq(unit) for port, unit in zip(select.units, units, strict=True)]
        h.m.d.comb += [port.eq(bit) for port, bit in zip(select.select, one_hot, strict=True)]
        outputs.append(select.output)
    return decoder, outputs


def exchanged_nibble(h: Harness, decoder: NibbleDecoder, nibble: Value) -> Value:
    """Return a metadata nibble, with its indices exchanged if the decoder exchanges the two stored elements of A."""
    return h.named("exchanged", Mux(decoder.swap, Cat(nibble[2:], nibble[:2]), nibble))


def is_wide(config: CoreConfig, code: Value) -> Value:
    """Return whether a format code stands for elements of 16 bits or more, with which metadata selects 16-bit units."""
    return Cat(code == place for place, element in enumerate(config.elements) if element.container_bits >= 16).any()


def selected_byte(config: CoreConfig, byte: int, *, wide: bool) -> int:
    """Return the position, among the selected bytes of B, of the byte that is multiplied by byte `byte` of stored A.

    In an interleaved datapath, the bytes of two chunks of 8-bit units alternate: byte 0 of the first chunk, byte 0 of
    the second chunk, then byte 1 of each chunk.
    """
    if wide or not config.interleaved:
        return byte
    return byte // 4 * 4 + (0, 2, 1, 3)[byte % 4]


def assume_possible_width(h: Harness, config: CoreConfig, wide: Value) -> None:
    """Assume that each element has a width (8 or 16 bits) that at least one format of the configuration has."""
    widths = {element.wide for element in config.elements}
    if len(widths) == 1:
        h.assume(wide == widths.pop())


@SELECTION.property("units", _muxes)
def _units(h: Harness, mux: str, unit_bits: int) -> None:
    """A multiplexer outputs the element of B that the metadata nibble selects, or zero if it has no such input."""
    nibble, rule = h.free("nibble", 4), h.free("rule", RuleCode)
    units = [h.free(f"unit{unit}", unit_bits) for unit in range(UNITS_PER_CHUNK)]
    decoder, outputs = chunk_muxes(h, "chunk", mux, nibble, rule, units)
    exchanged = exchanged_nibble(h, decoder, nibble)
    for slot, output in enumerate(outputs):
        index = exchanged.word_select(slot, 2)
        reached = (index != UNREACHED[slot]) | (mux == "mux4")
        h.claim(f"slot{slot}", output == Mux(reached, Array(units)[index], 0))
        h.cover(f"slot{slot}", output != 0)


@SELECTION.property("isolation", _muxes)
def _isolation(h: Harness, mux: str, unit_bits: int) -> None:
    """A selected operand depends only on the 8 or 16 bits of B that the metadata index of its element of A selects.

    Two copies of a chunk have the same nibble and rule, and free units of B. If the units that the index selects are
    equal, the operands are equal.
    """
    nibble, rule = h.free("nibble", 4), h.free("rule", RuleCode)
    copies = [[h.free(f"{copy}{unit}", unit_bits) for unit in range(UNITS_PER_CHUNK)] for copy in ("left", "right")]
    (decoder, left), (_, right) = (
        chunk_muxes(h, f"copy{number}", mux, nibble, rule, units) for number, units in enumerate(copies)
    )
    exchanged = exchanged_nibble(h, decoder, nibble)
    for slot, (one, other) in enumerate(zip(left, right, strict=True)):
        index = exchanged.word_select(slot, 2)
        alike = Array(copies[0])[index] == Array(copies[1])[index]
        h.claim(f"slot{slot}", ~alike | (one == other))
        h.cover(f"slot{slot}_alike", alike & (one != 0))
        h.cover(f"slot{slot}_differs", one != other)


@SELECTION.property("tf32", lambda config: [(config.mux,)])
def _tf32(h: Harness, mux: str) -> None:
    """With the two nibbles that are legal for tf32, the multiplexers output the two halves of one element of B."""
    nibble = h.free("nibble", 4)
    units = [h.free(f"half{unit}", 16) for unit in range(UNITS_PER_CHUNK)]
    decoder, outputs = chunk_muxes(h, "chunk", mux, nibble, RuleCode.TF32, units)
    element = Cat(outputs)
    first, second = Cat(*units[:2]), Cat(*units[2:])
    h.claim("whole", ~decoder.legal | (element == Mux(nibble[3] & nibble[1], second, first)))
    h.cover("first", decoder.legal & (nibble == 0b0100))
    h.cover("second", decoder.legal & (nibble == 0b1110))
    h.cover("spliced", ~decoder.legal & (element != first) & (element != second))


@SELECTION.property("step", lambda config: [(anonymous(config),)])
def _step(h: Harness, config: CoreConfig) -> None:
    """Every stored element of sparse A is paired with the element of B that its metadata nibble selects.

    In a dense step, each element of A is paired with the unit at its own position in the low half of B. The proof
    includes the reordering of metadata and B that an array does in front of its dot-product units.
    """
    bits = 8 * config.step_bytes
    a, b, nibbles = h.free("a", bits), h.free("b", 2 * bits), h.free("nibbles", 4 * config.chunks)
    wide, sparse, rule = h.free("wide"), h.free("sparse"), h.free("rule", RuleCode)
    select = h.add("select", OrderedSelect(config), a=a, b=b, nibbles=nibbles, wide=wide, sparse=sparse, rule=rule)
    widths = {16 if element.wide else 8 for element in config.elements}
    assume_possible_width(h, config, wide)
    for unit_bits in sorted(widths):
        applies = wide == (unit_bits == 16)
        for chunk in range(bits // (2 * unit_bits)):
            name = f"{unit_bits}_{chunk}"
            nibble = nibbles.word_select(chunk, 4)
            decoder = h.add(f"decoder{name}", NibbleDecoder(config.mux), nibble=nibble, rule=rule)
            swap = decoder.swap & sparse
            for slot in range(2):
                index = Mux(decoder.swap, nibble.word_select(1 - slot, 2), nibble.word_select(slot, 2))
                unit = b.word_select(4 * chunk + index, unit_bits)
                if config.mux == "mux3":
                    unit = Mux(index == UNREACHED[slot], 0, unit)
                place = 2 * chunk + slot
                expected = Mux(sparse, unit, b.word_select(place, unit_bits))
                stored = Mux(swap, a.word_select(place ^ 1, unit_bits), a.word_select(place, unit_bits))
                at = slice(place * unit_bits, (place + 1) * unit_bits)
                h.claim(f"operand{name}_{slot}", ~applies | (select.selected[at] == expected))
                h.claim(f"stored{name}_{slot}", ~applies | (select.stored[at] == stored))
        h.cover(f"sparse{unit_bits}", applies & sparse & (select.selected != b[:bits]))
        h.cover(f"dense{unit_bits}", applies & ~sparse & select.selected.any())
    h.claim("dense_is_legal", sparse | (select.illegal == Const(0)))
