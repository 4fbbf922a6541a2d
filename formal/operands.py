"""Unpacking and multiplication, against the definitions of the formats."""

from collections.abc import Iterator

from amaranth.hdl import Cat, Const, Mux, Value, signed
from amaranth.lib import wiring

from ..isa.formats import FORMATS, Format, Specials
from ..rtl.config import CoreConfig, Element
from ..rtl.multiply import Multiply
from ..rtl.unpack import (
    ACCUMULATOR_SIGNIFICAND_BITS,
    ELEMENT_CODE_BITS,
    EXPONENT_BITS,
    FormatDecoder,
    Unpack,
    UnpackAccumulator,
    significand_bits,
)
from .harness import Harness
from .properties import Engine, Parameters, Topic, anonymous

__all__ = ["OPERANDS", "Definition"]

OPERANDS = Topic("operands")
_E2M1_IN_HALVES = (0, 1, 2, 3, 4, 6, 8, 12)


class Definition:
    """What an element's bits mean: sign, exponent field with the 1 of subnormals, magnitude, and what is special."""

    def __init__(self, element: Element, code: Value) -> None:
        fmt = element.format
        self.inf: Value = Const(0)
        self.nan: Value = Const(0)
        self.exponent: Value = Const(0, EXPONENT_BITS)
        self.scale = 0  # fraction bits of `magnitude`
        if element.packed_float:
            self.sign = code[3]
            self.magnitude = _table(code[:3], _E2M1_IN_HALVES)
        elif fmt.is_integer:
            self.sign = code[-1] if fmt.signed else Const(0)
            self.magnitude = Mux(self.sign, (1 << fmt.bits) - code, code)[: fmt.bits]
        else:
            fraction = code[: fmt.fraction_bits]
            field = code[fmt.fraction_bits : fmt.fraction_bits + fmt.exponent_bits]
            normal = field != 0
            self.sign = code[fmt.bits - 1]
            self.magnitude = Mux(normal, fraction + (1 << fmt.fraction_bits), fraction)[: fmt.fraction_bits + 1]
            self.exponent = Mux(normal, field, 1)
            self.scale = fmt.fraction_bits
            self.nan, self.inf = _specials(fmt, field, fraction)
        self.zero = self.magnitude == 0


def _table(index: Value, values: tuple[int, ...]) -> Value:
    value: Value = Const(0, max(values).bit_length())
    for place, entry in enumerate(values):
        value = Mux(index == place, entry, value)
    return value


def _specials(fmt: Format, field: Value, fraction: Value) -> tuple[Value, Value]:
    """Return whether a code is NaN, and whether it is an infinity."""
    if fmt.specials is Specials.NONE:
        return Const(0), Const(0)
    if fmt.specials is Specials.NAN:
        return Cat(field, fraction).all(), Const(0)
    return field.all() & (fraction != 0), field.all() & (fraction == 0)


def _served(config: CoreConfig, slot: int) -> tuple[tuple[int, Element], ...]:
    return tuple((config.elements.index(element), element) for element in config.elements_of_slot(slot))


def _unpacked(h: Harness, config: CoreConfig, name: str, slot: int, operand: Value, element: Value) -> Unpack:
    """Instantiate the unpacking of one slot with its decoder of formats."""
    served = _served(config, slot)
    decoder = h.add(f"format_{name}", FormatDecoder(config.elements), element=element)
    width = significand_bits([element for _, element in served])
    return h.add(
        f"unpack_{name}",
        Unpack(slot, served, width, len(operand)),
        operand=operand,
        element=element,
        specials=decoder.specials,
    )


