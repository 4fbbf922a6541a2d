"""``sptc.diagnose`` names planted faults, and names no fault for a correct product or a flipped bit."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import sptc
from sptc.gemm.index_maps import describe_map, describe_set, named_maps
from sptc.gemm.misread_tiles import misreadings, regathered
from sptc.isa.memory import SWIZZLES
from sptc.tensors.sparsify import expand, sparsify
from sptc.tests.gemm.sparse_factors import Random, drawn

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from planted_products import PLANTED, planted

#: Planted faults that the quick tier tests.
QUICK = ("lanes permuted", "metadata of zeros", "metadata with single wrong nibbles")
#: The regression test replaces one output by each of these wrong values. The quick tier uses zero.
OTHERS = ("another", "negated", "NaN")
REGRESSION = pytest.mark.regression


@pytest.fixture(autouse=True)
def few_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit the number of stream-K candidates, so that the search is fast."""
    monkeypatch.setattr("sptc.gemm.candidates._MOST_ASKED", 100)


@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name in QUICK else REGRESSION) for name in PLANTED])
def test_a_planted_fault_is_named(rng: Random, name: str) -> None:
    case = planted(rng, name, (64, 32, 128))
    diagnosis = sptc.diagnose(case.a, case.b, case.y, **case.words)
    assert (diagnosis.explained, diagnosis.remaining) == (True, 0), diagnosis
    assert diagnosis.kind in case.kinds, diagnosis
    assert f"{diagnosis.kind}: {diagnosis.kind}" not in diagnosis.text
    assert diagnosis.differing.shape == case.y.shape
    assert diagnosis.differing.any() == (diagnosis.kind != "correct")


@pytest.mark.parametrize("value", [0.0, *(pytest.param(text, marks=REGRESSION) for text in OTHERS)])
def test_one_wrong_output_is_never_explained(rng: Random, value: Any) -> None:
    a, b = drawn(rng, (32, 16, 64))
    y = sptc.gemm(a, b, format="f16", backend="native")
    wrong = y.copy()
    wrong[9, 9] = {"another": y[3, 4], "negated": -y[9, 9], "NaN": np.nan}.get(value, value)
    diagnosis = sptc.diagnose(a, b, wrong, format="f16", result="f32")
    assert (diagnosis.explained, diagnosis.remaining, diagnosis.kind) == (False, 1, "unexplained")
    assert (diagnosis.first.row, diagnosis.first.column) == (9, 9)
    assert np.array_equal(np.argwhere(diagnosis.differing), [[9, 9]])


@pytest.mark.parametrize("swapped", [False, True])
def test_wrong_nibbles_beside_an_infinity(rng: Random, swapped: bool) -> None:
    """An infinite output neither hides wrong nibbles of its row nor counts as a difference. K ends inside a chunk."""
    a, b = drawn(rng, (64, 32, 126))
    b[5, 3] = np.inf
    compressed = sparsify(np.pad(a, ((0, 0), (0, 2))), "2:4")
    nibbles = compressed.nibbles.copy()
    chunk = int(np.flatnonzero(nibbles[21, :-1] != nibbles[21, 2])[-1])
    nibbles[21, [2, chunk]] = nibbles[21, [chunk, 2]]
    wrong = expand(replace(compressed, nibbles=nibbles))[:, :126]
    y, right = (sptc.gemm(each, b, format="f16", backend="native") for each in (wrong, a))
    diagnosis = sptc.diagnose(*((b.T, a.T, y.T) if swapped else (a, b, y)), format="f16", result="f32")
    assert (diagnosis.explained, diagnosis.kind) == (True, "metadata"), diagnosis
    assert f"{'column' if swapped else 'row'} 21: the nibbles of chunks" in diagnosis.text
    differing = y.view(np.uint32) != right.view(np.uint32)
    np.testing.assert_array_equal(diagnosis.differing, differing.T if swapped else differing)


