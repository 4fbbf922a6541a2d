"""Functional coverage of streams: gaps, stalls, resets, format changes, commands, and memory accesses."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...rtl.config import CoreConfig
from ...rtl.life_cycle import Operation
from ...rtl.tcgen05 import CtaOperation
from ...rtl.tensor_cores import WARPS
from ..coverage.covergroups import Covergroup, Illegal, Sampler
from ..coverage.groups import Axis
from .scoreboard import Cycle

__all__ = ["CTA", "WARPGROUP", "CommandCoverage", "Commit", "Mma", "Pair", "StreamCoverage"]

#: Names of the three states of a valid-ready stream; see :attr:`~sptc.sim.benches.scoreboard.Cycle.states`.
_STATES = ("nothing", "taken", "waits")
_TAKEN, _WAITS = 1, 2
#: For each kind of stream, coverage bins of waiting times: the lower bound of a bin in cycles, and its label. A warp
#: takes about 100 cycles per instruction.
_CYCLES = {
    "core": {1: "1", 2: "2", 3: "3 to 9", 10: "10 or more"},
    "warp": {1: "1 to 9", 10: "10 to 99", 100: "100 or more"},
    "command": {0: "none", 1: "1 to 9", 10: "10 to 99", 100: "100 or more"},
}
#: Maximum number of instructions in flight in a warp: one that delivers its results, and one that is being issued.
_WARP_ITEMS = 2
_NO_ITEM = "Without an item in flight there is no result."
_FULL = "If every pipeline stage contains a step, the last stage offers a result."


class _Sample(NamedTuple):
    """Handshakes of one cycle, and the accepted inputs and pipeline contents before this cycle."""

    cycle: Cycle
    under_way: int  # number of accepted inputs in flight
    waited: NDArray[np.intp]  # cycles that the transferred input and result each waited; 0 without a transfer
    formats: tuple[int, int | None] | None  # codes of A's element format in the previous and in this input
    stages: Sequence[int]  # indices of the pipeline stages that hold a computation


class StreamCoverage(Sampler):
    """Functional coverage of the handshakes of a core (array of units) or a warp; `coverage` has the hits so far."""

    def __init__(self, config: CoreConfig, top: str) -> None:
        super().__init__(config.name, _covergroups(config, top))
        self._core = top == "core"
        self._latency = config.latency
        self._clear()

    def _clear(self) -> None:
        self._under_way = 0
        self._occupied = [False] * self._latency
        self._waiting = np.zeros(2, np.intp)
        self._last: int | None = None

    def observe(self, cycle: Cycle, element: int | None) -> None:
        """Count one cycle in the covergroups; `element` is the code of A's element format in the offered input."""
        taken, delivered = (state == _TAKEN for state in cycle.states)
        waits = [state == _WAITS for state in cycle.states]
        self.sample(
            _Sample(
                cycle=cycle,
                under_way=self._under_way,
                waited=self._waiting * (taken, delivered),
                formats=(self._last, element) if cycle.accepts and self._last is not None else None,
                stages=np.flatnonzero(self._occupied).tolist(),
            )
        )
        if cycle.reset:
            self._clear()
            return
        self._waiting = (self._waiting + 1) * waits
        if not waits[1]:
            self._occupied = [taken, *self._occupied][: self._latency]
        if taken:
            self._last = element
        elif self._core or (not cycle.i_valid and not self._under_way):
            self._last = None
        self._under_way += taken - delivered


def _covergroups(config: CoreConfig, top: str) -> Iterator[Covergroup]:
    """Yield the covergroups of a core or a warp: handshakes, waiting times, resets, formats, and pipeline stages."""
    most = config.latency if top == "core" else _WARP_ITEMS
    items = Axis("items in flight", tuple(map(str, range(most + 1))))
    yield Covergroup(
        name=f"{top} handshakes",
        meaning="A cycle with this number of items in flight and with these states of the input and output streams.",
        axes=(items, Axis("input", ("nothing offered", *_STATES[1:])), Axis("output", ("no result", *_STATES[1:]))),
        iff=lambda s: not s.cycle.reset,
        sample=lambda s: (s.under_way, *s.cycle.states),
        illegal=_illegal_handshakes(top, most),
    )
    yield Covergroup(
        name=f"{top} waits",
        meaning="An item or a result waited for this number of cycles until it was accepted.",
        axes=(Axis("what", ("item", "result")), Axis("cycles", tuple(_CYCLES[top].values()))),
        iff=lambda s: not s.cycle.reset,
        sample=lambda s: (np.arange(2), np.searchsorted([*_CYCLES[top]], s.waited, "right") - 1),
        where=lambda s: s.waited > 0,
    )
    yield Covergroup(
        name=f"{top} resets",
        meaning="A reset occurred with this number of items in flight, and with or without a valid result.",
        axes=(items, Axis("result", ("none", "there"))),
        iff=lambda s: s.cycle.reset,
        sample=lambda s: (s.under_way, s.cycle.states[1] > 0),
        illegal={
            _NO_ITEM: lambda items, result: (items == 0) & (result == 1),
            **({_FULL: lambda items, result: (items == most) & (result == 0)} if top == "core" else {}),
        },
    )
    yield Covergroup(
        name=f"{top} formats",
        meaning="Two items with these element formats of A were accepted directly one after the other.",
        axes=(Axis("before", config.formats), Axis("after", config.formats)),
        iff=lambda s: s.formats is not None,
        sample=lambda s: s.formats,
    )
    if top == "core":
        yield Covergroup(
            name=f"{top} stages",
            meaning="This pipeline stage contained a step that moved on, was held by back-pressure, or was reset.",
            axes=(Axis("stage", tuple(map(str, range(config.latency)))), Axis("event", ("moves", "held", "reset"))),
            sample=lambda s: (s.stages, 2 if s.cycle.reset else int(s.cycle.states[1] == _WAITS)),
        )


