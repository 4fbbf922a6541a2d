"""The core as a stream: tiles in, results out in order, under stalls and resets."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
from sptc.rtl.config import CUTS, PRESETS, CoreConfig
from sptc.rtl.core import Core
from sptc.sim.benches.items import TAG, Item, tiles
from sptc.tests.rtl.handshakes import Cycle, accepted, run, survivors

TINY = PRESETS["tiny"]
ONE = replace(TINY, rows=1, columns=1)
BYTES = replace(ONE, formats=("s8",), cuts=CUTS)


def draw(config: CoreConfig, count: int, rng: np.random.Generator) -> tuple[Core, list[Item]]:
    """Return a core, and tiles of all one-step instructions with their results and random tags."""
    return Core(config, TAG), [*islice(tiles(config, "sm_80", rng), count)]


def payloads(items: Sequence[Item]) -> list[int]:
    return [item.payload for item in items]


def check_results(expected: Sequence[Item], log: Sequence[Cycle]) -> None:
    """The log delivers each tile's result, once and in order."""
    results = [cycle.result for cycle in log if cycle.delivers]
    assert len(results) == len(expected)
    for number, (item, result) in enumerate(zip(expected, results, strict=True)):
        assert result == item.expected, f"tile {number}: {item.name}"


def test_rows_and_columns_meet(rng: np.random.Generator) -> None:
    """Every row of A with every column of B, each output with its own accumulator."""
    core, expected = draw(replace(BYTES, rows=2, columns=2, cuts=TINY.cuts), 8, rng)
    check_results(expected, run(core, payloads(expected), rng))


@pytest.mark.regression
@pytest.mark.parametrize("cuts", [(), ("align", "round"), CUTS], ids=len)
def test_a_tile_every_cycle(cuts: tuple[str, ...], rng: np.random.Generator) -> None:
    core, expected = draw(replace(ONE, cuts=cuts), 16, rng)
    log = run(core, payloads(expected), rng)
    delivered = [number for number, cycle in enumerate(log) if cycle.delivers]
    assert accepted(log) == list(range(len(expected)))
    assert delivered == [number + len(cuts) for number in accepted(log)]
    check_results(expected, log)


def test_a_full_pipeline_takes_no_more(rng: np.random.Generator) -> None:
    core, expected = draw(BYTES, 10, rng)
    log = run(core, payloads(expected), rng, stalls=(1,), cycles=20)
    assert [cycle.accepts for cycle in log] == [number < len(CUTS) for number in range(20)]
    assert [cycle.o_valid for cycle in log] == [number >= len(CUTS) for number in range(20)]


@pytest.mark.parametrize("cuts", [pytest.param(("select",), marks=pytest.mark.regression), CUTS], ids=len)
def test_a_reset_forgets_what_is_under_way(cuts: tuple[str, ...], rng: np.random.Generator) -> None:
    core, given = draw(replace(BYTES, cuts=cuts), 40, rng)
    resets = {20, 21, 30, 40, 50}
    log = run(core, payloads(given), rng, gaps=(0.2,), stalls=(0.6,), resets=resets)
    check_results(survivors(log, given), log)
