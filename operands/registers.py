"""Matrices of codes to registers and back, by the index maps of ``isa``."""

import numpy as np
from numpy.typing import NDArray

from ..isa.fragments import Fragment, a_fragment, accumulator_fragment, b_fragment, metadata_map, scale_map
from ..isa.instructions import Instruction
from ..isa.metadata import join_nibbles, split_nibbles
from ..isa.operands import HeldOperands, MatrixOperands

__all__ = [
    "CONTAINERS",
    "from_registers",
    "gather_warp",
    "pack_nibbles",
    "pack_scales",
    "random_nibbles",
    "to_registers",
    "unpack_nibbles",
    "unpack_scales",
]

#: numpy type that holds one element, by container width in bits.
CONTAINERS: dict[int, np.dtype] = {4: np.dtype("u1"), 8: np.dtype("u1"), 16: np.dtype("<u2"), 32: np.dtype("<u4")}


def from_registers(registers: NDArray[np.uint32], fragment: Fragment) -> NDArray:
    """Gather a matrix from registers.

    Parameters
    ----------
    registers : ndarray of uint32, shape (batch, threads, registers)
        Registers of the threads.
    fragment : Fragment
        Map of the matrix.

    Returns
    -------
    ndarray of uint8, uint16 or uint32, shape (batch, *fragment.shape)
        One container per element; 4-bit elements in the low half of a byte.
    """
    batch = len(registers)
    codes: NDArray = np.ascontiguousarray(registers).reshape(batch, -1).view(CONTAINERS[fragment.element_bits])
    if fragment.element_bits == 4:
        codes = split_nibbles(codes)
    return codes.take(fragment.positions, axis=1)


def to_registers(matrix: NDArray, fragment: Fragment) -> NDArray[np.uint32]:
    """Scatter a matrix to registers, the inverse of :func:`from_registers`.

    Parameters
    ----------
    matrix : ndarray of uint8, uint16 or uint32, shape (batch, *fragment.shape)
        Codes.
    fragment : Fragment
        Map of the matrix.

    Returns
    -------
    ndarray of uint32, shape (batch, threads, registers)
    """
    batch = len(matrix)
    where = fragment.rows * fragment.shape[1] + fragment.columns
    codes = matrix.astype(CONTAINERS[fragment.element_bits], copy=False).reshape(batch, -1).take(where.ravel(), axis=1)
    if fragment.element_bits == 4:
        codes = join_nibbles(codes)
    return np.ascontiguousarray(codes).view("<u4").reshape(batch, fragment.rows.shape[0], fragment.registers)


def unpack_nibbles(e: NDArray[np.uint32], instruction: Instruction, sparsity_selector: int) -> NDArray[np.uint8]:
    """Gather the metadata nibbles, shape (batch, m, chunks), from e, shape (batch, threads)."""
    where = metadata_map(instruction, sparsity_selector)
    octets = np.ascontiguousarray(e).view(np.uint8).take(4 * where.lanes + (where.low_bits >> 3), axis=1)
    return (octets >> (where.low_bits & 7).astype(np.uint8)) & np.uint8(15)


def pack_nibbles(
    nibbles: NDArray[np.uint8], instruction: Instruction, sparsity_selector: int, others: NDArray[np.uint32]
) -> NDArray[np.uint32]:
    """Put nibbles, shape (batch, m, chunks), into metadata registers, shape (batch, threads).

    Bits without a nibble are taken from `others`.
    """
    where = metadata_map(instruction, sparsity_selector)
    cleared, packed = np.zeros(instruction.threads, np.uint32), np.zeros_like(others)
    for row, chunk in np.ndindex(where.lanes.shape):
        lane, low_bit = where.lanes[row, chunk], np.uint32(where.low_bits[row, chunk])
        cleared[lane] |= np.uint32(15) << low_bit
        packed[:, lane] |= nibbles[:, row, chunk].astype(np.uint32) << low_bit
    return others & ~cleared | packed


def random_nibbles(
    instruction: Instruction, tiles: int, rng: np.random.Generator, *, any_nibble: bool = False
) -> NDArray[np.uint8]:
    """Draw random metadata, shape (tiles, m, chunks): nibbles legal under the instruction's rule, or any of sixteen."""
    assert instruction.rule
    legal = np.arange(16) if any_nibble else np.array(sorted(instruction.rule.legal))
    drawn = rng.integers(0, len(legal), (tiles, instruction.m, instruction.chunks))
    return legal[drawn].astype(np.uint8)


def pack_scales(
    scales: NDArray[np.uint8], instruction: Instruction, operand: str, ids: tuple[int, int], others: NDArray[np.uint8]
) -> NDArray[np.uint32]:
    """Put block scales, shape (batch, m or n, scales), into registers, shape (batch, 32), at a byte and a thread id.

    Bytes without a scale are taken from `others`, shape (batch, 32, 4).
    """
    where = scale_map(instruction, operand, *ids)
    octets = others.copy()
    octets[:, where.lanes, where.bytes] = scales
    return octets.view("<u4")[..., 0]


def unpack_scales(
    data: NDArray[np.uint32], instruction: Instruction, operand: str, byte_id: int, thread_id: int
) -> NDArray[np.uint8]:
    """Gather the block scales of an operand, shape (batch, m or n, scales), from data, shape (batch, 32)."""
    where = scale_map(instruction, operand, byte_id, thread_id)
    return np.ascontiguousarray(data).view(np.uint8).take(4 * where.lanes + where.bytes, axis=1)


def gather_warp(instruction: Instruction, held: HeldOperands) -> MatrixOperands:
    """Gather the matrices of an ``mma`` from the registers of a batch of warps. Operands are not checked.

    Parameters
    ----------
    instruction : Instruction
        Family ``mma``.
    held : HeldOperands
        Registers, sparsity selector, and ids of block scales.
    """
    arrays, immediates = held.arrays, held.immediates
    byte_a, thread_a, byte_b, thread_b = immediates.scale_ids
    scaled = instruction.scale_size is not None
    return MatrixOperands(
        from_registers(arrays["a"], a_fragment(instruction)),
        from_registers(arrays["b"], b_fragment(instruction)),
        from_registers(arrays["c"], accumulator_fragment(instruction)),
        unpack_nibbles(arrays["e"], instruction, immediates.sparsity_selector) if instruction.sparse else None,
        unpack_scales(arrays["scale_a"], instruction, "a", byte_a, thread_a) if scaled else None,
        unpack_scales(arrays["scale_b"], instruction, "b", byte_b, thread_b) if scaled else None,
        held,
    )
