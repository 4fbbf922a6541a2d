"""Compression and expansion of matrices equal a chunk-by-chunk reference that uses published tables."""

import pickle

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from sptc.errors import OperandError
from sptc.isa.metadata import GRANULARITIES
from sptc.tensors import blocks
from sptc.tensors.compressed import Compressed, NibbleError, SparsityError, broken, check_nibbles, short_chunks
from sptc.tensors.sparsify import PRODUCERS, expand, sparsify

# For each producer: the two units of a chunk that it stores, by the units of the chunk that are not zero.
PYTORCH = {(): (2, 3), (0,): (0, 2), (1,): (1, 2), (2,): (2, 3), (3,): (2, 3)}
CUTLASS3 = {(): (0, 0), (0,): (0, 3), (1,): (1, 3), (2,): (2, 3), (3,): (0, 3)}
BITMASK = {(): (0, 1), (0,): (0, 1), (1,): (0, 1), (2,): (0, 2), (3,): (0, 3)}
TABLES = {"pytorch": PYTORCH, "cutlass3": CUTLASS3, "bitmask": BITMASK}
EMPTY_OF_TWO = {"pytorch": 0b1110, "cutlass3": 0b0100, "bitmask": 0b0100}
TYPES = {
    "1:2": [np.float32, np.float64],
    "2:4": [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, np.int8, np.uint8],
    "4:8": [np.int8, ml_dtypes.int4, ml_dtypes.float4_e2m1fn],
}
CASES = [(name, dtype) for name, types in TYPES.items() for dtype in types]


def reference(dense: NDArray, name: str, producer: str) -> tuple[NDArray, NDArray]:
    """Reference compression, one chunk at a time: prune the chunk, look up its nibble, and copy the stored elements."""
    width, units = {"1:2": (2, 2), "2:4": (4, 4), "4:8": (8, 4)}[name]
    size, kept = width // units, units // 2
    stored, nibbles = [], []
    for row in dense:
        for start in range(0, len(row), width):
            chunk = [list(row[start + size * unit : start + size * (unit + 1)]) for unit in range(units)]
            magnitude = [sum(abs(float(element)) for element in unit) for unit in chunk]
            order = sorted((unit for unit in range(units) if magnitude[unit]), key=lambda unit: -magnitude[unit])
            present = tuple(sorted(order[:kept]))
            if units == 2:
                value = {(0,): 0b0100, (1,): 0b1110, (): EMPTY_OF_TWO[producer]}[present]
                slots: tuple[int, ...] = (value >> 3,)
            else:
                slots = present if len(present) == 2 else TABLES[producer][present]
                value = slots[0] | slots[1] << 2
            nibbles.append(value)
            for slot in slots:
                clear = producer == "cutlass3" and slot not in present
                stored += [dense.dtype.type(0)] * size if clear else chunk[slot]
    return np.array(stored, dense.dtype).reshape(len(dense), -1), np.array(nibbles, np.uint8).reshape(len(dense), -1)


def bits(array: NDArray) -> NDArray:
    return array.view(f"u{array.dtype.itemsize}")


def random_matrix(dtype: type, shape: tuple[int, int], rng: np.random.Generator) -> NDArray:
    """Return a matrix of small numbers with many zeros of both signs and many equal magnitudes."""
    low = 0 if np.dtype(dtype).name == "uint8" else -6
    dense = (rng.integers(low, 7, shape) * (rng.random(shape) < rng.random())).astype(np.float32)
    if low:
        dense = np.where((dense == 0) & (rng.random(shape) < 0.3), -np.float32(0), dense)
    return dense.astype(dtype)


