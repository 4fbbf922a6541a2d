"""Coverage of the streams of a core or a warp: gaps, back-pressure at each stage, resets, format changes."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ...rtl.config import CoreConfig
from ..coverage.covergroups import Covergroup, Sampler
from ..coverage.groups import Axis
from .scoreboard import Cycle

__all__ = ["LENGTHS", "LENGTH_LABELS", "STATES", "StreamCoverage", "length_bin", "state"]

#: States of a stream in a cycle; see :func:`state`.
STATES = ("nothing", "taken", "waits")
#: Lower bounds in cycles of the bins of a wait, for an item of many cycles.
LENGTHS, LENGTH_LABELS = (0, 1, 10, 100), ("none", "1 to 9", "10 to 99", "100 or more")

#: Lower bounds in cycles of the bins of a wait; an instruction of a warp takes about a hundred.
_LENGTHS = {"core": (1, 2, 3, 10), "warp": (1, 10, 100)}
_LABELS = {"core": ("1", "2", "3 to 9", "10 or more"), "warp": ("1 to 9", "10 to 99", "100 or more")}
#: Instructions in a warp: one with waiting results, and one that is issued.
_WARP_ITEMS = 2
_EVENTS = ("moves", "held", "reset")
_NO_ITEM = "No result without an item."
_FULL = "A step in every stage: the last one is a result."


class _Sample(NamedTuple):
    """One cycle, with the state before it."""

    reset: bool
    under_way: int
    input: int
    output: int
    waited: Sequence[int]  # cycles that the item and the result waited that are taken now; 0 for none
    formats: tuple[int, int] | None  # elements of two items of which one was taken right after the other
    stages: Sequence[int]  # pipeline stages that hold a step
    event: str


class StreamCoverage:
    """Functional coverage of the handshakes of a core or a warp.

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
        self._core = top == "core"
        self._sampler = Sampler(config.name, _covergroups(config, top))
        self.coverage = self._sampler.coverage
        self._latency = config.latency
        self._clear()

    def _clear(self) -> None:
        self._under_way = 0
        self._occupied = [False] * self._latency
        self._waiting = [0, 0]
        self._last: int | None = None

    def observe(self, cycle: Cycle, element: int | None) -> None:
        """Count one cycle.

        Parameters
        ----------
        cycle : Cycle
            Handshakes of the cycle.
        element : int or None
            Element code of A of the item at the input.
        """
        streams = (cycle.i_valid, cycle.i_ready), (cycle.o_valid, cycle.o_ready)
        taken, delivered = (valid and ready for valid, ready in streams)
        moves = cycle.o_ready or not cycle.o_valid
        formats = None
        if taken and not cycle.reset:
            assert element is not None
            formats = None if self._last is None else (self._last, element)
        self._sampler.sample(
            _Sample(
                reset=cycle.reset,
                under_way=self._under_way,
                input=state(*streams[0]),
                output=state(*streams[1]),
                waited=[count if done else 0 for done, count in zip((taken, delivered), self._waiting, strict=True)],
                formats=formats,
                stages=np.flatnonzero(self._occupied).tolist(),
                event="reset" if cycle.reset else "moves" if moves else "held",
            )
        )
        if cycle.reset:
            self._clear()
            return
        self._waiting = [
            count + 1 if valid and not ready else 0
            for (valid, ready), count in zip(streams, self._waiting, strict=True)
        ]
        if moves:
            self._occupied = [taken, *self._occupied][: self._latency]
        if taken:
            self._last = element
        elif self._core or (not cycle.i_valid and not self._under_way):
            self._last = None
        self._under_way += taken - delivered


def _covergroups(config: CoreConfig, top: str) -> Iterator[Covergroup]:
    """Return the covergroups of a core or a warp; in a warp, items follow at once if it took the next when free."""
    most = config.latency if top == "core" else _WARP_ITEMS
    items = Axis("items under way", tuple(map(str, range(most + 1))))
    count, output_there = np.ix_(range(most + 1), range(2))
    yield Covergroup(
        name=f"{top} handshakes",
        meaning="A cycle in which so many items were under way and both streams did this.",
        axes=(items, Axis("input", ("nothing offered", *STATES[1:])), Axis("output", ("no result", *STATES[1:]))),
        iff=lambda s: not s.reset,
        sample=lambda s: (s.under_way, s.input, s.output),
        illegal=_illegal_handshakes(top, most),
    )
    yield Covergroup(
        name=f"{top} waits",
        meaning="An item or a result waited for so many cycles before it was taken.",
        axes=(Axis("what", ("item", "result")), Axis("cycles", _LABELS[top])),
        iff=lambda s: not s.reset and any(s.waited),
        sample=lambda s: (np.arange(2), np.searchsorted(_LENGTHS[top], s.waited, "right") - 1),
        where=lambda s: np.array(s.waited) > 0,
    )
    yield Covergroup(
        name=f"{top} resets",
        meaning="A reset came while so many items were under way and a result was there or not.",
        axes=(items, Axis("result", ("none", "there"))),
        iff=lambda s: s.reset,
        sample=lambda s: (s.under_way, s.output > 0),
        illegal=(
            (_NO_ITEM, (count == 0) & (output_there == 1)),
            *([(_FULL, (count == most) & (output_there == 0))] if top == "core" else []),
        ),
    )
    yield Covergroup(
        name=f"{top} formats",
        meaning="An item of one format of A was followed at once by one of another.",
        axes=(Axis("before", config.formats), Axis("after", config.formats)),
        iff=lambda s: s.formats is not None,
        sample=lambda s: s.formats,
    )
    if top == "core":
        yield Covergroup(
            name=f"{top} stages",
            meaning="The pipeline stage held a step that moved on, stood still under back-pressure, or met a reset.",
            axes=(Axis("stage", tuple(map(str, range(config.latency)))), Axis("event", _EVENTS)),
            sample=lambda s: (s.stages, _EVENTS.index(s.event)),
        )


def _illegal_handshakes(top: str, most: int) -> Sequence[tuple[str, ArrayLike]]:
    """Return the combinations that the control of the core or the warp excludes; axes as of the handshakes."""
    items, inputs, outputs = np.ix_(range(most + 1), range(3), range(3))
    if top == "core":
        return (
            (_NO_ITEM, (items == 0) & (outputs > 0)),
            ("An item waits only while a result waits.", (inputs == 2) & (outputs != 2)),
            ("Nothing is taken while a result waits.", (inputs == 1) & (outputs == 2)),
            (_FULL, (items == most) & (outputs == 0)),
        )
    return (
        (_NO_ITEM, (items == 0) & (outputs > 0)),
        ("An idle warp takes an instruction at once.", (items == 0) & (inputs == 2)),
        (
            "The results of the only instruction under way are complete, so that the next is taken at once.",
            (items == 1) & (inputs == 2) & (outputs > 0),
        ),
        (
            "The second instruction's last block is issued only after the first one's results are taken.",
            (items == 2) & (inputs == 1),
        ),
    )


def state(valid: bool, ready: bool) -> int:
    """Return the index in :data:`STATES` of a stream's handshake."""
    return 0 if not valid else 1 if ready else 2


def length_bin(cycles: int) -> int:
    """Return the index in :data:`LENGTHS` of a wait."""
    return int(np.searchsorted(LENGTHS, cycles, "right")) - 1
