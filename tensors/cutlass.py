"""Positions of metadata nibbles in the memory layouts of CUTLASS."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ..errors import OperandError
from ..isa.metadata import join_nibbles, split_nibbles

__all__ = [
    "atom_sm90", "atom_sm100", "from_atoms", "in_atoms", "interleaved_positions", "swizzled_positions", "to_atoms",
]  # fmt: skip

#: Atom: the smallest contiguous block of metadata in CUTLASS 3 and 4. The array, of shape (rows, chunks), gives the
#: position of each chunk's metadata nibble in the atom, counted in nibbles.
Atom = NDArray[np.intp]
#: Key: element width in bits. Value: number of logical columns per metadata nibble.
_CHUNK = {32: 2, 16: 4, 8: 4, 4: 8}


def interleaved_positions(rows: int, columns: int, word_bits: int) -> NDArray[np.intp]:
    """Return the position of each word of row-major metadata in the CUTLASS 2.x layout, shape (rows, columns).

    `columns` counts metadata words per row. A word has 16 bits for elements of 16 and 32 bits, and 32 bits for elements
    of 8 and 4 bits. Raise an `OperandError` if the number of rows is not a multiple of 32 (16 with 32-bit words), or
    the number of columns is odd.

    Source: CUTLASS 2.x ``host_reorder.h`` and ``ColumnMajorInterleaved<2>``; PyTorch's
    ``_calculate_meta_reordering_scatter_offsets`` is the same map.
    """
    group, interweave = (32, 4) if word_bits == 16 else (16, 2)
    if rows % group:
        raise OperandError(
            f"CUTLASS 2.x needs a multiple of {group} rows for {word_bits}-bit metadata words, not {rows}"
        )
    if columns % 2:
        raise OperandError(f"CUTLASS 2.x needs an even number of {word_bits}-bit metadata words per row, not {columns}")
    row, column = np.arange(rows).reshape(-1, 1), np.arange(columns).reshape(1, -1)
    return swizzled_positions(row // group * group + row % 8 * interweave + row % group // 8, column)


def swizzled_positions(row: NDArray[np.intp], column: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the position of each metadata word in ``ColumnMajorInterleaved<2>``, after the rows were reordered.

    `row` has the index of each row after the reordering, shape (rows, 1), and `column` the column of each word, shape
    (1, columns). The number of columns is even. The result has the shape (rows, columns).
    """
    rows = len(row)
    # In each 2 x 2 block of metadata words, (even row, odd column) and (odd row, even column) are exchanged.
    exchange = (row % 2 == 0).astype(int) * (column % 2) - (row % 2) * (column % 2 == 0)
    row, column = row + exchange, column - exchange
    return column // 2 * (2 * rows) + row * 2 + column % 2


def _atom(rows: int, columns: int, bits: int, strides: tuple[int, ...], half: int) -> Atom:
    """Return a layout atom of CUTLASS metadata from strides of mixed-radix digits of an element's row and column.

    The mixed-radix digits of a row are row % 8, row // 8 % 2 and row // 16. Those of a column are
    column % half, column // half % 2 and column // (2 half). `strides` holds the digits' strides in this order.
    """
    m, k = np.arange(rows).reshape(-1, 1), np.arange(0, columns, _CHUNK[bits]).reshape(1, -1)
    m0, m1, m2, k0, k1, k2 = strides
    logical = m % 8 * m0 + m // 8 % 2 * m1 + m // 16 * m2 + k % half * k0 + k // half % 2 * k1 + k // (2 * half) * k2
    positions = logical // _CHUNK[bits]
    positions.flags.writeable = False
    return positions


