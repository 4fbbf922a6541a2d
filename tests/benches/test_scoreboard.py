"""The checker of streams detects each broken rule, and stream coverage counts every cycle in the right bin."""

from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from sptc.rtl.config import PRESETS
from sptc.sim.benches.items import Item
from sptc.sim.benches.scoreboard import Cycle, Scoreboard, ViolationError, random_pattern
from sptc.sim.benches.settings import Settings
from sptc.sim.benches.stream_coverage import StreamCoverage
from sptc.sim.coverage.groups import Coverage

ITEMS = [Item(f"item {n}", n, 0x100 + n, n % 2) for n in range(8)]
RESET = Cycle(True, False, False, False, False, 0)


def cycle(taken: bool = False, result: int | None = None, ready: bool = True, waits: bool = False) -> Cycle:
    return Cycle(False, taken or waits, taken, result is not None, ready, result or 0)


def observe(*cycles: Cycle, longest_wait: int = 5) -> Scoreboard:
    scoreboard, waiting = Scoreboard(longest_wait), iter(ITEMS)
    offered: Item | None = None
    for each in cycles:
        if each.i_valid and offered is None:
            offered = next(waiting)
        scoreboard.observe(each, offered)
        if each.accepts:
            offered = None
    return scoreboard


def test_runs_that_break_no_rule() -> None:
    """A result may come in the cycle of its item, a reset discards items in flight, and stalled results may wait."""
    held = cycle(result=0x101, ready=False)
    run = observe(RESET, cycle(taken=True), cycle(taken=True), cycle(result=0x100), held, held, cycle(result=0x101))
    assert (run.delivered, run.under_way) == (2, 0)
    assert observe(cycle(taken=True, result=0x100)).delivered == 1
    run = observe(cycle(taken=True), cycle(result=0x100, ready=False), RESET, cycle(taken=True), cycle(result=0x101))
    assert run.delivered == 1
    observe(cycle(taken=True), *[cycle(result=0x100, ready=False, waits=True)] * 20, cycle(result=0x100, waits=True))


def test_what_is_under_way() -> None:
    run = [cycle(taken=True), cycle(taken=True), cycle(result=0x100), cycle(result=0x101, ready=False), RESET]
    assert [observe(*run[:cycles]).under_way for cycles in range(1, 6)] == [1, 2, 1, 1, 0]


@pytest.mark.parametrize(
    ("message", "cycles"),
    [
        ("no input is in flight", [cycle(result=0x100)]),
        ("no input is in flight", [cycle(taken=True), cycle(result=0x100), cycle(result=0x100)]),  # a second result
        ("no input is in flight", [cycle(taken=True), RESET, cycle(result=0x100)]),  # the reset discards the item
        ("item 0: 1 bits differ", [cycle(taken=True), cycle(taken=True), cycle(result=0x101)]),  # item 0 is lost
        ("withdrawn", [cycle(taken=True), cycle(result=0x100, ready=False), cycle()]),
        ("changed", [cycle(taken=True), cycle(result=0x100, ready=False), cycle(result=0x1100, ready=False)]),
        ("no result for 6 cycles with 1 inputs", [cycle(taken=True), *[cycle()] * 6]),
        ("no result for 6 cycles", [cycle(taken=True)] * 7),  # items are accepted without results
        ("was not accepted in 6 cycles", [cycle(waits=True)] * 6),
        ("was not accepted in 6 cycles", [cycle(waits=True), cycle(ready=False, waits=True)] * 6),  # output stalls
    ],
)
def test_a_broken_rule(message: str, cycles: list[Cycle]) -> None:
    with pytest.raises(ViolationError, match=message):
        observe(*cycles)


def test_the_message_shows_the_word() -> None:
    item = Item("f16", 0, 0x12345678_00000000, 0)
    scoreboard = Scoreboard(5)
    with pytest.raises(ViolationError, match=r"^f16: 1 bits .* first is bit 35; .* is 0x12345670, not 0x12345678$"):
        scoreboard.observe(Cycle(False, True, True, True, True, 0x12345670_00000000), item)


