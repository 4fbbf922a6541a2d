"""Values that covergroups sample in each cycle, computed from the operands with the golden model's arithmetic."""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ...golden.accumulator import decode_accumulator, encode_accumulator
from ...golden.decode import WIDE, Scales, Terms, decode, decode_scale
from ...golden.fused import fused_step
from ...golden.grouped import grouped_step
from ...golden.integer import clamp, decode_integer
from ...golden.select import WHOLE_ELEMENT_NIBBLES
from ...golden.trace import Trace
from ...isa.formats import FORMATS, Format
from ...isa.numerics import BLOCK_GROUP
from .operands import Control, Operands, Operation

__all__ = ["FloatValues", "IntegerValues", "OperationValues", "Rounding", "Specials", "StepValues"]

Mask = NDArray[np.bool_]


class StepValues:
    """Sampled values of dot products with one control word, even if no instruction has this combination of formats."""

    def __init__(self, control: Control, nibbles: NDArray[np.uint8]) -> None:
        self.control = control
        self.nibbles = nibbles  # metadata nibbles, one per chunk, shape (count, chunks)


class OperationValues(StepValues):
    """Sampled values of dot products in float or integer formats, if an instruction has this combination of formats."""

    def __init__(self, operation: Operation, operands: Operands, control: Control) -> None:
        super().__init__(control, operands.nibbles)
        self.operation = operation
        self.operands = operands
        self.coded = (operands.a, operation.a), (operands.b, operation.b)  # codes and element formats of A and of B
        self.slots_per_chunk = operation.slots // self.nibbles.shape[1]
        self.slots = np.arange(operation.slots)
        self.chunk = self.slots // self.slots_per_chunk  # index of the metadata nibble of each product

    @cached_property
    def selection_matters(self) -> Mask:
        """Mask of nonzero elements of A for which the selection matters, since the candidate elements of B differ."""
        element, candidates = self.operation.a, self.operands.candidates
        # Container bits outside the element, and the sign bit of a float, do not make an element nonzero.
        bits = element.format.bits if element.format.is_integer else element.format.bits - 1
        nonzero = self.operands.stored >> element.low_bit & ((1 << bits) - 1) != 0
        differ = (candidates != candidates[..., :1]).any(axis=2)
        return nonzero & differ[:, self.chunk]


class IntegerValues(OperationValues):
    """Sampled values of cycles with integer operands. `a_min` to `b_max`: shape (cycles, products). Others: (cycles,).

    `agrees` is the mask of steps in which the hardware's result and overflow bit are as expected.
    """

    MAX, MIN = 2**31 - 1, -(2**31)

    def __init__(
        self, operation: Operation, operands: Operands, control: Control, d: NDArray[np.uint32], overflow: Mask
    ) -> None:
        super().__init__(operation, operands, control)
        self.a, self.b = (
            decode_integer(np.ascontiguousarray(codes), element.format).astype(np.int32)
            for codes, element in self.coded
        )
        c = operands.c.view(np.int32).astype(np.int64)
        # The previous cycle of the same output sets the overflow bit if its sum, now the accumulator, exceeds 32 bits.
        self.before = c + np.where(operands.overflow, np.where(c < 0, 1 << 32, -(1 << 32)), 0)
        self.products = (self.a * self.b).sum(axis=1, dtype=np.int64)
        self.total = self.before + self.products
        self.saturate = control.saturate
        self.above, self.below = self.total > self.MAX, self.total < self.MIN
        self.in_range = ~self.above & ~self.below
        # If all products are unsigned, earlier cycles of an output cannot make the accumulator less than -2**31.
        a_format, b_format = operation.a.format, operation.b.format
        self.possible = (self.before >= self.MIN) | a_format.signed | b_format.signed
        a_range, b_range = _integer_range(a_format), _integer_range(b_format)
        self.a_min, self.a_max = (self.a == end for end in a_range)
        self.b_min, self.b_max = (self.b == end for end in b_range)
        extremes = [operation.slots * x * y for x in a_range for y in b_range]
        self.largest, self.smallest = max(extremes), min(extremes)
        if self.saturate:
            self.agrees = (d == clamp(self.total).view(np.uint32)) & ~overflow
        else:
            wrapped = (self.total & 0xFFFFFFFF).astype(np.uint32)
            self.agrees = (d == wrapped) & (overflow == ((self.total < 0) != (wrapped >> np.uint32(31) == 1)))


