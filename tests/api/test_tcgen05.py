"""``tcgen05.mma`` through memory and back: every bit is that of the matrices placed there."""

import numpy as np
import pytest
import sptc
from sptc.rtl.config import PRESET_OF_ARCHITECTURE
from sptc.sim.benches.random_operands import distributions

from .tcgen05_case import D_AT, DENSE, DENSE2, DENSE_WS, F16, F16_2, MXF8, NVF4, SP, SP2, WS, case

Random = np.random.Generator

KINDS: list[tuple[str, dict[str, object]]] = [
    (".kind::tf32", {}),
    (".kind::f16", {"d": "f16"}),
    (".kind::f16", {"d": "f32"}),
    (".kind::f16", {"a": "bf16"}),
    (".kind::f8f6f4", {"a": "e4m3", "b": "e5m2", "d": "f16"}),
    (".kind::f8f6f4", {"a": "e5m2", "b": "e2m1", "d": "f32"}),
    (".kind::i8", {"a": "s8", "b": "u8", "satfinite": True}),
    (".kind::mxf8f6f4.block_scale", {"a": "e5m2", "b": "e2m3"}),
    (".kind::mxf4.block_scale", {}),
    (".kind::mxf4nvf4.block_scale.block32", {}),
    (".kind::mxf4nvf4.block_scale.block16", {"scale_format": "ue4m3"}),
    (".kind::mxf4nvf4.block_scale.scale_vec::4X.collector::a::use", {"scale_format": "ue8m0"}),
]


@pytest.mark.parametrize("a_in", ["shared", "tensor"])
@pytest.mark.parametrize("head", [SP, SP2, DENSE, DENSE2])
@pytest.mark.parametrize(("tail", "wanted"), KINDS)
def test_through_memory_and_back(head: str, tail: str, wanted: dict[str, object], a_in: str, rng: Random) -> None:
    given = case(head + tail, rng, a_in=a_in, n=32, **wanted)
    before = given.arguments["tmem"].copy(), given.arguments["smem"].copy()
    np.testing.assert_array_equal(given.run(), given.expected())
    np.testing.assert_array_equal(given.arguments["tmem"], before[0])
    np.testing.assert_array_equal(given.arguments["smem"], before[1])


@pytest.mark.parametrize(("lane", "a_in"), [(0, "shared"), (16, "shared"), (0, "tensor"), (16, "tensor")])
@pytest.mark.parametrize("head", [SP, SP2, DENSE])
def test_half_of_the_lanes(head: str, lane: int, a_in: str, rng: Random) -> None:
    """64 rows in a CTA, layouts C and F: of D, of A and of the metadata, in either half."""
    for tail, wanted in KINDS:
        if "mx" not in tail:
            m = 128 if head == SP2 else 64
            given = case(head + tail, rng, m=m, n=32, a_in=a_in, options={"lane": lane}, **wanted)
            np.testing.assert_array_equal(given.run(), given.expected())


@pytest.mark.parametrize(("tail", "wanted"), KINDS)
def test_a_dense_pair_of_64_rows_each(tail: str, wanted: dict[str, object], rng: Random) -> None:
    """Layout B: the halves of D's columns one below the other, and so the scales of B; A in either half."""
    for a_in in ("shared", "tensor"):
        given = case(DENSE2 + tail, rng, m=128, n=64, a_in=a_in, **wanted)
        np.testing.assert_array_equal(given.run(), given.expected())
    given.arguments["tmem"][1, 64 + 17, given.arguments["a"]] ^= 1
    with pytest.raises(sptc.OperandError, match=r"a of .* the same in its 2 copies .* lanes 17 and 81, column 3"):
        given.run()


@pytest.mark.parametrize("a", ["e2m1", "e3m2", "e2m3", "e5m2"])
def test_small_elements_are_padded_in_shared_memory(a: str, rng: Random) -> None:
    for text in (f"{SP}.kind::f8f6f4", f"{SP2}.kind::f8f6f4", MXF8):
        b, options = "e2m1" if a != "e2m1" else "e3m2", {"negate_a": bool(rng.integers(2))}
        given = case(text, rng, n=32, a=a, b=b, distribution="special", options=options)
        np.testing.assert_array_equal(given.run(), given.expected())


