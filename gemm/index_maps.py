"""Wrong index maps of kernels, which read another row or column than intended, and texts for such maps.

A map is an array `index`: the kernel reads row or column ``index[p]`` where it should read row or column p.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from math import log2

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Outputs", "describe_map", "describe_set", "joined", "listed", "misread", "named_maps", "runs_of", "sources",
    "tiles_of",
]  # fmt: skip

Index = NDArray[np.intp]
#: Powers of two that occur in kernels as numbers of rows: of a layout atom, a warp, a warpgroup or a CTA tile.
_POWERS = tuple(1 << power for power in range(10))
#: Maximum number of indices, or of runs of successive indices, that a text lists.
_LISTED = 6


def named_maps(count: int, *, powers: Sequence[int] = _POWERS) -> Iterator[tuple[str, Index]]:
    """Yield wrong index maps of kernels, such as row p ^ 8 instead of row p, with descriptions; each map only once."""
    every = np.arange(count)
    seen = {every.tobytes()}

    def maps() -> Iterator[tuple[str, Index]]:
        for size in powers:
            if size < count:
                yield f"p ^ {size}", every ^ size
                yield f"p + {size}", every + size
                yield f"p - {size}", every - size
                yield f"p mod {size}", every % size
                yield f"p & ~{size}", every & ~size
                yield f"p | {size}", every | size
        for size in powers[1:]:
            if size <= count:
                yield f"reversed in groups of {size}", every ^ (size - 1)
        yield "reversed", every[::-1]
        yield "0", np.zeros_like(every)
        yield f"{count - 1}", np.full_like(every, count - 1)
        for size in powers[2:4]:
            for offset in range(size):
                yield f"{offset} of its group of {size}", np.minimum(every // size * size + offset, count - 1)
        for size in powers[1:]:
            if count % size == 0 and 1 < size < count:
                yield f"transposed as {size} x {count // size}", every.reshape(size, -1).T.ravel()

    for text, index in maps():
        index = index % count
        if index.tobytes() not in seen:
            seen.add(index.tobytes())
            yield text, index


def describe_map(index: Index, noun: str) -> tuple[str, float]:
    """Describe an index map of `noun` (rows or columns): return a text, and the map's information content in bits."""
    count = len(index)
    changed = np.flatnonzero(index != np.arange(count))
    for text, named in named_maps(count):
        if np.array_equal(index, named):
            return _moved(noun, noun, text), 6.0
    for text, named in named_maps(count):
        if np.array_equal(index[changed], named[changed]):
            where, bits = describe_set(changed, count, noun)
            return _moved(where, noun, text), 6.0 + bits
    bits = len(changed) * log2(max(2, count))
    for size in (256, 128, 64, 32, 16, 8, 4, 2):
        blocks = index.reshape(-1, size) if count % size == 0 and count > size else None
        if blocks is None or not ((blocks == blocks[:, :1] + np.arange(size)) & (blocks[:, :1] % size == 0)).all():
            continue
        order = blocks[:, 0] // size
        moved = np.flatnonzero(order != np.arange(len(order)))
        pairs = listed([f"{place} holds {order[place]}" for place in moved])
        return f"blocks of {size} {noun} are in another order: block {pairs}", len(moved) * log2(count // size)
    return f"{noun} are in another order: {listed([f'{place} holds {index[place]}' for place in changed])}", bits


def listed(items: Sequence[str], most: int = _LISTED) -> str:
    """Return the first items of a list as text, separated by commas, and the number of further items."""
    return ", ".join(items[:most]) + (f", and {len(items) - most} more" if len(items) > most else "")


def _moved(where: str, noun: str, text: str) -> str:
    """Return a sentence that says which rows or columns (`where`) have moved, and from which positions (`text`)."""
    if text.startswith(("reversed", "transposed")):
        return f"{where} are {text}"
    return f"{where} are moved: {noun[:-1]} p holds {noun[:-1]} {text}"


def describe_set(places: Index, count: int, noun: str) -> tuple[str, float]:
    """Describe a set of indices below `count`: return a text, and the information content of the set in bits."""
    if len(places) == count:
        return f"all {count} {noun}", 0.0
    if not len(places):
        return f"no {noun}", 0.0
    runs = runs_of(places)
    for period in _POWERS[1:]:
        inside = np.unique(places % period)
        if 2 * period <= count and len(inside) < period:
            expected = np.flatnonzero(np.isin(np.arange(count) % period, inside))
            if np.array_equal(expected, places) and len(runs) > 2:
                return f"{noun} p with p mod {period} in {_runs_text(runs_of(inside))}", period + 4.0
    named = noun.removesuffix("s") if len(places) == 1 else noun
    return f"{named} {_runs_text(runs)}", 2 * len(runs) * log2(max(2, count))


def runs_of(places: Index) -> list[tuple[int, int]]:
    """Split a nonempty sorted array of indices into runs of successive numbers; return first and last of each run."""
    cuts = np.flatnonzero(np.diff(places) > 1) + 1
    return [(int(run[0]), int(run[-1])) for run in np.split(places, cuts)]


def _runs_text(runs: Sequence[tuple[int, int]]) -> str:
    return listed([str(first) if first == last else f"{first} to {last}" for first, last in runs])


def misread(array: NDArray, layouts: Mapping[str, Index]) -> Iterator[tuple[str, str, NDArray]]:
    """Yield the names of two layouts, and the array as read in the second layout after it was written in the first.

    A layout holds the address of each element of the array. All other addresses of the memory hold zeros.
    """
    for (writer, written), (reader, read) in permutations(layouts.items(), 2):
        memory = np.zeros(1 + max(int(written.max()), int(read.max())), array.dtype)
        memory[written] = array
        yield writer, reader, memory[read]


def tiles_of(matrix: NDArray, height: int, width: int) -> NDArray:
    """Cut a matrix into tiles; return an array of shape (tiles, height, width)."""
    rows, columns = matrix.shape
    tiles = matrix.reshape(rows // height, height, columns // width, width).swapaxes(1, 2)
    return tiles.reshape(-1, height, width)


def joined(tiles: NDArray, shape: tuple[int, ...]) -> NDArray:
    """Return the matrix that consists of the given tiles, the inverse of :func:`tiles_of`."""
    _, height, width = tiles.shape
    return tiles.reshape(shape[0] // height, shape[1] // width, height, width).swapaxes(1, 2).reshape(shape)


#: Tolerance: two rows of numbers are near if their distance is at most this fraction of their Euclidean norm.
_SAME = 1 / 32
#: For rows without an equal row in the other matrix, nearly equal rows are searched. This number of rows is tried
#: first. If at most half of these rows have a nearly equal row, the remaining rows are not tried.
_FIRST = 16
#: Maximum number of pairs of rows whose distance is computed.
_MOST_DISTANCES = 1 << 22


@dataclass(frozen=True, eq=False)
class Outputs:
    """Outputs of a matrix product, as codes and as float64 values."""

    codes: NDArray
    values: NDArray[np.float64]

    def map(self, change: Callable[[NDArray], NDArray]) -> "Outputs":
        """Return the outputs with a function applied to their codes and to their values."""
        return Outputs(np.ascontiguousarray(change(self.codes)), np.ascontiguousarray(change(self.values)))


def sources(present: Outputs, target: Outputs) -> Index:
    """Return for each row of `target` the index of a row of `present` that is equal up to rounding errors; else -1.

    Row p of `present` is preferred for row p of `target`. Near rows differ only by rounding errors of the summation.
    """
    places: dict[bytes, int] = {}
    for place, row in enumerate(present.codes):
        places.setdefault(row.tobytes(), place)
    index = np.array([places.get(row.tobytes(), -1) for row in target.codes], np.intp)
    shared = min(len(present.codes), len(target.codes))
    same = (present.codes[:shared] == target.codes[:shared]).reshape(shared, -1).all(1)
    index[:shared] = np.where(same, np.arange(shared), index[:shared])
    missing = np.flatnonzero(index < 0)
    few = _nearest(present.values, target.values[missing[:_FIRST]])
    if 2 * (few >= 0).sum() > len(few) and len(missing) * len(present.codes) <= _MOST_DISTANCES:
        index[missing] = _nearest(present.values, target.values[missing])
    return index


def _nearest(present: NDArray[np.float64], target: NDArray[np.float64]) -> Index:
    """Return for each row of `target` the index of the nearest row of `present`; -1 if the rows are too different."""
    one, other = np.nan_to_num(present), np.nan_to_num(target)
    size = (other**2).sum(1)
    distances = (one**2).sum(1) + size[:, None] - 2 * other @ one.T
    nearest: Index = distances.argmin(1) if len(other) else np.zeros(0, np.intp)
    close = distances[np.arange(len(other)), nearest] <= _SAME**2 * size
    return np.where(close, nearest, -1)
