"""The multiply stage: exact products of every slot, the exponent that all are aligned to, and special values."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from sptc.isa.numerics import zero_exponent_for
from sptc.rtl.config import BLOCK_SCALES, CoreConfig, Element
from sptc.rtl.multiply import MultiplyStage, products_signature
from sptc.rtl.order import selected_byte
from sptc.rtl.round import ResultCode
from sptc.rtl.scale import ScaleCode
from sptc.rtl.slots import Slot
from sptc.rtl.step import control_layout
from sptc.rtl.widths import Widths
from sptc.tests.rtl.registers import check_delayed

Random = np.random.Generator
#: A unit of the measured architecture in little, one of the modelled ones, and one without the formats that differ.
SHORT = CoreConfig(
    name="short", formats=("f16", "bf16", "tf32", "e4m3", "e5m2", "s8", "u8"), step_bytes=8, fp8_alignment_bits=13
)
SCALED = CoreConfig(
    name="scaled", formats=("e4m3", "f16", "s8", "e2m1", "e3m2", "e2m1/4", "s4"), scales=BLOCK_SCALES, step_bytes=8
)
PLAIN = CoreConfig(name="plain", formats=("f16", "s8"), step_bytes=8, alignment_bits=24, fp8_alignment_bits=24)
CONFIGURATIONS = {config.name: config for config in (SHORT, SCALED, PLAIN)}
FLOATS = [
    (config, element) for config in CONFIGURATIONS.values() for element in config.elements if not element.fixed_point
]
INTEGERS = [
    (config, element) for config in CONFIGURATIONS.values() for element in config.elements if element.format.is_integer
]
#: Independent decoders: container of the type, the type, and how far the code is from the top of the container.
DTYPES: dict[str, tuple[str, Any]] = {
    "f16": ("u2", np.float16),
    "bf16": ("u2", ml_dtypes.bfloat16),
    "tf32": ("u4", np.float32),
    "e4m3": ("u1", ml_dtypes.float8_e4m3fn),
    "e5m2": ("u1", ml_dtypes.float8_e5m2),
    "e3m2": ("u1", ml_dtypes.float6_e3m2fn),
    "e2m1": ("u1", ml_dtypes.float4_e2m1fn),
    "s8": ("u1", np.int8),
    "u8": ("u1", np.uint8),
}
ORDINARY_C = 0x40200000  # 2.5
NAN, INF = 0x7FC00000, 0x7F800000


def ids(pair: object) -> str:
    return pair.name if isinstance(pair, CoreConfig) else str(pair)


def values_of(element: Element, codes: NDArray[np.int64]) -> NDArray[np.float64]:
    if element.format.name == "s4":
        return ((codes << 4).astype("u1").view(np.int8) >> 4).astype(float)
    container, dtype = DTYPES[element.format.name]
    with np.errstate(invalid="ignore"):
        return (codes << element.format.ignored_low_bits).astype(container).view(dtype).astype(float)


def control(config: CoreConfig, a: Element, b: Element, **fields: object) -> int:
    codes = {"a": config.elements.index(a), "b": config.elements.index(b)}
    return int(control_layout().const({**codes, **fields}).as_value().value)


def operand(config: CoreConfig, element: Element, side: str, codes: NDArray[np.int64]) -> NDArray:
    """Return rows of codes, one for each slot, as an operand: of B in the order in which the selection leaves it."""
    bits = element.container_bits
    words = [sum(int(code) << element.low_bit + bits * slot for slot, code in enumerate(row)) for row in codes]
    if side == "a" or bits > 8:
        return np.array(words, object)
    places = [selected_byte(config, byte, wide=False) for byte in range(config.step_bytes)]
    moved = [sum((word >> 8 * byte & 0xFF) << 8 * place for byte, place in enumerate(places)) for word in words]
    return np.array(moved, object)


def exponents_of(element: Element, values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return biased exponents, those of zeros and subnormals at the format's least."""
    fmt = element.format
    plain = np.where(np.isfinite(values) & (values != 0), values, 1.0)
    least = 1 - fmt.bias
    return np.where(values == 0, least, np.maximum(np.frexp(plain)[1] - 1, least)) + fmt.bias


@pytest.fixture(scope="module")
def stages(compiled: Callable) -> Callable[[CoreConfig], Callable]:
    """Compile the multiply stage of a datapath, once each."""
    return cache(lambda config: compiled(MultiplyStage(config)))


