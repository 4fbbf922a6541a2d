"""Command stream of a warpgroup in hardware: multiplications with fences, commits and waits in between.

It is independent of any simulator.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...rtl.life_cycle import Operation
from ...rtl.warpgroup import warpgroup_layout
from .jobs import Job

__all__ = ["Command", "commands"]

#: Largest number of groups that a wait can leave pending.
_MOST_PENDING = 7


@dataclass(frozen=True)
class Command:
    """A command of the instruction stream."""

    operation: Operation
    payload: int  #: Bits of the payload
    job: Job | None = None  #: Job of a multiplication
    pending: int = 0  #: Groups that a wait may leave pending


def commands(jobs: Iterator[Job], rng: np.random.Generator) -> Iterator[Command]:
    """Yield jobs with fences, commits and waits in between, at times many in a row; at the end, wait for all."""

    def of_layout(**fields: Any) -> int:
        return int(warpgroup_layout().const(fields).as_value().value)

    def commit() -> Command:
        return Command(Operation.COMMIT, of_layout(operation=Operation.COMMIT))

    def wait(pending: int) -> Command:
        return Command(Operation.WAIT, of_layout(operation=Operation.WAIT, pending=pending), pending=pending)

    for job in jobs:
        if rng.random() < 0.3:
            yield Command(Operation.FENCE, of_layout(operation=Operation.FENCE))
        yield Command(Operation.MULTIPLY, job.instruction, job)
        if rng.random() < 0.6:
            commits = 2 * (_MOST_PENDING + 1) if rng.random() < 0.25 else 1
            yield from (commit() for _ in range(commits))
        if rng.random() < 0.4:
            yield wait(int(rng.choice([0, 0, 1, int(rng.integers(_MOST_PENDING + 1))])))
    yield commit()
    yield wait(0)
