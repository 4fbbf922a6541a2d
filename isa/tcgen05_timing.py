"""Cycles of ``tcgen05.mma`` on an SM of sm_100: the law of sm_90 with twice the width.

Others measured 264 dense forms on a B200 (``recordings/cycles/tcgen05-b200-2026-03-06.csv``). For every kind, the
tensor cores process two columns of D per cycle, in all 128 lanes of tensor memory. Shared memory delivers 128 bytes per
cycle. Each CTA of a pair reads half of B and passes it to the other.

Modelled by the same law, since nobody measured them: sparse forms, with twice as many bytes of B and the same columns
per cycle; other types; other N. If N is below 64, accumulators or tensor memory may limit the rate as well.
"""

from ..errors import InstructionError
from .instructions import Instruction
from .tcgen05 import Opcode
from .tensor_memory import layout_for
from .timing import SHARED_BYTES, TENSOR_CORES, Resource, Source, Timing

__all__ = ["A_PLACES", "tcgen05_resource_cycles", "tcgen05_timing"]

#: Memories that can hold A.
A_PLACES = ("tensor", "shared")
_COLUMNS_PER_CYCLE = 2
#: Bytes of a row of stored A, and of a column of B of a dense instruction; the same for every kind.
_ROW_BYTES = 32
#: Latency in cycles, extrapolated to N = 0, from issue to the end of a wait for the mbarrier, by number of CTAs.
_LATENCY = {1: 104, 2: 138}
#: Added by a pair with 64 rows each. With A in shared memory, it also adds the reads of A, and of the part of B that is
#: read before A (largest value).
_HALF_ROWS, _HALF_ROWS_SHARED, _FIRST_OF_B = 8, 3, 16
#: Added by integers, by number of CTAs; added by block scales, by whether one CTA has A in shared memory.
_INTEGER = {1: -1, 2: -3}
_SCALED = {True: 1, False: 3}
#: Dense forms that were measured: kind and types, and N.
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
    """Return the cycles for which an instruction occupies each resource of an SM.

    Parameters
    ----------
    opcode : Opcode
        Opcode without ``.ws``.
    i : Instruction
        Instruction of this opcode.
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
    """Return the timing of an instruction in cycles of the SM clock.

    Parameters
    ----------
    opcode, i, a_from
        As for :func:`tcgen05_resource_cycles`.

    Returns
    -------
    Timing
        The latency is from the issue of one instruction to the end of a wait for its mbarrier.

    Raises
    ------
    InstructionError
        The opcode has ``.ws``, of which no timing is known.

    Notes
    -----
    Source: measured by others, dense, N from 64 to 256. One CTA: the law gives every interval within 0.06 cycles, and
    every latency exactly, except that block scales with A in tensor memory and N = 256 take 2 cycles more. A pair with
    N below 112: measured intervals exceed the law by 1 to 4.1 cycles with A in shared memory, by 2 where N / 4 is 16.
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
