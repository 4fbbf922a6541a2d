"""Faults of metadata: stored elements of A are multiplied by the wrong elements of B."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from ..errors import Error
from ..isa.metadata import split_nibbles
from ..tensors.cutlass import Atom, atom_sm90, atom_sm100, interleaved_positions, to_atoms
from .index_maps import named_maps
from .setting import Fault, Setting

__all__ = ["metadata"]

_Nibbles = NDArray[np.uint8]


def metadata(setting: Setting, bits: int) -> Iterator[Fault]:
    """Yield faults by which all metadata of A is wrong in the same manner; `bits` is the width of an element."""
    assert setting.nibbles is not None
    for text, nibbles in _wrong_nibbles(setting.nibbles, bits):
        yield Fault("metadata", f"metadata {text}", replace(setting, nibbles=np.ascontiguousarray(nibbles)))


def _wrong_nibbles(nibbles: _Nibbles, bits: int) -> Iterator[tuple[str, _Nibbles]]:
    """Yield a text that follows the word "metadata", and the wrong metadata."""
    for text, table in _tables():
        yield text, table[nibbles]
    rows, chunks = nibbles.shape
    for text, index in _lines(rows):
        yield f"of other rows: row p has the metadata of row {text}", nibbles[index]
    for text, index in named_maps(chunks, powers=(1, 2, 4, 8, 16)):
        yield f"of other chunks: chunk p of each row has the nibble of chunk {text}", nibbles[:, index]
    for shift in (1, -1, 2, -2, 4, -4, 8, -8):
        text = f"is shifted by {abs(shift)} nibbles {'down' if shift > 0 else 'up'} in memory, across rows"
        yield text, np.roll(nibbles.ravel(), shift).reshape(rows, chunks)
    for text, read in _orders(nibbles, bits):
        yield text, read
    for row, row_index in named_maps(rows, powers=(1, 8)):
        for chunk, chunk_index in named_maps(chunks, powers=(1, 2, 4)):
            if "^" in row and "^" in chunk:
                text = f"of other rows and chunks: row p has that of row {row}, chunk q that of {chunk}"
                yield text.replace("that of p", "that of q"), nibbles[row_index][:, chunk_index]


def _lines(rows: int) -> Iterator[tuple[str, NDArray[np.intp]]]:
    """Yield wrong maps of metadata rows: within the whole matrix, and within the rows of a warp or of a tile."""
    yield from named_maps(rows)
    every = np.arange(rows)
    for size in (8, 16, 32, 64, 128):
        if size < rows:
            yield f"p % {size} of the last {size} rows", every % size + rows - size
            half = size // 2
            yield f"p with the halves of each {size} rows taken from the first", every & ~half
            yield f"p with the halves of each {size} rows taken from the second", (every | half) % rows
    quads = every & ~15 | (every & 1) << 3 | (every & 14) >> 1
    yield "p with rows g and g + 8 of a warp interleaved", quads % rows
    yield "p with rows g and g + 8 of a warp taken apart", (every & ~15 | (every & 7) << 1 | every >> 3 & 1) % rows


def _tables() -> Iterator[tuple[str, NDArray]]:
    """Yield tables of wrong nibbles: each table replaces each of the 16 metadata nibbles by another nibble."""
    every = np.arange(16, dtype=np.uint8)
    yield "of zeros: every nibble is 0x0", np.zeros_like(every)
    for value in (0x4, 0xE, 0x8, 0x9, 0xC, 0xD, 0x6, 0xF, 0x5, 0xA, 0x1):
        yield f"is constant: every nibble is 0x{value:x}", np.full_like(every, value)
    yield "with both indices of a nibble exchanged (i0 and i1)", every >> 2 | (every & 3) << 2
    yield "with every index complemented", every ^ 15
    yield "with the bits of a nibble reversed", np.array([int(f"{n:04b}"[::-1], 2) for n in range(16)], np.uint8)
    yield "with the bits of each index exchanged", (every & 5) << 1 | (every & 10) >> 1
    yield "with i1 taken for both indices", every >> 2 | every & 12
    yield "with i0 taken for both indices", every & 3 | (every & 3) << 2


def _orders(nibbles: _Nibbles, bits: int) -> Iterator[tuple[str, _Nibbles]]:
    """Yield metadata that was written in one memory layout and read in another."""
    rows, chunks = nibbles.shape
    every = np.arange(rows * chunks, dtype=np.uint32).reshape(rows, chunks)
    orders: dict[str, NDArray[np.intp]] = {"row by row": every.ravel().astype(np.intp)}
    for width in (4, 8, 16, 32):
        if chunks * 4 % width == 0:
            words = every.reshape(rows, -1, width // 4)
            orders[f"column by column in words of {width} bits"] = words.swapaxes(0, 1).ravel().astype(np.intp)
    for width in (16, 32):
        with suppress(Error):
            if chunks * 4 % width == 0:
                positions = interleaved_positions(rows, chunks * 4 // width, width)
                placed = np.empty((positions.size, width // 4), np.intp)
                placed[positions.ravel()] = every.reshape(-1, width // 4)
                orders[f"CUTLASS 2.x (reordered, words of {width} bits)"] = placed.ravel()
    for name, atom in _atoms(bits):
        with suppress(Error):
            placed_nibbles = _positions(every, atom)
            if len(placed_nibbles) == every.size:
                orders[name] = placed_nibbles
    flat = nibbles.ravel()
    for (writer, written), (reader, read) in permutations(orders.items(), 2):
        changed = np.empty_like(flat)
        changed[read] = flat[written]
        if (changed != flat).any():
            text = f"of another interleave: written as {writer}, read as {reader}"
            yield text, changed.reshape(rows, chunks)


def _atoms(bits: int) -> Iterator[tuple[str, Atom]]:
    for tile_k in (128, 64):
        with suppress(Error, KeyError, ValueError):
            yield f"CUTLASS 3 for sm_90 (K tile {tile_k})", atom_sm90(bits, tile_k)
    with suppress(Error, KeyError, ValueError):
        yield "CUTLASS 3 for sm_100", atom_sm100(bits)


def _positions(every: NDArray[np.uint32], atom: Atom) -> NDArray[np.intp]:
    """Return the index of the nibble at each memory address, for metadata that is laid out in atoms."""
    total = np.zeros(every.size, np.intp)
    for digit in range(0, max(1, int(every.max()).bit_length()), 4):
        octets = to_atoms((every >> np.uint32(digit) & np.uint32(15)).astype(np.uint8), atom)
        placed = split_nibbles(np.ascontiguousarray(octets).reshape(1, -1)).ravel()
        if placed.size != every.size:
            return total[:0]
        total |= placed.astype(np.intp) << digit
    return total
