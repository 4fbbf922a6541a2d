"""Coverage of the streams of a warpgroup: waits, commits, concurrent `mma`, and resets."""

from typing import NamedTuple

import numpy as np

from ...rtl.life_cycle import Operation
from ...rtl.tensor_cores import WARPS
from ..coverage.covergroups import Covergroup, Sampler
from ..coverage.groups import Axis
from .scoreboard import Cycle
from .stream_coverage import LENGTH_LABELS, STATES, length_bin, state

__all__ = ["WarpgroupCoverage"]

_SLOTS = 2
_IN_FLIGHT = Axis("instructions held", tuple(map(str, range(_SLOTS + 1))))
_ACCUMULATORS, _RESULTS = Axis("accumulators", STATES), Axis("results", STATES)
_MEANING = "A cycle in which so many instructions were held and both streams did this."


class _CycleSample(NamedTuple):
    reset: bool
    in_flight: int
    instructions: int  # states of the streams
    accumulators: int
    results: int
    operation: int | None  # the operation that is accepted
    waited: int  # cycles that it waited


class _MmaSample(NamedTuple):
    array: int
    mma: int
    accumulators: int


_COVERGROUPS = (
    Covergroup(
        name="warpgroup instructions",
        meaning=_MEANING,
        axes=(_IN_FLIGHT, Axis("instructions", STATES), _RESULTS),
        iff=lambda s: isinstance(s, _CycleSample) and not s.reset,
        sample=lambda s: (s.in_flight, s.instructions, s.results),
    ),
    Covergroup(
        name="warpgroup accumulators",
        meaning=_MEANING,
        axes=(_IN_FLIGHT, _ACCUMULATORS, _RESULTS),
        iff=lambda s: isinstance(s, _CycleSample) and not s.reset,
        sample=lambda s: (s.in_flight, s.accumulators, s.results),
        illegal=(
            (
                "Accumulators are offered for instructions that were taken.",
                (np.arange(_SLOTS + 1)[:, None, None] == 0) & (np.arange(3)[:, None] > 0),
            ),
        ),
    ),
    Covergroup(
        name="warpgroup operations",
        meaning="An operation waited for so many cycles before it was taken.",
        axes=(
            Axis("operation", tuple(operation.name.lower() for operation in Operation)),
            Axis("cycles", LENGTH_LABELS),
        ),
        iff=lambda s: isinstance(s, _CycleSample) and s.operation is not None,
        sample=lambda s: (s.operation, length_bin(s.waited)),
        illegal=(
            (
                "A fence is taken at once.",
                (np.arange(len(Operation))[:, None] == Operation.FENCE.value) & (np.arange(len(LENGTH_LABELS)) > 0),
            ),
        ),
    ),
    Covergroup(
        name="warpgroup beside",
        meaning="An mma for this array did this while the accumulators of wgmma did that.",
        axes=(Axis("array", tuple(map(str, range(WARPS)))), Axis("mma", STATES), _ACCUMULATORS),
        iff=lambda s: isinstance(s, _MmaSample),
        sample=lambda s: (s.array, s.mma, s.accumulators),
        illegal=(
            (
                "While a panel of wgmma is multiplied, no mma begins.",
                (np.arange(3)[:, None] == STATES.index("taken")) & (np.arange(3) == STATES.index("taken")),
            ),
        ),
    ),
    Covergroup(
        name="warpgroup resets",
        meaning="A reset came while so many instructions were held and a result was there or not.",
        axes=(_IN_FLIGHT, Axis("result", ("none", "there"))),
        iff=lambda s: isinstance(s, _CycleSample) and s.reset,
        sample=lambda s: (s.in_flight, s.results > 0),
    ),
)


class WarpgroupCoverage:
    """Functional coverage of the handshakes of a warpgroup.

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

    def observe(self, cycle: Cycle, results: Cycle, in_flight: int, operation: int | None) -> None:
        """Count one cycle of instructions, accumulators and results.

        Parameters
        ----------
        cycle : Cycle
            Handshakes of the instruction stream.
        results : Cycle
            Handshakes of the accumulator stream and of the result stream.
        in_flight : int
            Instructions accepted, but not all accumulators accepted.
        operation : int or None
            Offered operation.
        """
        stream = state(cycle.i_valid, cycle.i_ready)
        self._sampler.sample(
            _CycleSample(
                reset=cycle.reset,
                in_flight=in_flight,
                instructions=stream,
                accumulators=state(results.i_valid, results.i_ready),
                results=state(results.o_valid, results.o_ready),
                operation=operation if cycle.accepts else None,
                waited=self._waited,
            )
        )
        self._waited = self._waited + 1 if STATES[stream] == "waits" and not cycle.reset else 0

    def observe_beside(self, cycle: Cycle, results: Cycle, core: int) -> None:
        """Count one cycle of the array to which an ``mma`` is offered."""
        if not cycle.reset:
            mma, accumulators = state(cycle.i_valid, cycle.i_ready), state(results.i_valid, results.i_ready)
            self._sampler.sample(_MmaSample(core, mma, accumulators))