def test_a_vector_and_a_last_chunk_that_extends_beyond_k(rng: Random) -> None:
    """A missing slice of K is found, although K is no multiple of the four columns that a nibble describes."""
    a, b = drawn(rng, (128, 1, 256))
    y = sptc.gemm(a, b[:, 0], format="f16", backend="native")
    diagnosis = sptc.diagnose(a, b[:, 0], np.roll(y, 16), format="f16", result="f32")
    assert (diagnosis.explained, diagnosis.differing.shape) == (True, (128,))
    assert "rows" in diagnosis.text
    a, b = drawn(rng, (32, 24, 70))
    y = sptc.gemm(np.where(np.arange(70) // 32 == 1, 0, a).astype(a.dtype), b, format="f16", backend="native")
    diagnosis = sptc.diagnose(a, b, y, format="f16", result="f32")
    assert (diagnosis.explained, diagnosis.kind) == (True, "slice of K"), diagnosis
    assert "; every bit is explained by: slice of K: k 32 to 63 is missing" in diagnosis.text


def test_faults_with_the_sparse_factor_on_the_right(rng: Random) -> None:
    """A diagnosis names rows, columns and scales of the caller's product, although its transpose is computed."""
    a, b = drawn(rng, (64, 48, 64))
    y = sptc.gemm(a, b, format="f16", backend="native")
    y[16:32], y[48:64] = y[48:64].copy(), y[16:32].copy()
    identification = sptc.identify(b.T, a.T, y.T, format="f16", result="f32")
    diagnosis = identification.diagnosis
    assert diagnosis
    assert diagnosis.explained
    assert "columns" in diagnosis.text.partition("explained by")[2]
    assert np.array_equal(np.flatnonzero(diagnosis.differing.any(0)), [*range(16, 32), *range(48, 64)])
    assert "outputs in other places" in str(identification)
    scale = rng.uniform(0.5, 2, 64).astype(np.float32)
    y = sptc.gemm(a, b, format="f16", backend="native")
    diagnosis = sptc.diagnose(b.T, a.T, y.T, format="f16", result="f32", scale_b=scale)
    assert "explained by: scale: the scale of B is ignored" in diagnosis.text


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"group_scale_a": lambda s: np.roll(s, 1, 0)}, "group scales of A are those of another row: row p takes"),
        pytest.param({"group_scale_b": lambda s: s * s}, "group scales of B are applied twice", marks=REGRESSION),
        pytest.param({"group_scale_a": lambda s: s.T.reshape(s.shape)}, "(MN-major) and read row by row",
                     marks=REGRESSION),
    ],
)  # fmt: skip
def test_group_scales_of_other_places(rng: Random, change: dict[str, Any], words: str) -> None:
    a = rng.standard_normal((16, 256)).astype(ml_dtypes.float8_e4m3fn)
    b = rng.standard_normal((256, 32)).astype(ml_dtypes.float8_e4m3fn)
    scales = {"group_scale_a": rng.uniform(0.5, 2, (16, 2)), "group_scale_b": rng.uniform(0.5, 2, (2, 32))}
    scales = {name: scale.astype(np.float32) for name, scale in scales.items()}
    i = "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3"
    wrong = {name: change.get(name, np.array)(scale) for name, scale in scales.items()}
    y = sptc.gemm(a, b, instruction=i, promote=4, group_scaling="a then b, rounded", backend="native", **wrong)
    diagnosis = sptc.diagnose(a, b, y, result="f32", instruction=i, **scales)
    assert (diagnosis.explained, diagnosis.kind) == (True, "scale"), diagnosis
    assert words in diagnosis.text


def test_accumulators_that_are_not_cleared(rng: Random) -> None:
    """An accumulator that is not cleared keeps earlier partial sums, so the first of four is added four times."""
    a = rng.standard_normal((16, 256)).astype(ml_dtypes.float8_e4m3fn)
    b = rng.standard_normal((256, 16)).astype(ml_dtypes.float8_e4m3fn)
    i = "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3"
    y = np.zeros((16, 16), np.float32)
    for end in (64, 128, 192, 256):
        y = y + sptc.gemm(a[:, :end], b[:end], instruction=i, backend="native")
    diagnosis = sptc.diagnose(a, b, y, result="f32", instruction=i)
    assert (diagnosis.explained, diagnosis.kind) == (True, "accumulator"), diagnosis
    assert "not cleared after its promotion, every 2 instructions" in diagnosis.text


def test_maps_of_indices_are_described() -> None:
    for text, index in named_maps(64):
        moved = f"rows are moved: row p holds row {text}"
        assert describe_map(index, "rows") == (moved if text[0] in "p0123456789" else f"rows are {text}", 6.0)
        assert index.min() >= 0
        assert index.max() < 64
    text, bits = describe_map(np.arange(64).reshape(4, 16)[[0, 2, 1, 3]].ravel(), "rows")
    assert text == "blocks of 16 rows are in another order: block 1 holds 2, 2 holds 1"
    assert bits == 4
    assert describe_set(np.array([1, 2, 3, 9]), 16, "rows")[0] == "rows 1 to 3, 9"
    assert describe_set(np.arange(64)[np.arange(64) % 16 >= 8], 64, "rows")[0] == "rows p with p mod 16 in 8 to 15"


def test_a_misread_tile_is_what_memory_holds(rng: Random) -> None:
    """`diagnose` knows the matrix that results if memory is written with one swizzle and read with another."""
    matrix = rng.integers(0, 1 << 16, (64, 64)).astype(np.uint16)
    known = {diagnosis.text: diagnosis for diagnosis in misreadings(64, 64, 16)}
    octets, addresses = matrix.view(np.uint8).ravel(), np.arange(64 * 128)
    for writer, reader in (("128B", "64B"), ("none", "32B"), ("64B", "none")):
        memory = np.zeros_like(octets)
        memory[SWIZZLES[writer].apply(addresses)] = octets
        expected = memory[SWIZZLES[reader].apply(addresses)].view(np.uint16).reshape(matrix.shape)
        same = [text for text, index in known.items() if np.array_equal(regathered(matrix, index), expected)]
        assert any("swizzle" in text for text in same), (writer, reader)
