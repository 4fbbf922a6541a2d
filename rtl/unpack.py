"""Element codes to the raw form that the stages between unpacking and rounding share."""

from collections.abc import Sequence

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..isa.formats import FORMATS, Format, Specials
from .config import Element

__all__ = [
    "ACCUMULATOR_SIGNIFICAND_BITS",
    "ELEMENT_CODE_BITS",
    "EXPONENT_BITS",
    "FormatDecoder",
    "Unpack",
    "UnpackAccumulator",
    "raw_signature",
    "significand_bits",
    "specials_layout",
]

#: Width of the control field that names an element of the configuration.
ELEMENT_CODE_BITS = 4
#: Width of a biased exponent, that of the widest formats.
EXPONENT_BITS = 8
#: Fraction bits of the format whose only special value is a NaN of all ones, e4m3.
_LONE_NAN_FRACTION_BITS = FORMATS["e4m3"].fraction_bits
#: Width of an accumulator's significand, that of f32.
ACCUMULATOR_SIGNIFICAND_BITS = 24


def raw_signature(significand: int) -> wiring.Signature:
    """Return the raw form of an unpacked operand, as its producer sees it.

    Members
    -------
    sign : Out(1)
        Set for negative.
    exponent : Out(8)
        Biased by the format's own bias; 1 for subnormals.
    significand : Out(significand)
        Floats with the binary point after the top bit, hidden bit included; integers with it after the bottom bit.
        Of no meaning for Inf and NaN, which decide the result by themselves.
    zero, special, inf, nan : Out(1)
        What the operand is; none set for an ordinary number. `special` is Inf or NaN.
    """
    return wiring.Signature(
        {
            "sign": Out(1),
            "exponent": Out(EXPONENT_BITS),
            "significand": Out(significand),
            "zero": Out(1),
            "special": Out(1),
            "inf": Out(1),
            "nan": Out(1),
        }
    )


def significand_bits(elements: Sequence[Element]) -> int:
    """Return the significand width that holds every one of the elements."""
    return max(element.significand_bits for element in elements)


def specials_layout() -> data.StructLayout:
    """Return the layout of what tells special values of a format apart.

    A value is special when all bits of its exponent and its three top fraction bits are ones, leaving out those that
    `ignore` names.

    Fields
    ------
    ignore : 11
        Three top fraction bits, then eight exponent bits: set where the format does not ask for a one.
    lone_nan : 1
        Every special value is NaN; otherwise only one with a non-zero fraction, and the rest is Inf.
    """
    return data.StructLayout({"ignore": _LONE_NAN_FRACTION_BITS + EXPONENT_BITS, "lone_nan": 1})


class FormatDecoder(wiring.Component):
    """Decode what all slots need to know of the running format, once. Combinational.

    Parameters
    ----------
    elements : sequence of Element
        The configuration's elements; their places are the control codes.

    Members
    -------
    element : In(4)
        Control code.
    specials : Out(specials_layout())
        How its special values look. No code of a format without them, or of an integer, looks like one: its exponent
        never fills all eight bits.
    """

    element: In(ELEMENT_CODE_BITS)
    specials: Out(specials_layout())

    def __init__(self, elements: Sequence[Element]) -> None:
        self.elements = tuple(elements)
        super().__init__()

    def elaborate(self, platform: object) -> Module:
        """Build the table."""
        m = Module()
        with m.Switch(self.element):
            for code, element in enumerate(self.elements):
                fmt = element.format
                if element.counts or fmt.specials is Specials.NONE:
                    continue
                fraction = 0 if fmt.specials is Specials.NAN else (1 << _LONE_NAN_FRACTION_BITS) - 1
                unused = (1 << EXPONENT_BITS) - (1 << fmt.exponent_bits)
                with m.Case(code):
                    m.d.comb += [
                        self.specials.ignore.eq(fraction | unused << _LONE_NAN_FRACTION_BITS),
                        self.specials.lone_nan.eq(fmt.specials is Specials.NAN),
                    ]
        return m


