"""Hand-computed results of one output, as bits: special values, selection, containers, integers and block scales."""

from collections.abc import Callable

import pytest

Output = Callable[..., int]
Products = list[tuple[int, int]]
ALL = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
MUX4, MUX3 = ALL[:4], ALL[4:]
INF, MAX, NAN = 0x7F800000, 0x7F7FFFFF, 0x7FFFFFFF
SIGN = 0x80000000


def sp(shape: str, types: str, words: str = "") -> str:
    return f"mma.sp::ordered_metadata.sync.aligned.{shape}.row.col{words}.{types}"


F16 = sp("m16n8k32", "f32.f16.f16.f32")
F16_F16 = sp("m16n8k32", "f16.f16.f16.f16")
BF16 = sp("m16n8k32", "f32.bf16.bf16.f32")
TF32 = sp("m16n8k16", "f32.tf32.tf32.f32")
E4M3 = sp("m16n8k64", "f32.e4m3.e4m3.f32")
E5M2 = sp("m16n8k64", "f32.e5m2.e5m2.f32")
MXF8 = sp("m16n8k64", "f32.e4m3.e4m3.f32.ue8m0", ".kind::mxf8f6f4.block_scale")
MXF4 = sp("m16n8k128", "f32.e2m1.e2m1.f32.ue8m0", ".kind::mxf4.block_scale")
NVF4 = sp("m16n8k128", "f32.e2m1.e2m1.f32.ue4m3", ".kind::mxf4nvf4.block_scale.scale_vec::4X")
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
def test_specials_f32(output: Output, c: int, products: Products, expected: int, arch: str) -> None:
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
def test_specials_f16(output: Output, c: int, products: Products, expected: int, arch: str) -> None:
    assert output(F16_F16, arch, products, c=c) == expected


@pytest.mark.parametrize("arch", ["sm_89", "sm_90", "sm_100", "sm_120"])
def test_specials_fp8(output: Output, arch: str) -> None:
    assert output(E5M2, arch, [(0x7C, 0x3C)]) == INF
    assert output(E5M2, arch, [(0x7C, 0x00)]) == NAN
    assert output(E5M2, arch, [(0xFC, 0x3C)], c=INF) == NAN
    assert output(E5M2, arch, [(0x7D, 0x3C)]) == NAN
    assert output(E4M3, arch, [(0x7E, 0x38)]) == 0x43E00000  # 448: e4m3 has no Inf
    assert output(E4M3, arch, [(0x38, 0xFF)]) == NAN
    assert output(E4M3, arch, c=0xFFFFFFFF) == NAN


@pytest.mark.parametrize("arch", ALL)
def test_tf32_drops_a_nan_of_its_low_bits(output: Output, arch: str) -> None:
    one = 0x3F800000
    assert output(TF32, arch, [(0x7F800001, one)]) == INF
    assert output(TF32, arch, [(one, 0xFF801FFF)]) == INF | SIGN
    assert output(TF32, arch, [(0x7F802000, one)]) == NAN
    assert output(TF32, arch, [(0x3F801FFF, one)]) == one


# --- Selection ---


@pytest.mark.parametrize(
    ("text", "infinity", "archs"),
    [
        (F16, 0x7C00, ALL),
        (BF16, 0xFF80, ALL),
        (E5M2, 0x7C, ("sm_89", "sm_90", "sm_100", "sm_120")),
    ],
)
def test_stored_zero_meets_selected_b_alone(output: Output, text: str, infinity: int, archs: tuple[str, ...]) -> None:
    for arch in archs:
        for nibble, taken in ((0b0100, (0, 1)), (0b1110, (2, 3)), (0b1000, (0, 2)), (0b1101, (1, 3))):
            for k in range(4):
                expected = NAN if k in taken else 0
                assert output(text, arch, b={k: infinity}, nibble=nibble) == expected


@pytest.mark.parametrize("arch", ALL)
def test_stored_zero_meets_selected_tf32_alone(output: Output, arch: str) -> None:
    for nibble, taken in ((0b0100, 0), (0b1110, 1)):
        for k in range(2):
            assert output(TF32, arch, b={k: INF}, nibble=nibble) == (NAN if k == taken else 0)


@pytest.mark.parametrize(
    ("nibble", "expected"),
    [
        (0b0100, 0x41002000),
        (0b1110, 0x6000C000),
        (0b1001, 0xC0A04000),
        (0b0001, 0x3F804000),
        (0b0000, 0x3F802000),
        (0b1111, 0x60006000),
        (0b0011, 0x3F806000),
        (0b1000, 0xC0A02000),
        (0b0110, 0x4100C000),
    ],
)
def test_tf32_is_spliced_from_half_slots(output: Output, nibble: int, expected: int) -> None:
    """Low half from half-slot i0, high half from i1; half-slots 3F80, 4100, C0A0, 6000, lowest 13 bits dropped."""
    for arch in MUX4:
        for text in (TF32, sp("m16n8k8", "f32.tf32.tf32.f32")):
            b = {0: 0x41003F80, 1: 0x6000C0A0}
            assert output(text, arch, [(0x3F800000, 0)], b=b, nibble=nibble) == expected


S8 = sp("m16n8k64", "s32.s8.s8.s32")
S4 = sp("m16n8k128", "s32.s4.u4.s32")
#: A is 1, 2 (of s4 1, 2, 3, 4); B is 1, 10, 100 and 1000 (of s8 -50, of s4 0 to 7).
STORED = {F16: [(0x3C00, 0), (0x4000, 0)], S8: [(1, 0), (2, 0)], S4: [(1, 0), (2, 0), (3, 0), (4, 0)]}
CHUNK = {
    F16: {0: 0x3C00, 1: 0x4900, 2: 0x5640, 3: 0x63D0},
    S8: {0: 1, 1: 10, 2: 100, 3: 0xCE},
    S4: {k: k for k in range(8)},
}


