"""Stream-K cuts each output tile into the right slices along K, and `identify` finds planted stream-K ways."""

import json
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
import sptc
from sptc.api.backends import backend
from sptc.errors import OperandError
from sptc.gemm.candidates import _OUTPUT_TILES, Expressions, candidates, streams
from sptc.gemm.choice import instructions_for
from sptc.gemm.matrices import dense_codes, factors, sparse_codes
from sptc.gemm.stream_k import RASTERS, STREAMED, StreamK
from sptc.gemm.sums import Place, product
from sptc.gemm.ways import Way
from sptc.tests.gemm.sparse_factors import Random, drawn

I = instructions_for("f16", "sm_90")[0]  # noqa: E741 - the only instruction here
F32 = Way(instruction=str(I), cut="balanced")


def cuts(dealing: StreamK, shape: tuple[int, int], k_tiles: int, cut: str = "balanced") -> list[list[tuple[int, ...]]]:
    numbers, found = dealing.dealt(shape, k_tiles, cut)
    return [[found[number] for number in of_row] for of_row in numbers.tolist()]


def by_hand(dealing: StreamK, shape: tuple[int, int], k_tiles: int, cut: str) -> list[list[tuple[int, ...]]]:
    """Return the slices of each output tile, found by a walk along all K tiles in order."""
    grid = [-(-size // of_tile) for size, of_tile in zip(shape, (dealing.rows, dealing.columns), strict=True)]
    places = [(row, column) for row in range(grid[0]) for column in range(grid[1])]
    if dealing.raster == "column-major":
        places.sort(key=lambda place: place[::-1])
    rest, whole = len(places) % dealing.workers, len(places) // dealing.workers
    count = {"all": len(places), "one wave": rest, "two waves": rest + dealing.workers * (whole > 0) * (rest > 0)}
    streamed = places[: count[dealing.streamed]] if dealing.first else places[len(places) - count[dealing.streamed] :]
    length, owners = len(streamed) * k_tiles, []
    for worker in range(dealing.workers):
        share = length // dealing.workers + (worker < length % dealing.workers)
        share = -(-length // dealing.workers) if cut == "rounded up" else share
        owners += [worker] * min(share, length - len(owners))
    found = dict.fromkeys(places, (k_tiles,))
    borders = {0}
    for place in range(1, length):
        if owners[place] != owners[place - 1]:  # another worker starts here, or at a nearby boundary of output tiles
            before, behind = place % k_tiles, -place % k_tiles
            moved = -before if before < dealing.least else behind if behind < dealing.least else 0
            borders.add(place + moved)
    for number, place in enumerate(streamed):
        of_tile = [k for k in range(number * k_tiles, (number + 1) * k_tiles) if k in borders or k % k_tiles == 0]
        ends = [*of_tile[1:], (number + 1) * k_tiles]
        found[place] = tuple(end - start for start, end in zip(of_tile, ends, strict=True))
    return [[found[row, column] for column in range(grid[1])] for row in range(grid[0])]


def test_a_walk_along_the_line(rng: Random) -> None:
    """The slices of each output tile equal those of a walk along all K tiles, for any assignment of work."""
    for _ in range(60):
        k_tiles = int(rng.integers(1, 24))
        workers, rows, columns = (int(rng.integers(1, most)) for most in (30, 5, 5))
        least, first = int(rng.integers(1, max(2, k_tiles // 6))), bool(rng.integers(2))
        words = {"streamed": str(rng.choice(STREAMED)), "raster": str(rng.choice(RASTERS))}
        dealing = StreamK(workers=workers, rows=rows, columns=columns, least=least, first=first, **words)
        shape = int(rng.integers(1, 20)), int(rng.integers(1, 20))
        for cut in ("balanced", "rounded up"):
            found = cuts(dealing, shape, k_tiles, cut)
            assert all(sum(of_tile) == k_tiles for of_row in found for of_tile in of_row), (dealing, shape, k_tiles)
            assert found == by_hand(dealing, shape, k_tiles, cut), (dealing, shape, k_tiles, cut)


@pytest.mark.parametrize("raster", RASTERS)
@pytest.mark.parametrize("words", [{}, {"order": "last first", "promote": 1}, {"k_order": "descending", "tile": 2}])
def test_every_output_tile_is_summed_by_its_own_cut(rng: Random, raster: str, words: dict[str, Any]) -> None:
    a, b = drawn(rng, (20, 30, 12 * I.k))
    dealing = StreamK(workers=7, rows=8, columns=12, raster=raster, streamed="two waves")
    way = replace(F32, stream_k=dealing, **words)
    c = rng.standard_normal((20, 30)).astype(np.float32)
    found = sptc.gemm(a, b, way=way, backend="native")
    begun = sptc.gemm(a, b, c, way=way, backend="native")
    of_tiles = cuts(dealing, (20, 30), 12 // way.tile)
    assert len({of_tile for of_row in of_tiles for of_tile in of_row}) > 2
    for row, of_row in enumerate(of_tiles):
        for column, of_tile in enumerate(of_row):
            rows, columns = slice(8 * row, 8 * row + 8), slice(12 * column, 12 * column + 12)
            plain = replace(way, stream_k=None, split_k=of_tile)
            np.testing.assert_array_equal(found[rows, columns], sptc.gemm(a[rows], b[:, columns], way=plain))
            alone = sptc.gemm(a[rows], b[:, columns], c[rows, columns], way=plain)
            np.testing.assert_array_equal(begun[rows, columns], alone)
    whole = sptc.gemm(a, b, way=replace(way, swapped=False, result="f16"))
    np.testing.assert_array_equal(sptc.gemm(b.T, a.T, way=replace(way, swapped=True, result="f16")).T, whole)
    np.testing.assert_array_equal(sptc.gemm(np.stack([a, a]), b, way=way, backend="native"), np.stack([found, found]))


def test_parts_of_a_product_keep_their_place(rng: Random, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = drawn(rng, (40, 50, 8 * I.k))
    c = rng.standard_normal((40, 50)).astype(np.float32)
    way = replace(F32, stream_k=StreamK(workers=5, rows=16, columns=16), result="f32")
    plain, begun = (sptc.gemm(a, b, start, way=way, backend="native") for start in (None, c))
    assert (begun != sptc.gemm(a, b, c, way=replace(way, stream_k=None), backend="native")).any()
    rows, columns = slice(9, 31), slice(20, 45)
    operands = factors(sparse_codes("a", a, I), dense_codes("b", b, I.b), I)
    part, place = operands.take(rows, columns), Place.of(rows, columns, operands.shape)
    found = product(way, part, backend("native"), place=place)
    np.testing.assert_array_equal(found.view(np.float32), plain[rows, columns])
    assert (product(way, part, backend("native")) != found).any()
    monkeypatch.setattr("sptc.gemm.sums._ROWS", 7)
    monkeypatch.setattr("sptc.gemm.sums._COLUMNS", 11)
    np.testing.assert_array_equal(sptc.gemm(a, b, c, way=way, backend="native"), begun)


#: Arguments of stream-K, other arguments of the way, and shape of the product. For the first way, `identify` must find
#: the number of workers.
PLANTED = [
    ({"workers": 132, "rows": 128, "columns": 128}, {"tile": 2}, (256, 300, 4096)),
    ({"workers": 7, "rows": 128, "columns": 64}, {"tile": 2, "order": "last first"}, (256, 192, 1024)),
    ({"workers": 5, "rows": 64, "columns": 64, "streamed": "two waves"}, {"tile": 4}, (256, 256, 1024)),
    ({"workers": 5, "rows": 64, "columns": 64, "streamed": "one wave", "first": False}, {}, (256, 256, 512)),
    ({"workers": 5, "rows": 128, "columns": 128, "raster": "column-major"}, {"cut": "rounded up"}, (256, 384, 512)),
    ({"workers": 9, "rows": 64, "columns": 128, "least": 8}, {}, (128, 256, 1024)),
]
#: Index into PLANTED, and divisor of the rows and columns of the product and of its output tiles.
CASES = [(3, 8), (5, 8), *((number, 1) for number in range(len(PLANTED)))]


@pytest.mark.parametrize(
    ("number", "scale"), [(1, 8), *(pytest.param(*case, marks=pytest.mark.regression) for case in CASES)]
)
def test_planted_ways_are_found(number: int, scale: int, rng: Random, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted way, or a way with the same sums, is found. With a flipped bit, no way is exact."""
    dealing, words, (m, n, k) = PLANTED[number]
    workers, shape = (dealing["workers"] if number else None), (m // scale, n // scale, k)
    if scale > 1:
        tiles = tuple((rows // scale, columns // scale) for rows, columns in _OUTPUT_TILES)
        monkeypatch.setattr("sptc.gemm.candidates._OUTPUT_TILES", tiles)
        monkeypatch.setattr("sptc.gemm.candidates._MOST_ASKED", 700)
    dealing = {**dealing, "rows": dealing["rows"] // scale, "columns": dealing["columns"] // scale}
    a, b = drawn(rng, shape)
    way = replace(F32, stream_k=StreamK(**dealing), **words)
    y = sptc.gemm(a, b, way=way, backend="native")
    known = {"format": "f16", "result": "f32", "instruction": str(I), "workers": workers}
    found = sptc.identify(a, b, y, **known)
    assert found.exact, way
    assert found.way.stream_k
    expressions = Expressions(lambda _: shape[2] // I.k, shape[:2])
    assert expressions.of(found.way) == expressions.of(way)
    np.testing.assert_array_equal(sptc.gemm(a, b, way=found.way, backend="native"), y)
    if workers is None:  # without a match, searching all numbers of workers takes long
        return
    place = tuple(int(rng.integers(0, size)) for size in y.shape)
    wrong = y.view(np.uint32).copy()
    wrong[place] ^= np.uint32(1 << int(rng.integers(0, 32)))
    missed = sptc.identify(a, b, wrong, **known)
    assert not missed.exact
    assert (missed.nearest.differing, (missed.nearest.row, missed.nearest.column)) == (1, place)
    assert missed.nearest.way.stream_k


def test_each_candidate_forms_another_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of at most _MOST_STREAMS stream-K candidates forms sums that no candidate without stream-K forms."""
    monkeypatch.setattr("sptc.gemm.candidates._MOST_ASKED", 4_000)
    monkeypatch.setattr("sptc.gemm.candidates._MOST_STREAMS", 600)
    expressions = Expressions(lambda _: 64, (512, 640))
    others = {expressions.of(way) for way in candidates([[I]], F32, expressions)}
    ways = [*streams([I], F32, expressions)]
    numbers = [expressions.of(way) for way in ways]
    assert len({*numbers}) == len(ways)
    assert len(ways) == 600
    assert not others & {*numbers}
    assert {way.stream_k.streamed for way in ways} == {*STREAMED}
    assert {way.stream_k.workers for way in streams([I], F32, expressions, 11)} == {11}
    integer = instructions_for("s8", "sm_90")[0]
    assert [*streams([integer], Way(instruction=str(integer), result="s32"), expressions)] == []


def test_invalid_stream_k_records_and_words() -> None:
    words = {"workers": 4, "rows": 8, "columns": 8}
    for change, message in (
        ({"workers": 0}, r"^workers of stream-K must be an integer of 1 or more, not 0$"),
        ({"streamed": "some"}, r"^streamed must be 'all' or 'one wave' or 'two waves', not 'some'$"),
        ({"raster": 3}, r"^raster must be 'row-major' or 'column-major', not 3$"),
        ({"first": 1}, r"^stream-K attribute 'first' must be True or False, not 1$"),
    ):
        with pytest.raises(OperandError, match=message):
            StreamK(**{**words, **change})
    for more, message in (
        ({"split_k": 2}, r"^with stream_k, split_k must be 1, and cut must not be 'in turn'$"),
        ({"stream_k": 4}, r"^stream_k must be a StreamK, not 4$"),
    ):
        with pytest.raises(OperandError, match=message):
            Way(**{"instruction": str(I), "stream_k": StreamK(**words), **more})
    a, b = drawn(np.random.default_rng(0), (4, 4, 64))
    with pytest.raises(OperandError, match=r"^workers must be an integer of 1 or more, not 0$"):
        sptc.identify(a, b, np.zeros((4, 4), np.float32), format="f16", result="f32", workers=0)
    dealing = StreamK(workers=132, rows=128, columns=256, streamed="two waves", first=False, least=8)
    for way in (replace(F32, stream_k=dealing), replace(F32, split_k=(1, 2), workspace="f16"), F32):
        assert Way.of_record(json.loads(json.dumps(asdict(way)))) == way
    for record, message in (
        ({}, r"^the JSON record of a way of summation has no attribute 'instruction'$"),
        ({"instruction": str(I), "slices": 2}, r"^the JSON record of a way .* has the unknown attribute 'slices'$"),
        ({"instruction": str(I), "stream_k": {"workers": 2, "rows": 4}}, r"^the JSON record of stream-K has no .*'c"),
    ):
        with pytest.raises(OperandError, match=message):
            Way.of_record(record)
    assert str(replace(F32, stream_k=replace(dealing, raster="column-major"), tile=2, promote=4)) == (
        f"{I} on sm_90; stream-K of 132 workers for the last two waves, the last tiles, output tiles of 128 x 256, "
        "column-major, at least 8 K tiles per slice, tiles of 2 instructions, balanced, added in order; partial sums "
        "promoted to f32 every 4 instructions; result f32 (RNE)"
    )
    plain = str(replace(F32, stream_k=StreamK(workers=4, rows=8, columns=8)))
    assert "stream-K of 4 workers, output tiles of 8 x 8, balanced, added in order; result" in plain
