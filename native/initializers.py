"""C++ text of constant tables. An index map is stored as one stride per bit of the row index and the column index."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["Table", "array", "braces", "padded", "place_row"]

#: Maximum number of bits of the index of a row or a column of a matrix.
_INDEX_BITS = 8


class Table:
    """C++ table in which every row is distinct. Other tables refer to a row by the row's index."""

    def __init__(self, kind: str, name: str) -> None:
        self._kind, self._name = kind, name
        self._rows: dict[str, int] = {}

    def number(self, row: str) -> int:
        """Return the index of a row in this table; add the row first if it is new."""
        return self._rows.setdefault(row, len(self._rows))

    def __str__(self) -> str:
        return array(self._kind, self._name, list(self._rows))


def braces(values: Iterable[object]) -> str:
    """Return a C++ brace initializer with the given values."""
    return "{" + ", ".join(map(str, values)) + "}"


def array(kind: str, name: str, rows: Sequence[str]) -> str:
    """Return the C++ definition of a constant array with one line per element."""
    return f"\nconstexpr {kind} {name}[] = {{\n" + "".join(f"    {row},\n" for row in rows) + "};\n"


def padded(strides: Sequence[int], count: int) -> list[int]:
    """Return a list of numbers, extended by zeros to a length of `count`."""
    return [*strides, *[0] * (count - len(strides))]


def place_row(*maps: NDArray[np.intp]) -> str:
    """Return a C++ table row with index maps: for each map, one stride per bit of the row index and the column index.

    Raise an `AssertionError` if a map is not a sum over the bits of row and column.
    """
    parts = []
    for values in maps:
        lines = values[:, 0], values[0]
        strides = [[int(line[1 << bit]) for bit in range((len(line) - 1).bit_length())] for line in lines]
        sums = [
            (np.arange(len(line))[:, None] >> np.arange(len(own)) & 1) @ np.array(own, np.intp)
            for line, own in zip(lines, strides, strict=True)
        ]
        assert (np.add.outer(*sums) == values).all(), "the index map is not a sum over the bits of row and column"
        parts += [braces(padded(own, _INDEX_BITS)) for own in strides]
    return braces(parts)