def _illegal_handshakes(top: str, most: int) -> Illegal:
    """Return combinations of pending inputs, input state and output state that cannot occur in a core or a warp."""
    if top == "core":
        return {
            _NO_ITEM: lambda items, i, o: (items == 0) & (o > 0),
            "An item is stalled only while a result is stalled.": lambda items, i, o: (i == _WAITS) & (o != _WAITS),
            "No item is accepted while a result is stalled.": lambda items, i, o: (i == _TAKEN) & (o == _WAITS),
            _FULL: lambda items, i, o: (items == most) & (o == 0),
        }
    return {
        _NO_ITEM: lambda items, i, o: (items == 0) & (o > 0),
        "An idle warp accepts an instruction without delay.": lambda items, i, o: (items == 0) & (i == _WAITS),
        "Once the only instruction in flight has complete results, the next one is accepted without delay.": (
            lambda items, i, o: (items == 1) & (i == _WAITS) & (o > 0)
        ),
        "With two instructions in flight, no other is accepted until the results of the first are accepted.": (
            lambda items, i, o: (items == 2) & (i == _TAKEN)
        ),
    }


class _Command(NamedTuple):
    """States of a top module with a command stream, sampled in one cycle."""

    cycle: Cycle  # handshakes of the command stream
    in_flight: int
    operation: int | None  # operation of the offered command, or None
    waited: int  # cycles that the offered command has waited so far
    others: tuple[int, ...]  # states of the other streams (warpgroup), or flags of memory accesses (CTA)


class Mma(NamedTuple):
    """Sampled states of the ``mma`` and accumulator streams in a cycle with an offered ``mma`` instruction."""

    array: int
    #: States of the ``mma`` stream and of the accumulator stream in this cycle.
    mma: int
    accumulators: int


class Pair(NamedTuple):
    """Sampled states of a CTA pair in a cycle in which both CTAs share the next panel (eight columns) of B."""

    waits: bool
    other_waits: bool
    own_b: bool  #: Whether this CTA's shared memory contains the panel (eight columns) of B


class Commit(NamedTuple):
    """Sampled event: a commit arrives; the event records how many commits are pending."""

    pending: int


class CommandCoverage(Sampler):
    """Functional coverage of a top module with a command stream; `coverage` contains the hits so far.

    The covergroups are :data:`WARPGROUP` or :data:`CTA`. Besides cycles, they count the events :class:`Mma` (an offered
    ``mma``), :class:`Pair` (a panel of a CTA pair) and :class:`Commit` (the arrival of a commit).
    """

    def __init__(self, name: str, covergroups: Iterable[Covergroup]) -> None:
        super().__init__(name, covergroups)
        self._waited = 0

    def observe(self, cycle: Cycle, in_flight: int, operation: int | None, others: tuple[int, ...]) -> None:
        """Count one cycle in the covergroups, with the handshakes of the command stream and the offered operation.

        An instruction is in flight until all accumulators are accepted by a warpgroup, or all results are written by a
        CTA. For a warpgroup, `others` has the states of the accumulator and result streams. For a CTA, `others` has
        flags: whether shared memory, operands in tensor memory, and accumulators are read, and whether D is written.
        """
        self.sample(_Command(cycle, in_flight, operation, self._waited, others))
        self._waited = self._waited + 1 if cycle.states[0] == _WAITS and not cycle.reset else 0


def _operations(top: str, operations: Iterable[Any], illegal: Illegal | None = None) -> Covergroup:
    return Covergroup(
        name=f"{top} operations",
        meaning="A command with this operation waited for this number of cycles until it was accepted.",
        axes=(
            Axis("operation", tuple(operation.name.lower() for operation in operations)),
            Axis("cycles", tuple(_CYCLES["command"].values())),
        ),
        iff=lambda s: isinstance(s, _Command) and s.cycle.accepts and s.operation is not None,
        sample=lambda s: (s.operation, np.searchsorted([*_CYCLES["command"]], s.waited, "right") - 1),
        illegal=illegal or {},
    )


