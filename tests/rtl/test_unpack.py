"""Unpacking: every code of every format against an independent decoder of it."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from amaranth.hdl import Cat, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from numpy.typing import NDArray
from sptc.rtl.config import Element
from sptc.rtl.unpack import (
    ACCUMULATOR_SIGNIFICAND_BITS,
    FormatDecoder,
    Unpack,
    UnpackAccumulator,
    raw_signature,
    significand_bits,
)

Random = np.random.Generator
#: Independent decoders: container of the type, the type, exponent bias and smallest exponent.
FLOATS: dict[str, tuple[str, Any, int, int]] = {
    "f16": ("u2", np.float16, 15, -14),
    "bf16": ("u2", ml_dtypes.bfloat16, 127, -126),
    "tf32": ("u4", np.float32, 127, -126),
    "e4m3": ("u1", ml_dtypes.float8_e4m3fn, 7, -6),
    "e5m2": ("u1", ml_dtypes.float8_e5m2, 15, -14),
    "e3m2": ("u1", ml_dtypes.float6_e3m2fn, 3, -2),
    "e2m3": ("u1", ml_dtypes.float6_e2m3fn, 1, 0),
    "e2m1": ("u1", ml_dtypes.float4_e2m1fn, 1, 0),
}
INTEGERS = {"s8": ("i1", 0), "u8": ("u1", 0), "s4": ("i1", 4), "u4": ("u1", 4)}
WORDS = (*FLOATS, *INTEGERS, "e2m1/4")
OPERAND_BITS = 128


class Operand(wiring.Component):
    """One slot of an operand behind the decoder of its format, as a unit has them."""

    def __init__(self, words: tuple[str, ...], slot: int) -> None:
        self.elements = [Element.parse(word) for word in words]
        self.slot = slot
        self.served = {c: e for c, e in enumerate(self.elements) if (slot + 1) * e.container_bits <= OPERAND_BITS}
        self.significand = significand_bits([*self.served.values()])
        raw = Out(raw_signature(self.significand))
        super().__init__({"operand": In(64).array(OPERAND_BITS // 64), "element": In(4), "raw": raw})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.decoder = decoder = FormatDecoder(self.elements)
        m.submodules.unpack = unpack = Unpack(self.slot, [*self.served.items()], self.significand, OPERAND_BITS)
        m.d.comb += [
            unpack.operand.eq(Cat(self.operand)),
            decoder.element.eq(self.element),
            unpack.element.eq(self.element),
            unpack.specials.eq(decoder.specials),
        ]
        wiring.connect(m, unpack.raw, wiring.flipped(self.raw))
        return m


def place(element: Element, slot: int, containers: NDArray[np.int64], rng: Random) -> NDArray[np.uint64]:
    """Return operands that are random but for the container of one slot, a row of words each."""
    words = rng.integers(0, 1 << 64, (len(containers), OPERAND_BITS // 64), dtype=np.uint64)
    word, shift = divmod(slot * element.container_bits, 64)
    mask = np.uint64(((1 << element.container_bits) - 1) << shift)
    words[:, word] = words[:, word] & ~mask | containers.astype(np.uint64) << np.uint64(shift)
    return words


def containers_of(element: Element, rng: Random) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return every code of a format, and containers that hold them with random bits around."""
    codes = np.arange(1 << element.format.bits)
    if element.container_bits > 16:  # half a million codes, once each
        return codes, codes << element.low_bit | rng.integers(0, 1 << element.low_bit, len(codes))
    codes = np.tile(codes, max(1, 512 // len(codes)))  # many kinds of neighbours for the short ones
    free = ((1 << element.container_bits) - 1) & ~(((1 << element.format.bits) - 1) << element.low_bit)
    return codes, codes << element.low_bit | rng.integers(0, 1 << element.container_bits, len(codes)) & free


def value_of(element: Element, codes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Read codes with an independent decoder."""
    name = element.format.name
    if name in INTEGERS:
        container, unused = INTEGERS[name]
        return ((codes << unused).astype("u1").view(container) >> unused).astype(float)
    container, dtype = FLOATS[name][:2]
    with np.errstate(invalid="ignore"):  # signalling NaNs become quiet
        return (codes << element.format.ignored_low_bits).astype(container).view(dtype).astype(float)


def check(element: Element, codes: NDArray[np.int64], got: dict[str, NDArray], width: int) -> None:
    value = value_of(element, codes)
    np.testing.assert_array_equal(got["raw_nan"], np.isnan(value))
    np.testing.assert_array_equal(got["raw_inf"], np.isinf(value))
    np.testing.assert_array_equal(got["raw_zero"], value == 0)
    special = ~np.isfinite(value)
    np.testing.assert_array_equal(got["raw_special"], special)
    ordinary = ~special & (value != 0)
    np.testing.assert_array_equal(got["raw_sign"][ordinary], value[ordinary] < 0)
    significand = got["raw_significand"].astype(float)
    if element.counts:
        unit = 2 if element.packed_float else 1
        np.testing.assert_array_equal(significand, unit * np.abs(value))
        return
    # The sign of zeros and infinities counts too: it decides which infinity a product is.
    np.testing.assert_array_equal(got["raw_sign"][~np.isnan(value)], np.signbit(value)[~np.isnan(value)])
    _, _, bias, smallest = FLOATS[element.format.name]
    exponent = got["raw_exponent"].astype(int) - bias
    expected = np.maximum(np.frexp(np.where(ordinary, value, 1))[1] - 1, smallest)
    np.testing.assert_array_equal(exponent[ordinary], expected[ordinary])
    read = np.ldexp(significand, exponent - (width - 1))
    np.testing.assert_array_equal(read[~special], np.abs(value)[~special])


@pytest.fixture(scope="module")
def first(compiled: Callable) -> tuple[Operand, Callable]:
    made = Operand(WORDS, 0)
    return made, compiled(made)


@pytest.fixture(scope="module")
def fourth(compiled: Callable) -> tuple[Operand, Callable]:
    made = Operand(WORDS, 3)
    return made, compiled(made)


@pytest.mark.parametrize("slot", ["first", "fourth"])
@pytest.mark.parametrize("code", range(len(WORDS)), ids=WORDS)
def test_every_code(request: pytest.FixtureRequest, rng: Random, slot: str, code: int) -> None:
    made, evaluate = request.getfixturevalue(slot)
    element = made.elements[code]
    codes, containers = containers_of(element, rng)
    got = evaluate(operand=place(element, made.slot, containers, rng), element=code)
    check(element, codes, got, made.significand)


@pytest.mark.parametrize("code", [13, 14, 15])
def test_an_unused_code_gives_zero(first: tuple[Operand, Callable], rng: Random, code: int) -> None:
    _, evaluate = first
    got = evaluate(operand=rng.integers(0, 1 << 64, (64, 2), dtype=np.uint64), element=code)
    assert got["raw_zero"].all()
    for name in ("significand", "sign", "inf", "nan"):
        assert not got[f"raw_{name}"].any()


@pytest.mark.parametrize(
    ("words", "slot", "width"),
    [
        (("f16", "e4m3", "s4", "u4"), 20, 4),  # slots beyond the wide formats are narrow: nothing but 4-bit ones here
        (("f16", "e4m3", "e5m2", "s8"), 11, 8),
        (("e4m3", "e5m2"), 15, 4),
        (("e5m2", "e2m1"), 2, 3),
        (("e3m2", "e2m3", "e2m1"), 5, 4),
        (("e2m1",), 9, 2),
        (("s8", "u8", "s4", "e2m1/4"), 1, 8),
        (("s4", "u4", "e2m1/4"), 31, 4),
        (("bf16", "e5m2"), 4, 8),
    ],
)
def test_narrow_slots(simulate: Callable, rng: Random, words: tuple[str, ...], slot: int, width: int) -> None:
    """A slot's width is that of the widest format it serves; one without floats has no exponent."""
    made = Operand(words, slot)
    assert made.significand == width
    for code, element in made.served.items():
        if element.format.bits > 8:
            codes = rng.integers(0, 1 << element.format.bits, 512)
            containers = codes << element.low_bit
        else:
            codes, containers = containers_of(element, rng)
        got = simulate(made, operand=place(element, slot, containers, rng), element=code)
        check(element, codes, got, width)


def check_accumulator(got: dict[str, NDArray], value: NDArray[np.float64], smallest: int) -> None:
    np.testing.assert_array_equal(got["nan"], np.isnan(value))
    np.testing.assert_array_equal(got["inf"], np.isinf(value))
    np.testing.assert_array_equal(got["zero"], value == 0)
    meaningful = ~np.isnan(value)
    np.testing.assert_array_equal(got["sign"][meaningful], np.signbit(value[meaningful]))
    finite = np.isfinite(value)
    assert not got["significand"][~finite].any()
    ordinary = finite & (value != 0)
    exponent = np.maximum(np.frexp(np.where(ordinary, value, 1))[1] - 1, smallest)
    np.testing.assert_array_equal(got["exponent"][ordinary], exponent[ordinary])
    assert (got["exponent"][finite & (value == 0)] == smallest).all()
    read = np.ldexp(got["significand"].astype(float), got["exponent"].astype(int) - (ACCUMULATOR_SIGNIFICAND_BITS - 1))
    np.testing.assert_array_equal(read[finite], np.abs(value[finite]))


def test_accumulators(compiled: Callable, rng: Random) -> None:
    """f16: every code, with noise above it; f32: both ends of every exponent, and random codes."""
    evaluate = compiled(UnpackAccumulator())
    codes = np.arange(1 << 16)
    got = evaluate(word=codes | rng.integers(0, 1 << 16, 1 << 16) << 16, half=1)
    with np.errstate(invalid="ignore"):
        check_accumulator(got, codes.astype("u2").view(np.float16).astype(float), -14)

    fractions = np.array([0, 1, 2, 0x3FFFFF, 0x400000, 0x400001, 0x7FFFFE, 0x7FFFFF])
    directed = (np.arange(512)[:, None] << 23 | fractions).ravel()
    codes = np.concatenate([directed, rng.integers(0, 1 << 32, 20_000)])
    got = evaluate(word=codes, half=0)
    with np.errstate(invalid="ignore"):
        check_accumulator(got, codes.astype("u4").view(np.float32).astype(float), -126)
