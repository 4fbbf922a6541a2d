"""Benches of the components between products and results: scales, alignment, trees and rounding."""

from functools import partial

import numpy as np
from numpy.typing import NDArray

from ...golden.decode import decode_scale
from ...golden.rounding import round_sum
from ...isa.formats import FORMATS
from ...isa.numerics import BLOCK_GROUP, Rounding, zero_exponent_for
from ...rtl.accumulate import Accumulate
from ...rtl.align import Align, MaxExponent
from ...rtl.config import CoreConfig
from ...rtl.group import GROUP_SUM_BITS, MAXIMUM_SCALED_GROUP, SCALED_GROUP_FRACTION_BITS, Group
from ...rtl.reduce import SumTree
from ...rtl.round import ResultCode, Round
from ...rtl.scale import GROUP_SCALE_FRACTION_BITS, ExponentOffset, GroupScale, ScaleCode
from ...rtl.unpack import ACCUMULATOR_SIGNIFICAND_BITS, ELEMENT_CODE_BITS, significand_bits
from ...rtl.widths import Widths
from ..stimulus import random_codes
from .bench import ComponentBench, Values

__all__ = ["arithmetic_benches"]

_SCALE_FORMATS = {ScaleCode.UE8M0: FORMATS["ue8m0"], ScaleCode.UE4M3: FORMATS["ue4m3"]}
_ROUNDINGS = {
    ResultCode.F32: Rounding.RZ_F32,
    ResultCode.E8M13: Rounding.RZ_E8M13,
    ResultCode.F16: Rounding.RNE_F16,
}
_NAN = {ResultCode.F32: 0x7FFFFFFF, ResultCode.E8M13: 0x7FFFFFFF, ResultCode.F16: 0x7FFF}
_INF = {ResultCode.F32: 0x7F800000, ResultCode.E8M13: 0x7F800000, ResultCode.F16: 0x7C00}


def arithmetic_benches(config: CoreConfig) -> dict[str, ComponentBench]:
    """Return the benches of a configuration's components from products to results."""
    widths = Widths(config)
    benches: dict[str, ComponentBench] = {}
    if widths.floats or widths.packed:
        offset = ExponentOffset(config)
        benches["offset"] = ComponentBench(offset, partial(_offset_inputs, config), partial(_offsets, config))
        slots = max((config.slots_of(element) for element in widths.floats), default=0)
        largest = MaxExponent(slots + 2)
        benches["largest"] = ComponentBench(largest, partial(_exponents, largest.count), _largest)
        benches |= {name: _align_bench(align) for name, align in _shifters(config, widths).items()}
    if widths.narrow:
        group = Group(config)
        benches["group"] = ComponentBench(group, partial(_groups, config), partial(_group_sums, config))
        if config.scales:
            scale = GroupScale(config)
            benches["group_scale"] = ComponentBench(scale, partial(_scales, config), _scale_products)
    tree = SumTree(config.term_slots or BLOCK_GROUP, widths.grid_bits + 3)
    benches["sum_tree"] = ComponentBench(tree, partial(_terms, tree.count, tree.term_bits), _sums)
    accumulate = Accumulate(config)
    benches["accumulate"] = ComponentBench(accumulate, partial(_addends, accumulate), partial(_accumulated, accumulate))
    rounder = Round(widths.total_bits, widths.grid_bits, widths.integer_bits, widths.results)
    benches["round"] = ComponentBench(rounder, partial(_totals, config, rounder), partial(_results, rounder))
    return benches


def _held_scales(config: CoreConfig) -> list[ScaleCode]:
    return [code for code in _SCALE_FORMATS if code.name.lower() in config.scales]


def _offset_inputs(config: CoreConfig, rng: np.random.Generator, count: int) -> Values:
    scales = {f"scale_{side}": random_codes(FORMATS["ue8m0"], "bits", (count,), rng) for side in "ab"}
    rare = rng.random((2, count)) < 0.03
    scales = {name: np.where(nan, 0xFF, codes) for nan, (name, codes) in zip(rare, scales.items(), strict=True)}
    enable = rng.integers(0, 2, count) if "ue8m0" in config.scales else np.zeros(count, np.int64)
    elements = {side: rng.integers(0, 1 << ELEMENT_CODE_BITS, count) for side in "ab"}
    return elements | scales | {"enable": enable}