@pytest.mark.parametrize("m", [32, 64, 128])
@pytest.mark.parametrize("kind", ["tf32", "f16", "f8f6f4", "i8"])
def test_weight_stationary(kind: str, m: int, rng: Random) -> None:
    for head, n in ((WS, 64), (DENSE_WS, 64), (DENSE_WS, 256)):
        given = case(f"{head}.kind::{kind}.collector::b2::fill", rng, m=m, n=n)
        np.testing.assert_array_equal(given.run(), given.expected())


@pytest.mark.parametrize("head", [WS, DENSE_WS])
def test_weight_stationary_with_a_in_tensor_memory(head: str, rng: Random) -> None:
    """Of 64 rows every half of the lanes holds a copy."""
    for m, wanted in ((64, {"a": "f16"}), (64, {"a": "bf16"}), (128, {})):
        given = case(f"{head}.kind::f16", rng, m=m, n=64, a_in="tensor", **wanted)
        np.testing.assert_array_equal(given.run(), given.expected())


#: Of examples of the manual: start counts, first spans, and the sub-masks as printed, lowest column last, by M. There
#: the skip span is 2 and the use span 3, and masks repeat after seven columns.
MASKS = {
    128: ((0,), (0,), ["11100001110000"]),
    64: ((0, 0), (1, 0), ["11100001110000111", "000011100001110000"]),
    32: ((0, 1, 2, 1), (1, 1, 0, 0), ["00001110000111", "0000111000011", "111000011100", "1110000111000"]),
}


@pytest.mark.parametrize("m", MASKS)
@pytest.mark.parametrize("head", [WS, DENSE_WS])
def test_zero_columns(head: str, m: int, rng: Random) -> None:
    starts, first_spans, printed = MASKS[m]
    mask = 1 << 39 | 2 << 40 | 3 << 48
    for part, (start, first) in enumerate(zip(starts, first_spans, strict=True)):
        mask |= start << 8 * part | first << 32 + part
    given = case(f"{head}.kind::f16", rng, m=m, n=128)
    width = 128 // len(printed)
    for part, word in enumerate(printed):
        lowest = [bit == "1" for bit in reversed(word)]
        while len(lowest) < width:
            lowest.append(lowest[-7])
        given.b[:, part * width : (part + 1) * width][:, lowest] = 0
    np.testing.assert_array_equal(given.run(zero_column_mask=mask), given.expected())
    assert 40 < (given.b == 0).all(axis=0).sum() < 64
    plain = case(f"{head}.kind::f16", rng, m=m, n=128)
    np.testing.assert_array_equal(plain.run(zero_column_mask=mask & ~(1 << 39)), plain.expected())


