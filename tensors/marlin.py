"""Memory layout of the values, metadata and scales of marlin_24 checkpoints, which vLLM reads.

A weight matrix, shape (N, K), is compressed 2:4 along K; codes of its elements are signed integers plus 8 or 128.
Kernels read the values that a lane needs for ``mma.sp`` m16n8k32 as whole words, without ``ldmatrix``.

Source: compressed-tensors, ``permutations_24.py``, ``semi_structured_conversions.py`` and ``marlin_24.py``; vLLM,
``marlin_utils_test_24.py``.
"""

import numpy as np
from numpy.typing import NDArray

from ..errors import OperandError
from ..isa.metadata import join_nibbles, split_nibbles
from .cutlass import swizzled_positions

__all__ = ["from_marlin_scales", "marlin_bits", "pack_marlin", "to_marlin_scales", "unpack_marlin"]

#: Size of a block of the weight matrix: number of rows, and number of stored columns.
_ROWS, _STORED = 64, 16
#: Number of metadata nibbles per 16-bit metadata word.
_WORD = 4
#: Key: element width in bits. Value: mixed-radix digits (:func:`_sizes`) of an element's memory address, from the most
#: significant digit to the least significant digit, which is in the low bits of a word.
_ORDERS = {
    4: ("step", "block", "group", "quad", "row", "low", "half", "high"),
    8: ("step", "block", "group", "quad", "row", "half", "low", "high"),
}


