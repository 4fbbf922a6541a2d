"""Tiles in shared memory that are written in one layout and read in another, as permutations of tile elements.

The elements of a tile are contiguous along K (K-major), or along M or N (MN-major). A layout maps each unit of 16 bytes
to an address. If the reader assumes another layout than the writer, the reader computes another address for a unit, and
reads the unit that the writer stored at this address.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, product

import numpy as np
from numpy.typing import NDArray

from ..isa.memory import SWIZZLES, UNIT_BYTES, SharedDescriptor, Swizzle, unit_address
from .index_maps import joined, tiles_of

__all__ = ["Misreading", "misreadings", "regathered"]

_SWIZZLED = ("none", "32B", "64B", "128B")
#: Period of every swizzle pattern in shared memory, in bytes.
_PERIOD = 1024
#: Size of a core matrix in bytes: 8 rows of one 16-byte unit.
_CORE = 8 * UNIT_BYTES
#: Number of bytes along K that one instruction reads from each row of an operand.
_STEP = 32

_Units = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Misreading:
    """A tile that is read in another layout than it was written, with the resulting permutation of its elements."""

    text: str
    rows: int  #: Number of rows of the tile in shared memory
    width: int  #: Number of elements in a row of the tile in shared memory
    index: NDArray[np.intp]  #: Index of the element that is read at each position of a shared-memory tile, row by row


def misreadings(rows: int, width: int, bits: int) -> Iterator[Misreading]:
    """Yield tiles as kernels misread them; the elements have `bits` bits, and the rows are contiguous in memory."""
    seen: set[tuple[int, int, bytes]] = set()
    kinds = _swizzles(width, bits), _majors(rows, width), _cores(rows, width, bits), _descriptors(rows, width, bits)
    for misreading in chain.from_iterable(kinds):
        key = (misreading.rows, misreading.width, misreading.index.tobytes())
        if key not in seen and (misreading.index != np.arange(len(misreading.index))).any():
            seen.add(key)
            yield misreading


def regathered(matrix: NDArray, misreading: Misreading) -> NDArray:
    """Return a matrix in which each tile is misread; tiles at the edge are padded with zeros."""
    rows, width = matrix.shape
    down, across = -rows % misreading.rows, -width % misreading.width
    whole = np.pad(matrix, ((0, down), (0, across))) if down or across else matrix
    tiles = tiles_of(whole, misreading.rows, misreading.width)
    read = tiles.reshape(len(tiles), -1)[:, misreading.index].reshape(tiles.shape)
    return np.ascontiguousarray(joined(read, whole.shape)[:rows, :width])


def _misread(text: str, written: _Units, read: _Units, rows: int, pitch: int, bits: int) -> Iterator[Misreading]:
    """Yield a tile whose 16-byte units are written at some addresses and read from others; a row has `pitch` bytes.

    `written` and `read` are these addresses, one per unit. Nothing is yielded if an address that is read holds no unit.
    """
    at = np.full(rows * pitch // UNIT_BYTES, -1, np.intp)
    at[written // UNIT_BYTES] = np.arange(len(written))
    if read.max() < rows * pitch and ((units := at[read // UNIT_BYTES]) >= 0).all():
        per_unit = 8 * UNIT_BYTES // bits
        elements = (units.reshape(-1, 1) * per_unit + np.arange(per_unit)).ravel()
        yield Misreading(text, rows, 8 * pitch // bits, elements)


def _swizzles(width: int, bits: int) -> Iterator[Misreading]:
    """Yield tiles with rows of 32, 64 or 128 bytes that are written with one swizzle and read with another."""
    addresses = np.arange(0, _PERIOD, UNIT_BYTES)
    for pitch in (128, 64, 32):
        if 8 * pitch // bits > max(width, 8 * UNIT_BYTES // bits):
            continue
        for writer, reader in product(_SWIZZLED[::-1], repeat=2):
            written, read = (SWIZZLES[name].apply(addresses) for name in (writer, reader))
            text = f"swizzle {writer} is read as {reader}, rows of {pitch} bytes"
            yield from _misread(text, written, read, _PERIOD // pitch, pitch, bits)


def _majors(rows: int, width: int) -> Iterator[Misreading]:
    """Yield K-major tiles that are read as MN-major, and MN-major tiles that are read as K-major."""
    for height in sorted({min(size, rows) for size in (8, 16, 32, 64, 128, 256, rows)}):
        for across in sorted({min(size, width) for size in (8, 16, 32, 64, 128, width)}):
            every = np.arange(height * across)
            read_as_mn, read_as_k = every.reshape(across, height).T.ravel(), every.reshape(height, across).T.ravel()
            where = f"tiles of {height} x {across} elements"
            yield Misreading(f"K-major tiles are read as MN-major, {where}", height, across, read_as_mn)
            yield Misreading(f"MN-major tiles are read as K-major, {where}", height, across, read_as_k)


def _tile_units(
    rows: int, width: int, bits: int, pitches: tuple[int, ...]
) -> Iterator[tuple[int, int, _Units, _Units]]:
    """Yield for each tile that fits into a matrix: rows, bytes per row, and the row and column of each 16-byte unit."""
    for height in sorted({size for size in (64, 128, 256, rows) if size <= max(rows, 64) and size % 8 == 0}):
        for pitch in pitches:
            if 8 * pitch // bits <= max(width, 8 * UNIT_BYTES // bits):
                row, unit = (part.ravel() for part in np.indices((height, pitch // UNIT_BYTES)))
                yield height, pitch, row, unit


def _core_address(row: _Units, unit: _Units, stride: int, leading: int) -> _Units:
    """Return each 16-byte unit's address; core matrices are `stride` bytes apart along M or N, `leading` along K."""
    address: _Units = row // 8 * stride + unit * leading + row % 8 * UNIT_BYTES
    return address


