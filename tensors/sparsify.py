"""Dense matrices to stored values and metadata nibbles, and back.

A chunk of a row is split into units: elements for 1:2 and 2:4, pairs of elements for 4:8. A unit is zero if all of
its elements are; -0.0 is zero.
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from ..errors import OperandError
from ..golden.select import kept_rows
from ..isa.metadata import GRANULARITIES, Granularity, nibble
from .blocks import Progress, check_matrix, in_float64, place, row_blocks
from .compressed import Compressed, Crowded, SparsityError, check_nibbles, structure

__all__ = [
    "PRODUCERS",
    "Producer",
    "expand",
    "sparsify",
]


@dataclass(frozen=True)
class Producer:
    """What a piece of software writes for chunks with fewer non-zero units than it stores.

    Attributes
    ----------
    name : str
        Key in :data:`PRODUCERS`.
    empty : int
        Nibble of a chunk of four units without a non-zero one.
    single : (int, int, int, int)
        Nibble of a chunk whose only non-zero unit is unit 0, 1, 2 or 3.
    empty_of_two : int
        Nibble of an empty 1:2 chunk.
    clears : bool
        Stored units that are zero are written as +0; otherwise as they are in the matrix, where they can be -0.0.
    source : str
        Where this can be read.
    """

    name: str
    empty: int
    single: tuple[int, int, int, int]
    empty_of_two: int
    clears: bool
    source: str


PRODUCERS: dict[str, Producer] = {
    record.name: record
    for record in (
        Producer(
            "pytorch",
            0b1110,
            (0b1000, 0b1001, 0b1110, 0b1110),
            0b1110,
            clears=False,
            source="torch/sparse/_semi_structured_conversions.py, of torch 2.13",
        ),
        Producer(
            "cutlass3",
            0b0000,
            (0b1100, 0b1101, 0b1110, 0b1100),
            0b0100,
            clears=True,
            source="cutlass/transform/kernel/sm90_sparse_gemm_compressor.hpp",
        ),
        Producer(
            "bitmask",
            0b0100,
            (0b0100, 0b0100, 0b1000, 0b1100),
            0b0100,
            clears=False,
            source="compressed-tensors, sparse-24-bitmask: the two largest magnitudes, here the lower index first",
        ),
    )
}


@lru_cache(maxsize=8)
def _nibbles_of(producer: str, units: int) -> NDArray[np.uint8]:
    """Return the nibble by the set of non-zero units, bit u for unit u; 0 where there are too many."""
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
    """Mark the `kept` largest of the last axis; of equal ones those of lower index."""
    units = magnitudes.shape[-1]
    beaten = np.zeros(magnitudes.shape, np.uint8)
    for low in range(units):
        for high in range(low + 1, units):
            first = magnitudes[..., low] >= magnitudes[..., high]
            beaten[..., high] += first
            beaten[..., low] += ~first
    return beaten < kept


def _unit_magnitudes(elements: NDArray[np.float64], granularity: Granularity) -> NDArray[np.float64]:
    """Return the magnitude of every unit, shape (rows, chunks, units), from those of the elements."""
    units, _, size = structure(granularity)
    magnitudes = elements.reshape(len(elements), -1, units, size)
    with np.errstate(over="ignore"):
        return magnitudes[..., 0] if size == 1 else magnitudes.sum(-1)


class _Crowds:
    """Chunks with more non-zero units than are stored: how many there are, and the first ten."""

    def __init__(self, granularity: Granularity) -> None:
        self.granularity = granularity
        self.total = 0
        self.first: list[Crowded] = []

    def add(self, present: NDArray[np.bool_], rows: slice) -> None:
        """Count those of a block of rows."""
        counts, kept = present.sum(-1), structure(self.granularity)[1]
        self.total += int((counts > kept).sum())
        if self.total > len(self.first) and len(self.first) < 10:
            for row, chunk in islice(np.argwhere(counts > kept), 10 - len(self.first)):
                column = int(chunk) * self.granularity.logical
                self.first.append(Crowded(rows.start + int(row), column, int(counts[row, chunk])))

    def check(self, chunks: int) -> None:
        """Raise if there are any among so many chunks."""
        if self.total:
            raise SparsityError(self.granularity, self.total, chunks, tuple(self.first))


def _stored(
    dense: NDArray, present: NDArray[np.bool_], nibbles: NDArray[np.uint8], granularity: Granularity, producer: Producer
) -> NDArray:
    """Return the elements that the nibbles select; of a producer that clears, +0 for those of units not present."""
    where = kept_rows(nibbles, granularity)
    values = np.take_along_axis(dense, where, 1)
    if producer.clears:
        flat = present.repeat(structure(granularity)[2], axis=-1).reshape(dense.shape)
        values[~np.take_along_axis(flat, where, 1)] = 0
    return values


def _check_shape(matrix: NDArray, granularity: Granularity) -> None:
    check_matrix(matrix)
    columns = matrix.shape[1]
    if columns % granularity.logical:
        raise OperandError(
            f"{granularity.name} needs a number of columns that is a multiple of {granularity.logical}, not {columns}"
        )


def _check_comparable(magnitudes: NDArray[np.float64], rows: slice) -> None:
    missing = np.isnan(magnitudes)
    if missing.any():
        raise OperandError("NaN has no magnitude to prune by: row {}, column {}".format(*place(missing, rows)))


def sparsify(
    matrix: NDArray,
    granularity: Granularity | str,
    *,
    prune: bool = False,
    producer: str = "pytorch",
    progress: Progress | None = None,
) -> Compressed:
    """Compress a matrix.

    Parameters
    ----------
    matrix : ndarray, shape (rows, columns)
        Floats, small floats of ``ml_dtypes`` among them, or integers of up to 32 bits. It may be mapped from a file:
        it is read by blocks of rows.
    granularity : Granularity or str
        Structure of the sparsity: ``1:2``, ``2:4`` or ``4:8``.
    prune : bool
        Keep the units of largest magnitude and drop the others. The magnitude of a pair is the sum of those of its
        elements, taken in float64; of equal ones the lower index is kept. Otherwise the matrix must already be sparse.
    producer : str
        Key of :data:`PRODUCERS`: whose choice to follow in chunks with fewer non-zero units than are stored.
    progress : Progress, optional
        Told after every block of rows.

    Returns
    -------
    Compressed
        Elements of the type of `matrix`.

    Raises
    ------
    SparsityError
        The matrix is not sparse, and `prune` is false.
    OperandError
        A wrong shape, type or name, or a NaN where magnitudes are to be compared.
    """
    granularity = _granularity(granularity)
    if producer not in PRODUCERS:
        raise OperandError(f"the producer must be one of {', '.join(PRODUCERS)}, not {producer!r}")
    _check_shape(matrix, granularity)
    units, kept, _ = structure(granularity)
    table, (rows, columns) = _nibbles_of(producer, units), matrix.shape
    nibbles = np.empty((rows, columns // granularity.logical), np.uint8)
    stored = np.empty((rows, columns // 2), matrix.dtype)
    crowds = _Crowds(granularity)
    for block in row_blocks(matrix.shape, progress):
        dense = np.asarray(matrix[block])
        magnitudes = np.abs(in_float64(dense))
        of_units = _unit_magnitudes(magnitudes, granularity)
        present = of_units != 0
        if prune:
            _check_comparable(magnitudes, block)
            present &= _largest(of_units, kept)
        else:
            crowds.add(present, block)
        nibbles[block] = chosen = table.take(np.packbits(present, axis=-1, bitorder="little")[..., 0])
        stored[block] = _stored(dense, present, chosen, granularity, PRODUCERS[producer])
    crowds.check(nibbles.size)
    return Compressed(stored, nibbles, granularity)


def _granularity(granularity: Granularity | str) -> Granularity:
    if isinstance(granularity, Granularity):
        return granularity
    if granularity not in GRANULARITIES:
        raise OperandError(f"the granularity must be one of {', '.join(GRANULARITIES)}, not {granularity!r}")
    return GRANULARITIES[granularity]


def expand(
    compressed: Compressed, rule: str | None = None, *, strict: bool = False, progress: Progress | None = None
) -> NDArray:
    """Return the dense matrix, the inverse of :func:`sparsify`.

    Parameters
    ----------
    compressed : Compressed
        The matrix.
    rule, strict
        As for :func:`sptc.tensors.compressed.check_nibbles`.
    progress : Progress, optional
        Told after every block of rows.

    Returns
    -------
    ndarray, shape (rows, columns)
        Of the type of the stored values; +0 where nothing is stored.

    Raises
    ------
    NibbleError, OperandError
        As there.
    """
    check_nibbles(compressed, rule, strict=strict)
    dense = np.zeros(compressed.shape, compressed.stored.dtype)
    for block in row_blocks(compressed.shape, progress):
        where = kept_rows(compressed.nibbles[block], compressed.granularity)
        np.put_along_axis(dense[block], where, compressed.stored[block], 1)
    return dense
