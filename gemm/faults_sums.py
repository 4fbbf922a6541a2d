"""Kernel faults in sums along K: parts of K are missing or added twice, accumulators are not cleared or are lost."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..isa.formats import FORMATS
from ..isa.instructions import Instruction
from ..operands.registers import CONTAINERS
from ..tensors.encode import decode_codes
from .epilogue import Epilogue
from .index_maps import listed, runs_of
from .setting import Fault, Setting
from .ways import Way

__all__ = ["beyond_the_end", "carried", "not_cleared", "slice_sums", "slices_of_k", "sums_before", "weights"]

#: Numbers of rows and of columns of output tiles to try, for kernels whose tiles begin from the previous tile's
#: accumulator.
_TILES = (8, 16, 32, 64, 128, 256)
#: A fit estimates how often a kernel adds each slice of K. The estimate may differ from an integer by this much.
_NEAR = 0.2
#: Numbers of elements that a kernel may read beyond the end of K: at most one K tile.
_BEYOND = (8, 16, 32, 64, 128)


def sums_before(epilogue: Epilogue, values: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Return the sums before the epilogue, recomputed from the result; None if the epilogue is not invertible."""
    if epilogue.relu or epilogue.alpha == 0:
        return None
    for addend, factor in ((epilogue.bias, 1.0), (epilogue.c, epilogue.beta)):
        values = values if addend is None else values - factor * addend.astype(np.float64)
    values = values / epilogue.alpha
    for scale in (epilogue.scale_a, epilogue.scale_b):
        values = values if scale is None else values / scale
    return values


