"""Reduction of a mismatch to one tile in which all unnecessary parts of the operands are zero."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..isa.fragments import Fragment, a_fragment, accumulator_fragment, b_fragment, metadata_map, scale_map
from ..isa.metadata import nibble
from .archive import Replayable
from .register_file import RegisterFile
from .replay import Mismatch, compare
from .shards import Shard, both, draw

__all__ = ["Reproducer", "atoms", "reproduce", "shrink"]

_WORD_BITS = 32
#: Maximum number of passes over all parts of the operands: when a part is set to zero, another part can become
#: unnecessary. A third pass rarely helps.
_PASSES = 3


@dataclass(frozen=True, eq=False)
class Reproducer:
    """A mismatch, reduced to as few tiles and nonzero operands as possible."""

    #: One tile that shows the mismatch, or several if the mismatch also needs earlier tiles. D is the result of the
    #: golden model.
    file: Replayable
    mismatch: Mismatch  #: First difference between hardware and golden model


@dataclass(frozen=True, eq=False)
class Atoms:
    """Parts of an operand, such as its elements, that can be set to zero one by one."""

    name: str  #: Name of the field of :class:`RegisterFile` that holds the operand
    words: NDArray[np.intp]  #: Index of the 32-bit word that contains each element or other part, shape (count,)
    #: Mask of the bits of each operand element (or part) in its word, and value of its cleared bits, shape (count,).
    masks: NDArray[np.uint32]
    values: NDArray[np.uint32]

    def __len__(self) -> int:
        return len(self.words)

    def take(self, which: slice | NDArray[np.bool_]) -> "Atoms":
        """Return those operand parts that `which`, a Python slice or a mask, selects."""
        return Atoms(self.name, self.words[which], self.masks[which], self.values[which])

    def cleared(self, file: RegisterFile) -> RegisterFile:
        """Return a copy of `file` in which this object's operand parts are cleared (set to zero, for example)."""
        array = getattr(file, self.name).copy()
        keep, put = np.zeros((2, array[0].size), np.uint32)
        np.bitwise_or.at(keep, self.words, self.masks)
        np.bitwise_or.at(put, self.words, self.values)
        flat = array.reshape(len(array), -1)
        flat &= ~keep
        flat |= put
        return replace(file, **{self.name: array})


def atoms(file: RegisterFile, row: int, column: int) -> Iterator[Atoms]:
    """Yield the parts of all operands that can be set to zero; parts that affect the output less come first.

    The order is: bits that the instruction does not read, other rows and columns, and the row and the column of the
    output.
    """
    parts = []
    for name, words, low_bits, bits, value, needed in _parts(file, row, column):
        shifts = low_bits.astype(np.uint32).ravel()
        masks, values = np.uint32((1 << bits) - 1) << shifts, np.uint32(value) << shifts
        parts.append((Atoms(name, words.ravel(), masks, values), np.broadcast_to(needed, words.shape).ravel()))
    for name in dict.fromkeys(operand.name for operand, _ in parts):
        read = np.zeros(getattr(file, name)[0].size, np.uint32)
        for operand, _ in parts:
            if operand.name == name:
                np.bitwise_or.at(read, operand.words, operand.masks)
        words = np.flatnonzero(~read)
        yield Atoms(name, words, ~read[words], np.zeros(len(words), np.uint32))
    yield from (operand.take(~needed) for operand, needed in parts)
    yield from (operand.take(needed) for operand, needed in parts)


#: Operand parts, such as elements: name of the operand, word index and lowest bit of each part, width of a part
#: in bits, value of a cleared part, and mask of the parts that affect the output.
_Part = tuple[str, NDArray[np.intp], NDArray[np.intp], int, int, NDArray[np.bool_]]


def _parts(file: RegisterFile, row: int, column: int) -> Iterator[_Part]:
    i = file.instruction
    rows, columns = np.arange(i.m)[:, None] == row, np.arange(i.n) == column
    bits = i.container_bits
    if file.a is not None:
        yield "a", *_places(a_fragment(i)), bits, 0, rows
    if i.family == "mma":
        yield "b", *_places(b_fragment(i)), bits, 0, columns
    for operand, place in file.shared_maps.items():
        needed = rows if operand == "a" else columns[:, None]
        yield "b", place.addresses // 4, place.addresses % 4 * 8, bits, 0, needed
    yield "c", *_places(accumulator_fragment(i)), i.c.bits, 0, rows & columns
    if i.rule and nibble(0, 1) in i.rule.legal:
        metadata = metadata_map(i, file.sparsity_selector)
        yield "e", metadata.lanes, metadata.low_bits, 4, nibble(0, 1), rows
    if i.scale_format:
        one = i.scale_format.bias << i.scale_format.fraction_bits
        byte_a, thread_a, byte_b, thread_b = file.scale_ids
        for operand, byte, thread, needed in (("a", byte_a, thread_a, rows), ("b", byte_b, thread_b, columns[:, None])):
            scales = scale_map(i, operand, byte, thread)
            yield f"scale_{operand}", scales.lanes, scales.low_bits, 8, one, needed


def _places(fragment: Fragment) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the index of the 32-bit word that holds each matrix element, and the element's lowest bit in this word."""
    bit = fragment.positions * fragment.element_bits
    return bit // _WORD_BITS, bit % _WORD_BITS


def _mismatch(file: Replayable, backends: Sequence[str]) -> Mismatch | None:
    hardware, golden = both(file, backends)
    return compare(hardware, [("golden model", golden)])[1]


def shrink(file: RegisterFile, row: int, column: int, fails: Callable[[RegisterFile], bool]) -> RegisterFile:
    """Set to zero all operand elements that a mismatch does not need, first those that do not affect the output.

    `fails` returns whether a register file still shows the mismatch.
    """

    def clear(file: RegisterFile, parts: Atoms) -> RegisterFile:
        candidate = parts.cleared(file)
        if np.array_equal(getattr(candidate, parts.name), getattr(file, parts.name)):
            return file
        if fails(candidate):
            return candidate
        if len(parts) == 1:
            return file
        half = len(parts) // 2
        return clear(clear(file, parts.take(slice(half))), parts.take(slice(half, None)))

    for _ in range(_PASSES):
        before = file
        for parts in atoms(file, row, column):
            file = clear(file, parts)
        if file is before:
            break
    return file


def reproduce(shard: Shard) -> Reproducer | None:
    """Compute a shard (group of tiles) again, and reduce the first mismatch to few operands; None if all agree."""
    file, backends = draw(shard), shard.backends
    mismatch = _mismatch(file, backends)
    if mismatch is None:
        return None

    def fails(candidate: Replayable) -> bool:
        return _mismatch(candidate, backends) is not None

    case, row, column = mismatch.case, mismatch.row, mismatch.column
    # Keep only the tile with the mismatch or, if this tile alone does not fail, also the 1, 3, 7, ... tiles before it.
    count = 1
    while count <= case and not fails(file.take(slice(case + 1 - count, case + 1))):
        count *= 2
    small = file.take(slice(max(0, case + 1 - count), case + 1))
    if isinstance(small, RegisterFile) and fails(small):
        small = shrink(small, row, column, fails)
    file = small.with_fields(d=small.run("golden"))
    mismatch = _mismatch(file, backends)
    if mismatch is None:
        return None
    if (chunk := mismatch.column - file.instruction.n) >= 0:
        mismatch = replace(mismatch, column=chunk, reference="metadata rule", is_flag=True)
    return Reproducer(file, mismatch)
