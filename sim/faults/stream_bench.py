"""What a stream component is tried with on faulty hardware, and what a cycle's record has beside its handshakes."""

import ctypes
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..benches.items import Item
from ..benches.jobs import Job
from ..benches.scoreboard import Scoreboard

__all__ = ["JOB", "STARVED", "WRONG", "StreamBench", "described_jobs", "joined", "words_bytes"]

#: Bits of what is recorded of a cycle beside its handshakes: an instruction waits for nothing; what is beside the
#: stream of results is wrong, as how often a memory was read.
STARVED, WRONG = 1 << 6, 1 << 7

#: Work of ``wgmma`` in C++: first unit of its memory, their number, where they are, how often it reads eight, its first
#: panel, their number.
JOB = "struct Job { int64_t memory, units, base, reads, panel, panels; };"


@dataclass(frozen=True)
class StreamBench:
    """What is tried, and how it is driven and judged.

    Attributes
    ----------
    design : str
        RTLIL.
    components : mapping of str to sequence of str
        As :func:`~.mutants.mutated` takes them.
    whole : str
        A part that faults are drawn around.
    items : list of Item
        What results come out for.
    source : str
        The stream at which they enter.
    driver : str
        C++ between the model and the loop over cycles.
    load : callable
        Hands the work to the compiled model.
    result_bits : int
        Of the payload that comes out.
    pace, cycles : int
        Cycles of an item, and how many are run at most.
    scoreboard : callable () -> Scoreboard
        What judges.
    """

    design: str
    components: Mapping[str, Sequence[str]]
    whole: str
    items: Sequence[Item]
    source: str
    driver: str
    load: Callable[[ctypes.CDLL], None]
    result_bits: int
    pace: int
    cycles: int
    scoreboard: Callable[[], Scoreboard]

    @property
    def out_bytes(self) -> int:
        """What a result takes in C++."""
        return words_bytes(self.result_bits)


def words_bytes(bits: int) -> int:
    """Return what a port of so many bits takes in C++: words of 32 bits."""
    return 4 * -(-bits // 32)


def joined(payloads: Iterable[int], bits: int) -> bytes:
    """Return payloads of so many bits as C++ holds them, one behind the other."""
    return b"".join(payload.to_bytes(words_bytes(bits), "little") for payload in payloads)


def described_jobs(jobs: Sequence[Job]) -> tuple[NDArray[np.int64], bytes]:
    """Return what :data:`JOB` holds of each, and their memories, one behind the other."""
    memory = b"".join(unit.to_bytes(16, "little") for job in jobs for unit in job.memory)
    sizes = np.array([(len(job.memory), len(job.panels)) for job in jobs], np.int64)
    (unit, panel), (units, panels) = (np.cumsum(sizes, axis=0) - sizes).T, sizes.T
    bases, reads = [job.base for job in jobs], [job.reads for job in jobs]
    return np.ascontiguousarray(np.stack([unit, units, bases, reads, panel, panels], axis=1), np.int64), memory
