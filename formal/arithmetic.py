"""Alignment, accumulator trees, groups and block scales."""

from collections.abc import Iterator

from amaranth.hdl import Cat, Const, Mux, Value, signed

from ..isa.numerics import BLOCK_GROUP
from ..rtl.accumulate import Accumulate
from ..rtl.align import ALIGNED_EXPONENT_BITS, Align, MaxExponent
from ..rtl.config import CoreConfig, Element
from ..rtl.group import (
    GROUP_SUM_BITS,
    MAXIMUM_SCALED_GROUP,
    SCALED_GROUP_BITS,
    SCALED_GROUP_FRACTION_BITS,
    Group,
)
from ..rtl.reduce import SumTree
from ..rtl.scale import ExponentOffset, GroupScale, ScaleCode
from ..rtl.unpack import ACCUMULATOR_SIGNIFICAND_BITS, ELEMENT_CODE_BITS, significand_bits
from ..rtl.widths import Widths
from .harness import Harness
from .properties import Parameters, Topic, anonymous

__all__ = ["ALIGNMENT", "REDUCTION", "SCALING"]

ALIGNMENT, REDUCTION, SCALING = Topic("alignment"), Topic("reduction"), Topic("scaling")
_EXPONENT = signed(ALIGNED_EXPONENT_BITS)
#: Signed width of a product of 4-bit elements.
_PRODUCT_TERM_BITS = 9


def _exponents(config: CoreConfig) -> Iterator[Parameters]:
    """Products, scaled groups, the accumulator and e_zero."""
    widths = Widths(config)
    yield (widths.float_slots + widths.scaled_groups + 2,)


@ALIGNMENT.property("maximum", _exponents)
def _maximum(h: Harness, count: int) -> None:
    """The tree returns the largest exponent: none is larger, one is equal; so it is never below e_zero, one of them."""
    exponents = [h.free(f"exponent{index}", _EXPONENT) for index in range(count - 1)]
    exponents.append(h.free("e_zero", _EXPONENT))
    tree = h.add("tree", MaxExponent(count))
    h.m.d.comb += [port.eq(value) for port, value in zip(tree.exponents, exponents, strict=True)]
    largest = h.named("largest", tree.largest)
    for index, exponent in enumerate(exponents):
        h.claim(f"bound{index}", largest >= exponent)
    h.claim("attained", Cat(largest == exponent for exponent in exponents).any())
    below = Cat(exponent < exponents[-1] for exponent in exponents[:-1]).all()
    h.claim("e_zero", ~below | (largest == exponents[-1]))
    h.cover("only_e_zero", below)


def _shifters(config: CoreConfig) -> Iterator[Parameters]:
    """The shifters of the products, of the accumulator and of scaled groups: width, padding, bits to shorten by."""
    widths = Widths(config)
    fp8 = (config.alignment_bits - config.fp8_alignment_bits,) if widths.fp8_is_shorter else ()
    for slot in range(widths.float_slots):
        bits = 2 * significand_bits(config.elements_of_slot(slot))
        yield bits, config.alignment_bits + 2 - bits, fp8
    modes = [widths.grid_bits - config.alignment_bits] if widths.packed else []
    modes += [widths.grid_bits - config.fp8_alignment_bits] if widths.fp8_is_shorter else []
    yield ACCUMULATOR_SIGNIFICAND_BITS, widths.grid_bits + 1 - ACCUMULATOR_SIGNIFICAND_BITS, tuple(modes)
    if widths.packed:
        yield SCALED_GROUP_BITS, config.block_alignment_bits - SCALED_GROUP_FRACTION_BITS, ()


@ALIGNMENT.property("shift", _shifters)
def _shift(h: Harness, magnitude_bits: int, padding: int, short: tuple[int, ...]) -> None:
    """A shifter truncates toward zero for every distance: each is compared with dropping so many bits by itself.

    Bits below a shortened grid are cleared; beyond the width nothing is left.
    """
    align = h.add(
        "align",
        Align(magnitude_bits, padding, short),
        magnitude=h.free("magnitude", magnitude_bits),
        distance=h.free("distance", _EXPONENT),
        shorten=h.free("shorten", len(short)),
    )
    h.assume(align.distance >= 0)
    output, bits = h.named("output", align.output), align.output_bits
    low: Value = Const(0)
    for on, cleared in zip(align.shorten, short, strict=True):
        low = Mux(on & (low < cleared), cleared, low)
    kept = Cat(low <= place for place in range(bits))
    padded = Cat(Const(0, max(padding, 0)), align.magnitude[max(-padding, 0) :])
    for distance in range(bits):
        wanted = Cat(padded[distance:], Const(0, distance)) & kept
        h.claim(f"distance{distance}", (align.distance != distance) | (output == wanted))
        h.cover(f"distance{distance}", (align.distance == distance) & (output != 0))
    h.claim("beyond", (align.distance < bits) | (output == 0))
    h.cover("beyond", (align.distance >= bits) & align.magnitude.all())


