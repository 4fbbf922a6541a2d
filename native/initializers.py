"""Tables of constants as C++ spells them, and maps taken apart into what each bit of a coordinate adds."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["Table", "array", "braces", "linear_map", "padded"]


def linear_map(values: NDArray[np.intp]) -> tuple[list[int], list[int]]:
    """Return what each bit of the row and of the column adds to a value.

    Parameters
    ----------
    values : ndarray of intp, shape (rows, columns)
        An index map.

    Raises
    ------
    AssertionError
        The map is no sum over the bits of its coordinates.
    """
    rows, columns = values.shape
    of_row = [int(values[1 << bit, 0]) for bit in range((rows - 1).bit_length())]
    of_column = [int(values[0, 1 << bit]) for bit in range((columns - 1).bit_length())]
    added = (
        [sum(stride for bit, stride in enumerate(of_row) if row >> bit & 1) for row in range(rows)],
        [sum(stride for bit, stride in enumerate(of_column) if column >> bit & 1) for column in range(columns)],
    )
    assert (np.add.outer(*added) + values[0, 0] == values).all(), "no sum over the bits of the coordinates"
    return of_row, of_column


class Table:
    """Rows that others refer to by number; equal ones stand once."""

    def __init__(self, kind: str, name: str) -> None:
        self._kind, self._name = kind, name
        self._rows: dict[str, int] = {}

    def number(self, row: str) -> int:
        """Return the number of a row, which is added if it is new."""
        return self._rows.setdefault(row, len(self._rows))

    def __str__(self) -> str:
        return array(self._kind, self._name, list(self._rows))


def braces(values: Iterable[object]) -> str:
    """Return the values of a structure or an array."""
    return "{" + ", ".join(map(str, values)) + "}"


def array(kind: str, name: str, rows: Sequence[str]) -> str:
    """Return an array of constants, one a line."""
    return f"\nconstexpr {kind} {name}[] = {{\n" + "".join(f"    {row},\n" for row in rows) + "};\n"


def padded(strides: Sequence[int], count: int) -> list[int]:
    """Return so many numbers, the last of them zeros."""
    return [*strides, *[0] * (count - len(strides))]