def _offsets(config: CoreConfig, given: Values) -> Values:
    biases = np.zeros(1 << ELEMENT_CODE_BITS, np.int64)
    for code, element in enumerate(config.elements):
        biases[code] = 0 if element.counts else element.format.bias
    offset = biases[given["a"]] + biases[given["b"]]
    nan = np.zeros(len(offset), bool)
    for side in "ab":
        significand, exponent = decode_scale(given[f"scale_{side}"].astype(np.uint8), FORMATS["ue8m0"])
        offset = offset - np.where(given["enable"], exponent, 0)
        nan |= np.isnan(significand) & (given["enable"] == 1)
    return {"offset": np.ma.array(offset, mask=nan), "nan": nan}


def _exponents(count: int, rng: np.random.Generator, vectors: int) -> Values:
    """Draw exponents of very different spread; in some vectors one stands out, so that each place wins."""
    spread = 1 << rng.integers(1, 11, (vectors, 1))
    centre = rng.integers(-1000, 1000, (vectors, 1))
    exponents = (centre + rng.integers(-spread, spread, (vectors, count))).clip(-1024, 1023)
    place = np.arange(vectors) % count
    alone = rng.random(vectors) < 0.5
    exponents[alone, place[alone]] = np.minimum(1023, exponents.max(axis=1)[alone] + 1)
    return {f"exponents__{i}": exponents[:, i] for i in range(count)}


def _largest(given: Values) -> Values:
    return {"largest": np.max(list(given.values()), axis=0)}


def _shifters(config: CoreConfig, widths: Widths) -> dict[str, Align]:
    """Return the shifters of a product, of the accumulator and of a scaled group, as wide as in a unit."""
    shifters = {}
    if widths.floats:
        bits = 2 * significand_bits(config.elements_of_slot(0))
        short = (config.alignment_bits - config.fp8_alignment_bits,) if widths.fp8_is_shorter else ()
        shifters["align"] = Align(bits, config.alignment_bits + 2 - bits, short)
    kept = [config.alignment_bits] if widths.packed else []
    kept += [config.fp8_alignment_bits] if widths.fp8_is_shorter else []
    padding = widths.grid_bits + 1 - ACCUMULATOR_SIGNIFICAND_BITS
    shifters["align_c"] = Align(ACCUMULATOR_SIGNIFICAND_BITS, padding, [widths.grid_bits - bits for bits in kept])
    if widths.packed:
        padding = config.block_alignment_bits - SCALED_GROUP_FRACTION_BITS
        shifters["align_group"] = Align(MAXIMUM_SCALED_GROUP.bit_length(), padding)
    return shifters


def _align_bench(align: Align) -> ComponentBench:
    return ComponentBench(align, partial(_magnitudes, align), partial(_shifted, align))


def _magnitudes(align: Align, rng: np.random.Generator, count: int) -> Values:
    """Draw full, sparse and random magnitudes over all distances to beyond the shifter, and far ones."""
    bits = align.magnitude_bits
    magnitude = rng.integers(0, 1 << rng.integers(1, bits, count, endpoint=True))
    magnitude = np.where(rng.random(count) < 0.2, (1 << bits) - 1, magnitude)
    distance = np.arange(count) % (align.output_bits + 3)
    far = rng.random(count) < 0.2
    distance = np.where(far, 1 << rng.integers(0, 10, count), distance)
    shorten = {"shorten": rng.integers(0, 1 << len(align.short), count)} if align.short else {}
    return {"magnitude": magnitude, "distance": distance} | shorten


def _shifted(align: Align, given: Values) -> Values:
    distance = np.minimum(given["distance"], 62)
    if align.padding >= 0:
        output = given["magnitude"] << align.padding >> distance
    else:
        output = given["magnitude"] >> np.minimum(distance - align.padding, 62)
    for control, bits in enumerate(align.short):
        output = np.where(given["shorten"] >> control & 1, output >> bits << bits, output)
    return {"output": output}