class Stage:
    """Steps of one pair of formats, with what exact arithmetic says of them."""

    def __init__(
        self, config: CoreConfig, a: Element, b: Element, a_codes: NDArray[np.int64], b_codes: NDArray[np.int64]
    ) -> None:
        self.config, self.a, self.b = config, a, b
        self.codes = a_codes, b_codes
        self.values = values_of(a, a_codes), values_of(b, b_codes)
        with np.errstate(invalid="ignore"):
            self.products = self.values[0] * self.values[1]
        self.exponents = exponents_of(a, self.values[0]) + exponents_of(b, self.values[1])
        self.count = len(a_codes)

    def run(self, stages: Callable, *, c: object = 0, scales: Sequence[object] = (127, 127), **fields: object) -> dict:
        """Return what the stage hands on."""
        got: dict[str, NDArray] = stages(self.config)(
            control=np.full(self.count, control(self.config, self.a, self.b, **fields)),
            a=operand(self.config, self.a, "a", self.codes[0]),
            b=operand(self.config, self.b, "b", self.codes[1]),
            c=c,
            scale_a=scales[0],
            scale_b=scales[1],
        )
        return got

    @property
    def biases(self) -> int:
        return self.a.format.bias + self.b.format.bias

    def counting(self) -> NDArray[np.int64]:
        """Return the biased exponents of products that count, -2000 for those of zeros."""
        return np.where(self.products == 0, -2000, self.exponents)


def drawn(config: CoreConfig, a: Element, b: Element, rng: Random, count: int, *, finite: bool = False) -> Stage:
    """Draw any codes, zeros and ends among them."""
    codes = []
    for element in (a, b):
        fmt, shape = element.format, (count, config.slots_of(element))
        some = rng.integers(0, 1 << fmt.bits, shape)
        some = np.where(rng.random(shape) < 0.15, rng.choice([0, (1 << fmt.bits) - 1, 1 << fmt.bits - 1], shape), some)
        if finite:
            some = np.where(np.isfinite(values_of(element, some)), some, 0)
        codes.append(some)
    return Stage(config, a, b, *codes)


def partners(config: CoreConfig, element: Element) -> list[Element]:
    """Return the formats that one may be multiplied by: of floats those of 8 bits in any pair, of integers all."""
    alike = [
        e
        for e in config.elements
        if (e.container_bits, e.format.is_integer) == (element.container_bits, element.format.is_integer)
    ]
    return alike if element.container_bits <= 8 and not element.packed_float else [element]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("config", "element"), FLOATS, ids=ids)
def test_products_of_floats_are_exact(stages: Callable, rng: Random, config: CoreConfig, element: Element) -> None:
    """Sign, exponent and significand of every slot; zeros have the exponent 0, and so has what the format has not."""
    for other in partners(config, element):
        step = drawn(config, element, other, rng, 60)
        got = step.run(stages)
        slots = config.slots_of(element)
        ordered = ~np.isnan(step.products)
        np.testing.assert_array_equal(got["o_signs"][:, :slots][ordered], np.signbit(step.products)[ordered])
        finite = np.isfinite(step.products)
        exponents = got["o_exponents"][:, :slots]
        np.testing.assert_array_equal(exponents[finite], np.where(step.products == 0, 0, step.exponents)[finite])
        for index in range(slots):
            slot, where = Slot(config, index), finite[:, index]
            point = slot.point(element, "a") + slot.point(other, "b")
            read = np.ldexp(
                got["o_significands"][:, index].astype(float), step.exponents[:, index] - step.biases - point
            )
            np.testing.assert_array_equal(read[where], np.abs(step.products[:, index])[where])
        assert not got["o_significands"][:, slots:].any()
        assert not got["o_exponents"][:, slots:].any()


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("config", "element"), INTEGERS, ids=ids)
def test_products_of_integers_are_exact(stages: Callable, rng: Random, config: CoreConfig, element: Element) -> None:
    """With their sign in them; ends of the range among them, the least by the least above all."""
    for other in partners(config, element):
        step = drawn(config, element, other, rng, 60)
        top, slots = 1 << element.format.bits - 1, config.slots_of(element)
        step = Stage(config, element, other, *(np.append(c, [[top] * slots, [top - 1] * slots], 0) for c in step.codes))
        got = step.run(stages, result=ResultCode.S32)
        significands = got["o_significands"]
        assert (significands[:, :slots] == step.products).all()
        assert not significands[:, slots:].any()
        assert not got["o_signs"].any()
        shared = got["o_exponents"][:, :slots]
        assert (shared == np.where(step.products == 0, 0, 2)[:, : shared.shape[1]]).all()


def results_of(config: CoreConfig) -> list[ResultCode]:
    return sorted(Widths(config).results - {ResultCode.S32}, key=lambda code: int(code.value))


