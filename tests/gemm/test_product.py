"""Matrix products that are computed block by block have the right outputs and errors, and keep finished blocks."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sptc
from sptc.errors import FileError, OperandError
from sptc.gemm.epilogue import Epilogue
from sptc.gemm.folder import ProductFolder
from sptc.gemm.operands import ProductRequest, generate, prepare
from sptc.gemm.product import DECADES, Block, Errors, Problem, block_count, compute_block, instruction_count
from sptc.gemm.sources import Source
from sptc.gemm.stream_k import StreamK
from sptc.gemm.ways import Way
from sptc.isa.instructions import parse
from sptc.isa.operands import Product
from sptc.tensors.compressed import SparsityError

Random = np.random.Generator
F16 = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
INSTRUCTIONS = {
    "f16": F16,
    "f16 to f16": "mma.sp.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16",
    "bf16": "mma.sp.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32",
    "tf32": "mma.sp.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32",
    "e4m3": "wgmma.mma_async.sp.sync.aligned.m64n8k64.f32.e4m3.e4m3",
    "s8": "mma.sp.sync.aligned.m16n8k64.row.col.satfinite.s32.s8.s8.s32",
    "s4": "mma.sp.sync.aligned.m16n8k128.row.col.satfinite.s32.s4.s4.s32",
}
SCALED = "mma.sp::ordered_metadata.sync.aligned"


def saved(folder: Path, name: str, matrix: np.ndarray) -> Source:
    np.save(folder / f"{name}.npy", matrix)
    return Source(str(folder / f"{name}.npy"))


def prepared(folder: Path, a: np.ndarray, b: np.ndarray, way: Way, **options: Any) -> Problem:
    """Prepare the product of two matrices in a new folder, next to the files of the matrices."""
    (folder / "given").mkdir(parents=True)
    (folder / "product").mkdir()
    sources = saved(folder / "given", "a", a), saved(folder / "given", "b", b)
    return prepare(folder / "product", ProductRequest(way, *sources, **options))


def half_empty(rng: Random) -> tuple[np.ndarray, np.ndarray]:
    a, b = rng.standard_normal((8, 64)), rng.standard_normal((64, 8))
    a[:, ::2] = 0
    return a, b


def made(
    tmp_path: Path, instruction: str, shape: tuple[int, int, int], rng: Random, arch: str = "sm_90", **choices: object
) -> Problem:
    rows, columns, k = shape
    words = {name: choices.pop(name) for name in [*choices] if name in Way.__dataclass_fields__}
    way = Way(**{"instruction": instruction, "arch": arch, "result": parse(instruction).d.name, **words})
    a, b = rng.standard_normal((rows, k)), rng.standard_normal((k, columns))
    return prepared(tmp_path, a, b, way, prune=True, **choices)


def computed(problem: Problem) -> tuple[np.ndarray, list[Block]]:
    blocks = [compute_block(problem, index) for index in range(block_count(problem))]
    return np.load(Path(problem.folder) / "d.npy"), blocks


@pytest.mark.parametrize(
    "text",
    [
        f"{SCALED}.m16n8k64.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e2m1.e4m3.f32.ue8m0",
        f"{SCALED}.m16n8k128.row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0",
        f"{SCALED}.m16n8k128.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3",
    ],
)
def test_block_scales(tmp_path: Path, rng: Random, text: str) -> None:
    """The product of the quantised, pruned matrices is nearly exact. Quantisation and pruning cause larger errors."""
    _, (block,) = computed(made(tmp_path, text, (48, 50, 300), rng, arch="sm_120", dense=True))
    share = {name: errors.total / errors.total_reference for name, errors in block.errors.items()}
    assert share["arithmetic"] < 1e-3
    assert share["arithmetic"] < share["dense"] < share["whole"] < 0.55


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_hardware_and_golden_model_agree(tmp_path: Path, rng: Random, name: str) -> None:
    problem = made(tmp_path, INSTRUCTIONS[name], (19, 11, 200), rng, backends=("rtl", "golden"), dense=True)
    d, (block,) = computed(problem)
    assert (d.shape, block.outputs, block.mismatches, block.first) == ((19, 11), 209, 0, None)
    if not problem.way.parsed.a.is_integer:  # sptc.gemm does not scale numbers to integers
        np.testing.assert_array_equal(d, sptc.gemm(problem.a.read(), problem.b.read(), way=problem.way, prune=True))
    assert set(block.errors) == {"arithmetic", "whole", "dense"}
    # The arithmetic is nearly exact. Pruning causes a large error, and quantisation a smaller one.
    arithmetic, whole, dense = (block.errors[kind].total for kind in ("arithmetic", "whole", "dense"))
    assert arithmetic <= 0.003 * block.errors["arithmetic"].total_reference
    assert arithmetic < dense < whole < block.errors["whole"].total_reference


def test_blocks_join(tmp_path: Path, rng: Random) -> None:
    """A product of several blocks along M and N, with partial last blocks, equals numpy's product of integers."""
    a = rng.integers(-4, 5, (150, 64))
    a[:, 2::4] = 0
    a[:, 1::4] = 0
    b = rng.integers(-4, 5, (64, 600))
    problem = prepared(tmp_path, a.astype(np.int32), b.astype(np.int32), Way(instruction=F16))
    d, blocks = computed(problem)
    assert len(blocks) == block_count(problem) == 4
    np.testing.assert_array_equal(d, a @ b)
    assert all(block.errors["whole"].largest == 0 for block in blocks)
    assert instruction_count(problem) == 10 * 75 * 2