@OPERANDS.property("unpack", lambda config: [(anonymous(config),)])
def _unpack(h: Harness, config: CoreConfig) -> None:
    """Every slot unpacks every encoding of every format that it serves as defined, and other formats' codes as zero.

    Sign, biased exponent (1 for subnormals), significand on the common point, zero, Inf and NaN.
    """
    operand, element = h.free("operand", 8 * config.step_bytes), h.free("element", ELEMENT_CODE_BITS)
    for slot in range(config.slots):
        raw = _unpacked(h, config, str(slot), slot, operand, element).raw
        width = len(raw.significand)
        known: Value = Const(0)
        for number, served in _served(config, slot):
            runs = element == number
            known = known | runs
            container = operand.word_select(slot, served.container_bits)
            wanted = Definition(served, container[served.low_bit : served.low_bit + served.format.bits])
            finite = ~(wanted.inf | wanted.nan)
            place = 0 if served.counts else width - 1 - wanted.scale
            h.claim(
                f"{served}_{slot}".replace("/", "_"),
                ~runs
                | (
                    (raw.sign == wanted.sign)
                    & (raw.inf == wanted.inf)
                    & (raw.nan == wanted.nan)
                    & (raw.special == ~finite)
                    & (raw.zero == wanted.zero)
                    & (~finite | (raw.significand == wanted.magnitude << place))
                    & (served.counts | ~finite | (raw.exponent == wanted.exponent))
                ),
            )
            if slot == 0:
                h.cover(f"{served}_zero".replace("/", "_"), runs & raw.zero)
                if wanted.scale:
                    h.cover(f"{served}_subnormal", runs & ~raw.zero & (raw.exponent == 1) & ~raw.significand[-1])
                if served.format.specials is not Specials.NONE:
                    h.cover(f"{served}_nan", runs & raw.nan)
        h.claim(f"unknown_{slot}", known | (raw.zero & ~raw.special & (raw.significand == 0)))


@OPERANDS.property("accumulator", lambda config: [()])
def _accumulator(h: Harness) -> None:
    """The accumulator's f32 or f16 is unpacked as the format defines it; an infinity or NaN has no significand."""
    word, half = h.free("word", 32), h.free("half")
    accumulator = h.add("accumulator", UnpackAccumulator(), word=word, half=half)
    for name, runs in (("f16", half), ("f32", ~half)):
        fmt = FORMATS[name]
        wanted = Definition(Element(fmt, fmt.bits), word[: fmt.bits])
        finite = ~(wanted.inf | wanted.nan)
        place = ACCUMULATOR_SIGNIFICAND_BITS - 1 - fmt.fraction_bits
        h.claim(
            f"{name}_flags",
            ~runs
            | (
                (accumulator.sign == wanted.sign)
                & (accumulator.inf == wanted.inf)
                & (accumulator.nan == wanted.nan)
                & (accumulator.zero == wanted.zero)
            ),
        )
        exponent = h.named(f"{name}_exponent", wanted.exponent - fmt.bias, signed(EXPONENT_BITS + 1))
        h.claim(
            f"{name}_value",
            ~(runs & finite)
            | ((accumulator.exponent == exponent) & (accumulator.significand == wanted.magnitude << place)),
        )
        h.claim(f"{name}_special", ~runs | finite | (accumulator.significand == 0))
        h.cover(f"{name}_subnormal", runs & ~wanted.zero & ~accumulator.significand[-1] & finite)
        h.cover(f"{name}_nan", runs & accumulator.nan)


def _widths(config: CoreConfig) -> Iterator[Parameters]:
    for slot in range(config.slots):
        yield (significand_bits(config.elements_of_slot(slot)),)


def _rows(a: Value, b: Value) -> Value:
    """Return a product as a sum of shifted rows."""
    total: Value = Const(0, 1)
    for place in range(len(b)):
        total = total + Mux(b[place], a << place, 0)
    return total[: len(a) + len(b)]