@lru_cache(maxsize=16)
def atom_sm90(bits: int, tile_k: int) -> Atom:
    """Return the smallest metadata block (layout atom) of CUTLASS for sm_90 and elements of 8, 16 or 32 bits.

    `tile_k` is the K tile of the kernel, at most 128: a multiple of the K of one instruction, 512 / `bits`. Raise an
    `OperandError` if CUTLASS has no atom for this element width or this K tile.

    Source: CUTLASS ``sm90_sparse_config.inl``, ``TensorEAtom``.
    """
    if bits not in (8, 16, 32):
        raise OperandError(f"CUTLASS has sparse kernels of sm_90 for 8, 16 and 32-bit elements, not {bits}-bit ones")
    block = 512 // bits
    if tile_k < block or tile_k % block or tile_k > 128:
        raise OperandError(f"the K tile of {bits}-bit elements must be a multiple of {block} up to 128, not {tile_k}")
    if bits == 8:
        return _row_major(64, tile_k, bits)
    half, blocks = block // 2, tile_k // block
    k1 = 16 * half * blocks
    return _atom(64, tile_k, bits, (2 * half * blocks, half, 2 * k1, 1, k1, 2 * half), half)


@lru_cache(maxsize=8)
def atom_sm100(bits: int) -> Atom:
    """Return the smallest metadata block (atom) of CUTLASS for sm_100 and sm_120 and elements of 4, 8, 16 or 32 bits.

    Source: CUTLASS ``sm1xx_sparse_config.inl``, ``TensorEAtom_MMA_*``.
    """
    if bits <= 8:
        return _row_major(128, 1024 // bits, bits)
    if bits == 16:
        return _atom(128, 128, bits, (128, 16, 2048, 1, 1024, 32), 16)
    return _atom(128, 64, bits, (64, 8, 1024, 1, 512, 16), 8)


def _row_major(rows: int, columns: int, bits: int) -> Atom:
    return np.arange(rows * columns // _CHUNK[bits]).reshape(rows, -1)


def in_atoms(matrix: NDArray, atom: Atom) -> NDArray:
    """Arrange one value per metadata nibble in whole CUTLASS atoms, padded with zeros. Return an atom per row.

    Consecutive atoms are neighbours along M.
    """
    rows, chunks = matrix.shape
    down, across = -(-rows // atom.shape[0]), -(-chunks // atom.shape[1])
    whole = np.zeros((down * atom.shape[0], across * atom.shape[1]), matrix.dtype)
    whole[:rows, :chunks] = matrix
    blocks = whole.reshape(down, atom.shape[0], across, atom.shape[1]).transpose(2, 0, 1, 3)
    placed = np.empty((across * down, atom.size), matrix.dtype)
    placed[:, atom.ravel()] = blocks.reshape(across * down, -1)
    return placed


def to_atoms(nibbles: NDArray[np.uint8], atom: Atom) -> NDArray[np.uint8]:
    """Return the bytes of metadata nibbles, shape (rows, nibbles per row), arranged in whole CUTLASS atoms.

    A byte has two nibbles, the low nibble first.
    """
    return join_nibbles(in_atoms(nibbles, atom)).ravel()


def from_atoms(octets: NDArray[np.uint8], atom: Atom, rows: int, chunks: int) -> NDArray[np.uint8]:
    """Extract metadata nibbles, shape (rows, nibbles per row), from CUTLASS atoms: the inverse of :func:`to_atoms`.

    Raise an `OperandError` if the number of bytes does not match the number of atoms.
    """
    down, across = -(-rows // atom.shape[0]), -(-chunks // atom.shape[1])
    if octets.size * 2 != down * across * atom.size:
        raise OperandError(
            f"{rows} rows of {chunks} nibbles take {down * across * atom.size // 2} bytes of metadata in "
            f"whole CUTLASS atoms, not {octets.size}"
        )
    placed = split_nibbles(octets.reshape(across * down, -1))
    blocks = placed[:, atom.ravel()].reshape(across, down, atom.shape[0], atom.shape[1])
    whole = blocks.transpose(1, 2, 0, 3).reshape(down * atom.shape[0], across * atom.shape[1])
    return np.ascontiguousarray(whole[:rows, :chunks])