def kept_of(config: CoreConfig, element: Element) -> int:
    return config.fp8_alignment_bits if element.container_bits == 8 else config.alignment_bits


def floor_of(config: CoreConfig, result: ResultCode) -> int:
    return zero_exponent_for(config.alignment_bits, half_result=result is ResultCode.F16)


def accumulators(result: ResultCode, rng: Random, count: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return finite accumulators of any exponent, zeros and subnormals among them, with noise above an f16."""
    if result is ResultCode.F16:
        codes = rng.choice([0, 0x8000, 1, 0x83FF, 0x7BFF, *rng.integers(0, 0x7C00, 30).tolist()], count)
        return codes | rng.integers(0, 1 << 16, count) << 16, codes.astype("u2").view(np.float16).astype(float)
    codes = rng.choice([0, 1 << 31, 1, 0x807FFFFF, 0x7F7FFFFF, *rng.integers(0, 0x7F800000, 30).tolist()], count)
    return codes, codes.astype("u4").view(np.float32).astype(float)


def exponents_of_c(result: ResultCode, values: NDArray[np.float64]) -> NDArray[np.int64]:
    least = -14 if result is ResultCode.F16 else -126
    return np.maximum(np.frexp(np.where(values == 0, 1.0, values))[1] - 1, least)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("config", "element"), FLOATS, ids=ids)
def test_the_largest_exponent(stages: Callable, rng: Random, config: CoreConfig, element: Element) -> None:
    """Of products that are not zero, of an accumulator that is not, and of e_zero: each decides in turn."""
    decided = set()
    for result in results_of(config):
        step = drawn(config, element, element, rng, 80, finite=True)
        # Nothing but tiny products, or zeros times large numbers, whose exponents must not enter; of these without C.
        fmt = element.format
        step.codes[0][:20] = step.codes[1][:20] = 1 << fmt.fraction_bits
        step.codes[0][20:40], step.codes[1][20:40] = 0, (1 << fmt.exponent_bits) - 2 << fmt.fraction_bits
        step = Stage(config, element, element, *step.codes)
        codes, values = accumulators(result, rng, step.count)
        codes[20:30], values[20:30] = 0, 0
        got = step.run(stages, c=codes, result=result)
        of_products = step.counting().max(axis=1) - step.biases
        of_c = np.where(values == 0, -2000, exponents_of_c(result, values))
        floor = np.full_like(of_c, floor_of(config, result))
        wanted = np.maximum(np.maximum(of_products, of_c), floor)
        np.testing.assert_array_equal(got["o_e_max"] - step.biases, wanted)
        decided |= {("product", "c", "floor")[place] for place in np.argmax([of_products, of_c, floor], 0)}
        assert (step.exponents[20:30] - step.biases > wanted[20:30, None]).all()
    assert decided == {"product", "c", "floor"}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("config", CONFIGURATIONS.values(), ids=CONFIGURATIONS)
def test_without_any_term_e_zero_is_the_largest(stages: Callable, config: CoreConfig) -> None:
    """Also where zeros meet the largest numbers and the accumulator is a negative zero."""
    element = next(e for e in config.elements if not e.fixed_point)
    shape = (2, config.slots_of(element))
    huge = ((1 << element.format.bits - 1) - 1) & ~((1 << element.format.fraction_bits) - 1 & ~1)
    huge = huge if np.isfinite(values_of(element, np.array([huge])))[0] else huge - (2 << element.format.fraction_bits)
    for zero_side in (0, 1):
        codes = [np.zeros(shape, int), np.full(shape, huge)]
        step = Stage(config, element, element, *codes[:: -1 if zero_side else 1])
        assert np.isfinite(step.products).all()
        for result in results_of(config):
            got = step.run(stages, c=[0, 0x8000 if result is ResultCode.F16 else 1 << 31], result=result)
            assert set(got["o_e_max"] - step.biases) == {floor_of(config, result)}


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(("config", "element"), FLOATS, ids=ids)
def test_what_stands_for_the_accumulator(stages: Callable, rng: Random, config: CoreConfig, element: Element) -> None:
    """Its sign and significand, and the exponent below which the running format drops what another one keeps."""
    widths = Widths(config)
    dropped = widths.grid_bits - kept_of(config, element)
    for result in results_of(config):
        step = drawn(config, element, element, rng, 60)
        codes, values = accumulators(result, rng, step.count)
        got = step.run(stages, c=codes, result=result)
        np.testing.assert_array_equal(got["o_c_sign"], np.signbit(values))
        exponent = got["o_c_grid_exponent"] + dropped - step.biases
        read = np.ldexp(got["o_c_significand"].astype(float), exponent - 23)
        np.testing.assert_array_equal(read, np.abs(values))
        np.testing.assert_array_equal(exponent[values != 0], exponents_of_c(result, values)[values != 0])


@pytest.mark.parametrize(("config", "element"), FLOATS, ids=ids)
def test_room(stages: Callable, rng: Random, config: CoreConfig, element: Element) -> None:
    """From the weight of the sum's sign bit to that of the smallest normal number of the result."""
    widths = Widths(config)
    for result in results_of(config):
        step = drawn(config, element, element, rng, 30, finite=True)
        got = step.run(stages, c=accumulators(result, rng, step.count)[0], result=result)
        e_max = got["o_e_max"] - step.biases
        sign_bit = e_max - kept_of(config, element) + widths.total_bits - 1
        smallest = -14 if result is ResultCode.F16 else -126
        np.testing.assert_array_equal(got["o_e_max"] + got["o_headroom_offset"], sign_bit - smallest)
        assert (sign_bit >= smallest).all()


def specials(element: Element) -> dict[str, int]:
    """Return codes of zero, one and the special values that a format has."""
    fmt = element.format
    found = {"zero": 0, "one": fmt.bias << fmt.fraction_bits}
    for code in range(1 << fmt.bits - 1) if fmt.bits <= 16 else ():
        value = float(values_of(element, np.array([code]))[0])
        if np.isinf(value):
            found["inf"] = code
        elif np.isnan(value):
            found["nan"] = code
    return found


SPECIAL_FLOATS = [pair for pair in FLOATS if pair[1].format.name in ("f16", "e4m3", "e5m2", "bf16", "e2m1")]


@pytest.mark.parametrize(("config", "element"), SPECIAL_FLOATS, ids=ids)
def test_special_products(stages: Callable, config: CoreConfig, element: Element) -> None:
    """Each pair of zero, one, Inf and NaN with either sign, at every slot in turn, among ones."""
    codes, sign = specials(element), 1 << element.format.bits - 1
    pairs = [
        (x | s * sign, y | t * sign) for x, y in product(codes.values(), repeat=2) for s, t in product((0, 1), repeat=2)
    ]
    slots = config.slots_of(element)
    rows = [(pair, place % slots) for place, pair in enumerate(pairs)] + [
        ((codes.get(name, 0), codes["one"] | s * sign), place)
        for name in ("inf", "nan") for s in (0, 1) for place in range(slots)
    ]  # fmt: skip
    a = np.full((len(rows), slots), codes["one"])
    b = a.copy()
    for row, (pair, place) in enumerate(rows):
        a[row, place], b[row, place] = pair
    step = Stage(config, element, element, a, b)
    got = step.run(stages, c=ORDINARY_C)
    nan = np.isnan(step.products).any(axis=1)
    np.testing.assert_array_equal(got["o_nan"], nan)
    for name, infinity in (("positive", np.inf), ("negative", -np.inf)):
        np.testing.assert_array_equal(got[f"o_{name}_inf"][~nan], (step.products == infinity).any(axis=1)[~nan])
    assert nan.any() == ("nan" in codes)
    found = [bool(got[f"o_{name}_inf"][~nan].any()) for name in ("positive", "negative")]
    assert found == ["inf" in codes] * 2


@pytest.mark.parametrize("config", CONFIGURATIONS.values(), ids=CONFIGURATIONS)
def test_special_accumulators(stages: Callable, rng: Random, config: CoreConfig) -> None:
    """Of f32 and f16; a word that is special as an f32 need not be as an f16."""
    element = next(e for e in config.elements if e.format.name == "f16")
    words = {
        ResultCode.F32: {NAN: "nan", NAN | 1 << 31: "nan", INF: "+", INF | 1 << 31: "-", INF | 1: "nan", 0x7C00: ""},
        ResultCode.F16: {0x7C00: "+", 0xFC00: "-", 0x7E00: "nan", 0xFC01: "nan", INF: "", NAN << 1 | 0x3C00: ""},
    }
    for result, meaning in words.items():
        shape = (len(meaning), config.slots_of(element))
        step = Stage(config, element, element, *rng.integers(0x3000, 0x4000, (2, *shape)))
        got = step.run(stages, c=[*meaning], result=result)
        for name, flag in (("nan", "nan"), ("positive_inf", "+"), ("negative_inf", "-")):
            assert got[f"o_{name}"].tolist() == [kind == flag for kind in meaning.values()]


def test_block_scales_enter_the_exponents(stages: Callable, rng: Random) -> None:
    """Of e_zero and the accumulator, which are seen from the products; a NaN scale makes the result NaN."""
    element = next(e for e in SCALED.elements if e.format.name == "e4m3")
    count = 120
    step = drawn(SCALED, element, element, rng, count, finite=True)
    codes, values = accumulators(ResultCode.F32, rng, count)
    scales = rng.integers(90, 160, (2, count))
    scales[0, :5], scales[1, 5:10], scales[:, 10:12] = 255, 255, [[0], [254]]
    got = step.run(stages, c=codes, scales=[*scales], scale=ScaleCode.UE8M0)
    nan = (scales == 255).any(axis=0)
    np.testing.assert_array_equal(got["o_nan"], nan)
    scale = scales.sum(axis=0) - 2 * 127
    of_products = step.counting().max(axis=1) - step.biases + scale
    of_c = np.where(values == 0, -2000, exponents_of_c(ResultCode.F32, values))
    wanted = np.maximum(np.maximum(of_products, of_c), floor_of(SCALED, ResultCode.F32))
    true = got["o_e_max"] - step.biases + scale
    np.testing.assert_array_equal(true[~nan], wanted[~nan])
    sign_bit = wanted - SCALED.alignment_bits + Widths(SCALED).total_bits - 1
    np.testing.assert_array_equal((got["o_e_max"] + got["o_headroom_offset"])[~nan], (sign_bit + 126)[~nan])
    place = got["o_c_grid_exponent"] - step.biases + scale + Widths(SCALED).grid_bits - SCALED.alignment_bits
    np.testing.assert_array_equal(
        place[~nan & (values != 0)], exponents_of_c(ResultCode.F32, values)[~nan & (values != 0)]
    )
    # Scales that are not asked for change nothing.
    unscaled = step.run(stages, c=codes, scales=[*scales])
    assert not unscaled["o_nan"].any()
    np.testing.assert_array_equal(
        unscaled["o_e_max"] - step.biases,
        np.maximum(np.maximum(of_products - scale, of_c), floor_of(SCALED, ResultCode.F32)),
    )


@pytest.mark.parametrize("scale", [ScaleCode.UE8M0, ScaleCode.UE4M3])
def test_packed_products_have_no_exponent(stages: Callable, rng: Random, scale: ScaleCode) -> None:
    """They are integers of halves, with signs of their own; groups have exponents, which scales enter later."""
    packed = next(e for e in SCALED.elements if e.packed_float)
    count, slots = 60, SCALED.slots_of(packed)
    a, b = rng.integers(0, 16, (2, count, slots))
    codes, values = accumulators(ResultCode.F32, rng, count)
    got = stages(SCALED)(
        control=np.full(count, control(SCALED, packed, packed, scale=scale)),
        a=operand(SCALED, packed, "a", a),
        b=operand(SCALED, packed, "b", b),
        c=codes,
        scale_a=255,
        scale_b=rng.integers(0, 256, count),
    )
    halves = np.array([0, 1, 2, 3, 4, 6, 8, 12])
    np.testing.assert_array_equal(got["o_significands"], halves[a & 7] * halves[b & 7])
    np.testing.assert_array_equal(got["o_signs"], (a ^ b) >> 3)
    assert not got["o_exponents"].any()
    of_c = np.where(values == 0, -2000, exponents_of_c(ResultCode.F32, values))
    floor = zero_exponent_for(SCALED.block_alignment_bits, grouped=True)
    np.testing.assert_array_equal(got["o_e_max"], np.maximum(of_c, floor))
    headroom = got["o_e_max"] + got["o_headroom_offset"]
    assert (headroom == got["o_e_max"] - SCALED.block_alignment_bits + Widths(SCALED).total_bits - 1 + 126).all()
    for name in ("nan", "positive_inf", "negative_inf"):
        assert not got[f"o_{name}"].any()


def test_integers_alone_have_no_exponents(stages: Callable, rng: Random) -> None:
    config = CoreConfig(name="integers", formats=("u8", "s8"), step_bytes=4)
    assert [*products_signature(config).members] == ["significands"]
    u8, s8 = config.elements
    step = drawn(config, u8, s8, rng, 40)
    got = step.run(stages, result=ResultCode.S32)
    assert (got["o_significands"] == step.products).all()


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_behind_a_register(rng: Random, name: str) -> None:
    """All that is handed on, with e_max of the same products."""
    made = [MultiplyStage(replace(CONFIGURATIONS[name], cuts=cuts)) for cuts in (("product",), ())]
    check_delayed(*made, 1, rng)
