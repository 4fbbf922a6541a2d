"""Unpacking of elements and accumulators to a raw form that all formats share."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..isa.formats import FORMATS, Format, Specials
from .cells.described import DescribedLayout, DescribedSignature
from .cells.raw import EXPONENT_BITS, raw_signature
from .codes import ELEMENT_CODE_BITS, case
from .config import CoreConfig, Element
from .order import selected_byte
from .slots import Slot, kept_bits

__all__ = ["ACCUMULATOR_SIGNIFICAND_BITS", "FormatDecoder", "Unpack", "UnpackAccumulator", "traits_layout"]

#: Number of fraction bits of e4m3. The only special value of e4m3 is NaN, with ones in all bits below the sign.
_LONE_NAN_FRACTION_BITS = FORMATS["e4m3"].fraction_bits
#: Width in bits of an accumulator's significand: the width for f32, which f16 accumulators use too.
ACCUMULATOR_SIGNIFICAND_BITS = 24


def traits_layout() -> DescribedLayout:
    """Return the layout of an element format's traits (properties), which all multipliers use to unpack elements.

    A value is special (NaN or Inf) if its exponent bits and its top three fraction bits are ones, except for the bits
    in `ignore`.
    """
    ignore = "Mask of three fraction bits, then eight exponent bits: 1 where a special value need not have a one."
    return DescribedLayout(
        {
            "ignore": (_LONE_NAN_FRACTION_BITS + EXPONENT_BITS, ignore),
            "lone_nan": (1, "1: every special value is NaN; 0: a special value with a zero fraction is Inf."),
            "shorter": (1, "The format is a float format with a smaller F than the other float formats."),
        }
    )


class FormatDecoder(wiring.Component):
    """Decode the traits (properties) of the element format, once for all multipliers of the unit. Combinational.

    Traits are zero for integers and for formats without special values, except `shorter`. With zero traits an element
    is never decoded as special, since its eight exponent bits are never all ones.
    """

    def __init__(self, config: CoreConfig) -> None:
        self.config = config
        ports = {
            "element": (In(ELEMENT_CODE_BITS), "Code of the element format."),
            "traits": (Out(traits_layout()), "Traits of the format."),
        }
        super().__init__(DescribedSignature(ports))

    def elaborate(self, platform: object) -> Module:
        """Build the table that returns the traits (properties) of an element format for the code of the format."""
        m = Module()
        with m.Switch(self.element):
            for element in self.config.elements:
                fmt = element.format
                with case(m, self.config, element):
                    if element.fixed_point:
                        continue
                    m.d.comb += self.traits.shorter.eq(kept_bits(self.config, element) < self.config.alignment_bits)
                    if fmt.specials is Specials.NONE:
                        continue
                    # Examples of the mask `ignore` for two formats:
                    #
                    #     bit of `ignore`    10 ... 3    2 1 0
                    #     f16                11100000    111      special if all five exponent bits are ones
                    #     e4m3               11110000    000      special if all seven bits below the sign are ones
                    fraction = 0 if fmt.specials is Specials.NAN else (1 << _LONE_NAN_FRACTION_BITS) - 1
                    unused = (1 << EXPONENT_BITS) - (1 << fmt.exponent_bits)
                    m.d.comb += [
                        self.traits.ignore.eq(fraction | unused << _LONE_NAN_FRACTION_BITS),
                        self.traits.lone_nan.eq(fmt.specials is Specials.NAN),
                    ]
        return m


class Unpack(wiring.Component):
    """Unpack the element of one multiplier (product slot). The format can change with each cycle. Combinational.

    Value of a float with the binary point at bit P: ``(-1)**sign * significand * 2**(exponent - bias - P)``; of an
    integer: ``significand``. Packed e2m1 is an integer number of halves with a separate sign.

    Source: numerics of operand formats, measured on an H200 for f16, bf16, tf32, e4m3, e5m2, s8, u8.

    Parameters
    ----------
    config : CoreConfig
        The datapath.
    index : int
        Number of the slot.
    operand_name : str
        ``a`` or ``b``.
    """

    def __init__(self, config: CoreConfig, index: int, operand_name: str) -> None:
        self.config = config
        self.index = index
        self.operand_name = operand_name
        self.slot = slot = Slot(config, index)
        self.points = {element: slot.point(element, operand_name) for element in slot.floats}
        operand = "All elements of a step: A lowest k first, or B in the order of the select stage's output."
        element = "Element code. For a format that the slot does not serve, the unpacked element is zero."
        ports = {
            "operand": (In(8 * config.step_bytes), operand),
            "element": (In(ELEMENT_CODE_BITS), element),
            "traits": (In(traits_layout()), "Traits of the element format, from FormatDecoder."),
            "raw": (Out(raw_signature(slot.significand_bits)), "The unpacked element of the slot."),
        }
        super().__init__(DescribedSignature(ports))

    def elaborate(self, platform: object) -> Module:
        """Build the multiplexer that selects the fields of the current format, and one decoder at its output."""
        m = Module()
        raw, slot = self.raw, self.slot
        width = len(raw.significand)
        # `fields` is the output of the multiplexer over all formats: significand (fraction of a float, or the integer),
        # exponent and sign.
        fields = Signal(width + EXPONENT_BITS + 1)
        with m.Switch(self.element):
            for element in self.config.elements:
                with case(m, self.config, element):
                    if element in slot.elements:
                        first = self._first_bit(element) + element.low_bit
                        bits = self.operand[first : first + element.format.bits]
                        m.d.comb += fields.eq(self._fields(element, bits))
        magnitude, exponent = fields[:width], fields[width:-1]
        m.d.comb += raw.sign.eq(fields[-1])
        if not slot.floats:
            m.d.comb += [raw.significand.eq(magnitude), raw.zero.eq(~magnitude.any()), raw.exponent.eq(1)]
            return m
        hidden = Signal()
        some_fraction = Signal()
        m.d.comb += [hidden.eq(exponent.any()), some_fraction.eq(magnitude.any())]
        if any(element.format.specials is not Specials.NONE for element in slot.floats):
            self._find_specials(m, magnitude, exponent, some_fraction)
        # The hidden bit of a significand has one position for float formats with fewer alignment bits (F), and another
        # for all other float formats. Example: first multiplier of preset `hopper` (f: fraction, s: sign, i: integer):
        #
        #     bit of the significand    11 10  9  8  7  6  5  4  3  2  1  0
        #     f16, bf16, tf32            -  1  f  f  f  f  f  f  f  f  f  f
        #     e4m3, e5m2                 -  -  -  -  -  -  -  1  f  f  f  f
        #     s8                         s  s  s  s  s  i  i  i  i  i  i  i
        high, low = max(self.points.values()), min(self.points.values())
        hidden_bits = hidden << high
        if high > low:
            hidden_bits = Mux(self.traits.shorter, hidden << low, hidden << high)
        m.d.comb += [
            raw.exponent.eq(exponent | ~hidden),
            raw.significand.eq(magnitude | hidden_bits),
            raw.zero.eq(~(hidden | some_fraction)),
        ]
        return m

    def _first_bit(self, element: Element) -> int:
        """Return the index of the first operand bit that belongs to the (padded) element for this multiplier."""
        first = self.index * element.container_bits
        if self.operand_name == "a":
            return first
        wide = element.wide
        return 8 * selected_byte(self.config, first // 8, wide=wide) + first % 8

    def _find_specials(self, m: Module, magnitude: Value, exponent: Value, some_fraction: Value) -> None:
        lone = [element for element in self.slot.floats if element.format.specials is Specials.NAN]
        ignore, top = self.traits.ignore[_LONE_NAN_FRACTION_BITS:], exponent
        if lone:
            point = self.points[lone[0]]
            ignore, top = self.traits.ignore, Cat(magnitude[point - _LONE_NAN_FRACTION_BITS : point], exponent)
        m.d.comb += [
            self.raw.special.eq((top | ignore).all()),
            self.raw.nan.eq(self.raw.special & (self.traits.lone_nan | some_fraction)),
            self.raw.inf.eq(self.raw.special & ~self.raw.nan),
        ]

    def _fields(self, element: Element, bits: Value) -> Value:
        """Return significand, exponent and sign of an element in one format, concatenated."""
        fmt, width = element.format, self.slot.significand_bits + 1
        sign = bits[-1] if fmt.signed else Const(0)
        if element.packed_float:  # magnitudes of e2m1 codes 0 to 7, in halves: 0, 1, 2, 3, 4, 6, 8, 12
            hidden = bits[1:3].any()
            magnitude = Cat(bits[0], hidden) << Mux(hidden, bits[1:3] - 1, 0)[:2]
            return Cat(_extend(magnitude, width), Const(0, EXPONENT_BITS), sign)
        if fmt.is_integer:
            return Cat(bits, sign.replicate(width - len(bits)), Const(0, EXPONENT_BITS + 1))
        fraction = bits[: fmt.fraction_bits] << self.points[element] - fmt.fraction_bits
        exponent = bits[fmt.fraction_bits : fmt.fraction_bits + fmt.exponent_bits]
        return Cat(_extend(fraction, width), _extend(exponent, EXPONENT_BITS), sign)


def _extend(value: Value, width: int) -> Value:
    return Cat(value[:width], Const(0, max(0, width - len(value))))


class UnpackAccumulator(wiring.Component):
    """Unpack an accumulator in f32 or f16 to sign, exponent and significand. Combinational."""

    def __init__(self) -> None:
        exponent = "Exponent without bias; for subnormals and zero, the smallest exponent of the format."
        ports = {
            "word": (In(32), "Accumulator register; an f16 is in the low half."),
            "half": (In(1), "The accumulator is an f16."),
            "sign": (Out(1), "Sign of the accumulator."),
            **{name: (Out(1), f"The accumulator is {name}.") for name in ("zero", "inf", "nan")},
            "exponent": (Out(signed(EXPONENT_BITS + 1)), exponent),
            "significand": (
                Out(ACCUMULATOR_SIGNIFICAND_BITS),
                "Significand, whose highest bit is the hidden bit; zero for Inf and NaN.",
            ),
        }
        super().__init__(DescribedSignature(ports))

    def elaborate(self, platform: object) -> Module:
        """Build the decoders of f16 and f32 accumulators."""
        m = Module()
        with m.If(self.half):
            self._decode(m, FORMATS["f16"])
        with m.Else():
            self._decode(m, FORMATS["f32"])
        return m

    def _decode(self, m: Module, fmt: Format) -> None:
        fraction = self.word[: fmt.fraction_bits]
        field = self.word[fmt.fraction_bits : fmt.bits - 1]
        hidden, special = field.any(), field.all()
        # Bits of the accumulator's significand:
        #
        #     bit     23        22 ... 13    12 ... 0
        #     f32     hidden    23 fraction bits
        #     f16     hidden    fraction     zeros
        padding = ACCUMULATOR_SIGNIFICAND_BITS - 1 - fmt.fraction_bits
        m.d.comb += [
            self.sign.eq(self.word[fmt.bits - 1]),
            self.inf.eq(special & ~fraction.any()),
            self.nan.eq(special & fraction.any()),
            self.zero.eq(~hidden & ~fraction.any()),
            self.exponent.eq(Cat(field[0] | ~hidden, field[1:]) - fmt.bias),
            self.significand.eq(Mux(special, 0, Cat(Const(0, padding), fraction, hidden))),
        ]