def _groups(config: CoreConfig, rng: np.random.Generator, count: int) -> Values:
    """Draw products of 4-bit elements: of scaled e2m1 where the configuration has it, of integers otherwise or too."""
    packed = [element for element in config.elements if element.packed_float]
    integers = [element for element in config.elements if element.container_bits == 4 and not element.packed_float]
    scaled = rng.random(count) < 0.7 if packed and integers else np.full(count, bool(packed))
    top = np.where(scaled, 12, 15)[:, None]
    factors = rng.integers(0, top + 1, (2, count, BLOCK_GROUP))
    factors = np.where(rng.random((count, 1)) < 0.2, top, factors) * (rng.random((count, BLOCK_GROUP)) < 0.8)
    magnitudes = factors[0] * factors[1] * (rng.random((count, 1)) > 0.05)
    signs = rng.integers(0, 2, (count, BLOCK_GROUP)) * (rng.random((count, 1)) < 0.8)
    alike = rng.random(count) < 0.1  # neighbours that cancel
    magnitudes[alike, 1::2], signs[alike, 1::2] = magnitudes[alike, ::2], 1 - signs[alike, ::2]
    given = {f"magnitudes__{i}": magnitudes[:, i] for i in range(BLOCK_GROUP)}
    given["signs"] = (signs << np.arange(BLOCK_GROUP)).sum(axis=1)
    scales = _scales(config, rng, count)
    return given | scales | {"scale": np.where(scaled, scales["scale"], ScaleCode.NONE.value)}


def _group_sums(config: CoreConfig, given: Values) -> Values:
    magnitudes = np.stack([given[f"magnitudes__{i}"] for i in range(BLOCK_GROUP)], 1)
    signs = given["signs"][:, None] >> np.arange(BLOCK_GROUP) & 1
    total = np.where(signs, -magnitudes, magnitudes).sum(axis=1)
    if not config.scales:
        return {"total": total}
    scales = _scale_products(given)
    of_integers = given["scale"] == ScaleCode.NONE.value
    unscaled = of_integers | np.ma.filled(scales["nan"], 1).astype(bool)
    significand = np.ma.filled(scales["significand"], 0)
    masked = {
        "sign": total < 0,
        "magnitude": np.abs(total) * significand,
        "exponent": np.ma.filled(scales["exponent"], 0),
        "counts": magnitudes.any(axis=1) & (significand != 0),
    }
    # The sign of a sum of zero means nothing: its magnitude is zero.
    result: Values = {name: np.ma.array(values, mask=unscaled) for name, values in masked.items()}
    return result | {"total": total, "nan": np.ma.array(scales["nan"], mask=of_integers)}


def _scales(config: CoreConfig, rng: np.random.Generator, count: int) -> Values:
    held = [code.value for code in _held_scales(config)] or [ScaleCode.NONE.value]
    given = {"scale": np.array(held)[rng.integers(0, len(held), count)]}
    for side in "ab":
        code = rng.integers(0, 256, count)
        code = np.where(rng.random(count) < 0.2, rng.integers(0, 8, count), code)  # zero and subnormal ue4m3
        given[f"scale_{side}"] = np.where(rng.random(count) < 0.03, rng.choice([0x7F, 0xFF], count), code)
    return given


def _scale_products(given: Values) -> Values:
    count = len(given["scale"])
    significand, exponent, nan = (np.ma.array(np.zeros(count, np.int64), mask=True) for _ in range(3))
    for code, fmt in _SCALE_FORMATS.items():
        where = given["scale"] == code.value
        (a, a_exponent), (b, b_exponent) = (
            decode_scale(given[f"scale_{side}"][where].astype(np.uint8), fmt) for side in "ab"
        )
        unscaled = np.isnan(a) | np.isnan(b)
        product = np.where(unscaled, 0, a * b) * (1 << GROUP_SCALE_FRACTION_BITS)
        significand[where] = np.ma.array(product.astype(np.int64), mask=unscaled)
        exponent[where] = np.ma.array(a_exponent + b_exponent, mask=unscaled)
        nan[where] = unscaled
    nan[given["scale"] == ScaleCode.NONE.value] = 0
    return {"significand": significand, "exponent": exponent, "nan": nan}


def _terms(count: int, bits: int, rng: np.random.Generator, vectors: int) -> Values:
    top = 1 << bits - 1
    terms = rng.integers(-top, top, (vectors, count)) >> rng.integers(0, bits, (vectors, 1))
    ends = rng.random(vectors) < 0.1
    terms[ends] = np.where(rng.integers(0, 2, (int(ends.sum()), 1)), -top, top - 1)
    return {f"terms__{i}": terms[:, i] for i in range(count)}


def _sums(given: Values) -> Values:
    return {"total": np.sum(list(given.values()), axis=0)}


def _addends(accumulate: Accumulate, rng: np.random.Generator, count: int) -> Values:
    """Draw terms of every length, all large at times, and an accumulator."""
    widths = accumulate.widths
    # A product takes less than the bit that its term has for the weight of two.
    bits = {"terms": widths.term_bits - 1, "group_sums": GROUP_SUM_BITS, "group_terms": widths.group_term_bits - 1}
    given: Values = {}
    for name, width in bits.items():
        terms = _terms(max(len(getattr(accumulate, name)), 1), width, rng, count)
        given |= {port.replace("terms", name, 1): terms[port] for port in [*terms][: len(getattr(accumulate, name))]}
    top = 1 << widths.total_bits - 3
    c_term = rng.integers(-top, top, count) >> rng.integers(0, widths.total_bits - 3, count)
    return given | {"c_term": c_term, "integer_groups": rng.integers(0, 2, count)}