class FloatValues(OperationValues):
    """Sampled values of float dot products. A mask of terms has shape (terms, count), one of dot products (count,).

    `agrees` is the mask of steps in which the hardware's result is as expected, and `ordinary` the mask of steps
    without special values, whose result is the rounded sum, which may overflow to Inf. `scale_codes` are the block
    scales of A and B in use, shape (2, count, groups), with one group if products are not grouped.
    """

    def __init__(self, operation: Operation, operands: Operands, control: Control, d: NDArray[np.uint32]) -> None:
        super().__init__(operation, operands, control)
        fmt = operation.accumulator
        code_type = np.dtype(np.uint16 if fmt.name == "f16" else np.uint32)
        # The wide floating-point type keeps even very small aligned terms exact.
        self.a, self.b = (decode(codes.T, element.format, WIDE, element.low_bit) for codes, element in self.coded)
        if self.a.classes is not None or self.b.classes is not None:
            self.a, self.b = self.a.with_classes(), self.b.with_classes()
        # masks of elements that are neither zero nor Inf nor NaN
        self.numbers_a, self.numbers_b = self.a.values != 0, self.b.values != 0
        self.c = decode_accumulator(operands.c.astype(code_type))
        self.c_subnormal = (self.c != 0) & (np.abs(self.c) < 2.0**fmt.minimum_exponent)
        self.scale_codes = np.stack([operands.scale_a, operands.scale_b])[:, :, : operation.scale_groups]
        self.scale_is_nan, scales = np.zeros(self.scale_codes.shape, np.bool_), None
        if operation.scale_formats:
            significands, exponents = decode_scale(self.scale_codes, operation.scale_formats[0])
            self.scale_is_nan = np.isnan(significands)
            scales = Scales(significands.prod(axis=0).T, exponents.sum(axis=0).T.astype(np.int32))
        self.trace = trace = self._step(scales)
        self.ordinary = trace.ordinary
        self.sets_e_max = trace.participates & (trace.exponents == trace.e_max)
        self.c_sets_e_max = trace.c_participates & (trace.c_exponents == trace.e_max)
        # for each step (sum of one cycle), whether a product or the accumulator is neither zero nor Inf nor NaN
        self.nonzero = trace.participates.any(axis=0) | trace.c_participates
        # significand of each product that has the largest exponent of its step; NaN for other products, and for all
        # products of operations that sum groups of 16 products
        significands = np.abs(trace.aligned) * 2.0**-operation.alignment_bits
        self.e_max_significands = np.where(self.sets_e_max & (not operation.grouped), significands, np.nan)
        self.truncated, self.c_truncated = trace.aligned != trace.truncated, trace.c_aligned != trace.c_truncated
        # for each step: whether alignment discards nonzero bits; whether a term or the accumulator stays nonzero
        self.loses_bits = self.truncated.any(axis=0) | self.c_truncated
        self.keeps_bits = (trace.truncated != 0).any(axis=0) | (trace.c_truncated != 0)
        codes = encode_accumulator(trace.result, code_type).astype(np.uint32)
        self.agrees = d == codes
        sign_bit, hidden = 1 << fmt.bits - 1, 1 << fmt.fraction_bits
        magnitude = codes & np.uint32(sign_bit - 1)
        self.result_negative, self.result_is_inf = codes >= sign_bit, magnitude == sign_bit - hidden
        self.result_subnormal = (magnitude > 0) & (magnitude < hidden)
        self.result_smallest = magnitude == 1 << operation.last_result_bit - operation.last_bits[1]
        self.specials, self.rounding = Specials(self), Rounding(self)

    def _step(self, scales: Scales | None) -> Trace:
        """Return the golden model's trace of these dot products, with all intermediate values."""
        operation, traces = self.operation, list[Trace]()
        if operation.grouped:
            assert scales
            grouped_step(self.a, self.b, self.c, operation.accumulator, operation.numerics, scales, traces)
        else:
            # Pass a copy of the values of B, since fused_step overwrites them.
            b = Terms(self.b.values.copy(), self.b.exponents, self.b.classes)
            fused_step(self.a, b, self.c, operation.accumulator, operation.numerics, WIDE, scales, traces)
        return traces[0]

    def subnormal(self, operand: str) -> Mask:
        """Return the mask of dot products with a subnormal element of `operand` times a nonzero number."""
        terms, fmt = (self.a, self.operation.a.format) if operand == "a" else (self.b, self.operation.b.format)
        subnormal = np.abs(terms.values) < 2.0**fmt.minimum_exponent
        return (self.numbers_a & self.numbers_b & subnormal).any(axis=0)

    @cached_property
    def unselected_b(self) -> tuple[Mask, Mask]:
        """Masks of dot products with an unselected NaN, or an unselected Inf, in B, and only finite used operands."""
        element, visible, classes = self.operation.b, self.ordinary, None
        if self.control.sparse and self.operation.has("b", "NaN"):
            classes = decode(self.operands.all_b, element.format, WIDE, element.low_bit).classes
        if classes is None:
            return np.zeros_like(visible), np.zeros_like(visible)
        # Exclude cycles in which a nibble selects one half of each of two tf32 elements of B: neither element is then
        # selected or unselected as a whole.
        if element.container_bits == FORMATS["tf32"].container_bits:
            visible = visible & np.isin(self.nibbles, WHOLE_ELEMENT_NIBBLES).all(axis=1)
        return visible & np.isnan(classes).any(axis=1), visible & np.isinf(classes).any(axis=1)

    @property
    def all_negative(self) -> Mask:
        """For each cycle, whether the sign bits of all products and of the accumulator are set."""
        a_sign, b_sign = (codes >> (element.low_bit + element.format.bits - 1) & 1 for codes, element in self.coded)
        return (a_sign != b_sign).all(axis=1) & np.signbit(self.c)

    @cached_property
    def one_scale_is_nan(self) -> Mask:
        """Mask of dot products whose result is NaN only because exactly one block scale is NaN."""
        alone = (self.scale_is_nan.sum(axis=(0, 2)) == 1) & ~np.isnan(self.c)
        if self.a.classes is None or self.b.classes is None:
            return alone
        return alone & (np.isfinite(self.a.classes) & np.isfinite(self.b.classes)).all(axis=0)

    @cached_property
    def group_has_products(self) -> Mask:
        """Mask of product groups (16 products each) with at least one nonzero product."""
        return (self.numbers_a & self.numbers_b).reshape(-1, BLOCK_GROUP, len(self.c)).any(axis=1)