#: Bins for the number of instructions in flight. A warpgroup has at most two instructions in flight. A CTA can have
#: more, which count in the last bin.
_WARPGROUP_IN_FLIGHT = Axis("instructions in flight", ("0", "1", "2"))
_CTA_IN_FLIGHT = Axis("instructions in flight", ("0", "1", "2 or more"))
_ACCUMULATORS, _RESULTS = Axis("accumulators", _STATES), Axis("results", _STATES)
_NONE_OR_THERE = ("none", "there")
_BOTH_STREAMS = "A cycle with this number of instructions in flight and with these states of the two streams."

#: Covergroups of a warpgroup: waiting times, commits, concurrent ``mma``, and resets.
WARPGROUP = (
    Covergroup(
        name="warpgroup instructions",
        meaning=_BOTH_STREAMS,
        axes=(_WARPGROUP_IN_FLIGHT, Axis("instructions", _STATES), _RESULTS),
        iff=lambda s: isinstance(s, _Command) and not s.cycle.reset,
        sample=lambda s: (s.in_flight, s.cycle.states[0], s.others[1]),
    ),
    Covergroup(
        name="warpgroup accumulators",
        meaning=_BOTH_STREAMS,
        axes=(_WARPGROUP_IN_FLIGHT, _ACCUMULATORS, _RESULTS),
        iff=lambda s: isinstance(s, _Command) and not s.cycle.reset,
        sample=lambda s: (s.in_flight, *s.others),
        illegal={
            "Accumulators are offered only for accepted instructions, which are in flight.": (
                lambda in_flight, accumulators, results: (in_flight == 0) & (accumulators > 0)
            )
        },
    ),
    _operations(
        "warpgroup",
        Operation,
        {"A fence is accepted without delay.": lambda op, cycles: (op == Operation.FENCE.value) & (cycles > 0)},
    ),
    Covergroup(
        name="warpgroup beside",
        meaning="A cycle with these states of the mma stream for this array and of the accumulator stream of wgmma.",
        axes=(Axis("array", tuple(map(str, range(WARPS)))), Axis("mma", _STATES), _ACCUMULATORS),
        iff=lambda s: isinstance(s, Mma),
        sample=lambda s: s,
        illegal={
            "An mma and a panel (eight columns of D) of wgmma do not begin in the same cycle.": lambda _, mma, c: (
                (mma == _TAKEN) & (c == _TAKEN)
            )
        },
    ),
    Covergroup(
        name="warpgroup resets",
        meaning="A reset occurred with this number of instructions in flight, and with or without a valid result.",
        axes=(_WARPGROUP_IN_FLIGHT, Axis("result", _NONE_OR_THERE)),
        iff=lambda s: isinstance(s, _Command) and s.cycle.reset,
        sample=lambda s: (s.in_flight, s.others[1] > 0),
    ),
)
#: Covergroups of the tensor cores of a CTA: waiting times, simultaneous memory accesses, CTA pairs, commits, resets.
CTA = (
    Covergroup(
        name="cta instructions",
        meaning="A cycle with this number of instructions in flight and this command state, with or without a D write.",
        axes=(_CTA_IN_FLIGHT, Axis("instructions", _STATES), Axis("D written", _NONE_OR_THERE)),
        iff=lambda s: isinstance(s, _Command) and not s.cycle.reset,
        sample=lambda s: (min(s.in_flight, 2), s.cycle.states[0], s.others[-1]),
        illegal={
            "D is written only for an instruction in flight.": lambda in_flight, _, d: (in_flight == 0) & (d == 1)
        },
    ),
    _operations("cta", CtaOperation),
    Covergroup(
        name="cta ports",
        meaning="A cycle in which each of these memory ports was used or not: three that read, and one that writes D.",
        axes=tuple(Axis(port, _NONE_OR_THERE) for port in ("shared memory", "operands", "accumulators", "D written")),
        iff=lambda s: isinstance(s, _Command) and not s.cycle.reset,
        sample=lambda s: s.others,
    ),
    Covergroup(
        name="cta pairs",
        meaning="A cycle in which this CTA, the other CTA or both were ready to multiply a panel of B of either CTA.",
        axes=(Axis("waits", ("this one", "the other one", "both")), Axis("B of", ("this one", "the other one"))),
        iff=lambda s: isinstance(s, Pair) and (s.waits or s.other_waits),
        sample=lambda s: (s.waits + 2 * s.other_waits - 1, not s.own_b),
    ),
    Covergroup(
        name="cta commits",
        meaning="A commit arrived with this number of commits pending, including this commit.",
        axes=(Axis("commits", ("1", "2", "3 to 7", "8")),),
        iff=lambda s: isinstance(s, Commit),
        sample=lambda s: (np.searchsorted((1, 2, 3, 8), s.pending, "right") - 1,),
    ),
    Covergroup(
        name="cta resets",
        meaning="A reset occurred with this number of instructions in flight.",
        axes=(_CTA_IN_FLIGHT,),
        iff=lambda s: isinstance(s, _Command) and s.cycle.reset,
        sample=lambda s: (min(s.in_flight, 2),),
    ),
)
