"""Drivers and monitors of streams, and the model of a memory, tested on plain values without a simulator."""

from collections.abc import Iterator, Sequence
from itertools import chain, count, repeat
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sptc.rtl.fetch import PANEL_ROWS
from sptc.sim.benches.items import Item
from sptc.sim.benches.scoreboard import Cycle
from sptc.sim.benches.streams import StreamDriver, StreamMonitor, rare_meetings, shared_memory

PORTS = ("rst", "i__valid", "i__ready", "i__payload", "c__valid", "c__ready", "o__valid", "o__ready", "o__payload")
#: Pattern of a cycle: whether an item may be offered, whether the result is accepted, and whether a reset occurs.
GO, GAP, STALL, RESET = (True, True, False), (False, True, False), (True, False, False), (True, True, True)
#: Inputs in a cycle: valid of the item, ready of the result, and reset.
Inputs = tuple[int, int, int]
#: Number of cycles without a read. In each cycle, the memory model drives random data on some of its ports; over all
#: cycles, every port gets random data.
MANY = 300


@pytest.fixture
def top() -> Any:
    return SimpleNamespace(**{port: SimpleNamespace(value=0) for port in PORTS})


def items() -> Iterator[Item]:
    return (Item(f"item {n}", 100 + n, n, 0) for n in count())


def inputs(top: Any) -> Inputs:
    return top.i__valid.value, top.o__ready.value, top.rst.value


def cycle(ready: bool, reset: bool = False, valid: bool = True) -> Cycle:
    return Cycle(reset, valid and not reset, ready, False, False, 0)


def driven(top: Any, pattern: Sequence[tuple[bool, bool, bool]], ready: Sequence[bool]) -> list[tuple[Inputs, int]]:
    """Return the inputs and payload that the driver sets in each cycle. `ready` is the ready of stream `i`."""
    driver = StreamDriver(top, items(), chain(pattern, repeat(GAP)), lambda _: None)
    results = []
    for is_ready in ready:
        driver.drive()
        results.append((inputs(top), top.i__payload.value))
        driver.update(cycle(is_ready, bool(top.rst.value), bool(top.i__valid.value)))
    return results


@pytest.mark.parametrize(
    ("pattern", "ready", "expected", "payloads"),
    [
        ([GAP, GO, STALL, GO, GAP, GAP, GO], [True] * 7,
         [(0, 1, 0), (1, 1, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0), (0, 1, 0), (1, 1, 0)], [100, 101, 102, 103]),
        ([GO, GAP, STALL, RESET, GAP, GO], [False] * 3 + [True] * 3,
         [(1, 1, 0), (1, 1, 0), (1, 0, 0), (0, 0, 1), (1, 1, 0), (1, 1, 0)], [100] * 4 + [101]),
    ],
    ids=["accepted", "held"],
)  # fmt: skip
def test_a_driver_follows_its_pattern(pattern: Any, ready: Any, expected: Any, payloads: Any, top: Any) -> None:
    """Gaps and stalls follow the pattern. An item is offered until it is accepted, also after a reset."""
    result = driven(top, pattern, ready)
    assert [of_cycle for of_cycle, _ in result] == expected
    assert [payload for (valid, *_), payload in result if valid] == payloads


def test_draining_and_reactions_override_the_pattern(top: Any) -> None:
    """While draining, no new item is offered, a pending item stays, all results are accepted, and no reset occurs."""
    driver = StreamDriver(top, items(), repeat(STALL), lambda _: None)
    driver.drive()
    driver.update(cycle(ready=False))
    driver.drive(draining=True)
    assert inputs(top) == (1, 1, 0)
    driver.update(cycle(ready=True))
    driver = StreamDriver(top, items(), repeat(RESET), lambda _: None)
    driver.drive(draining=True)
    assert inputs(top) == (0, 1, 0)
    driver = StreamDriver(top, items(), repeat(GAP), lambda seen: STALL if seen.reset else None)
    results = []
    for reset in (True, False, True):
        driver.drive()
        results.append(inputs(top))
        driver.update(Cycle(reset, False, False, False, False, 0))
    assert results == [(0, 1, 0), (1, 0, 0), (1, 1, 0)]


def test_rare_events_are_forced(rng: np.random.Generator) -> None:
    """Transfers follow a stalled result with probability 1/20; a reset follows a transfer or a result with 1/50."""
    waits = Cycle(False, False, False, True, False, 0)
    enters, leaves = Cycle(False, True, True, False, False, 0), Cycle(False, False, False, True, True, 0)
    idle = Cycle(False, True, False, False, True, 0)
    for resets in (False, True):
        react = rare_meetings(rng, resets=resets)
        share = {
            name: np.mean([react(seen) == expected for _ in range(10_000)])
            for name, seen, expected in (
                ("meets", waits, GO), ("waits", waits, (False, False, True)), ("nothing", idle, None),
                ("enters", enters, (False, False, True)), ("leaves", leaves, (False, False, True)),
            )
        }  # fmt: skip
        assert 0.03 < share["meets"] < 0.07
        assert share["nothing"] == 1
        for name in ("waits", "enters", "leaves"):
            assert 0.01 < share[name] < 0.03 if resets else share[name] == 0


@pytest.mark.parametrize("source", ["i", "c"])
def test_a_monitor_sees_what_is_there(top: Any, source: str) -> None:
    monitor = StreamMonitor(top, source)
    ports = [top.rst, *(getattr(top, f"{source}__{name}") for name in ("valid", "ready")), top.o__valid, top.o__ready]
    top.o__payload.value = 77
    for bits in np.ndindex(2, 2, 2, 2, 2):
        for port, bit in zip(ports, bits, strict=True):
            port.value = bit
        assert monitor.sample() == Cycle(*map(bool, bits), 77 if bits[3] else 0)


def test_what_is_read(rng: np.random.Generator) -> None:
    """Data of a read appear in one cycle only, and never if a reset coincides with the read."""
    addresses, data = ([f"memory__{name}__{row}" for row in range(PANEL_ROWS)] for name in ("address", "data"))
    top: Any = SimpleNamespace(**{name: SimpleNamespace(value=0) for name in (*addresses, *data, "memory__read")})
    memory = shared_memory(top, rng, lambda unit: 3 * unit + 1)

    def values() -> list[int]:
        return [getattr(top, name).value for name in data]

    for reset in (False, True):
        top.memory__read.value = 1
        for row, name in enumerate(addresses):
            getattr(top, name).value = 500 + row
        expected = [3 * (500 + row) + 1 for row in range(PANEL_ROWS)]
        assert memory.sample(reset) == (not reset)
        memory.drive()
        assert (values() == expected) == (not reset)
        top.memory__read.value = 0
        for _ in range(MANY):
            assert not memory.sample(reset=False)
            memory.drive()
        assert not {*values()} & {*expected}