def _sizes(rows: int, stored: int) -> dict[str, int]:
    """Return the names and radices of the mixed-radix digits into which row n and stored column k are split.

    n = 64 * block + 8 * group + 4 * half + row, and k = 16 * step + 8 * high + 2 * quad + low. Lane 4 * group + quad of
    a warp holds the element.
    """
    of_row = {"block": rows // _ROWS, "group": 8, "half": 2, "row": 4}
    return {**of_row, "step": stored // _STORED, "high": 2, "quad": 4, "low": 2}


def _axes(bits: int) -> list[int]:
    """Return, for each mixed-radix digit of a memory address (most significant first), its index in :func:`_sizes`."""
    return [[*_sizes(0, 0)].index(digit) for digit in _ORDERS[bits]]


def _word_positions(rows: int, words: int) -> NDArray[np.intp]:
    """Return the position of each word of row-major metadata in the marlin_24 layout, shape (rows, words)."""
    n = np.arange(rows).reshape(-1, 1)
    row = n // _ROWS * _ROWS + n % 4 // 2 * 32 + n % 64 // 8 * 4 + n % 2 * 2 + n % 8 // 4
    return swizzled_positions(row, np.arange(words).reshape(1, -1))


def marlin_bits(packed: NDArray, meta: NDArray) -> int:
    """Return the width of the elements of a marlin_24 checkpoint: 4 or 8 bits.

    Raise an `OperandError` if the types or shapes of values and metadata are not those of the format.
    """
    if packed.ndim == meta.ndim == 2 and len(packed) == len(meta) and meta.size:
        per_word = packed.shape[1] / meta.shape[1]
        fits = packed.dtype.kind + meta.dtype.kind in ("ii", "iu", "ui", "uu")
        fits = fits and (packed.dtype.itemsize, meta.dtype.itemsize) == (4, 2) and meta.shape[1] % (2 * _ROWS) == 0
        if fits and per_word in (1, 2):
            return int(4 * per_word)
    raise OperandError(
        f"weight_packed {packed.dtype.name} {packed.shape} and meta {meta.dtype.name} {meta.shape} do not fit "
        "marlin_24: int32 (K / 32, 2 N) for 4 bits or (K / 32, 4 N) for 8, and int16 (K / 32, 2 N), N a multiple of 64"
    )


def pack_marlin(stored: NDArray[np.uint8], nibbles: NDArray[np.uint8], bits: int) -> tuple[NDArray, NDArray]:
    """Pack a compressed weight matrix: return its values and metadata in the layout of marlin_24.

    `stored` has the shape (N, K / 2): integers of 4 or 8 `bits` in two's complement, in the low bits of bytes.
    `nibbles` has the shape (N, K / 4). The returned values are int32 of shape (K / 32, 2 N) for 4 bits or (K / 32, 4 N)
    for 8, and the metadata int16 of shape (K / 32, 2 N). Raise an `OperandError` if N is not a multiple of 64, or K is
    not a multiple of 32.
    """
    rows, columns = stored.shape
    if rows % _ROWS or columns % _STORED:
        raise OperandError(
            f"marlin_24 needs rows in multiples of 64 and columns in multiples of 32, not {rows} x {2 * columns}"
        )
    digits = (stored ^ np.uint8(1 << bits - 1)).reshape([*_sizes(rows, columns).values()])
    codes = digits.transpose(_axes(bits)).ravel()
    octets = join_nibbles(codes.reshape(1, -1)) if bits == 4 else codes
    words = np.ascontiguousarray(join_nibbles(nibbles)).view("<u2")
    meta = np.empty(words.size, "<u2")
    meta[_word_positions(rows, words.shape[1])] = words
    down = columns // _STORED
    return octets.view("<i4").reshape(down, -1), meta.view("<i2").reshape(down, -1)


def unpack_marlin(packed: NDArray, meta: NDArray) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return the stored values and nibbles of a weight matrix, the inverse of :func:`pack_marlin`.

    Raise an `OperandError` if the types or shapes of the arrays are not those of marlin_24.
    """
    bits = marlin_bits(packed, meta)
    rows, columns = meta.shape[1] // 2, len(meta) * _STORED
    octets = np.ascontiguousarray(packed).view(np.uint8).reshape(1, -1)
    codes = split_nibbles(octets) if bits == 4 else octets
    sizes = _sizes(rows, columns)
    digits = codes.reshape([sizes[digit] for digit in _ORDERS[bits]]).transpose(np.argsort(_axes(bits)))
    stored = digits.reshape(rows, columns) ^ np.uint8(1 << bits - 1)
    words = np.ascontiguousarray(meta).view("<u2").ravel()[_word_positions(rows, columns // (2 * _WORD))]
    return stored, split_nibbles(np.ascontiguousarray(words).view(np.uint8).reshape(rows, -1))


def _scale_order(groups: int) -> NDArray[np.intp]:
    """Return the row whose scale is at each of 64 memory positions. With one scale group along K, rows are in order."""
    position = np.arange(_ROWS)
    return position if groups == 1 else position // 8 * 8 + position % 2 * 4 + position % 8 // 2


def to_marlin_scales(scales: NDArray) -> NDArray:
    """Return scales as float16 in the layout that marlin_24 kernels read, shape (groups, N).

    `scales` are codes of f16, shape (N, groups): one scale per row, or one per 128 columns. Raise an `OperandError` if
    the scales are not f16, or N is not a multiple of 64.

    compressed-tensors 0.10.2 does not permute the scales of two groups (K = 256), because it compares the group size
    with K / 2. vLLM's own packing and vLLM's kernel permute them, and this function does the same.
    """
    rows, groups = scales.shape
    if scales.dtype.itemsize != 2 or rows % _ROWS:
        raise OperandError(
            f"marlin_24 needs f16 scales and a multiple of 64 rows, not {scales.dtype.name} scales and {rows} rows"
        )
    ordered = scales.T.reshape(groups, -1, _ROWS)[..., _scale_order(groups)]
    return np.ascontiguousarray(ordered.reshape(groups, rows)).view(np.float16)


def from_marlin_scales(packed: NDArray, rows: int, groups: int) -> NDArray:
    """Return the codes of scales, shape (rows, groups), the inverse of :func:`to_marlin_scales`.

    Raise an `OperandError` if the scales do not have the shape (groups, rows) or a 16-bit type, or the number of rows
    is not a multiple of 64.
    """
    if packed.shape != (groups, rows) or packed.dtype.itemsize != 2 or rows % _ROWS:
        raise OperandError(
            f"scale_packed must be of 16 bits and shape {(groups, rows)}, not {packed.dtype.name} {packed.shape}"
        )
    codes = np.ascontiguousarray(packed).view("<u2").reshape(groups, -1, _ROWS)
    ordered = np.empty_like(codes)
    ordered[..., _scale_order(groups)] = codes
    return np.ascontiguousarray(ordered.reshape(groups, rows).T)
