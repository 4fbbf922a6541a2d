"""Random products with typical kernel faults, made without calling the functions that search for these faults.

A simulated memory plants kernel faults in the addressing of an operand. A back end computes products with wrong
metadata.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import planted_values as values
from planted_values import READ
from random_products import Case, Matrix, Product, Random, drawn
from sptc.api.backends import backend
from sptc.gemm.choice import instructions_for
from sptc.isa.fragments import accumulator_fragment
from sptc.isa.instructions import parse
from sptc.isa.memory import SWIZZLES
from sptc.isa.metadata import indices
from sptc.isa.operands import MatrixOperands
from sptc.tensors.cutlass import interleaved_positions
from sptc.tensors.sparsify import sparsify

# Kernel faults that store outputs at wrong positions of the result.

PLACES = "outputs in other places"
#: Instruction whose accumulator layout determines which outputs each lane of a kernel stores.
MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"


def blocks_of_rows(p: Product) -> Matrix:
    """Kernel fault: blocks of rows of the result are permuted when they are stored."""
    size = int(p.rng.choice([size for size in (8, 16, 32, 64) if size < len(p.a)]))
    order = p.rng.permutation(len(p.a) // size)
    order = order if (order != np.arange(len(order))).any() else order[::-1]
    return p.y.reshape(len(order), size, -1)[order].reshape(p.shape)


def blocks_of_columns(p: Product) -> Matrix:
    """Kernel fault: blocks of columns of the result are stored cyclically shifted."""
    size = int(p.rng.choice([8, 16]))
    order = np.roll(np.arange(p.shape[1] // size), int(p.rng.integers(1, p.shape[1] // size)))
    return p.y.reshape(p.shape[0], len(order), size)[:, order].reshape(p.shape)


def warps_exchanged(p: Product) -> Matrix:
    """Kernel fault: the result rows of two warps are exchanged when they are stored."""
    y = p.y
    y[:32] = np.vstack([y[16:32], y[:16]])
    return y


def atoms_exchanged(p: Product) -> Matrix:
    """Kernel fault: two blocks of 16 x 8 outputs (the D of one mma) are exchanged when they are stored."""
    y = p.y
    one = y[:16, :8].copy()
    y[:16, :8], y[48:64, 16:24] = y[48:64, 16:24], one
    return y


def lanes_permuted(p: Product) -> Matrix:
    """Kernel fault: the accumulators of each lane are stored at the positions of another lane."""
    order, where = p.rng.permutation(32), accumulator_fragment(parse(MMA))
    y = p.y.reshape(-1, 16, p.shape[1] // 8, 8).swapaxes(1, 2)
    out = np.empty_like(y)
    out[..., where.rows, where.columns] = y[..., where.rows[order], where.columns[order]]
    return out.swapaxes(1, 2).reshape(p.shape)


def tiles_transposed(p: Product) -> Matrix:
    """Kernel fault: each tile of the result is stored transposed."""
    size = int(p.rng.choice([8, 16, 32]))
    tiles = p.y.reshape(-1, size, p.shape[1] // size, size)
    return tiles.swapaxes(1, 3).reshape(p.shape)


#: Functions that return the result matrix of a product as it is stored by a kernel that has the named fault.
STORED: dict[str, Callable[[Product], Matrix]] = {
    "rows in blocks": blocks_of_rows,
    "columns in blocks": blocks_of_columns,
    "warps exchanged": warps_exchanged,
    "atoms exchanged": atoms_exchanged,
    "lanes permuted": lanes_permuted,
    # The result is stored column by column instead of row by row.
    "stored transposed": lambda p: np.ascontiguousarray(p.y.T).reshape(p.shape),
    "tiles transposed": tiles_transposed,
    # The left and the right half of the columns of the result are exchanged.
    "halves exchanged": lambda p: np.roll(p.y, p.shape[1] // 2, 1),
}

# Kernel faults that read operands from wrong positions.


def in_memory(
    matrix: Matrix, pitch: int, write: Callable[[Matrix], Matrix], read: Callable[[Matrix], Matrix]
) -> Matrix:
    """Copy a matrix through memory, `pitch` bytes per row at a time. `write` and `read` map offsets to addresses."""
    rows = len(matrix)
    octets = np.ascontiguousarray(matrix).view(np.uint8).reshape(rows, -1)
    out = np.zeros_like(octets)
    for start in range(0, octets.shape[1], pitch):
        row, byte = np.indices((rows, pitch))
        linear = row * pitch + byte
        image = np.zeros(rows * pitch, np.uint8)
        image[write(linear)] = octets[:, start : start + pitch]
        out[:, start : start + pitch] = image[read(linear)]
    return out.view(matrix.dtype).reshape(matrix.shape)


def wrong_swizzle(p: Product) -> Matrix:
    """Kernel fault: B is written to shared memory with one swizzle and read with another swizzle."""
    writer, reader = p.rng.choice(["none", "32B", "64B", "128B"], 2, replace=False)
    turned = np.ascontiguousarray(p.b.T)
    pitch = min(128, turned.shape[1] * turned.itemsize)
    wrong = in_memory(turned, pitch, SWIZZLES[writer].apply, SWIZZLES[reader].apply)
    return wrong.T


def core_address(row: Matrix, byte: Matrix, leading: int, stride: int) -> Matrix:
    """Return the address of a byte of an operand in a layout of core matrices (8 rows of 16 bytes)."""
    return row // 8 * stride + byte // 16 * leading + row % 8 * 16 + byte % 16


def offsets_exchanged(p: Product) -> Matrix:
    """Kernel fault: leading and stride byte offset of the tiles of B are exchanged."""
    turned, pitch = np.ascontiguousarray(p.b.T), 32
    written, read = (
        lambda linear, stride=stride, leading=leading: core_address(linear // pitch, linear % pitch, leading, stride)
        for leading, stride in ((128, 256), (256, 128))
    )
    return in_memory(turned, pitch, written, read).T


def core_for_linear(p: Product) -> Matrix:
    """Kernel fault: B is written as core matrices and read row by row, or written by rows and read as core matrices."""
    turned, pitch = np.ascontiguousarray(p.b.T), 64

    def core(linear: Matrix) -> Matrix:
        return core_address(linear // pitch, linear % pitch, 128, 128 * pitch // 16)

    order = (core, lambda linear: linear) if p.rng.integers(0, 2) else (lambda linear: linear, core)
    return in_memory(turned, pitch, *order).T


def major_exchanged(p: Product) -> Matrix:
    """Kernel fault: tiles of B are read in the wrong major order (K-major or MN-major)."""
    size, depth = (int(p.rng.choice([16, 32])) for _ in range(2))
    tiles = p.b.reshape(-1, depth, p.shape[1] // size, size).transpose(0, 2, 3, 1)
    return tiles.reshape(*tiles.shape[:2], depth, size).swapaxes(1, 2).reshape(p.b.shape)


def k_tiles_in_other_order(p: Product) -> Matrix:
    """Kernel fault: tiles of B along K are read in a wrong order: exchanged in pairs, reversed, or one tile late."""
    size = int(p.rng.choice([64, 128])) if len(p.b) > 128 else 64
    order = np.arange(len(p.b) // size)
    order = [order ^ 1, order[::-1], np.maximum(order - 1, 0)][int(p.rng.integers(0, 3))]
    return p.b.reshape(-1, size, p.shape[1])[np.minimum(order, len(p.b) // size - 1)].reshape(p.b.shape)


#: Functions that return matrix B as it is read by a kernel that has the named fault.
READS: dict[str, Callable[[Product], Matrix]] = {
    "wrong swizzle": wrong_swizzle,
    "offsets exchanged": offsets_exchanged,
    "B in core matrices read row by row, or the reverse": core_for_linear,
    "K-major read as MN-major": major_exchanged,
    # The memory of B is read as if B were stored transposed.
    "B transposed": lambda p: np.ascontiguousarray(np.ascontiguousarray(p.b).reshape(p.shape[1], -1).T),
    "K tiles in another order": k_tiles_in_other_order,
}

# Kernel faults in metadata.


def with_metadata(p: Product, change: Callable[[Random, Matrix], Matrix]) -> Case:
    """Kernel fault: the function `change` changes the metadata of A. The C++ library multiplies with this metadata."""
    i, compressed = instructions_for(p.fmt, "sm_90")[0], sparsify(p.a, "2:4")
    a, b = (np.ascontiguousarray(one).view(np.uint16)[None] for one in (compressed.stored, p.b))
    nibbles = np.ascontiguousarray(change(p.rng, compressed.nibbles))[None]
    d = backend("native").multiply(i, "sm_90", MatrixOperands(a, b, np.zeros((1, *p.shape), np.uint32), nibbles)).d[0]
    return p.case(d.view(np.float32), "metadata")


def interleaved(rng: Random, nibbles: Matrix) -> Matrix:
    """Kernel fault: metadata is written in the order of CUTLASS 2, but read row by row, in words of 16 bits."""
    rows, chunks = nibbles.shape
    words = nibbles.reshape(rows, -1, 4)
    out = np.empty((words.shape[0] * words.shape[1], 4), nibbles.dtype)
    out[interleaved_positions(rows, chunks // 4, 16).ravel()] = words.reshape(-1, 4)
    return out.reshape(rows, chunks)


def other_selector(rng: Random, nibbles: Matrix) -> Matrix:
    """Kernel fault: a wrong sparsity selector selects the metadata of an adjacent instruction along K."""
    parts = nibbles.reshape(len(nibbles), -1, 8)
    return parts[:, np.arange(parts.shape[1]) ^ 1].reshape(nibbles.shape)


def of_one_slice(rng: Random, nibbles: Matrix) -> Matrix:
    """Kernel fault: every instruction along K reads the metadata of the first instruction."""
    parts = nibbles.reshape(len(nibbles), -1, 8)
    return np.broadcast_to(parts[:, :1], parts.shape).reshape(nibbles.shape)


def indices_exchanged(rng: Random, nibbles: Matrix) -> Matrix:
    """Kernel fault: the two indices of each metadata nibble are exchanged."""
    low, high = indices(nibbles)
    return low << 2 | high


def single_nibbles(rng: Random, nibbles: Matrix) -> Matrix:
    """Kernel fault: two different metadata nibbles of a row are exchanged, and a nibble of another row is replaced."""
    wrong, (one, other) = nibbles.copy(), rng.choice(len(nibbles), 2, replace=False)
    chunk = int(rng.choice(np.flatnonzero(nibbles[one] != nibbles[one, 0])))
    wrong[one, [0, chunk]] = nibbles[one, [chunk, 0]]
    wrong[other, 3] = rng.choice([nibble for nibble in (4, 8, 9, 12, 13, 14) if nibble != nibbles[other, 3]])
    return wrong


MANGLED: dict[str, Callable[[Random, Matrix], Matrix]] = {
    "metadata of zeros": lambda rng, n: np.zeros_like(n),
    "metadata of another selector": other_selector,
    "metadata of another row": lambda rng, n: np.roll(n, int(rng.choice([1, 8, 16])), 0),
    "metadata of row + 8": lambda rng, n: n[np.arange(len(n)) ^ 8],
    "metadata shifted": lambda rng, n: np.roll(n, int(rng.choice([-1, 1, 2])), 1),
    "metadata with i0 and i1 exchanged": indices_exchanged,
    "metadata with bytes exchanged": lambda rng, n: n[:, np.arange(n.shape[1]) ^ 2],
    "metadata of another interleave": interleaved,
    "metadata of one slice": of_one_slice,
    "metadata with single wrong nibbles": single_nibbles,
}

#: Key: kernel fault. Value: function that makes a test case with the fault, and properties of a suitable product A B.
PLANTED: dict[str, tuple[Callable[[Product], Case], dict[str, Any]]] = {
    **{name: (lambda p, stored=stored: p.case(stored(p), PLACES), {}) for name, stored in STORED.items()},
    **{name: (lambda p, read=read: p.case(p.times(p.a, read(p)), READ), {}) for name, read in READS.items()},
    **{
        name: (
            lambda p, change=change: with_metadata(p, change),
            {"dense": False, "way": {}, "fmt": "bf16", "result": "f32"},
        )
        for name, change in MANGLED.items()
    },
    "slice missing": (values.slice_missing, {}),
    "slice twice": (values.slice_twice, {"way": {}}),
    "beyond the end": (values.beyond_the_end, {"way": {}}),
    "accumulator not kept": (values.not_kept, {"way": {}}),
    "accumulator not cleared": (values.not_cleared, {"way": {}}),
    **{
        name: (lambda p, of=of, change=change: values.scaled_otherwise(p, of, change), {"fmt": fmt})
        for name, (of, change, fmt) in values.SCALED.items()
    },
    "C ignored or twice": (values.c_otherwise, {"fmt": "f16"}),
    **{
        name: (lambda p, change=change: values.block_scaled(p, change), {"fmt": "e4m3", "way": {}})
        for name, change in values.SCALES.items()
    },
    **{name: (lambda p, change=change: values.group_scaled(p, change), {}) for name, change in values.GROUPS.items()},
    **{name: (lambda p, change=change: values.fp4_scaled(p, change), {}) for name, change in values.FP4.items()},
    "operands read as another type": (values.neighbouring_type, {}),
    "operands rounded by cvt.rna": (values.words_rounded, {}),
    "operands truncated": (values.operands_truncated, {}),
    "result rounded twice": (values.rounded_twice, {}),
    "result truncated": (values.result_truncated, {}),
    "overflow saturates": (values.overflow_saturates, {}),
    "NaN otherwise": (values.nan_otherwise, {}),
}


def planted(rng: Random, name: str, largest: tuple[int, int, int]) -> Case:
    """Return a test case: a random product with the kernel fault `name`."""
    plant, given = PLANTED[name]
    return plant(drawn(rng, largest, **given))
