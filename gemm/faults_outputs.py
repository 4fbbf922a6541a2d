"""Kernel faults after summation: outputs are stored at wrong addresses, or results are wrongly rounded or encoded."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from math import log2

import numpy as np
from numpy.typing import NDArray

from ..isa.formats import FORMATS
from .epilogue import rounded_values, to_codes
from .index_maps import Outputs, describe_map, joined, listed, sources, tiles_of
from .sums import Finish
from .ways import Way

__all__ = ["Moved", "finishes", "moved"]

#: Numbers of rows and of columns of a tile, for faults that move whole tiles or permute outputs inside a tile.
_SIZES = (8, 16, 32, 64, 128, 256)
#: Codes of NaN that a kernel may store in f32; narrower types store the high bits of the code.
_NANS = {
    "a quiet NaN, 0x7fc00000 in f32": 0x7FC00000,
    "a negative quiet NaN, 0xffc00000 in f32": 0xFFC00000,
    "0x7f800001 in f32": 0x7F800001,
    "a negative canonical NaN": 0xFFFFFFFF,
    "zero": 0,
}
#: Maximum number of outputs in a tile for which permutations inside the tile are searched.
_MOST_POSITIONS = 1 << 14


@dataclass(frozen=True, eq=False)
class Moved:
    """A permutation of outputs: a matrix product whose outputs are stored at wrong rows and columns."""

    text: str  #: Text that names the outputs at wrong positions, and the rows and columns at which a kernel stored them
    #: For each output of the result, row by row: index of the correct output that is stored there; -1 for a stored
    #: zero.
    index: NDArray[np.intp]
    bits: float  #: Information content of the permutation, in bits

    def applied(self, correct: NDArray) -> NDArray:
        """Return a correct product with its outputs permuted by `index`."""
        moved: NDArray = np.where(self.index < 0, correct.dtype.type(0), correct.ravel()[self.index])
        return moved.reshape(correct.shape)


def moved(correct: Outputs, y: Outputs) -> Iterator[Moved]:
    """Yield permutations of the outputs of a correct product that nearly reproduce a given result `y`."""
    rows, columns = y.codes.shape
    every = np.arange(rows * columns).reshape(rows, columns)
    if rows > 1 and columns > 1:
        yield Moved("the product is stored transposed", every.T.ravel(), 1)
        yield Moved("the product is read transposed", every.reshape(columns, rows).T.ravel(), 1)
    yield from _lines("", every, correct, y)
    yield from _both(every, correct, y)
    if rows == columns:
        yield from _lines("the product is transposed, and its ", every.T, correct.map(np.transpose), y)
    yield from _tiles(every, correct, y)
    yield from _within_tiles(every, correct, y)
    differs = correct.codes != y.codes
    if (y.codes[differs] == 0).all():
        yield Moved("outputs are missing: their places hold zeros", np.where(differs, -1, every).ravel(), 2)


def _matched(correct: Outputs, y: Outputs) -> NDArray[np.intp] | None:
    """Return, for each row of `y`, the equal row of `correct`; None if under half have one, or none has moved."""
    index = sources(correct, y)
    own = np.arange(len(index))
    whole = np.where(index >= 0, index, own)
    return whole if 2 * (index >= 0).sum() >= len(index) and (whole != own).any() else None


def _lines(before: str, every: NDArray[np.intp], correct: Outputs, y: Outputs) -> Iterator[Moved]:
    """Match whole rows, or whole columns, of the result with rows or columns of the correct product."""
    for axis, noun in enumerate(("rows", "columns")):
        present, result = (part.map(np.transpose) if axis else part for part in (correct, y))
        if (index := _matched(present, result)) is not None:
            text, bits = describe_map(index, noun)
            yield Moved(f"{before}{text}", every.take(index, axis).ravel(), bits)


def _both(every: NDArray[np.intp], correct: Outputs, y: Outputs) -> Iterator[Moved]:
    """Match rows of the result with correct rows, regardless of the order of elements; then match columns."""
    index = sources(correct.map(lambda x: np.sort(x, 1)), y.map(lambda x: np.sort(x, 1)))
    if (index < 0).any():
        return
    across = sources(correct.map(lambda x: x[index].T), y.map(np.transpose))
    if (across < 0).any() or (np.diff(index) == 1).all() or (np.diff(across) == 1).all():
        return
    down_text, down_bits = describe_map(index, "rows")
    across_text, across_bits = describe_map(across, "columns")
    yield Moved(f"{down_text}; {across_text}", every[index][:, across].ravel(), down_bits + across_bits)


def _flat(matrix: NDArray, height: int, width: int, turned: bool = False) -> NDArray:
    """Return an array in which each row holds the outputs of one tile; each tile is transposed first if `turned`."""
    tiles = tiles_of(matrix, height, width)
    return (tiles.swapaxes(1, 2) if turned else tiles).reshape(len(tiles), -1)


def _positions(matrix: NDArray, cut: Callable[[NDArray], NDArray], tiles: NDArray[np.bool_]) -> NDArray:
    """Return an array with a row for each position in a tile: the outputs at this position in the selected tiles."""
    return cut(matrix)[tiles].T


def _sizes(shape: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return pairs of height and width of tiles that divide the matrix product, from small to large."""
    each = [[size for size in _SIZES if size < length and length % size == 0] + [length] for length in shape]
    return sorted(((height, width) for height in each[0] for width in each[1]), key=lambda size: size[0] * size[1])


