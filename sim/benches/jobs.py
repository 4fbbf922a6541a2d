"""Jobs of a warpgroup in hardware: an instruction, its shared memory, and panels with their expected results.

It is independent of any simulator. :mod:`sptc.verify.bench_jobs` makes jobs from register files.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from ...rtl.fetch import ADDRESS_BITS
from .items import Item

__all__ = ["Job", "read_jobs", "write_jobs"]

_UNIT_BYTES, _UNITS = 16, 1 << ADDRESS_BITS


@dataclass(frozen=True, eq=False)
class Job:
    """One instruction."""

    instruction: int  #: Bits of the payload of the instruction
    memory: list[int]  #: Content of the used part of shared memory, in units of 16 bytes
    base: int  #: First unit of this part, which wraps around the 2**14 units of the memory
    reads: int  #: Number of cycles with a read, each of eight units
    panels: list[Item]  #: Accumulators of eight columns each, and their expected results

    def read(self, unit: int) -> int:
        """Return a unit of the memory; a unit outside the used part is all ones, NaN in any format."""
        place = (unit - self.base) % _UNITS
        return self.memory[place] if place < len(self.memory) else (1 << 8 * _UNIT_BYTES) - 1


def write_jobs(path: Path, jobs: Iterable[Job]) -> int:
    """Write jobs for a bench, one on each line; return the number of their panels."""
    panels = 0
    with path.open("w", encoding="utf-8") as file:
        for job in jobs:
            panels += len(job.panels)
            fields = asdict(job) | {"instruction": hex(job.instruction), "memory": [hex(unit) for unit in job.memory]}
            fields["panels"] = [
                asdict(panel) | {"payload": hex(panel.payload), "expected": hex(panel.expected)} for panel in job.panels
            ]
            file.write(json.dumps(fields) + "\n")
    return panels


def read_jobs(path: Path) -> Iterator[Job]:
    """Yield the jobs in a file of :func:`write_jobs`."""
    with path.open(encoding="utf-8") as file:
        for line in file:
            fields = json.loads(line)
            fields["instruction"] = int(fields["instruction"], 16)
            fields["memory"] = [int(unit, 16) for unit in fields["memory"]]
            fields["panels"] = [
                Item(**panel | {"payload": int(panel["payload"], 16), "expected": int(panel["expected"], 16)})
                for panel in fields["panels"]
            ]
            yield Job(**fields)
