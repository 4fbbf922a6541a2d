"""Hand-computed results of one output, as bits: special values, selection, containers, integers and block scales."""

import pytest

from .one_output import ALL, E4M3, E5M2, F16, F16_F16, INF, MAX, MXF4, MXF8, NAN, NVF4, SIGN, TF32, output, sp

Products = list[tuple[int, int]]
NVF4_DENSE = "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3"


# --- Special values ---


@pytest.mark.parametrize("arch", ALL)
@pytest.mark.parametrize(
    ("c", "products", "expected"),
    [
        (0xFFC12345, [], NAN),
        (0x7F800001, [(0x3C00, 0x3C00)], NAN),
        (0, [(0x7E01, 0x3C00)], NAN),
        (0, [(0x3C00, 0xFC01)], NAN),
        (0, [(0x7C00, 0x0000)], NAN),
        (0, [(0x8000, 0xFC00)], NAN),
        (0, [(0x7C00, 0x3C00), (0xFC00, 0x3C00)], NAN),
        (0, [(0x7C00, 0x3C00), *[(0, 0)] * 14, (0xFC00, 0x3C00)], NAN),  # in another step up to sm_89
        (INF, [(0xFC00, 0x3C00)], NAN),
        (INF | SIGN, [(0x3C00, 0x3C00), (0x7E00, 0x3C00)], NAN),
        (MAX, [(0xFC00, 0x3C00)], INF | SIGN),
        (0, [(0xFC00, 0xBC00), (0x7C00, 0x0001)], INF),
        (INF | SIGN, [(0x7BFF, 0x7BFF)], INF | SIGN),
        (INF, [], INF),
    ],
)
def test_specials_f32(c: int, products: Products, expected: int, arch: str) -> None:
    assert output(F16, arch, products, c=c) == expected


@pytest.mark.parametrize("arch", ALL)
@pytest.mark.parametrize(
    ("c", "products", "expected"),
    [
        (0xFE01, [], 0x7FFF),
        (0x7C01, [], 0x7FFF),
        (0, [(0x7C00, 0x8000)], 0x7FFF),
        (0x7C00, [(0xFC00, 0x3C00)], 0x7FFF),
        (0x7BFF, [(0xFC00, 0x3C00)], 0xFC00),
        (0x7C00, [(0xFBFF, 0x7BFF)], 0x7C00),
    ],
)
def test_specials_f16(c: int, products: Products, expected: int, arch: str) -> None:
    assert output(F16_F16, arch, products, c=c) == expected


@pytest.mark.parametrize("arch", ["sm_89", "sm_90", "sm_100", "sm_120"])
def test_specials_fp8(arch: str) -> None:
    assert output(E5M2, arch, [(0x7C, 0x3C)]) == INF
    assert output(E5M2, arch, [(0x7C, 0x00)]) == NAN
    assert output(E5M2, arch, [(0xFC, 0x3C)], c=INF) == NAN
    assert output(E5M2, arch, [(0x7D, 0x3C)]) == NAN
    assert output(E4M3, arch, [(0x7E, 0x38)]) == 0x43E00000  # 448: e4m3 has no Inf
    assert output(E4M3, arch, [(0x38, 0xFF)]) == NAN
    assert output(E4M3, arch, c=0xFFFFFFFF) == NAN


@pytest.mark.parametrize("arch", ALL)
def test_tf32_drops_a_nan_of_its_low_bits(arch: str) -> None:
    one = 0x3F800000
    assert output(TF32, arch, [(0x7F800001, one)]) == INF
    assert output(TF32, arch, [(one, 0xFF801FFF)]) == INF | SIGN
    assert output(TF32, arch, [(0x7F802000, one)]) == NAN
    assert output(TF32, arch, [(0x3F801FFF, one)]) == one


def test_bits_around_narrow_elements_are_ignored() -> None:
    """1 * 1, with every bit set outside bits 5:2 of an e2m1 and 5:0 of the six-bit types."""
    codes = {"e2m1": 0xCB, "e3m2": 0xCC, "e2m3": 0xC8}
    for a, b in [("e2m1", "e3m2"), ("e3m2", "e2m3"), ("e2m3", "e2m1")]:
        text = sp("m16n8k64", f"f32.{a}.{b}.f32", ".kind::f8f6f4")
        assert output(text, "sm_120", [(codes[a], codes[b])]) == 0x3F800000