@pytest.mark.parametrize(
    ("nibble", "of_f16", "of_s8", "of_s4"),
    [
        (0b0101, 0x41F00000, 30, 26),  # 10 + 2 * 10: one element twice
        (0b0000, 0x40400000, 3, 6),
        (0b0001, 0x41400000, 12, 12),  # 10 + 2 * 1: descending
        (0b1011, 0x44960000, 150, 52),  # 1000 + 2 * 100
        (0b1110, 0x45034000, 0, 60),  # 100 + 2 * 1000
        (0b1100, 0x44FA2000, 0xFFFFFF9D, 48),  # 1 + 2 * 1000
    ],
)
def test_multiplexers_are_independent(output: Output, nibble: int, of_f16: int, of_s8: int, of_s4: int) -> None:
    for arch in MUX4:
        for text, expected in ((F16, of_f16), (S8, of_s8), (S4, of_s4)):
            assert output(text, arch, STORED[text], b=CHUNK[text], nibble=nibble) == expected


@pytest.mark.parametrize(
    ("nibble", "ordered", "plain", "of_tf32"),
    [
        (0b0100, 0x41A80000, 0x41A80000, 0x41002000),  # 1 + 2 * 10: defined
        (0b1110, 0x45034000, 0x45034000, 0x6000C000),  # 100 + 2 * 1000: defined
        (0b0110, 0x42F00000, 0x42F00000, 0x4100C000),  # 100 + 2 * 10: served although undefined under the ordered rule
        (0b0001, 0x41200000, 0x41400000, 0x00004000),  # 10 (+ 2 * 1)
        (0b1011, 0x43480000, 0x44960000, 0xC0A00000),  # (1000 +) 2 * 100
        (0b0011, 0x00000000, 0x447A8000, 0x00000000),  # (1000 + 2 * 1)
        (0b0000, 0x3F800000, 0x3F800000, 0x00002000),  # 1 (+ 2 * 1)
        (0b1111, 0x44FA0000, 0x44FA0000, 0x60000000),  # (1000 +) 2 * 1000
        (0b0101, 0x41F00000, 0x41F00000, 0x41004000),  # 10 + 2 * 10
    ],
)
def test_three_way_multiplexers(output: Output, nibble: int, ordered: int, plain: int, of_tf32: int) -> None:
    """Slot 0 does not reach unit 3, nor slot 1 unit 0, and meets zero. Plain metadata trades slots where that helps."""
    for arch in MUX3:
        for text, expected in ((F16, ordered), (F16.replace("sp::ordered_metadata", "sp"), plain)):
            assert output(text, arch, STORED[F16], b=CHUNK[F16], nibble=nibble) == expected
        b = {0: 0x41003F80, 1: 0x6000C0A0}
        assert output(TF32, arch, [(0x3F800000, 0)], b=b, nibble=nibble) == of_tf32


def test_bits_around_narrow_elements_are_ignored(output: Output) -> None:
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
    output: Output, c: int, products: dict[int, tuple[int, int]], wrapped: int, clamped: int, arch: str
) -> None:
    for shape, form in (("m16n8k64", ".sp::ordered_metadata"), ("m16n8k64", ".sp"), ("m16n8k32", "")):
        text = f"mma{form}.sync.aligned.{shape}.row.col%s.s32.s8.s8.s32"
        assert output(text % "", arch, products, c=c) == wrapped
        assert output(text % ".satfinite", arch, products, c=c) == clamped


@pytest.mark.parametrize(
    ("a", "b", "product", "expected"),
    [
        ("s8", "s8", (0x80, 0x80), 0x00004000),
        ("u8", "s8", (0xFF, 0x80), 0xFFFF8080),
        ("s8", "u8", (0x80, 0xFF), 0xFFFF8080),
        ("u8", "u8", (0xFF, 0xFF), 0x0000FE01),
        ("s4", "s4", (0x8, 0x8), 0x00000040),
        ("u4", "s4", (0xF, 0x8), 0xFFFFFF88),
        ("s4", "u4", (0x8, 0xF), 0xFFFFFF88),
        ("u4", "u4", (0xF, 0xF), 0x000000E1),
    ],
)
def test_integer_signs(output: Output, a: str, b: str, product: tuple[int, int], expected: int) -> None:
    for k in (32, 64) if a[1] == "8" else (64, 128):
        assert output(sp(f"m16n8k{k}", f"s32.{a}.{b}.s32"), "sm_80", [product]) == expected


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
def test_mxf8f6f4(output: Output, scale_a: int, scale_b: int, products: Products, c: int, expected: int) -> None:
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
def test_mxf4nvf4_ue4m3(
    output: Output, text: str, scale_a: int, scale_b: int, products: Products, c: int, expected: int
) -> None:
    scales = ([scale_a, U1, U1, U1], [scale_b, U1, U1, U1])
    assert output(text, "sm_120", products, c=c, scales=scales) == expected


@pytest.mark.parametrize("text", [NVF4, NVF4_DENSE])
def test_every_group_has_its_scale(output: Output, text: str) -> None:
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
    output: Output,
    text: str,
    scales: tuple[list[int], list[int]],
    products: dict[int, tuple[int, int]],
    c: int,
    expected: int,
) -> None:
    assert output(text, "sm_120", products, c=c, scales=scales) == expected