@OPERANDS.property("multiply", _widths)
def _multiply(h: Harness, significand: int) -> None:
    """A product has the sum of the exponents and the product of the signs.

    Infinity times zero is NaN; a NaN stays one; otherwise an infinity wins, and a zero is zero.
    """
    multiply = h.add("multiply", Multiply(significand))
    for name, port in (("a", multiply.a), ("b", multiply.b)):
        for member in ("sign", "exponent", "significand", "zero", "special", "inf", "nan"):
            value = getattr(port, member)
            h.m.d.comb += value.eq(h.free(f"{name}_{member}", value.shape()))
        h.assume(port.special == (port.inf | port.nan))
        h.assume(~(port.inf & port.nan))
        h.assume(~(port.special & port.zero))
    a, b, product = multiply.a, multiply.b, multiply.product
    h.claim("exponent", product.exponent == a.exponent + b.exponent)
    h.claim("sign", product.sign == (a.sign != b.sign))
    nan = a.nan | b.nan | (a.inf & b.zero) | (b.inf & a.zero)
    h.claim("nan", product.nan == nan)
    h.claim("inf", product.inf == ((a.inf | b.inf) & ~nan))
    h.claim("special", product.special == (product.inf | product.nan))
    h.claim("zero", product.nan | (product.zero == (a.zero | b.zero)))
    h.cover("invalid", a.inf & b.zero)


@OPERANDS.property("exact", _widths, Engine.EXHAUSTIVE)
def _exact(h: Harness, significand: int) -> None:
    """A product of significands is exact: the sum of the shifted rows of the multiplier, for all pairs."""
    a, b = h.free("a", significand), h.free("b", significand)
    multiply = h.add("multiply", Multiply(significand))
    h.m.d.comb += [multiply.a.significand.eq(a), multiply.b.significand.eq(b)]
    product = h.named("product", multiply.product.significand)
    h.claim("exact", product == _rows(a, b))
    h.cover("largest", a.all() & b.all())


def _small_pairs(config: CoreConfig) -> Iterator[Parameters]:
    small = [element for element in config.elements if element.container_bits <= 8]
    for a in small:
        for b in small:
            if a.counts == b.counts and a.container_bits == b.container_bits:
                width = significand_bits(config.elements_of_slot(0))
                yield str(a), str(b), tuple(sorted({str(a), str(b)})), width


@OPERANDS.property("products", _small_pairs, Engine.EXHAUSTIVE)
def _products(h: Harness, a: str, b: str, held: tuple[str, ...], significand: int) -> None:
    """The product of all pairs of encodings of two formats of at most 8 bits, from the operands' bits on.

    Its value is that of the definitions: significands multiplied row by row, exponents added.
    """
    elements = [Element.parse(word) for word in held]
    coded = list(enumerate(elements))
    multiply, wanted = h.add("multiply", Multiply(significand)), []
    for name, word, port in (("a", a, multiply.a), ("b", b, multiply.b)):
        element = Element.parse(word)
        code, number = h.free(name, element.container_bits), elements.index(element)
        decoder = h.add(f"format_{name}", FormatDecoder(elements), element=number)
        unpack = h.add(
            f"unpack_{name}",
            Unpack(0, coded, significand, element.container_bits),
            operand=code,
            element=number,
            specials=decoder.specials,
        )
        wiring.connect(h.m, unpack.raw, port)
        wanted.append(Definition(element, code[element.low_bit :][: element.format.bits]))
    left, right = wanted
    product, counts = multiply.product, Element.parse(a).counts
    for name in ("sign", "exponent", "significand", "zero", "inf", "nan"):
        h.named(f"product_{name}", getattr(product, name))
    nan = left.nan | right.nan | (left.inf & right.zero) | (right.inf & left.zero)
    inf = (left.inf | right.inf) & ~nan
    place = 0 if counts else 2 * (significand - 1) - left.scale - right.scale
    h.claim("nan", product.nan == nan)
    h.claim("inf", product.inf == inf)
    h.claim("sign", nan | (product.sign == (left.sign != right.sign)))
    h.claim("significand", nan | inf | (product.significand == _rows(left.magnitude, right.magnitude) << place))
    h.claim("exponent", nan | inf | counts | (product.exponent == left.exponent + right.exponent))
    h.cover("not_zero", ~product.zero)