class Unpack(wiring.Component):
    """Unpack one slot's element of a run-time format. Combinational.

    Value of a float: ``(-1)**sign * significand * 2**(exponent - bias - (W - 1))``; of an integer:
    ``(-1)**sign * significand``. Packed e2m1 is an integer of halves.

    Parameters
    ----------
    slot : int
        Which element of the operand.
    elements : sequence of (int, Element)
        Control codes and the elements they name; the formats this slot serves.
    significand : int
        Width W of the significand.
    operand_bits : int
        Width of the operand.

    Members
    -------
    operand : In(operand_bits)
        All elements of a step, lowest first.
    element : In(4)
        Control code. A code that is not among `elements` gives zero.
    specials : In(specials_layout())
        From :class:`FormatDecoder` for the same code.
    raw : Out(raw_signature(significand))
        The element.

    Notes
    -----
    Source: numerics of operand formats, measured on an H200 for f16, bf16, tf32, e4m3, e5m2, s8, u8.
    """

    def __init__(self, slot: int, elements: Sequence[tuple[int, Element]], significand: int, operand_bits: int) -> None:
        self.slot = slot
        self.elements = tuple(elements)
        self.significand = significand
        super().__init__(
            {
                "operand": In(operand_bits),
                "element": In(ELEMENT_CODE_BITS),
                "specials": In(specials_layout()),
                "raw": Out(raw_signature(significand)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Gather the fields of the running format, then decode them once."""
        m = Module()
        raw, width = self.raw, self.significand
        floats = [element for _, element in self.elements if not element.counts]
        # One word from the multiplexer over formats: magnitude (of a float: its fraction), exponent, sign.
        fields = Signal(width + EXPONENT_BITS + 1)
        with m.Switch(self.element):
            for code, element in self.elements:
                container = self.operand.word_select(self.slot, element.container_bits)
                bits = container[element.low_bit : element.low_bit + element.format.bits]
                with m.Case(code):
                    m.d.comb += fields.eq(self._fields(element, bits))
        magnitude, exponent = fields[:width], fields[width:-1]
        m.d.comb += raw.sign.eq(fields[-1])
        if not floats:
            m.d.comb += [raw.significand.eq(magnitude), raw.zero.eq(~magnitude.any())]
            return m
        hidden, some_fraction = Signal(), Signal()
        m.d.comb += [hidden.eq(exponent.any()), some_fraction.eq(magnitude.any())]
        special: Value = Const(0)
        if any(element.format.specials is not Specials.NONE for element in floats):
            special = raw.special
            lone = any(element.format.specials is Specials.NAN for element in floats)
            first = width - 1 - _LONE_NAN_FRACTION_BITS if lone else width - 1
            ignore = self.specials.ignore[0 if lone else _LONE_NAN_FRACTION_BITS :]
            top = Cat(fields[first : width - 1], exponent)
            m.d.comb += [
                special.eq((top | ignore).all()),
                raw.nan.eq(special & (self.specials.lone_nan | some_fraction)),
                raw.inf.eq(special & ~raw.nan),
            ]
        m.d.comb += [
            raw.exponent.eq(exponent | ~hidden),
            raw.significand.eq(magnitude | Cat(Const(0, width - 1), hidden)),
            raw.zero.eq(~(hidden | some_fraction)),
        ]
        return m

    def _fields(self, element: Element, bits: Value) -> Value:
        """Return magnitude, exponent and sign of one format, concatenated."""
        fmt, width = element.format, self.significand
        sign = bits[-1] if fmt.signed else Const(0)
        if element.packed_float:  # in halves: 0, 1, 2, 3, 4, 6, 8, 12
            hidden = bits[1:3].any()
            magnitude = Cat(bits[0], hidden) << Mux(hidden, bits[1:3] - 1, 0)[:2]
            return Cat(_extend(magnitude, width), Const(0, EXPONENT_BITS), sign)
        if fmt.is_integer:
            magnitude = Mux(sign, -bits, bits)[: fmt.bits] if fmt.signed else bits
            return Cat(_extend(magnitude, width), Const(0, EXPONENT_BITS), sign)
        fraction = Cat(Const(0, width - 1 - fmt.fraction_bits), bits[: fmt.fraction_bits], Const(0, 1))
        exponent = bits[fmt.fraction_bits : fmt.fraction_bits + fmt.exponent_bits]
        return Cat(fraction, _extend(exponent, EXPONENT_BITS), sign)


def _extend(value: Value, width: int) -> Value:
    return Cat(value[:width], Const(0, max(0, width - len(value))))


class UnpackAccumulator(wiring.Component):
    """Unpack a float accumulator. Combinational.

    Members
    -------
    word : In(32)
        The register; f16 in its low half.
    half : In(1)
        It holds an f16.
    sign, zero, inf, nan : Out(1)
        What it is.
    exponent : Out(signed(9))
        True exponent, the minimum of the format for subnormals and zero.
    significand : Out(24)
        Hidden bit on top; zero for Inf and NaN.
    """

    word: In(32)
    half: In(1)
    sign: Out(1)
    zero: Out(1)
    inf: Out(1)
    nan: Out(1)
    exponent: Out(signed(EXPONENT_BITS + 1))
    significand: Out(ACCUMULATOR_SIGNIFICAND_BITS)

    def elaborate(self, platform: object) -> Module:
        """Build both decoders."""
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
        padding = ACCUMULATOR_SIGNIFICAND_BITS - 1 - fmt.fraction_bits
        m.d.comb += [
            self.sign.eq(self.word[fmt.bits - 1]),
            self.inf.eq(special & ~fraction.any()),
            self.nan.eq(special & fraction.any()),
            self.zero.eq(~hidden & ~fraction.any()),
            self.exponent.eq(Cat(field[0] | ~hidden, field[1:]) - fmt.bias),
            self.significand.eq(Mux(special, 0, Cat(Const(0, padding), fraction, hidden))),
        ]
