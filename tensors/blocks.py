"""Checks of arguments, and division of a matrix into blocks of rows, so that large matrices are converted in parts."""

from collections.abc import Callable, Collection, Iterator

import numpy as np
from numpy.typing import NDArray

from ..errors import OperandError, shown
from ..isa.text import is_word_of
from .element_types import is_extension

__all__ = [
    "BLOCK_ELEMENTS", "Progress", "check_array", "check_flag", "check_matrix", "check_type", "check_word", "in_float64",
    "native", "place", "row_blocks",
]  # fmt: skip

#: Type of a callback ``progress(done, total)``. `done` and `total` are numbers of rows of a matrix.
Progress = Callable[[int, int], None]

BLOCK_ELEMENTS = 1 << 20


def row_blocks(shape: tuple[int, ...], progress: Progress | None = None) -> Iterator[slice]:
    """Yield the rows of each block of a matrix: whole rows with about :data:`BLOCK_ELEMENTS` elements.

    `progress` is called after every block.
    """
    rows = shape[0]
    step = max(1, BLOCK_ELEMENTS // max(1, shape[1]))
    for start in range(0, rows, step):
        stop = min(start + step, rows)
        yield slice(start, stop)
        if progress:
            progress(stop, rows)


def check_array(name: str, value: object) -> None:
    """Raise an `OperandError` unless `value` is an array of numpy."""
    if not isinstance(value, np.ndarray):
        raise OperandError(f"{name} must be an array of numpy, not {type(value).__name__}")


def check_matrix(matrix: NDArray) -> None:
    """Raise an `OperandError` unless an array is a matrix of real numbers with at least one element."""
    check_array("a matrix", matrix)
    if matrix.ndim != 2 or not matrix.size:
        raise OperandError(f"a matrix must have two axes and at least one element, not shape {matrix.shape}")
    check_type(matrix.dtype)


def check_type(dtype: np.dtype) -> None:
    """Raise an `OperandError` unless a type is a float of at most 64 bits or an integer of at most 32 bits."""
    kind, size = dtype.kind, dtype.itemsize
    if not (is_extension(dtype) or (kind == "f" and size <= 8) or (kind in "iu" and size <= 4)):
        raise OperandError(
            f"elements must be floats of at most 64 bits or integers of at most 32 bits, not {dtype.name}"
        )


def check_word(name: str, value: object, accepted: Collection[str]) -> None:
    """Raise an `OperandError` unless `value` is one of the accepted words."""
    if not is_word_of(value, accepted):
        raise OperandError(f"{name} must be one of {', '.join(accepted)}, not {shown(value)}")


def check_flag(name: str, value: object) -> None:
    """Raise an `OperandError` unless `value` is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise OperandError(f"{name} must be True or False, not {shown(value)}")


def in_float64(block: NDArray) -> NDArray[np.float64]:
    """Convert elements to float64, without a warning for signalling NaN."""
    with np.errstate(invalid="ignore"):
        return block.astype(np.float64)


def native(array: NDArray) -> NDArray:
    """Return an array in native byte order, so that its bytes can be viewed as codes."""
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def place(mask: NDArray[np.bool_], rows: slice) -> tuple[int, int]:
    """Return row and column, in the whole matrix, of the first true element of a mask that covers only `rows`."""
    row, column = np.unravel_index(int(mask.argmax()), mask.shape)
    return rows.start + int(row), int(column)
