"""The align stage: every term truncated toward zero on the grid of the running format, integers as they are."""

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray
from sptc.rtl.align import AlignStage, aligned_signature
from sptc.rtl.cells.max_exponent import ALIGNED_EXPONENT_BITS
from sptc.rtl.config import BLOCK_SCALES, CoreConfig, Element
from sptc.rtl.multiply import products_signature
from sptc.rtl.product_group import GROUP_SUM_BITS
from sptc.rtl.scale import ScaleCode
from sptc.rtl.slots import Slot
from sptc.rtl.step import control_layout
from sptc.rtl.widths import Widths

Random = np.random.Generator
#: Datapaths in little: fp8 with fewer bits, integers that stand higher in some slots, groups, and odd widths.
SHORT = CoreConfig(
    name="short", formats=("f16", "bf16", "tf32", "e4m3", "e5m2", "s8", "u8"), step_bytes=8, fp8_alignment_bits=13
)
SCALED = CoreConfig(
    name="scaled", formats=("e4m3", "f16", "s8", "e2m1", "e2m1/4", "s4"), scales=BLOCK_SCALES, step_bytes=8
)
PLAIN = CoreConfig(name="plain", formats=("f16", "s8", "u8"), step_bytes=8, alignment_bits=24, fp8_alignment_bits=24)
LONG = CoreConfig(name="long", formats=("bf16", "e4m3", "s8"), step_bytes=8, alignment_bits=40, fp8_alignment_bits=9)
LEAST = CoreConfig(name="least", formats=("e5m2", "u8"), step_bytes=8, alignment_bits=14, fp8_alignment_bits=8)
CONFIGURATIONS = (SHORT, SCALED, PLAIN, LONG, LEAST)
FLOATS = [(config, element) for config in CONFIGURATIONS for element in config.elements if not element.fixed_point]
BYTES = [
    (config, element)
    for config in CONFIGURATIONS
    for element in config.elements
    if element.format.is_integer and element.container_bits == 8
]
COUNT = 400


def ids(value: object) -> str:
    return value.name if isinstance(value, CoreConfig) else str(value)


@pytest.fixture(scope="module")
def stages(compiled: Callable) -> Callable[[CoreConfig], Callable]:
    """Compile the align stage of a datapath, once each."""
    return cache(lambda config: compiled(AlignStage(config)))


def control(config: CoreConfig, element: Element, **fields: object) -> int:
    code = config.elements.index(element)
    return int(control_layout().const({"a": code, "b": code, **fields}).as_value().value)


def kept_of(config: CoreConfig, element: Element) -> int:
    if element.packed_float:
        return config.block_alignment_bits
    return config.fp8_alignment_bits if element.container_bits == 8 else config.alignment_bits