# --- Integers ---


@pytest.mark.parametrize("arch", ALL)
@pytest.mark.parametrize(
    ("c", "products", "wrapped", "clamped"),
    [
        (0x7FFFFFFF, {0: (1, 1)}, 0x80000000, 0x7FFFFFFF),
        (0x80000000, {0: (0xFF, 1)}, 0x7FFFFFFF, 0x80000000),
        (0x7FFFFFFF, {0: (0x7F, 0x7F), 31: (0x7F, 0x7F)}, 0x80007E01, 0x7FFFFFFF),
        (0x7FFFFFF0, {0: (0x7F, 0x7F), 31: (0x81, 0x7F)}, 0x7FFFFFF0, 0x7FFFFFF0),  # no clamp in between
        (0x80000010, {0: (0x81, 0x7F), 31: (0x7F, 0x7F)}, 0x80000010, 0x80000010),
    ],
)
def test_integers_wrap_or_clamp_once(
    c: int, products: dict[int, tuple[int, int]], wrapped: int, clamped: int, arch: str
) -> None:
    for shape, form in (("m16n8k64", ".sp::ordered_metadata"), ("m16n8k64", ".sp"), ("m16n8k32", "")):
        text = f"mma{form}.sync.aligned.{shape}.row.col%s.s32.s8.s8.s32"
        assert output(text % "", arch, products, c=c) == wrapped
        assert output(text % ".satfinite", arch, products, c=c) == clamped


# --- Block scales ---

ONE, MINUS = (0x38, 0x38), (0xB8, 0x38)  #: e4m3 1 * 1 and -1 * 1


@pytest.mark.parametrize(
    ("scale_a", "scale_b", "products", "c", "expected"),
    [
        (0xFF, 127, [], 0, NAN),  # although every product is zero
        (127, 0xFF, [ONE], 0, NAN),
        (127, 127, [], 0, 0),
        (130, 126, [ONE], 0, 0x40800000),
        (130, 126, [], 0x3F800000, 0x3F800000),  # C is not scaled
        (0, 127, [ONE], 0, 0x00400000),  # code 0 is 2**-127
        (254, 0, [ONE], 0, 0x3F800000),
        (0, 0, [ONE], 0, 0x00000000),
        (254, 254, [ONE], 0, INF),
        (254, 254, [MINUS], 0, INF | SIGN),
        (254, 254, [], 0x00000001, 0x00000001),  # zero products do not count in the largest exponent
        (140, 140, [ONE, MINUS], 0x3F800000, 0x00000000),  # 2**26 - 2**26: grid 2
        (140, 140, [ONE, MINUS], 0x40000000, 0x40000000),
        (127, 127, [ONE, MINUS], 0x3F800000, 0x3F800000),
        (27, 78, [ONE, (0x81, 0x38)], 0, 0x00000000),  # 2**-149 - 2**-158
        (27, 78, [ONE, (0x81, 0x30)], 0, 0x00000001),  # 2**-149 - 2**-159, off the grid of exponent -133
    ],
)
def test_mxf8f6f4(scale_a: int, scale_b: int, products: Products, c: int, expected: int) -> None:
    assert output(MXF8, "sm_120", products, c=c, scales=([scale_a], [scale_b])) == expected


#: e2m1 1 * 1 and -1 * 1, and the ue4m3 codes of 256, 2**-9 (subnormal) and 1.
P1, N1 = (0x2, 0x2), (0xA, 0x2)
U256, ULEAST, U1 = 0x78, 0x01, 0x38


