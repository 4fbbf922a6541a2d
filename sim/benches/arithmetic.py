"""Benches of the datapath components after the multipliers: block scales, alignment, addition and rounding."""

from collections.abc import Sequence
from functools import partial

import numpy as np
from amaranth.hdl import Module, Shape, signed, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from numpy.typing import NDArray

from ...golden.decode import decode_scale
from ...isa.formats import FORMATS
from ...isa.numerics import BLOCK_GROUP
from ...rtl.cells.adder import Adder
from ...rtl.cells.carry_save_tree import CarrySaveTree, sum_bits
from ...rtl.cells.leading_zeros import LeadingZeros
from ...rtl.cells.max_exponent import ALIGNED_EXPONENT_BITS, MaxExponent
from ...rtl.cells.raw import PRODUCT_EXPONENT_BITS
from ...rtl.cells.shifter import AlignmentShifter
from ...rtl.config import CoreConfig
from ...rtl.product_group import (
    GROUP_PRODUCT_BITS,
    GROUP_SUM_BITS,
    SCALED_GROUP_BITS,
    SCALED_GROUP_FRACTION_BITS,
    ProductGroup,
)
from ...rtl.reduce import ReduceStage
from ...rtl.round import RoundStage
from ...rtl.scale import GROUP_SCALE_FRACTION_BITS, ExponentOffset, GroupScale, ScaleCode
from ...rtl.unpack import ACCUMULATOR_SIGNIFICAND_BITS
from ...rtl.widths import Widths
from .bench import ComponentBench, Values
from .operands import slots_of_each_kind
from .random_operands import random_codes
from .rounding import rounded, rounding_inputs

__all__ = ["arithmetic_benches"]

_SCALE_FORMATS = {ScaleCode.UE8M0: FORMATS["ue8m0"], ScaleCode.UE4M3: FORMATS["ue4m3"]}


def arithmetic_benches(config: CoreConfig) -> dict[str, ComponentBench]:
    """Return the benches of all datapath components after the multipliers. The keys are component names."""
    widths = Widths(config)
    benches: dict[str, ComponentBench] = {}
    if widths.floating:
        offset = ExponentOffset(config)
        benches["offset"] = ComponentBench(
            offset, partial(_offset_inputs, config), partial(_offsets, config), ("a", "b")
        )
        shape = signed(ALIGNED_EXPONENT_BITS)
        e_max = {"e_max": MaxExponent(max(2, widths.scaled_groups + 1), shape)}
        if widths.floats:
            e_max["largest_of_products"] = MaxExponent(widths.float_slots, unsigned(PRODUCT_EXPONENT_BITS))
        for name, tree in e_max.items():
            benches[name] = ComponentBench(tree, partial(_exponents, tree.count, Shape.cast(tree.shape)), _largest)
        for name, align in _shifters(config, widths).items():
            benches[name] = ComponentBench(align, partial(_magnitudes, align), partial(_shifted, align))
    if widths.narrow:
        group = ProductGroup(config)
        benches["group"] = ComponentBench(group, partial(_groups, config), partial(_group_sums, config))
        if config.scales:
            scale = GroupScale(config)
            benches["group_scale"] = ComponentBench(scale, partial(_scales, config), _scale_products)
    sum_tree = AddedTree(
        [slot.term_bits for slot in widths.slots[: config.term_slots]] or [GROUP_PRODUCT_BITS] * BLOCK_GROUP
    )
    benches["sum_tree"] = ComponentBench(sum_tree, partial(_tree_terms, sum_tree), _sums)
    adder = Adder(widths.total_bits)
    benches["adder"] = ComponentBench(adder, partial(_summands, adder.bits), partial(_added, adder.bits))
    accumulate = ReduceStage(config)
    benches["accumulate"] = ComponentBench(accumulate, partial(_addends, accumulate), partial(_accumulated, accumulate))
    if widths.floating:
        leading = LeadingZeros(widths.total_bits + 1)
        benches["leading_zeros"] = ComponentBench(leading, partial(_words, leading.bits), partial(_zeros, leading.bits))
    rounder = RoundStage(widths.total_bits, widths.integer_bits, widths.results)
    benches["round"] = ComponentBench(rounder, partial(rounding_inputs, config, rounder), partial(rounded, rounder))
    return benches


