"""Operations (format combinations) of a datapath, exponent ranges of their terms, and a decoder of input words."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ...isa.formats import FORMATS, Format, Specials
from ...isa.instructions import Instruction, every_instruction
from ...isa.metadata import UNITS_PER_CHUNK, indices, is_wide, reachable, split_nibbles, swap_for_mux3
from ...isa.numerics import BLOCK_GROUP, Method, Numerics, Rounding, zero_exponent_for
from ...rtl.config import CoreConfig, Element
from ..engine.row_interface import row_interface
from ..engine.steps import step_words

__all__ = ["Control", "Operands", "Operation", "StepReader", "operation_of", "operations_of", "routes", "split"]

_Key = TypeVar("_Key")
_ROUNDINGS = {"f32": Rounding.RZ_F32, "e8m13": Rounding.RZ_E8M13, "f16": Rounding.RNE_F16, "s32": Rounding.EXACT}


@dataclass(frozen=True)
class Operation:
    """Combination of element, scale and result formats that some instruction uses on a datapath."""

    config: CoreConfig
    a: Element
    b: Element
    result: str  #: Result format: ``f32``, ``e8m13``, ``f16`` or ``s32``
    scale: str  #: Name of the block scale format, or ``none``

    def __str__(self) -> str:
        scaled = f" with {self.scale}" if self.scale != "none" else ""
        return f"{self.a} x {self.b} to {self.result}{scaled}"

    @property
    def pair(self) -> str:
        """Names of the formats of A and B, and their sparsity granularity, as a label of coverage bins."""
        granularity = {4: "4:8", 32: "1:2"}.get(self.a.container_bits, "2:4")
        return f"{self.a} x {self.b} ({granularity})"

    @property
    def mode(self) -> str:
        """Alignment mode: whether products or groups of products are aligned, and the number F of alignment bits."""
        short = self.alignment_bits != self.config.alignment_bits
        kind = "groups" if self.grouped else "8-bit floats" if short else "floats"
        return f"{kind}, F = {self.alignment_bits}"

    @property
    def integer(self) -> bool:
        """Whether the operation has integer operands."""
        return self.result == "s32"

    @property
    def grouped(self) -> bool:
        """Whether products are summed in groups of 16 and each group has its own block scales, as for e2m1."""
        return self.a.packed_float

    @property
    def slots(self) -> int:
        """Number of products that a dot-product unit adds in one cycle."""
        return self.config.slots_of(self.a)

    @property
    def terms(self) -> int:
        """Number of terms that are aligned in one cycle, besides the accumulator: products or groups of 16 products."""
        return self.slots // BLOCK_GROUP if self.grouped else self.slots

    @property
    def scaling(self) -> tuple[str, bool]:
        """Name of the block scale format, and whether each group of 16 products has its own scales."""
        return self.scale, self.grouped

    @property
    def scale_groups(self) -> int:
        """Number of block scales of each operand in a cycle: one per group of 16 products, or one for all products."""
        return self.terms if self.grouped else 1

    @property
    def accumulator(self) -> Format:
        """Number format of the accumulator operand."""
        return FORMATS[self.result if self.result in ("f16", "s32") else "f32"]

    @property
    def scale_formats(self) -> list[Format]:
        """Number formats of the block scales of A and B; empty for an operation without block scales."""
        return [] if self.scale == "none" else [FORMATS[self.scale]] * 2

    @property
    def alignment_bits(self) -> int:
        """Number F of bits that alignment keeps below the largest exponent."""
        if self.grouped:
            return self.config.block_alignment_bits
        return self.config.fp8_alignment_bits if self.a.container_bits == 8 else self.config.alignment_bits

    @property
    def zero_exponent(self) -> int:
        """Lower bound e_zero of the exponent to which terms are aligned; the bound is the same for fp8 and for f16."""
        bits = self.config.block_alignment_bits if self.grouped else self.config.alignment_bits
        return zero_exponent_for(
            bits, half_result=self.result == "f16", grouped=self.grouped, floor=self.config.exponent_floor
        )

    @property
    def numerics(self) -> Numerics:
        """Parameters of the golden model's arithmetic for this operation (combination of formats)."""
        return Numerics(
            method=Method.GROUPED if self.grouped else Method.FUSED,
            step=self.slots,
            alignment_bits=self.alignment_bits,
            zero_exponent=self.zero_exponent,
            rounding=_ROUNDINGS[self.result],
            group=self.config.group if self.scale == "ue4m3" else BLOCK_GROUP,
            source=f"configuration {self.config.name}",
        )

    @cached_property
    def exponents(self) -> range:
        """Range of exponents of nonzero terms; the exponent of 16 products is the sum of their scales' exponents."""
        formats = [*([] if self.grouped else [self.a.format, self.b.format]), *self.scale_formats]
        return range(sum(f.minimum_exponent for f in formats), sum(f.maximum_exponent for f in formats) + 1)

    @property
    def accumulator_exponents(self) -> range:
        """Range of the exponents of nonzero accumulators."""
        return range(self.accumulator.minimum_exponent, self.accumulator.maximum_exponent + 1)

    @property
    def headroom(self) -> int:
        """Exponent of the largest term's leading bit minus the term's exponent: 1 for products, more for sums of 16."""
        if not self.grouped:
            return 1
        scale = 2 - 2.0 ** -self.scale_formats[0].fraction_bits
        return int(math.log2(BLOCK_GROUP * FORMATS["e2m1"].maximum ** 2 * scale**2))

    @property
    def last_bits(self) -> tuple[int, int]:
        """Exponents of the lowest significand bits of the smallest nonzero term and smallest nonzero accumulator."""
        fraction_bits = sum(fmt.fraction_bits for fmt in (self.a.format, self.b.format, *self.scale_formats))
        return self.exponents[0] - fraction_bits, self.accumulator_exponents[0] - self.accumulator.fraction_bits

    @property
    def last_aligned_bits(self) -> tuple[int, int]:
        """Exponents of the lowest bits that alignment keeps if only one term, or only the accumulator, is nonzero."""
        lowest = self.exponents[0], self.accumulator_exponents[0]
        term, c = (max(exponent, self.zero_exponent) - self.alignment_bits for exponent in lowest)
        return max(self.last_bits[0], term), max(self.last_bits[1], c)

    @property
    def last_sum_bit(self) -> int:
        """Exponent of the lowest possible bit of the exact sum, minus the exponent of the smallest nonzero result."""
        return min(self.last_aligned_bits) - self.last_result_bit

    @property
    def last_result_bit(self) -> int:
        """Exponent of the smallest nonzero number (subnormal) in the result format."""
        fraction_bits = 13 if self.result == "e8m13" else self.accumulator.fraction_bits
        return self.accumulator.minimum_exponent - fraction_bits

    @property
    def can_overflow(self) -> bool:
        """Whether the products that a unit adds in a cycle can turn the largest finite accumulator into Inf."""
        if self.result == "f16":
            return True
        factors = [self.slots, *(fmt.maximum for fmt in (self.a.format, self.b.format, *self.scale_formats))]
        # Number of bits that alignment keeps below the leading bit 2**127 of the largest accumulator. All these bits
        # are ones, so adding one to the lowest of them overflows.
        kept = min(self.alignment_bits, FORMATS["f32"].fraction_bits)
        return sum(map(math.log2, factors)) >= FORMATS["f32"].maximum_exponent - kept

    def has(self, operand: str, special: str) -> bool:
        """Whether the format of operand ``a`` or ``b`` has the special value ``NaN`` or ``Inf``."""
        specials = (self.a if operand == "a" else self.b).format.specials
        return specials is Specials.IEEE or (special == "NaN" and specials is Specials.NAN)


