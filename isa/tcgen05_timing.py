"""What ``tcgen05.mma`` takes on the tensor cores of an SM of sm_100: the law of sm_90, twice as wide.

Others measured 264 dense forms on a B200 (``recordings/cycles/tcgen05-b200-2026-03-06.csv``). Two columns of D, in all
128 lanes of tensor memory, take a cycle, of every kind; shared memory delivers 128 bytes a cycle; of a pair of CTAs
each reads half of B and hands it to the other. No sparse form was measured: of those the same law is a model, in which
B has twice as many bytes and the tensor cores take the columns at the same rate; and so of other types and other N, of
which less than 64 may wait for accumulators or tensor memory, too.
"""

from ..errors import InstructionError
from .instructions import Instruction
from .tcgen05 import Opcode
from .tensor_memory import layout_for
from .timing import SHARED_BYTES, TENSOR_CORES, Resource, Source, Timing

__all__ = ["A_PLACES", "tcgen05_resource_cycles", "tcgen05_timing"]

#: Where A may be.
A_PLACES = ("tensor", "shared")
_COLUMNS_PER_CYCLE = 2
#: Stored bytes of a row of A, and bytes of a column of B of a dense instruction, of every kind.
_ROW_BYTES = 32
#: Cycles of an instruction of no columns, from its issue to the end of a wait for its mbarrier, by CTAs.
_LATENCY = {1: 104, 2: 138}
#: Further ones of a pair with 64 rows each; and there, with A in shared memory, of A and the part of B read before it.
_HALF_ROWS, _HALF_ROWS_SHARED, _FIRST_OF_B = 8, 3, 16
#: Of integers, and of block scales by whether one CTA has A in shared memory.
_INTEGER = {1: -1, 2: -3}
_SCALED = {True: 1, False: 3}
#: Of what was measured, dense: kind and types, and N.
_MEASURED = {
    ("f16", "f32.bf16.bf16"),
    ("f8f6f4", "f32.e4m3.e4m3"),
    ("f8f6f4", "f32.e2m1.e2m1"),
    ("i8", "s32.s8.s8"),
    ("mxf8f6f4", "f32.e4m3.e4m3.ue8m0"),
    ("mxf4", "f32.e2m1.e2m1.ue8m0"),
}
_MEASURED_COLUMNS = (64, 80, 96, 112, 128, 256)


def tcgen05_resource_cycles(opcode: Opcode, i: Instruction, a_from: str) -> dict[Resource, float]:
    """Return for how many cycles an instruction needs each resource of an SM.

    Parameters
    ----------
    opcode : Opcode
        Without ``.ws``.
    i : Instruction
        One of its instructions.
    a_from : str
        ``"tensor"`` or ``"shared"`` memory.
    """
    layout = layout_for(opcode, i.m)
    read = i.n // opcode.cta_group * i.k * i.container_bits // 8
    read += layout.rows * _ROW_BYTES if a_from == "shared" else 0
    return {
        Resource.TENSOR_CORE: i.n / layout.column_parts / _COLUMNS_PER_CYCLE,
        Resource.SHARED_MEMORY: read / SHARED_BYTES,
    }


def tcgen05_timing(opcode: Opcode, i: Instruction, a_from: str) -> Timing:
    """Return what an instruction takes, in cycles of the SM's clock.

    Parameters
    ----------
    opcode, i, a_from
        As for :func:`tcgen05_resource_cycles`.

    Returns
    -------
    Timing
        Its latency is from the issue of one instruction to the end of a wait for its mbarrier.

    Raises
    ------
    InstructionError
        Of ``.ws``, of which nothing is known.

    Notes
    -----
    Source: measured by others, dense, N of 64 to 256. One CTA: every interval within 0.06 of a cycle, every latency
    exactly but for block scales with A in tensor memory and N = 256, which take 2 more. Of a pair with N less than 112,
    intervals are longer than the law by 1 to 4.1 cycles where A is in shared memory, by 2 where N / 4 is 16.
    """
    if opcode.weight_stationary:
        raise InstructionError(f"of {opcode} no cycles are known: nobody has published any of '.ws'")
    needed = tcgen05_resource_cycles(opcode, i, a_from)
    bound_by = max(needed, key=lambda resource: needed[resource])
    interval, ctas, shared = needed[bound_by], opcode.cta_group, a_from == "shared"
    rows = layout_for(opcode, i.m).rows
    latency = _LATENCY[ctas] + needed[Resource.TENSOR_CORE]
    reads = rows * _ROW_BYTES / SHARED_BYTES
    if layout_for(opcode, i.m).name == "B":
        latency += _HALF_ROWS
        reads = _HALF_ROWS_SHARED + min(i.n / 8, _FIRST_OF_B)
    latency += reads if shared else 0
    latency += _INTEGER[ctas] if i.a.is_integer else 0
    latency += _SCALED[shared and ctas == 1] if i.scale_size else 0
    types = i.shape_and_types.partition(".")[2]
    known = (opcode.kind, types) in _MEASURED and i.n in _MEASURED_COLUMNS and not (opcode.sparse or opcode.shifts_a)
    kept = i.m * i.n * i.stored_k / ctas
    source = Source.MEASURED_ELSEWHERE if known else Source.MODELLED
    return Timing(interval, latency, bound_by, kept / (TENSOR_CORES * interval), source)