class AddedTree(wiring.Component):
    """Device under test: a carry-save adder tree, followed by a carry-propagate adder of its two output words.

    Ports are the signed terms ``term0``, ``term1``, ... of `term_bits` bits; ``increments``, one bit per term, each
    added at the least significant position; and ``total``, the sum of all terms and increments.
    """

    def __init__(self, term_bits: Sequence[int]) -> None:
        self.term_bits = tuple(term_bits)
        self.total_bits = sum_bits(max(self.term_bits) + 1, len(self.term_bits))
        super().__init__(
            {
                **{f"term{index}": In(signed(bits)) for index, bits in enumerate(self.term_bits)},
                "increments": In(len(self.term_bits)),
                "total": Out(signed(self.total_bits)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Connect the adder tree to the carry-propagate adder."""
        m = Module()
        m.submodules.tree = tree = CarrySaveTree(self.term_bits, self.total_bits)
        m.d.comb += [term.eq(getattr(self, f"term{index}")) for index, term in enumerate(tree.terms)]
        m.d.comb += [
            tree.increments.eq(self.increments),
            self.total.eq((tree.word0 + tree.word1 + tree.carry)[: self.total_bits].as_signed()),
        ]
        return m


def _offset_inputs(config: CoreConfig, rng: np.random.Generator, count: int) -> Values:
    scales = {f"scale_{side}": random_codes(FORMATS["ue8m0"], "bits", (count,), rng) for side in "ab"}
    rare = rng.random((2, count)) < 0.03
    scales = {name: np.where(nan, 0xFF, codes) for nan, (name, codes) in zip(rare, scales.items(), strict=True)}
    enable = rng.integers(0, 2, count) if "ue8m0" in config.scales else np.zeros(count, np.int64)
    elements = {side: rng.integers(0, len(config.elements), count) for side in "ab"}
    return elements | scales | {"enable": enable}


def _offsets(config: CoreConfig, inputs: Values) -> Values:
    biases = np.array([0 if element.fixed_point else element.format.bias for element in config.elements])
    offset = biases[inputs["a"]] + biases[inputs["b"]]
    nan = np.zeros(len(offset), bool)
    for side in "ab":
        significand, exponent = decode_scale(inputs[f"scale_{side}"].astype(np.uint8), FORMATS["ue8m0"])
        offset = offset - np.where(inputs["enable"], exponent, 0)
        nan |= np.isnan(significand) & (inputs["enable"] == 1)
    return {"offset": np.ma.array(offset, mask=nan), "nan": nan}


def _exponents(count: int, shape: Shape, rng: np.random.Generator, vectors: int) -> Values:
    """Draw exponents with random spread; in half of the test vectors, one exponent is larger than all others."""
    lowest = -(1 << shape.width - 1) if shape.signed else 0
    highest = lowest + (1 << shape.width) - 1
    spread = 1 << rng.integers(1, shape.width, (vectors, 1))
    centre = rng.integers(lowest, highest, (vectors, 1))
    exponents = (centre + rng.integers(-spread, spread, (vectors, count))).clip(lowest, highest)
    place = np.arange(vectors) % count
    alone = rng.random(vectors) < 0.5
    exponents[alone, place[alone]] = np.minimum(highest, exponents.max(axis=1)[alone] + 1)
    return {f"exponents__{i}": exponents[:, i] for i in range(count)}


def _largest(inputs: Values) -> Values:
    return {"e_max": np.max(list(inputs.values()), axis=0)}


def _shifters(config: CoreConfig, widths: Widths) -> dict[str, AlignmentShifter]:
    """Return the alignment shifters to test: of each kind of product, of the accumulator, of sums of 16 products."""
    shifters = {}
    for slot in slots_of_each_kind(config):
        if slot.floats:
            align = AlignmentShifter(slot.product_bits - 1, slot.padding, slot.shift_amount_bits, slot.float_bits)
            shifters[f"align{slot.index}"] = align
    padding = widths.grid_bits + 1 + widths.c_excess_bits - ACCUMULATOR_SIGNIFICAND_BITS
    shifters["align_c"] = AlignmentShifter(ACCUMULATOR_SIGNIFICAND_BITS, padding, ALIGNED_EXPONENT_BITS - 1)
    if widths.packed:
        padding = config.block_alignment_bits - SCALED_GROUP_FRACTION_BITS
        shifters["align_group"] = AlignmentShifter(SCALED_GROUP_BITS, padding, ALIGNED_EXPONENT_BITS - 1)
    return shifters


def _magnitudes(align: AlignmentShifter, rng: np.random.Generator, count: int) -> Values:
    """Draw random and all-ones magnitudes, with shift amounts both inside and far beyond the range of the shifter."""
    bits = align.magnitude_bits
    magnitude = rng.integers(0, 1 << rng.integers(1, bits, count, endpoint=True))
    magnitude = np.where(rng.random(count) < 0.2, (1 << bits) - 1, magnitude)
    shift_amount = np.arange(count) % (align.output_bits + 3)
    far = rng.random(count) < 0.2
    shift_amount = np.where(far, 1 << rng.integers(0, align.shift_amount_bits, count), shift_amount)
    shift_amount = np.where(rng.random(count) < 0.1, 0, shift_amount)
    return {"magnitude": magnitude, "shift_amount": np.minimum(shift_amount, (1 << align.shift_amount_bits) - 1)}


def _shifted(align: AlignmentShifter, inputs: Values) -> Values:
    shift_amount = np.minimum(inputs["shift_amount"], 62)
    padded = inputs["magnitude"] << align.padding if align.padding >= 0 else inputs["magnitude"] >> -align.padding
    # only the lower `shifted_bits` bits are shifted; all bits above them keep their positions
    shifted = padded & (1 << align.shifted_bits) - 1
    return {"output": padded - shifted | shifted >> shift_amount}


def _groups(config: CoreConfig, rng: np.random.Generator, count: int) -> Values:
    """For each test vector, choose 16 random products of 4-bit elements: scaled e2m1, integers, or both kinds."""
    packed = [element for element in config.elements if element.packed_float]
    integers = [element for element in config.elements if element.container_bits == 4 and not element.packed_float]
    scaled = rng.random(count) < 0.7 if packed and integers else np.full(count, bool(packed))
    top = np.where(scaled, 12, 15)[:, None]
    factors = rng.integers(0, top + 1, (2, count, BLOCK_GROUP))
    factors = np.where(rng.random((count, 1)) < 0.2, top, factors) * (rng.random((count, BLOCK_GROUP)) < 0.8)
    magnitudes = factors[0] * factors[1] * (rng.random((count, 1)) > 0.05)
    signs = rng.integers(0, 2, (count, BLOCK_GROUP)) * (rng.random((count, 1)) < 0.8)
    alike = rng.random(count) < 0.1  # mask of the test vectors in which neighbouring products cancel each other
    magnitudes[alike, 1::2], signs[alike, 1::2] = magnitudes[alike, ::2], 1 - signs[alike, ::2]
    most = rng.random(count) < 0.05  # mask of test vectors whose products all have the largest magnitude and one sign
    magnitudes[most] = np.square(top[most])
    signs[most] = rng.integers(0, 2, (count, 1))[most]
    # The sign of a float product is a separate bit, whereas an integer product is in two's complement. The smallest
    # integer product is -15 * 8, of an unsigned and a signed 4-bit element.
    products = np.where(scaled[:, None], magnitudes, np.where(signs, np.maximum(-magnitudes, -120), magnitudes))
    inputs = {f"products__{i}": products[:, i] for i in range(BLOCK_GROUP)}
    inputs["signs"] = np.where(scaled, (signs << np.arange(BLOCK_GROUP)).sum(axis=1), 0)
    scales = _scales(config, rng, count)
    return inputs | scales | {"scale": np.where(scaled, scales["scale"], ScaleCode.NONE.value)}


def _group_sums(config: CoreConfig, inputs: Values) -> Values:
    products = np.stack([inputs[f"products__{i}"] for i in range(BLOCK_GROUP)], 1)
    signs = inputs["signs"][:, None] >> np.arange(BLOCK_GROUP) & 1
    total = np.where(signs, -products, products).sum(axis=1)
    if not config.scales:
        return {"total": total}
    scales = _scale_products(inputs)
    of_integers = inputs["scale"] == ScaleCode.NONE.value
    unscaled = of_integers | np.ma.filled(scales["nan"], 1).astype(bool)
    significand = np.ma.filled(scales["significand"], 0)
    masked = {
        "sign": total < 0,
        "magnitude": np.abs(total) * significand,
        "exponent": np.ma.filled(scales["exponent"], 0),
        "participates": products.any(axis=1) & (significand != 0),
    }
    # The scaled outputs of the adder of 16 products are undefined if products are integers or a block scale is NaN.
    result: Values = {name: np.ma.array(values, mask=unscaled) for name, values in masked.items()}
    return result | {"total": total, "nan": np.ma.array(scales["nan"], mask=of_integers)}


def _scales(config: CoreConfig, rng: np.random.Generator, count: int) -> Values:
    codes = [code.value for code in _SCALE_FORMATS if code.name.lower() in config.scales] or [ScaleCode.NONE.value]
    inputs = {"scale": np.array(codes)[rng.integers(0, len(codes), count)]}
    for side in "ab":
        code = rng.integers(0, 256, count)
        # In 20 % of the test vectors, the scale code is at most 7, which in ue4m3 is zero or a subnormal.
        code = np.where(rng.random(count) < 0.2, rng.integers(0, 8, count), code)
        inputs[f"scale_{side}"] = np.where(rng.random(count) < 0.03, rng.choice([0x7F, 0xFF], count), code)
    return inputs


def _scale_products(inputs: Values) -> Values:
    count = len(inputs["scale"])
    significand, exponent, nan = (np.ma.array(np.zeros(count, np.int64), mask=True) for _ in range(3))
    for code, fmt in _SCALE_FORMATS.items():
        where = inputs["scale"] == code.value
        (a, a_exponent), (b, b_exponent) = (
            decode_scale(inputs[f"scale_{side}"][where].astype(np.uint8), fmt) for side in "ab"
        )
        unscaled = np.isnan(a) | np.isnan(b)
        product = np.where(unscaled, 0, a * b) * (1 << GROUP_SCALE_FRACTION_BITS)
        significand[where] = np.ma.array(product.astype(np.int64), mask=unscaled)
        exponent[where] = np.ma.array(a_exponent + b_exponent, mask=unscaled)
        nan[where] = unscaled
    nan[inputs["scale"] == ScaleCode.NONE.value] = 0
    return {"significand": significand, "exponent": exponent, "nan": nan}


def _terms(bits: Sequence[int], rng: np.random.Generator, vectors: int) -> list[NDArray[np.int64]]:
    """Return random signed terms of random width; in 10 % of the test vectors, all are the extreme of one sign."""
    widths = np.array(bits, np.int64)
    tops = 1 << widths - 1
    terms = rng.integers(-tops, tops, (vectors, len(bits))) >> (rng.random((vectors, 1)) * widths).astype(np.int64)
    ends = rng.random(vectors) < 0.1
    terms[ends] = np.where(rng.integers(0, 2, (int(ends.sum()), 1)), -tops, tops - 1)
    return [*terms.T]


def _ones(rng: np.random.Generator, count: int, vectors: int) -> NDArray[np.int64]:
    """Draw an increment (+1 of a two's complement) per term; some test vectors have all increments set, some none."""
    return (rng.random((vectors, count)) < rng.choice([0.0, 0.5, 1.0], (vectors, 1))).astype(np.int64)


def _joined(bits: NDArray[np.int64]) -> NDArray:
    """Pack each row of a bit array into one integer; the first bit of a row is the least significant."""
    return np.array([sum(1 << place for place in np.flatnonzero(row).tolist()) for row in bits], object)


def _tree_terms(tree: AddedTree, rng: np.random.Generator, vectors: int) -> Values:
    terms = {f"term{index}": values for index, values in enumerate(_terms(tree.term_bits, rng, vectors))}
    return terms | {"increments": _joined(_ones(rng, len(terms), vectors))}


def _sums(inputs: Values) -> Values:
    terms = [values for name, values in inputs.items() if name != "increments"]
    return {"total": np.sum(terms, axis=0) + np.bitwise_count(inputs["increments"]).astype(np.int64)}


def _summands(bits: int, rng: np.random.Generator, count: int) -> Values:
    """Draw pairs of summands with a run of complementary bits, through which a carry propagates."""
    word0, word1 = rng.integers(0, 1 << bits, (2, count))
    low, high = np.sort(rng.integers(0, bits, (2, count), endpoint=True), axis=0)
    run = np.where(rng.random(count) < 0.7, (1 << high) - (1 << low), 0)
    return {"word0": word0, "word1": word1 & ~run | ~word0 & run, "carry": rng.integers(0, 2, count)}


def _added(bits: int, inputs: Values) -> Values:
    return {"total": inputs["word0"] + inputs["word1"] + inputs["carry"] & (1 << bits) - 1}


def _words(bits: int, rng: np.random.Generator, count: int) -> Values:
    """Draw words with the leading one at every bit position; in some words, all bits below the leading one are zero."""
    top = np.arange(count) % bits
    rest = np.where(rng.random(count) < 0.2, 0, rng.integers(0, 1 << bits, count))
    return {"word": 1 << top | rest & (1 << top) - 1}


def _zeros(bits: int, inputs: Values) -> Values:
    return {"count": np.array([bits - int(word).bit_length() for word in inputs["word"]])}


def _addends(accumulate: ReduceStage, rng: np.random.Generator, count: int) -> Values:
    """Return random terms, increment bits and accumulators for the reduce stage; some vectors have extreme terms."""
    widths = accumulate.widths
    members = {
        "terms": [slot.term_bits for slot in widths.slots[: accumulate.config.term_slots]],
        "group_sums": [GROUP_SUM_BITS] * widths.integer_groups,
        "group_terms": [widths.group_term_bits] * (widths.scaled_groups * widths.parts),
    }
    names = [f"i__{name}__{index}" for name, bits in members.items() for index in range(len(bits))] + ["i__c_term"]
    terms = _terms([bits for some in members.values() for bits in some] + [widths.total_bits], rng, count)
    inputs: Values = dict(zip(names, terms, strict=True))
    ones = _ones(rng, len(members["terms"]), count)
    inputs |= {f"i__increments__{place}": bits for place, bits in enumerate(ones.T)}
    if members["group_terms"]:
        inputs["i__group_increments"] = _joined(_ones(rng, len(members["group_terms"]), count))
    return inputs | {"i__c_increment": rng.integers(0, 2, count), "integer_groups": rng.integers(0, 2, count)}


def _accumulated(accumulate: ReduceStage, inputs: Values) -> Values:
    """Compute the expected sum of all inputs of the reduce stage; a sum that exceeds the output width wraps."""
    total = inputs["i__c_term"] + inputs["i__c_increment"]
    for name, values in inputs.items():
        if name.startswith("i__group_sums"):
            total = total + (np.where(inputs["integer_groups"], values, 0) << accumulate.widths.integer_bits)
        elif name.startswith(("i__terms", "i__group_terms", "i__increments")):
            total = total + values
        elif name == "i__group_increments":
            total = total + np.bitwise_count(values).astype(np.int64)
    return {"total": total}
