"""Proofs of a whole dot-product unit (few multipliers, narrow significands) against a specification of its result.

The specification writes every product and the accumulator as integer multiples of one fixed power of two, and drops the
bits below 2**(E - F). It never computes the distance between two terms.
"""

from amaranth.hdl import Cat, Const, Mux, Value, signed

from ..isa.formats import FORMATS
from ..isa.metadata import swap_for_mux3
from ..isa.numerics import zero_exponent_for
from ..rtl.config import CoreConfig, Element
from ..rtl.metadata import MetadataStage, RuleCode
from ..rtl.reduce import ReduceStage
from ..rtl.round import ResultCode
from ..rtl.unit import Unit
from .harness import Harness, opened
from .numerics import integer_place
from .operands import Definition
from .properties import Topic
from .rounding import Rounded

__all__ = ["UNIT"]

UNIT = Topic("unit")
_EXPONENT = signed(10)
#: Minimum number of alignment bits (F) with which f16 sums of e2m1 products reach every case of rounding.
_ALIGNMENT_BITS = 12


def _reduced(config: CoreConfig, *formats: str) -> CoreConfig:
    bits = dict.fromkeys(("alignment_bits", "fp8_alignment_bits"), _ALIGNMENT_BITS)
    return CoreConfig(name="reduced", formats=formats, step_bytes=4, mux=config.mux, cuts=(), **bits)


