"""``tcgen05.mma`` on memory images: every bit of the result equals the product of the matrices in the images."""

from typing import Any

import numpy as np
import pytest
import sptc
from sptc.isa.column_mask import decode_column_mask
from sptc.isa.tcgen05 import KINDS, Opcode, every_opcode, instructions_of
from sptc.sim.benches.random_operands import distributions

from .tcgen05_case import AT, DENSE, DENSE2, DENSE_WS, F16, F16_2, SP, SP2, WS, Random, case


def check_form(opcode: Opcode, m: int, a_in: str, largest: bool, rng: Random) -> bool:
    """Compare tensor memory after a random instruction. Return False if A has no public layout."""
    kind, packed = KINDS[opcode.kind], "mxf4" in opcode.kind
    # In layout B, block scales require an N that is a multiple of 64.
    columns = [n for n in opcode.columns if not kind.scales or m > 64 * opcode.cta_group or n % 64 == 0]
    n = columns[-1] if largest else int(rng.choice(columns))
    instructions = [i for i in instructions_of(opcode) if (i.m, i.n) == (m, n)]
    if a_in == "tensor":
        # No public source states the layout of A for unpacked elements below one byte, or for most '.ws' with M < 128.
        placed = not opcode.weight_stationary or m == 128
        instructions = [i for i in instructions if packed or (i.a.bits >= 8 and (placed or (m, i.a.bits) == (64, 16)))]
        if not instructions:
            return False
    i = instructions[rng.integers(len(instructions))]
    flags = {f"negate_{name}": bool(kind.negates and rng.integers(2)) for name in "ab"}
    flags["transpose_a"] = bool(kind.transposes and a_in == "shared" and rng.integers(2))
    whole = i.container_bits > 8 or n % (16 * opcode.cta_group) == 0
    flags["transpose_b"] = bool(kind.transposes and whole and rng.integers(2))
    swizzles = [
        "128B with 32B atoms"
        if flags[f"transpose_{name}"] and fmt.name == "tf32"
        else str(rng.choice(["none", "32B", "64B", "128B"]))
        for name, fmt in (("a", i.a), ("b", i.b))
    ]
    halved = m // opcode.cta_group == 64 and not opcode.weight_stationary and (opcode.sparse or opcode.cta_group == 1)
    options: dict[str, Any] = {**flags, "lane": 16 * int(rng.integers(2)) if halved else 0}
    given = case(
        str(opcode), rng, instruction=i, a_in=a_in, swizzles=(swizzles[0], swizzles[1]), options=options,
        distribution=str(rng.choice(distributions(i))),
    )  # fmt: skip
    before = given.arguments["tmem"].copy(), given.arguments["smem"].copy()
    np.testing.assert_array_equal(given.run(), given.expected(), f"{i}, A in {a_in} memory, {options}, {swizzles}")
    for image, copy in zip((given.arguments["tmem"], given.arguments["smem"]), before, strict=True):
        np.testing.assert_array_equal(image, copy)
    return True


@pytest.mark.parametrize("kind", KINDS)
def test_every_shape(kind: str, rng: Random) -> None:
    """D is right for every opcode and M, with the largest and a random N, and with A in shared or tensor memory."""
    for opcode in (opcode for opcode in every_opcode() if opcode.kind == kind):
        for m in opcode.rows:
            for a_in in ("shared", "tensor"):
                checked = [check_form(opcode, m, a_in, largest, rng) for largest in (True, False)]
                assert all(checked) or (a_in == "tensor" and opcode.weight_stationary)


@pytest.mark.parametrize("m", [32, 64, 128])
@pytest.mark.parametrize("head", [WS, DENSE_WS])
def test_zero_columns(head: str, m: int, rng: Random) -> None:
    given = case(f"{head}.kind::f16", rng, m=m, n=128)
    # If bit 39 is set, this mask sets 3 columns of B to zero, keeps the next 4 columns, and so on.
    mask = int(rng.integers(1 << 36)) & 0xF03030303 | 2 << 40 | 3 << 48
    np.testing.assert_array_equal(given.run(zero_column_mask=mask), given.expected())
    zero = decode_column_mask(mask | 1 << 39, m, 128, 0, "the mask").zero
    assert 40 < zero.sum() < 64
    given.b[:, zero] = 0
    np.testing.assert_array_equal(given.run(zero_column_mask=mask | 1 << 39), given.expected())


