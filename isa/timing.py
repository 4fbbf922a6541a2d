"""Cycles of ``mma`` and ``wgmma`` on an SM of sm_90: interval from the use of three resources, and latency.

Measured on an H200 (``recordings/cycles/``). Each of the four tensor cores takes eight columns of ``wgmma`` in four
cycles. Shared memory delivers 128 bytes per cycle; B is read once for all four tensor cores. The register file delivers
the other operands. The interval of an instruction is the time for which it occupies its busiest resource.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from .instructions import Instruction
from .numerics import Method, numerics
from .sequences import sequence_cycles

__all__ = [
    "ARCHITECTURE",
    "SHARED_BYTES",
    "TENSOR_CORES",
    "RegisterCycles",
    "Resource",
    "Source",
    "Timing",
    "is_sequence",
    "resource_cycles",
    "timing",
]

#: Architecture of all measurements here.
ARCHITECTURE = "sm_90"
#: Bytes that shared memory delivers per cycle.
SHARED_BYTES = 128
#: Tensor cores per SM.
TENSOR_CORES = 4
_COLUMNS_PER_CYCLE = 2
#: Bytes of stored A of a ``wgmma``: 64 rows of 32 bytes.
_A_BYTES = 64 * 32
#: Stored bytes of a row of A of an ``mma`` whose A takes four registers.
_LONG_BYTES = 32
#: Latency of ``mma`` in cycles, by whether a row of A has `_LONG_BYTES`; and of shapes with eight rows.
_LATENCIES = {False: 17, True: 24}
_LATENCY_M8, _WARP_ROWS = 14, 16
#: Smallest N of ``wgmma``.
_NARROWEST = 8
#: Width of the narrowest element in hardware; narrower ones are emulated.
_NARROWEST_BITS = 8
#: Latency in cycles of a group of one ``wgmma``, extrapolated to N = 0, by (sparse, A in shared memory).
_GROUP = {(False, False): 45.5, (True, False): 48.5, (False, True): 55.5, (True, True): 57.5}
#: Cycles that integers add to this latency.
_INTEGER = -2
#: N, by sparsity, above which float results add to the latency: they leave at 32 columns in 19 cycles, while tensor
#: cores process 32 columns in 16 cycles.
_LATE = {False: 144, True: 112}
_LATE_PER_COLUMN = 3 / 32


@dataclass(frozen=True)
class RegisterCycles:
    """Minimum cycles in which the register file delivers the operands of an instruction.

    Measured on an H200. ``wgmma``: the shortest interval with A in registers. ``mma``: the interval, which is longer
    than the tensor core needs. What the hardware does in these cycles is not known.
    """

    dense: int = 13  #: Dense ``wgmma``
    narrow: int = 16  #: Sparse ``wgmma`` with eight columns or with results of 16 bits
    wide: int = 18  #: Any other sparse ``wgmma``
    #: ``mma``, by (sparse, A has four registers instead of two).
    of_mma: Mapping[tuple[bool, bool], int] = field(
        default_factory=lambda: {(False, False): 4, (False, True): 6, (True, False): 6, (True, True): 8}
    )

    def of_wgmma(self, *, sparse: bool, narrow: bool) -> int:
        """Return the cycles of a ``wgmma``; `narrow` means eight columns, or results of 16 bits."""
        return self.dense if not sparse else self.narrow if narrow else self.wide


class Resource(Enum):
    """Resource that can limit the rate of an instruction."""

    TENSOR_CORE = "tensor core"
    SHARED_MEMORY = "shared memory"
    REGISTER_FILE = "register file"
    ISSUE = "issue"  #: of the instructions in a sequence that emulates one


class Source(Enum):
    """Evidence for a timing."""

    MEASURED = "measured"
    MEASURED_ELSEWHERE = "measured by others"
    MODELLED = "modelled"  #: the same law, applied to a form that nobody has measured


@dataclass(frozen=True)
class Timing:
    """Timing of an instruction in cycles of the SM clock."""

    #: Cycles from one instruction to the next that does not depend on it: ``mma`` on one tensor core, ``wgmma`` on all
    #: four.
    interval: float
    #: Cycles, for ``mma``: from one instruction to the next that needs its result. For ``wgmma``: from the fence to the
    #: end of the wait, for a group of one instruction; each further instruction of the group adds an interval.
    latency: float
    bound_by: Resource  #: Resource that determines the interval
    kept_mac_per_cycle: float  #: Multiply-accumulates of kept elements per cycle and tensor core
    source: Source = Source.MEASURED


def is_sequence(instruction: Instruction, arch: str) -> bool:
    """Return whether sm_90 executes an ``mma`` as a sequence of other instructions: fp8 and 4-bit integers."""
    if arch != ARCHITECTURE or instruction.family != "mma":
        return False
    return numerics(instruction, arch).method is Method.EMULATED or instruction.a.bits < _NARROWEST_BITS


def timing(instruction: Instruction, arch: str, a_from: str = "registers") -> Timing | None:
    """Return the timing of an instruction; None if nothing was measured.

    Parameters
    ----------
    instruction : Instruction
        Family ``mma`` or ``wgmma``. The timing of a sequence (:func:`is_sequence`) is that of a loop of them.
    arch : str
        Only sm_90 has a timing.
    a_from : str
        Place of A of ``wgmma``: ``"registers"`` or ``"shared"``.
    """
    if arch != ARCHITECTURE or arch not in instruction.architectures or instruction.family == "tcgen05":
        return None
    kept = instruction.m * instruction.n * instruction.stored_k
    if instruction.family == "wgmma":
        return _of_wgmma(instruction, a_from, kept)
    if is_sequence(instruction, arch):
        interval, latency = sequence_cycles(instruction)
        return Timing(interval, latency, Resource.ISSUE, kept / interval)
    long = instruction.stored_k * instruction.container_bits // 8 == _LONG_BYTES
    interval = RegisterCycles().of_mma[bool(instruction.sparse), long]
    latency = _LATENCIES[long] if instruction.m == _WARP_ROWS else _LATENCY_M8
    return Timing(interval, latency, Resource.REGISTER_FILE, kept / interval)


def resource_cycles(i: Instruction, a_from: str) -> dict[Resource, float]:
    """Return the cycles for which a ``wgmma`` occupies each resource.

    Parameters
    ----------
    i : Instruction
        Family ``wgmma``.
    a_from : str
        As for :func:`timing`.
    """
    shared = a_from == "shared"
    read = i.n * i.k * i.container_bits // 8 + (_A_BYTES if shared else 0)
    narrow = i.d.bits < 32 or i.n == _NARROWEST
    registers = 0 if shared else RegisterCycles().of_wgmma(sparse=bool(i.sparse), narrow=narrow)
    return {
        Resource.TENSOR_CORE: i.n / _COLUMNS_PER_CYCLE,
        Resource.SHARED_MEMORY: read / SHARED_BYTES,
        Resource.REGISTER_FILE: registers,
    }


def _of_wgmma(i: Instruction, a_from: str, kept: int) -> Timing:
    needed = resource_cycles(i, a_from)
    bound_by = max(needed, key=lambda resource: needed[resource])
    sparse = bool(i.sparse)
    latency = _GROUP[sparse, a_from == "shared"] + needed[Resource.TENSOR_CORE]
    latency += _INTEGER if i.a.is_integer else max(0.0, _LATE_PER_COLUMN * (i.n - _LATE[sparse]))
    interval = needed[bound_by]
    return Timing(interval, latency, bound_by, kept / (TENSOR_CORES * interval))
