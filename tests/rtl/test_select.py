"""The operand selectors: every pair of selects in both unit widths, then a whole step."""

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from sptc.isa.metadata import RULES, indices, reachable
from sptc.rtl.cells.operand_mux import OperandMux
from sptc.rtl.config import MUXES, CoreConfig
from sptc.rtl.metadata import RuleCode
from sptc.rtl.order import OrderedSelect, byte_order, nibble_order, selected_byte

UNITS = 4


@pytest.mark.parametrize(("bits", "parts"), [(8, 1), (16, 1), (16, 2)])
def test_every_select(simulate: Callable, rng: np.random.Generator, bits: int, parts: int) -> None:
    """Every part of the output is that part of the unit selected for it, or zero."""
    rounds, width = 8, bits // parts
    chosen = np.array([*product(range(-1, UNITS), repeat=parts)] * rounds)  # -1: none
    units = rng.integers(0, 1 << bits, (len(chosen), UNITS))
    units[: len(chosen) // 2] = (1 << bits) - 1 - np.arange(UNITS)  # every bit of a unit matters, no two are alike
    select = sum((chosen[:, [part]] == np.arange(UNITS)) << part for part in range(parts))
    got = simulate(OperandMux(bits, parts), units=units, select=select)
    wanted = np.zeros(len(chosen), np.int64)
    for part in range(parts):
        picked = np.take_along_axis(units, np.maximum(chosen[:, [part]], 0), 1)[:, 0]
        wanted |= np.where(chosen[:, part] < 0, 0, picked & ((1 << width) - 1 << part * width))
    np.testing.assert_array_equal(got["output"], wanted)


@pytest.mark.parametrize("bits", [8, 16])
def test_units_that_are_not_selected_do_not_matter(simulate: Callable, rng: np.random.Generator, bits: int) -> None:
    units = np.repeat(rng.integers(0, 1 << bits, (1, UNITS)), 64, 0)
    units[:, [0, 2, 3]] = rng.integers(0, 1 << bits, (64, 3))
    got = simulate(OperandMux(bits), units=units, select=np.tile([0, 1, 0, 0], (64, 1)))
    assert set(got["output"]) == {units[0, 1]}


MIXED = CoreConfig(name="test", formats=("f16", "s8"), step_bytes=16)
WIDE = CoreConfig(name="test", formats=("tf32", "bf16"), step_bytes=8)
NARROW = CoreConfig(name="test", formats=("s8", "s4"), step_bytes=8)


def words_of(rows: np.ndarray, bits: int) -> list[int]:
    """Return rows of units as one number each, lowest first."""
    return [sum(int(unit) << i * bits for i, unit in enumerate(row)) for row in rows]


@pytest.mark.quick_cases(10)
@pytest.mark.parametrize("mux", MUXES)
@pytest.mark.parametrize("code", RuleCode)
@pytest.mark.parametrize(("made", "bits"), [(MIXED, 16), (MIXED, 8), (WIDE, 16), (NARROW, 8)])
def test_a_step_of_operands(
    simulate: Callable, rng: np.random.Generator, mux: str, code: RuleCode, made: CoreConfig, bits: int
) -> None:
    """Every stored unit meets the unit of B that its nibble names, whichever of the two multiplexers delivers it."""
    count, rule = 48, code.name.lower()
    stored, chunks = 8 * made.step_bytes // bits, 4 * made.step_bytes // bits
    a = rng.integers(0, 1 << bits, (count, stored))
    b = rng.integers(1, 1 << bits, (count, 2 * stored))
    nibbles = rng.integers(0, 16, (count, made.chunks))  # those beyond the chunks of wide units mean nothing
    nibbles[:16, 0] = np.arange(16)
    got = simulate(
        OrderedSelect(replace(made, mux=mux)),
        a=np.array(words_of(a, bits), object),
        b=np.array(words_of(b, bits), object),
        nibbles=np.array(words_of(nibbles, 4), object),
        wide=int(bits == 16),
        sparse=1,
        rule=code.value,
    )
    for i, chunk in product(range(count), range(chunks)):
        nibble = int(nibbles[i, chunk])
        delivered = reachable(nibble, rule, mux)
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


@pytest.mark.parametrize("mux", MUXES)
@pytest.mark.parametrize(("made", "wide"), [(MIXED, 1), (MIXED, 0), (WIDE, 1), (NARROW, 0)])
def test_a_dense_step_passes(
    simulate: Callable, rng: np.random.Generator, mux: str, made: CoreConfig, wide: int
) -> None:
    """Whatever the metadata port holds, under any rule, which is never illegal."""
    count, size = 40, made.step_bytes
    a, b = rng.integers(0, 256, (count, size)), rng.integers(0, 256, (count, 2 * size))
    got = simulate(
        OrderedSelect(replace(made, mux=mux)),
        a=np.array(words_of(a, 8), object),
        b=np.array(words_of(b, 8), object),
        nibbles=rng.integers(0, 1 << 4 * made.chunks, count),
        wide=wide,
        rule=rng.integers(0, len(RuleCode), count),
    )
    assert got["stored"].tolist() == words_of(a, 8)
    assert got["selected"].tolist() == words_of(b[:, :size], 8)
    assert not got["illegal"].any()


@pytest.mark.parametrize("made", [MIXED, WIDE, NARROW])
@pytest.mark.parametrize("wide", [True, False])
def test_orders_lose_nothing(made: CoreConfig, wide: bool) -> None:
    """A sparse step takes every byte of B once, a dense one those of the low half; every chunk has its nibble."""
    size = made.step_bytes
    assert sorted(source for source in byte_order(made, wide=wide, sparse=True) if source is not None) == [
        *range(2 * size)
    ]
    dense = [source for source in byte_order(made, wide=wide, sparse=False) if source is not None]
    assert sorted(dense) == list(range(size))
    assert sorted(selected_byte(made, byte, wide=wide) for byte in range(size)) == list(range(size))
    assert set(nibble_order(made, wide=wide)) >= set(range(made.chunks // (1 + wide)))