def test_columns_are_shifted(rng: Random) -> None:
    """A shift in the column mask has the same effect as moving the columns of B in shared memory."""
    for m, shift in ((128, 32), (64, 9), (32, 16)):
        given = case(f"{DENSE_WS}.kind::f16", rng, m=m, n=128, options={"max_shift": 32})
        wide = given.run(zero_column_mask=shift << 56)
        moved = given.arguments["smem"].copy()
        rows = np.arange(128 + shift)
        assert given.arguments["b"] >> 32 & 0x3FFF  # B's stride byte offset is not zero
        stride, leading = (given.arguments["b"] >> low & 0x3FFF for low in (32, 16))
        start = given.arguments["b"] & 0x3FFF
        places = 16 * (start + rows[:, None] // 8 * stride + np.arange(2) * leading) + rows[:, None] % 8 * 16
        at = places[..., None] + np.arange(16)
        moved[at[:128]] = given.arguments["smem"][at[shift : 128 + shift]]
        np.testing.assert_array_equal(wide, given.run(smem=moved))
    with pytest.raises(sptc.OperandError, match="shifts by 17 columns, but M = 32 allows 16"):
        given.run(zero_column_mask=17 << 56)


def test_negation_of_spliced_halves(rng: Random) -> None:
    """Negation inverts the product's sign (measured for ``wgmma``), even if a nibble joins halves of two tf32."""
    given = case(f"{SP}.kind::tf32", rng, n=64, any_nibble=True, options={"negate_b": True})
    np.testing.assert_array_equal(given.run(metadata="silicon"), given.expected())
    given.a, given.b = given.a ^ np.uint32(1 << 31), given.b ^ np.uint32(1 << 31)
    assert (given.run(metadata="silicon") != given.expected()).any()


@pytest.mark.parametrize("head", [SP, SP2, DENSE, DENSE2])
@pytest.mark.parametrize("kind", ["tf32", "f16", "f8f6f4", "i8"])
def test_a_is_shifted(head: str, kind: str, rng: Random) -> None:
    """D is computed from the unshifted A. Then each lane, except every 32nd lane, gets the A of the next lane."""
    m = 128 if head == DENSE2 else 128 * int(head[-1])
    given = case(f"{head}.kind::{kind}.ashift", rng, m=m, n=64, a_in="tensor")
    expected = given.expected()
    a_at = given.arguments["a"]
    for lane in (lane for lane in range(128) if lane % 32 != 31):
        expected[..., lane, a_at : a_at + 8] = given.arguments["tmem"][..., lane + 1, a_at : a_at + 8]
    np.testing.assert_array_equal(given.run(), expected)


@pytest.mark.parametrize("text", [F16, f"{SP}.kind::tf32"])
def test_scaled_input_d(text: str, rng: Random) -> None:
    given = case(text, rng, n=8, d="f32")
    given.arguments["tmem"][3, AT.d : AT.d + 4] = [0, 1 << 31, 0x7F800000, 0x7FC00001]
    given.c[3, :4] = [0, 1 << 31, 0x7F800000, 0x7FC00001]
    for exponent in (0, 1, 15):
        scaled = (given.c.view(np.float32) * np.float32(2.0**-exponent)).view(np.uint32)
        np.testing.assert_array_equal(given.run(scale_input_d=exponent), given.expected(scaled))


def test_scaled_half_precision(rng: Random) -> None:
    given = case(F16, rng, n=8, d="f16", distribution="narrow")
    given.c[0, 0] = 0x3C00  # 1.0, which is not subnormal when divided by 8
    scaled = (given.c.view(np.float16) / np.float16(8)).view(np.uint16)
    given.arguments["tmem"][0, AT.d] = 0x3C00
    np.testing.assert_array_equal(given.run(scale_input_d=3), given.expected(scaled))
    for subnormal, exponent in ((0x0001, 1), (0x83FF, 15), (0x0400, 1), (0x3C00, 15)):
        given.arguments["tmem"][0, AT.d] = subnormal
        with pytest.raises(sptc.OperandError, match=rf"must not be {exponent}, which makes an element of D subnorm"):
            given.run(scale_input_d=exponent)


def test_without_input_d_and_with_disabled_lanes(rng: Random) -> None:
    given = case(F16, rng, n=8, d="f16", distribution="special")
    zero = np.zeros_like(given.c)
    np.testing.assert_array_equal(given.run(enable_input_d=False), given.expected(zero))
    np.testing.assert_array_equal(given.run(enable_input_d=np.False_, scale_input_d=15), given.expected(zero))
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
        at = given[0].ctas - 1  # index of the batch axis in the images
        images = {name: np.stack([one.arguments[name] for one in given], at) for name in ("tmem", "smem")}
        np.testing.assert_array_equal(given[0].run(**images), np.stack([one.run() for one in given], at))
        two = images["smem"].take([0, 1], at)
        crossed = given[0].run(tmem=np.expand_dims(images["tmem"], at + 1), smem=two)
        np.testing.assert_array_equal(crossed[..., 2, 1, :, :], given[2].run(smem=given[1].arguments["smem"]))
        with pytest.raises(sptc.OperandError, match=r"do not broadcast: tmem \(3,\), smem \(2,\)"):
            given[0].run(tmem=images["tmem"], smem=two)
    given = case(F16, rng, n=8)
    smem = np.stack([given.arguments["smem"]] * 19)
    smem[18] ^= smem[18] >> 1
    result = given.run(smem=smem)
    np.testing.assert_array_equal(result[:18], np.stack([given.expected()] * 18))
    np.testing.assert_array_equal(result[18], given.run(smem=smem[18]))
