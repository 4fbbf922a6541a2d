"""Multiplication: every pair of significands, and every pair of 8-bit operands through a whole lane."""

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from numpy.typing import NDArray
from sptc.rtl.cells.raw import product_signature
from sptc.rtl.cells.slot_multiplier import SlotMultiplier
from sptc.rtl.config import CoreConfig
from sptc.rtl.slots import Slot
from sptc.rtl.unpack import FormatDecoder, Unpack

BYTES = np.arange(256, dtype=np.uint8)
#: Values of every byte by an independent decoder, and the exponent bias of the format.
READERS: dict[str, tuple[Callable[[NDArray[np.uint8]], Any], int]] = {
    "e4m3": (lambda codes: codes.view(ml_dtypes.float8_e4m3fn), 7),
    "e5m2": (lambda codes: codes.view(ml_dtypes.float8_e5m2), 15),
    "e3m2": (lambda codes: (codes & 63).view(ml_dtypes.float6_e3m2fn), 3),
    "e2m3": (lambda codes: (codes & 63).view(ml_dtypes.float6_e2m3fn), 1),
    "e2m1": (lambda codes: (codes >> 2 & 15).view(ml_dtypes.float4_e2m1fn), 1),
    "s8": (lambda codes: codes.view(np.int8), 0),
    "u8": (lambda codes: codes, 0),
}
WORDS = tuple(READERS)
FLOATS, INTEGERS = WORDS[:5], WORDS[5:]
SMALLEST = {"e4m3": -6, "e5m2": -14, "e3m2": -2, "e2m3": 0, "e2m1": 0}


