"""Jobs (multiplications with memory contents and expected results) and commands for the bench of a warpgroup.

A job is an instruction, its shared memory, and panels with their expected results. Commands are multiplications with
fences, commits and waits in between. Jobs and commands do not depend on a simulator. :mod:`sptc.verify.bench_jobs`
makes jobs from recorded register contents.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ...isa.memory import UNIT_BYTES
from ...rtl.fetch import ADDRESS_BITS
from ...rtl.life_cycle import Operation
from ...rtl.warpgroup import warpgroup_layout
from ..engine.ports import payload_bits
from .items import Item

__all__ = ["Command", "Job", "commands"]

#: Largest number of commit groups that a wait command can leave pending.
_MOST_PENDING = 7


@dataclass(frozen=True, eq=False)
class Job:
    """One ``wgmma`` instruction with its shared memory, accumulators and expected results."""

    instruction: int  #: Payload of the instruction in the warpgroup's command stream, as an integer
    memory: list[int]  #: Contents of the used part of shared memory, one integer per 16 bytes
    base: int  #: Start of the used part of shared memory, as an index of 16-byte units modulo 2**14
    reads: int  #: Number of cycles in which the instruction reads shared memory, 8 x 16 bytes per cycle
    panels: list[Item]  #: For each panel (eight columns) of D: accumulators and expected results

    def read(self, unit: int) -> int:
        """Return 16 bytes of shared memory as an integer; unused addresses return all ones (NaN in float formats)."""
        place = (unit - self.base) % (1 << ADDRESS_BITS)
        return self.memory[place] if place < len(self.memory) else (1 << 8 * UNIT_BYTES) - 1


@dataclass(frozen=True)
class Command:
    """Command in the command stream of a warpgroup: multiplication, fence, commit or wait."""

    operation: Operation
    payload: int  #: Payload of the command in the warpgroup's command stream, as an integer
    job: Job | None = None  #: Job (operands and expected results) of a multiplication; None for other commands
    pending: int = 0  #: Number of commit groups that a wait command may leave pending


def commands(jobs: Iterator[Job], rng: np.random.Generator, *, many_groups: bool = False) -> Iterator[Command]:
    """Yield multiplications with random fences, commits and waits; the last command waits for all commit groups.

    With `many_groups`, up to four commits follow half of the multiplications, and few commands wait for commit groups.
    """
    commits, waits = (0.5, 0.05) if many_groups else (0.6, 0.4)

    def other(operation: Operation, pending: int = 0) -> Command:
        payload = payload_bits(warpgroup_layout(), {"operation": operation, "pending": pending})
        return Command(operation, payload, pending=pending)

    for job in jobs:
        if rng.random() < 0.3:
            yield other(Operation.FENCE)
        yield Command(Operation.MULTIPLY, job.instruction, job)
        if rng.random() < commits:
            count = int(rng.integers(1, 5)) if many_groups else 1
            count = 2 * (_MOST_PENDING + 1) if rng.random() < 0.25 else count
            yield from [other(Operation.COMMIT)] * count
        if rng.random() < waits:
            yield other(Operation.WAIT, int(rng.choice([0, 0, 1, int(rng.integers(_MOST_PENDING + 1))])))
    yield other(Operation.COMMIT)
    yield other(Operation.WAIT)