def test_integers_are_taken_as_they_are_and_other_matrices_are_refused(tmp_path: Path, rng: Random) -> None:
    a, b = rng.integers(-128, 128, (8, 64), np.int8), rng.integers(-128, 128, (64, 8), np.int8)
    a[:, ::2] = 0
    way = Way(instruction=INSTRUCTIONS["s8"], result="s32")
    d, _ = computed(prepared(tmp_path / "exact", a, b, way))
    np.testing.assert_array_equal(d, a.astype(np.int64) @ b)
    message = r"^a must hold integers from -128 to 127, the range of s8, not -?\d+ in row \d"
    with pytest.raises(OperandError, match=message):
        prepared(tmp_path / "beyond", a.astype(np.int32) * 2, b, way)
    a, b = rng.standard_normal((4, 32)), rng.standard_normal((32, 4))
    with pytest.raises(OperandError, match=r"^A has 32 columns and B 16 rows: they have no common K$"):
        prepared(tmp_path / "short", a, b[:16], Way(instruction=F16), prune=True)
    message = r"^not 2:4 sparse: 32 of 32 chunks .*; for a dense matrix, name a dense instruction$"
    with pytest.raises(SparsityError, match=message):
        prepared(tmp_path / "full", a, b, Way(instruction=F16))


@pytest.mark.parametrize("swapped", [False, True])
def test_a_wrong_back_end_is_seen(swapped: bool, tmp_path: Path, rng: Random, monkeypatch: pytest.MonkeyPatch) -> None:
    from sptc.sim.engine.engine import HardwareBackend

    right = HardwareBackend.multiply

    def wrong(*operands: Any) -> Product:
        product = right(*operands)
        product.d[0, 3, 2] ^= 4
        return product

    monkeypatch.setattr(HardwareBackend, "multiply", wrong)
    _, (block,) = computed(made(tmp_path, F16, (5, 6, 32), rng, backends=("golden", "rtl"), swapped=swapped))
    assert block.mismatches == 1
    assert block.first is not None
    backend, row, column, got, wanted = block.first
    assert (backend, row, column, got ^ wanted) == ("rtl", *((2, 3) if swapped else (3, 2)), 4)


def test_block_scales_of_every_block(tmp_path: Path, rng: Random) -> None:
    text = f"{SCALED}.m16n8k64.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e4m3.f32.ue8m0"
    problem = made(tmp_path, text, (9, 520, 128), rng, arch="sm_120", split_k=2)
    d, blocks = computed(problem)
    assert len(blocks) == 2
    a, b = problem.a.read(), problem.b.read()
    found, _ = computed(prepared(tmp_path / "part", a, b[:, 512:], problem.way, prune=True))
    np.testing.assert_array_equal(found, d[:, 512:])


def test_the_dense_product_is_summed_the_same_way(tmp_path: Path, rng: Random) -> None:
    """A dense instruction has half the K of a sparse instruction, so a chain has twice as many dense instructions."""
    problem = made(tmp_path, F16, (9, 7, 5 * 32), rng, split_k=(2, 3), promote=1, dense=True)
    _, (block,) = computed(problem)
    a, b = problem.a.read(), problem.b.read()
    dense = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    d = sptc.gemm(a, b, instruction=dense, split_k=(2, 3), tile=2, promote=2)
    assert block.errors["dense"] == Errors.of(d.astype(float), a @ b)
    assert block.errors["dense"] != Errors.of(sptc.gemm(a, b, instruction=dense).astype(float), a @ b)


