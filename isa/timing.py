"""What an instruction takes on the tensor cores of an SM of sm_90: a law of three resources, and what pipelines add.

Measured on an H200 (``recordings/cycles/``). Each of four tensor cores takes eight columns of ``wgmma`` in four cycles;
shared memory delivers 128 bytes a cycle, B once for all four; the register file delivers the rest. The resource that an
instruction needs longest is its interval.
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

#: That everything here was measured on.
ARCHITECTURE = "sm_90"
#: That shared memory delivers in a cycle.
SHARED_BYTES = 128
#: Of an SM.
TENSOR_CORES = 4
_COLUMNS_PER_CYCLE = 2
#: Rows of A of ``wgmma``, stored bytes of each.
_A_BYTES = 64 * 32
#: Stored bytes of a row of A of an ``mma`` whose A takes four registers.
_LONG_BYTES = 32
#: Latency of ``mma``, by whether it is one; and of eight rows.
_LATENCIES = {False: 17, True: 24}
_LATENCY_M8, _WARP_ROWS = 14, 16
_NARROWEST = 8
#: Of an element; smaller ones are emulated.
_NARROWEST_BITS = 8
#: Cycles of a group of one instruction of no columns, by sparsity and by whether A is in shared memory.
_GROUP = {(False, False): 45.5, (True, False): 48.5, (False, True): 55.5, (True, True): 57.5}
_INTEGER = -2
#: Where the results of floats, which leave at 32 columns in 19 cycles, begin to be later than the last column.
_LATE = {False: 144, True: 112}
_LATE_PER_COLUMN = 3 / 32


@dataclass(frozen=True)
class RegisterCycles:
    """Cycles that the register file takes at least to deliver the operands of an instruction.

    Measured on an H200: of ``wgmma`` as the least interval with A in registers, of ``mma`` as the interval, which is
    longer than the tensor core needs. What the silicon does in them is not known.

    Attributes
    ----------
    dense : int
        Of a dense ``wgmma``.
    narrow : int
        Of a sparse one with eight columns, or with results of 16 bits.
    wide : int
        Of any other.
    of_mma : dict of (bool, bool) to int
        Of ``mma``, by whether it is sparse and whether A takes four registers instead of two.
    """

    dense: int = 13
    narrow: int = 16
    wide: int = 18
    of_mma: Mapping[tuple[bool, bool], int] = field(
        default_factory=lambda: {(False, False): 4, (False, True): 6, (True, False): 6, (True, True): 8}
    )

    def of_wgmma(self, *, sparse: bool, narrow: bool) -> int:
        """Return those of ``wgmma``, which is narrow with eight columns, or with results of 16 bits."""
        return self.dense if not sparse else self.narrow if narrow else self.wide


class Resource(Enum):
    """What an instruction may wait for."""

    TENSOR_CORE = "tensor core"
    SHARED_MEMORY = "shared memory"
    REGISTER_FILE = "register file"
    ISSUE = "issue"  #: of a sequence of many instructions


class Source(Enum):
    """What a timing rests on."""

    MEASURED = "measured"
    MEASURED_ELSEWHERE = "measured by others"
    MODELLED = "modelled"  #: the same law, of a form that nobody has measured


@dataclass(frozen=True)
class Timing:
    """Cycles of the SM's clock.

    Attributes
    ----------
    interval : float
        From one instruction to the next that does not wait for it: of ``mma`` on one of the tensor cores, of ``wgmma``
        on all four.
    latency : float
        Of ``mma``, from one instruction to the next that needs its result; of ``wgmma``, of a group of one, from its
        fence to the end of its wait. Further instructions of a group add an interval each.
    bound_by : Resource
        What decides the interval.
    kept_mac_per_cycle : float
        Multiplications of kept elements a cycle, of one tensor core.
    source : Source
        What it rests on.
    """

    interval: float
    latency: float
    bound_by: Resource
    kept_mac_per_cycle: float
    source: Source = Source.MEASURED


def is_sequence(instruction: Instruction, arch: str) -> bool:
    """Tell whether an ``mma`` is a sequence of others on sm_90, as those of fp8 and of 4-bit integers are."""
    if arch != ARCHITECTURE or instruction.family != "mma":
        return False
    return numerics(instruction, arch).method is Method.EMULATED or instruction.a.bits < _NARROWEST_BITS


def timing(instruction: Instruction, arch: str, a_from: str = "registers") -> Timing | None:
    """Return what an instruction takes, None where nothing was measured.

    Parameters
    ----------
    instruction : Instruction
        Of family ``mma`` or ``wgmma``. Of sequences, :func:`is_sequence`, it is what a loop of them takes.
    arch : str
        Only sm_90 is known.
    a_from : str
        Of ``wgmma``: ``"registers"`` or ``"shared"``.
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
    """Return for how many cycles ``wgmma`` needs each resource.

    Parameters
    ----------
    i : Instruction
        Of family ``wgmma``.
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
