"""Text of C++ tables of constants, and decomposition of index maps into one contribution per bit of row and column."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["Table", "array", "braces", "linear_map", "padded"]


def linear_map(values: NDArray[np.intp]) -> tuple[list[int], list[int]]:
    """Return the contribution of each bit of the row number and of the column number to an index map.

    Raise an `AssertionError` if the map is not a sum over the bits of its coordinates.
    """
    rows, columns = values.shape
    row_bits = [int(values[1 << bit, 0]) for bit in range((rows - 1).bit_length())]
    column_bits = [int(values[0, 1 << bit]) for bit in range((columns - 1).bit_length())]
    added = (
        [sum(stride for bit, stride in enumerate(row_bits) if row >> bit & 1) for row in range(rows)],
        [sum(stride for bit, stride in enumerate(column_bits) if column >> bit & 1) for column in range(columns)],
    )
    assert (np.add.outer(*added) + values[0, 0] == values).all(), "index map is no sum over the bits of coordinates"
    return row_bits, column_bits


class Table:
    """C++ table in which every row is distinct. Other tables refer to a row by the row's index."""

    def __init__(self, kind: str, name: str) -> None:
        self._kind, self._name = kind, name
        self._rows: dict[str, int] = {}

    def number(self, row: str) -> int:
        """Return the index of a row in the table, after adding the row if it is new."""
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
