"""Index maps from matrices to registers of threads. The maps contain no operand values.

One formula serves every shape (PTX ISA 9.7.14.5 and 9.7.14.6.2; confirmed on an H200 for every sm_90 shape, type and
selector). Notation: ``g = lane >> 2``, ``t = lane & 3``; a 32-bit register holds ``E`` elements, low bits first. For
wgmma, warp ``w`` (0 to 3) holds rows ``16 w`` to ``16 w + 15``, and the formula applies to these sixteen rows.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from .instructions import Instruction

__all__ = [
    "WARP_LANES",
    "Fragment",
    "RegisterMap",
    "a_fragment",
    "accumulator_fragment",
    "b_fragment",
    "metadata_map",
    "scale_map",
]

Index = NDArray[np.intp]
WARP_LANES = 32


@dataclass(frozen=True, eq=False)
class Fragment:
    """Map of a matrix to the registers of threads."""

    #: Row and column of each element in the matrix, shape (threads, registers, E): index [l, r, j] is element j of
    #: register r of thread l.
    rows: Index
    columns: Index
    shape: tuple[int, int]  #: Matrix shape
    #: Width of an element in bits. Element j of a register is in bits ``[j * element_bits, (j + 1) * element_bits)``.
    element_bits: int

    @property
    def registers(self) -> int:
        """Number of registers per thread that hold the matrix."""
        return self.rows.shape[1]

    @cached_property
    def positions(self) -> Index:
        """Flat index ``(thread * registers + register) * E + j`` of each matrix element; E is elements per register."""
        positions = np.empty(self.shape, np.intp)
        positions[self.rows, self.columns] = np.arange(self.rows.size).reshape(self.rows.shape)
        positions.flags.writeable = False
        return positions


def _grid(instruction: Instruction, registers: int, elements: int) -> tuple[Index, Index, Index, Index, Index]:
    """Return arrays of warp, group g, thread t, register and element, which broadcast to the shape of a fragment."""
    thread = np.arange(instruction.threads).reshape(-1, 1, 1)
    lane = thread % WARP_LANES
    register = np.arange(registers).reshape(1, -1, 1)
    element = np.arange(elements).reshape(1, 1, -1)
    return thread // WARP_LANES, lane >> 2, lane & 3, register, element


def _fragment(rows: Index, columns: Index, shape: tuple[int, int], element_bits: int) -> Fragment:
    rows, columns = (np.ascontiguousarray(part) for part in np.broadcast_arrays(rows, columns))
    rows.flags.writeable = columns.flags.writeable = False
    return Fragment(rows, columns, shape, element_bits)


@lru_cache(maxsize=256)
def a_fragment(instruction: Instruction) -> Fragment:
    """Return the register map of A: rows of A and *stored* columns (K/2 for a sparse instruction).

    The map of a sparse A equals the map of a dense A with K/2 columns. For wgmma, the map applies to A in registers.
    """
    bits = instruction.container_bits
    per_register = 32 // bits
    registers = instruction.m * instruction.stored_k // (per_register * instruction.threads)
    warp, g, t, register, j = _grid(instruction, registers, per_register)
    rows = 16 * warp + g + 8 * (register & 1) if instruction.m > 8 else g
    columns = per_register * (t + 4 * (register >> 1)) + j
    return _fragment(rows, columns, (instruction.m, instruction.stored_k), bits)


@lru_cache(maxsize=256)
def b_fragment(instruction: Instruction) -> Fragment:
    """Return the register map of B of ``mma``: rows k, columns n. ``wgmma`` reads B from shared memory instead."""
    if instruction.family != "mma":
        raise ValueError(f"operand B of {instruction} is not in registers")
    bits = instruction.container_bits
    per_register = 32 // bits
    _, g, t, register, j = _grid(instruction, instruction.k // (4 * per_register), per_register)
    return _fragment(per_register * (t + 4 * register) + j, g, (instruction.k, instruction.n), bits)


@lru_cache(maxsize=256)
def accumulator_fragment(instruction: Instruction) -> Fragment:
    """Return the register map of the accumulators C and D, which have the same type in every modelled instruction."""
    bits = instruction.d.bits
    per_register = 32 // bits
    registers = instruction.m * instruction.n // (per_register * instruction.threads)
    warp, g, t, register, j = _grid(instruction, registers, per_register)
    element = per_register * register + j
    rows = 16 * warp + g + 8 * (element >> 1 & 1)
    columns = 8 * (element >> 2) + 2 * t + (element & 1)
    return _fragment(rows, columns, (instruction.m, instruction.n), bits)


@dataclass(frozen=True, eq=False)
class RegisterMap:
    """Map of metadata nibbles, shape (m, nibbles per row), or scales, shape (m or n, scale_size), to register bits."""

    #: Thread that holds each nibble or scale, and lowest bit of the nibble or scale in this thread's register.
    lanes: Index
    low_bits: Index
    #: Always None, since a thread has one register for the operand. Only maps of tensor memory have columns.
    columns: None = None


@lru_cache(maxsize=512)
def metadata_map(instruction: Instruction, sparsity_selector: int) -> RegisterMap:
    """Return the map of metadata nibbles to registers. Selectors are 0 to ``instruction.sparsity_selectors - 1``.

    A lane that the selector picks holds four chunks of each of two rows if elements have 16 bits or more; otherwise it
    holds eight chunks of one row. Metadata registers of all other lanes are ignored.
    """
    row = np.arange(instruction.m).reshape(-1, 1)
    chunk = np.arange(instruction.chunks).reshape(1, -1)
    warp, row_in_warp = row // 16, row % 16
    half = row_in_warp >> 3
    if instruction.wide:
        quad_lane = sparsity_selector * (instruction.chunks // 4) + (chunk >> 2) + 0 * half
        low_bits = 16 * half + 4 * (chunk & 3)
    else:
        quad_lane = 2 * sparsity_selector + 2 * (chunk >> 3) + half
        low_bits = 4 * (chunk & 7) + 0 * half
    lanes = WARP_LANES * warp + 4 * (row_in_warp & 7) + quad_lane
    lanes.flags.writeable = low_bits.flags.writeable = False
    return RegisterMap(lanes, low_bits)


@lru_cache(maxsize=256)
def scale_map(instruction: Instruction, operand: str, byte_id: int, thread_id: int) -> RegisterMap:
    """Return the register map of the block scales of operand ``"a"`` or ``"b"``.

    `byte_id` is the byte of the first scale: 0 to 3 for 1X, 0 or 2 for 2X, 0 for 4X. `thread_id` selects in
    each group of four threads the pair (0 or 1) that holds scales of A, or the thread (0 to 3) that holds those of B.

    Source: PTX ISA, block scaling for ``mma.sync``. CUTLASS, and a probe of sm_120 hardware published by others, show
    which lane of a thread pair holds the scales of row g and which those of row g + 8.
    """
    size = instruction.scale_size
    assert size is not None
    block = np.arange(size).reshape(1, -1)
    if operand == "a":
        row = np.arange(instruction.m).reshape(-1, 1)
        lanes = 4 * (row & 7) + 2 * thread_id + (row >> 3)
    else:
        lanes = 4 * np.arange(instruction.n).reshape(-1, 1) + thread_id
    lanes, low_bits = (np.ascontiguousarray(part) for part in np.broadcast_arrays(lanes, 8 * (byte_id + block)))
    lanes.flags.writeable = low_bits.flags.writeable = False
    return RegisterMap(lanes, low_bits)
