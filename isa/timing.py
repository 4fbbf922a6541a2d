"""Timing of ``mma``, ``wgmma`` and ``tcgen05.mma`` on an SM: latency, and issue interval from the use of resources.

The interval of an instruction is the time for which it occupies its busiest resource. Tensor cores of an SM take two
columns of D per cycle. Shared memory delivers 128 bytes per cycle; B is read once for all tensor cores, and each CTA of
a pair reads half of B and passes it to its peer. On sm_90, the register file delivers all other operands.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from ..errors import InstructionError
from .instructions import Instruction
from .numerics import Method, numerics
from .tcgen05 import Opcode
from .tensor_memory import layout_for

__all__ = [
    "ARCHITECTURE",
    "A_PLACES",
    "LAWS",
    "ROW_BYTES",
    "SHARED_BYTES",
    "TENSOR_CORES",
    "Law",
    "RegisterCycles",
    "Resource",
    "Source",
    "Timing",
    "is_sequence",
    "resource_cycles",
    "tcgen05_timing",
    "timing",
]

#: Architecture on which the timing of ``mma`` and ``wgmma`` was measured for this project.
ARCHITECTURE = "sm_90"
#: Memories from which ``tcgen05.mma`` can read A.
A_PLACES = ("tensor", "shared")
#: Bytes per cycle that the shared memory of an SM delivers.
SHARED_BYTES = 128
#: Number of tensor cores per SM.
TENSOR_CORES = 4
#: Number of bytes in a row of stored A of one instruction, for every ``wgmma`` and ``tcgen05.mma``, and for each
#: ``mma`` that reads A from four registers.
ROW_BYTES = 32
_WARP_ROWS = 16
#: Columns of D that the tensor cores of an SM process per cycle.
_COLUMNS_PER_CYCLE = 2
#: Smallest N (number of columns of D) of ``wgmma``.
_NARROWEST = 8
#: Width in bits of the narrowest element that tensor cores of sm_90 multiply. Narrower elements are emulated.
_NARROWEST_BITS = 8


@dataclass(frozen=True)
class RegisterCycles:
    """Minimum cycles for which an SM's register file is busy with the operands of an instruction.

    Measured on an H200: for ``wgmma``, the shortest interval between two instructions with A in registers; for ``mma``,
    the interval, which is longer than the tensor core needs. What the hardware does in these cycles is not known.
    """

    dense: int = 13  #: Cycles for which a dense ``wgmma`` occupies the register file
    narrow: int = 16  #: Cycles for which a sparse ``wgmma`` with N = 8 or 16-bit results occupies the register file
    wide: int = 18  #: Cycles for which a sparse ``wgmma`` with N > 8 and 32-bit results occupies the register file
    #: Cycles for which an ``mma`` occupies the register file. Each key is a pair: whether the ``mma`` is sparse, and
    #: whether A is in four registers instead of two.
    of_mma: Mapping[tuple[bool, bool], int] = field(
        default_factory=lambda: {(False, False): 4, (False, True): 6, (True, False): 6, (True, True): 8}
    )

    def of_wgmma(self, *, sparse: bool, narrow: bool) -> int:
        """Return for how many cycles a ``wgmma`` occupies the register file. `narrow`: N = 8, or 16-bit results."""
        return self.dense if not sparse else self.narrow if narrow else self.wide


class Resource(Enum):
    """Hardware resource that can limit the rate of an instruction."""

    TENSOR_CORE = "tensor core"
    SHARED_MEMORY = "shared memory"
    REGISTER_FILE = "register file"
    ISSUE = "issue"  #: rate at which the machine instructions of an emulated instruction are issued


class Source(Enum):
    """Level of evidence for an instruction's timing."""

    MEASURED = "measured"  #: interval and latency of this instruction were measured for this project
    FITTED = "fitted to measurements"  #: timing from a formula that was fitted to measurements of other types or N
    MEASURED_ELSEWHERE = "measured by others"
    DATA_SHEET = "white paper"  #: interval and latency derived from the throughput in the manufacturer's white paper
    MODELLED = "modelled"  #: timing derived from other instructions, or from another chip


