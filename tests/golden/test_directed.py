"""Hand-computed results of one output, as bits: alignment, truncation, steps and rounding."""

from collections.abc import Callable, Iterable

import numpy as np
import pytest

from .one_output import (
    BF16,
    E4M3,
    E4M3_E5M2,
    E5M2,
    F16,
    F16_F16,
    F24,
    F25,
    INF,
    MAX,
    MXF8,
    NVF4,
    SIGN,
    TF32,
    output,
)  # fmt: skip


def f32(value: float) -> int:
    assert float(np.float32(value)) == value
    return int(np.float32(value).view(np.uint32))


def bf16(value: float) -> int:
    assert f32(value) & 0xFFFF == 0
    return f32(value) >> 16


def f16(value: float) -> int:
    assert float(np.float16(value)) == value
    return int(np.float16(value).view(np.uint16))


def e5m2(value: float) -> int:
    assert f16(value) & 0xFF == 0
    return f16(value) >> 8


def e4m3(value: float) -> int:
    (code,) = (c for c in range(127) if np.ldexp((c & 7) + 8 * (c > 7), max(c >> 3, 1) - 10) == abs(value))
    return code | (0x80 if np.signbit(value) else 0)


ENCODE: dict[str, Callable[[float], int]] = {F16: f16, F16_F16: f16, BF16: bf16, TF32: f32, E4M3: e4m3, E5M2: e5m2}


def encode(text: str, products: Iterable[tuple[float, float]]) -> list[tuple[int, int]]:
    return [(ENCODE[text](a), ENCODE[text](b)) for a, b in products]


# --- Alignment ---


@pytest.mark.parametrize("text", [F16, BF16, TF32])
@pytest.mark.parametrize(
    ("archs", "grid", "one_unit"), [(F25, -25, 0x33000000), (F24, -24, 0x33800000)], ids=["F = 25", "F = 24"]
)
def test_terms_are_truncated_toward_zero(archs: tuple[str, ...], grid: int, one_unit: int, text: str) -> None:
    one_and_a_half, half = (1.5 * 2.0**-12, 2.0 ** (grid + 12)), (2.0**-12, 2.0 ** (grid + 11))
    for arch in archs:
        for sign, expected in ((1, one_unit), (-1, one_unit | SIGN)):
            term = (sign * one_and_a_half[0], one_and_a_half[1])
            ones = [(1.0, 1.0), (-1.0, 1.0)]
            assert output(text, arch, encode(text, [*ones, term])) == expected
            assert output(text, arch, encode(text, ones), c=f32(sign * 1.5 * 2.0**grid)) == expected
        # Each term on its own: two halves of a unit are no unit.
        assert output(text, arch, encode(text, [*ones, half]), c=f32(2.0 ** (grid - 1))) == 0


def test_products_are_not_normalised() -> None:
    """1.5 * 1.5 is 2.25, and its exponent still 0: 2**-25 is on the grid."""
    products = [(1.5, 1.5), (-1.5, 1.5), (2.0**-12, 2.0**-13)]
    assert output(F16, "sm_90", encode(F16, products)) == 0x33000000


def test_f16_subnormals_keep_their_exponent() -> None:
    """2**-9 + 2**-25: as 2**-24 * 2**15 the larger product has exponent 1 and a grid of 2**-24."""
    small = (2.0**-12, 2.0**-13)
    for arch in F25:
        assert output(F16, arch, encode(F16, [(2.0**-24, 2.0**15), small])) == 0x3B000000
        assert output(F16, arch, encode(F16, [(2.0**-5, 2.0**-4), small])) == 0x3B000080


@pytest.mark.parametrize(
    ("arch", "larger", "expected"),
    [
        ("sm_120", (0x01, e5m2(2.0**15)), 0x42800000),  # exponent -6 + 15, grid 2**-16
        ("sm_90", (0x01, e5m2(2.0**15)), 0x42800001),  # 2**-9 is a normal f16: exponent 6, grid 2**-19
        ("sm_120", (0x08, e5m2(2.0**12)), 0x42800001),  # the same 64 from 2**-6, a normal number in both
        ("sm_90", (0x08, e5m2(2.0**12)), 0x42800001),
    ],
)
def test_e4m3_subnormals_are_normalised_by_emulation_only(arch: str, larger: tuple[int, int], expected: int) -> None:
    """64 + 2**-17."""
    assert output(E4M3_E5M2, arch, [larger, (0x08, e5m2(2.0**-11))]) == expected


