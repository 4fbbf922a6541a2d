"""Selection of the elements that a layout shows: one row, lane, byte or element, or all elements."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..errors import OperandError
from ..isa.placement import Memory, OperandPlacement, Placements

__all__ = ["Choice", "by_word"]


@dataclass(frozen=True)
class Choice:
    """Filter of the elements of an operand; a field that is None accepts every element."""

    row: int | None = None  #: Index of a row of A, C, D, the metadata or the scales of A
    lane: int | None = None  #: Index of a thread in the warp or warpgroup, or of a lane of tensor memory.
    byte: int | None = None  #: Address of a byte of shared memory.
    element: tuple[int, int] | None = None  #: Row and column of an element in the matrix of its operand (k and n for B)

    @property
    def everything(self) -> bool:
        """Whether this choice includes all elements of every operand."""
        return (self.row, self.lane, self.byte, self.element) == (None,) * 4

    def of(self, place: OperandPlacement) -> NDArray[np.bool_]:
        """Return a mask of the operand elements that the filter accepts, for example those of one row or lane."""
        chosen = np.ones(place.shape, np.bool_)
        if self.row is not None:
            chosen &= np.arange(place.shape[0])[:, None] == (self.row if place.indices[0] == "row" else -1)
        if self.lane is not None:
            chosen &= place.lanes == (-1 if place.memory is Memory.SHARED else self.lane)
        if self.byte is not None:
            last = place.words + (place.low_bits + place.bits - 1) // 8
            chosen &= (place.words <= self.byte) & (self.byte <= last) & (place.memory is Memory.SHARED)
        if self.element is not None:
            row, column = np.indices(place.shape)
            chosen &= (row == self.element[0]) & (column == self.element[1])
        return chosen

    def keep(self, found: Placements) -> Placements:
        """Return the operands with at least one selected element; raise an `OperandError` if there are none."""
        if self.everything:
            return found
        kept = tuple(place for place in found.operands if self.of(place).any())
        if not kept:
            element = None if self.element is None else ",".join(map(str, self.element))
            choices = {"row": self.row, "lane": self.lane, "byte": self.byte, "element": element}
            words = " and ".join(f"{name} {value}" for name, value in choices.items() if value is not None)
            sizes = ", ".join(f"{place.operand} is {' x '.join(map(str, place.shape))}" for place in found.operands)
            raise OperandError(f"no operand has an element at {words}; {sizes}")
        return Placements(kept, found.unknown)

    def lines(self, place: OperandPlacement) -> Iterator[str]:
        """Yield a line for each lane and register or word: the elements that the filter accepts, lowest bit first."""
        for (lane, word), entries in sorted(by_word(place, self.of(place)).items()):
            where = f"{place.memory.word} {word}"
            if place.memory is not Memory.SHARED:
                where = f"lane {lane} {where}"
            parts = (f"{low + place.bits - 1}:{low} = {row},{column}" for low, row, column in entries)
            yield f"{where}: {'  '.join(parts)}"


def by_word(place: OperandPlacement, chosen: NDArray[np.bool_]) -> dict[tuple[int, int], list[tuple[int, int, int]]]:
    """Return the elements in mask `chosen`, by lane and word: sorted tuples of lowest bit in the word, row, column."""
    words: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
    for row, column in np.argwhere(chosen).tolist():
        at = row, column
        words.setdefault((int(place.lanes[at]), int(place.words[at])), []).append((int(place.low_bits[at]), *at))
    return {key: sorted(entries) for key, entries in words.items()}
