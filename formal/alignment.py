"""Proofs about alignment: truncation of every term to F bits below e_max, the largest exponent of the terms."""

from collections.abc import Iterator

from amaranth.hdl import Cat, Const, Mux, Value, signed, unsigned

from ..isa.numerics import BLOCK_GROUP
from ..rtl.align import AlignStage
from ..rtl.cells.shifter import AlignmentShifter
from ..rtl.config import CoreConfig, Element
from ..rtl.product_group import ProductGroup
from ..rtl.scale import ScaleCode
from .exponents import ALIGNMENT, DISTANCE_BITS, GROUP_LIMIT, PRODUCT_EXPONENT, kinds, scales_groups
from .harness import Harness
from .numerics import (
    ACCUMULATOR_BITS,
    ALIGNED_EXPONENT,
    LARGEST_PACKED_EXPONENT,
    LARGEST_SCALED_GROUP,
    SCALED_GROUP_FRACTION_BITS,
    c_excess_bits,
    float_slots,
    grid_bits,
    integer_place,
    is_floating,
    kept_bits,
    parts,
    product_bits,
    product_place,
)
from .properties import Parameters

__all__ = ["ALIGNMENT"]

#: Exponent that the hardware assigns to every product of integers.
_INTEGER_EXPONENT = 2


def _shifters(config: CoreConfig) -> Iterator[Parameters]:
    """Yield constructor arguments of :class:`AlignmentShifter`, for products, accumulator and scaled sums."""
    for slot in range(float_slots(config)):
        floats = [element for element in config.elements_of_slot(slot) if not element.fixed_point]
        # Products of two significands are below four, so they have two bits above the binary point.
        reach = max(kept_bits(config, element) for element in floats) + 2
        # A shift by `farthest` or more shifts out every bit of a product. The shift amount therefore needs only as many
        # bits as `farthest`.
        farthest = max(map(_largest_exponent, floats)) + reach
        distance_bits = min(farthest.bit_length(), PRODUCT_EXPONENT.width)
        yield product_bits(config, slot) - 1, product_place(config, slot), distance_bits, reach
    if is_floating(config):
        yield ACCUMULATOR_BITS, grid_bits(config) + 1 + c_excess_bits(config) - ACCUMULATOR_BITS, DISTANCE_BITS, None
    if scales_groups(config):
        place = config.block_alignment_bits - SCALED_GROUP_FRACTION_BITS
        yield LARGEST_SCALED_GROUP.bit_length(), place, DISTANCE_BITS, None


def _largest_exponent(element: Element) -> int:
    """Return the largest sum of the biased exponents of two elements of a format."""
    return 2 * ((1 << element.format.exponent_bits) - 1)


@ALIGNMENT.property("shift", _shifters)
def _shift(h: Harness, magnitude_bits: int, padding: int, shift_amount_bits: int, shifted_bits: int | None) -> None:
    """An alignment shifter truncates toward zero: a shift amount of n drops the n lowest bits.

    The highest output bits may be excluded from the shift, and then pass unchanged. A shift amount that is at least the
    number of shifted bits clears all shifted bits.
    """
    align = h.add(
        "align",
        AlignmentShifter(magnitude_bits, padding, shift_amount_bits, shifted_bits),
        magnitude=h.free("magnitude", magnitude_bits),
        shift_amount=h.free("shift_amount", shift_amount_bits),
    )
    output, bits = h.named("output", align.output), align.shifted_bits
    padded = Cat(Const(0, max(padding, 0)), align.magnitude[max(-padding, 0) :])
    for shift_amount in range(bits):
        expected = Cat(padded[shift_amount:bits], Const(0, shift_amount))
        h.claim(f"distance{shift_amount}", (align.shift_amount != shift_amount) | (output[:bits] == expected))
        h.cover(f"distance{shift_amount}", (align.shift_amount == shift_amount) & output[:bits].any())
    h.claim("beyond", (align.shift_amount < bits) | ~output[:bits].any())
    h.cover("beyond", (align.shift_amount >= bits) & align.magnitude.all())
    if bits < len(output):
        h.claim("above", output[bits:] == padded[bits:])


def _truncated(value: Value, place: int, shift_amount: Value) -> Value:
    """Return ``value * 2**(place - shift_amount)``, truncated to an integer."""
    padded = Cat(Const(0, place), value) if place >= 0 else value[-place:]
    return Mux(shift_amount >= len(padded), 0, padded >> shift_amount.as_unsigned()[: len(padded).bit_length()])


