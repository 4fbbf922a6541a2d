"""Compress dense matrices to stored values and metadata nibbles, and expand compressed matrices.

A chunk of a row is split into units: elements for 1:2 and 2:4, pairs of elements for 4:8. A unit is zero if all of its
elements are zero; -0.0 is zero.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ..errors import OperandError
from ..golden.select import kept_rows
from ..isa.metadata import GRANULARITIES, Granularity, nibble
from .blocks import Progress, check_flag, check_matrix, check_word, in_float64, place, row_blocks
from .compressed import Compressed, Crowded, SparsityError, check_nibbles, structure

__all__ = ["PRODUCERS", "Producer", "expand", "sparsify"]


@dataclass(frozen=True)
class Producer:
    """Metadata conventions of a library where a matrix has fewer non-zeros than its sparsity pattern stores."""

    empty: int  #: Metadata nibble of four zero elements (with 4:8 sparsity, of four zero pairs)
    #: Four nibbles: nibble i is written if only element i (with 4:8 sparsity, pair i) of four elements is not zero.
    single: tuple[int, int, int, int]
    empty_of_two: int  #: Metadata nibble of two zero elements, with 1:2 sparsity
    #: Whether stored units that are zero are written as +0. If not, they are copied from the matrix and can be -0.0.
    clears: bool


PRODUCERS = {
    # Source: torch/sparse/_semi_structured_conversions.py of torch 2.13
    "pytorch": Producer(0b1110, (0b1000, 0b1001, 0b1110, 0b1110), 0b1110, clears=False),
    # Source: cutlass/transform/kernel/sm90_sparse_gemm_compressor.hpp
    "cutlass3": Producer(0b0000, (0b1100, 0b1101, 0b1110, 0b1100), 0b0100, clears=True),
    # Source: sparse-24-bitmask of compressed-tensors. Keep the two largest magnitudes; if some are equal, the first.
    "bitmask": Producer(0b0100, (0b0100, 0b0100, 0b1000, 0b1100), 0b0100, clears=False),
}


@lru_cache(maxsize=8)
def _nibbles_of(producer: str, units: int) -> NDArray[np.uint8]:
    """Return the metadata nibble that a library writes for each mask of non-zeros; 0 if too many are non-zero."""
    record, table = PRODUCERS[producer], np.zeros(1 << units, np.uint8)
    if units == 2:
        table[:3] = record.empty_of_two, 0b0100, 0b1110
        return table
    table[0] = record.empty
    for unit in range(units):
        table[1 << unit] = record.single[unit]
        for below in range(unit):
            table[1 << unit | 1 << below] = nibble(below, unit)
    return table


def _largest(magnitudes: NDArray[np.float64], kept: int) -> NDArray[np.bool_]:
    """Return a mask of the `kept` largest values along the last axis. Of equal values, the lower index is kept."""
    units = magnitudes.shape[-1]
    beaten = np.zeros(magnitudes.shape, np.uint8)
    for low in range(units):
        for high in range(low + 1, units):
            first = magnitudes[..., low] >= magnitudes[..., high]
            beaten[..., high] += first
            beaten[..., low] += ~first
    return beaten < kept


def _crowded(present: NDArray[np.bool_], rows: slice, granularity: Granularity) -> tuple[int, list[Crowded]]:
    """Count the chunks (for 2:4, groups of four elements) with too many non-zeros; also return the first ten."""
    counts, kept = present.sum(-1), structure(granularity)[1]
    crowded = counts > kept
    return int(crowded.sum()), [
        Crowded(rows.start + int(row), int(chunk) * granularity.logical, int(counts[row, chunk]))
        for row, chunk in np.argwhere(crowded)[:10]
    ]


def _stored(
    dense: NDArray, present: NDArray[np.bool_], nibbles: NDArray[np.uint8], granularity: Granularity, producer: Producer
) -> NDArray:
    """Return the elements that the metadata selects. Selected zeros become +0 if `producer.clears` is True."""
    where = kept_rows(nibbles, granularity)
    values = np.take_along_axis(dense, where, 1)
    if producer.clears:
        flat = present.repeat(structure(granularity)[2], axis=-1).reshape(dense.shape)
        values[~np.take_along_axis(flat, where, 1)] = 0
    return values


def sparsify(
    matrix: NDArray,
    granularity: Granularity | str,
    *,
    prune: bool = False,
    producer: str = "pytorch",
    progress: Progress | None = None,
) -> Compressed:
    """Compress a matrix to stored values and metadata nibbles.

    Parameters
    ----------
    matrix : ndarray, shape (rows, columns)
        Floats, including the types of ``ml_dtypes``, or integers of at most 32 bits. The matrix may be memory-mapped:
        it is read in blocks of rows.
    granularity : Granularity or str
        Sparsity structure: ``1:2``, ``2:4`` or ``4:8``.
    prune : bool
        True: keep the units of largest magnitude. The magnitude of a pair is the sum of the magnitudes of its elements,
        in float64. Among equal magnitudes the lower index is kept. False: the matrix must already be sparse.
    producer : str
        Key of :data:`PRODUCERS`: software whose metadata is used for chunks with fewer non-zero units than stored ones.
    progress : Progress, optional
        Called after every block of rows.

    Returns
    -------
    Compressed
        Compressed matrix with elements of the type of `matrix`.

    Raises
    ------
    SparsityError
        The matrix is not sparse, and `prune` is false.
    OperandError
        A shape, type or name is wrong, or a matrix to be pruned has a NaN.
    """
    if not isinstance(granularity, Granularity):
        check_word("the granularity", granularity, GRANULARITIES)
        granularity = GRANULARITIES[granularity]
    check_word("the producer", producer, PRODUCERS)
    check_flag("prune", prune)
    check_matrix(matrix)
    rows, columns = matrix.shape
    if columns % granularity.logical:
        raise OperandError(
            f"{granularity.name} needs a number of columns that is a multiple of {granularity.logical}, not {columns}"
        )
    units, kept, size = structure(granularity)
    table = _nibbles_of(producer, units)
    nibbles = np.empty((rows, columns // granularity.logical), np.uint8)
    stored = np.empty((rows, columns // 2), matrix.dtype)
    total, first = 0, list[Crowded]()
    for block in row_blocks(matrix.shape, progress):
        dense = np.asarray(matrix[block])
        magnitudes = np.abs(in_float64(dense))
        of_units = magnitudes.reshape(len(dense), -1, units, size)
        with np.errstate(over="ignore"):
            of_units = of_units[..., 0] if size == 1 else of_units.sum(-1)
        present = of_units != 0
        if prune:
            if (missing := np.isnan(magnitudes)).any():
                row, column = place(missing, block)
                raise OperandError(f"pruning cannot order a NaN by magnitude: row {row}, column {column}")
            present &= _largest(of_units, kept)
        else:
            count, crowded = _crowded(present, block, granularity)
            total, first = total + count, [*first, *crowded][:10]
        nibbles[block] = chosen = table.take(np.packbits(present, axis=-1, bitorder="little")[..., 0])
        stored[block] = _stored(dense, present, chosen, granularity, PRODUCERS[producer])
    if total:
        raise SparsityError(granularity, total, nibbles.size, tuple(first))
    return Compressed(stored, nibbles, granularity)


def expand(
    compressed: Compressed, rule: str | None = None, *, strict: bool = False, progress: Progress | None = None
) -> NDArray:
    """Expand a compressed matrix to a dense matrix: the inverse of :func:`sparsify`.

    Parameters
    ----------
    compressed : Compressed
        The compressed matrix.
    rule, strict
        As for :func:`sptc.tensors.compressed.check_nibbles`.
    progress : Progress, optional
        Called after every block of rows.

    Returns
    -------
    ndarray, shape (rows, columns)
        Matrix of the type of the stored values; +0 for elements that are not stored.

    Raises
    ------
    NibbleError, OperandError
        See :func:`sptc.tensors.compressed.check_nibbles`.
    """
    if not isinstance(compressed, Compressed):
        raise OperandError(f"a compressed matrix must be of type Compressed, not {type(compressed).__name__}")
    check_nibbles(compressed, rule, strict=strict)
    dense = np.zeros(compressed.shape, compressed.stored.dtype)
    for block in row_blocks(compressed.shape, progress):
        where = kept_rows(compressed.nibbles[block], compressed.granularity)
        np.put_along_axis(dense[block], where, compressed.stored[block], 1)
    return dense