class _Operands:
    """A metadata decoder and a dot-product unit with free variables as inputs, and what each multiplier must get."""

    def __init__(self, h: Harness, config: CoreConfig, result: ResultCode, rules: tuple[RuleCode, ...]) -> None:
        unit = self.unit = h.add("unit", opened(Unit(config)), enable=1)
        control, step = unit.step.control, unit.step
        bits = 8 * config.step_bytes
        a, b, metadata = h.free("a", bits), h.free("b", 2 * bits), h.free("metadata", 4 * config.chunks)
        self.c, self.codes = h.free("c", 32), [h.free(f"element_{name}", 4) for name in ("a", "b")]
        rule = h.free("rule", RuleCode)
        self.saturate, self.overflow = h.free("saturate"), h.free("overflow")
        h.assume(Cat(rule == code for code in rules).any())
        decode = h.add("decode", MetadataStage(config), a=a, nibbles=metadata, sparse=1, rule=rule)
        h.m.d.comb += [
            step.a.eq(decode.stored),
            step.b.eq(b),
            step.selects.eq(decode.selects),
            step.c.eq(self.c),
            control.a.eq(self.codes[0]),
            control.b.eq(self.codes[1]),
            control.result.eq(result),
            control.saturate.eq(self.saturate),
            step.overflow.eq(self.overflow),
        ]
        self.output = h.named("output", unit.result.d)
        if config.mux == "mux3":  # an undefined nibble may select an input that its 3:1 multiplexer does not have
            h.assume(decode.illegal == 0)
        self.pairs: list[tuple[Value, Value]] = []
        for slot in range(config.step_bytes):
            index = metadata.word_select(slot, 2)
            self.pairs.append((a.word_select(slot, 8), b.word_select(4 * (slot // 2) + index, 8)))
        if config.mux == "mux3":
            self.pairs = [self._exchanged(slot, metadata, rule) for slot in range(config.step_bytes)]
        h.cover("any", self.output.any())

    def _exchanged(self, slot: int, metadata: Value, rule: Value) -> tuple[Value, Value]:
        """Return the operands of multiplier `slot`; with 3:1 multiplexers, two multipliers may exchange operands."""
        nibble = metadata.word_select(slot // 2, 4)
        swap = (rule == RuleCode.PLAIN) & Cat(nibble == value for value in range(16) if swap_for_mux3(value)).any()
        (a, b), (other_a, other_b) = self.pairs[slot], self.pairs[slot ^ 1]
        return Mux(swap, other_a, a), Mux(swap, other_b, b)


def _claim_sum(h: Harness, stage: ReduceStage) -> list[Value]:
    """Claim that the reduce stage adds up its terms, of which the accumulator is the first. Return the terms.

    Each bit of the sum is one claim, because the engine proves a bit quickly after the bits below it. These claims only
    speed up the proof of the claims about the outputs of the unit.
    """
    i = stage.i
    terms = [i.c_term + i.c_increment]
    terms += [term + increment for term, increment in zip(i.terms, i.increments, strict=True)]
    total = sum(terms)
    for bits in range(1, len(stage.total) + 1):
        h.claim(f"sum{bits}", stage.total[:bits] == total[:bits])
    return terms


@UNIT.property("floats", lambda config: [(_reduced(config, "e2m1"),)])
def _float_step(h: Harness, config: CoreConfig) -> None:
    """For four e2m1 products, the exact sum of terms, truncated 12 bits below the largest exponent, is rounded to f16.

    The proof covers all operands, metadata and accumulators. If the accumulator is infinite, the result equals the
    accumulator. If the accumulator is NaN, the result is the canonical NaN.
    """
    operands = _Operands(h, config, ResultCode.F16, (RuleCode.ORDERED,))
    h.assume(Cat(value == 0 for value in operands.codes).all())
    (element,), accumulator = config.elements, FORMATS["f16"]
    fmt, floor = element.format, zero_exponent_for(config.alignment_bits, half_result=True, floor=config.exponent_floor)
    base = min(2 * (fmt.minimum_exponent - fmt.fraction_bits), floor - config.alignment_bits)
    base = min(base, accumulator.minimum_exponent - accumulator.fraction_bits)
    c = Definition(Element(accumulator, accumulator.bits), operands.c[: accumulator.bits])
    terms = [(c.sign, c.magnitude, c.exponent - accumulator.bias, accumulator.fraction_bits, c.zero)]
    for pair in operands.pairs:
        a, b = (Definition(element, value[element.low_bit : element.low_bit + fmt.bits]) for value in pair)
        exponent = a.exponent + b.exponent - 2 * fmt.bias
        terms.append((a.sign ^ b.sign, a.magnitude * b.magnitude, exponent, 2 * fmt.fraction_bits, a.zero | b.zero))
    largest: Value = Const(floor, _EXPONENT)
    for index, (_, _, exponent, _, zero) in enumerate(terms):
        largest = h.named(f"largest{index}", Mux(~zero & (exponent > largest), exponent, largest), _EXPONENT)
    # Every term and the sum are integer multiples of 2**base.
    dropped = h.named("dropped", largest - config.alignment_bits - base, _EXPONENT)
    top = max(2 * fmt.maximum_exponent + 2, accumulator.maximum_exponent + 1)
    bits = top - base
    parts = []
    for index, (sign, magnitude, exponent, fraction_bits, zero) in enumerate(terms):
        place = (exponent - fraction_bits - base).as_unsigned()[: bits.bit_length()]
        fixed = h.named(f"fixed{index}", Mux(zero, 0, magnitude << place), bits)
        # F + 2 bits hold each term: its magnitude is below 4 * 2**E, and its lowest bit has the weight 2**(E - F).
        kept = h.named(f"kept{index}", fixed >> dropped.as_unsigned()[: bits.bit_length()], config.alignment_bits + 2)
        parts.append(Mux(sign, -kept, kept))
    total = h.named("total", sum(parts), signed(config.alignment_bits + 7))
    special = c.inf | c.nan
    stages = operands.unit.parts
    terms = _claim_sum(h, stages.reduce)
    for index, (term, part) in enumerate(zip(terms, parts, strict=True)):
        h.claim(f"term{index}", special | (term == part))
    headroom = largest - config.alignment_bits + len(stages.round.total) - 1 - accumulator.minimum_exponent
    h.claim("headroom", special | (stages.round.headroom == headroom))
    h.claim("special", ~special | (operands.output == Mux(c.nan, 0x7FFF, operands.c[:16])))
    Rounded(h, total, largest - config.alignment_bits, operands.output, accumulator, ~special).nearest()


@UNIT.property("integers", lambda config: [(_reduced(config, "s8", "u8"),)])
def _integer_step(h: Harness, config: CoreConfig) -> None:
    """Four products of 8-bit integers are added to the accumulator exactly, and the sum is clamped or wrapped once.

    This covers all operands, metadata and accumulators of 33 bits, whose highest bit is the sign that the overflow flag
    encodes. The sum is assumed to fit 33 bits, as the sums of every instruction do.
    """
    operands = _Operands(h, config, ResultCode.S32, (RuleCode.PLAIN, RuleCode.ORDERED))
    h.assume(Cat(code < len(config.elements) for code in operands.codes).all())
    c = Cat(operands.c, operands.c[-1] ^ operands.overflow).as_signed()
    parts = [c]
    for pair in operands.pairs:
        values = []
        for code, value in zip(operands.codes, pair, strict=True):
            signed_, unsigned_ = (Definition(element, value) for element in config.elements)
            values.append(Mux(code == 0, signed_.significand, unsigned_.significand))
        parts.append(values[0] * values[1])
    total = h.named("total", sum(parts))
    for index, (term, part) in enumerate(zip(_claim_sum(h, operands.unit.parts.reduce), parts, strict=True)):
        h.claim(f"term{index}", term == part << integer_place(config))
    h.assume(~operands.saturate & (total >= -(1 << 32)) & (total < 1 << 32))
    overflow = h.named("overflow_out", operands.unit.result.overflow)
    h.claim("wrapped", Cat(operands.output, operands.output[-1] ^ overflow).as_signed() == total)
    clamping = h.add("clamping", Unit(config), enable=1, step=operands.unit.step)
    h.m.d.comb += clamping.step.control.saturate.eq(1)
    smallest, largest = -(1 << 31), (1 << 31) - 1
    clamped = Mux(total < smallest, smallest, Mux(total > largest, largest, total))
    h.claim("clamped", h.named("clamped", clamping.result.d) == clamped[:32])
    h.cover("clamps", total > largest)
