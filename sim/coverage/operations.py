"""The operations of a datapath: operand formats and results of its instructions, and the ranges of their values."""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

from ...isa.formats import FORMATS, Format, Specials
from ...isa.instructions import every_instruction
from ...isa.metadata import GRANULARITIES, Granularity
from ...isa.numerics import BLOCK_GROUP, Method, Numerics, Rounding, zero_exponent_for
from ...rtl.config import CoreConfig, Element

__all__ = ["Operation", "operations_of"]

_ROUNDINGS = {"f32": Rounding.RZ_F32, "e8m13": Rounding.RZ_E8M13, "f16": Rounding.RNE_F16, "s32": Rounding.EXACT}


@dataclass(frozen=True)
class Operation:
    """Formats of a step that some instruction uses on a datapath.

    Attributes
    ----------
    config : CoreConfig
        Datapath.
    a, b : Element
        Operand elements.
    result : str
        ``f32``, ``e8m13``, ``f16`` or ``s32``.
    scale : str
        Block scale format, or ``none``.
    """

    config: CoreConfig
    a: Element
    b: Element
    result: str
    scale: str

    @property
    def pair(self) -> str:
        """Operand formats and the granularity that goes with them."""
        return f"{self.a} x {self.b} ({self.granularity.name})"

    def __str__(self) -> str:
        scaled = f" with {self.scale}" if self.scale != "none" else ""
        return f"{self.a} x {self.b} to {self.result}{scaled}"

    @property
    def granularity(self) -> Granularity:
        """Granularity of the sparsity."""
        return GRANULARITIES[{4: "4:8", 32: "1:2"}.get(self.a.container_bits, "2:4")]

    @property
    def integer(self) -> bool:
        """Whether the operands are integers."""
        return self.result == "s32"

    @property
    def grouped(self) -> bool:
        """Whether products are summed in groups of 16, each with its own block scales."""
        return self.a.packed_float

    @property
    def slots(self) -> int:
        """Number of products in a step."""
        return self.config.slots_of(self.a)

    @property
    def terms(self) -> int:
        """Number of separately aligned terms beside the accumulator: products or groups of products."""
        return self.slots // BLOCK_GROUP if self.grouped else self.slots

    @property
    def rounding(self) -> Rounding:
        """Rounding of the exact sum."""
        return _ROUNDINGS[self.result]

    @property
    def accumulator(self) -> Format:
        """Format of the accumulator."""
        return FORMATS["f16" if self.result == "f16" else "s32" if self.integer else "f32"]

    @property
    def scale_format(self) -> Format:
        """Format of the block scales; only for a scaled operation."""
        return FORMATS[self.scale]

    @property
    def alignment_bits(self) -> int:
        """Bits kept below the largest exponent."""
        if self.grouped:
            return self.config.block_alignment_bits
        return self.config.fp8_alignment_bits if self.a.container_bits == 8 else self.config.alignment_bits

    @property
    def zero_exponent(self) -> int:
        """Least value of the largest exponent. It follows the datapath's own F, not the shorter F of its fp8."""
        bits = self.config.block_alignment_bits if self.grouped else self.config.alignment_bits
        return zero_exponent_for(bits, half_result=self.result == "f16", grouped=self.grouped)

    @property
    def numerics(self) -> Numerics:
        """Parameters of a step for the golden model."""
        return Numerics(
            method=Method.GROUPED if self.grouped else Method.FUSED,
            step=self.slots,
            alignment_bits=self.alignment_bits,
            zero_exponent=self.zero_exponent,
            rounding=self.rounding,
            source=f"configuration {self.config.name}",
        )

    @property
    def mode(self) -> str:
        """Alignment mode: the kind of the terms, and the number of bits kept."""
        short = self.alignment_bits != self.config.alignment_bits
        kind = "groups" if self.grouped else "8-bit floats" if short else "floats"
        return f"{kind}, F = {self.alignment_bits}"

    @cached_property
    def exponents(self) -> range:
        """Exponents of non-zero terms, scales included."""
        low, high = 0, 0
        parts = [] if self.grouped else [self.a.format, self.b.format]
        for fmt in [*parts, *([self.scale_format] * 2 if self.scale != "none" else [])]:
            low, high = low + fmt.minimum_exponent, high + fmt.maximum_exponent
        return range(low, high + 1)

    @property
    def accumulator_exponents(self) -> range:
        """Exponents of non-zero accumulators."""
        return range(self.accumulator.minimum_exponent, self.accumulator.maximum_exponent + 1)

    @property
    def headroom(self) -> int:
        """Exponent of the leading bit of the largest significand: products are below 4, scaled groups below 2**11."""
        if not self.grouped:
            return 1
        scale = 2 - 2.0**-self.scale_format.fraction_bits
        return int(math.log2(BLOCK_GROUP * FORMATS["e2m1"].maximum ** 2 * scale**2))

    @property
    def last_bit(self) -> int:
        """Exponent of the last bit of the smallest nonzero term."""
        fraction = 2 if self.grouped else self.a.format.fraction_bits + self.b.format.fraction_bits
        if self.grouped:
            fraction += 2 * self.scale_format.fraction_bits
        return self.exponents[0] - fraction

    @property
    def last_aligned_bit(self) -> int:
        """Exponent of the last bit that an aligned term can have while the accumulator is zero."""
        return max(self.last_bit, max(self.exponents[0], self.zero_exponent) - self.alignment_bits)

    @property
    def largest_sum(self) -> float:
        """Binary logarithm of the largest sum of the terms."""
        factors = [self.slots, self.a.format.maximum, self.b.format.maximum]
        factors += [self.scale_format.maximum] * 2 if self.scale != "none" else []
        return sum(math.log2(factor) for factor in factors)

    def has(self, operand: str, special: str) -> bool:
        """Whether operand ``a`` or ``b`` has a ``NaN`` or an ``Inf``."""
        specials = (self.a if operand == "a" else self.b).format.specials
        return specials is Specials.IEEE or (special == "NaN" and specials is Specials.NAN)


@lru_cache(maxsize=32)
def operations_of(config: CoreConfig) -> tuple[Operation, ...]:
    """Return the operations of the instructions that a datapath holds.

    Instructions of all architectures count. Every combination is a control word that the datapath accepts, also where
    its architecture has no such instruction (dense fp8 on sm_90).
    """
    found: dict[Operation, None] = {}
    for instruction in every_instruction():
        if not config.holds(instruction):
            continue
        a, b = (Element(fmt, instruction.container_bits) for fmt in (instruction.a, instruction.b))
        short = config.fp8_alignment_bits < config.alignment_bits and instruction.container_bits == 8
        result = "e8m13" if short and instruction.d.name == "f32" else instruction.d.name
        scale = instruction.scale_format.name if instruction.scale_format else "none"
        found[Operation(config, a, b, result, scale)] = None
    place = config.elements.index
    return tuple(sorted(found, key=lambda o: (place(o.a), place(o.b), list(_ROUNDINGS).index(o.result), o.scale)))
