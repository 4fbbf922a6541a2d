"""Groups of 16 products of 4-bit elements, against exact integers and fractions."""

from collections.abc import Callable
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from sptc.rtl.config import CoreConfig
from sptc.rtl.product_group import MAXIMUM_SCALED_GROUP, SCALED_GROUP_FRACTION_BITS, ProductGroup
from sptc.rtl.scale import ScaleCode

Random = np.random.Generator
SIZE = 16
PLAIN = CoreConfig(name="test", formats=("s4", "u4"))
SCALED = CoreConfig(name="test", formats=("s4", "e2m1/4"), scales=("ue8m0", "ue4m3"))
#: Magnitudes of e2m1 in halves.
HALVES = (0, 1, 2, 3, 4, 6, 8, 12)


def products(rng: Random, count: int, factors: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return signs and magnitudes of groups: random ones, extremes, groups that cancel, and empty ones."""
    magnitudes = rng.choice(factors, (count, SIZE)) * rng.choice(factors, (count, SIZE))
    signs = rng.integers(0, 2, (count, SIZE))
    largest = max(factors) ** 2
    magnitudes[:4], magnitudes[4] = largest, 0
    signs[0], signs[1], signs[2] = 0, 1, np.arange(SIZE) % 2
    half = rng.integers(0, 2, (20, SIZE // 2))
    magnitudes[20:40] = np.tile(magnitudes[20:40, : SIZE // 2], 2)
    signs[20:40] = np.concatenate([half, 1 - half], axis=1)
    magnitudes[40:56] = np.eye(SIZE, dtype=int) * factors[1] ** 2  # one small product, at every place in turn
    magnitudes[56:60] = 0
    return signs, magnitudes


def ports(signs: np.ndarray) -> np.ndarray:
    return signs @ (1 << np.arange(SIZE))


def totals(signs: np.ndarray, magnitudes: np.ndarray) -> np.ndarray:
    return np.where(signs, -magnitudes, magnitudes).sum(axis=1)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("made", [PLAIN, SCALED], ids=["plain", "scaled"])
def test_the_sum_is_exact(simulate: Callable, rng: Random, made: CoreConfig) -> None:
    """Of products of floats, whose signs stand beside them: magnitudes of up to 15 by 15."""
    signs, magnitudes = products(rng, 300, tuple(range(16)))
    assert (totals(signs[20:40], magnitudes[20:40]) == 0).all()
    got = simulate(ProductGroup(made), signs=ports(signs), products=magnitudes)
    np.testing.assert_array_equal(got["total"], totals(signs, magnitudes))
    assert {16 * 225, -16 * 225, 0} <= set(got["total"].tolist())


@pytest.mark.regression
@pytest.mark.parametrize("made", [PLAIN, SCALED], ids=["plain", "scaled"])
def test_the_sum_of_integers_is_exact(simulate: Callable, rng: Random, made: CoreConfig) -> None:
    """They have their signs in them: every product of s4 and u4, and of both."""
    factors = np.arange(-8, 8), np.arange(16)
    drawn = [rng.choice(factors[i], (200, SIZE)) * rng.choice(factors[j], (200, SIZE)) for i in (0, 1) for j in (0, 1)]
    ends = np.array([64, -56, 225, -120, 0])[:, None].repeat(SIZE, axis=1)
    alone = [np.eye(SIZE, dtype=int) * value for value in (-1, 1, -120, 225)]
    given = np.concatenate([*drawn, ends, *alone])
    got = simulate(ProductGroup(made), products=given)
    np.testing.assert_array_equal(got["total"], given.sum(axis=1))
    assert {16 * 225, -16 * 120, 0} <= set(got["total"].tolist())


def test_without_scales_there_is_only_a_sum(simulate: Callable, rng: Random) -> None:
    signs, magnitudes = products(rng, 60, tuple(range(16)))
    got = simulate(ProductGroup(PLAIN), signs=ports(signs), products=magnitudes, scale=1, scale_a=255, scale_b=200)
    for name in ("participates", "sign", "magnitude", "exponent", "nan"):
        assert not got[name].any()


def scale_value(code: int, scale: ScaleCode) -> float:
    if scale is ScaleCode.UE8M0:
        return float(np.uint8(code).view(ml_dtypes.float8_e8m0fnu))
    return float(np.uint8(code & 0x7F).view(ml_dtypes.float8_e4m3fn))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("scale", [ScaleCode.UE8M0, ScaleCode.UE4M3])
def test_a_scaled_group(simulate: Callable, rng: Random, scale: ScaleCode) -> None:
    """Its value, whether it counts in the maximum, and a NaN scale."""
    count = 600
    signs, magnitudes = products(rng, count, HALVES)
    scales = rng.integers(0, 256, (2, count))
    scales[:, rng.random(count) < 0.1] = 0x7F
    scales[1, rng.random(count) < 0.1] = 0
    scales[:, :2] = 0x7E  # the largest ue4m3, on the two largest sums
    got = simulate(
        ProductGroup(SCALED),
        signs=ports(signs),
        products=magnitudes,
        scale=scale.value,
        scale_a=scales[0],
        scale_b=scales[1],
    )
    sums = totals(signs, magnitudes)
    for i in range(count):
        values = [scale_value(code, scale) for code in scales[:, i].tolist()]
        assert got["nan"][i] == any(np.isnan(values))
        if any(np.isnan(values)):
            continue
        exact = Fraction(int(sums[i]), 4) * Fraction(values[0]) * Fraction(values[1])
        sign = -1 if got["sign"][i] else 1
        unit = Fraction(2) ** int(got["exponent"][i] - SCALED_GROUP_FRACTION_BITS)
        assert sign * int(got["magnitude"][i]) * unit == exact
        # A sum that cancels still counts; products that are all zero, or a scale of zero, do not.
        assert got["participates"][i] == (magnitudes[i].any() and values[0] * values[1] != 0)
    if scale is ScaleCode.UE4M3:
        assert got["magnitude"][:2].tolist() == [16 * 144 * 14 * 14] * 2
    cancelled = (sums == 0) & magnitudes.any(axis=1) & (got["nan"] == 0)
    assert got["participates"][cancelled].any()


def test_the_largest_scaled_group_fits(simulate: Callable) -> None:
    """All products 36, both scale significands 15/8, all of one sign."""
    got = simulate(
        ProductGroup(SCALED),
        signs=[0, 0xFFFF],
        products=np.full((2, SIZE), 144),
        scale=ScaleCode.UE4M3.value,
        scale_a=0x77,
        scale_b=0x0F,
    )
    assert got["magnitude"].tolist() == [MAXIMUM_SCALED_GROUP] * 2
    assert got["sign"].tolist() == [0, 1]
    assert got["exponent"].tolist() == [7 - 6] * 2