def _accumulated(accumulate: Accumulate, given: Values) -> Values:
    zero = np.zeros(len(given["c_term"]), np.int64)
    terms, group_sums, group_terms = (
        sum((given[f"{name}__{index}"] for index in range(len(getattr(accumulate, name)))), zero)
        for name in ("terms", "group_sums", "group_terms")
    )
    integers = terms + np.where(given["integer_groups"], group_sums, 0)
    return {"total": given["c_term"] + (integers << accumulate.widths.integer_bits) + group_terms}


def _totals(config: CoreConfig, rounder: Round, rng: np.random.Generator, count: int) -> Values:
    """Draw exact sums of every length and exponents to beyond both ends of the results, ties and carries among them."""
    results = np.array([code.value for code in sorted(rounder.results, key=lambda code: int(code.value))])
    result = results[rng.integers(0, len(results), count)]
    half = result == ResultCode.F16.value
    integer = result == ResultCode.S32.value
    bits = rng.integers(1, rounder.total_bits - 1, count)
    total = rng.integers(0, 1 << bits)
    # Long runs of ones carry; with a one at the end of the f16 fraction and nothing below there is a tie.
    kind = rng.random(count)
    total = np.where(kind < 0.15, (1 << bits) - 1, total)
    tie = np.maximum(bits - 12, 0)
    total = np.where((kind > 0.15) & (kind < 0.4), (total >> tie | 1) << tie, total)
    total = np.where((kind > 0.4) & (kind < 0.5), (((1 << bits) - 1) >> tie) << tie, total)
    total = np.where(rng.integers(0, 2, count), -total, total)

    floor = np.where(
        half, zero_exponent_for(config.alignment_bits, half_result=True), zero_exponent_for(config.alignment_bits)
    )
    top = np.where(half, 18, 130)
    near = np.where(rng.random(count) < 0.5, top - rng.integers(0, 40, count), floor + rng.integers(0, 50, count))
    exponent = np.where(rng.random(count) < 0.3, rng.integers(floor, top), near)

    beyond = rng.integers(-(1 << 20), 1 << 20, count) + rng.choice([-(1 << 31), (1 << 31) - 1], count)
    whole = np.where(rng.random(count) < 0.5, beyond, total >> max(0, rounder.total_bits - 33))
    total = np.where(integer, whole << rounder.integer_bits, total)
    flags = {name: rng.random(count) < 0.03 for name in ("nan", "positive_inf", "negative_inf")}
    flags = {name: (flag & ~integer).astype(np.int64) for name, flag in flags.items()}
    return {
        "total": total,
        "exponent": np.where(integer, 0, exponent),
        "result": result,
        "saturate": rng.integers(0, 2, count),
    } | flags


def _results(rounder: Round, given: Values) -> Values:
    count = len(given["total"])
    output, overflow = np.zeros(count, np.int64), np.zeros(count, bool)
    for code in rounder.results:
        where = given["result"] == code.value
        total = given["total"][where]
        if code is ResultCode.S32:
            whole = total >> rounder.integer_bits
            clamped = whole.clip(-(1 << 31), (1 << 31) - 1)
            saturate = given["saturate"][where] == 1
            output[where] = np.where(saturate, clamped, whole) & 0xFFFFFFFF
            overflow[where] = ~saturate & (whole != clamped)
            continue
        exact = np.ldexp(total.astype(np.float64), given["exponent"][where] - rounder.grid_bits)
        rounded = round_sum(exact, _ROUNDINGS[code])
        codes: NDArray = rounded.view(np.uint32)
        if code is ResultCode.F16:
            codes = rounded.astype(np.float16).view(np.uint16)
        positive, negative = given["positive_inf"][where] == 1, given["negative_inf"][where] == 1
        sign = 1 << (15 if code is ResultCode.F16 else 31)
        special = np.where(positive, _INF[code], np.where(negative, _INF[code] | sign, codes))
        nan = (given["nan"][where] == 1) | (positive & negative)
        output[where] = np.where(nan, _NAN[code], special)
    return {"output": output, "overflow": overflow}
