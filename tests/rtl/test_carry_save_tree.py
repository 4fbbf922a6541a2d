"""Carry-save trees against exact sums in Python's integers."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray
from sptc.rtl.cells.carry_save_tree import CarrySaveTree, sum_bits
from sptc.rtl.cells.platforms import OPERATORS

Random = np.random.Generator
Results = dict[str, NDArray]
#: Widths of terms: those of units of the presets, and odd mixtures.
MIXED = [
    (28, 28, 22, 22, 14, 39),
    (28,) * 16 + (22,) * 16 + (39,),
    (13, 55, 55, 13, 49),
    (1, 2, 3, 4, 5, 6, 7, 8),
    (9, 1, 1, 9, 1),
    (60, 1),
    (1, 60, 30),
]


def words(rows: Sequence[Sequence[bool]]) -> np.ndarray:
    """Return rows of bits as one number each, lowest first."""
    return np.array([sum(int(bit) << place for place, bit in enumerate(row)) for row in rows], object)


def stimulus(term_bits: Sequence[int], rng: Random) -> list[list[int]]:
    """Return rows of terms: all the least, all the largest, one alone at every place, random ones and corners."""
    lows = [-(1 << bits - 1) for bits in term_bits]
    highs = [-low - 1 for low in lows]
    rows = [lows, highs, [0] * len(lows), [-1] * len(lows)]
    for end in (lows, highs):
        rows += [[value if place == alone else 0 for place, value in enumerate(end)] for alone in range(len(end))]
    for _ in range(16):
        rows.append([int(rng.integers(low, high, endpoint=True)) for low, high in zip(lows, highs, strict=True)])
        rows.append([int(rng.choice([low, high, 0, -1])) for low, high in zip(lows, highs, strict=True)])
    return rows


def check(evaluate: Callable, rng: Random, term_bits: Sequence[int], total_bits: int) -> Results:
    """All with every increment, with none, and with some; one alone at every place."""
    count = len(term_bits)
    rows = stimulus(term_bits, rng)
    ones = [[False] * count, [True] * count, *np.eye(count, dtype=bool).tolist()]
    pairs = [(terms, bits) for terms in rows for bits in (ones[0], ones[1], rng.integers(0, 2, count).tolist())]
    pairs += [(terms, bits) for terms in rows[:4] for bits in ones[2:]]
    got: Results = evaluate(
        **{f"term{index}": [terms[index] for terms, _ in pairs] for index in range(count)},
        increments=words([bits for _, bits in pairs]),
    )
    sums = [sum(map(int, parts)) for parts in zip(got["word0"], got["word1"], got["carry"], strict=True)]
    mask = (1 << total_bits) - 1
    assert [total & mask for total in sums] == [sum(terms) + sum(bits) & mask for terms, bits in pairs]
    return got


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    ("count", "bits"), [*((count, 28) for count in range(1, 41)), (4, 13), (7, 1), (16, 9), (32, 17), (33, 1), (40, 49)]
)
def test_so_many_terms(simulate: Callable, rng: Random, count: int, bits: int) -> None:
    """In words wide enough for every sum; the last increment is left for whoever adds the words."""
    made = CarrySaveTree([bits] * count, sum_bits(bits + 1, count))
    assert len(made.terms) == count
    got = check(partial(simulate, made), rng, [bits] * count, made.total_bits)
    assert set(got["carry"].tolist()) == {0, 1}


@pytest.mark.quick_cases(7)
@pytest.mark.parametrize("term_bits", MIXED, ids=lambda bits: "-".join(map(str, bits[:6])))
@pytest.mark.parametrize("more", [0, 1, 9])
def test_terms_of_different_widths(simulate: Callable, rng: Random, term_bits: tuple[int, ...], more: int) -> None:
    """In words as wide as the widest, where sums wrap, and in wider ones, through which signs must reach."""
    mixed = [term_bits[place] for place in rng.permutation(len(term_bits))]
    check(partial(simulate, CarrySaveTree(mixed, max(term_bits) + more)), rng, mixed, max(term_bits) + more)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("term_bits", [(28,) * 16 + (22,) * 16 + (39,), (9, 1, 1, 9, 1), (28,)], ids=len)
@pytest.mark.parametrize("more", [0, 3])
def test_the_sum_of_what_is_only_simulated(
    compiled: Callable, rng: Random, term_bits: tuple[int, ...], more: int
) -> None:
    """Is in the first word, of the same width."""
    made = CarrySaveTree(term_bits, max(term_bits) + more)
    got = check(compiled(made, OPERATORS), rng, term_bits, made.total_bits)
    assert not got["word1"].any()
    assert not got["carry"].any()


@pytest.mark.parametrize("bits", [1, 2, 9, 28])
def test_the_width_of_a_sum_is_enough_and_no_bit_wider(bits: int) -> None:
    for count in range(1, 70):
        width, lowest = sum_bits(bits, count), -count * 2 ** (bits - 1)
        assert -(2 ** (width - 1)) <= lowest < -(2 ** (width - 2))
