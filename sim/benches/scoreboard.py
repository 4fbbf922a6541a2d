"""Checker of a component with valid-ready streams: compares results and checks the handshake rules in each cycle.

The module does not depend on a simulator: cocotb monitors fill in a :class:`Cycle` for each clock cycle.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .items import Item

__all__ = ["Cycle", "Scoreboard", "ViolationError", "random_pattern"]


class ViolationError(AssertionError):
    """Error: the component under test violates a rule of the stream protocol. The message states the rule."""


@dataclass(frozen=True)
class Cycle:
    """Valid and ready signals of one input and one output stream, as sampled by the clock edge that ends the cycle."""

    reset: bool
    i_valid: bool
    i_ready: bool
    o_valid: bool
    o_ready: bool
    result: int  #: Result payload at the output stream; valid only while `o_valid` is true

    @property
    def accepts(self) -> bool:
        """Whether the component accepts an input payload in this cycle."""
        return self.i_valid and self.i_ready and not self.reset

    @property
    def states(self) -> tuple[int, int]:
        """States of the input and output streams: 0 is not valid, 1 is a transfer, 2 is valid but not ready."""
        return self.i_valid * (2 - self.i_ready), self.o_valid * (2 - self.o_ready)

    @property
    def delivers(self) -> bool:
        """Whether the component transfers a result at its output in this cycle."""
        return self.o_valid and self.o_ready and not self.reset


#: Phases of random traffic: rate at which inputs are offered, and rate at which results are accepted, each as an index
#: from 0 (always) to 3 (rarely).
_PHASES = ((0, 0), (2, 0), (0, 2), (1, 1), (0, 3), (3, 3))


def random_pattern(
    rng: np.random.Generator, *, pace: int = 1, resets: bool = False
) -> Iterator[tuple[bool, bool, bool]]:
    """Yield three flags for each cycle, without end: whether to offer an input, to accept a result, and to reset.

    Phases with different rates follow each other: items back to back, only gaps, only stalls, gaps and stalls. `pace`
    is the number of cycles that an item takes; the length of gaps and stalls is proportional to `pace`. The first cycle
    is a reset; with `resets`, there is also about one reset per fifty items.
    """
    yield False, False, True
    often = (1.0, 0.6, 0.3, 0.05) if pace == 1 else (1.0, 2 / pace, 1 / pace, 0.5 / pace)
    often_reset = 0.02 / pace if resets else 0.0
    while True:
        offer, take = (often[place] for place in _PHASES[int(rng.integers(len(_PHASES)))])
        for _ in range(int(rng.integers(10, 80)) * -(-pace // 4)):
            yield bool(rng.random() < offer), bool(rng.random() < take), bool(rng.random() < often_reset)


class Scoreboard:
    """Checker that compares a component's results with the expected results of the accepted inputs, in order.

    Each result must be that of the oldest item in flight. No result may be lost, invented or repeated. A result must
    stay valid and constant until it is accepted. Items in flight at a reset must not deliver results after the reset.
    `longest_wait` limits the number of cycles without a result while items are in flight, and the number of cycles in
    which an item waits at the input although the sink is ready.
    """

    def __init__(self, longest_wait: int) -> None:
        self.longest_wait = longest_wait
        self.delivered = 0
        self._under_way: deque[Item] = deque()
        self._stalled: int | None = None
        self._silent = 0
        self._closed = 0

    @property
    def under_way(self) -> int:
        """Number of accepted inputs whose results have not yet been transferred."""
        return len(self._under_way)

    def observe(self, cycle: Cycle, offered: Item | None) -> None:
        """Check one cycle's signals, with input `offered`. Raise a ViolationError if they break a handshake rule."""
        if cycle.reset:
            self._under_way.clear()
            self._stalled, self._silent, self._closed = None, 0, 0
            return
        if self._stalled is not None:
            if not cycle.o_valid:
                raise ViolationError("a result was withdrawn before it was accepted")
            if cycle.result != self._stalled:
                raise ViolationError(
                    f"a result changed before it was accepted, from {self._stalled:#x} to {cycle.result:#x}"
                )
        if cycle.accepts:
            assert offered is not None
            self._under_way.append(offered)
        if cycle.o_valid:
            if not self._under_way:
                raise ViolationError(f"a result appears although no input is in flight: {cycle.result:#x}")
            self._compare(self._under_way[0], cycle.result)
        self._stalled = cycle.result if cycle.o_valid and not cycle.o_ready else None
        self._silent = self._silent + 1 if self._under_way and not cycle.o_valid else 0
        self._closed = self._closed + cycle.o_ready if cycle.i_valid and not cycle.i_ready else 0
        if self._silent > self.longest_wait:
            raise ViolationError(f"no result for {self._silent} cycles with {self.under_way} inputs in flight")
        if self._closed > self.longest_wait:
            raise ViolationError(
                f"the input was not accepted in {self._closed} cycles in which the receiver of results was ready"
            )
        if cycle.delivers:
            self._under_way.popleft()
            self.delivered += 1

    @staticmethod
    def _compare(item: Item, result: int) -> None:
        wrong = result ^ item.expected
        if wrong:
            first = (wrong & -wrong).bit_length() - 1
            raise ViolationError(
                f"{item.name}: {wrong.bit_count()} bits differ from the golden model, the first is bit {first}; "
                f"the 32-bit word with this bit is {result >> first // 32 * 32 & 0xFFFFFFFF:#010x}, "
                f"not {item.expected >> first // 32 * 32 & 0xFFFFFFFF:#010x}"
            )
