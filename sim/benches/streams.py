"""cocotb side of a stream bench: driver and monitor, in lock step with the clock's falling edge.

Inputs change at the falling edge and everything is sampled once it has settled, so that no simulator's order of events
around the rising edge matters.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly

from .items import Item
from .scoreboard import Cycle

__all__ = ["StreamDriver", "StreamMonitor", "rare_meetings", "start_clock"]

_PERIOD_NS = 2


def start_clock(top: Any) -> None:
    """Start the clock of a top."""
    Clock(top.clk, _PERIOD_NS, unit="ns").start()


def rare_meetings(
    rng: np.random.Generator, *, resets: bool, stalls_end: float = 0.05
) -> Callable[[Cycle], tuple[bool, bool, bool] | None]:
    """Return what patterns meet too rarely: both transfers after a stall, and resets at either end of an item.

    Parameters
    ----------
    rng : numpy.random.Generator
        What the choices are drawn from.
    resets : bool
        Whether there are resets.
    stalls_end : float
        How likely a stall ends in each of its cycles, whatever the pattern says: small where long ones are to be met.
    """

    def react(cycle: Cycle) -> tuple[bool, bool, bool] | None:
        if cycle.o_valid and not cycle.o_ready and rng.random() < stalls_end:
            return True, True, False
        if resets and (cycle.accepts or cycle.o_valid) and rng.random() < 0.02:
            return False, False, True
        return None

    return react


class StreamDriver:
    """Offers items in order and takes results, cycle by cycle as a pattern says.

    Parameters
    ----------
    top : handle
        With ports ``i__valid``, ``i__payload``, ``o__ready`` and ``rst``.
    items : iterator of Item
        What to offer.
    pattern : iterable of (bool, bool, bool)
        May offer, takes, resets.
    react : callable (Cycle) -> (bool, bool, bool) or None
        What to do instead of what the pattern says, in the light of the cycle before.
    """

    def __init__(
        self,
        top: Any,
        items: Iterator[Item],
        pattern: Iterable[tuple[bool, bool, bool]],
        react: Callable[[Cycle], tuple[bool, bool, bool] | None],
    ) -> None:
        self._top = top
        self._items = items
        self._pattern = iter(pattern)
        self._react = react
        self._instead: tuple[bool, bool, bool] | None = None
        self.offered: Item | None = None

    def drive(self, *, draining: bool = False) -> None:
        """Set the inputs of the coming cycle; an item once offered stays until it is taken or reset.

        Parameters
        ----------
        draining : bool
            Offer nothing new, take everything and do not reset.
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
        """Move on after a cycle. An item that a reset met at the input is offered again after it."""
        self._instead = self._react(cycle)
        if cycle.accepts:
            self.offered = None


class StreamMonitor:
    """Samples two streams of a top once a cycle.

    Parameters
    ----------
    top : handle
        With the ports of the streams.
    source, sink : str
        Names of the stream whose transfers results come out for, and of that at which they come out.
    """

    def __init__(self, top: Any, source: str = "i", sink: str = "o") -> None:
        self._top = top
        self._source = [getattr(top, f"{source}__{name}") for name in ("valid", "ready")]
        self._sink = [getattr(top, f"{sink}__{name}") for name in ("valid", "ready", "payload")]

    async def settle(self) -> Cycle:
        """Wait until the cycle has settled and return it."""
        await ReadOnly()
        return self.sample()

    def sample(self) -> Cycle:
        """Return a cycle that has settled."""
        valid, ready = (bool(int(port.value)) for port in self._source)
        o_valid, o_ready = (bool(int(port.value)) for port in self._sink[:2])
        result = int(self._sink[2].value) if o_valid else 0
        return Cycle(bool(int(self._top.rst.value)), valid, ready, o_valid, o_ready, result)

    async def following(self) -> None:
        """Wait for the next cycle's falling edge."""
        await FallingEdge(self._top.clk)
