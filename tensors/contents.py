"""Read all tensors of a file as dense values, from any supported file format."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import FileError, shown
from .blocks import in_float64, row_blocks
from .checkpoints import read_compressed
from .files import TensorFile, open_tensors
from .software_formats import SOFTWARE_FORMATS
from .sparsify import expand

__all__ = ["contents", "difference"]

#: Software formats without text metadata, which are recognised by their array names.
_BY_NAME = ("marlin_24", "bitmask")


def contents(path: Path) -> dict[str, Callable[[], NDArray]]:
    """Return, for the name of each tensor in a file, a function that reads and returns the tensor's dense values.

    The file holds dense tensors, or is one that ``sptc compress`` wrote, or is a checkpoint of compressed-tensors, vLLM
    or PyTorch with compressed matrices. The name of a compressed matrix is the prefix of its arrays. Raise a
    `FileError` if the file cannot be read, or is in no known format.
    """
    file = open_tensors(path)
    own = file.metadata.get("software_format")
    if own is not None and own not in SOFTWARE_FORMATS:
        raise FileError(f"the metadata of {path} states the unknown format {shown(own)}")
    readers: dict[str, Callable[[], NDArray]] = {}
    parts: set[str] = set()
    for name in [own] if own else _BY_NAME:
        form = SOFTWARE_FORMATS[name]
        for prefix in _prefixes(file, form.tensors):
            parts |= {prefix + key for key in (*form.tensors, form.scales)}
            readers[prefix.removesuffix(".")] = partial(_expanded, path, name, prefix.removesuffix("."))
    return readers | {name: partial(file.get, name) for name in file.names if name not in parts}


def _prefixes(file: TensorFile, keys: tuple[str, ...]) -> list[str]:
    """Return the name prefixes, including the dot, for which a file has all arrays of a software format."""
    first = [name.removesuffix(keys[0]) for name in file.names if f".{name}".endswith(f".{keys[0]}")]
    return [prefix for prefix in first if all(prefix + key in file.names for key in keys)]


def _expanded(path: Path, name: str, prefix: str) -> NDArray:
    return expand(read_compressed(path, name, prefix).values())


def difference(left: NDArray, right: NDArray) -> tuple[int, tuple[int, ...] | None]:
    """Count the different elements of two tensors of one shape. Also return the index of the first such element.

    The tensors may have any types of real numbers. -0.0 equals 0, and NaN equals NaN.
    """
    shape, total, first = left.shape, 0, None
    left, right = (one.reshape(len(one) if one.ndim else 1, -1) for one in (left, right))
    for rows in row_blocks(left.shape):
        one, other = in_float64(np.asarray(left[rows])), in_float64(np.asarray(right[rows]))
        differs = (one != other) & ~(np.isnan(one) & np.isnan(other))
        if differs.any() and first is None:
            flat = int(differs.ravel().argmax()) + rows.start * left.shape[1]
            first = tuple(int(index) for index in np.unravel_index(flat, shape))
        total += int(differs.sum())
    return total, first