@dataclass(frozen=True)
class Timing:
    """Timing of an instruction in cycles of the SM clock."""

    #: Cycles from the issue of one instruction to the issue of the next independent instruction: per tensor core for
    #: ``mma``, per SM (four tensor cores) for ``wgmma`` and ``tcgen05.mma``.
    interval: float
    #: Latency in cycles. ``mma``: from the issue of one instruction to the issue of the next instruction, if that needs
    #: the result. ``wgmma``: from the fence to the end of the wait, for a group of one instruction. Each further
    #: instruction of the group adds an interval. ``tcgen05.mma``: from the issue to the end of a wait for its mbarrier.
    #: NaN if no public source states the latency.
    latency: float
    bound_by: Resource  #: Hardware resource that determines the issue interval
    kept_mac_per_cycle: float  #: Multiply-accumulates of stored elements of A per cycle and tensor core
    source: Source = Source.MEASURED
    reference: str = ""  #: Title of the white paper that states the rate, or assumption of the timing model


@dataclass(frozen=True, kw_only=True)
class Law:
    """Constants of the timing formula of an instruction family on an architecture.

    The latency is the time for which the instruction occupies the tensor cores, plus those constants of latency in this
    record and in this module that apply to the instruction.
    """

    arch: str
    #: Latency in cycles, extrapolated to N = 0. Key: for ``wgmma``, whether the instruction is sparse; for
    #: ``tcgen05.mma``, whether a CTA pair executes it.
    start: Mapping[bool, float]
    integer: Mapping[bool, int]  #: Additional latency of integer instructions, in cycles; same keys as `start`


#: Timing formula of each family with operands in shared memory. The formula of ``wgmma`` was measured on an H200
#: (``h200-2026-11-24.csv`` in ``recordings/cycles/``), the formula of ``tcgen05.mma`` by others on a B200
#: (``tcgen05-b200-2026-03-06.csv``).
LAWS = {
    "wgmma": Law(arch=ARCHITECTURE, start={False: 45.5, True: 48.5}, integer={False: -2, True: -2}),
    "tcgen05": Law(arch="sm_100", start={False: 104, True: 138}, integer={False: -1, True: -3}),
}
#: Additional latency of ``wgmma`` with A in shared memory, in cycles. Key: whether the ``wgmma`` is sparse.
_WGMMA_SHARED = {False: 10, True: 9}
#: Limit of N above which float results add to the latency of ``wgmma``. Key: whether the ``wgmma`` is sparse. Tensor
#: cores process 32 columns in 16 cycles, but 32 columns of results take 19 cycles to be written.
_LATE = {False: 144, True: 112}
_LATE_PER_COLUMN = 3 / 32
#: Measured latency in cycles of an ``mma`` with 16 rows. Key: whether a row of stored A has `ROW_BYTES` bytes. The
#: second constant is the latency of an ``mma`` with eight rows.
_MMA_LATENCIES = {False: 17, True: 24}
_MMA_LATENCY_M8 = 14
#: Additional latency in cycles of a dense ``tcgen05.mma`` on a CTA pair with 64 rows per CTA: always `_HALF_ROWS`. If A
#: is in shared memory, also `_HALF_ROWS_SHARED` cycles to read A, and at most `_FIRST_OF_B` cycles to read a part of B
#: before A.
_HALF_ROWS, _HALF_ROWS_SHARED, _FIRST_OF_B = 8, 3, 16
#: Additional latency of ``tcgen05.mma`` with block scales, in cycles. Key: True if a single CTA executes the
#: instruction with A in shared memory, otherwise False.
_SCALED = {True: 1, False: 3}
#: Types and values of N of the ``mma`` and ``wgmma`` instructions that were measured on an H200. A and B have the same
#: type, and no instruction has ``.satfinite``.
_MEASURED_TYPES = ("f16", "bf16", "tf32", "e4m3", "s8")
_MEASURED_N = (8, 16, 24, 32, 40, 48, 64, 96, 128, 192, 256)
#: Kinds and types of the dense ``tcgen05.mma`` instructions with published measurements, and the measured values of N.
_MEASURED = {
    ("f16", "f32.bf16.bf16"),
    ("f8f6f4", "f32.e4m3.e4m3"),
    ("f8f6f4", "f32.e2m1.e2m1"),
    ("i8", "s32.s8.s8"),
    ("mxf8f6f4", "f32.e4m3.e4m3.ue8m0"),
    ("mxf4", "f32.e2m1.e2m1.ue8m0"),
}
_MEASURED_COLUMNS = (64, 80, 96, 112, 128, 256)
#: Interval and latency in cycles of the sequences that emulate an ``mma`` on sm_90, for each shape and types, without
#: and with ``.satfinite``. Interval: from one emulated ``mma`` to the next on a tensor core with four warps. Latency:
#: from one emulated ``mma`` to the next in one warp if each needs the result of the previous ``mma``. Ordered metadata
#: takes as long as plain metadata, and all pairs of fp8 formats take the same time. Measured on an H100 with ``sptc gpu
#: cycles`` (``recordings/cycles/sequences-h100-2026-11-25.csv``): new operands are computed before each ``mma``, so
#: that sequences have no common work. The compiler interleaves a sequence with the code around it: the figures hold for
#: loops of eight ``mma`` only. In loops of sixteen or more, sparse fp8 takes up to twice as long.
_SEQUENCES: Mapping[str, tuple[tuple[float, float], ...]] = {
    "mma m16n8k16 f16 fp8": ((16.3, 20.1),),
    "mma m16n8k16 f32 fp8": ((20.7, 23.8),),
    "mma m16n8k32 f16 fp8": ((29.8, 35.4),),
    "mma m16n8k32 f32 fp8": ((32.9, 41.1),),
    "mma m16n8k32 s4 s4": ((160.3, 230.4), (181.0, 265.6)),
    "mma m16n8k32 s4 u4": ((125.0, 194.6), (145.2, 229.6)),
    "mma m16n8k32 u4 s4": ((86.9, 150.6), (109.4, 185.6)),
    "mma m16n8k32 u4 u4": ((49.3, 113.1), (72.2, 148.1)),
    "mma m16n8k64 s4 s4": ((314.7, 380.4), (320.8, 416.4)),
    "mma m16n8k64 s4 u4": ((234.8, 302.6), (241.6, 337.2)),
    "mma m16n8k64 u4 s4": ((152.0, 219.4), (158.5, 255.4)),
    "mma m16n8k64 u4 u4": ((74.1, 138.9), (88.1, 171.0)),
    "mma m8n8k32 s4 s4": ((103.6, 176.8), (116.0, 195.8)),
    "mma m8n8k32 s4 u4": ((67.7, 138.8), (81.7, 156.0)),
    "mma m8n8k32 u4 s4": ((68.0, 138.8), (81.5, 156.0)),
    "mma m8n8k32 u4 u4": ((33.3, 99.9), (44.9, 118.0)),
    "mma.sp m16n8k128 s4 s4": ((409.8, 482.6), (416.5, 517.5)),
    "mma.sp m16n8k128 s4 u4": ((249.0, 319.8), (255.1, 354.8)),
    "mma.sp m16n8k128 u4 s4": ((249.8, 319.8), (256.0, 354.8)),
    "mma.sp m16n8k128 u4 u4": ((93.1, 156.5), (103.4, 192.8)),
    "mma.sp m16n8k64 f32 fp8": ((140.1, 158.8),),
    "mma.sp m16n8k64 s4 s4": ((212.6, 284.1), (225.6, 324.0)),
    "mma.sp m16n8k64 s4 u4": ((143.2, 203.5), (160.6, 242.1)),
    "mma.sp m16n8k64 u4 s4": ((137.6, 203.5), (154.8, 242.1)),
    "mma.sp m16n8k64 u4 u4": ((59.3, 116.8), (77.1, 151.9)),
}