def test_patterns(rng: np.random.Generator) -> None:
    offers, takes, resets = np.array(list(islice(random_pattern(rng, resets=True), 6000))).T
    assert resets[0]
    assert 0.01 < resets[1:].mean() < 0.04
    assert not np.array(list(islice(random_pattern(rng), 500)))[1:, 2].any()
    for expected in (offers, takes):
        share = expected[:6000].reshape(-1, 6).mean(axis=1)
        assert (share == 1).any()
        assert (share < 0.5).any()


def counted(coverage: StreamCoverage, group: str) -> dict[str, int]:
    result = coverage.coverage["tiny", group]
    hits = result.hits.ravel().tolist()
    return {name: hit for name, hit in zip(result.names(result.hits >= 0), hits, strict=True) if hit}


def test_what_is_counted_of_a_core() -> None:
    coverage = StreamCoverage(PRESETS["tiny"], "core")
    held = cycle(result=0x100, ready=False, waits=True)
    run = [RESET, cycle(taken=True), cycle(taken=True), held, held, held, cycle(taken=True, result=0x100), RESET]
    for each, element in zip(run, [None, 0, 1, 1, 1, 1, 1, None], strict=True):
        coverage.observe(each, element)
    assert counted(coverage, "core handshakes") == {
        "0, taken, no result": 1, "1, taken, no result": 1, "2, waits, waits": 3, "2, taken, taken": 1,
    }  # fmt: skip
    assert counted(coverage, "core waits") == {"item, 3 to 9": 1, "result, 3 to 9": 1}
    assert counted(coverage, "core stages") == {
        "0, moves": 2, "1, moves": 1, "0, held": 3, "1, held": 3, "0, reset": 1, "1, reset": 1,
    }  # fmt: skip
    assert counted(coverage, "core resets") == {"0, none": 1, "2, none": 1}
    assert counted(coverage, "core formats") == {"f16, s8": 1}
    assert not coverage.coverage["tiny", "core handshakes"].contradictions


def test_what_is_counted_of_a_warp() -> None:
    """A warp has at most two instructions in flight: one is being issued, and results of the other wait."""
    coverage = StreamCoverage(PRESETS["tiny"], "warp")
    waits = cycle(waits=True)
    run = [RESET, cycle(taken=True), cycle(taken=True), waits, waits, cycle(result=0x100, waits=True), RESET]
    for each, element in zip(run, [None, 1, 0, 0, 0, 0, None], strict=True):
        coverage.observe(each, element)
    assert counted(coverage, "warp handshakes") == {
        "0, taken, no result": 1, "1, taken, no result": 1, "2, waits, no result": 2, "2, waits, taken": 1,
    }  # fmt: skip
    assert counted(coverage, "warp formats") == {"s8, f16": 1}
    assert counted(coverage, "warp resets") == {"0, none": 1, "1, none": 1}
    assert not any(group.contradictions for group in coverage.coverage)
    coverage.observe(cycle(result=0x100), None)
    handshakes = coverage.coverage["tiny", "warp handshakes"]
    assert handshakes.contradicted() == ["0, nothing offered, taken"]
    for impossible in ("0, waits, no result", "1, waits, taken", "2, taken, no result"):
        assert impossible in handshakes.names(handshakes.unreachable)


def test_tests_of_a_bench_add_up(tmp_path: Path) -> None:
    core, warp = (StreamCoverage(PRESETS["tiny"], top) for top in ("core", "warp"))
    for coverage, times in ((core, 2), (warp, 1)):
        coverage.observe(cycle(taken=True), 0)
        for _ in range(times):
            Settings("tiny", "core", 1, str(tmp_path / "coverage.json")).record(coverage.coverage)
            Settings("tiny", "core", 1).record(coverage.coverage)
    loaded = Coverage.read(tmp_path / "coverage.json")
    assert loaded["tiny", "core handshakes"].hits.sum() == 2
    assert loaded["tiny", "warp handshakes"].hits.sum() == 1
    assert [path.name for path in tmp_path.iterdir()] == ["coverage.json"]