def _cores(rows: int, width: int, bits: int) -> Iterator[Misreading]:
    """Yield unswizzled tiles that are read with another order of core matrices or exchanged descriptor offsets."""
    for height, pitch, row, unit in _tile_units(rows, width, bits, (32, 64, 128, 256)):
        offsets = {
            "core matrices, along K first": (pitch // UNIT_BYTES * _CORE, _CORE),
            "core matrices, along the rows first": (_CORE, height // 8 * _CORE),
        }
        layouts = {name: _core_address(row, unit, *pair) for name, pair in offsets.items()}
        layouts["row by row"] = row * pitch + unit * UNIT_BYTES
        tile = f"tiles of {height} rows x {pitch} bytes"
        for writer, written in layouts.items():
            readers = {f"written as {writer}, read as {name}": at for name, at in layouts.items()}
            if writer in offsets:
                text = f"{writer}, read with leading and stride offsets exchanged"
                readers[text] = _core_address(row, unit, *offsets[writer][::-1])
            for text, read in readers.items():
                yield from _misread(f"{text}, {tile}", written, read, height, pitch, bits)


def _descriptors(rows: int, width: int, bits: int) -> Iterator[Misreading]:
    """Yield swizzled tiles that are read in pieces of 32 bytes along K, through descriptors with wrong fields."""
    for height, pitch, row, unit in _tile_units(rows, width, bits, (32, 64, 128)):
        written = SWIZZLES[f"{pitch}B"].apply(row * pitch + unit * UNIT_BYTES)
        for text, swizzle, leading, stride in _fields(pitch):
            read = np.empty_like(written)
            for step in range(pitch // _STEP):
                inside = unit // 2 == step
                descriptor = SharedDescriptor(step * _STEP, leading, stride, 0, swizzle)
                read[inside] = unit_address(descriptor, row[inside], unit[inside] % 2, "k")
            where = f"swizzle {pitch}B is read by a descriptor of {text}, tiles of {height} rows"
            yield from _misread(where, written, read, height, pitch, bits)


def _fields(pitch: int) -> Iterator[tuple[str, Swizzle, int, int]]:
    """Yield wrong descriptor fields for a tile with rows of `pitch` bytes: their text, swizzle and two offsets."""
    group = 8 * pitch
    for name in _SWIZZLED:
        swizzle = SWIZZLES[name]
        offsets = {(UNIT_BYTES, stride) for stride in (group, 8 * swizzle.row_bytes, 0, 2 * group, group // 2)}
        for leading, stride in sorted({*offsets, (group, UNIT_BYTES), (_CORE, group)}):
            exchanged = " (exchanged)" if (leading, stride) == (group, UNIT_BYTES) else ""
            words = f"swizzle {name}, leading and stride offsets {leading} and {stride}{exchanged}"
            yield words, swizzle, leading, stride
