"""Maps of operands, metadata and scales to registers use no bit twice, and equal the manual's formulas."""

from collections.abc import Callable
from functools import lru_cache
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray
from sptc.isa.fragments import Fragment, a_fragment, accumulator_fragment, b_fragment, metadata_map, scale_map
from sptc.isa.instructions import every_instruction, parse

EVERY = list(every_instruction())
MMA = [instruction for instruction in EVERY if instruction.family == "mma"]
WGMMA = [instruction for instruction in EVERY if instruction.family == "wgmma"]
SCALED = [instruction for instruction in EVERY if instruction.scale_size]
SPARSE = [instruction for instruction in EVERY if instruction.sparse]

Index = NDArray[np.intp]


def _assert_one_to_one(fragment: Fragment, shape: tuple[int, int], bits: int) -> None:
    """Check that a map has one position for each element, and that each position belongs to only one element."""
    assert (fragment.shape, fragment.element_bits, fragment.registers) == (shape, bits, fragment.rows.shape[1])
    assert fragment.rows.shape == fragment.columns.shape
    assert fragment.rows.size == shape[0] * shape[1]
    place = np.unravel_index(fragment.positions, fragment.rows.shape)
    assert (fragment.rows[place] == np.arange(shape[0])[:, None]).all()
    assert (fragment.columns[place] == np.arange(shape[1])).all()


def test_maps_cannot_be_written() -> None:
    """Maps are read-only, because all callers share cached maps."""
    instruction = parse("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32")
    fragment, metadata, scales = a_fragment(instruction), metadata_map(instruction, 0), scale_map(SCALED[0], "a", 0, 0)
    for index in (fragment.rows, fragment.columns, metadata.lanes, metadata.low_bits, scales.lanes, scales.low_bits):
        with pytest.raises(ValueError, match="read-only"):
            index[...] = 0


# Row and column of element a_i, from PTX ISA 9.7.14.5. A sparse A (9.7.14.6.2.1 to .8) has its stored elements at the
# positions of a dense A with half the K.


def _halves(i: Index, g: Index, low: list[range]) -> Index:
    return np.where(np.isin(i, [index for part in low for index in part]), g, g + 8)


def _place_of_a(m: int, k: int, bits: int, i: Index, g: Index, t: Index) -> tuple[Index, Index]:
    match m, k, bits:
        case 8, 16, 8:
            return g + 0 * i, t * 4 + i
        case 8, 32, 4:
            return g + 0 * i, t * 8 + i
        case 16, 4, 32:
            return _halves(i, g, [range(1)]), t + 0 * i
        case 16, 8, 32:
            return _halves(i, g, [range(1), range(2, 3)]), np.where(i < 2, t, t + 4)
        case 16, 8, 16:
            return _halves(i, g, [range(2)]), t * 2 + (i & 1)
        case 16, 16, 16:
            return _halves(i, g, [range(2), range(4, 6)]), np.where(i < 4, t * 2 + (i & 1), t * 2 + (i & 1) + 8)
        case 16, 16, 8:
            return _halves(i, g, [range(4)]), t * 4 + (i & 3)
        case 16, 32, 8:
            return _halves(i, g, [range(4), range(8, 12)]), np.where(i < 8, t * 4 + (i & 3), t * 4 + (i & 3) + 16)
        case 16, 32, 4:
            return _halves(i, g, [range(8)]), t * 8 + (i & 7)
        case 16, 64, 4:
            return _halves(i, g, [range(8), range(16, 24)]), np.where(i < 16, t * 8 + (i & 7), t * 8 + (i & 7) + 32)
    raise AssertionError((m, k, bits))


def test_a_against_the_manual() -> None:
    """A is in the registers that the manual states. A warp of wgmma has 16 rows, as in mma (PTX ISA 9.7.15.5.1.1)."""
    for instruction in EVERY:
        fragment = a_fragment(instruction)
        stored_k = instruction.k // 2 if instruction.sparse else instruction.k
        _assert_one_to_one(fragment, (instruction.m, stored_k), instruction.container_bits)
        thread, i = np.arange(instruction.threads)[:, None], np.arange(fragment.rows[0].size)
        lane, m = thread % 32, min(instruction.m, 16)
        row, column = _place_of_a(m, stored_k, instruction.container_bits, i, lane >> 2, lane % 4)
        row = row + thread // 32 * 16
        assert (fragment.rows.reshape(row.shape) == row).all()
        assert (fragment.columns.reshape(row.shape) == column).all()


