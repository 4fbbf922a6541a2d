"""One dot-product unit: a step of stored A, B, metadata and accumulator in, a rounded result out."""

from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TypeVar

from amaranth.hdl import Cat, Const, Module, Mux, ShapeLike, Signal, Value, ValueLike, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out, PureInterface

from ..isa.numerics import BLOCK_GROUP, zero_exponent_for
from .accumulate import Accumulate
from .align import ALIGNED_EXPONENT_BITS, Align, MaxExponent
from .config import CoreConfig, Element
from .group import SCALED_GROUP_BITS, SCALED_GROUP_FRACTION_BITS, Group
from .multiply import Multiply
from .round import ResultCode, Round
from .scale import ExponentOffset, ScaleCode
from .select import OperandSelect
from .step import result_layout, step_layout
from .unpack import (
    ACCUMULATOR_SIGNIFICAND_BITS,
    FormatDecoder,
    Unpack,
    UnpackAccumulator,
    significand_bits,
)
from .widths import Widths

__all__ = ["Unit"]

_T = TypeVar("_T", bound=ValueLike)
#: Below every real exponent: the exponent of a term that does not count.
_NO_EXPONENT = -(1 << (ALIGNED_EXPONENT_BITS - 1))


@dataclass(frozen=True)
class _Product:
    """The finite part of a product, as the align stage takes it."""

    sign: Value
    exponent: Value
    significand: Value
    zero: Value


@dataclass
class _Aligned:
    """What the align stage hands on."""

    terms: list[Value]  # signed, in units of the alignment grid; 8-bit integers in units of 1
    group_sums: list[Value]  # signed integers: exact sums of 16 products of 4-bit elements
    group_terms: list[Value]  # signed, in units of the block grid
    c_term: Value
    exponent: Value
    nan: Value
    positive_inf: Value
    negative_inf: Value