@pytest.mark.parametrize("text", [NVF4, NVF4_DENSE])
@pytest.mark.parametrize(
    ("scale_a", "scale_b", "products", "c", "expected"),
    [
        # 2**16 - 2**16 in one group still counts in the largest exponent: grid 2**-19.
        (U256, U256, [P1, N1], 0x35800000, 0x00000000),
        (U256, U256, [P1, N1], 0x36000000, 0x36000000),
        (U256, U256, [(0x0, 0x2), (0x2, 0x8)], 0x35800000, 0x35800000),  # all products zero: it does not
        (U256, U256, [], 0x35800000, 0x35800000),
        # A subnormal scale has exponent -6: with 256 it makes 2, a grid of 2**-33; 2**-1 * 1 makes -1.
        (ULEAST, U256, [P1, N1], 0x2E800000, 0x00000000),
        (0x30, U1, [P1, N1], 0x2E800000, 0x2E800000),
        (ULEAST, U1, [P1], 0, 0x3B000000),
        (0x07, U1, [P1], 0, 0x3C600000),
        # The sign bit is ignored, also on zero and NaN.
        (0xB8, U1, [P1], 0, 0x3F800000),
        (0x81, 0xF8, [P1], 0, 0x3F000000),
        (0x7F, U1, [], 0, NAN),
        (U1, 0xFF, [], 0, NAN),
        # A zero scale makes a zero term that does not count: with 0x7E its exponent would be 2.
        (0x00, 0x7E, [P1, P1], 0x2E800000, 0x2E800000),
        (0x80, 0x7E, [P1, P1], 0, 0x00000000),
        (0x7E, 0x7E, [(0x7, 0x7)] * 16, 0, 0x4CDC8000),  # 576 * 448**2
        (U1, U1, [P1], INF | SIGN, INF | SIGN),
        (U1, U1, [P1], 0xFFC00001, NAN),
    ],
)
def test_mxf4nvf4_ue4m3(text: str, scale_a: int, scale_b: int, products: Products, c: int, expected: int) -> None:
    scales = ([scale_a, U1, U1, U1], [scale_b, U1, U1, U1])
    assert output(text, "sm_120", products, c=c, scales=scales) == expected


@pytest.mark.parametrize("text", [NVF4, NVF4_DENSE])
def test_every_group_has_its_scale(text: str) -> None:
    scales = ([0x38, 0x40, 0x48, 0x50], [0x38, 0x38, 0x40, 0x48])  # 1, 2, 4, 8 and 1, 1, 2, 4
    expected = {0: 0x3F800000, 15: 0x3F800000, 16: 0x40000000, 31: 0x40000000, 32: 0x41000000, 63: 0x42000000}
    for slot, code in expected.items():
        assert output(text, "sm_120", {slot: P1}, scales=scales) == code


@pytest.mark.parametrize("text", [MXF4, NVF4.replace("ue4m3", "ue8m0").replace("4X", "2X")])
@pytest.mark.parametrize(
    ("scales", "products", "c", "expected"),
    [
        (([0, 127], [127, 127]), {0: P1}, 0, 0x00400000),  # code 0 is 2**-127
        (([127, 0xFF], [127, 127]), {0: P1}, 0, NAN),
        (([254, 127], [254, 127]), {31: N1}, 0, INF | SIGN),
        # A group is summed exactly, 0.25 + 0.25, before the grid of 2**34 takes halves alone; two groups are not.
        (([127, 161], [127, 127]), {0: (1, 1), 15: (1, 1), 32: N1}, 0x50800000, 0x3F000000),
        (([127, 161], [127, 127]), {0: (1, 1), 16: (1, 1), 32: N1}, 0x50800000, 0x00000000),
        # 2 * 2 has the exponent of its scales, 0: 2**-35 is on the grid, 2**-36 is not.
        (([127, 127], [127, 127]), {0: (4, 4), 32: (0xC, 4)}, 0x2E000000, 0x2E000000),
        (([127, 127], [127, 127]), {0: (4, 4), 32: (0xC, 4)}, 0x2D800000, 0x00000000),
        # 2**-149 - 2**-174, and 2**-149 - 2**-175, off the grid of exponent -139.
        (([27, 27], [78, 53]), {0: P1, 32: N1}, 0, 0x00000000),
        (([27, 27], [78, 52]), {0: P1, 32: N1}, 0, 0x00000001),
    ],
)
def test_mxf4_ue8m0(
    text: str,
    scales: tuple[list[int], list[int]],
    products: dict[int, tuple[int, int]],
    c: int,
    expected: int,
) -> None:
    assert output(text, "sm_120", products, c=c, scales=scales) == expected