def test_errors_of_an_epilogue_are_in_units_of_the_sums(tmp_path: Path, rng: Random) -> None:
    a, b = half_empty(rng)
    problem = prepared(tmp_path, a, b, Way(instruction=INSTRUCTIONS["s8"]), epilogue=Epilogue(alpha=0.5, relu=True))
    d, (block,) = computed(problem)
    assert problem.scale == pytest.approx(np.abs(a).max() / 127 * np.abs(b).max() / 127, rel=1e-6)
    assert block.errors["whole"].total == pytest.approx(np.abs(d - np.maximum(a @ b / problem.scale / 2, 0)).sum())
    assert block.errors["arithmetic"].total == 0


def test_the_unit_of_a_product_may_be_beyond_float32(tmp_path: Path, rng: Random) -> None:
    """If both factors are multiplied by 2**p, the integer sums are the same; unit and errors are multiplied by 4**p."""
    a, b = half_empty(rng)
    found = {}
    for power in (0, 100, -100):
        problem = prepared(tmp_path / str(power), a * 2.0**power, b * 2.0**power, Way(instruction=INSTRUCTIONS["s8"]))
        found[power] = problem, *computed(problem)
    problem, d, (block,) = found.pop(0)
    assert block.errors["whole"].total > 0
    for power, (scaled, same, (other,)) in found.items():
        np.testing.assert_array_equal(same, d)
        assert scaled.scale == problem.scale * 4.0**power
        for kind, errors in block.errors.items():
            assert other.errors[kind].total == errors.total * 4.0**power, (power, kind)
            assert other.errors[kind].total_reference == errors.total_reference * 4.0**power, (power, kind)
            assert other.errors[kind].counts == errors.counts, (power, kind)


def test_errors() -> None:
    reference = np.array([0.0, 1.0, 1.0, 100.0, np.inf, -2.0])
    errors = Errors.of(np.array([0.0, 1.0, 1.5, 100.001, np.inf, np.nan]), reference)
    assert (errors.largest, errors.largest_reference, errors.total_reference) == (0.5, 100.0, 102.0)
    assert errors.counts[0] == 2
    assert errors.counts[2 + list(DECADES).index(-1)] == 1
    assert errors.counts[2 + list(DECADES).index(-5)] == 1
    both = errors + errors
    assert both.total == 2 * errors.total
    assert sum(both.counts) == 8


def test_random_matrices_are_reproducible(tmp_path: Path) -> None:
    first, _ = generate(tmp_path, (300, 4, 8), 5)
    matrix = np.array(first.read())
    again, _ = generate(tmp_path, (300, 4, 8), 5)
    np.testing.assert_array_equal(again.read(), matrix)
    assert abs(matrix.std() - 1) < 0.1


def test_a_folder_keeps_finished_blocks(tmp_path: Path, rng: Random) -> None:
    wanted, path = {"format": "f16"}, tmp_path / "product"
    problem = made(tmp_path, F16, (300, 20, 64), rng, stream_k=StreamK(workers=2, rows=64, columns=8))
    blocks = [compute_block(problem, index) for index in (2, 0)]  # blocks may be finished in any order
    folder = ProductFolder(path, wanted)
    folder.begin(problem)
    for block in blocks:
        folder.add(block)
    folder.close()
    again = ProductFolder(path, wanted)
    assert again.problem == problem
    assert sorted(again.done.items()) == [(0, blocks[1]), (2, blocks[0])]
    assert list(again.blocks(4)) == [1, 3]
    again.close()
    with pytest.raises(FileError, match=r"of another matrix product: its format is f16, not bf16; remove the"):
        ProductFolder(path, {"format": "bf16"})
    path.rename(tmp_path / "moved")
    with pytest.raises(FileError, match=r"moved was created at the path .*product; move the folder back or "):
        ProductFolder(tmp_path / "moved", wanted)
    (tmp_path / "moved").rename(path)
    for statement, message in (
        ("INSERT INTO entries VALUES (1, '{\"outputs\": 3}')", r"^entry 1 of .*product\.db is damaged$"),
        ("UPDATE task SET content = '{\"wanted\": 3}'", r"product\.db is damaged$"),
    ):
        with closing(sqlite3.connect(path / "product.db")) as database, database:
            database.execute(statement)
        with pytest.raises(FileError, match=message):
            ProductFolder(path, wanted)
    (path / "mine.txt").write_text("", encoding="utf-8")
    with pytest.raises(FileError, match=r"is not the folder of a product: it contains mine\.txt$"):
        ProductFolder(path, wanted)
