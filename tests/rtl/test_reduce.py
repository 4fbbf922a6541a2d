"""Accumulator trees against exact sums."""

from collections.abc import Callable

import numpy as np
import pytest
from sptc.rtl.reduce import SumTree, sum_bits

Random = np.random.Generator


@pytest.mark.parametrize(
    ("count", "bits"), [*((count, 28) for count in range(1, 41)), (4, 13), (7, 1), (16, 9), (32, 17), (33, 1), (40, 49)]
)
def test_so_many_terms(simulate: Callable, rng: Random, count: int, bits: int) -> None:
    """All at their most negative, all at their most positive, one alone at every place, and random ones."""
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    alone = np.zeros((count, count), int)
    np.fill_diagonal(alone, low)
    extremes = np.array([[low], [high]]).repeat(count, axis=1)
    random = rng.integers(low, high, (16, count), endpoint=True)
    corners = rng.choice([low, high, 0], (16, count))
    terms = np.concatenate([extremes, alone, random, corners])
    got = simulate(SumTree(count, bits), terms=terms)
    np.testing.assert_array_equal(got["total"], terms.sum(axis=1))


@pytest.mark.parametrize("bits", [1, 2, 9, 28])
def test_the_width_of_a_sum_is_enough_and_no_bit_wider(bits: int) -> None:
    for count in range(1, 70):
        width, lowest = sum_bits(bits, count), -count * 2 ** (bits - 1)
        assert -(2 ** (width - 1)) <= lowest < -(2 ** (width - 2))
