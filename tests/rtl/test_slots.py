"""No bit of a significand, product or term is lost in a product slot, in presets, unusual and random datapaths."""

from collections.abc import Iterator
from itertools import product

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sptc.isa.formats import FORMATS
from sptc.isa.numerics import BLOCK_GROUP, zero_exponent_for
from sptc.rtl.cells.max_exponent import ALIGNED_EXPONENT_BITS
from sptc.rtl.cells.raw import PRODUCT_EXPONENT_BITS, product_signature
from sptc.rtl.config import BLOCK_SCALES, PRESETS, ConfigError, CoreConfig, Element
from sptc.rtl.multiply import products_signature
from sptc.rtl.product_group import GROUP_PRODUCT_BITS
from sptc.rtl.slots import Slot, kept_bits
from sptc.rtl.widths import Widths

FLOATS = ("f16", "bf16", "tf32", "e4m3", "e5m2", "e3m2", "e2m3", "e2m1")
INTEGERS = ("s8", "u8", "s4", "u4")
WORDS = (*FLOATS, *INTEGERS, "e2m1/4")
#: Datapaths with unusual formats or alignment bits.
ODD = {
    "long": CoreConfig(name="long", formats=("tf32", "bf16", "s8"), step_bytes=16, alignment_bits=40),
    "bf16, and fp8 with F = 8": CoreConfig(name="odd", formats=("bf16", "e4m3"), fp8_alignment_bits=8),
    "fp8 with F = 9": CoreConfig(name="odd", formats=("e5m2", "e4m3", "u8"), alignment_bits=19, fp8_alignment_bits=9),
    "s8 alone": CoreConfig(name="odd", formats=("s8",)),
    "s4 alone": CoreConfig(name="odd", formats=("s4",)),
    "s8 and s4 beside f16": CoreConfig(name="odd", formats=("f16", "s8", "s4")),
    "s8 beside e5m2 and e2m1": CoreConfig(name="odd", formats=("s8", "e5m2", "e2m1")),
    "e2m1 alone": CoreConfig(name="odd", formats=("e2m1",), alignment_bits=8, fp8_alignment_bits=8),
    "groups of 4-bit elements beside f16": CoreConfig(
        name="odd", formats=("f16", "e2m1/4", "s4"), scales=BLOCK_SCALES, alignment_bits=20, fp8_alignment_bits=8
    ),
}
CONFIGURATIONS = {**PRESETS, **ODD}


@st.composite
def configurations(draw: st.DrawFn) -> CoreConfig:
    words = draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=6, unique=True))
    bits = draw(st.integers(8, 40))
    try:
        return CoreConfig(
            name="drawn", formats=tuple(words), scales=("ue8m0",) if "e2m1/4" in words else (),
            step_bytes=draw(st.sampled_from((8, 16, 32))), alignment_bits=bits,
            fp8_alignment_bits=draw(st.integers(8, bits)), block_alignment_bits=draw(st.integers(bits, 40)),
        )  # fmt: skip
    except ConfigError:
        assume(False)
        raise


def significands(slot: Slot, element: Element, operand: str) -> tuple[int, int]:
    """Return the smallest and the largest significand of a format as operand a or b of a slot."""
    fmt = element.format
    if element.packed_float:
        return 0, 12
    if fmt.is_integer:
        return (-(1 << fmt.bits - 1), (1 << fmt.bits - 1) - 1) if fmt.signed else (0, (1 << fmt.bits) - 1)
    return 0, ((2 << fmt.fraction_bits) - 1) << slot.point(element, operand) - fmt.fraction_bits


def pairs(slot: Slot) -> Iterator[tuple[Element, Element]]:
    """Yield pairs of formats that a slot may multiply. Both formats have the same container width and kind."""
    for a, b in product(slot.elements, repeat=2):
        kind = (a.container_bits, a.format.is_integer, a.packed_float)
        if kind == (b.container_bits, b.format.is_integer, b.packed_float):
            yield a, b


def products(slot: Slot, a: Element, b: Element) -> tuple[int, int]:
    """Return the smallest and the largest product of two formats."""
    corners = [x * y for x, y in product(significands(slot, a, "a"), significands(slot, b, "b"))]
    return min(corners), max(corners)


def check_floats(slot: Slot) -> None:
    """Check that fractions of floats fit the slot, and that the bit of weight 2**(e_max - F) is bit 0 of the sum."""
    config = slot.config
    for element in slot.floats:
        for operand in ("a", "b"):
            assert element.format.fraction_bits <= slot.point(element, operand) < slot.significand_bits
    for a, b in pairs(slot):
        if a.fixed_point:
            continue
        kept = config.fp8_alignment_bits if a.container_bits == 8 else config.alignment_bits
        assert kept == kept_bits(config, a) == kept_bits(config, b)
        # The product 1.0 * 1.0 has the weight 2**e_max, which is bit F of the sum, counted from 0.
        assert ((1 << slot.point(a, "a")) * (1 << slot.point(b, "b"))) << slot.padding == 1 << kept
        # Products are below four, so a shifter need not reach bits above F + 1.
        _, largest = products(slot, a, b)
        assert largest << slot.padding < 1 << kept + 2 <= 1 << slot.float_bits
    assert slot.float_bits == max((kept_bits(config, element) + 2 for element in slot.floats), default=0)


