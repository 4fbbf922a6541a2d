"""Coverage of the tensor cores of a CTA: waits, simultaneous memory accesses, pairs, commits and resets."""

import numpy as np

from ...rtl.tcgen05 import CtaOperation
from ..coverage.groups import Axis, Coverage, Group
from .scoreboard import Cycle
from .stream_coverage import LENGTH_LABELS, LENGTHS, STATES, state

__all__ = ["CtaCoverage"]

_SLOTS = 2


class CtaCoverage:
    """Functional coverage of the control around the arrays.

    Groups: ``instructions``: instructions in flight x state of the stream x whether D is written; ``operations``:
    cycles that each operation waited; ``ports``: memories read and written in the same cycle; ``pairs``: which CTA of a
    pair waits, and whose B is multiplied; ``commits``: commits pending when one arrives; ``resets``: instructions in
    flight.

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
        held = Axis("instructions held", ("0", "1", "2 or more"))
        none_or = ("none", "there")
        self._instructions = Group(
            name,
            "cta instructions",
            "A cycle in which so many instructions were held, the stream did this, and D was written or not.",
            (held, Axis("instructions", STATES), Axis("D written", none_or)),
        )
        self._operations = Group(
            name,
            "cta operations",
            "An operation waited for so many cycles before it was taken.",
            (Axis("operation", tuple(one.name.lower() for one in CtaOperation)), Axis("cycles", LENGTH_LABELS)),
        )
        self._ports = Group(
            name,
            "cta ports",
            "A cycle in which these were read, and D was written or not.",
            tuple(Axis(of, none_or) for of in ("shared memory", "operands", "accumulators", "D written")),
        )
        self._pairs = Group(
            name,
            "cta pairs",
            "A cycle in which this CTA, the other one or both would multiply a panel of B of one of them.",
            (Axis("waits", ("this one", "the other one", "both")), Axis("B of", ("this one", "the other one"))),
        )
        self._commits = Group(
            name,
            "cta commits",
            "A commit arrived while so many had not.",
            (Axis("commits", ("1", "2", "3 to 7", "8")),),
        )
        self._resets = Group(name, "cta resets", "A reset came while so many instructions were held.", (held,))
        self.coverage = Coverage(
            [self._instructions, self._operations, self._ports, self._pairs, self._commits, self._resets]
        )
        self._waited = 0
        count, _, written = np.ix_(range(_SLOTS + 1), range(len(STATES)), range(2))
        self._instructions.declare_unreachable(
            (count == 0) & (written > 0), "Nothing is held until its last result is written."
        )

    def observe(self, cycle: Cycle, held: int, operation: int | None, ports: tuple[int, int, int, int]) -> None:
        """Count one cycle.

        Parameters
        ----------
        cycle : Cycle
            Handshakes of the instruction stream.
        held : int
            Instructions in flight: accepted, but not all results written.
        operation : int or None
            Offered operation.
        ports : tuple of int
            Whether shared memory, operands and accumulators are read, and whether D is written.
        """
        held = min(held, _SLOTS)
        if cycle.reset:
            self._resets.count(held)
            self._waited = 0
            return
        self._instructions.count(held, state(cycle.i_valid, cycle.i_ready), ports[-1])
        self._ports.count(*ports)
        if cycle.accepts:
            self._operations.count(operation, int(np.searchsorted(LENGTHS, self._waited, "right")) - 1)
        self._waited = self._waited + 1 if cycle.i_valid and not cycle.i_ready else 0

    def observe_pair(self, waits: bool, other_waits: bool, mine: bool) -> None:
        """Count one cycle in which the next panel belongs to a pair."""
        if waits or other_waits:
            self._pairs.count(2 if waits and other_waits else int(other_waits), int(not mine))

    def observe_arrival(self, pending: int) -> None:
        """Count the arrival of a commit."""
        self._commits.count(int(np.searchsorted((1, 2, 3, 8), pending, "right")) - 1)
