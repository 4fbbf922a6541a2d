"""Copy matrices of codes to registers and back, with the index maps of module ``isa.fragments``."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ..isa.fragments import Fragment, a_fragment, accumulator_fragment, b_fragment, metadata_map, scale_map
from ..isa.instructions import Instruction
from ..isa.metadata import join_nibbles, split_nibbles
from ..isa.operands import HeldOperands, MatrixOperands

__all__ = [
    "CONTAINERS",
    "from_registers",
    "gather_warp",
    "pack_nibbles",
    "pack_scales",
    "random_nibbles",
    "to_registers",
    "unpack_nibbles",
    "unpack_scales",
]

#: Key: container width in bits. Value: numpy type of one element.
CONTAINERS: dict[int, np.dtype] = {4: np.dtype("u1"), 8: np.dtype("u1"), 16: np.dtype("<u2"), 32: np.dtype("<u4")}


@lru_cache(maxsize=256)
def _wide(fragment: Fragment, tiles: tuple[int, int], by_columns: bool, to_registers: bool) -> tuple[str, NDArray]:
    """Return a numpy type for a run of adjacent elements, and the index of each run, so that copies move whole runs.

    A run is as long as possible, so that few items are copied. The indices are positions in the register array, or with
    `to_registers` in the matrix, which then is copied to registers; see :func:`from_registers`.
    """
    rows, columns = tiles
    numbers = np.arange(rows * columns).reshape(columns, rows).T if by_columns else np.arange(rows * columns)
    numbers = numbers.reshape(rows, 1, columns, 1)
    places = (numbers * fragment.rows.size + fragment.positions[:, None]).ravel()
    if to_registers:
        inverse = np.empty_like(places)
        inverse[places] = np.arange(places.size)
        places = inverse
    size = CONTAINERS[fragment.element_bits].itemsize
    while size < 8 and places.size % 2 == 0 and not (places[::2] % 2).any() and (np.diff(places)[::2] == 1).all():
        places, size = places[::2] // 2, 2 * size
    return f"<u{size}", places


def from_registers(
    registers: NDArray[np.uint32], fragment: Fragment, tiles: tuple[int, int] = (1, 1), *, by_columns: bool = False
) -> NDArray:
    """Gather a matrix, or a matrix of several tiles, from registers. Return codes, shape (batch, rows, columns).

    Registers are uint32 of shape (batch, threads, registers), or (batch, ..., threads, registers) for tiles, which are
    ordered row by row, or with `by_columns` column by column. `tiles` are the numbers of tiles along the rows and the
    columns of the matrix. Each container of the result holds one element; a 4-bit element is in the low half of a byte.
    """
    batch, container = len(registers), CONTAINERS[fragment.element_bits]
    codes: NDArray = np.ascontiguousarray(registers).reshape(batch, -1).view(container)
    if fragment.element_bits == 4:
        codes = split_nibbles(codes)
    run, places = _wide(fragment, tiles, by_columns, False)
    shape = (tiles[0] * fragment.shape[0], tiles[1] * fragment.shape[1])
    return codes.view(run).take(places, axis=1).view(container).reshape(batch, *shape)


def to_registers(matrix: NDArray, fragment: Fragment, tiles: tuple[int, int] = (1, 1)) -> NDArray[np.uint32]:
    """Scatter codes, shape (batch, rows, columns), to registers: the inverse of :func:`from_registers`.

    The result has the shape (batch, tiles * threads, registers).
    """
    batch, container = len(matrix), CONTAINERS[fragment.element_bits]
    run, places = _wide(fragment, tiles, False, True)
    codes = np.ascontiguousarray(matrix, container).reshape(batch, -1).view(run).take(places, axis=1).view(container)
    if fragment.element_bits == 4:
        codes = join_nibbles(codes)
    return codes.view("<u4").reshape(batch, -1, fragment.registers)


def unpack_nibbles(e: NDArray[np.uint32], instruction: Instruction, sparsity_selector: int) -> NDArray[np.uint8]:
    """Gather metadata nibbles, shape (batch, m, nibbles per row), from metadata registers, shape (batch, threads)."""
    where = metadata_map(instruction, sparsity_selector)
    octets = np.ascontiguousarray(e).view(np.uint8).take(4 * where.lanes + (where.low_bits >> 3), axis=1)
    return (octets >> (where.low_bits & 7).astype(np.uint8)) & np.uint8(15)


def pack_nibbles(
    nibbles: NDArray[np.uint8], instruction: Instruction, sparsity_selector: int, others: NDArray[np.uint32]
) -> NDArray[np.uint32]:
    """Put nibbles, shape (batch, m, nibbles per row), into metadata registers, shape (batch, threads).

    Bits without a nibble are taken from `others`.
    """
    where = metadata_map(instruction, sparsity_selector)
    cleared, packed = np.zeros(instruction.threads, np.uint32), np.zeros_like(others)
    for row, chunk in np.ndindex(where.lanes.shape):
        lane, low_bit = where.lanes[row, chunk], np.uint32(where.low_bits[row, chunk])
        cleared[lane] |= np.uint32(15) << low_bit
        packed[:, lane] |= nibbles[:, row, chunk].astype(np.uint32) << low_bit
    return others & ~cleared | packed


def random_nibbles(
    instruction: Instruction, tiles: int, rng: np.random.Generator, *, any_nibble: bool = False
) -> NDArray[np.uint8]:
    """Return random metadata, shape (tiles, m, nibbles per row): legal nibbles or, with `any_nibble`, any of the 16."""
    assert instruction.rule
    legal = np.arange(16) if any_nibble else np.array(sorted(instruction.rule.legal))
    drawn = rng.integers(0, len(legal), (tiles, instruction.m, instruction.chunks))
    return legal[drawn].astype(np.uint8)


def pack_scales(
    scales: NDArray[np.uint8], instruction: Instruction, operand: str, ids: tuple[int, int], others: NDArray[np.uint8]
) -> NDArray[np.uint32]:
    """Write block scales, shape (batch, m or n, scales), to registers, shape (batch, 32), at a byte id and a thread id.

    Bytes without a scale are taken from `others`, shape (batch, 32, 4).
    """
    where = scale_map(instruction, operand, *ids)
    octets = others.copy()
    octets[:, where.lanes, where.low_bits >> 3] = scales
    return octets.view("<u4")[..., 0]


def unpack_scales(
    data: NDArray[np.uint32], instruction: Instruction, operand: str, byte_id: int, thread_id: int
) -> NDArray[np.uint8]:
    """Gather the block scales of an operand, shape (batch, m or n, scales), from registers, shape (batch, 32)."""
    where = scale_map(instruction, operand, byte_id, thread_id)
    return np.ascontiguousarray(data).view(np.uint8).take(4 * where.lanes + (where.low_bits >> 3), axis=1)


def gather_warp(
    instruction: Instruction, held: HeldOperands, tiles: tuple[int, int, int] = (1, 1, 1)
) -> MatrixOperands:
    """Gather the matrices of an ``mma`` from the registers of a batch of warps. Operands are not checked.

    `tiles` are the numbers of instructions along m, n and k that together compute one product. If there are several
    instructions, two axes of tiles follow the batch axis of the registers: m and k for a, e and the scales of A; n and
    k for b and the scales of B; m and n for c.
    """
    arrays, immediates = held.arrays, held.immediates
    byte_a, thread_a, byte_b, thread_b = immediates.scale_ids
    rows, columns, steps = tiles

    def joined(values: NDArray[np.uint8], lines: int) -> NDArray[np.uint8]:
        """Join the tiles of an operand to one matrix: `lines` tiles along m or n, and `steps` tiles along K."""
        each = values.reshape(-1, lines, steps, *values.shape[1:]).swapaxes(2, 3)
        return each.reshape(len(each), lines * values.shape[1], -1)

    def scales(name: str, operand: str, ids: tuple[int, int], lines: int) -> NDArray[np.uint8] | None:
        if instruction.scale_size is None:
            return None
        return joined(unpack_scales(arrays[name].reshape(-1, instruction.threads), instruction, operand, *ids), lines)

    nibbles = None
    if instruction.sparse:
        e = arrays["e"].reshape(-1, instruction.threads)
        nibbles = joined(unpack_nibbles(e, instruction, immediates.sparsity_selector), rows)
    return MatrixOperands(
        from_registers(arrays["a"], a_fragment(instruction), (rows, steps)),
        from_registers(arrays["b"], b_fragment(instruction), (steps, columns), by_columns=True),
        from_registers(arrays["c"], accumulator_fragment(instruction), (rows, columns)),
        nibbles,
        scales("scale_a", "a", (byte_a, thread_a), rows),
        scales("scale_b", "b", (byte_b, thread_b), columns),
        held if tiles == (1, 1, 1) else None,
    )