def test_columns_are_shifted(rng: Random) -> None:
    """Column 0 of D takes the column of B after as many as the mask skips; without it, the same start further on."""
    for m, shift in ((128, 32), (64, 9), (32, 16)):
        given = case(f"{DENSE_WS}.kind::f16", rng, m=m, n=128, options={"max_shift": 32})
        wide = given.run(zero_column_mask=shift << 56)
        moved = given.arguments["smem"].copy()
        rows = np.arange(128 + shift)
        assert given.arguments["b"] >> 32 & 0x3FFF  # eight columns of B from the next eight
        stride, leading = (given.arguments["b"] >> low & 0x3FFF for low in (32, 16))
        start = given.arguments["b"] & 0x3FFF
        places = 16 * (start + rows[:, None] // 8 * stride + np.arange(2) * leading) + rows[:, None] % 8 * 16
        at = places[..., None] + np.arange(16)
        moved[at[:128]] = given.arguments["smem"][at[shift : 128 + shift]]
        np.testing.assert_array_equal(wide, given.run(smem=moved))
    with pytest.raises(sptc.OperandError, match="shifts by 17 columns, but M = 32 allows 16"):
        given.run(zero_column_mask=17 << 56)


@pytest.mark.parametrize("swizzle", ["none", "32B", "64B", "128B"])
def test_swizzles(swizzle: str, rng: Random) -> None:
    for text, n in ((F16, 24), (F16_2, 16), (f"{SP}.kind::f8f6f4", 8)):
        given = case(text, rng, n=n, swizzles=(swizzle, swizzle))
        np.testing.assert_array_equal(given.run(), given.expected())


@pytest.mark.parametrize(("a", "b"), [(True, False), (False, True), (True, True)])
def test_transposition(a: bool, b: bool, rng: Random) -> None:
    options = {"transpose_a": a, "transpose_b": b}
    for text, swizzle in ((F16, "none"), (F16, "32B"), (F16_2, "128B"), (f"{SP}.kind::i8", "64B")):
        given = case(text, rng, n=32, swizzles=(swizzle, swizzle), options=options)
        np.testing.assert_array_equal(given.run(), given.expected())
    for text in (f"{SP}.kind::f8f6f4", MXF8, f"{DENSE2}.kind::f8f6f4"):  # of less than eight bits, padded along M and N
        for types in ({"a": "e2m1", "b": "e3m2"}, {"a": "e2m3", "b": "e2m1"}):
            given = case(text, rng, n=32, swizzles=("128B", "64B"), options=options, **types)
            np.testing.assert_array_equal(given.run(), given.expected())
    atoms = tuple("128B with 32B atoms" if transposed else "128B" for transposed in (a, b))
    given = case(f"{SP}.kind::tf32", rng, n=32, swizzles=atoms, options=options)  # type: ignore[arg-type]
    np.testing.assert_array_equal(given.run(), given.expected())


@pytest.mark.parametrize(("a", "b"), [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize(("tail", "wanted"), [row for row in KINDS if "i8" not in row[0]])
def test_negation(tail: str, wanted: dict[str, object], a: bool, b: bool, rng: Random) -> None:
    given = case(SP + tail, rng, n=8, options={"negate_a": a, "negate_b": b}, **wanted)
    np.testing.assert_array_equal(given.run(), given.expected())


def test_negation_of_spliced_halves(rng: Random) -> None:
    """Where an undefined nibble splices two tf32, the sign is that of the product, as was measured of ``wgmma``."""
    given = case(f"{SP}.kind::tf32", rng, n=64, any_nibble=True, options={"negate_b": True})
    np.testing.assert_array_equal(given.run(metadata="silicon"), given.expected())
    flipped = given.b ^ np.uint32(1 << 31)
    given.a, given.b = given.a ^ np.uint32(1 << 31), flipped
    assert (given.run(metadata="silicon") != given.expected()).any()


def test_every_distribution(rng: Random) -> None:
    for text, kind in ((F16, "d"), (NVF4, "")):
        for distribution in distributions(case(text, rng, n=8).instruction):
            given = case(text, rng, n=8, distribution=distribution, **({kind: "f16"} if kind else {}))
            np.testing.assert_array_equal(given.run(), given.expected(), err_msg=distribution)


@pytest.mark.parametrize("head", [SP, SP2, DENSE, DENSE2])
@pytest.mark.parametrize("kind", ["tf32", "f16", "f8f6f4", "i8"])
def test_a_is_shifted(head: str, kind: str, rng: Random) -> None:
    """D is that of A as it was; then each lane of A's columns has what the next one had, but for the last of a warp."""
    m = 128 if head == DENSE2 else 128 * int(head[-1])
    given = case(f"{head}.kind::{kind}.ashift", rng, m=m, n=64, a_in="tensor")
    expected = given.expected()
    a_at = given.arguments["a"]
    for lane in (lane for lane in range(128) if lane % 32 != 31):
        expected[..., lane, a_at : a_at + 8] = given.arguments["tmem"][..., lane + 1, a_at : a_at + 8]
    np.testing.assert_array_equal(given.run(), expected)


def test_largest_tile(rng: Random) -> None:
    given = case(f"{SP2}.kind::mxf4.block_scale", rng, n=256)
    np.testing.assert_array_equal(given.run(), given.expected())


def test_integers_are_exact_sums(rng: Random) -> None:
    for _ in range(4):
        given = case(f"{SP}.kind::i8", rng, n=256, a="s8", b="u8", satfinite=False)
        kept = np.stack([given.nibbles & 3, given.nibbles >> 2], -1) + 4 * np.arange(16)[:, None]
        met = given.b.astype(np.int64)[kept.reshape(128, -1)]
        d = np.einsum("mk,mkn->mn", given.a.view(np.int8).astype(np.int64), met) + given.c.view(np.int32)
        np.testing.assert_array_equal(given.run()[:, D_AT:], d & 0xFFFFFFFF)


def test_without_input_d(rng: Random) -> None:
    given = case(F16, rng, n=8, d="f16", distribution="special")
    zero = np.zeros_like(given.c)
    np.testing.assert_array_equal(given.run(enable_input_d=False), given.expected(zero))
    np.testing.assert_array_equal(given.run(enable_input_d=np.False_, scale_input_d=15), given.expected(zero))


@pytest.mark.parametrize("text", [F16, f"{SP}.kind::tf32"])
def test_scaled_input_d(text: str, rng: Random) -> None:
    given = case(text, rng, n=8, d="f32")
    given.arguments["tmem"][3, D_AT : D_AT + 4] = [0, 1 << 31, 0x7F800000, 0x7FC00001]
    given.c[3, :4] = [0, 1 << 31, 0x7F800000, 0x7FC00001]
    for exponent in (0, 1, 15):
        scaled = (given.c.view(np.float32) * np.float32(2.0**-exponent)).view(np.uint32)
        np.testing.assert_array_equal(given.run(scale_input_d=exponent), given.expected(scaled))


def test_scaled_half_precision(rng: Random) -> None:
    given = case(F16, rng, n=8, d="f16", distribution="narrow")
    given.c[0, 0] = 0x3C00  # one; the others are near it
    scaled = (given.c.view(np.float16) / np.float16(8)).view(np.uint16)
    given.arguments["tmem"][0, D_AT] = 0x3C00
    np.testing.assert_array_equal(given.run(scale_input_d=3), given.expected(scaled))
    for subnormal, exponent in ((0x0001, 1), (0x83FF, 15), (0x0400, 1), (0x3C00, 15)):
        given.arguments["tmem"][0, D_AT] = subnormal
        with pytest.raises(sptc.OperandError, match=rf"must leave no subnormal number in D, not {exponent}: no public"):
            given.run(scale_input_d=exponent)


def test_disabled_lanes(rng: Random) -> None:
    given = case(F16, rng, n=8)
    masks = [1 << 31 | 1, 0, 0xFFFFFFFF, 1 << 5]
    expected = given.expected()
    lanes = [0, 31, *range(64, 96), 101]
    expected[lanes] = given.arguments["tmem"][lanes]
    np.testing.assert_array_equal(given.run(disable_output_lane=masks), expected)
    np.testing.assert_array_equal(given.run(disable_output_lane=[0] * 4), given.expected())


def test_batches_broadcast(rng: Random) -> None:
    for text in (F16, F16_2):
        given = [case(text, rng, n=16, options={"sparsity_selector": 1}) for _ in range(3)]
        assert len({(one.arguments["a"], one.arguments["idesc"]) for one in given}) == 1
        at = given[0].ctas - 1  # where the batch stands
        images = {name: np.stack([one.arguments[name] for one in given], at) for name in ("tmem", "smem")}
        np.testing.assert_array_equal(given[0].run(**images), np.stack([one.run() for one in given], at))
        two = images["smem"].take([0, 1], at)
        crossed = given[0].run(tmem=np.expand_dims(images["tmem"], at + 1), smem=two)
        np.testing.assert_array_equal(crossed[..., 2, 1, :, :], given[2].run(smem=given[1].arguments["smem"]))
        with pytest.raises(sptc.OperandError, match=r"do not broadcast: tmem \(3,\), smem \(2,\)"):
            given[0].run(tmem=images["tmem"], smem=two)


def test_many_images(rng: Random) -> None:
    """More than are worked on at once."""
    given = case(F16, rng, n=8)
    smem = np.stack([given.arguments["smem"]] * 19)
    smem[18] ^= smem[18] >> 1
    result = given.run(smem=smem)
    np.testing.assert_array_equal(result[:18], np.stack([given.expected()] * 18))
    np.testing.assert_array_equal(result[18], given.run(smem=smem[18]))


@pytest.mark.regression
@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (F16, {"d": "f32"}),
        (F16_2, {"d": "f16"}),
        (NVF4, {"scale_format": "ue4m3"}),
        (F16, {"m": 64}),
        *((f"{DENSE}{tail}", wanted) for tail, wanted in KINDS),
        (f"{DENSE2}.kind::mxf8f6f4.block_scale", {"m": 128, "n": 64, "a": "e4m3"}),
        (f"{DENSE_WS}.kind::i8", {"m": 32, "n": 64}),
    ],
)
def test_the_hardware_gives_the_same(
    text: str, wanted: dict[str, object], rng: Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The datapaths differ in name alone; other tests build this one.
    monkeypatch.setitem(PRESET_OF_ARCHITECTURE, "sm_100", "rtx-blackwell")
    given = case(text, rng, any_nibble=True, **{"n": 16, **wanted})
    np.testing.assert_array_equal(given.run(backend="rtl", metadata="silicon"), given.expected())