def _tiles(every: NDArray[np.intp], correct: Outputs, y: Outputs) -> Iterator[Moved]:
    """Match whole tiles that are stored at wrong positions, the largest tiles first, unchanged or transposed."""
    shape = every.shape
    for height, width in _sizes(shape)[-2::-1]:
        across = shape[1] // width
        for turned in (False, True) if height == width else (False,):
            cut = partial(_flat, height=height, width=width, turned=turned)
            index = _matched(correct.map(cut), y.map(partial(_flat, height=height, width=width)))
            if index is None:
                continue
            places = np.flatnonzero(index != np.arange(len(index)))
            pairs = [
                f"({place // across}, {place % across}) holds ({index[place] // across}, {index[place] % across})"
                for place in places
            ]
            word = ", each transposed" if turned else ""
            text = f"tiles of {height} rows x {width} columns are in other places{word}: tile {listed(pairs, 4)}"
            bits = min(describe_map(index, "tiles")[1], len(places) * log2(len(index)))
            yield Moved(text, joined(cut(every)[index].reshape(-1, height, width), shape).ravel(), bits)


def _within_tiles(every: NDArray[np.intp], correct: Outputs, y: Outputs) -> Iterator[Moved]:
    """Match outputs inside tiles: find one permutation for all tiles, or for all tiles with wrong outputs."""
    for height, width in _sizes(every.shape):
        if not 1 < height * width <= _MOST_POSITIONS:
            continue
        cut = partial(_flat, height=height, width=width)
        differs = (cut(correct.codes) != cut(y.codes)).any(1)
        index = _matched(*(part.map(partial(_positions, cut=cut, tiles=differs)) for part in (correct, y)))
        if index is None:
            continue
        tiles = cut(every)
        tiles = np.where(differs[:, None], tiles[:, index], tiles)
        text, bits = _position_text(index, height, width)
        bits += 0 if differs.all() else min(len(differs), 2 * log2(len(differs)) + 8)
        where = "each tile" if differs.all() else f"{differs.sum()} of the {len(differs)} tiles"
        places = joined(tiles.reshape(-1, height, width), every.shape).ravel()
        yield Moved(f"in {where} of {height} rows x {width} columns, {text}", places, bits)