def test_fp8_emulation_adds_c_last_and_to_nearest() -> None:
    halves = encode(E5M2, [(1.5 * 2.0**-12, 2.0**-12)])
    large = encode(E5M2, [(2.0**15, 2.0**15), (0.0, 0.0), (-(2.0**15), 2.0**15)])
    for arch, rounded, kept in (("sm_90", 0x3F800001, 0x3F800000), ("sm_120", 0x3F800000, 0x00000000)):
        assert output(E5M2, arch, halves, c=0x3F800000) == rounded  # 1 + 1.5 * 2**-24
        assert output(E5M2, arch, large, c=0x3F800000) == kept  # 1 + 2**30 - 2**30


@pytest.mark.parametrize(
    ("slots", "expected"),
    [((0, 5, 3), 0x3F800000), ((0, 5, 30), 0x3F800000), ((0, 5, 4), 0), ((2, 7, 0), 0), ((0, 2, 3), 0)],
)
def test_fp8_emulation_takes_even_pairs_first(slots: tuple[int, int, int], expected: int) -> None:
    """2**30 - 2**30 + 1: the 1 survives only in the odd step, the large ones having met in the even step."""
    products = encode(E5M2, [(2.0**15, 2.0**15), (-(2.0**15), 2.0**15), (1.0, 1.0)])
    assert output(E5M2, "sm_90", dict(zip(slots, products, strict=True))) == expected
    assert output(E5M2, "sm_120", dict(zip(slots, products, strict=True))) == 0


# --- Steps and rounding ---


@pytest.mark.parametrize(
    ("text", "products", "of_16_bytes", "of_32_bytes"),
    [
        (BF16, {0: (2.0**64, 2.0**64), 8: (-(2.0**64), 2.0**63)}, INF, 0x7F000000),
        (BF16, {0: (2.0**64, 2.0**64), 7: (-(2.0**64), 2.0**63)}, 0x7F000000, 0x7F000000),
        (F16, {0: (1.0, 1.0), 7: (2.0**-12, 2.0**-12), 8: (-1.0, 1.0)}, 0x00000000, 0x33800000),
        (F16, {0: (-1.0, 1.0), 7: (1.0, 1.0), 8: (2.0**-12, 2.0**-12)}, 0x33800000, 0x33800000),
        (F16_F16, {0: (1.0, 1.0), 7: (2.0**-5, 2.0**-6), 8: (-1.0, 1.0)}, 0x0000, 0x1000),
        (TF32, {0: (1.0, 1.0), 3: (2.0**-12, 2.0**-12), 4: (-1.0, 1.0)}, 0x00000000, 0x33800000),
    ],
)
def test_steps_round(text: str, products: dict[int, tuple[float, float]], of_16_bytes: int, of_32_bytes: int) -> None:
    """Up to sm_89 a step takes 16 bytes of A, from sm_90 32; its rounded result is all the next one sees."""
    placed = dict(zip(products, encode(text, products.values()), strict=True))
    for arch in F24:
        assert output(text, arch, placed) == of_16_bytes
    for arch in F25:
        assert output(text, arch, placed) == of_32_bytes


def test_fp8_steps_of_sm_89() -> None:
    """256 - 256 + 2**-6, below the grid of 256: kept in the step after theirs."""
    large, minus, small = encode(E4M3, [(256.0, 1.0), (-256.0, 1.0), (1.0, 2.0**-6)])
    assert output(E4M3, "sm_89", {0: large, 1: minus, 15: small}) == 0
    assert output(E4M3, "sm_89", {0: large, 15: minus, 16: small}) == 0x3C800000
    assert output(E4M3, "sm_89", {0: large, 16: minus, 17: small}) == 0


@pytest.mark.parametrize("arch", [*F24, *F25])
@pytest.mark.parametrize(
    ("c", "products", "expected"),
    [
        (MAX, [(2.0**52, 2.0**51)], MAX),  # 2**128 - 2**103, a tie that rounding to nearest would take up
        (MAX, [(2.0**52, 2.0**52)], INF),  # 2**128
        (0, [(2.0**64, 2.0**64)], INF),
        (0, [(2.0**64, 2.0**64), (-(2.0**64), 2.0**63)], 0x7F000000),
        (0, [(2.0**127, 2.0**127)], INF),
    ],
)
def test_overflow_of_truncation(c: int, products: list[tuple[float, float]], expected: int, arch: str) -> None:
    assert output(BF16, arch, encode(BF16, products), c=c) == expected
    negative = encode(BF16, [(-a, b) for a, b in products])
    assert output(BF16, arch, negative, c=c and c | SIGN) == expected | SIGN