def truncated(magnitudes: NDArray[np.int64], places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return magnitudes shifted left so many places, or right if negative, toward zero."""
    return np.where(places >= 0, magnitudes << np.maximum(places, 0), magnitudes >> np.clip(-places, 0, 62))


def fractions(element: Element, rng: Random, shape: tuple[int, int]) -> NDArray[np.int64]:
    """Return significands in units of the last fraction bit: normal, subnormal, full ones, lone bits and zeros."""
    bits = element.format.fraction_bits
    drawn = rng.integers(0, 2 << bits, shape)
    drawn = np.where(rng.random(shape) < 0.2, (2 << bits) - 1, drawn)
    drawn = np.where(rng.random(shape) < 0.2, 1 << rng.integers(0, bits + 1, shape), drawn)
    return np.where(rng.random(shape) < 0.1, 0, drawn)


class Floats:
    """Steps of one float: products with exponents near and far below the largest."""

    def __init__(self, config: CoreConfig, element: Element, rng: Random) -> None:
        self.config, self.element = config, element
        fmt, slots = element.format, config.slots_of(element)
        shape = (COUNT, slots)
        self.kept = kept_of(config, element)
        a, b = fractions(element, rng, shape), fractions(element, rng, shape)
        self.magnitudes = a * b  # in units of the last bit of the product, 2 * fraction_bits below the point
        self.signs = rng.integers(0, 2, shape)
        top = 2 * ((1 << fmt.exponent_bits) - 2)
        exponents = rng.integers(2, top, shape, endpoint=True)
        near = rng.random(COUNT) < 0.6
        exponents[near] = np.clip(rng.integers(2, top, (int(near.sum()), 1), endpoint=True)
                                  - rng.integers(0, self.kept + 6, (int(near.sum()), slots)), 2, top)  # fmt: skip
        self.exponents = np.where(self.magnitudes == 0, 0, exponents)
        above = np.where(rng.random(COUNT) < 0.5, 0, rng.integers(0, 60, COUNT))
        above = np.where(rng.random(COUNT) < 0.1, rng.integers(60, 400, COUNT), above)
        self.e_max = np.minimum(self.exponents.max(axis=1) + above, 509)
        self.e_max[:5] = [-103, -1, 0, 1, 509]  # where nothing counts e_zero may be below every product
        self.magnitudes[:5], self.exponents[:5] = 0, 0
        self.inputs: dict[str, NDArray] = {"i_e_max": self.e_max}
        significands = np.zeros((COUNT, config.slots), np.int64)
        for index in range(slots):
            slot = Slot(config, index)
            left = slot.point(element, "a") + slot.point(element, "b") - 2 * fmt.fraction_bits
            significands[:, index] = self.magnitudes[:, index] << left
        wide = np.zeros((COUNT, Widths(config).float_slots), np.int64)
        wide[:, :slots] = self.exponents
        all_signs = np.zeros((COUNT, config.slots), np.int64)
        all_signs[:, :slots] = self.signs
        self.inputs |= {"i_significands": significands, "i_exponents": wide, "i_signs": all_signs}

    def wanted(self) -> NDArray[np.int64]:
        """Return each product in units of two to the largest exponent minus F, truncated toward zero."""
        places = self.kept - 2 * self.element.format.fraction_bits - (self.e_max[:, None] - self.exponents)
        magnitudes = truncated(self.magnitudes, places)
        return np.where(self.signs, -magnitudes, magnitudes)


def terms_of(config: CoreConfig, got: dict[str, NDArray]) -> NDArray[np.int64]:
    """Return what is added for each product: its term, of as many bits as the slot needs, and the one of a negative."""
    slots = Widths(config).slots[: config.term_slots]
    empty = np.array([64 - slot.term_bits for slot in slots])
    return (got["o_addends_terms"] << empty >> empty) + got["o_addends_increments"]


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(("config", "element"), FLOATS, ids=ids)
def test_floats_are_truncated_on_their_own_grid(
    stages: Callable, rng: Random, config: CoreConfig, element: Element
) -> None:
    steps = Floats(config, element, rng)
    got = stages(config)(control=control(config, element), c=rng.integers(0, 1 << 33, COUNT), **steps.inputs)
    terms, wanted = terms_of(config, got), steps.wanted()
    np.testing.assert_array_equal(terms[:, : wanted.shape[1]], wanted)
    assert not terms[:, wanted.shape[1] :].any()
    for name in ("group_terms_0", "group_increments"):
        assert not got.get(f"o_addends_{name}", np.zeros(1)).any()
    # Some are cut, some are gone, and some are whole.
    lost = steps.kept - 2 * element.format.fraction_bits < steps.e_max[:, None] - steps.exponents
    assert (lost & (wanted != 0)).any()
    assert ((steps.magnitudes != 0) & (wanted == 0)).any()
    assert (~lost & (wanted != 0)).any()


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize(("config", "element"), FLOATS, ids=ids)
def test_an_accumulator_is_truncated_on_the_grid_of_the_running_format(
    stages: Callable, rng: Random, config: CoreConfig, element: Element
) -> None:
    """In which 1.0 at the largest exponent is two to F, whatever F other formats have."""
    kept, widths = kept_of(config, element), Widths(config)
    significands = np.concatenate([rng.integers(0, 1 << 24, COUNT - 24), (2 << np.arange(24)) - 1])
    signs = rng.integers(0, 2, COUNT)
    below = np.arange(COUNT) % (kept + 30)
    below[rng.random(COUNT) < 0.1] = 500
    e_max = rng.integers(-100, 400, COUNT)
    got = stages(config)(
        control=control(config, element),
        c=rng.integers(0, 1 << 33, COUNT),
        i_c_sign=signs,
        i_c_significand=significands,
        i_c_grid_exponent=e_max - below - (widths.grid_bits - kept),
        i_e_max=e_max,
    )
    magnitudes = truncated(significands, kept - 23 - below)
    wanted = np.where(signs, -magnitudes, magnitudes)
    np.testing.assert_array_equal(got["o_addends_c_term"] + got["o_addends_c_increment"], wanted)
    assert not terms_of(config, got).any()


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(("config", "element"), BYTES, ids=ids)
def test_integers_are_not_shifted(stages: Callable, rng: Random, config: CoreConfig, element: Element) -> None:
    """Nor is the accumulator, which is its own 33 bits whatever it would be as a float."""
    slots, unit = config.slots_of(element), Widths(config).integer_bits
    fmt = element.format
    low, high = (-(1 << fmt.bits - 1), (1 << fmt.bits - 1) - 1) if fmt.signed else (0, (1 << fmt.bits) - 1)
    factors = rng.integers(low, high, (2, COUNT, slots), endpoint=True)
    factors = np.where(rng.random(factors.shape) < 0.2, rng.choice([low, high], factors.shape), factors)
    factors[:, 0], factors[:, 1] = low, high
    products = factors[0] * factors[1]
    significands = np.zeros((COUNT, config.slots), np.int64)
    significands[:, :slots] = products
    c = rng.integers(-(1 << 32), 1 << 32, COUNT)
    c[:4] = [-(1 << 32), (1 << 32) - 1, -1, 0]
    given = {"i_significands": significands}
    floats = Widths(config).float_slots
    given["i_exponents"] = np.where(significands[:, :floats] == 0, 0, 2)
    got = stages(config)(
        control=control(config, element),
        c=c,
        i_e_max=rng.integers(-400, 400, COUNT),
        i_c_sign=rng.integers(0, 2, COUNT),
        i_c_significand=rng.integers(0, 1 << 24, COUNT),
        i_c_grid_exponent=rng.integers(-400, 400, COUNT),
        **given,
    )
    terms = terms_of(config, got)
    np.testing.assert_array_equal(terms[:, :slots], products << unit)
    assert not terms[:, slots:].any()
    np.testing.assert_array_equal(got["o_addends_c_term"] + got["o_addends_c_increment"], c << unit)


def test_all_integers_of_a_datapath_count_in_one_unit() -> None:
    """What the datapaths above are to show: slots that place products of floats higher, and such that do not."""
    shifts = {
        config.name: {slot.integer_shift for slot in Widths(config).slots if slot.floats} for config in CONFIGURATIONS
    }
    assert shifts["short"] == shifts["plain"] == {0}
    assert max(shifts["scaled"]) > 0


S4 = next(e for e in SCALED.elements if e.format.name == "s4")
PACKED = next(e for e in SCALED.elements if e.packed_float)


def group_inputs(rng: Random, low: int, high: int) -> tuple[NDArray, NDArray]:
    """Return products of one group in every slot, and signs beside them."""
    products = rng.integers(low, high, (COUNT, SCALED.slots), endpoint=True)
    products = np.where(rng.random(products.shape) < 0.2, rng.choice([low, high], products.shape), products)
    products[0], products[1] = low, high
    products[2:8] = 0
    signs = rng.integers(0, 2, products.shape)
    signs[0], signs[1] = 0, 1
    return products, signs


def test_nibbles_are_summed_in_groups(stages: Callable, rng: Random) -> None:
    """And stand nowhere else: neither in terms nor in scaled groups."""
    products, _ = group_inputs(rng, -56, 64)
    c = rng.integers(-(1 << 32), 1 << 32, COUNT)
    exponents = np.where(products[:, : Widths(SCALED).float_slots] == 0, 0, 2)
    got = stages(SCALED)(
        control=control(SCALED, S4),
        c=c,
        i_significands=products,
        i_exponents=exponents,
        i_e_max=rng.integers(-400, 400, COUNT),
        i_c_significand=rng.integers(0, 1 << 24, COUNT),
        scale_a=rng.integers(0, 1 << 32, COUNT),
    )
    assert 1 << GROUP_SUM_BITS - 1 > 16 * 64
    np.testing.assert_array_equal(got["o_addends_group_sums_0"], products.sum(axis=1))
    assert not terms_of(SCALED, got).any()
    assert not (got["o_addends_group_terms_0"] + got["o_addends_group_increments"]).any()
    np.testing.assert_array_equal(
        got["o_addends_c_term"] + got["o_addends_c_increment"], c << Widths(SCALED).integer_bits
    )


@pytest.mark.parametrize("scale", [ScaleCode.UE8M0, ScaleCode.UE4M3])
def test_a_scaled_group_is_a_term(stages: Callable, rng: Random, scale: ScaleCode) -> None:
    """Its exponent enters the maximum if it counts; it is truncated on its magnitude, and so is the accumulator."""
    halves = np.array([0, 1, 2, 3, 4, 6, 8, 12])
    products = halves[rng.integers(0, 8, (COUNT, SCALED.slots))] * halves[rng.integers(0, 8, (COUNT, SCALED.slots))]
    signs = rng.integers(0, 2, products.shape)
    products[:2], signs[:2] = 144, [[0], [1]]
    products[2:8] = 0
    products[8:20, 1::2], signs[8:20, 1::2] = products[8:20, ::2], 1 - signs[8:20, ::2]  # which cancel, and still count
    scales = rng.integers(0, 256, (2, COUNT))
    if scale is ScaleCode.UE4M3:
        scales[0, :40:3] = 0
        exponents, fractions_ = (scales & 127) >> 3, scales & 7
        significand = np.where(exponents == 0, fractions_, 8 + fractions_).prod(axis=0)
        exponent = (np.maximum(exponents, 1) - 7).sum(axis=0)
        nan = (scales & 127 == 127).any(axis=0)
    else:
        significand, exponent, nan = np.full(COUNT, 64), (scales - 127).sum(axis=0), (scales == 255).any(axis=0)
    kept = SCALED.block_alignment_bits
    counts = products.any(axis=1) & (significand != 0)
    before = np.clip(exponent + rng.integers(-60, 60, COUNT), -139, 127)  # of the accumulator, or e_zero
    before[:10] = -139
    c_significand, c_sign = rng.integers(0, 1 << 24, COUNT), rng.integers(0, 2, COUNT)
    below = rng.integers(0, 40, COUNT)
    headroom_offset = rng.integers(200, 300, COUNT)
    noise = rng.integers(0, 1 << 24, (2, COUNT)) << 8
    got = stages(SCALED)(
        control=control(SCALED, PACKED, scale=scale),
        c=rng.integers(0, 1 << 33, COUNT),
        i_significands=products,
        i_signs=signs,
        i_e_max=before,
        i_c_significand=c_significand,
        i_c_sign=c_sign,
        i_c_grid_exponent=before - below,
        i_headroom_offset=headroom_offset,
        scale_a=scales[0] | noise[0],
        scale_b=scales[1] | noise[1],
    )
    np.testing.assert_array_equal(got["o_nan"], nan)
    e_max = np.where(counts, np.maximum(before, exponent), before)
    total = np.where(signs, -products, products).sum(axis=1)
    # A quarter of the sum, of scales in 64ths: 8 bits below the point.
    magnitudes = truncated(np.abs(total) * significand, kept - 8 - (e_max - exponent))
    wanted = np.where(total < 0, -magnitudes, magnitudes)
    meaningful = ~nan & (e_max - exponent < 1 << ALIGNED_EXPONENT_BITS - 1) & (counts | (e_max >= exponent))
    term = got["o_addends_group_terms_0"] + got["o_addends_group_increments"]
    np.testing.assert_array_equal(term[meaningful], wanted[meaningful])
    assert not term[~counts & ~nan].any()
    c_magnitude = truncated(c_significand, kept - 23 - (e_max - before) - below)
    c_term = got["o_addends_c_term"] + got["o_addends_c_increment"]
    near = ~nan & (e_max - before + below < 1 << ALIGNED_EXPONENT_BITS - 1)
    np.testing.assert_array_equal(c_term[near], np.where(c_sign, -c_magnitude, c_magnitude)[near])
    np.testing.assert_array_equal(
        got["o_headroom"][~nan], (e_max + headroom_offset)[~nan] & (1 << ALIGNED_EXPONENT_BITS) - 1
    )
    assert not terms_of(SCALED, got).any()


@pytest.mark.parametrize("config", CONFIGURATIONS, ids=ids)
def test_what_is_handed_on(stages: Callable, rng: Random, config: CoreConfig) -> None:
    """Room is counted from the largest exponent; special values pass, a group's scales aside."""
    element = next(e for e in config.elements if not e.fixed_point)
    flags = rng.integers(0, 2, (3, COUNT))
    e_max, headroom_offset = rng.integers(-150, 400, COUNT), rng.integers(150, 400, COUNT)
    got = stages(config)(
        control=control(config, element, scale=ScaleCode.UE8M0 if config.scales else ScaleCode.NONE),
        i_nan=flags[0],
        i_positive_inf=flags[1],
        i_negative_inf=flags[2],
        i_e_max=e_max,
        i_headroom_offset=headroom_offset,
        scale_a=(1 << 32) - 1,
        scale_b=(1 << 32) - 1,
    )
    np.testing.assert_array_equal(got["o_headroom"], e_max + headroom_offset)
    for name, flag in zip(("nan", "positive_inf", "negative_inf"), flags, strict=True):
        np.testing.assert_array_equal(got[f"o_{name}"], flag)


def test_integers_alone_are_not_aligned(stages: Callable, rng: Random) -> None:
    config = CoreConfig(name="integers", formats=("u8", "s8"), step_bytes=4)
    assert [*aligned_signature(config).members] == ["addends"]
    assert [*products_signature(config).members] == ["significands"]
    products = rng.integers(-(255 * 128), 255 * 255, (COUNT, 4), endpoint=True)
    c = rng.integers(-(1 << 32), 1 << 32, COUNT)
    got = stages(config)(control=control(config, config.elements[1]), c=c, i_significands=products)
    np.testing.assert_array_equal(got["o_addends_terms"], products)
    np.testing.assert_array_equal(got["o_addends_c_term"], c)
    assert not got["o_addends_increments"].any()