class Specials:
    """Causes of a NaN or Inf result, each with a flag per cycle: NaN or Inf in an operand, Inf - Inf, Inf times zero.

    `plus` and `minus` are Inf and -Inf of a product. `alone` is the mask of steps with exactly one cause of NaN, block
    scales included, and `no_nan` the mask of steps without a cause of NaN.
    """

    def __init__(self, values: FloatValues) -> None:
        finite = np.ones((1, len(values.c)), np.float32)
        a, b = (finite if terms.classes is None else terms.classes for terms in (values.a, values.b))
        with np.errstate(invalid="ignore"):
            product = a * b
        self.nan_a, self.nan_b, self.nan_c = np.isnan(a).any(axis=0), np.isnan(b).any(axis=0), np.isnan(values.c)
        self.inf_zero, self.zero_inf = (np.isinf(a) & (b == 0)).any(axis=0), (np.isinf(b) & (a == 0)).any(axis=0)
        self.plus, self.minus = (product == np.inf).any(axis=0), (product == -np.inf).any(axis=0)
        self.c_plus, self.c_minus = values.c == np.inf, values.c == -np.inf
        self.difference = self.plus & self.minus
        c_difference = ((self.plus & self.c_minus) | (self.minus & self.c_plus)) & ~self.difference
        nan = [self.nan_a, self.nan_b, self.nan_c, values.scale_is_nan.any(axis=(0, 2))]
        causes = np.sum([*nan, self.inf_zero, self.zero_inf, self.difference, c_difference], axis=0)
        self.alone, self.no_nan = causes == 1, causes == 0


class Rounding:
    """Rounding events of dot products with a nonzero sum and no special value; each array has one entry for each.

    A sum that overflows before rounding counts as `overflow`, neither as `normal` nor as `subnormal`. A sum that is
    rounded to f16 is split in units of the last place into an integer `below` and a fraction `rest`, and is rounded
    `up` or down to `below`. It is at the `top` if it is above the largest finite number and the rounding decides
    whether it overflows.
    """

    def __init__(self, values: FloatValues) -> None:
        operation, trace = values.operation, values.trace
        fmt, nearest = operation.accumulator, operation.result == "f16"
        steps = trace.ordinary & (trace.total != 0)
        total = trace.total[steps]
        self.negative, magnitude = total < 0, np.abs(total)
        self.rounded = np.abs(trace.result[steps].astype(np.float64))
        self.exact = self.rounded == magnitude
        last_bit = operation.last_result_bit - fmt.minimum_exponent  # exponent of the last bit of the result 1.0
        self.largest = (2 - 2.0**last_bit) * 2.0**fmt.maximum_exponent
        self.subnormal = (magnitude if nearest else self.rounded) < 2.0**fmt.minimum_exponent
        self.overflow = magnitude >= 2.0 ** (fmt.maximum_exponent + 1) if nearest else np.isinf(self.rounded)
        self.normal = ~self.subnormal & ~self.overflow
        if nearest:
            binade = np.maximum(np.frexp(magnitude)[1] - 1, fmt.minimum_exponent)
            scaled = np.ldexp(magnitude, fmt.fraction_bits - binade)  # ldexp is exact: it multiplies by a power of two
            self.below = np.floor(scaled)
            self.rest, self.odd = scaled - self.below, self.below % 2 == 1
            self.up = (self.rest > 0.5) | ((self.rest == 0.5) & self.odd)
            self.top = (magnitude > self.largest) & ~self.overflow
            self.hidden = 1 << fmt.fraction_bits


def _integer_range(fmt: Format) -> tuple[int, int]:
    return (-(1 << fmt.bits - 1), (1 << fmt.bits - 1) - 1) if fmt.signed else (0, (1 << fmt.bits) - 1)