def operation_of(config: CoreConfig, instruction: Instruction) -> Operation:
    """Return the combination of formats that an instruction uses on a datapath."""
    a, b = (Element(fmt, instruction.container_bits) for fmt in (instruction.a, instruction.b))
    short = config.fp8_alignment_bits < config.alignment_bits and instruction.container_bits == 8
    result = "e8m13" if short and instruction.d.name == "f32" else instruction.d.name
    return Operation(config, a, b, result, instruction.scale_format.name if instruction.scale_format else "none")


@lru_cache(maxsize=32)
def operations_of(config: CoreConfig) -> tuple[Operation, ...]:
    """Return every combination of formats that occurs in the instructions of a datapath.

    Instructions of all architectures count: the datapath accepts the control word of every combination, even if the
    architecture of the datapath has no such instruction (dense fp8 on sm_90).
    """
    operations = {operation_of(config, instruction) for instruction in every_instruction() if config.holds(instruction)}
    index, results = config.elements.index, [*_ROUNDINGS]
    return tuple(sorted(operations, key=lambda o: (index(o.a), index(o.b), results.index(o.result), o.scale)))


def split(operations: Iterable[Operation], key: Callable[[Operation], _Key]) -> dict[_Key, list[Operation]]:
    """Return a list of operations for each value of `key`, in the order in which values and operations first occur."""
    parts: dict[_Key, list[Operation]] = {}
    for operation in operations:
        parts.setdefault(key(operation), []).append(operation)
    return parts