def _signed_term(group: ProductGroup, shift_amount: Value, place: int) -> Value:
    """Return the scaled sum of a group of products, shifted right by `shift_amount` and truncated toward zero."""
    kept = _truncated(group.magnitude, place, shift_amount)
    return Mux(group.sign, -kept, kept)


def _truncates_parts(config: CoreConfig, stage: AlignStage, product_groups: list[ProductGroup]) -> Value:
    """Return 1 if parts of a sum are truncated one by one: if scales are ue4m3, and a product exponent exceeds C's."""
    c_exponent = stage.i.c_grid_exponent + c_excess_bits(config)
    pairs = zip(product_groups, stage.i.group_exponents, strict=True)
    larger = Cat(group.participates & (group.exponent + exponent > c_exponent) for group, exponent in pairs).any()
    return (stage.control.scale == ScaleCode.UE4M3) & larger


def _group_of(
    h: Harness, config: CoreConfig, stage: AlignStage, index: int, first: int = 0, count: int = BLOCK_GROUP
) -> ProductGroup:
    """Instantiate a component that sums `count` of 16 products, and connect it to the align stage's inputs."""
    name, begin = f"group{index}_{first}_{count}", index * BLOCK_GROUP + first
    group, slots = h.add(name, ProductGroup(config, count)), range(begin, begin + count)
    if scales_groups(config):  # products of floats have a separate sign bit, products of integers do not
        h.m.d.comb += group.signs.eq(Cat(stage.i.signs[slot] for slot in slots))
    h.m.d.comb += [port.eq(stage.i.significands[slot]) for port, slot in zip(group.products, slots, strict=True)]
    h.m.d.comb += [
        group.scale.eq(stage.control.scale),
        group.scale_a.eq(stage.scale_a.word_select(index, 8)),
        group.scale_b.eq(stage.scale_b.word_select(index, 8)),
    ]
    return group


@ALIGNMENT.property("terms", kinds)
def _terms(h: Harness, config: CoreConfig, words: tuple[str, ...]) -> None:
    """The align stage truncates all terms toward zero to multiples of 2**(E - F), F bits below the largest exponent E.

    F is the number of alignment bits. Products may have any value below four, and the largest exponent E may have any
    value that is not below the exponents of the products. Integers are not shifted. In steps whose products are summed
    in groups, single products are not added. A datapath that can truncate parts of groups separately does this if the
    exponent of a product is larger than that of the accumulator. In this case, E does not include the accumulator.
    """
    elements = [Element.parse(word) for word in words]
    stage = _free_align_stage(h, config, elements)
    e_max, product_groups, separate = _claim_groups(h, config, elements[0], stage)
    _claim_products(h, config, elements, stage, e_max)
    i, o, addends = stage.i, stage.o, stage.o.addends
    if elements[0].format.is_integer:
        h.claim("c", addends.c_term + addends.c_increment == stage.c << integer_place(config))
        h.cover("smallest", stage.c == -(1 << 32))
        return
    shift_amount = h.named("shift_amount", e_max - i.c_grid_exponent)
    fits = (i.c_significand == 0) | ((shift_amount >= 0) & (shift_amount < 1 << DISTANCE_BITS))
    if elements[0].packed_float and parts(config) > 1:
        h.assume(separate | fits)
        h.claim("c_fits", fits)
    else:
        h.assume(fits)
    place = grid_bits(config) + 1 + c_excess_bits(config) - ACCUMULATOR_BITS
    kept = _truncated(i.c_significand, place, shift_amount)
    h.claim("c", addends.c_term + addends.c_increment == Mux(i.c_sign, -kept, kept))
    h.claim("headroom", o.headroom == (e_max + i.headroom_offset)[: len(o.headroom)])
    h.claim("nan", o.nan == Cat([i.nan, *(group.nan for group in product_groups)]).any())
    h.claim("infinities", Cat(o.positive_inf, o.negative_inf) == Cat(i.positive_inf, i.negative_inf))
    h.cover("negative", i.c_sign & (addends.c_term == -1) & addends.c_increment)


def _free_align_stage(h: Harness, config: CoreConfig, elements: list[Element]) -> AlignStage:
    """Return an align stage with free variables as inputs. Products are below 4; the format is one of `elements`."""
    element = elements[0]
    stage = h.add("stage", AlignStage(config), c=h.free("c", signed(33)))
    i = stage.i
    code, scale = h.free("code", stage.control.a.shape()), h.free("scale", ScaleCode)
    h.assume(Cat(code == config.elements.index(other) for other in elements).any())
    h.m.d.comb += [stage.control.a.eq(code), stage.control.scale.eq(scale)]
    for port in ("scale_a", "scale_b"):
        h.m.d.comb += getattr(stage, port).eq(h.free(port, 32))
    for path, _, port in i.signature.flatten(i):
        if path[0] != "significands":
            h.m.d.comb += port.eq(h.free("_".join(map(str, path)), port.shape()))
    for slot in range(config.slots_of(element)):
        if element.fixed_point:
            shape = signed(product_bits(config, slot))
        else:  # products of float significands are below four
            shape = unsigned(kept_bits(config, element) - product_place(config, slot) + 2)
        h.m.d.comb += i.significands[slot].eq(h.free(f"product{slot}", shape))
    return stage


