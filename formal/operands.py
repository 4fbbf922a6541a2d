"""Proofs that elements are unpacked and multiplied as the definitions of their formats require."""

from collections.abc import Iterator
from itertools import product

from amaranth.hdl import Cat, Const, Mux, Shape, Value, signed
from amaranth.lib import wiring

from ..isa.formats import FORMATS, Format, Specials
from ..rtl.cells.slot_multiplier import SlotMultiplier
from ..rtl.config import CoreConfig, Element
from ..rtl.unpack import FormatDecoder, Unpack, UnpackAccumulator
from .harness import Harness
from .numerics import ACCUMULATOR_BITS, EXPONENT_BITS, kept_bits, multiplier, point, product_place
from .properties import Engine, Parameters, Topic, anonymous
from .selection import selected_byte

__all__ = ["OPERANDS", "Definition", "definition_of"]

OPERANDS = Topic("operands")
_E2M1_IN_HALVES = (0, 1, 2, 3, 4, 6, 8, 12)


class Definition:
    """Reference value of an element: sign, exponent field (1 for subnormals), magnitude, and special values.

    The exponent of an integer is 1, too. `significand` includes the sign of an integer. The sign of a float is in
    `sign_apart`, also for packed e2m1, whose magnitude is an integer number of halves.
    """

    def __init__(self, element: Element, code: Value) -> None:
        fmt = element.format
        self.inf: Value = Const(0)
        self.nan: Value = Const(0)
        self.exponent: Value = Const(1, EXPONENT_BITS)
        self.scale = 0  # number of fraction bits of `magnitude`
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
        whole = fmt.is_integer and fmt.signed
        self.sign_apart = Const(0) if fmt.is_integer else self.sign
        self.significand = code.as_signed() if whole else self.magnitude


def _table(index: Value, values: tuple[int, ...]) -> Value:
    value: Value = Const(0, max(values).bit_length())
    for place, entry in enumerate(values):
        value = Mux(index == place, entry, value)
    return value


def _specials(fmt: Format, field: Value, fraction: Value) -> tuple[Value, Value]:
    """Return whether an encoding is NaN, and whether it is an infinity."""
    if fmt.specials is Specials.NONE:
        return Const(0), Const(0)
    if fmt.specials is Specials.NAN:
        return Cat(field, fraction).all(), Const(0)
    return field.all() & (fraction != 0), field.all() & (fraction == 0)