@dataclass(frozen=True)
class Control:
    """Decoded fields of a control word, which selects the formats and rules of a dot product.

    `a` and `b` are indices of the operand formats in the configuration; `result`, `rule` and `scale` are names in lower
    case, empty for an undefined code.
    """

    a: int
    b: int
    result: str
    saturate: bool
    sparse: bool
    rule: str
    scale: str


@dataclass(frozen=True, eq=False)
class Operands:
    """Operands of a dot-product unit in cycles with equal control word; the first axis of each array is the cycle."""

    a: NDArray  # element of A at each multiplier, after any swap of neighbouring elements
    b: NDArray
    stored: NDArray  # elements of A as stored in the matrix, before any swap of neighbouring elements
    candidates: NDArray  # units (8 or 16 bits) of B between which the multiplexers select, shape (count, chunks, 4)
    all_b: NDArray  # all elements of B at the multiplexer inputs, including unselected elements
    nibbles: NDArray[np.uint8]  # metadata nibbles, one per chunk, shape (count, chunks)
    c: NDArray[np.uint32]
    overflow: NDArray[np.bool_]  # overflow bit of the accumulator input, from the previous cycle of the same output
    scale_a: NDArray[np.uint8]  # block scale codes, shape (count, 4)
    scale_b: NDArray[np.uint8]


@lru_cache(maxsize=16)
def routes(rule: str, mux: str) -> tuple[NDArray[np.intp], NDArray[np.bool_], NDArray[np.bool_]]:
    """Return what the two indices in each metadata nibble select, as arrays indexed by the nibble.

    The arrays state which unit of B each index selects, whether a multiplexer delivers this unit, and whether the two
    elements of A are swapped.
    """
    nibbles = range(16)
    units = np.array([indices(nibble) for nibble in nibbles])
    delivered = np.array([reachable(nibble, rule, mux) for nibble in nibbles])
    swapped = np.array([mux == "mux3" and rule == "plain" and swap_for_mux3(nibble) for nibble in nibbles])
    for array in (units, delivered):
        array[swapped] = array[swapped, ::-1]
    return units, delivered, swapped


