"""The largest exponent, and shifters that drop what falls off, against exact integers."""

from collections.abc import Callable
from fractions import Fraction
from math import floor

import numpy as np
import pytest
from sptc.rtl.align import ALIGNED_EXPONENT_BITS, Align, MaxExponent

Random = np.random.Generator
LOWEST, HIGHEST = -(1 << (ALIGNED_EXPONENT_BITS - 1)), (1 << (ALIGNED_EXPONENT_BITS - 1)) - 1


@pytest.mark.parametrize("count", range(1, 41))
def test_the_largest_of_so_many(simulate: Callable, rng: Random, count: int) -> None:
    """Wherever it stands, and whatever the spread of the others."""
    spread = rng.integers(LOWEST, HIGHEST, (20, count), endpoint=True)
    close = rng.integers(-4, 4, (20, count), endpoint=True)
    lone = np.full((count, count), LOWEST)  # nothing counts but one exponent, at every place in turn
    np.fill_diagonal(lone, LOWEST + 1)
    lone_small = np.where(np.eye(count, dtype=bool), -1, -2)
    extremes = rng.choice([LOWEST, -1, 0, HIGHEST], (20, count))
    equal = np.broadcast_to(np.array([[LOWEST], [-1], [0], [HIGHEST]]), (4, count))
    exponents = np.concatenate([spread, close, lone, lone_small, extremes, equal])
    got = simulate(MaxExponent(count), exponents=exponents)
    np.testing.assert_array_equal(got["largest"], exponents.max(axis=1))


def aligned(magnitude: int, distance: int, padding: int, cleared: list[int]) -> int:
    """Return what the contract says, in exact arithmetic."""
    value = floor(Fraction(magnitude) * Fraction(2) ** (padding - distance))
    for bits in cleared:
        value = value >> bits << bits
    return value


def check(align: Align, simulate: Callable, magnitudes: np.ndarray, distances: np.ndarray, shorten: np.ndarray) -> None:
    ports = {"magnitude": magnitudes, "distance": distances} | ({"shorten": shorten} if align.short else {})
    got = simulate(align, **ports)
    cleared = [[bits for i, bits in enumerate(align.short) if mask >> i & 1] for mask in shorten.tolist()]
    columns = zip(magnitudes.tolist(), distances.tolist(), cleared, strict=True)
    assert got["output"].tolist() == [aligned(m, d, align.padding, c) for m, d, c in columns]


#: Width, padding, shortenings: products of 11, 8, 4 and 2 bits, accumulators and groups of the presets, and odd ones.
SHAPES = [
    (22, 5, (12,)),
    (22, 4, ()),
    (16, 11, (12,)),
    (8, 19, ()),
    (4, 23, (12,)),
    (24, 2, (12,)),
    (24, 12, (10, 22)),
    (24, 1, (11,)),
    (24, -6, (2, 9)),
    (19, 27, ()),
    (19, 0, ()),
    (5, -4, ()),
    (6, -3, (1, 2, 3)),
    (1, 0, ()),
    (1, 31, (16,)),
    (16, 0, (16,)),
]


@pytest.mark.parametrize(("bits", "padding", "short"), SHAPES)
def test_every_distance(simulate: Callable, rng: Random, bits: int, padding: int, short: tuple[int, ...]) -> None:
    """To well beyond the width, with every mask of shortenings; at each the full, the least and some random numbers."""
    align = Align(bits, padding, short)
    assert align.output_bits == bits + padding
    near = np.arange(2 * align.output_bits + 70)
    far = np.concatenate([1 << np.arange(ALIGNED_EXPONENT_BITS - 1), (2 << np.arange(ALIGNED_EXPONENT_BITS - 1)) - 1])
    tried = [(1 << bits) - 1, 1, 1 << (bits - 1), *rng.integers(0, 1 << bits, 2).tolist()]
    rows = [(m, d, mask) for d in {*near.tolist(), *far.tolist()} for m in tried for mask in range(1 << len(short))]
    check(align, simulate, *np.array(rows).T)


@pytest.mark.parametrize(("bits", "padding", "short"), [(22, 5, (12,)), (24, 12, (10, 22)), (24, -6, (2, 9))])
def test_random_terms(simulate: Callable, rng: Random, bits: int, padding: int, short: tuple[int, ...]) -> None:
    magnitudes = rng.integers(0, 1 << rng.integers(1, bits, 2000, endpoint=True))
    distances = rng.integers(0, bits + padding + 4, 2000)
    check(Align(bits, padding, short), simulate, magnitudes, distances, rng.integers(0, 1 << len(short), 2000))
