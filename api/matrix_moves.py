"""``ldmatrix`` and ``stmatrix`` as functions: they move matrices between shared memory and registers of ``mma``."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InstructionError, OperandError
from ..isa.matrix_moves import MatrixMove, parse_matrix_move
from ..operands import matrix_moves as golden
from ..operands.packing import common_batch
from .operands import check_image, describe
from .operands import registers as checked_registers

__all__ = ["ldmatrix", "stmatrix"]


def ldmatrix(instruction: str, smem: NDArray[np.uint8], addresses: NDArray[Any]) -> NDArray[np.uint32]:
    """Load matrices from shared memory, as ``ldmatrix`` does.

    Parameters
    ----------
    instruction : str
        PTX opcode with its qualifiers, for example ``ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16``.
    smem : ndarray of uint8, shape (..., bytes)
        Shared-memory image. Leading axes are a batch; the batch axes of all operands broadcast against each other.
    addresses : ndarray of integers, shape (..., 32)
        Byte address in the image from each lane: the start of a row of 16 bytes, a multiple of 16. The first eight
        lanes address the rows of the first matrix, the next eight those of the second, and so on; with ``.m16n16``
        each matrix has sixteen lanes. Addresses of the remaining lanes are ignored.

    Returns
    -------
    ndarray of uint32, shape (..., 32, registers)
        Registers that the 32 threads receive. No operand is modified.

    Raises
    ------
    InstructionError
        The text is no form of ``ldmatrix``.
    OperandError
        An operand is of the wrong shape or type, or an address is not aligned or outside the image.

    Notes
    -----
    Sources: see :mod:`sptc.isa.matrix_moves`.
    """
    move = _parse(instruction, "ldmatrix")
    lanes = _addresses(addresses, move)
    image = check_image(smem, str(move), {})
    common_batch({"smem": image.shape[:-1], "addresses": lanes.shape[:-1]}, f" of {move}")
    return golden.ldmatrix(move, smem, lanes)


def stmatrix(
    instruction: str, smem: NDArray[np.uint8], addresses: NDArray[Any], registers: NDArray[np.uint32]
) -> NDArray[np.uint8]:
    """Store matrices to shared memory, as ``stmatrix`` does.

    Parameters
    ----------
    instruction : str
        PTX opcode with its qualifiers, for example ``stmatrix.sync.aligned.m8n8.x2.shared.b16``.
    smem : ndarray of uint8, shape (..., bytes)
        Shared-memory image before the store. Leading axes are a batch; the batch axes of all operands broadcast.
    addresses : ndarray of integers, shape (..., 32)
        As for :func:`ldmatrix`; no two rows may have the same address.
    registers : ndarray of uint32, shape (..., 32, registers)
        Registers of the 32 threads.

    Returns
    -------
    ndarray of uint8, shape (..., bytes)
        Image after the store. No operand is modified.

    Raises
    ------
    InstructionError
        The text is no form of ``stmatrix``.
    OperandError
        An operand is of the wrong shape or type, or an address is not aligned, outside the image, or given twice.

    Notes
    -----
    Sources: see :mod:`sptc.isa.matrix_moves`.
    """
    move = _parse(instruction, "stmatrix")
    checked_registers("registers", registers, (32, move.registers), move)
    lanes = _addresses(addresses, move)
    batches = {"smem": check_image(smem, str(move), {}).shape[:-1], "addresses": lanes.shape[:-1]}
    common_batch(batches | {"registers": registers.shape[:-2]}, f" of {move}")
    return golden.stmatrix(move, smem, lanes, registers)


def _parse(instruction: str, opcode: str) -> MatrixMove:
    move = parse_matrix_move(instruction)
    if move.opcode != opcode:
        raise InstructionError(f"{move} is not a form of {opcode}; use sptc.{move.opcode}")
    return move


def _addresses(addresses: NDArray[Any], move: MatrixMove) -> NDArray[np.intp]:
    if (
        not isinstance(addresses, np.ndarray)
        or addresses.dtype.kind not in "iu"
        or not np.can_cast(addresses.dtype, np.intp)
        or addresses.shape[-1:] != (32,)
    ):
        actual = describe(addresses)
        raise OperandError(f"addresses of {move} must be an integer array of shape (..., 32), not {actual}")
    return np.asarray(addresses, np.intp)  # a masked array loses its mask, which would hide wrong addresses