@pytest.mark.parametrize("producer", PRODUCERS)
def test_pruned(producer: str, rng: np.random.Generator) -> None:
    for name, dtype in CASES:
        dense, case = random_matrix(dtype, (40, 64), rng), f"{name}, {dtype}"
        stored, nibbles = reference(dense, name, producer)
        pruned = sparsify(dense, name, prune=True, producer=producer)
        np.testing.assert_array_equal(pruned.nibbles, nibbles, case)
        np.testing.assert_array_equal(bits(pruned.stored), bits(stored), case)
        assert pruned.stored.dtype == dense.dtype, case
        # A pruned matrix is sparse: compressing it without pruning gives the same result.
        again = sparsify(expand(pruned), name, producer=producer)
        np.testing.assert_array_equal(again.nibbles, nibbles, case)
        np.testing.assert_array_equal(again.stored.astype(np.float32), stored.astype(np.float32), case)


@pytest.mark.parametrize("name", GRANULARITIES)
def test_expanded(name: str, rng: np.random.Generator) -> None:
    granularity = GRANULARITIES[name]
    legal = [0b0100, 0b1110] if name == "1:2" else [n for n in range(16) if n & 3 != n >> 2]
    nibbles = rng.choice(legal, (30, 5)).astype(np.uint8)
    stored = rng.normal(size=(30, 5 * granularity.stored)).astype(np.float32)
    dense = expand(Compressed(stored, nibbles, granularity))
    assert dense.shape == (30, 5 * granularity.logical)
    assert (dense != 0).sum() == stored.size
    for row, chunk in np.ndindex(*nibbles.shape):
        i0, i1 = nibbles[row, chunk] & 3, nibbles[row, chunk] >> 2
        here = dense[row, granularity.logical * chunk : granularity.logical * (chunk + 1)]
        if name == "1:2":
            picked = [here[i0 // 2]]
        else:
            size = granularity.logical // 4
            picked = [*here[size * i0 : size * (i0 + 1)], *here[size * i1 : size * (i1 + 1)]]
        of_chunk = slice(granularity.stored * chunk, granularity.stored * (chunk + 1))
        np.testing.assert_array_equal(picked, stored[row, of_chunk])


def test_small_blocks_make_no_difference(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    dense = random_matrix(np.float16, (23, 32), rng)
    whole = sparsify(dense, "2:4", prune=True)
    back = expand(whole)
    monkeypatch.setattr(blocks, "BLOCK_ELEMENTS", 70)
    told: list[tuple[int, int]] = []
    parts = sparsify(dense, "2:4", prune=True, progress=lambda *done: told.append(done))
    np.testing.assert_array_equal(parts.stored, whole.stored)
    np.testing.assert_array_equal(parts.nibbles, whole.nibbles)
    np.testing.assert_array_equal(expand(parts), back)
    assert told == [(rows, 23) for rows in (*range(2, 23, 2), 23)]
    dense[19, 5] = np.nan
    with pytest.raises(OperandError, match="pruning cannot order a NaN by magnitude: row 19, column 5"):
        sparsify(dense, "2:4", prune=True)


def test_a_matrix_that_is_not_sparse(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sptc.tensors.blocks.BLOCK_ELEMENTS", 64)  # the matrix is processed in blocks of four rows
    dense = np.zeros((50, 16))
    dense[:, ::4] = 1
    crowded = sorted(rng.choice(200, 30, replace=False))
    for place in crowded:
        dense[place // 4, place % 4 * 4 : place % 4 * 4 + 3] = np.nan
    with pytest.raises(SparsityError) as caught:
        sparsify(dense, "2:4")
    error = caught.value
    assert (error.total, error.chunks) == (30, 200)
    first = [(place // 4, place % 4 * 4, 3) for place in crowded[:10]]
    assert [(one.row, one.column, one.count) for one in error.first] == first
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert "30 of 200 chunks have more than 2 of 4 elements that are not zero" in str(error)
    assert np.isnan(sparsify(np.array([[0, np.nan, 0, 1]]), "2:4").stored[0, 0])  # NaN is stored unchanged


def test_undefined_nibbles_and_short_chunks() -> None:
    """Undefined nibbles are rejected. Without `strict`, nibble 0 of a chunk of zeros (CUTLASS 3) is accepted."""
    good = Compressed(np.ones((3, 4)), np.full((3, 2), 0b0001, np.uint8), GRANULARITIES["2:4"])
    check_nibbles(good)
    with pytest.raises(NibbleError, match="row 0, chunk 0: nibble 0b0001 breaks the ordered rule") as caught:
        expand(good, "ordered")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    good.nibbles[2, 1] = 0b1010
    with pytest.raises(NibbleError, match="row 2, chunk 1: nibble 0b1010 breaks the plain rule"):
        expand(good)
    assert [broken(good, rule) for rule in ("plain", "ordered", "tcgen05")] == [1, 6, 6]
    with pytest.raises(OperandError, match="the rule must be one of plain, ordered"):
        expand(good, "none")
    with pytest.raises(OperandError, match="rule plain accepts nibbles that 1:2 sparsity leaves undefined; use the"):
        expand(Compressed(np.ones((1, 1)), np.full((1, 1), 4, np.uint8), GRANULARITIES["1:2"]), "plain")
    dense = np.array([[1, 1, 0, 0, 0, 2, 0, 0], [0, 0, 0, 0, 0, 0, 3, 3]], np.int8)
    assert [short_chunks(sparsify(dense, name)) for name in ("2:4", "4:8")] == [2, 1]
    dense = np.zeros((4, 8), np.float32)
    dense[1, 2] = 7
    compressed = sparsify(dense, "2:4", producer="cutlass3")
    assert (compressed.nibbles == 0).sum() == 7
    np.testing.assert_array_equal(expand(compressed), dense)
    assert (broken(compressed, "plain"), broken(compressed, "plain", strict=False)) == (7, 0)
    with pytest.raises(NibbleError, match="row 0, chunk 0"):
        expand(compressed, strict=True)
    with pytest.raises(OperandError, match=r"^strict must be True or False, not 'yes'$"):
        expand(compressed, strict="yes")  # type: ignore[arg-type]
    compressed.stored[3, 3] = 1
    with pytest.raises(NibbleError, match="row 3, chunk 1"):
        expand(compressed)


def test_bad_operands() -> None:
    words: dict[str, object]
    for dense, words, message in (
        ([[1.0] * 4], {}, "^a matrix must be an array of numpy, not list$"),
        (np.ones(4), {}, "two axes"),
        (np.ones((0, 4)), {}, "at least one element"),
        (np.ones((2, 6)), {}, "2:4 needs a number of columns that is a multiple of 4, not 6"),
        (np.ones((2, 4), complex), {}, "not complex128"),
        (np.ones((2, 4), bool), {}, "not bool"),
        (np.ones((2, 4), np.int64), {}, "not int64"),
        (np.ones((2, 4), "V2"), {}, "floats"),
        (np.ones((2, 4)), {"granularity": "3:4"}, "one of 1:2, 2:4, 4:8, not '3:4'"),
        (np.ones((2, 4)), {"prune": [1, 2]}, r"^prune must be True or False, not \[1, 2\]$"),
        (np.ones((2, 4)), {"producer": "mine"}, "one of pytorch, cutlass3, bitmask, not 'mine'"),
    ):
        with pytest.raises(OperandError, match=message):
            sparsify(dense, **{"granularity": "2:4", **words})  # type: ignore[arg-type]
    nibbles = np.full((2, 3), 4, np.uint8)
    with pytest.raises(OperandError, match=r"^a compressed matrix must be of type Compressed, not list$"):
        expand(["a", "b"])  # type: ignore[arg-type]
    for stored, given, granularity, message in (
        (np.ones((2, 5)), nibbles, GRANULARITIES["2:4"], r"\(2, 6\) for 2:4, not \(2, 5\)"),
        (np.ones((2, 6)), nibbles + 12, GRANULARITIES["2:4"], "at most 15"),
        (np.ones((2, 6)), nibbles, "2:4", "granularity must be of type Granularity, not str"),
        *((np.ones((2, 6), kind), nibbles, GRANULARITIES["2:4"], "^elements must be floats ") for kind in "cOU"),
    ):
        with pytest.raises(OperandError, match=message):
            Compressed(stored, given, granularity)  # type: ignore[arg-type]