class StepReader:
    """Decoder of a dot-product unit's input words, written from the rules of the instruction set, not from the RTL."""

    def __init__(self, config: CoreConfig) -> None:
        self.config = config
        self._words = step_words(config)
        self._interface = row_interface(config)
        self._names = {
            field: {code: name.lower() for name, code in codes.items()}
            for field, codes in self._interface.codes.items()
        }

    def control_words(self, steps: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """Return the control word of every cycle, without the overflow bit in the same 32-bit word."""
        return steps[:, self._words.control.start] & np.uint32((1 << self._words.overflow_bit) - 1)

    def control(self, word: int) -> Control:
        """Split the control word of a dot product into its fields."""
        layout = self._interface.control
        values = {name: word >> field.offset & (1 << field.width) - 1 for name, field in layout.items()}
        named = {name: self._names[name].get(values[name], "") for name in self._names}
        return Control(
            values["a"], values["b"], named["result"], bool(values["saturate"]), bool(values["sparse"]),
            named["rule"], named["scale"],
        )  # fmt: skip

    def nibbles(self, steps: NDArray[np.uint32], wide: bool) -> NDArray[np.uint8]:
        """Return the metadata nibbles of dot products, shape (count, nibbles); `wide` elements have half as many."""
        inputs = split_nibbles(self._bytes(steps, self._words.metadata))
        order = self._interface.nibble_order[wide]
        return inputs[:, [order.index(chunk) for chunk in range(self.config.chunks // (2 if wide else 1))]]

    def operands(self, steps: NDArray[np.uint32], control: Control) -> Operands:
        """Decode the operands of cycles that have the same control word."""
        bits = self.config.elements[control.a].container_bits
        size, wide = self.config.step_bytes, is_wide(bits)
        unit = np.dtype("<u2" if wide else "u1")
        count = len(steps)
        stored = self._bytes(steps, self._words.a)[:, :size].copy().view(unit)
        b = self._column(steps, wide=wide, sparse=control.sparse).view(unit)
        nibbles = self.nibbles(steps, wide)
        candidates = b.reshape(count, -1, UNITS_PER_CHUNK)
        if control.sparse:
            units, delivered, swapped = routes(control.rule, self.config.mux)
            selected = np.take_along_axis(candidates, units[nibbles], axis=2)
            if not delivered.all():
                selected = np.where(delivered[nibbles], selected, unit.type(0))
            a = stored.reshape(count, -1, 2)
            if swapped.any():
                a = np.where(swapped[nibbles][..., None], a[..., ::-1], a)
        else:
            selected, a = b[:, : stored.shape[1]], stored
        words = self._words
        return Operands(
            a=_elements(a.reshape(count, -1), bits),
            b=_elements(selected.reshape(count, -1), bits),
            stored=_elements(stored, bits),
            candidates=candidates,
            all_b=_elements(b, bits),
            nibbles=nibbles,
            c=np.ascontiguousarray(steps[:, words.c.start]),
            overflow=(steps[:, words.control.start] >> np.uint32(words.overflow_bit) & np.uint32(1)).astype(np.bool_),
            scale_a=self._bytes(steps, words.scale_a),
            scale_b=self._bytes(steps, words.scale_b),
        )

    def _column(self, steps: NDArray[np.uint32], *, wide: bool, sparse: bool) -> NDArray[np.uint8]:
        """Return, for each cycle, a column of B as bytes in order of K; if A is dense, the second half is zero."""
        inputs = self._bytes(steps, self._words.b)
        if not self.config.sparse:
            return inputs
        column = np.zeros_like(inputs)
        order = self._interface.byte_order[wide][sparse]
        pairs = [(place, position) for position, place in enumerate(order) if place is not None]
        places, positions = np.array(pairs).T
        column[:, places] = inputs[:, positions]
        return column

    def _bytes(self, steps: NDArray[np.uint32], field: slice) -> NDArray[np.uint8]:
        return np.ascontiguousarray(steps[:, field]).view(np.uint8)


def _elements(units: NDArray, bits: int) -> NDArray:
    """Convert rows of 8-bit or 16-bit words to elements that are stored in `bits` bits."""
    if bits == 4:
        return split_nibbles(units)
    elements: NDArray = np.ascontiguousarray(units).view(f"<u{bits // 8}")
    return elements