class Unit(wiring.Component):
    """A dot-product unit.

    ``d = round(c + sum of products of the kept slots)``, one truncated fused dot-product-add. Latency
    ``config.latency`` cycles, one step each cycle, no handshake: see :class:`~sptc.rtl.core.Core` for streams.

    Parameters
    ----------
    config : CoreConfig
        Formats, widths, selector and pipeline cuts. Logic of formats that it lacks is not built.

    Members
    -------
    step : In(step_layout(config))
        Operands and control.
    enable : In(1)
        The pipeline advances.
    result : Out(result_layout(config))
        The step of `config.latency` enabled cycles ago.

    Notes
    -----
    Source: measured on an H200; block-scaled kinds after published models (modelled).
    """

    def __init__(self, config: CoreConfig) -> None:
        self.config = config
        self.widths = Widths(config)
        super().__init__(
            {"step": In(step_layout(config)), "enable": In(1, init=1), "result": Out(result_layout(config))}
        )

    def elaborate(self, platform: object) -> Module:
        """Build the stages and the registers between them."""
        m = Module()
        config, control, step = self.config, self.step.control, self.step
        m.submodules.select = select = OperandSelect(config)
        m.d.comb += [
            select.a.eq(step.a),
            select.b.eq(step.b),
            select.nibbles.eq(step.metadata),
            select.wide.eq(self._is(step.control.a, [e for e in config.elements if e.container_bits >= 16])),
            select.sparse.eq(step.control.sparse),
            select.rule.eq(step.control.rule),
        ]
        a, b, illegal = select.stored, select.selected, select.illegal
        c = Cat(step.c, step.c[-1] ^ step.overflow)
        control, a, b, c, scale_a, scale_b, illegal = (
            self._cut(m, "select", value) for value in (control, a, b, c, step.scale_a, step.scale_b, illegal)
        )
        multiplied = self._multiply(m, control, a, b)
        products = [self._cut_product(m, product) for product in multiplied]
        specials = tuple(self._cut(m, "multiply", flag) for flag in self._specials(m, multiplied))
        control, c, scale_a, scale_b, illegal = (
            self._cut(m, "multiply", value) for value in (control, c, scale_a, scale_b, illegal)
        )
        aligned = self._align(m, control, products, specials, c, scale_a, scale_b)
        for name in ("terms", "group_sums", "group_terms"):
            setattr(aligned, name, [self._cut(m, "align", value) for value in getattr(aligned, name)])
        for name in ("c_term", "exponent", "nan", "positive_inf", "negative_inf"):
            setattr(aligned, name, self._cut(m, "align", getattr(aligned, name)))
        control, illegal = (self._cut(m, "align", value) for value in (control, illegal))

        total = self._cut(m, "reduce", self._reduce(m, control, aligned))
        exponent, nan, positive_inf, negative_inf = (
            self._cut(m, "reduce", value)
            for value in (aligned.exponent, aligned.nan, aligned.positive_inf, aligned.negative_inf)
        )
        control, illegal = (self._cut(m, "reduce", value) for value in (control, illegal))

        m.submodules.round = rounder = Round(
            self.widths.total_bits, self.widths.grid_bits, self.widths.integer_bits, self.widths.results
        )
        m.d.comb += [
            rounder.total.eq(total),
            rounder.exponent.eq(exponent),
            rounder.result.eq(control.result),
            rounder.saturate.eq(control.saturate),
            rounder.nan.eq(nan),
            rounder.positive_inf.eq(positive_inf),
            rounder.negative_inf.eq(negative_inf),
            self.result.d.eq(self._cut(m, "round", rounder.output)),
            self.result.overflow.eq(self._cut(m, "round", rounder.overflow)),
            self.result.illegal.eq(self._cut(m, "round", illegal)),
        ]
        return m

    def _cut(self, m: Module, name: str, value: _T) -> _T:
        """Return `value` registered if the configuration cuts there. Payload registers need no reset."""
        if name not in self.config.cuts:
            return value
        register = Signal(value.shape(), name=f"{name}_register", reset_less=True)
        with m.If(self.enable):
            m.d.sync += register.eq(value)
        return register

    def _cut_product(self, m: Module, product: PureInterface) -> _Product:
        """Return the finite part of a product behind the multiply cut."""
        fields = (product.sign, product.exponent, product.significand, product.zero)
        return _Product(*(self._cut(m, "multiply", field) for field in fields))

    def _specials(self, m: Module, products: list[PureInterface]) -> tuple[Value, Value, Value]:
        """Return whether any product is NaN, +Inf and -Inf; a NaN may count as either, since it wins anyway."""
        floats = products[: self.widths.float_slots]
        flags = [
            [product.nan for product in floats],
            [product.special & ~product.sign for product in floats],
            [product.special & product.sign for product in floats],
        ]
        nan, positive, negative = (self._named(m, _any([Const(0), *part]), 1) for part in flags)
        return nan, positive, negative

    def _is(self, code: Value, elements: list[Element]) -> Value:
        """Return whether an element code names one of `elements`."""
        codes = [self.config.elements.index(element) for element in elements]
        return Cat(code == c for c in codes).any() if codes else Const(0)

    def _multiply(self, m: Module, control: data.View, a: Value, b: Value) -> list[PureInterface]:
        """Unpack the operands of every slot and multiply them."""
        elements = self.config.elements
        products = []
        formats = {}
        for name, code in (("a", control.a), ("b", control.b)):
            m.submodules[f"format_{name}"] = formats[name] = FormatDecoder(elements)
            m.d.comb += formats[name].element.eq(code)
        for slot in range(self.config.slots):
            served = self.config.elements_of_slot(slot)
            coded = [(elements.index(element), element) for element in served]
            width = significand_bits(served)
            m.submodules[f"multiply{slot}"] = multiply = Multiply(width)
            for name, operand, code, port in (("a", a, control.a, multiply.a), ("b", b, control.b, multiply.b)):
                m.submodules[f"unpack_{name}{slot}"] = unpack = Unpack(slot, coded, width, len(operand))
                m.d.comb += [
                    unpack.operand.eq(operand),
                    unpack.element.eq(code),
                    unpack.specials.eq(formats[name].specials),
                ]
                wiring.connect(m, unpack.raw, port)
            products.append(multiply.product)
        return products

    def _align(
        self,
        m: Module,
        control: data.View,
        products: list[_Product],
        specials: tuple[Value, ...],
        c: Value,
        scale_a: Value,
        scale_b: Value,
    ) -> _Aligned:
        """Find the largest exponent and align every term to it."""
        config = self.config
        packed = self._is(control.a, self.widths.packed)
        narrow = self._is(control.a, self.widths.narrow)
        groups = self._groups(m, control, products, scale_a, scale_b)
        group_sums = [group.total for group in groups[: self.widths.integer_groups]]
        if not self.widths.floats and not self.widths.packed:
            terms = [self._integer_term(m, product, narrow) for product in products[: config.term_slots]]
            return _Aligned(terms, group_sums, [], c.as_signed(), *_NO_FLOAT)

        counts = self._is(control.a, [e for e in config.elements if e.counts])
        integer = counts & ~packed
        fp8 = self._is(control.a, [e for e in self.widths.floats if e.container_bits == 8])
        half = (control.result == ResultCode.F16) if ResultCode.F16 in self.widths.results else Const(0)
        m.submodules.accumulator = accumulator = UnpackAccumulator()
        m.submodules.offset = offset = ExponentOffset(config)
        m.d.comb += [
            accumulator.word.eq(c[:32]),
            accumulator.half.eq(half),
            offset.a.eq(control.a),
            offset.b.eq(control.b),
            offset.enable.eq((control.scale == ScaleCode.UE8M0) & ~packed),
            offset.scale_a.eq(scale_a[:8]),
            offset.scale_b.eq(scale_b[:8]),
        ]

        floats = products[: self.widths.float_slots]
        scaled = groups[: self.widths.scaled_groups]
        m.submodules.largest = largest = MaxExponent(len(floats) + len(scaled) + 2)
        c_exponent = self._named(m, accumulator.exponent + offset.offset, signed(ALIGNED_EXPONENT_BITS))
        exponents = [
            *(Mux(product.zero | packed, _NO_EXPONENT, product.exponent) for product in floats),
            *(Mux(packed & group.counts, group.exponent, _NO_EXPONENT) for group in scaled),
            Mux(accumulator.zero, _NO_EXPONENT, c_exponent),
            self._zero_exponent(half, packed) + offset.offset,
        ]
        m.d.comb += [port.eq(value) for port, value in zip(largest.exponents, exponents, strict=True)]

        short_fp8 = (config.alignment_bits - config.fp8_alignment_bits,) if self.widths.fp8_is_shorter else ()
        terms = []
        for slot, product in enumerate(products[: config.term_slots]):
            if slot >= len(floats):
                terms.append(self._integer_term(m, product, narrow))
                continue
            bits = len(product.significand)
            m.submodules[f"align{slot}"] = align = Align(bits, config.alignment_bits + 2 - bits, short_fp8)
            m.d.comb += [
                align.magnitude.eq(Mux(narrow, 0, product.significand)),
                # An integer keeps its place: what padding put below it, the shift takes away.
                align.distance.eq(Mux(integer, align.padding, _distance(largest.largest, product.exponent))),
                align.shorten.eq(fp8),
            ]
            terms.append(self._named(m, _with_sign(product.sign, align.output), signed(align.output_bits + 1)))

        group_terms = []
        padding = config.block_alignment_bits - SCALED_GROUP_FRACTION_BITS
        for index, group in enumerate(scaled):
            m.submodules[f"align_group{index}"] = align = Align(SCALED_GROUP_BITS, padding)
            m.d.comb += [
                align.magnitude.eq(Mux(packed, group.magnitude, 0)),
                align.distance.eq(largest.largest - group.exponent),
            ]
            term = self._named(m, _with_sign(group.sign, align.output), signed(align.output_bits + 1))
            group_terms.append(term)

        modes = [(~packed, config.alignment_bits)] if self.widths.packed else []
        modes += [(fp8, config.fp8_alignment_bits)] if self.widths.fp8_is_shorter else []
        m.submodules.align_c = align = Align(
            ACCUMULATOR_SIGNIFICAND_BITS,
            self.widths.grid_bits + 1 - ACCUMULATOR_SIGNIFICAND_BITS,
            [self.widths.grid_bits - bits for _, bits in modes],
        )
        m.d.comb += [
            align.magnitude.eq(accumulator.significand),
            align.distance.eq(largest.largest - c_exponent),
            align.shorten.eq(Cat(active for active, _ in modes)),
        ]
        c_float = _with_sign(accumulator.sign, align.output)
        c_integer = Cat(Const(0, self.widths.integer_bits), c).as_signed()
        c_term = self._named(m, Mux(integer, c_integer, c_float), signed(self.widths.total_bits))

        nan, positive_inf, negative_inf = specials
        nans = [nan, accumulator.nan, offset.nan, *(packed & group.nan for group in scaled)]
        return _Aligned(
            terms,
            group_sums,
            group_terms,
            c_term,
            self._named(m, largest.largest - offset.offset, signed(ALIGNED_EXPONENT_BITS)),
            self._named(m, _any(nans), 1),
            self._named(m, positive_inf | (accumulator.inf & ~accumulator.sign), 1),
            self._named(m, negative_inf | (accumulator.inf & accumulator.sign), 1),
        )

    def _zero_exponent(self, half: Value, packed: Value) -> Value:
        """Return e_zero of the running step."""
        bits = self.config.alignment_bits
        value: Value = Const(zero_exponent_for(bits), signed(ALIGNED_EXPONENT_BITS))
        if ResultCode.F16 in self.widths.results:
            value = Mux(half, zero_exponent_for(bits, half_result=True), value)
        if self.widths.packed:
            value = Mux(packed, zero_exponent_for(self.config.block_alignment_bits, grouped=True), value)
        return value

    def _groups(
        self, m: Module, control: data.View, products: list[_Product], scale_a: Value, scale_b: Value
    ) -> list[Group]:
        """Sum the 4-bit products in groups of 16."""
        groups = []
        for index in range(self.widths.groups):
            m.submodules[f"group{index}"] = group = Group(self.config)
            for position in range(BLOCK_GROUP):
                product = products[index * BLOCK_GROUP + position]
                m.d.comb += [
                    group.signs[position].eq(product.sign),
                    group.magnitudes[position].eq(product.significand),
                ]
            if self.config.scales:
                m.d.comb += [
                    group.scale.eq(control.scale),
                    group.scale_a.eq(scale_a.word_select(index, 8)),
                    group.scale_b.eq(scale_b.word_select(index, 8)),
                ]
            groups.append(group)
        return groups

    def _reduce(self, m: Module, control: data.View, aligned: _Aligned) -> Value:
        """Add every aligned term and the accumulator."""
        m.submodules.accumulate = accumulate = Accumulate(self.config)
        for ports, values in (
            (accumulate.terms, aligned.terms),
            (accumulate.group_sums, aligned.group_sums),
            (accumulate.group_terms, aligned.group_terms),
        ):
            m.d.comb += [port.eq(value) for port, value in zip(ports, values, strict=True)]
        m.d.comb += [
            accumulate.integer_groups.eq(self._is(control.a, [e for e in self.widths.narrow if e.format.is_integer])),
            accumulate.c_term.eq(aligned.c_term),
        ]
        return accumulate.total

    def _named(self, m: Module, value: Value, shape: ShapeLike) -> Value:
        signal = Signal(shape)
        m.d.comb += signal.eq(value)
        return signal

    def _integer_term(self, m: Module, product: _Product, narrow: Value) -> Value:
        """Return an integer product with its sign; nothing for 4-bit elements, whose groups add up apart."""
        magnitude = Mux(narrow, 0, product.significand)
        return self._named(m, _with_sign(product.sign, magnitude), signed(len(product.significand) + 1))


def _distance(largest: Value, exponent: Value) -> Value:
    """Return the exponents below the largest; unsigned arithmetic, since only the low bits are kept."""
    return (largest.as_unsigned() - exponent)[:ALIGNED_EXPONENT_BITS]


def _any(bits: list[Value]) -> Value:
    return reduce(or_, bits)


def _with_sign(sign: Value, magnitude: Value) -> Value:
    return Mux(sign, -magnitude, magnitude)


#: Exponent and special flags of a datapath without floats.
_NO_FLOAT = (Const(0, signed(ALIGNED_EXPONENT_BITS)), Const(0), Const(0), Const(0))