# Row of element b_i, by K and container bits. In the manual's figures, each of four registers has 8 rows for 16-bit
# elements, 4 for tf32, 16 for 8-bit and 32 for 4-bit elements.
B_ROWS: dict[tuple[int, int], Callable[[Index, Index], Index]] = {
    (16, 8): lambda i, t: t * 4 + i,
    (32, 4): lambda i, t: t * 8 + i,
    (4, 32): lambda i, t: t + 0 * i,
    (8, 32): lambda i, t: np.where(i == 0, t, t + 4),
    (8, 16): lambda i, t: t * 2 + i,
    (16, 16): lambda i, t: np.where(i < 2, t * 2 + (i & 1), t * 2 + (i & 1) + 8),
    (32, 8): lambda i, t: np.where(i < 4, t * 4 + (i & 3), t * 4 + (i & 3) + 16),
    (64, 4): lambda i, t: np.where(i < 8, t * 8 + (i & 7), t * 8 + (i & 7) + 32),
    (32, 16): lambda i, t: np.choose(i // 2, [0, 8, 16, 24]) + t * 2 + (i & 1),
    (16, 32): lambda i, t: np.choose(i, [0, 4, 8, 12]) + t,
    (64, 8): lambda i, t: np.choose(i // 4, [0, 16, 32, 48]) + t * 4 + (i & 3),
    (128, 4): lambda i, t: np.choose(i // 8, [0, 32, 64, 96]) + t * 8 + (i & 7),
}


def test_b_against_the_manual() -> None:
    with pytest.raises(ValueError, match=r"^B of wgmma\.mma_async\.sp\..* is not held in registers$"):
        b_fragment(WGMMA[0])
    for instruction in MMA:
        fragment = b_fragment(instruction)
        _assert_one_to_one(fragment, (instruction.k, instruction.n), instruction.container_bits)
        lane, i = np.arange(32)[:, None], np.arange(fragment.rows[0].size)
        rows = B_ROWS[instruction.k, instruction.container_bits](i, lane % 4)
        assert (fragment.rows.reshape(rows.shape) == rows).all()
        assert (fragment.columns == (lane >> 2)[..., None]).all()


def test_accumulator_against_the_manual() -> None:
    """In each 8 columns of D, a thread holds two adjacent elements of rows g and g + 8. Two f16 share a register."""
    for instruction in EVERY:
        halves = (0, 8) if instruction.m > 8 else (0,)
        places = list(product(range(0, instruction.n, 8), halves, (0, 1)))
        thread = np.arange(instruction.threads)[:, None]
        block, half, column = (np.array(part) for part in zip(*places, strict=True))
        fragment = accumulator_fragment(instruction)
        _assert_one_to_one(fragment, (instruction.m, instruction.n), 16 if instruction.d.name == "f16" else 32)
        held = (instruction.threads, len(places))
        assert (fragment.rows.reshape(held) == 16 * (thread // 32) + (thread % 32 >> 2) + half).all()
        assert (fragment.columns.reshape(held) == block + 2 * (thread % 4) + column).all()


# Number of sparsity selectors, by K and container bits.
SELECTORS = {(16, 16): 4, (8, 32): 4, (32, 16): 2, (16, 32): 2, (32, 8): 2, (64, 4): 2, (64, 8): 1, (128, 4): 1}


def _place(k: int, bits: int, lane: int, position: int, f: int) -> tuple[int, int] | None:
    """Return row and first column of the nibble at bit 4 * position of a lane, or None if selector f skips the lane."""
    (g, quad), width = divmod(lane, 4), {32: 2, 4: 8}.get(bits, 4)
    upper, within = divmod(position, 4)
    match k, bits:
        case (16, 16) | (8, 32):  # f selects one lane of the quad
            return (g + 8 * upper, width * within) if quad == f else None
        case (32, 16) | (16, 32):  # f selects two lanes of the quad, each with half of the columns
            return (g + 8 * upper, width * (4 * (quad % 2) + within)) if quad // 2 == f else None
        case (32, 8) | (64, 4):  # f selects two lanes of the quad, each with one row
            return (g + 8 * (quad % 2), width * position) if quad // 2 == f else None
        case (64, 8) | (128, 4):  # all lanes are selected; each lane has half of the columns of a row
            return g + 8 * (quad % 2), width * (8 * (quad // 2) + position)
    raise AssertionError((k, bits))


@lru_cache
def _table(k: int, bits: int, f: int, threads: int) -> dict[tuple[int, int], tuple[int, int]]:
    """Return row and first column of A for each metadata nibble. The keys are thread and lowest bit of the nibble."""
    table = {}
    for thread, position in product(range(threads), range(8)):
        place = _place(k, bits, thread % 32, position, f)
        if place is not None:
            table[thread, 4 * position] = (16 * (thread // 32) + place[0], place[1])
    return table


def test_metadata_against_the_table() -> None:
    for instruction in SPARSE:
        selectors = SELECTORS[instruction.k, instruction.container_bits]
        assert instruction.sparsity_selectors == selectors
        width = instruction.k // instruction.chunks
        places = [(row, width * chunk) for row, chunk in product(range(instruction.m), range(instruction.chunks))]
        for f in range(selectors):
            where = metadata_map(instruction, f)
            held = zip(where.lanes.ravel().tolist(), where.low_bits.ravel().tolist(), strict=True)
            result = dict(zip(held, places, strict=True))
            assert result == _table(instruction.k, instruction.container_bits, f, instruction.threads), f


def test_scales_of_the_manuals_example() -> None:
    """Byte and thread id {2, 1} of A and {2, 3} of B select the upper bytes of lanes 2, 3 (A) and 3 (B) of a quad."""
    instruction = parse(
        "mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0"
    )
    a, b = scale_map(instruction, "a", 2, 1), scale_map(instruction, "b", 2, 3)
    assert a.lanes[:, 0].tolist() == [2, 6, 10, 14, 18, 22, 26, 30, 3, 7, 11, 15, 19, 23, 27, 31]
    assert b.lanes[:, 0].tolist() == [3, 7, 11, 15, 19, 23, 27, 31]
    for entry in (a, b):
        assert np.array_equal(entry.low_bits, np.broadcast_to([16, 24], entry.low_bits.shape))
        assert np.array_equal(entry.lanes[:, 0], entry.lanes[:, 1])
