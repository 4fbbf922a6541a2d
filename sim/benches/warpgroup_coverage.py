"""Coverage of the streams of a warpgroup: waits, commits, concurrent `mma`, and resets."""

import numpy as np

from ...rtl.life_cycle import Operation
from ...rtl.tensor_cores import WARPS
from ..coverage.groups import Axis, Coverage, Group
from .scoreboard import Cycle
from .stream_coverage import LENGTH_LABELS, LENGTHS, STATES, state

__all__ = ["WarpgroupCoverage"]

_SLOTS = 2


class WarpgroupCoverage:
    """Functional coverage of the handshakes of a warpgroup.

    Groups: ``instructions`` and ``accumulators``: instructions in flight x state of that stream x state of the results;
    ``operations``: cycles that each operation waited; ``beside``: state of an ``mma`` on each array x state of the
    accumulators; ``resets``: instructions in flight, and whether a result was valid.

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
        held = Axis("instructions held", tuple(map(str, range(_SLOTS + 1))))
        instructions, accumulators, results, warps = (
            Axis(stream, STATES) for stream in ("instructions", "accumulators", "results", "mma")
        )
        cores = Axis("array", tuple(map(str, range(WARPS))))
        meaning = "A cycle in which so many instructions were held and both streams did this."
        self._instructions = Group(name, "warpgroup instructions", meaning, (held, instructions, results))
        self._accumulators = Group(name, "warpgroup accumulators", meaning, (held, accumulators, results))
        self._operations = Group(
            name,
            "warpgroup operations",
            "An operation waited for so many cycles before it was taken.",
            (
                Axis("operation", tuple(one.name.lower() for one in Operation)),
                Axis("cycles", LENGTH_LABELS),
            ),
        )
        self._beside = Group(
            name,
            "warpgroup beside",
            "An mma for this array did this while the accumulators of wgmma did that.",
            (cores, warps, accumulators),
        )
        self._resets = Group(
            name,
            "warpgroup resets",
            "A reset came while so many instructions were held and a result was there or not.",
            (held, Axis("result", ("none", "there"))),
        )
        self.coverage = Coverage([self._instructions, self._accumulators, self._operations, self._beside, self._resets])
        self._waited = 0
        count, of_c, _ = np.ix_(range(_SLOTS + 1), range(3), range(3))
        self._accumulators.declare_unreachable(
            (count == 0) & (of_c > 0), "Accumulators are offered for instructions that were taken."
        )
        of_operation, waited = np.ix_(range(len(Operation)), range(len(LENGTH_LABELS)))
        self._operations.declare_unreachable(
            (of_operation == Operation.FENCE.value) & (waited > 0), "A fence is taken at once."
        )
        _, of_mma, of_c = np.ix_(range(WARPS), range(3), range(3))
        self._beside.declare_unreachable(
            (of_mma == 1) & (of_c == 1), "While a panel of wgmma is multiplied, no mma begins."
        )

    def observe(self, cycle: Cycle, results: Cycle, held: int, operation: int | None) -> None:
        """Count one cycle of instructions, accumulators and results.

        Parameters
        ----------
        cycle : Cycle
            Handshakes of the instruction stream.
        results : Cycle
            Handshakes of the accumulator stream and of the result stream.
        held : int
            Instructions in flight: accepted, but not all accumulators accepted.
        operation : int or None
            Offered operation.
        """
        if cycle.reset:
            self._resets.count(held, int(results.o_valid))
            self._waited = 0
            return
        of_result = state(results.o_valid, results.o_ready)
        self._instructions.count(held, state(cycle.i_valid, cycle.i_ready), of_result)
        self._accumulators.count(held, state(results.i_valid, results.i_ready), of_result)
        if cycle.i_valid and cycle.i_ready:
            self._operations.count(operation, int(np.searchsorted(LENGTHS, self._waited, "right")) - 1)
        self._waited = self._waited + 1 if cycle.i_valid and not cycle.i_ready else 0

    def observe_beside(self, cycle: Cycle, results: Cycle, core: int) -> None:
        """Count one cycle of the array to which an ``mma`` is offered."""
        if not cycle.reset:
            states = state(cycle.i_valid, cycle.i_ready), state(results.i_valid, results.i_ready)
            self._beside.count(core, *states)
