"""Driver and monitor of valid-ready streams, and model of memory ports, for cocotb benches.

Inputs change at the falling edge, and all signals are sampled after they have settled. So the result does not depend on
the simulator's order of events at the rising edge.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from cocotb.clock import Clock

from ...rtl.fetch import PANEL_ROWS, UNIT_BITS
from .items import Item
from .scoreboard import Cycle

__all__ = ["MemoryPort", "StreamDriver", "StreamMonitor", "rare_meetings", "shared_memory", "start_clock"]


def start_clock(top: Any) -> None:
    """Start the clock of a top module."""
    Clock(top.clk, 2, unit="ns").start()


def rare_meetings(
    rng: np.random.Generator, *, resets: bool, stalls_end: float = 0.05
) -> Callable[[Cycle], tuple[bool, bool, bool] | None]:
    """Return a function that forces events: transfers on both streams after a stall, resets after inputs or results.

    A stall ends in each cycle with probability `stalls_end`, regardless of the pattern; small values give long stalls.
    """

    def react(cycle: Cycle) -> tuple[bool, bool, bool] | None:
        if cycle.o_valid and not cycle.o_ready and rng.random() < stalls_end:
            return True, True, False
        if resets and (cycle.accepts or cycle.o_valid) and rng.random() < 0.02:
            return False, False, True
        return None

    return react


class StreamDriver:
    """Driver of a top module: offers test inputs in order at stream ``i`` and accepts results at stream ``o``.

    The pattern has three flags for each cycle: whether to offer an item, to accept a result, and to reset. After each
    cycle, `react` is called with the handshakes of the cycle. If `react` returns flags, they replace the flags of the
    pattern in the next cycle.
    """

    def __init__(
        self,
        top: Any,
        items: Iterator[Item],
        pattern: Iterator[tuple[bool, bool, bool]],
        react: Callable[[Cycle], tuple[bool, bool, bool] | None],
    ) -> None:
        self._top, self._items, self._pattern, self._react = top, items, pattern, react
        self._instead: tuple[bool, bool, bool] | None = None
        self.offered: Item | None = None

    def drive(self, *, draining: bool = False) -> None:
        """Drive the inputs for the next cycle; an offered input stays offered, except in resets, until it is accepted.

        While `draining`, no new item is offered, every result is accepted, and nothing is reset.
        """
        drawn = next(self._pattern)
        offer, take, reset = (False, True, False) if draining else self._instead or drawn
        if self.offered is None and offer and not reset:
            self.offered = next(self._items)
            self._top.i__payload.value = self.offered.payload
        self._top.i__valid.value = int(self.offered is not None and not reset)
        self._top.o__ready.value = int(take and not reset)
        self._top.rst.value = int(reset)

    def update(self, cycle: Cycle) -> None:
        """Update the driver after a cycle; an input payload that was offered during a reset is offered again."""
        self._instead = self._react(cycle)
        if cycle.accepts:
            self.offered = None


class StreamMonitor:
    """Monitor of one input stream and one result stream of a top module."""

    def __init__(self, top: Any, source: str = "i", sink: str = "o") -> None:
        names = ("rst", f"{source}__valid", f"{source}__ready", f"{sink}__valid", f"{sink}__ready")
        self._flags, self._result = [getattr(top, name) for name in names], getattr(top, f"{sink}__payload")

    def sample(self) -> Cycle:
        """Return the handshakes of input and result stream in this cycle. Call this when the signals are stable."""
        *source, o_valid, o_ready = (bool(int(port.value)) for port in self._flags)
        return Cycle(*source, o_valid, o_ready, int(self._result.value) if o_valid else 0)


class MemoryPort:
    """Read port of a memory: read data arrive in the next cycle; without a read, the data ports are random.

    `read` is the port that requests a read, `addresses` are the address ports, and `data` the data ports, each of
    `bits` bits. The function `contents` takes the addresses of a read and returns the value of each data port.
    """

    def __init__(
        self,
        rng: np.random.Generator,
        read: Any,
        addresses: Sequence[Any],
        data: Sequence[Any],
        bits: int,
        contents: Callable[..., list[int]],
    ) -> None:
        self._rng, self._read, self._addresses, self._data = rng, read, addresses, data
        self._bytes, self._contents = bits // 8, contents
        self._answers: list[int] = []

    def sample(self, reset: bool) -> bool:
        """Get the data for a read in this cycle, unless a reset is active; return whether there was a read."""
        reads = not reset and bool(int(self._read.value))
        self._answers = self._contents(*(int(address.value) for address in self._addresses)) if reads else []
        return reads

    def drive(self) -> None:
        """Drive the data that the previous cycle's read requested.

        If there was no read, drive random data, with probability 1/8 for each data port.
        """
        if self._answers:
            for port, answer in zip(self._data, self._answers, strict=True):
                port.value = answer
            return
        for place in np.flatnonzero(self._rng.random(len(self._data)) < 1 / 8).tolist():
            self._data[place].value = int.from_bytes(self._rng.bytes(self._bytes), "little")


def shared_memory(top: Any, rng: np.random.Generator, read: Callable[[int], int]) -> MemoryPort:
    """Return the shared-memory port of a top module; `read` returns the 16 bytes at an address as an integer."""
    addresses, data = (
        [getattr(top, f"memory__{name}__{row}") for row in range(PANEL_ROWS)] for name in ("address", "data")
    )
    return MemoryPort(rng, top.memory__read, addresses, data, UNIT_BITS, lambda *units: [*map(read, units)])