def is_sequence(instruction: Instruction, arch: str) -> bool:
    """Return whether sm_90 emulates an ``mma`` by a sequence of other instructions, as for fp8 and 4-bit integers."""
    if arch != ARCHITECTURE or instruction.family != "mma":
        return False
    return numerics(instruction, arch).method is Method.EMULATED or instruction.a.bits < _NARROWEST_BITS


def resource_cycles(i: Instruction, a_from: str, opcode: Opcode | None = None) -> dict[Resource, float]:
    """Return the cycles for which a ``wgmma``, or ``tcgen05.mma`` without ``.ws``, occupies each resource of an SM.

    `a_from` is as for :func:`timing` or :func:`tcgen05_timing`; the opcode is that of a ``tcgen05.mma``.
    """
    shared = a_from == "shared"
    layout = layout_for(opcode, i.m) if opcode else None
    rows, column_parts = (layout.rows, layout.column_parts) if layout else (i.m, 1)
    read = i.n // (opcode.cta_group if opcode else 1) * i.k * i.container_bits // 8 + shared * rows * ROW_BYTES
    cycles = {
        Resource.TENSOR_CORE: i.n / column_parts / _COLUMNS_PER_CYCLE,
        Resource.SHARED_MEMORY: read / SHARED_BYTES,
    }
    if not opcode:
        narrow = i.d.bits < 32 or i.n == _NARROWEST
        registers = RegisterCycles().of_wgmma(sparse=bool(i.sparse), narrow=narrow)
        cycles[Resource.REGISTER_FILE] = 0 if shared else registers
    return cycles