def _first_bit(config: CoreConfig, element: Element, index: int, name: str) -> int:
    """Return the position of the lowest bit of element `index` in operand ``a``, or in the selected operand ``b``."""
    first = index * element.container_bits
    if name == "b":
        wide = element.wide
        first = 8 * selected_byte(config, first // 8, wide=wide) + first % 8
    return first + element.low_bit


def definition_of(config: CoreConfig, element: Element, index: int, name: str, operand: Value) -> Definition:
    """Return the reference value of an element of operand ``a`` or ``b``."""
    first = _first_bit(config, element, index, name)
    return Definition(element, operand[first : first + element.format.bits])


@OPERANDS.property("unpack", lambda config: [(anonymous(config),)])
def _unpack(h: Harness, config: CoreConfig) -> None:
    """Every multiplier unpacks all encodings of its formats as defined, and elements of all other formats as zero.

    The claims check sign, biased exponent (1 for subnormals and integers), significand (with sign for integers), zero,
    Inf and NaN, for operands A and B. The significands have so many fraction bits that the binary point of their
    product is at bit F of the step's sum.
    """
    decoder = FormatDecoder(config)
    operand, element = h.free("operand", 8 * config.step_bytes), h.free("element", decoder.element.shape())
    traits = h.add("format", decoder, element=element).traits
    for slot, name in product(range(config.slots), "ab"):
        unpack, inputs = Unpack(config, slot, name), {"operand": operand, "element": element, "traits": traits}
        raw = h.add(f"unpack_{name}{slot}", unpack, **inputs).raw
        for number, served in enumerate(config.elements):
            runs, label = element == number, f"{served}_{name}{slot}".replace("/", "_")
            if served not in config.elements_of_slot(slot):
                h.claim(label, ~runs | (raw.zero & ~raw.special & (raw.significand == 0)))
                continue
            expected = definition_of(config, served, slot, name, operand)
            finite = ~(expected.inf | expected.nan)
            place = 0 if served.fixed_point else point(config, slot, served, name) - expected.scale
            flags = (raw.sign == expected.sign_apart) & (raw.inf == expected.inf) & (raw.nan == expected.nan)
            flags = flags & (raw.special == ~finite) & (raw.zero == expected.zero)
            significand = ~finite | (raw.significand == expected.significand << place)
            h.claim(label, ~runs | (flags & significand & (~finite | (raw.exponent == expected.exponent))))
            if slot == 0:
                label = label.removesuffix("0")
                h.cover(f"{label}_zero", runs & raw.zero)
                if expected.scale:
                    hidden = raw.significand[place + expected.scale]
                    h.cover(f"{label}_subnormal", runs & ~raw.zero & (raw.exponent == 1) & ~hidden)
                if served.format.specials is not Specials.NONE:
                    h.cover(f"{label}_nan", runs & raw.nan)


@OPERANDS.property("accumulator", lambda config: [()])
def _accumulator(h: Harness) -> None:
    """An f32 or f16 accumulator is unpacked as its format defines. The significand of an infinity or NaN is zero."""
    word, half = h.free("word", 32), h.free("half")
    accumulator = h.add("accumulator", UnpackAccumulator(), word=word, half=half)
    for name, runs in (("f16", half), ("f32", ~half)):
        fmt = FORMATS[name]
        expected = Definition(Element(fmt, fmt.bits), word[: fmt.bits])
        finite = ~(expected.inf | expected.nan)
        place = ACCUMULATOR_BITS - 1 - fmt.fraction_bits
        flags = (accumulator.sign == expected.sign) & (accumulator.inf == expected.inf)
        flags = flags & (accumulator.nan == expected.nan) & (accumulator.zero == expected.zero)
        h.claim(f"{name}_flags", ~runs | flags)
        exponent = h.named(f"{name}_exponent", expected.exponent - fmt.bias, signed(EXPONENT_BITS + 1))
        value = (accumulator.exponent == exponent) & (accumulator.significand == expected.magnitude << place)
        h.claim(f"{name}_value", ~(runs & finite) | value)
        h.claim(f"{name}_special", ~runs | finite | (accumulator.significand == 0))
        h.cover(f"{name}_subnormal", runs & ~expected.zero & ~accumulator.significand[-1] & finite)
        h.cover(f"{name}_nan", runs & accumulator.nan)


def _multipliers(config: CoreConfig) -> Iterator[Parameters]:
    for slot in range(config.slots):
        significand, factor = multiplier(config, slot)
        yield significand, factor.width, factor.signed


def _rows(a: Value, b: Value) -> Value:
    """Return ``a * b`` as a sum of partial products: `a` shifted to each 1 bit of `b`, and negated for a sign bit."""
    total: Value = Const(0, 1)
    for place in range(len(b)):
        row = Mux(b[place], a << place, 0)
        total = total - row if b.shape().signed and place == len(b) - 1 else total + row
    return total


@OPERANDS.property("multiply", _multipliers)
def _multiply(h: Harness, significand: int, bits: int, has_sign: bool) -> None:
    """The product of two elements has the sum of their exponents and the product of their signs.

    Infinity times zero is NaN, and a NaN operand gives NaN. Otherwise an infinity gives an infinity, and a zero gives
    zero.
    """
    multiply = h.add("multiply", SlotMultiplier(significand, Shape(bits, has_sign)))
    for name, port in (("a", multiply.a), ("b", multiply.b)):
        for member in ("sign", "exponent", "significand", "zero", "special", "inf", "nan"):
            value = getattr(port, member)
            h.m.d.comb += value.eq(h.free(f"{name}_{member}", value.shape()))
        h.assume(port.special == (port.inf | port.nan))
        h.assume(~(port.inf & port.nan))
        h.assume(~(port.special & port.zero))
    a, b, output = multiply.a, multiply.b, multiply.product
    h.claim("exponent", output.exponent == a.exponent + b.exponent)
    h.claim("sign", output.sign == (a.sign != b.sign))
    nan = a.nan | b.nan | (a.inf & b.zero) | (b.inf & a.zero)
    h.claim("nan", output.nan == nan)
    h.claim("inf", output.inf == ((a.inf | b.inf) & ~nan))
    h.claim("special", output.special == (output.inf | output.nan))
    h.claim("zero", output.nan | (output.zero == (a.zero | b.zero)))
    h.cover("invalid", a.inf & b.zero)


@OPERANDS.property("exact", _multipliers, Engine.EXHAUSTIVE)
def _exact(h: Harness, significand: int, bits: int, has_sign: bool) -> None:
    """The product of two significands is exact: it equals the sum of one operand, shifted to each 1 bit of the other.

    If the operands of the multiplier have a sign bit above the significand, the proof excludes the product of the two
    most negative numbers. This product cannot occur: the sign of a float is not part of its significand, and for
    integers the property `operands.products` covers all encodings.
    """
    shape = Shape(bits, has_sign)
    a, b = h.free("a", shape), h.free("b", shape)
    multiply = h.add("multiply", SlotMultiplier(significand, shape))
    h.m.d.comb += [multiply.a.significand.eq(a), multiply.b.significand.eq(b)]
    result = h.named("product", multiply.product.significand)
    smallest = -(1 << bits - 1) if has_sign else 0
    largest = smallest + (1 << bits) - 1
    refused = (a == smallest) & (b == smallest) if has_sign and bits > significand else Const(0)
    h.claim("exact", refused | (result == _rows(a, b)))
    h.cover("largest", (a == largest) & (b == largest))
    h.cover("smallest", (a == smallest) & (b == largest))


def _small_pairs(config: CoreConfig) -> Iterator[Parameters]:
    small = [element for element in config.elements if element.container_bits <= 8]
    for a, b in product(small, repeat=2):
        if a.fixed_point == b.fixed_point and a.container_bits == b.container_bits:
            yield anonymous(config), str(a), str(b)


@OPERANDS.property("products", _small_pairs, Engine.EXHAUSTIVE)
def _products(h: Harness, config: CoreConfig, a: str, b: str) -> None:
    """A multiplier unpacks and multiplies all pairs of encodings of two formats of at most 8 bits correctly.

    Of all slots that serve the same formats, one is checked. The expected value follows from the definitions of the
    formats: partial products of the significands are added, exponents are added, and the binary point of the product is
    at bit F of the step's sum.
    """
    elements = [Element.parse(word) for word in (a, b)]
    numbers = [config.elements.index(element) for element in elements]
    codes = [h.free(name, element.format.bits) for name, element in zip("ab", elements, strict=True)]
    traits = [h.add(f"format_{x}", FormatDecoder(config), element=n).traits for x, n in zip("ab", numbers, strict=True)]
    left, right = (Definition(element, code) for element, code in zip(elements, codes, strict=True))
    nan = left.nan | right.nan | (left.inf & right.zero) | (right.inf & left.zero)
    inf = (left.inf | right.inf) & ~nan
    kinds = {config.elements_of_slot(slot): slot for slot in reversed(range(config.slots_of(elements[0])))}
    for slot in kinds.values():
        multiply = h.add(f"multiply{slot}", SlotMultiplier(*multiplier(config, slot)))
        for index, (name, port) in enumerate((("a", multiply.a), ("b", multiply.b))):
            operand = Cat(Const(0, _first_bit(config, elements[index], slot, name)), codes[index])
            inputs = {"operand": operand, "element": numbers[index], "traits": traits[index]}
            unpack = h.add(f"unpack_{name}{slot}", Unpack(config, slot, name), **inputs)
            wiring.connect(h.m, unpack.raw, port)
        output = multiply.product
        for name in ("sign", "exponent", "significand", "zero", "inf", "nan"):
            h.named(f"product{slot}_{name}", getattr(output, name))
        of_product = kept_bits(config, elements[0]) - product_place(config, slot)
        place = 0 if elements[0].fixed_point else of_product - left.scale - right.scale
        h.claim(f"nan{slot}", output.nan == nan)
        h.claim(f"inf{slot}", output.inf == inf)
        h.claim(f"sign{slot}", nan | (output.sign == (left.sign_apart != right.sign_apart)))
        value = _rows(left.significand, right.significand) << place
        h.claim(f"significand{slot}", nan | inf | (output.significand == value))
        h.claim(f"exponent{slot}", nan | inf | (output.exponent == left.exponent + right.exponent))
        h.claim(f"zero{slot}", nan | (output.zero == (left.zero | right.zero)))
        h.cover(f"not_zero{slot}", ~output.zero)
