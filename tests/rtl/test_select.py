"""The operand selectors: every pair of selects in both unit widths, then a whole step."""

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from sptc.isa.metadata import RULES, indices, reachable
from sptc.rtl.config import SELECTORS, CoreConfig
from sptc.rtl.metadata import RuleCode
from sptc.rtl.select import OperandSelect, Selector

ONE_HOT_OR_NONE = (0, 1, 2, 4, 8)


@pytest.mark.parametrize("bits", [8, 16])
def test_every_pair_of_selects(simulate: Callable, rng: np.random.Generator, bits: int) -> None:
    rounds = 8
    select0, select1 = np.array([*product(ONE_HOT_OR_NONE, repeat=2)] * rounds).T
    units = rng.integers(0, 1 << bits, (len(select0), 4))
    units[:25] = (1 << bits) - 1 - np.arange(4)  # every bit of a unit matters, and no two units are alike
    got = simulate(Selector(bits), units=units, select0=select0, select1=select1)
    for name, select in (("output0", select0), ("output1", select1)):
        index = np.log2(np.maximum(select, 1)).astype(int)
        picked = np.take_along_axis(units, index[:, None], 1)[:, 0]
        np.testing.assert_array_equal(got[name], np.where(select, picked, 0))


@pytest.mark.parametrize("bits", [8, 16])
def test_units_that_are_not_selected_do_not_matter(simulate: Callable, rng: np.random.Generator, bits: int) -> None:
    units = np.repeat(rng.integers(0, 1 << bits, (1, 4)), 64, 0)
    units[:, [0, 3]] = rng.integers(0, 1 << bits, (64, 2))
    got = simulate(Selector(bits), units=units, select0=0b0010, select1=0b0100)
    assert set(got["output0"]) == {units[0, 1]}
    assert set(got["output1"]) == {units[0, 2]}


MIXED = CoreConfig(name="test", formats=("f16", "s8"), step_bytes=16)
WIDE = CoreConfig(name="test", formats=("tf32", "bf16"), step_bytes=8)
NARROW = CoreConfig(name="test", formats=("s8", "s4"), step_bytes=8)


def words_of(rows: np.ndarray, bits: int) -> list[int]:
    """Return rows of units as one number each, lowest first."""
    return [sum(int(unit) << i * bits for i, unit in enumerate(row)) for row in rows]


@pytest.mark.parametrize("selector", SELECTORS)
@pytest.mark.parametrize("code", RuleCode)
@pytest.mark.parametrize(("made", "bits"), [(MIXED, 16), (MIXED, 8), (WIDE, 16), (NARROW, 8)])
def test_a_step_of_operands(
    simulate: Callable, rng: np.random.Generator, selector: str, code: RuleCode, made: CoreConfig, bits: int
) -> None:
    """Every stored unit meets the unit of B that its nibble names, whichever of the two multiplexers delivers it."""
    count, rule = 48, code.name.lower()
    stored, chunks = 8 * made.step_bytes // bits, 4 * made.step_bytes // bits
    a = rng.integers(0, 1 << bits, (count, stored))
    b = rng.integers(1, 1 << bits, (count, 2 * stored))
    nibbles = rng.integers(0, 16, (count, made.chunks))  # those beyond the chunks of wide units mean nothing
    nibbles[:16, 0] = np.arange(16)
    got = simulate(
        OperandSelect(replace(made, selector=selector)),
        a=np.array(words_of(a, bits), object),
        b=np.array(words_of(b, bits), object),
        nibbles=np.array(words_of(nibbles, 4), object),
        wide=int(bits == 16),
        sparse=1,
        rule=code.value,
    )
    for i, chunk in product(range(count), range(chunks)):
        nibble = int(nibbles[i, chunk])
        delivered = reachable(nibble, rule, selector)
        wanted = {
            (int(a[i, 2 * chunk + slot]), int(b[i, 4 * chunk + index]) if delivered[slot] else 0)
            for slot, index in enumerate(indices(nibble))
        }
        seen = set()
        for slot in (0, 1):
            low, mask = (2 * chunk + slot) * bits, (1 << bits) - 1
            seen.add((int(got["stored"][i]) >> low & mask, int(got["selected"][i]) >> low & mask))
        assert seen == wanted
        assert got["illegal"][i] >> chunk & 1 == (nibble not in RULES[rule].legal)
    assert not (got["illegal"] >> chunks).any()


@pytest.mark.parametrize("selector", SELECTORS)
@pytest.mark.parametrize(("made", "wide"), [(MIXED, 1), (MIXED, 0), (WIDE, 1), (NARROW, 0)])
def test_a_dense_step_passes(
    simulate: Callable, rng: np.random.Generator, selector: str, made: CoreConfig, wide: int
) -> None:
    """Whatever the metadata port holds, which is never illegal."""
    count, size = 40, made.step_bytes
    a, b = rng.integers(0, 256, (count, size)), rng.integers(0, 256, (count, 2 * size))
    got = simulate(
        OperandSelect(replace(made, selector=selector)),
        a=np.array(words_of(a, 8), object),
        b=np.array(words_of(b, 8), object),
        nibbles=rng.integers(0, 1 << 4 * made.chunks, count),
        wide=wide,
        rule=rng.integers(0, len(RuleCode), count),
    )
    assert got["stored"].tolist() == words_of(a, 8)
    assert got["selected"].tolist() == words_of(b[:, :size], 8)
    assert not got["illegal"].any()
