"""Coverage of the streams of a core or a warp: gaps, back-pressure at each stage, resets, format changes."""

import numpy as np
from numpy.typing import NDArray

from ...rtl.config import CoreConfig
from ..coverage.groups import Axis, Coverage, Group
from .scoreboard import Cycle

__all__ = ["LENGTHS", "LENGTH_LABELS", "STATES", "StreamCoverage", "state"]

#: States of a stream in a cycle; see :func:`state`.
STATES = ("nothing", "taken", "waits")
#: Lower bounds in cycles of the bins of a wait, for an item of many cycles.
LENGTHS, LENGTH_LABELS = (0, 1, 10, 100), ("none", "1 to 9", "10 to 99", "100 or more")

_INPUT = Axis("input", ("nothing offered", "taken", "waits"))
_OUTPUT = Axis("output", ("no result", "taken", "waits"))
#: Lower bounds in cycles of the bins of a wait; an instruction of a warp takes about a hundred.
_LENGTHS = {"core": (1, 2, 3, 10), "warp": (1, 10, 100)}
_LABELS = {"core": ("1", "2", "3 to 9", "10 or more"), "warp": ("1 to 9", "10 to 99", "100 or more")}
#: Instructions in a warp: one with waiting results, and one that is issued.
_WARP_ITEMS = 2


class StreamCoverage:
    """Functional coverage of the handshakes of a core or a warp.

    Groups: ``handshakes``: items in flight x input x output; ``waits``: cycles that an item and a result waited;
    ``resets``: items in flight, and whether a result was valid, at a reset; ``formats``: element formats of items
    accepted in consecutive cycles, or in a warp as soon as it was free. A core has ``stages`` too: each pipeline stage
    moved, stopped under back-pressure, or lost its step to a reset.

    Parameters
    ----------
    config : CoreConfig
        Datapath.
    top : str
        ``core`` or ``warp``.

    Attributes
    ----------
    coverage : Coverage
        Coverage observed so far.
    """

    def __init__(self, config: CoreConfig, top: str) -> None:
        self._latency = config.latency
        self._core = top == "core"
        self._lengths = _LENGTHS[top]
        most = config.latency if self._core else _WARP_ITEMS
        under_way = Axis("items under way", tuple(map(str, range(most + 1))))
        name = config.name
        self._handshakes = Group(
            name,
            f"{top} handshakes",
            "A cycle in which so many items were under way and both streams did this.",
            (under_way, _INPUT, _OUTPUT),
        )
        self._waits = Group(
            name,
            f"{top} waits",
            "An item or a result waited for so many cycles before it was taken.",
            (Axis("what", ("item", "result")), Axis("cycles", _LABELS[top])),
        )
        self._resets = Group(
            name,
            f"{top} resets",
            "A reset came while so many items were under way and a result was there or not.",
            (under_way, Axis("result", ("none", "there"))),
        )
        formats = Axis("before", config.formats), Axis("after", config.formats)
        self._formats = Group(
            name,
            f"{top} formats",
            "An item of one format of A was followed at once by one of another.",
            formats,
        )
        groups = [self._handshakes, self._waits, self._resets, self._formats]
        self._stages = Group(
            name,
            f"{top} stages",
            "The pipeline stage held a step that moved on, stood still under back-pressure, or met a reset.",
            (Axis("stage", tuple(map(str, range(config.latency)))), Axis("event", ("moves", "held", "reset"))),
        )
        groups += [self._stages] if self._core else []
        self._declare(most)
        self.coverage = Coverage(groups)
        self._under_way = 0
        self._occupied = [False] * config.latency
        self._waiting = [0, 0]
        self._last: int | None = None

    def _declare(self, most: int) -> None:
        """Declare combinations that the control of the core or the warp excludes."""
        items, inputs, outputs = np.ix_(range(most + 1), range(3), range(3))
        handshakes, resets = self._handshakes, self._resets
        handshakes.declare_unreachable((items == 0) & (outputs > 0), "No result without an item.")
        resets.declare_unreachable((items[..., 0] == 0) & (np.arange(2) == 1), "No result without an item.")
        if self._core:
            waits_alone = (inputs == 2) & (outputs != 2)
            handshakes.declare_unreachable(waits_alone, "An item waits only while a result waits.")
            handshakes.declare_unreachable((inputs == 1) & (outputs == 2), "Nothing is taken while a result waits.")
            full = "A step in every stage: the last one is a result."
            handshakes.declare_unreachable((items == most) & (outputs == 0), full)
            resets.declare_unreachable((items[..., 0] == most) & (np.arange(2) == 0), full)
            return
        handshakes.declare_unreachable((items == 0) & (inputs == 2), "An idle warp takes an instruction at once.")
        handshakes.declare_unreachable(
            (items == 1) & (inputs == 2) & (outputs > 0),
            "The results of the only instruction under way are complete, so that the next is taken at once.",
        )
        handshakes.declare_unreachable(
            (items == 2) & (inputs == 1),
            "The second instruction's last block is issued only after the first one's results are taken.",
        )

    def observe(self, cycle: Cycle, element: int | None) -> None:
        """Count one cycle.

        Parameters
        ----------
        cycle : Cycle
            Handshakes of the cycle.
        element : int or None
            Element code of A of the item at the input.
        """
        if cycle.reset:
            self._resets.count(self._under_way, int(cycle.o_valid))
            self._count_stages(2)
            self._under_way, self._last, self._waiting = 0, None, [0, 0]
            self._occupied = [False] * self._latency
            return
        taken, delivered = cycle.i_valid and cycle.i_ready, cycle.o_valid and cycle.o_ready
        self._handshakes.count(
            self._under_way, state(cycle.i_valid, cycle.i_ready), state(cycle.o_valid, cycle.o_ready)
        )
        for what, (valid, ready) in enumerate(((cycle.i_valid, cycle.i_ready), (cycle.o_valid, cycle.o_ready))):
            if valid and ready and self._waiting[what]:
                self._waits.count(what, int(np.searchsorted(self._lengths, self._waiting[what], "right")) - 1)
            self._waiting[what] = self._waiting[what] + 1 if valid and not ready else 0
        moves = cycle.o_ready or not cycle.o_valid
        self._count_stages(0 if moves else 1)
        if moves:
            self._occupied = [taken, *self._occupied][: self._latency]
        if taken:
            assert element is not None
            if self._last is not None:
                self._formats.count(self._last, element)
            self._last = element
        elif self._core or (not cycle.i_valid and not self._under_way):
            self._last = None
        self._under_way += taken - delivered

    def _count_stages(self, event: int) -> None:
        if self._core:
            held: NDArray[np.intp] = np.flatnonzero(self._occupied)
            self._stages.count(held, event)


def state(valid: bool, ready: bool) -> int:
    """Return the index in :data:`STATES` of a stream's handshake."""
    return 0 if not valid else 1 if ready else 2
