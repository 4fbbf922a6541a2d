"""Memory layouts of block scales: row by row, in blocks of 128 x 4, and in the order of marlin_24 kernels."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..errors import OperandError
from .blocks import check_array
from .marlin import from_marlin_scales, to_marlin_scales

__all__ = ["SCALE_LAYOUTS", "ScaleLayout", "from_scale_blocks", "to_scale_blocks"]

#: Size of a block in the 128 x 4 layout: number of rows, and number of scales per row.
_HIGH, _WIDE = 128, 4


@dataclass(frozen=True)
class ScaleLayout:
    """Memory layout of block scales, with functions that pack scales into the layout and unpack them."""

    meaning: str
    #: Function ``pack(scales)``: arranges scales of shape (rows, scales per row) in the memory layout.
    pack: Callable[[NDArray], NDArray]
    #: Function ``unpack(array, rows, scales per row)``: the inverse of `pack`.
    unpack: Callable[[NDArray, int, int], NDArray]


def to_scale_blocks(scales: NDArray) -> NDArray:
    """Arrange block scales in blocks of 128 rows x 4 scales, padded with zero bytes.

    Parameters
    ----------
    scales : ndarray, shape (rows, scales per row)
        Scales of any one-byte type, row by row: those of the rows of A, or of the columns of B.

    Returns
    -------
    ndarray, shape (bytes,)
        The blocks, row-major over (rows / 128, scales / 4). In a block, scale k of row m is at offset
        ``16 * (m % 32) + 4 * (m // 32) + k``.

    Raises
    ------
    OperandError
        The scales are no array, or not a matrix of bytes.

    Notes
    -----
    Source: CUTLASS ``sm100_blockscaled_layout.hpp``, ``Sm1xxBlockScaledBasicChunk``; cuBLAS manual, "1D Block Scaling
    Factors Layout".
    """
    check_array("scales", scales)
    if scales.ndim != 2 or scales.dtype.itemsize != 1:
        raise OperandError(f"scales must be bytes with two axes, not {scales.dtype.name} of shape {scales.shape}")
    octets = np.ascontiguousarray(scales).view(np.uint8)
    whole = np.pad(octets, ((0, -len(octets) % _HIGH), (0, -octets.shape[1] % _WIDE)))
    blocks = whole.reshape(len(whole) // _HIGH, 4, 32, whole.shape[1] // _WIDE, _WIDE).transpose(0, 3, 2, 1, 4)
    return blocks.reshape(-1).view(scales.dtype)


def from_scale_blocks(blocks: NDArray, rows: int, columns: int) -> NDArray:
    """Return block scales in row order, the inverse of :func:`to_scale_blocks`.

    Parameters
    ----------
    blocks : ndarray, of any shape
        The blocks, of any one-byte type.
    rows, columns : int
        Shape of the result.

    Raises
    ------
    OperandError
        The blocks are no array, the number of scales does not match, or a scale has more than one byte.
    """
    check_array("blocks", blocks)
    down, across = -(-rows // _HIGH), -(-columns // _WIDE)
    if blocks.size != down * across * _HIGH * _WIDE or blocks.dtype.itemsize != 1:
        raise OperandError(
            f"{rows} x {columns} scales in blocks of 128 x 4 take {down * across * _HIGH * _WIDE} bytes, not "
            f"{blocks.size} {blocks.dtype.name}"
        )
    octets = np.ascontiguousarray(blocks).view(np.uint8).reshape(down, across, 32, 4, _WIDE)
    whole = octets.transpose(0, 3, 2, 1, 4).reshape(down * _HIGH, across * _WIDE)
    return np.ascontiguousarray(whole[:rows, :columns]).view(blocks.dtype)


def _checked(scales: NDArray, rows: int, columns: int) -> NDArray:
    if scales.shape != (rows, columns):
        raise OperandError(f"scales must have the shape {(rows, columns)}, not {scales.shape}")
    return scales


SCALE_LAYOUTS = {
    "rows": ScaleLayout("row by row", lambda scales: scales, _checked),
    "128x4": ScaleLayout("in blocks of 128 rows x 4 scales, padded", to_scale_blocks, from_scale_blocks),
    "marlin_24": ScaleLayout("transposed, and permuted in groups of 64 rows", to_marlin_scales, from_marlin_scales),
}