def check_widths(slot: Slot, widths: Widths) -> None:
    """Check that the signals of a slot are wide enough for all significands, products and terms."""
    bits = slot.significand_bits
    held = product_signature(bits).members["significand"].shape.width
    limits = {"product": min(held, products_signature(slot.config).members["significands"].shape.width)}
    if slot.index < slot.config.term_slots:
        limits["term"] = slot.term_bits - slot.padding
        assert slot.term_bits <= widths.term_bits
    if slot.index < widths.groups * BLOCK_GROUP:
        limits["group"] = GROUP_PRODUCT_BITS
    for a, b in pairs(slot):
        for element, operand in ((a, "a"), (b, "b")):
            low, high = significands(slot, element, operand)
            assert -(1 << bits) <= low <= high < 1 << bits
        low, high = products(slot, a, b)
        for name, limit in limits.items():
            if (name == "term" and a.container_bits == 4) or (name == "group" and a.container_bits > 4):
                continue
            assert -(1 << limit - 1) <= low <= high < 1 << limit - 1, f"{name} of {a} and {b}"


def check_distances(slot: Slot) -> None:
    """Check that a saturated shift amount shifts out the whole term."""
    largest = max((2 * ((1 << element.format.exponent_bits) - 1) for element in slot.floats), default=0)
    assert largest < 1 << slot.shift_amount_bits or not slot.floats
    assert slot.shift_amount_bits <= PRODUCT_EXPONENT_BITS
    for exponent in {0, 1, 2, largest // 2, largest - 1, largest} if slot.floats else ():
        for maximum in range(exponent, 1 << PRODUCT_EXPONENT_BITS):
            distance = min(maximum, (1 << slot.shift_amount_bits) - 1) - exponent
            assert distance == maximum - exponent or distance >= slot.float_bits


def check_sum(config: CoreConfig, widths: Widths) -> None:
    """Check that the sum is wide enough for the largest terms, an accumulator, and the smallest normal number."""
    low, high = -(1 << widths.total_bits - 1), (1 << widths.total_bits - 1) - 1
    for element in config.elements:
        if element.packed_float:
            kept = config.block_alignment_bits
            # Largest sum in units of 2**(x1 + x2 - 8): products are 6 * 6, and scales 15/8 * 2**x1 and 15/8 * 2**x2.
            most = (config.slots_of(element) * 12**2 * 15**2 << kept - 8) + (2 << kept)
            assert most <= high
            floor = zero_exponent_for(kept, grouped=True)
            assert floor - kept + widths.total_bits - 1 - FORMATS["f32"].minimum_exponent >= 0
            continue
        bounds = [products(slot, element, element) for slot in widths.slots if element in slot.elements]
        if element.format.is_integer:
            unit = widths.integer_bits
            least, most = ((sum(ends) << unit) for ends in zip(*bounds, strict=True))
            assert low <= least - (1 << 32 + unit)
            assert most + (1 << 32 + unit) <= high
            continue
        kept = kept_bits(config, element)
        most = sum(end << slot.padding for (_, end), slot in zip(bounds, widths.slots, strict=False)) + (2 << kept)
        assert most <= high
        for half, name in ((False, "f32"), (True, "f16")):
            floor = zero_exponent_for(config.alignment_bits, half_result=half)
            smallest = FORMATS[name].minimum_exponent
            # Distance from the sign bit, with weight 2**(E - F + total_bits - 1), down to the smallest normal number.
            assert floor - kept + widths.total_bits - 1 - smallest >= 0
            beyond = 2 * FORMATS["f32"].maximum_exponent + 2 + 2 * 127  # above e_max of any scaled product
            assert beyond - kept + widths.total_bits - 1 - smallest < 1 << ALIGNED_EXPONENT_BITS


def check(config: CoreConfig) -> None:
    widths = Widths(config)
    assert [slot.index for slot in widths.slots] == list(range(config.slots))
    assert widths.slots[0].elements == config.elements
    assert config.term_slots == sum(any(e.container_bits >= 8 for e in slot.elements) for slot in widths.slots)
    of_groups = config.block_alignment_bits if widths.packed else 0
    assert widths.grid_bits == max([*(kept_bits(config, e) for e in widths.floats), of_groups])
    for slot in widths.slots:
        most = 8 * config.step_bytes // (slot.index + 1)
        assert slot.elements == tuple(e for e in config.elements if e.container_bits <= most)
        assert slot.floats == tuple(e for e in slot.elements if e.format.name in FLOATS and e.container_bits >= 8)
        check_floats(slot)
        # The lowest bit of an integer product has the same position in the sum for all slots, 0 or above.
        assert widths.integer_bits == Slot(config, 0).padding >= 0
        assert slot.padding - slot.integer_shift == widths.integer_bits
        assert slot.integer_shift >= 0
        check_widths(slot, widths)
        check_distances(slot)
    check_sum(config, widths)


@pytest.mark.parametrize("config", CONFIGURATIONS.values(), ids=CONFIGURATIONS)
def test_every_slot_of_a_datapath(config: CoreConfig) -> None:
    """Besides, no other position of the significands of floats in a slot would allow a narrower multiplier."""
    check(config)
    for slot in Widths(config).slots:
        integers = [element.significand_bits for element in slot.elements if element.fixed_point]
        kept = {element: kept_bits(config, element) for element in slot.floats}
        most = min((kept[element] - 2 * element.format.fraction_bits for element in slot.floats), default=0)
        widths = [
            max([*integers, *(-(-(kept[element] - padding) // 2) + 1 for element in slot.floats)])
            for padding in range(most + 1)
        ]
        assert slot.significand_bits <= min(widths)


@settings(deadline=None, print_blob=True)
@given(config=configurations())
def test_every_slot_of_any_datapath(config: CoreConfig) -> None:
    check(config)
