"""The one rounding where it is hardest, with the widths of the presets' units and others, against its bench's model."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray
from sptc.isa.numerics import zero_exponent_for
from sptc.rtl.cells.max_exponent import ALIGNED_EXPONENT_BITS
from sptc.rtl.config import PRESETS, CoreConfig
from sptc.rtl.round import ResultCode, RoundStage
from sptc.rtl.widths import Widths
from sptc.sim.benches.rounding import rounded

Random = np.random.Generator
CONFIGURATIONS = {"hopper": PRESETS["hopper"], "rtx-blackwell": PRESETS["rtx-blackwell"],
                  "f16": CoreConfig(name="f16", formats=("f16",))}  # fmt: skip
#: Fraction bits and exponents of the smallest normal and the largest number.
FLOATS = {ResultCode.F32: (23, -126, 127), ResultCode.E8M13: (13, -126, 127), ResultCode.F16: (10, -14, 15)}
FLAGS = ("nan", "positive_inf", "negative_inf")


class Rounder:
    """A :class:`RoundStage` and how it is evaluated; grid bits are those that a sum has below the largest exponent."""

    def __init__(self, stage: RoundStage, grid_bits: int, evaluate: Callable) -> None:
        self.stage, self.grid_bits, self.evaluate = stage, grid_bits, evaluate

    def check(self, result: ResultCode, totals: ArrayLike, exponents: ArrayLike, **flags: ArrayLike) -> NDArray:
        """Compare the results of those sums that fit; the exponents are what one is worth above the grid."""
        total, exponent = np.broadcast_arrays(np.asarray(totals), np.asarray(exponents))
        bits = self.stage.total_bits - 1
        given = {name: np.broadcast_to(flags.get(name, 0), total.shape) for name in (*FLAGS, "saturate")}
        headroom = bits - self.grid_bits + exponent - FLOATS[result][1]
        given |= {"total": total, "headroom": headroom, "result": np.full(total.shape, result.value)}
        fits = (total >= -(1 << bits)) & (total <= (1 << bits) - 1)
        assert fits.any()
        given = {name: values[fits] for name, values in given.items()}
        got = self.evaluate(**given)
        for name, expected in rounded(self.stage, given).items():
            wrong = np.flatnonzero(got[name] != expected)
            assert not len(wrong), f"{name} of {given['total'][wrong[0]]} at {exponent[fits][wrong[0]]}"
        return got["output"]


@pytest.fixture(
    scope="module",
    params=["hopper", *(pytest.param(name, marks=pytest.mark.regression) for name in ("rtx-blackwell", "f16"))],
)
def unit(request: pytest.FixtureRequest, compiled: Callable) -> tuple[Rounder, dict[ResultCode, int]]:
    """Return the rounding of a unit, and the least exponent of a sum for each result."""
    config = CONFIGURATIONS[request.param]
    widths, bits = Widths(config), config.alignment_bits
    floors = {code: zero_exponent_for(bits, half_result=code is ResultCode.F16) for code in FLOATS}
    if widths.packed:  # groups reach lower, and give f32 alone
        floors[ResultCode.F32] = zero_exponent_for(widths.grid_bits, grouped=True)
    # Without headroom for integers they are tried at the bottom.
    integer_bits = widths.integer_bits if ResultCode.S32 in widths.results else 0
    stage = RoundStage(widths.total_bits, integer_bits, set(ResultCode))
    return Rounder(stage, widths.grid_bits, compiled(stage)), floors


def directed(total_bits: int, floor: int, result: ResultCode) -> NDArray[np.int64]:
    """Return sums around every power of two, ties and carries among them, at the exponents that matter."""
    fraction_bits, smallest, largest = FLOATS[result]
    magnitudes = {0, 1, 2, 3}
    for top in range(total_bits):
        magnitudes |= {(1 << top) + delta for delta in (-1, 0, 1)}
        for low in range(max(0, top - fraction_bits - 3), max(0, top - fraction_bits) + 3):
            last = 1 << low
            for fraction in (1 << top, (2 << top) - last, (1 << top) + last):
                # A tie with an even and an odd last bit, one more and one less than a tie, and all ones.
                magnitudes |= {fraction + delta for delta in (last >> 1, (last >> 1) - 1, (last >> 1) + 1, -1, last)}
    near = {floor, floor + 1, floor + 3, smallest - 1, smallest, largest - 7, largest, 290}
    exponents = sorted(e for e in near if e >= floor)
    rows = [((-1) ** (i + j) * m, e) for i, m in enumerate(sorted(magnitudes)) for j, e in enumerate(exponents)]
    return np.array(rows).T


@pytest.mark.parametrize("result", FLOATS)
def test_sums(unit: tuple[Rounder, dict[ResultCode, int]], rng: Random, result: ResultCode) -> None:
    """Directed ones, some of every length over the whole range and at both its ends, and those just above zero."""
    rounder, floors = unit
    bits, low, (_, smallest, largest) = rounder.stage.total_bits, floors[result], FLOATS[result]
    rounder.check(result, *directed(bits, low, result))
    count = 2000
    totals = rng.choice([-1, 1], count) * rng.integers(0, 1 << rng.integers(1, bits - 1, count, endpoint=True))
    ends = rng.choice([low, smallest + 5, largest - 12], count) + rng.integers(0, 15, count)
    rounder.check(result, totals, np.where(rng.random(count) < 0.5, rng.integers(low, largest + 20, count), ends))
    rounder.check(result, np.arange(-600, 600), low)
    assert not rounder.check(result, [-1, 0, 0], [low, low, 290]).any()  # never -0


@pytest.mark.parametrize("result", FLOATS)
def test_special_results(unit: tuple[Rounder, dict[ResultCode, int]], result: ResultCode) -> None:
    """A NaN hides everything; both infinities are one; one infinity hides the sum and has its own sign."""
    rounder, floors = unit
    *flags, total, saturate = (axis.ravel() for axis in np.indices((2, 2, 2, 4, 2)))
    for exponent in (floors[result], 0, 300):
        totals = np.array([0, 5 << 20, -5 << 20, -1])[total]
        rounder.check(result, totals, exponent, **dict(zip(FLAGS, flags, strict=True)), saturate=saturate)


@pytest.mark.parametrize("saturate", [False, True])
def test_integers_wrap_or_saturate(unit: tuple[Rounder, dict[ResultCode, int]], rng: Random, saturate: bool) -> None:
    """Whatever the headroom and the special inputs say; a sum that wraps says so."""
    stage = unit[0].stage
    limit = 1 << (stage.total_bits - 1 - stage.integer_bits)
    middles = (-(1 << 32), -(1 << 31), 0, 1 << 31, 1 << 32, limit - 3, 3 - limit)
    edges = [middle + delta for middle in middles for delta in range(-3, 3)]
    random = rng.choice([-1, 1], 3000) * rng.integers(0, 1 << rng.integers(1, limit.bit_length(), 3000))
    values = np.concatenate([edges, random, rng.integers(-limit, limit, 1000)])
    values = values[(values >= -limit) & (values < limit)]
    beyond = (values < -(1 << 31)) | (values >= 1 << 31)
    assert {-1, 1} == set(np.sign(values[beyond]).tolist())
    got = unit[0].evaluate(
        total=(values << stage.integer_bits) + rng.integers(0, 1 << stage.integer_bits, len(values)),
        headroom=rng.integers(0, 1 << ALIGNED_EXPONENT_BITS, len(values)),
        result=ResultCode.S32.value,
        saturate=int(saturate),
        nan=rng.integers(0, 2, len(values)),
        positive_inf=rng.integers(0, 2, len(values)),
    )
    expected = np.clip(values, -(1 << 31), (1 << 31) - 1) if saturate else values
    np.testing.assert_array_equal(got["output"], expected & 0xFFFFFFFF)
    # With it the sign of the whole sum can be told, as long as that has no more than 33 bits.
    meaningful = (values >= -(1 << 32)) & (values < 1 << 32)
    np.testing.assert_array_equal(got["overflow"][meaningful], (beyond & (not saturate))[meaningful])


#: Width of a sum and alignment bits: few bits above the grid, or many below the last one of a result.
OTHERS = [
    *(("tf32", *sizes) for sizes in ((25, 32), (24, 16), (20, 16), (40, 4))),
    *(("f16", *sizes) for sizes in ((25, 16), (30, 32), (20, 64))),
    ("e2m1", 8, 4),
    (32, 24),  # as wide as a power of two
    (64, 40),
]


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("sizes", OTHERS, ids=str)
def test_the_least_sums_of_other_datapaths(simulate: Callable, rng: Random, sizes: tuple) -> None:
    total_bits, alignment_bits = sizes[0], sizes[1]
    if isinstance(sizes[0], str):
        word, alignment_bits, step_bytes = sizes
        fields = {"alignment_bits": alignment_bits, "fp8_alignment_bits": min(25, alignment_bits)}
        total_bits = Widths(CoreConfig(name="other", formats=(word,), step_bytes=step_bytes, **fields)).total_bits
    stage = RoundStage(total_bits, 0, {ResultCode.F32, ResultCode.F16})
    rounder = Rounder(stage, alignment_bits, lambda **given: simulate(stage, **given))
    bits = min(25, total_bits - 2)
    for result in stage.results:
        low = zero_exponent_for(alignment_bits, half_result=result is ResultCode.F16)
        random = rng.integers(-(1 << bits), 1 << bits, 100) >> rng.integers(0, bits, 100)
        for exponent in (low, low + 1, low + 5):
            rounder.check(result, np.concatenate([np.arange(-20, 20), random]), exponent)
