"""Model of ``ldmatrix`` and ``stmatrix`` on images of shared memory."""

import numpy as np
from numpy.typing import NDArray

from ..errors import OperandError
from ..isa.matrix_moves import ROW_BYTES, MatrixMove, matrix_move_map

__all__ = ["ldmatrix", "stmatrix", "unpacked"]


def ldmatrix(move: MatrixMove, smem: NDArray[np.uint8], addresses: NDArray[np.intp]) -> NDArray[np.uint32]:
    """Load matrices from shared-memory images, shape (..., bytes). Return registers, shape (..., 32, registers).

    The row addresses of the lanes have the shape (..., 32); leading axes broadcast against each other. Raise an
    `OperandError` if an address in use is not aligned, or its row is not inside the image.
    """
    where = matrix_move_map(move)
    octets = _row_octets(move, smem.shape[-1], addresses)
    batch = np.broadcast_shapes(smem.shape[:-1], addresses.shape[:-1])
    images = np.broadcast_to(smem, (*batch, smem.shape[-1]))
    rows = np.take_along_axis(images, np.broadcast_to(octets, (*batch, octets.shape[-1])), axis=-1)
    containers = unpacked(move, rows.reshape(*batch, *where.address_lanes.shape, ROW_BYTES))
    elements = containers[..., where.matrices, where.rows, where.elements, :]
    return np.ascontiguousarray(elements).reshape(*batch, *where.rows.shape[:2], 4).view("<u4")[..., 0]


def unpacked(move: MatrixMove, rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Unpack rows of shared memory, shape (..., 16), to one container per element: (..., elements, container bytes)."""
    bits = np.unpackbits(rows, axis=-1, bitorder="little")[..., : move.row_elements * move.element_bits]
    bits = bits.reshape(*bits.shape[:-1], move.row_elements, move.element_bits)
    padding = [(0, 0)] * (bits.ndim - 1) + [(0, move.container_bits - move.element_bits)]
    return np.packbits(np.pad(bits, padding), axis=-1, bitorder="little")


def stmatrix(
    move: MatrixMove,
    smem: NDArray[np.uint8],
    addresses: NDArray[np.intp],
    registers: NDArray[np.uint32],
) -> NDArray[np.uint8]:
    """Store registers, shape (..., 32, registers), to shared-memory images, shape (..., bytes). Return the new images.

    The row addresses of the lanes have the shape (..., 32); leading axes broadcast against each other. The arguments
    are not modified. Raise an `OperandError` if an address in use is not aligned, its row is not inside the image, or
    two rows have the same address.
    """
    where = matrix_move_map(move)
    octets = _row_octets(move, smem.shape[-1], addresses)
    _check_distinct(move, addresses)
    batch = np.broadcast_shapes(smem.shape[:-1], addresses.shape[:-1], registers.shape[:-2])
    elements = np.ascontiguousarray(registers, "<u4").view(np.uint8)
    elements = np.broadcast_to(elements, (*batch, *elements.shape[-2:]))
    elements = elements.reshape(*batch, *where.rows.shape, move.container_bits // 8)
    rows = np.empty((*batch, *where.address_lanes.shape, move.row_elements, elements.shape[-1]), np.uint8)
    rows[..., where.matrices, where.rows, where.elements, :] = elements
    images = np.broadcast_to(smem, (*batch, smem.shape[-1])).copy()
    octets = np.broadcast_to(octets, (*batch, octets.shape[-1]))
    np.put_along_axis(images, octets, rows.reshape(octets.shape), axis=-1)
    return images


def _row_octets(move: MatrixMove, size: int, addresses: NDArray[np.intp]) -> NDArray[np.intp]:
    """Check the row addresses in use. Return the address of every byte of the rows, shape (..., 16 * all rows)."""
    lanes = matrix_move_map(move).address_lanes.ravel()
    starts = addresses[..., lanes]
    for wrong, fault in (
        (starts % ROW_BYTES != 0, f"not a multiple of {ROW_BYTES}"),
        ((starts < 0) | (starts > size - ROW_BYTES), f"not the start of {ROW_BYTES} bytes in an image of {size} bytes"),
    ):
        if wrong.any():
            index = tuple(int(part) for part in np.argwhere(wrong)[0])
            raise OperandError(
                f"{_lane(index[:-1], lanes[index[-1]])} of {move} gives the row address {starts[index]}, "
                f"which is {fault}"
            )
    return (starts[..., None] + np.arange(ROW_BYTES)).reshape(*starts.shape[:-1], starts.shape[-1] * ROW_BYTES)


def _check_distinct(move: MatrixMove, addresses: NDArray[np.intp]) -> None:
    """Raise an error if two lanes give the same row address: PTX does not define which of the two rows is stored."""
    lanes = matrix_move_map(move).address_lanes.ravel()
    starts = addresses[..., lanes]
    order = np.argsort(starts, axis=-1, kind="stable")
    ranked = np.take_along_axis(starts, order, axis=-1)
    equal = np.argwhere(ranked[..., 1:] == ranked[..., :-1])
    if len(equal):
        *batch, place = (int(part) for part in equal[0])
        first, second = lanes[order[tuple(batch)][place : place + 2]]
        raise OperandError(
            f"{_lane(tuple(batch), first)} and lane {second} of {move} both give the row address "
            f"{addresses[tuple(batch)][first]}; which row is stored is undefined"
        )


def _lane(batch: tuple[int, ...], lane: int) -> str:
    """Return text that names a lane in a message, with its index in the batch if the operands are a batch."""
    return f"batch {batch[0] if len(batch) == 1 else batch}, lane {lane}" if batch else f"lane {lane}"
