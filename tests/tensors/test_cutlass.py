"""Index maps of CUTLASS, compared with CUTLASS's own layout definitions, which this test evaluates."""

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray
from sptc.errors import OperandError
from sptc.tensors.cutlass import Atom, atom_sm90, atom_sm100, from_atoms, interleaved_positions, to_atoms


def layout(shape: tuple[tuple[int, ...], ...], strides: tuple[tuple[int, ...], ...]) -> NDArray:
    """Evaluate a CuTe layout with two modes. The first digit of a mode varies fastest."""
    table = np.zeros([int(np.prod(mode)) for mode in shape], int)
    for place in np.ndindex(*table.shape):
        for coordinate, mode, stride in zip(place, shape, strides, strict=True):
            for size, step in zip(mode, stride, strict=True):
                table[place] += coordinate % size * step
                coordinate //= size
    return table


def ordered(shape: tuple[tuple[int, ...], ...], steps: tuple[tuple[int, ...], ...]) -> NDArray:
    """Return the layout of CuTe's ``make_ordered_layout``: strides increase in the order of the steps."""
    sizes, order = list(itertools.chain(*shape)), list(itertools.chain(*steps))
    strides = [int(np.prod([size for size, other in zip(sizes, order, strict=True) if other < own])) for own in order]
    return layout(shape, (tuple(strides[: len(shape[0])]), tuple(strides[len(shape[0]) :])))


SM90 = {
    32: lambda blocks: ordered(((8, 2, 4), (8, 2, blocks)), ((3, 1, 5), (0, 4, 2))),
    16: lambda blocks: ordered(((8, 2, 4), (16, 2, blocks)), ((3, 1, 5), (0, 4, 2))),
    8: lambda blocks: ordered(((64,), (64 * blocks,)), ((1,), (0,))),
}
SM100 = {
    4: layout(((128,), (256,)), ((256,), (1,))),
    8: layout(((128,), (128,)), ((128,), (1,))),
    16: layout(((8, 2, 8), (16, 2, 4)), ((128, 16, 2048), (1, 1024, 32))),
    32: layout(((8, 2, 8), (8, 2, 4)), ((64, 8, 1024), (1, 512, 16))),
}
CHUNK = {4: 8, 8: 4, 16: 4, 32: 2}


def test_atoms() -> None:
    for (bits, sm90), blocks in itertools.product(SM90.items(), (1, 2, 3, 4)):
        tile = blocks * 512 // bits
        if tile > 128:
            with pytest.raises(OperandError, match=f"multiple of {512 // bits} up to 128"):
                atom_sm90(bits, tile)
            continue
        expected = sm90(blocks)[:, :: CHUNK[bits]] // CHUNK[bits]
        np.testing.assert_array_equal(atom_sm90(bits, tile).positions, expected, f"sm_90, {bits} bits, {tile}")
    for bits, sm100 in SM100.items():
        expected = sm100[:, :: CHUNK[bits]] // CHUNK[bits]
        np.testing.assert_array_equal(atom_sm100(bits).positions, expected, f"sm_100, {bits} bits")


@pytest.mark.parametrize(
    "atom", [atom_sm90(8, 64), atom_sm90(16, 96), atom_sm90(32, 64), *map(atom_sm100, SM100)], ids=range(7)
)
def test_whole_atoms(atom: Atom, rng: np.random.Generator) -> None:
    """Padding is zero, atoms follow each other along M first, and each nibble is at its position in the map."""
    rows, chunks = atom.rows * 2 - 5, atom.chunks * 3 - 1
    nibbles = rng.integers(0, 16, (rows, chunks), dtype=np.uint8)
    octets = to_atoms(nibbles, atom)
    assert octets.size == 2 * 3 * atom.positions.size // 2
    np.testing.assert_array_equal(from_atoms(octets, atom, rows, chunks), nibbles)
    for _ in range(50):
        row, chunk = rng.integers(rows), rng.integers(chunks)
        block = row // atom.rows + 2 * (chunk // atom.chunks)
        position = block * atom.positions.size + atom.positions[row % atom.rows, chunk % atom.chunks]
        assert octets[position // 2] >> (4 * (position % 2)) & 15 == nibbles[row, chunk]
    used = np.count_nonzero(octets & 15) + np.count_nonzero(octets >> 4)
    assert used == np.count_nonzero(nibbles)
    with pytest.raises(OperandError, match="bytes of metadata in whole atoms"):
        from_atoms(octets[1:], atom, rows, chunks)


@pytest.mark.parametrize(("word_bits", "rows"), [(16, 96), (32, 48)])
def test_interleaved(word_bits: int, rows: int) -> None:
    """CUTLASS's host_reorder.h word by word, followed by a column-major layout of two interleaved columns."""
    group, interweave = (32, 4) if word_bits == 16 else (16, 2)
    columns = 6
    positions = interleaved_positions(rows, columns, word_bits)
    assert sorted(positions.ravel()) == list(range(rows * columns))
    for row, column in np.ndindex(rows, columns):
        to_row = row // group * group + row % 8 * interweave + row % group // 8
        to_column = column
        if to_row % 2 == 0 and to_column % 2 == 1:
            to_row, to_column = to_row + 1, to_column - 1
        elif to_row % 2 == 1 and to_column % 2 == 0:
            to_row, to_column = to_row - 1, to_column + 1
        assert positions[row, column] == to_column // 2 * rows * 2 + to_row * 2 + to_column % 2


def test_what_there_is_not() -> None:
    with pytest.raises(OperandError, match="a multiple of 32 rows for 16-bit metadata words, not 16"):
        interleaved_positions(16, 2, 16)
    with pytest.raises(OperandError, match="even number of 32-bit metadata words per row, not 3"):
        interleaved_positions(16, 3, 32)
    with pytest.raises(OperandError, match="not 4-bit ones"):
        atom_sm90(4, 128)
    with pytest.raises(OperandError, match="multiple of 32 up to 128, not 48"):
        atom_sm90(16, 48)
