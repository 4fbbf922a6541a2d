"""Coverage of the tensor cores of a CTA: waits, simultaneous memory accesses, pairs, commits and resets."""

from typing import NamedTuple

import numpy as np

from ...rtl.tcgen05 import CtaOperation
from ..coverage.covergroups import Covergroup, Sampler
from ..coverage.groups import Axis
from .scoreboard import Cycle
from .stream_coverage import LENGTH_LABELS, STATES, length_bin, state

__all__ = ["CtaCoverage"]

_SLOTS = 2
_IN_FLIGHT = Axis("instructions held", ("0", "1", "2 or more"))
_NONE_OR_THERE = ("none", "there")


class _CycleSample(NamedTuple):
    reset: bool
    in_flight: int
    instructions: int  # state of the stream
    operation: int | None  # the operation that is accepted
    waited: int  # cycles that it waited
    ports: tuple[int, int, int, int]


class _PairSample(NamedTuple):
    waits: bool
    other_waits: bool
    own_b: bool


class _CommitSample(NamedTuple):
    pending: int


_COVERGROUPS = (
    Covergroup(
        name="cta instructions",
        meaning="A cycle in which so many instructions were held, the stream did this, and D was written or not.",
        axes=(_IN_FLIGHT, Axis("instructions", STATES), Axis("D written", _NONE_OR_THERE)),
        iff=lambda s: isinstance(s, _CycleSample) and not s.reset,
        sample=lambda s: (s.in_flight, s.instructions, s.ports[-1]),
        illegal=(
            (
                "Nothing is held until its last result is written.",
                (np.arange(_SLOTS + 1)[:, None, None] == 0) & (np.arange(2) == 1),
            ),
        ),
    ),
    Covergroup(
        name="cta operations",
        meaning="An operation waited for so many cycles before it was taken.",
        axes=(
            Axis("operation", tuple(operation.name.lower() for operation in CtaOperation)),
            Axis("cycles", LENGTH_LABELS),
        ),
        iff=lambda s: isinstance(s, _CycleSample) and s.operation is not None,
        sample=lambda s: (s.operation, length_bin(s.waited)),
    ),
    Covergroup(
        name="cta ports",
        meaning="A cycle in which these were read, and D was written or not.",
        axes=tuple(Axis(port, _NONE_OR_THERE) for port in ("shared memory", "operands", "accumulators", "D written")),
        iff=lambda s: isinstance(s, _CycleSample) and not s.reset,
        sample=lambda s: s.ports,
    ),
    Covergroup(
        name="cta pairs",
        meaning="A cycle in which this CTA, the other one or both would multiply a panel of B of one of them.",
        axes=(Axis("waits", ("this one", "the other one", "both")), Axis("B of", ("this one", "the other one"))),
        iff=lambda s: isinstance(s, _PairSample) and (s.waits or s.other_waits),
        sample=lambda s: (s.waits + 2 * s.other_waits - 1, not s.own_b),
    ),
    Covergroup(
        name="cta commits",
        meaning="A commit arrived while so many had not.",
        axes=(Axis("commits", ("1", "2", "3 to 7", "8")),),
        iff=lambda s: isinstance(s, _CommitSample),
        sample=lambda s: (np.searchsorted((1, 2, 3, 8), s.pending, "right") - 1,),
    ),
    Covergroup(
        name="cta resets",
        meaning="A reset came while so many instructions were held.",
        axes=(_IN_FLIGHT,),
        iff=lambda s: isinstance(s, _CycleSample) and s.reset,
        sample=lambda s: (s.in_flight,),
    ),
)


class CtaCoverage:
    """Functional coverage of the control around the arrays.

    Parameters
    ----------
    name : str
        Datapath.

    Attributes
    ----------
    coverage : Coverage
        Coverage observed so far.
    """

    def __init__(self, name: str) -> None:
        self._sampler = Sampler(name, _COVERGROUPS)
        self.coverage = self._sampler.coverage
        self._waited = 0

    def observe(self, cycle: Cycle, in_flight: int, operation: int | None, ports: tuple[int, int, int, int]) -> None:
        """Count one cycle.

        Parameters
        ----------
        cycle : Cycle
            Handshakes of the instruction stream.
        in_flight : int
            Instructions accepted, but not all results written.
        operation : int or None
            Offered operation.
        ports : tuple of int
            Whether shared memory, operands and accumulators are read, and whether D is written.
        """
        stream = state(cycle.i_valid, cycle.i_ready)
        accepted = operation if cycle.accepts else None
        self._sampler.sample(_CycleSample(cycle.reset, min(in_flight, _SLOTS), stream, accepted, self._waited, ports))
        self._waited = self._waited + 1 if STATES[stream] == "waits" and not cycle.reset else 0

    def observe_pair(self, waits: bool, other_waits: bool, own_b: bool) -> None:
        """Count one cycle in which the next panel belongs to a pair; `own_b` if its B is in this CTA."""
        self._sampler.sample(_PairSample(waits, other_waits, own_b))

    def observe_arrival(self, pending: int) -> None:
        """Count the arrival of a commit."""
        self._sampler.sample(_CommitSample(pending))