class Lane(wiring.Component):
    """A product slot of 8-bit elements: unpack, unpack, multiply."""

    def __init__(self, config: CoreConfig) -> None:
        self.slot = Slot(config, 0)
        ports: dict[str, wiring.Member] = {name: In(8) for name in ("a", "b")}
        ports |= {f"element_{name}": In(4) for name in ("a", "b")}
        super().__init__({**ports, "product": Out(product_signature(self.slot.significand_bits))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.multiply = multiply = SlotMultiplier(self.slot.significand_bits, self.slot.factor)
        for name in ("a", "b"):
            m.submodules[f"format_{name}"] = decoder = FormatDecoder(self.slot.config)
            m.submodules[name] = unpack = Unpack(self.slot, name)
            m.d.comb += [
                decoder.element.eq(getattr(self, f"element_{name}")),
                unpack.operand.eq(getattr(self, name)),
                unpack.element.eq(getattr(self, f"element_{name}")),
                unpack.traits.eq(decoder.traits),
            ]
            wiring.connect(m, unpack.raw, getattr(multiply, name))
        wiring.connect(m, multiply.product, wiring.flipped(self.product))
        return m


#: With bits kept below the largest exponent that leave the points of A and B in one place, and in different ones.
KEPT = (24, 13)


def config_of(bits: int) -> CoreConfig:
    return CoreConfig(name="test", formats=WORDS, step_bytes=4, fp8_alignment_bits=bits)


@pytest.fixture(scope="module", params=KEPT)
def lane(request: pytest.FixtureRequest, compiled: Callable) -> tuple[Slot, Callable]:
    made = Lane(config_of(request.param))
    return made.slot, compiled(made)


def exponent_of(values: NDArray[np.float64], word: str) -> NDArray[np.int64]:
    """Return the exponents of values, those of subnormals at the format's minimum."""
    return np.maximum(np.frexp(np.where(np.isfinite(values) & (values != 0), values, 1))[1] - 1, SMALLEST[word])


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize(("a_word", "b_word"), [*product(FLOATS, repeat=2), *product(INTEGERS, repeat=2)])
def test_every_pair_of_bytes(lane: tuple[Slot, Callable], a_word: str, b_word: str) -> None:
    slot, evaluate = lane
    a, b = BYTES.repeat(256), np.tile(BYTES, 256)
    got = evaluate(a=a, b=b, element_a=WORDS.index(a_word), element_b=WORDS.index(b_word))
    a_values, b_values = READERS[a_word][0](a).astype(float), READERS[b_word][0](b).astype(float)
    with np.errstate(invalid="ignore"):
        exact = a_values * b_values
    np.testing.assert_array_equal(got["product_nan"], np.isnan(exact))
    ordered = ~np.isnan(exact)
    np.testing.assert_array_equal(got["product_inf"][ordered], np.isinf(exact[ordered]))
    finite = np.isfinite(exact)
    np.testing.assert_array_equal(got["product_zero"][finite], exact[finite] == 0)
    special = ~(np.isfinite(a_values) & np.isfinite(b_values))
    np.testing.assert_array_equal(got["product_special"], special)
    significand = got["product_significand"].astype(float)
    if a_word in INTEGERS:
        np.testing.assert_array_equal(significand, exact)
        assert not got["product_sign"].any()
        assert (got["product_exponent"] == 2).all()
        return
    np.testing.assert_array_equal(got["product_sign"][ordered], np.signbit(exact[ordered]))
    biases = READERS[a_word][1] + READERS[b_word][1]
    exponent = got["product_exponent"].astype(int) - biases
    counts = finite & (exact != 0)
    total = exponent_of(a_values, a_word) + exponent_of(b_values, b_word)
    np.testing.assert_array_equal(exponent[counts], total[counts])
    elements = dict(zip(WORDS, slot.elements, strict=True))
    point = slot.point(elements[a_word], "a") + slot.point(elements[b_word], "b")
    read = np.ldexp(significand, exponent - point)
    np.testing.assert_array_equal(read[finite], np.abs(exact[finite]))


def test_points_of_the_lane() -> None:
    """What the pairs above are to show: products with the point in one place, though not those of the operands."""
    slots = [Slot(config_of(bits), 0) for bits in KEPT]
    points = [{(slot.point(e, "a"), slot.point(e, "b")) for e in slot.floats} for slot in slots]
    assert points == [{(7, 7)}, {(6, 7)}]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("bits", "back_end"), [(1, "simulate"), (2, "simulate"), (4, "simulate"), (11, "compiled")])
def test_every_pair_of_significands(request: pytest.FixtureRequest, bits: int, back_end: str) -> None:
    """All 2**22 pairs at the widest, of either sign; the lane above holds all of eight bits."""
    use = request.getfixturevalue(back_end)
    made = SlotMultiplier(bits)
    evaluate = use(made) if back_end == "compiled" else partial(use, made)
    count = 1 << bits
    a, b = np.arange(count).repeat(count), np.tile(np.arange(count), count)
    for a_sign, b_sign in ((1, 1), (-1, 1), (1, -1), (-1, -1)):
        got = evaluate(a_significand=a_sign * a, b_significand=b_sign * b)["product_significand"]
        assert (got == a_sign * b_sign * a * b).all()


def test_exponents_and_signs(simulate: Callable, rng: np.random.Generator) -> None:
    """Exponents add without a loss whatever the significands; signs by exclusive or."""
    a, b = np.concatenate([rng.integers(0, 256, (2, 500)), [[0, 255, 255, 0], [0, 255, 0, 255]]], axis=1)
    a_sign, b_sign = rng.integers(0, 2, (2, len(a)))
    fraction = rng.integers(0, 1 << 11, len(a))
    got = simulate(
        SlotMultiplier(11),
        a_exponent=a,
        b_exponent=b,
        a_sign=a_sign,
        b_sign=b_sign,
        a_significand=fraction,
        b_significand=1,
    )
    np.testing.assert_array_equal(got["product_exponent"], a + b)
    np.testing.assert_array_equal(got["product_sign"], a_sign ^ b_sign)
    np.testing.assert_array_equal(got["product_significand"], fraction)


def test_what_a_product_of_specials_is(simulate: Callable) -> None:
    """Every pair of zero, ordinary, Inf and NaN."""
    classes = {"zero": 0.0, "one": 1.0, "inf": np.inf, "nan": np.nan}
    pairs = [*product(classes, repeat=2)]
    inputs = {
        f"{name}_{flag}": [pair[i] == flag for pair in pairs]
        for i, name in enumerate("ab")
        for flag in ("zero", "inf", "nan")
    }
    for i, name in enumerate("ab"):
        inputs[f"{name}_special"] = [pair[i] in ("inf", "nan") for pair in pairs]
        inputs[f"{name}_significand"] = [pair[i] == "one" for pair in pairs]
    got = simulate(SlotMultiplier(4), **{name: np.array(column, int) for name, column in inputs.items()})
    with np.errstate(invalid="ignore"):
        expected = np.array([classes[a] * classes[b] for a, b in pairs])
    np.testing.assert_array_equal(got["product_nan"], np.isnan(expected))
    np.testing.assert_array_equal(got["product_special"], ~np.isfinite(expected))
    ordered = ~np.isnan(expected)
    np.testing.assert_array_equal(got["product_inf"][ordered], np.isinf(expected[ordered]))
    np.testing.assert_array_equal(got["product_zero"][ordered], expected[ordered] == 0)
