"""Faults of sums along K: slices are missing or added twice, accumulators are not cleared or are lost."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ..isa.instructions import Instruction
from .epilogue import Epilogue
from .fault_probe import numbers
from .index_maps import listed
from .setting import Fault, Setting

__all__ = ["beyond_the_end", "not_cleared", "slice_sums", "slices_of_k", "sums_before", "weights"]

#: Numbers of rows and columns of output tiles that may begin from the accumulator of the previous tile.
_TILES = (8, 16, 32, 64, 128, 256)
#: Tolerance: largest accepted distance between a fitted count and an integer.
_NEAR = 0.2
#: Numbers of columns that a kernel may read beyond the end of K: at most one K tile.
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
    """Return the scaled sum of each slice of `unit` columns of K for each output, shape (slices, outputs)."""
    (a, b), groups, parts = numbers(setting, i), setting.groups, []
    for k in range(0, setting.k, unit):
        total = a[:, k : k + unit] @ b[k : k + unit]
        if groups:
            total = total * groups.a[k // groups.length] * groups.b[k // groups.length]
        parts.append(total.ravel())
    return np.stack(parts)


def weights(parts: NDArray[np.float64], target: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Fit how many times each slice of K is added to the result; None if there are too few outputs for the fit.

    `parts` holds the sum of each slice for each output, shape (slices, outputs), and `target` the result of each
    output.
    """
    usable = np.isfinite(target) & np.isfinite(parts).all(0)
    if usable.sum() < 2 * len(parts) + 8:
        return None
    chosen = parts[:, usable]
    size = np.abs(chosen).max() or 1.0
    found: NDArray[np.float64] = np.linalg.lstsq(chosen.T / size, target[usable] / size, rcond=None)[0]
    return found


def slices_of_k(setting: Setting, unit: int, fitted: NDArray[np.float64]) -> Iterator[Fault]:
    """Yield faults by which each slice of `unit` columns of K is added as often as a fit of the result shows."""
    counts = np.rint(fitted).astype(int)
    if (np.abs(fitted - counts) > _NEAR).any() or (counts < 0).any() or (counts > 4).any() or not counts.any():
        return
    every = np.arange(len(counts))
    if (counts == 1).all():
        return
    text, kind = _slices_text(counts, unit)
    once = np.where(counts > 0, every, -1)
    more = np.flatnonzero(counts > 1)
    variants = [once, every[counts > 0]]
    if len(more):
        runs = np.split(more, np.flatnonzero(np.diff(more) > 1) + 1)
        kept = every[counts > 0]
        adjacent = kept.tolist()
        for run in runs[::-1]:
            place = adjacent.index(run[-1]) + 1
            adjacent[place:place] = run.tolist() * (int(counts[run[0]]) - 1)
        extra = np.repeat(more, counts[more] - 1)
        variants = [np.array(adjacent), np.concatenate([kept, extra]), np.repeat(every, counts),
                    np.concatenate([extra, kept])]  # fmt: skip
    bits = 2.0 * len(np.flatnonzero(np.diff(counts))) * np.log2(len(counts) + 1)
    for index in variants:
        index = index.astype(np.intp)
        if setting.groups and setting.groups.with_blocks(unit, index) is None:
            continue  # With another slice length, a scale group would hold elements with different scales.
        names = ("a", "nibbles", "b", "scales", "groups")
        change = partial(Setting.with_blocks, unit=unit, index=dict.fromkeys(names, index))
        yield Fault(kind, text, change, bits=bits)


def _slices_text(counts: NDArray[np.int_], unit: int) -> tuple[str, str]:
    """Return a text that states how often slices of K are added, and the kind of the fault."""
    words = []
    for count in np.unique(counts[counts != 1]):
        places = np.flatnonzero(counts == count)
        runs = np.split(places, np.flatnonzero(np.diff(places) > 1) + 1)
        spans = listed([f"{run[0] * unit} to {(run[-1] + 1) * unit - 1}" for run in runs], 4)
        words.append(f"k {spans} " + ("is missing" if count == 0 else f"is added {count} times"))
    present = np.flatnonzero(counts)
    if (counts <= 1).all() and len(present) and present[-1] == len(counts) - 1 and (np.diff(present) == 1).all():
        return f"the accumulator is not kept: only the last K tile counts ({'; '.join(words)})", "accumulator"
    return f"slices of K: {'; '.join(words)}", "slice of K"


def beyond_the_end(setting: Setting) -> Iterator[Fault]:
    """Yield faults by which K is read beyond its end, where memory holds the first columns of the next row."""
    for size in _BEYOND:
        if size >= setting.k:
            continue
        for text, columns in (("and B from its next column", True), ("and B from its first rows", False)):
            change = partial(_longer, size=size, columns=columns)
            yield Fault("slice of K", f"K is read {size} beyond its end: A from its next row, {text}", change)
        text = f"K is read {size} beyond its end, from its beginning again"
        yield Fault("slice of K", text, partial(_again, size=size))


def _again(setting: Setting, size: int) -> Setting:
    return _joined(setting, setting, size)


def _longer(setting: Setting, size: int, columns: bool) -> Setting:
    """Return operands with `size` more columns along K, read from the next row; zeros follow the last row."""
    following = replace(
        setting,
        a=np.vstack([setting.a[1:], np.zeros_like(setting.a[:1])]),
        nibbles=None if setting.nibbles is None else np.vstack([setting.nibbles[1:], setting.nibbles[:1]]),
        b=np.hstack([setting.b[:, 1:], np.zeros_like(setting.b[:, :1])]) if columns else setting.b,
    )
    return _joined(setting, following, size)


def _joined(setting: Setting, following: Setting, size: int) -> Setting:
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
    """Yield orders of output tiles in which each tile begins from the accumulator of the previous tile.

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