def _trees(config: CoreConfig) -> Iterator[Parameters]:
    """Every tree of a unit and the halves that it is made of: terms and their width."""
    for count, bits in _whole_trees(config):
        while count > 1:
            yield count, bits
            count //= 2


def _whole_trees(config: CoreConfig) -> Iterator[tuple[int, int]]:
    widths = Widths(config)
    yield config.term_slots, widths.term_bits
    yield BLOCK_GROUP if widths.groups else 0, _PRODUCT_TERM_BITS
    yield widths.integer_groups, GROUP_SUM_BITS
    yield widths.scaled_groups, widths.group_term_bits


@REDUCTION.property("tree", _trees)
def _tree(h: Harness, count: int, term_bits: int) -> None:
    """A tree's total is exactly the sum of the totals of its two halves, and of two terms their sum.

    Proved for every tree down to two terms, so by induction the total is the plain sum of all terms, which no node can
    overflow. With the upper terms zero it is the tree of the lower ones: a granularity uses as many as it has.
    """
    assert count & (count - 1) == 0
    terms = [h.free(f"term{index}", signed(term_bits)) for index in range(count)]
    tree = _sum(h, "tree", terms, term_bits)
    if count == 2:
        h.claim("sum", tree == terms[0] + terms[1])
    else:
        low, high = (
            _sum(h, name, half, term_bits)
            for name, half in (("low", terms[: count // 2]), ("high", terms[count // 2 :]))
        )
        h.claim("sum", tree == low + high)
        part = _sum(h, "part", [*terms[: count // 2], *[Const(0, signed(term_bits))] * (count // 2)], term_bits)
        h.claim("part", part == low)
    h.cover("largest", Cat(term == (1 << (term_bits - 1)) - 1 for term in terms).all())
    h.cover("smallest", Cat(term == -(1 << (term_bits - 1)) for term in terms).all() & (tree < 0))


def _sum(h: Harness, name: str, terms: list[Value], term_bits: int) -> Value:
    tree = h.add(name, SumTree(len(terms), term_bits))
    h.m.d.comb += [port.eq(term) for port, term in zip(tree.terms, terms, strict=True)]
    return h.named(f"{name}_total", tree.total)


def _grouped(config: CoreConfig) -> Iterator[Parameters]:
    if Widths(config).narrow:
        yield (anonymous(config),)


@REDUCTION.property("group", _grouped)
def _group(h: Harness, config: CoreConfig) -> None:
    """A group's total is the tree of its signed products; scaled, its magnitude times the scales' significand.

    The group counts in the maximum unless all its products, or its scales, are zero: not if the sum merely cancels.
    """
    group = h.add("group", Group(config), signs=h.free("signs", BLOCK_GROUP))
    terms = []
    for index, port in enumerate(group.magnitudes):
        magnitude = h.free(f"magnitude{index}", port.shape())
        h.m.d.comb += port.eq(magnitude)
        terms.append(Mux(group.signs[index], -magnitude, magnitude))
    total = _sum(h, "tree", terms, _PRODUCT_TERM_BITS)
    h.claim("total", group.total == total)
    h.cover("cancels", (total == 0) & Cat(term != 0 for term in terms).any())
    if not config.scales:
        return
    scale, codes = h.free("scale", ScaleCode), [h.free(f"scale_{name}", 8) for name in ("a", "b")]
    scales = h.add("scales", GroupScale(config), scale=scale, scale_a=codes[0], scale_b=codes[1])
    h.m.d.comb += [group.scale.eq(scale), group.scale_a.eq(codes[0]), group.scale_b.eq(codes[1])]
    for term in group.magnitudes:
        h.assume(term <= 12 * 12)
    magnitude = Mux(group.total < 0, -group.total, group.total)[: GROUP_SUM_BITS - 1]
    h.claim("magnitude", group.magnitude == magnitude * scales.significand)
    h.claim("sign", group.sign == (group.total < 0))
    h.claim("exponent", group.exponent == scales.exponent)
    h.claim("nan", group.nan == scales.nan)
    some = Cat(term != 0 for term in terms).any()
    h.claim("counts", group.counts == (some & (scales.significand != 0)))
    h.cover("counts_though_zero", group.counts & (total == 0))
    h.cover("zero_scale", some & ~group.counts)


def _elements(config: CoreConfig) -> Iterator[Parameters]:
    for word in config.formats:
        yield anonymous(config), word


@REDUCTION.property("width", _elements)
def _width(h: Harness, config: CoreConfig, word: str) -> None:
    """No step overflows the accumulator: with all terms as large as the format's products can be, the sum is exact.

    The total is compared with a sum of the trees' totals that is eight bits wider.
    """
    widths, element = Widths(config), Element.parse(word)
    slots, product = config.slots_of(element), ((1 << element.significand_bits) - 1) ** 2
    used = {"terms": (0, 0), "group_sums": (0, 0), "group_terms": (0, 0)}
    c_smallest, c_largest = -(1 << 32) << widths.integer_bits, ((1 << 32) - 1) << widths.integer_bits
    if element.packed_float:
        padding = config.block_alignment_bits - SCALED_GROUP_FRACTION_BITS
        used["group_terms"] = slots // BLOCK_GROUP, MAXIMUM_SCALED_GROUP << padding
    elif element.container_bits == 4:
        used["group_sums"] = slots // BLOCK_GROUP, BLOCK_GROUP * product
    else:
        padding = 0 if element.counts else config.alignment_bits - 2 * element.format.fraction_bits
        used["terms"] = slots, product << padding
    if not element.format.is_integer:
        c_largest = (1 << (widths.grid_bits + 1)) - 1
        c_smallest = -c_largest
    c = h.free("c", signed(widths.total_bits))
    h.assume((c >= c_smallest) & (c <= c_largest))
    integers = element.format.is_integer and element.container_bits == 4
    stage = h.add("accumulate", Accumulate(config), c_term=c, integer_groups=Const(integers, 1))
    total: Value = c
    extremes: list[Value] = [c == c_largest]
    for name, (count, bound) in used.items():
        ports = getattr(stage, name)
        terms = [h.free(f"{name}{index}", ports[index].shape()) for index in range(count)]
        for term in terms:
            h.assume((term >= -bound) & (term <= bound))
            extremes.append(term == bound)
        terms += [Const(0, port.shape()) for port in ports[count:]]
        h.m.d.comb += [port.eq(term) for port, term in zip(ports, terms, strict=True)]
        if count:
            place = 0 if name == "group_terms" else widths.integer_bits
            total = total + (_sum(h, f"{name}_tree", terms, len(ports[0])) << place)
    h.claim("exact", h.named("total", stage.total) == h.named("wide", total, signed(widths.total_bits + 8)))
    h.cover("largest", Cat(*extremes).all())


@SCALING.property("offset", lambda config: [(anonymous(config),)])
def _offset(h: Harness, config: CoreConfig) -> None:
    """The offset is the sum of the formats' biases less the true exponents of both scales, for all codes.

    ue8m0 code 0 is 2**-127, and 0xFF is NaN whatever else is there; scales that are not enabled have no effect.
    """
    codes = [h.free(f"element_{name}", ELEMENT_CODE_BITS) for name in ("a", "b")]
    scales = [h.free(f"scale_{name}", 8) for name in ("a", "b")]
    enable = h.free("enable")
    offset = h.add(
        "offset", ExponentOffset(config), a=codes[0], b=codes[1], enable=enable, scale_a=scales[0], scale_b=scales[1]
    )
    wanted: Value = Const(0, _EXPONENT)
    for code in codes:
        for number, element in enumerate(config.elements):
            if not element.counts:
                wanted = wanted + Mux(code == number, element.format.bias, 0)
    held = "ue8m0" in config.scales
    scaled = enable & held
    for scale in scales:
        wanted = wanted - Mux(scaled, scale - 127, 0)
    h.claim("offset", offset.offset == wanted)
    h.claim("nan", offset.nan == (scaled & ((scales[0] == 0xFF) | (scales[1] == 0xFF))))
    h.cover("bias", offset.offset > 0)
    if held:
        h.cover("nan", offset.nan)
        h.cover("smallest", scaled & (scales[0] == 0) & (scales[1] == 0) & ~offset.nan)


def _block_scaled(config: CoreConfig) -> Iterator[Parameters]:
    if Widths(config).packed:
        yield (anonymous(config),)


@SCALING.property("group", _block_scaled)
def _group_scale(h: Harness, config: CoreConfig) -> None:
    """The scales of a group multiply exactly, for all codes of ue8m0 and ue4m3; NaN of either is NaN.

    ue4m3 by the table of its 128 values, the sign bit ignored; its subnormals keep exponent -6.
    """
    scale, codes = h.free("scale", ScaleCode), [h.free(f"scale_{name}", 8) for name in ("a", "b")]
    group = h.add("scales", GroupScale(config), scale=scale, scale_a=codes[0], scale_b=codes[1])
    small = scale == ScaleCode.UE4M3
    h.assume((scale != ScaleCode.NONE) & (scale.as_value() <= max(code.value for code in ScaleCode)))
    significands, exponents = [], []
    for code in codes:
        significand: Value = Const(0, 4)
        exponent: Value = Const(0, signed(8))
        for value in range(128):
            field, fraction = divmod(value, 8)
            significand = Mux(code[:7] == value, fraction + 8 * (field > 0), significand)
            exponent = Mux(code[:7] == value, max(field, 1) - 7, exponent)
        significands.append(Mux(small, significand, 8))
        exponents.append(Mux(small, exponent, code - 127))
    h.claim("significand", group.significand == significands[0] * significands[1])
    h.claim("exponent", group.exponent == exponents[0] + exponents[1])
    nans = [Mux(small, code[:7] == 0x7F, code == 0xFF) for code in codes]
    h.claim("nan", group.nan == (nans[0] | nans[1]))
    h.cover("nan_ue4m3", small & group.nan)
    h.cover("nan_ue8m0", ~small & group.nan)
    h.cover("subnormal", small & (codes[0][:7] < 8) & (group.significand != 0))
    h.cover("zero", small & (group.significand == 0))
    h.cover("sign_ignored", small & codes[0][7])