def slice_sums(setting: Setting, unit: int, i: Instruction) -> NDArray[np.float64]:
    """Return each output's scaled sum over each slice of `unit` elements along K, shape (slices, outputs)."""
    both = [setting.with_zeros(decode_codes(setting.a, i.a)), decode_codes(setting.b, i.b).T]
    if setting.scales and i.scale_format and i.span:
        for side, codes in enumerate(setting.scales):
            scales = decode_codes(codes, i.scale_format).repeat(i.span, 1)[:, : setting.k]
            both[side] = both[side] * np.pad(scales, ((0, 0), (0, setting.k - scales.shape[1])))
    a, b = np.nan_to_num(both[0]), np.nan_to_num(both[1]).T
    groups, parts = setting.groups, []
    for k in range(0, setting.k, unit):
        total = a[:, k : k + unit] @ b[k : k + unit]
        if groups:
            total = total * groups.a[k // groups.length] * groups.b[k // groups.length]
        parts.append(total.ravel())
    return np.stack(parts)


def weights(parts: NDArray[np.float64], target: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Fit the number of times that each slice of K is added to the result; None if there are too few outputs to fit.

    `parts` holds the sum of each slice for each output, shape (slices, outputs), and `target` the result of each
    output.
    """
    usable = np.isfinite(target) & np.isfinite(parts).all(0)
    if usable.sum() < 2 * len(parts) + 8:
        return None
    chosen = parts[:, usable]
    size = np.abs(chosen).max() or 1.0
    return np.linalg.lstsq(chosen.T / size, target[usable] / size, rcond=None)[0]


def slices_of_k(setting: Setting, unit: int, fitted: NDArray[np.float64]) -> Iterator[Fault]:
    """Yield faults of kernels that omit or repeat slices of `unit` elements of K. `fitted`: how often each is added."""
    counts = np.rint(fitted).astype(int)
    if (np.abs(fitted - counts) > _NEAR).any() or (counts < 0).any() or (counts > 4).any() or not counts.any():
        return
    if (counts == 1).all():
        return
    text, kind = _slices_text(counts, unit)
    bits = 2.0 * len(np.flatnonzero(np.diff(counts))) * np.log2(len(counts) + 1)
    for index in _slice_orders(counts):
        if setting.groups and setting.groups.with_blocks(unit, index) is None:
            continue  # Skip orders of slices of K that would put elements with different scales into one scale group.
        names = ("a", "nibbles", "b", "scales", "groups")
        yield Fault(kind, text, setting.with_blocks(unit, dict.fromkeys(names, index)), bits=bits)


def _slice_orders(counts: NDArray[np.int_]) -> list[NDArray[np.intp]]:
    """Return orders in which a kernel adds parts of K: part p occurs ``counts[p]`` times; -1 stands for zeros."""
    every = np.arange(len(counts))
    kept, more = every[counts > 0], np.flatnonzero(counts > 1)
    if not len(more):
        return [np.where(counts > 0, every, -1), kept]
    adjacent = kept.tolist()  # order of slices of K, such as 0, 1, 2, 1, 2, 3 if slices 1 and 2 are added twice
    for first, last in runs_of(more)[::-1]:
        place = adjacent.index(last) + 1
        adjacent[place:place] = [*range(first, last + 1)] * (int(counts[first]) - 1)
    extra = np.repeat(more, counts[more] - 1)
    return [np.array(adjacent), np.concatenate([kept, extra]), np.repeat(every, counts), np.concatenate([extra, kept])]


def _slices_text(counts: NDArray[np.int_], unit: int) -> tuple[str, str]:
    """Return a text that names missing and repeated slices of K, and the fault's kind (accumulator, or slice of K)."""
    words = []
    for count in np.unique(counts[counts != 1]):
        runs = runs_of(np.flatnonzero(counts == count))
        spans = listed([f"{first * unit} to {(last + 1) * unit - 1}" for first, last in runs], 4)
        words.append(f"k {spans} " + ("is missing" if count == 0 else f"is added {count} times"))
    present = np.flatnonzero(counts)
    if (counts <= 1).all() and len(present) and present[-1] == len(counts) - 1 and (np.diff(present) == 1).all():
        return f"the accumulator is not kept: only the last K tile counts ({'; '.join(words)})", "accumulator"
    return "; ".join(words), "slice of K"


def beyond_the_end(setting: Setting) -> Iterator[Fault]:
    """Yield possible kernel faults: K is read beyond its end, where memory holds the first columns of the next row."""
    next_row = replace(
        setting,
        a=np.vstack([setting.a[1:], np.zeros_like(setting.a[:1])]),
        nibbles=None if setting.nibbles is None else np.vstack([setting.nibbles[1:], setting.nibbles[:1]]),
    )
    next_column = replace(next_row, b=np.hstack([setting.b[:, 1:], np.zeros_like(setting.b[:, :1])]))
    followers = {
        ": A from its next row, and B from its next column": next_column,
        ": A from its next row, and B from its first rows": next_row,
        ", from the beginning of K again": setting,
    }
    for size in _BEYOND:
        if size < setting.k:
            for text, following in followers.items():
                where = f"{size} elements are read beyond the end of K{text}"
                yield Fault("slice of K", where, _joined(setting, following, size))


def _joined(setting: Setting, following: Setting, size: int) -> Setting:
    """Return operands extended along K by the first `size` columns of other operands."""
    stored = size * setting.a.shape[1] // setting.k
    nibbles = None
    if setting.nibbles is not None and following.nibbles is not None:
        nibbles = np.hstack([setting.nibbles, following.nibbles[:, : size // setting.chunk]])
    return replace(
        setting,
        a=np.hstack([setting.a, following.a[:, :stored]]),
        nibbles=nibbles,
        k=setting.k + size,
        b=np.vstack([setting.b, following.b[:size]]),
    )


def not_cleared(shape: tuple[int, int]) -> Iterator[tuple[str, NDArray[np.intp], NDArray[np.intp]]]:
    """Yield orders of output tiles, for a kernel that does not clear its accumulators between two tiles.

    An order consists of a text, the first row and column of each tile, and the numbers of rows and columns of a tile.
    """
    rows, columns = shape
    for height in sorted({size for size in _TILES if rows % size == 0 and size < rows} | {rows}):
        for width in sorted({size for size in _TILES if columns % size == 0 and size < columns} | {columns}):
            down, across = rows // height, columns // width
            if down * across == 1:
                continue
            tiles = np.stack(np.meshgrid(np.arange(down), np.arange(across), indexing="ij"), -1).reshape(-1, 2)
            size = np.array([height, width])
            where = f"tiles of {height} rows x {width} columns"
            yield f"{where}, along the rows of tiles", tiles * size, size
            if down > 1 and across > 1:
                turned = tiles[np.argsort(tiles[:, 1], kind="stable")]
                yield f"{where}, along the columns of tiles", turned * size, size


def carried(setting: Setting, way: Way, tiles: NDArray[np.intp], size: NDArray[np.intp]) -> NDArray:
    """Return the codes of a matrix product whose output tiles begin from the accumulator of the previous tile.

    For `tiles` and `size` see :func:`not_cleared`.
    """
    codes, start = np.empty(setting.shape, CONTAINERS[FORMATS[way.result].bits]), None
    raw = replace(way, result=way.parsed.d.name)
    for row, column in tiles:
        rows, columns = np.arange(row, row + size[0]), np.arange(column, column + size[1])
        tile = replace(setting.take(rows, columns), start=start)
        codes[np.ix_(rows, columns)] = tile.codes(way)
        start = tile.codes(raw)
    return codes
