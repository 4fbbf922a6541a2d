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
from sptc.rtl.cells.raw import raw_signature
from sptc.rtl.config import CoreConfig, Element
from sptc.rtl.order import selected_byte
from sptc.rtl.slots import Slot
from sptc.rtl.unpack import ACCUMULATOR_SIGNIFICAND_BITS, FormatDecoder, Unpack, UnpackAccumulator

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


def config_of(words: tuple[str, ...], alignment_bits: int, fp8_alignment_bits: int) -> CoreConfig:
    return CoreConfig(
        name="test",
        formats=words,
        scales=("ue8m0",) if "e2m1/4" in words else (),
        step_bytes=OPERAND_BITS // 8,
        alignment_bits=alignment_bits,
        fp8_alignment_bits=fp8_alignment_bits,
        block_alignment_bits=max(35, alignment_bits),
    )


class Operand(wiring.Component):
    """One slot of an operand behind the decoder of its format, as a unit has them."""

    def __init__(self, config: CoreConfig, index: int, side: str) -> None:
        self.slot = Slot(config, index)
        self.side = side
        raw = Out(raw_signature(self.slot.significand_bits))
        super().__init__({"operand": In(64).array(OPERAND_BITS // 64), "element": In(4), "raw": raw})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.decoder = decoder = FormatDecoder(self.slot.config)
        m.submodules.unpack = unpack = Unpack(self.slot, self.side)
        m.d.comb += [
            unpack.operand.eq(Cat(self.operand)),
            decoder.element.eq(self.element),
            unpack.element.eq(self.element),
            unpack.traits.eq(decoder.traits),
        ]
        wiring.connect(m, unpack.raw, wiring.flipped(self.raw))
        return m


def first_bit(made: Operand, element: Element) -> int:
    """Return where the slot's container begins; that of a narrow element of B is a byte that the selection moves."""
    first = made.slot.index * element.container_bits
    if made.side == "b" and element.container_bits <= 8:
        return 8 * selected_byte(made.slot.config, first // 8, wide=False) + first % 8
    return first


def place(made: Operand, element: Element, containers: NDArray[np.int64], rng: Random) -> NDArray[np.uint64]:
    """Return operands that are random but for the container of one slot, a row of words each."""
    words = rng.integers(0, 1 << 64, (len(containers), OPERAND_BITS // 64), dtype=np.uint64)
    word, shift = divmod(first_bit(made, element), 64)
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


def check(made: Operand, element: Element, codes: NDArray[np.int64], got: dict[str, NDArray]) -> None:
    value = value_of(element, codes)
    np.testing.assert_array_equal(got["raw_nan"], np.isnan(value))
    np.testing.assert_array_equal(got["raw_inf"], np.isinf(value))
    np.testing.assert_array_equal(got["raw_zero"], value == 0)
    special = ~np.isfinite(value)
    np.testing.assert_array_equal(got["raw_special"], special)
    significand = got["raw_significand"].astype(float)
    if element.format.is_integer:
        np.testing.assert_array_equal(significand, value)
        assert not got["raw_sign"].any()
        assert (got["raw_exponent"] == 1).all()
        return
    # The sign of zeros and infinities counts too: it decides which infinity a product is.
    np.testing.assert_array_equal(got["raw_sign"][~np.isnan(value)], np.signbit(value)[~np.isnan(value)])
    if element.packed_float:
        np.testing.assert_array_equal(significand, 2 * np.abs(value))
        assert (got["raw_exponent"] == 1).all()
        return
    ordinary = ~special & (value != 0)
    _, _, bias, smallest = FLOATS[element.format.name]
    exponent = got["raw_exponent"].astype(int) - bias
    expected = np.maximum(np.frexp(np.where(ordinary, value, 1))[1] - 1, smallest)
    np.testing.assert_array_equal(exponent[ordinary], expected[ordinary])
    read = np.ldexp(significand, exponent - made.slot.point(element, made.side))
    np.testing.assert_array_equal(read[~special], np.abs(value)[~special])


#: Alignment bits of 16-bit floats and of fp8: equal ones, and such that fp8 stands lower, in B a bit higher than in A.
KEPT = {"equal": (25, 25), "shorter": (24, 13)}


@pytest.fixture(scope="module")
def unpacked(compiled: Callable) -> Callable[[int, str, str], tuple[Operand, Callable]]:
    """Compile a slot of one operand, once each."""
    built: dict[tuple[int, str, str], tuple[Operand, Callable]] = {}

    def get(index: int, side: str, kept: str) -> tuple[Operand, Callable]:
        key = (index, side, kept)
        if key not in built:
            made = Operand(config_of(WORDS, *KEPT[kept]), index, side)
            built[key] = made, compiled(made)
        return built[key]

    return get


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize(("index", "side", "kept"), [(0, "a", "equal"), (0, "b", "shorter"), (3, "a", "shorter"),
                                                     (3, "b", "equal")])  # fmt: skip
@pytest.mark.parametrize("code", range(len(WORDS)), ids=WORDS)
def test_every_code(unpacked: Callable, rng: Random, index: int, side: str, kept: str, code: int) -> None:
    made, evaluate = unpacked(index, side, kept)
    element = made.slot.elements[code]
    codes, containers = containers_of(element, rng)
    got = evaluate(operand=place(made, element, containers, rng), element=code)
    check(made, element, codes, got)


def test_little_floats_stand_lower_where_they_keep_fewer_bits() -> None:
    """What the slots above are to show: two places for the hidden bit, in B another one than in A."""
    slot = Slot(config_of(WORDS, *KEPT["shorter"]), 0)
    f16, e4m3 = (slot.elements[WORDS.index(word)] for word in ("f16", "e4m3"))
    points = [(slot.point(f16, side), slot.point(e4m3, side)) for side in "ab"]
    assert points == [(10, 4), (10, 5)]


@pytest.mark.parametrize("side", ["a", "b"])
def test_a_format_that_the_slot_does_not_serve_gives_zero(simulate: Callable, rng: Random, side: str) -> None:
    made = Operand(config_of(WORDS, 25, 13), 9, side)
    absent = [code for code, word in enumerate(WORDS) if Element.parse(word) not in made.slot.elements]
    assert [WORDS[code] for code in absent] == ["f16", "bf16", "tf32"]
    for code in absent:
        for bits in (0, -1, None):
            drawn = rng.integers(0, 1 << 64, (32, OPERAND_BITS // 64), dtype=np.uint64)
            operand = drawn if bits is None else np.full((1, OPERAND_BITS // 64), bits)
            got = simulate(made, operand=operand.astype(object), element=code)
            assert got["raw_zero"].all()
            for name in ("significand", "special", "inf", "nan"):
                assert not got[f"raw_{name}"].any()


@pytest.mark.parametrize("code", [13, 14, 15])
def test_a_code_of_no_format_is_the_last(unpacked: Callable, rng: Random, code: int) -> None:
    """Whatever it is, the decoder of formats and the slot take it for the same one."""
    _, evaluate = unpacked(0, "a", "equal")
    operand = rng.integers(0, 1 << 64, (256, 2), dtype=np.uint64)
    got, last = (evaluate(operand=operand, element=number) for number in (code, len(WORDS) - 1))
    for name, values in last.items():
        np.testing.assert_array_equal(got[name], values)


@pytest.mark.quick_cases(6)
@pytest.mark.parametrize("side", ["a", "b"])
@pytest.mark.parametrize(
    ("words", "index"),
    [
        (("f16", "e4m3", "s4", "u4"), 20),  # slots beyond the wide formats are narrow: nothing but 4-bit ones here
        (("f16", "e4m3", "e5m2", "s8"), 11),
        (("e4m3", "e5m2"), 15),
        (("e5m2", "e2m1"), 2),
        (("e3m2", "e2m3", "e2m1"), 5),
        (("e2m1",), 9),
        (("s8", "u8", "s4", "e2m1/4"), 1),
        (("s4", "u4", "e2m1/4"), 31),
        (("f16", "s8", "s4", "e2m1/4"), 27),
        (("bf16", "e5m2"), 4),
        (("bf16", "s8"), 13),
        (("s8",), 7),
    ],
)
def test_narrow_slots(simulate: Callable, rng: Random, words: tuple[str, ...], index: int, side: str) -> None:
    """A slot is as wide as what it serves; one without floats has no exponent."""
    made = Operand(config_of(words, 25, 13 if "f16" in words else 25), index, side)
    for element in made.slot.elements:
        if element.format.bits > 8:
            codes = rng.integers(0, 1 << element.format.bits, 512)
            containers = codes << element.low_bit
        else:
            codes, containers = containers_of(element, rng)
        code = words.index(str(element))
        got = simulate(made, operand=place(made, element, containers, rng).astype(object), element=code)
        check(made, element, codes, got)


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