def _position_text(index: NDArray[np.intp], height: int, width: int) -> tuple[str, float]:
    """Describe a permutation of the outputs in a tile: return a text, and its information content in bits."""
    every = np.arange(height * width).reshape(height, width)
    for text, candidate in (("stored", every.T.ravel()), ("read", every.reshape(width, height).T.ravel())):
        if np.array_equal(index, candidate):
            return f"outputs are {text} transposed", 2.0
    across = index.reshape(height, width) % width
    down = index.reshape(height, width) // width
    if (across == across[:1]).all() and (down == down[:, :1]).all():
        texts: list[str] = []
        bits = 0.0
        for noun, line in (("rows", down[:, 0]), ("columns", across[0])):
            if (line != np.arange(len(line))).any():
                text, more = describe_map(line, noun)
                texts, bits = [*texts, text], bits + more
        return "; ".join(texts), bits
    text, bits = describe_map(index, "positions")
    lanes = "outputs of lanes" if max(height, width) <= 16 else "outputs"
    return f"the {lanes} are permuted, across rows and columns: {text}", bits


def finishes(result: str) -> Iterator[tuple[str, str, Finish]]:
    """Yield faulty conversions of sums to results: kind of fault, description, and the function that converts."""
    rounding, special = "rounding of the result", "special values"
    if FORMATS[result].is_integer:
        if result == "s8":
            yield rounding, "the result wraps around and does not saturate", _wrapped
            text = "the result saturates to -127"
            yield rounding, text, lambda x, way: np.maximum(to_codes(x, "s8").view(np.int8), -127).view(np.uint8)
        return
    for name in ("f16", "bf16", "e4m3", "e5m2"):
        if name != result and (result in ("f32", "f16", "bf16") or name in ("f16", "bf16")):
            text = f"the result is rounded twice: to {name}, then to {result}"
            yield rounding, text, _before(partial(rounded_values, result=name))
    if result == "f32":
        for name, bits in (("tf32", 13), ("bf16", 16)):
            yield rounding, f"the result is truncated to {name}", partial(_truncated, bits=bits)
    else:
        yield rounding, "the result is rounded toward zero (truncated)", lambda x, way: to_codes(x, result, "RZ")
        text = "the result is rounded to nearest, ties away from zero"
        yield rounding, text, lambda x, way: to_codes(x, result, "RNA")
        yield rounding, "subnormal results are flushed to zero", _flushed
        text = "overflow saturates to the largest number"
        yield special, text, lambda x, way: to_codes(x, result, saturate=True)
        text = "overflow becomes infinity or NaN and does not saturate"
        yield special, text, lambda x, way: to_codes(x, result, saturate=False)
    for text, code in _NANS.items():
        yield special, f"NaN is stored as {text}", partial(_nan_as, code=code)
    largest = np.float32(3.4028235e38)
    finite = _before(lambda x: np.where(np.isinf(x), np.copysign(largest, x), x))
    yield special, "infinity is stored as the largest number", finite
    yield rounding, "ReLU is applied to the result", _before(lambda x: np.where(x < 0, np.float32(0), x))


def _before(change: Callable[[NDArray], NDArray]) -> Finish:
    """Return a function that changes results, and then rounds them to codes as the way of summation does."""
    return lambda values, way: to_codes(change(values), way.result, way.rounding)


def _wrapped(values: NDArray, way: Way) -> NDArray:
    with np.errstate(invalid="ignore"):
        return np.rint(values.astype(np.float64)).astype(np.int64).astype(np.uint8)


def _truncated(values: NDArray, way: Way, bits: int) -> NDArray:
    return values.view(np.uint32) >> np.uint32(bits) << np.uint32(bits)


def _flushed(values: NDArray, way: Way) -> NDArray:
    codes, fmt = to_codes(values, way.result, way.rounding), FORMATS[way.result]
    sign = codes.dtype.type(1 << fmt.bits - 1)
    return np.where((codes & (sign - 1)) >> fmt.fraction_bits == 0, codes & sign, codes)


def _nan_as(values: NDArray, way: Way, code: int) -> NDArray:
    codes, bits = to_codes(values, way.result, way.rounding), FORMATS[way.result].bits
    word = code >> 32 - bits if bits < 32 else code
    return np.where(np.isnan(values), codes.dtype.type(word), codes)