@pytest.mark.parametrize(
    ("c", "products", "expected"),
    [
        (0x0000, [(1.0, 1.0), (2.0**-5, 2.0**-6)], 0x3C00),  # 1 + 2**-11, a tie
        (0x3C01, [(2.0**-5, 2.0**-6)], 0x3C02),  # the next tie
        (0x0000, [(1.0, 1.0), (2.0**-5, 2.0**-6), (2.0**-12, 2.0**-12)], 0x3C01),  # no second rounding by way of f32
        (0x0000, [(1.0, 1.0), (2.0**-5, 2.0**-6), (2.0**-13, 2.0**-13)], 0x3C00),  # off the grid
        (0x7BFF, [(15.0, 1.0)], 0x7BFF),
        (0x7BFF, [(16.0, 1.0), (-(2.0**-9), 1.0)], 0x7BFF),
        (0x7BFF, [(16.0, 1.0)], 0x7C00),  # 65520, the tie between 65504 and 2**16
        (0x0001, [(2.0**-12, 2.0**-13)], 0x0002),  # ties of subnormals
        (0x0002, [(2.0**-12, 2.0**-13)], 0x0002),
    ],
)
def test_rounding_to_nearest_f16(c: int, products: list[tuple[float, float]], expected: int) -> None:
    for arch in (*F24, *F25):
        assert output(F16_F16, arch, encode(F16_F16, products), c=c) == expected
        negative = encode(F16_F16, [(-a, b) for a, b in products])
        assert output(F16_F16, arch, negative, c=c and c | 0x8000) == expected | 0x8000


@pytest.mark.parametrize(
    ("c", "products", "expected"),
    [
        (0, [(1.0, 1.0), (1.0, 1.0), (2.0**-6, 2.0**-7)], 0x40000000),  # 2 + 2**-13 has 15 significant bits
        (0, [(1.0, 1.0), (2.0**-6, 2.0**-7)], 0x3F800400),
        (0, [(1.0, 1.0), (2.0**-7, 2.0**-7)], 0x3F800000),  # off the grid
        (0x3F800600, [], 0x3F800400),
        (0x000007FF, [], 0x00000400),
        (0x00000001, [], 0x00000000),
        (MAX, [], 0x7F7FFC00),
    ],
)
def test_fp8_of_sm_89_rounds_to_14_bits(c: int, products: list[tuple[float, float]], expected: int) -> None:
    codes = encode(E4M3, products)
    assert output(E4M3, "sm_89", codes, c=c) == expected
    negative = [(a | 0x80, b) for a, b in codes]
    assert output(E4M3, "sm_89", negative, c=c and c | SIGN) == (expected and expected | SIGN)


def test_fp8_of_sm_89_with_f16_result() -> None:
    """F = 13 decides whether a third term breaks the tie."""
    text = "mma.sync.aligned.m16n8k32.row.col.f16.e4m3.e4m3.f16"
    tie = [(e4m3(1.0), e4m3(1.0)), (e4m3(2.0**-5), e4m3(2.0**-6))]
    assert output(text, "sm_89", [*tie, (e4m3(2.0**-6), e4m3(2.0**-7))]) == 0x3C01
    assert output(text, "sm_89", [*tie, (e4m3(2.0**-7), e4m3(2.0**-7))]) == 0x3C00
    assert output(text, "sm_120", [*tie, (e4m3(2.0**-7), e4m3(2.0**-7))]) == 0x3C01


@pytest.mark.parametrize("arch", [*F24, *F25])
def test_zero_results_are_positive(arch: str) -> None:
    for text in (F16, BF16, TF32):
        assert output(text, arch, c=SIGN) == 0
        assert output(text, arch, encode(text, [(-0.0, 1.0)]), c=SIGN) == 0
        assert output(text, arch, encode(text, [(-1.0, 1.0), (1.0, 1.0)])) == 0
    assert output(BF16, arch, encode(BF16, [(-(2.0**-75), 2.0**-75)])) == 0  # -2**-150, truncated
    assert output(F16_F16, arch, c=0x8000) == 0
    assert output(F16_F16, arch, encode(F16_F16, [(-(2.0**-13), 2.0**-13)])) == 0  # -2**-26, rounded
    if arch not in F24[:2]:
        assert output(E4M3, arch, encode(E4M3, [(-0.0, 1.0)]), c=SIGN) == 0
    if arch == "sm_120":
        assert output(MXF8, arch, c=SIGN, scales=([127], [127])) == 0
        assert output(NVF4, arch, c=SIGN, scales=([0x38] * 4, [0x38] * 4)) == 0
