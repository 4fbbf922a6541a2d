"""The golden model is also right for arithmetic parameters that no architecture has."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from sptc.golden.matrix import multiply_by
from sptc.golden.rounding import round_sum
from sptc.isa.formats import FORMATS, Format
from sptc.isa.instructions import parse
from sptc.isa.numerics import Alignment, Rounding, numerics
from sptc.verify.directed import directed_matrices

E8M13 = replace(FORMATS["f32"], fraction_bits=13)
#: For each rounding mode: the format whose bits it keeps, and whether it rounds to nearest (or toward zero).
KEPT: dict[Rounding, tuple[Format, bool]] = {
    Rounding.RZ_F32: (FORMATS["f32"], False), Rounding.RNE_F32: (FORMATS["f32"], True),
    Rounding.RZ_E8M13: (E8M13, False), Rounding.RNE_E8M13: (E8M13, True), Rounding.RNE_F16: (FORMATS["f16"], True),
    Rounding.RZ_F16: (FORMATS["f16"], False),
}  # fmt: skip


def rounded(value: float, fmt: Format, nearest: bool) -> float:
    """Round a value to a format with exact fractions, to nearest or toward zero."""
    exact = Fraction(value)
    last = Fraction(2) ** (max(math.frexp(value)[1] - 1, fmt.minimum_exponent) - fmt.fraction_bits)
    units = abs(exact) / last
    result = (round(units) if nearest else units.numerator // units.denominator) * last
    if result >= Fraction(2) ** (fmt.maximum_exponent + 1):
        return np.copysign(np.inf, value)
    return float(result) if value > 0 else 0.0 - float(result)


@pytest.mark.parametrize("rounding", KEPT, ids=lambda rounding: rounding.value)
def test_every_rounding(rounding: Rounding, rng: np.random.Generator) -> None:
    fmt, nearest = KEPT[rounding]
    last = fmt.minimum_exponent - fmt.fraction_bits
    exponents = rng.integers(last - 3, fmt.maximum_exponent + 3, 3000)
    exponents[:600] = rng.choice([last, fmt.maximum_exponent - fmt.fraction_bits, fmt.maximum_exponent], 600)
    significands = rng.integers(1, 1 << rng.integers(1, 48, 3000))
    ties = 2 * rng.integers(1 << fmt.fraction_bits, 2 << fmt.fraction_bits, 3000) + 1
    significands = np.where(rng.random(3000) < 0.3, ties, significands)
    values = np.ldexp(significands.astype(np.float64), exponents - np.frexp(significands)[1])
    beside_infinity = 2.0 ** (fmt.maximum_exponent + 1) * (1 - 2.0 ** -np.arange(1, 53))
    values = np.concatenate([values * rng.choice([-1, 1], 3000), beside_infinity, -beside_infinity, [-0.0]])
    expected = [rounded(value, fmt, nearest) for value in values.tolist()]
    result = round_sum(values, rounding)
    assert result.tolist() == expected
    assert not np.signbit(result[result == 0]).any()


def test_a_bit_more_overflows_nothing() -> None:
    """With F = 26, one bit more than any architecture has for f16, the largest products do not overflow 32-bit sums."""
    i = parse("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    operands = directed_matrices(i, np.random.default_rng(0), 1)
    operands.a[:], operands.b[:], operands.c[:] = 0x7BFF, 0x7BFF, 0
    more = replace(numerics(i, "sm_90"), alignment_bits=26)
    assert (multiply_by(i, more, "mux4", operands).view(np.float32) == 16 * 65504.0**2).all()


def test_the_steps_of_an_emulation_can_be_cut() -> None:
    """A product of 1 is lost in a step with products of 2^30 that cancel, but kept if it is in another step."""
    i = parse("mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32")
    operands = directed_matrices(i, np.random.default_rng(0), 1)
    operands.a[:], operands.b[:], operands.c[:] = 0, 0x3C, 0
    p = numerics(i, "sm_90")
    operands.a[..., 0], operands.a[..., 1], operands.b[:, :2] = 0x78, 0xF8, 0x78  # 2^30 and -2^30, which cancel
    operands.a[..., 28], operands.b[:, 28] = 0x3C, 0x3C  # 1 * 1, in the second half of the step
    whole = multiply_by(i, p, "mux4", operands).view(np.float32)
    halves = multiply_by(i, replace(p, step=p.step // 2), "mux4", operands).view(np.float32)
    assert (whole == 0).all()
    assert (halves == 1).all()


@pytest.mark.parametrize(
    ("alignment", "small", "d"),
    [
        (Alignment.TOWARD_ZERO, -1, 0), (Alignment.DOWN, -1, -(2.0**6)), (Alignment.DOWN, 1, 0),
        (Alignment.NEAREST, -1, 0), (Alignment.NEAREST, -40, -(2.0**6)), (Alignment.NEAREST, 40, 2.0**6),
        (Alignment.TOWARD_ZERO, -65, -(2.0**6)), (Alignment.DOWN, -65, -(2.0**7)),
    ],
)  # fmt: skip
def test_every_alignment(alignment: Alignment, small: int, d: float) -> None:
    """With cancelling products of 2^30 and F = 24, each alignment mode rounds a smaller term to a multiple of 2^6."""
    i = parse("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    operands = directed_matrices(i, np.random.default_rng(0), 1)
    changed = replace(numerics(i, "sm_90"), alignment=alignment)
    for in_accumulator in (False, True):
        operands.a[:], operands.b[:], operands.c[:] = 0, 0x3C00, 0
        operands.a[..., 0], operands.a[..., 1], operands.b[:, :2] = 0x7800, 0xF800, 0x7800
        if in_accumulator:
            operands.c[:] = np.float32(small).view(np.uint32)
        else:
            operands.a[..., 5] = np.float16(small).view(np.uint16)
        assert (multiply_by(i, replace(changed, alignment_bits=24), "mux4", operands).view(np.float32) == d).all()


def test_a_negative_term_too_small_for_its_type_is_rounded_down() -> None:
    """If alignment rounds down, a tiny negative product becomes minus one unit of the last bit that is kept."""
    i = parse("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    operands = directed_matrices(i, np.random.default_rng(0), 1)
    operands.a[:], operands.b[:] = 0, 1
    operands.a[..., 5] = 0x8001
    operands.c[:], operands.c[:, :8] = 0x7F7FFFFF, 0xFF7FFFFF
    d = multiply_by(i, replace(numerics(i, "sm_90"), alignment=Alignment.DOWN), "mux4", operands)
    assert (d[:, 8:] == 0x7F7FFFFE).all()
    assert (d[:, :8] == 0xFF7FFFFF).all()  # minus a quarter unit in the last place is truncated


def test_groups_are_aligned_alike() -> None:
    i = parse("mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0")
    operands = directed_matrices(i, np.random.default_rng(0), 1)
    operands.a[:], operands.b[:], operands.c[:] = 0, 2, 0  # 2 is the e2m1 code of 1.0
    operands.a[..., 0], operands.a[..., 16], operands.a[..., 32] = 2, 10, 10
    operands.scale_a[..., 0], operands.scale_a[..., 1], operands.scale_b[:] = 127 + 60, 127, 127
    p = numerics(i, "sm_120")
    results = {}
    for alignment in Alignment:
        d = multiply_by(i, replace(p, alignment=alignment), "mux3", operands).view(np.float32)
        results[alignment] = np.unique(d).tolist()
    assert results == {Alignment.TOWARD_ZERO: [0.0], Alignment.DOWN: [-(2.0**25)], Alignment.NEAREST: [0.0]}