def timing(instruction: Instruction, arch: str, a_from: str = "registers") -> Timing | None:
    """Return the timing of an ``mma`` or ``wgmma`` on sm_90. Return None for other architectures: none was measured.

    `a_from` is the location of A of a ``wgmma``, ``"registers"`` or ``"shared"``. The timing of an emulated ``mma``
    (:func:`is_sequence`) was measured in a loop of eight ``mma``.
    """
    i = instruction
    if arch != ARCHITECTURE or arch not in i.architectures or i.family == "tcgen05":
        return None
    kept, sparse = i.m * i.n * i.stored_k, bool(i.sparse)
    measured = i.a == i.b and i.a.name in _MEASURED_TYPES and i.n in _MEASURED_N and not i.satfinite
    source = Source.MEASURED if measured else Source.FITTED
    if i.family == "wgmma":
        law, cycles = LAWS[i.family], resource_cycles(i, a_from)
        bound_by = max(cycles, key=lambda resource: cycles[resource])
        latency = law.start[sparse] + cycles[Resource.TENSOR_CORE]
        latency += _WGMMA_SHARED[sparse] if a_from == "shared" else 0
        latency += law.integer[sparse] if i.a.is_integer else max(0.0, _LATE_PER_COLUMN * (i.n - _LATE[sparse]))
        return Timing(cycles[bound_by], latency, bound_by, kept / (TENSOR_CORES * cycles[bound_by]), source)
    if is_sequence(i, arch):
        types = f"{i.a.name} {i.b.name}" if i.a.is_integer else f"{i.d.name} fp8"
        name = f"{'mma.sp' if i.sparse else 'mma'} m{i.m}n{i.n}k{i.k} {types}"
        interval, latency = _SEQUENCES[name][i.satfinite]
        return Timing(interval, latency, Resource.ISSUE, kept / interval)
    long = i.stored_k * i.container_bits // 8 == ROW_BYTES
    interval = RegisterCycles().of_mma[sparse, long]
    latency = _MMA_LATENCIES[long] if i.m == _WARP_ROWS else _MMA_LATENCY_M8
    return Timing(interval, latency, Resource.REGISTER_FILE, kept / interval, source)


def tcgen05_timing(opcode: Opcode, i: Instruction, a_from: str) -> Timing:
    """Return the timing of a ``tcgen05.mma`` on sm_100 with A in ``"tensor"`` or ``"shared"`` memory.

    Raise an `InstructionError` if the opcode has ``.ws``, of which no timing is known.

    Source: measured by others, 264 dense forms, N from 64 to 256. The formula gives every interval of one CTA within
    0.06 cycles, and every latency exactly, except that block scales with A in tensor memory and N = 256 take 2 cycles
    more. For a CTA pair with N below 112, measured intervals exceed the formula by 1 to 4.1 cycles with A in shared
    memory, and by 2 cycles with A in tensor memory, M = 128 and N = 64.

    The formula also models what nobody measured: sparse instructions, with twice as many bytes of B and the same
    columns per cycle; other types; other N. If N is below 64, accumulators or tensor memory may limit the rate as well.
    """
    if opcode.weight_stationary:
        raise InstructionError(f"the cycle count of {opcode} is unknown: nobody has published timings of '.ws'")
    law, layout, cycles = LAWS[i.family], layout_for(opcode, i.m), resource_cycles(i, a_from, opcode)
    bound_by = max(cycles, key=lambda resource: cycles[resource])
    pair, shared = opcode.cta_group == 2, a_from == "shared"
    reads = layout.rows * ROW_BYTES / SHARED_BYTES
    latency = law.start[pair] + cycles[Resource.TENSOR_CORE]
    if layout.name == "B":
        latency += _HALF_ROWS
        reads = _HALF_ROWS_SHARED + min(i.n / 8, _FIRST_OF_B)
    latency += reads if shared else 0
    latency += law.integer[pair] if i.a.is_integer else 0
    latency += _SCALED[shared and not pair] if i.scale_size else 0
    types = i.shape_and_types.partition(".")[2]
    measured = (opcode.kind, types) in _MEASURED and i.n in _MEASURED_COLUMNS and not (opcode.sparse or opcode.shifts_a)
    kept = i.m * i.n * i.stored_k / opcode.cta_group
    source = Source.MEASURED_ELSEWHERE if measured else Source.MODELLED
    return Timing(cycles[bound_by], latency, bound_by, kept / (TENSOR_CORES * cycles[bound_by]), source)