def _claim_groups(
    h: Harness, config: CoreConfig, element: Element, stage: AlignStage
) -> tuple[Value, list[ProductGroup], Value]:
    """Claim that the align stage outputs the right terms for sums of 16 products.

    Return the largest exponent of all terms, the groups, and whether the parts of the groups are truncated separately.
    """
    i, addends = stage.i, stage.o.addends
    count = config.slots_of(element) // BLOCK_GROUP if element.container_bits == 4 else 0
    product_groups = [_group_of(h, config, stage, index) for index in range(count)]
    e_max: Value = i.e_max
    separate: Value = Const(0)
    if element.packed_float:
        h.assume((i.e_max >= -GROUP_LIMIT) & (i.e_max < GROUP_LIMIT))
        place = config.block_alignment_bits - SCALED_GROUP_FRACTION_BITS
        if parts(config) > 1:
            # Assume limits of the align stage's inputs. The property `alignment.e_max` proves that the outputs of the
            # multiply stage keep these limits.
            h.assume(i.c_grid_exponent >= -GROUP_LIMIT)
            h.assume(Cat(exponent <= LARGEST_PACKED_EXPONENT for exponent in i.group_exponents).all())
            separate = h.named("separate", _truncates_parts(config, stage, product_groups))
            e_max = h.named("none", Mux(separate, -(1 << ALIGNED_EXPONENT.width - 1), e_max), ALIGNED_EXPONENT)
        for index, group in enumerate(product_groups):
            larger = group.participates & (group.exponent > e_max)
            e_max = h.named(f"largest{index}", Mux(larger, group.exponent, e_max), ALIGNED_EXPONENT)
        for index, group in enumerate(product_groups):
            kept = [_signed_term(group, e_max - group.exponent, place), *[Const(0)] * (parts(config) - 1)]
            for number, first in enumerate(range(0, BLOCK_GROUP, config.group) if parts(config) > 1 else ()):
                part = _group_of(h, config, stage, index, first, config.group)
                kept[number] = Mux(separate, _signed_term(part, e_max - group.exponent, place), kept[number])
            for number, expected in enumerate(kept, index * parts(config)):
                h.claim(f"group{number}", addends.group_terms[number] + addends.group_increments[number] == expected)
    else:
        for index, (term, increment) in enumerate(zip(addends.group_terms, addends.group_increments, strict=True)):
            h.claim(f"no_group{index}", term + increment == 0)
    if element.format.is_integer:
        for index, group in enumerate(product_groups):
            h.claim(f"group{index}", addends.group_sums[index] == group.total)
    return e_max, product_groups, separate


def _claim_products(h: Harness, config: CoreConfig, elements: list[Element], stage: AlignStage, e_max: Value) -> None:
    """Claim that the align stage outputs the right term for each product that is aligned alone, not in a sum of 16."""
    element, floats = elements[0], not elements[0].fixed_point
    i, addends = stage.i, stage.o.addends
    most = max(map(_largest_exponent, elements)) if floats else _INTEGER_EXPONENT
    for slot in range(config.term_slots):
        place = product_place(config, slot)
        product, term = i.significands[slot], addends.terms[slot][: place + product_bits(config, slot)].as_signed()
        aligned, expected = term + addends.increments[slot], Const(0)
        if element.container_bits > 4 and slot < config.slots_of(element):
            exponent = i.exponents[slot] if slot < float_slots(config) else Const(_INTEGER_EXPONENT)
            if floats:
                h.assume((product == 0) | ((exponent <= e_max) & (e_max < 1 << PRODUCT_EXPONENT.width)))
                h.assume(exponent <= most)
                kept = _truncated(product[: product.shape().width - 1], place, e_max - exponent)
                expected = Mux(i.signs[slot], -kept, kept)
            else:
                h.assume(((product == 0) | (exponent == _INTEGER_EXPONENT)) & ~i.signs[slot])
                expected = product << integer_place(config)
        h.claim(f"term{slot}", aligned == expected)
