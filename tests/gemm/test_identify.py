"""``sptc.identify`` finds the method of summation that gives all bits of a result, and accepts no other."""

import hashlib
import json
import subprocess
import sys
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sptc
from sptc.errors import Error
from sptc.gemm.candidates import Expressions, candidates
from sptc.gemm.choice import instructions_for
from sptc.gemm.diagnosis import Identification, Miss
from sptc.gemm.probe import probe, write_probe
from sptc.gemm.search import Operands
from sptc.gemm.ways import Way
from sptc.tensors.sparsify import expand, sparsify
from sptc.tests.gemm import sparse_factors
from sptc.tests.gemm.sparse_factors import Random
from sptc.tests.isa.test_formats import DTYPES

FIRST = str(instructions_for("f16", "sm_90")[0])
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
LIBRARIES = Path(__file__).parents[2] / "recordings" / "libraries"


def drawn(rng: Random, fmt: str, shape: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray]:
    return sparse_factors.drawn(rng, shape, DTYPES[fmt], 2)


def codes(y: np.ndarray) -> np.ndarray:
    return y.view(f"u{y.dtype.itemsize}")


@pytest.fixture(autouse=True)
def few_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit the number of stream-K candidates, whose search takes long."""
    monkeypatch.setattr("sptc.gemm.candidates._MOST_ASKED", 100)


@pytest.mark.parametrize(
    ("name", "result", "split"),
    [("f16.128x64x256", "f16", 1), ("f16.64x96x8192", "f16", 8), ("s8.128x64x256", "s32", 1)],
)
def test_what_cusparselt_computed(name: str, result: str, split: int) -> None:
    with np.load(LIBRARIES / "cusparselt.npz") as archive:
        a, b, y = (archive[f"{name}.{operand}"] for operand in "aby")
    found = sptc.identify(a, b, y, format=name.partition(".")[0], result=result)
    assert found.exact
    assert found.compared == y.size
    assert found.way == Way(instruction=found.way.instruction, split_k=split, result=result)
    assert found.way.instruction.startswith("wgmma.mma_async.sp.")
    # In the two f16 products, only 2 and 13 outputs distinguish the found way from the next best way.
    assert found.weak_evidence == found.record()["weak_evidence"] == (name == "f16.128x64x256")
    assert ("weak evidence: only 2 of 8192 outputs distinguish this way from" in str(found)) == found.weak_evidence
    if result == "f16":
        assert found.nearest.differing > 0
        assert (sptc.gemm(a, b, way=found.nearest.way, backend="native") != y).sum() == found.nearest.differing
    else:  # integer sums do not depend on the order of addition
        assert found.nearest is None
        assert found.equal


@pytest.mark.parametrize(
    ("differing", "tried", "weak"),
    [(1, 1, True), (4, 1, False), (13, 17, False), (5, 1253, True), (14, 1253, True), (15, 1253, False)],
)
def test_evidence_is_weak_if_few_outputs_distinguish_many_ways(differing: int, tried: int, weak: bool) -> None:
    """The more ways are tried, the more outputs must distinguish the exact way from the next best way."""
    way = Way(instruction=FIRST, result="f16")
    near = Miss(way, differing, 0, 0, 0, 1, None)
    assert Identification(True, way, 2048, near, tried=tried).weak_evidence == weak
    assert not Identification(False, None, 2048, near, tried=tried).weak_evidence
    assert not Identification(True, way, 2048, None, tried=tried).weak_evidence


def words_of(rng: Random, result: str) -> dict[str, Any]:
    """Draw the arguments of a random way of summation, in a combination that the search tries."""
    split, promote = {"split_k": int(rng.integers(2, 9))}, {"promote": int(2 ** rng.integers(0, 4))}
    words: dict[str, Any] = rng.choice([{}, split, {"split_k": 4, "promote": 2}, promote])
    if words.keys() == {"split_k"} and rng.integers(0, 2):
        words = {**words, "order": str(rng.choice(["in order", "reverse", "tree", "halves"]))}
    if not words and rng.integers(0, 2):
        words = {"k_order": "descending"}
    if words.keys() == {"split_k"} and result in ("f16", "bf16") and rng.integers(0, 2):
        words = {**words, str(rng.choice(["workspace", "running"])): result}
    return words


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("number", range(40))
def test_random_ways_are_found_and_flipped_bits_are_not_explained(rng: Random, number: int) -> None:
    """The planted way, or a way with the same bits, is found. A flipped bit leaves only ways that give this bit."""
    fmt = str(rng.choice(["f16", "bf16", "e4m3", "e5m2", "tf32"]))
    result = str(rng.choice(["f32", "f16", "bf16", "e4m3"]))
    instructions = instructions_for(fmt, "sm_90", accumulate="f32")
    i = instructions[int(rng.integers(0, len(instructions)))]
    a, b = drawn(rng, fmt, (int(rng.integers(8, 40)), int(rng.integers(4, 24)), int(rng.choice([8, 12, 16])) * i.k))
    way = Way(instruction=str(i), result=result, **words_of(rng, result))
    y = sptc.gemm(a, b, way=way, backend="native")
    # A search of all instructions takes most of the test's time, so half of the cases give the instruction.
    named = {} if number % 2 else {"instruction": str(i)}
    found = sptc.identify(a, b, y, format=fmt, result=result, **named)
    assert found.exact, way
    np.testing.assert_array_equal(codes(sptc.gemm(a, b, way=found.way)), codes(y))
    if found.nearest:
        other = sptc.gemm(a, b, way=found.nearest.way, backend="native")
        assert (codes(other) != codes(y)).sum() == found.nearest.differing
    place = tuple(int(rng.integers(0, size)) for size in y.shape)
    wrong = codes(y).copy()
    wrong[place] ^= wrong.dtype.type(1 << int(rng.integers(0, 8 * y.dtype.itemsize)))
    missed = sptc.identify(a, b, wrong, format=fmt, result=result, **named)
    if missed.exact:  # possible if another way gives the flipped bit
        np.testing.assert_array_equal(codes(sptc.gemm(a, b, way=missed.way)), wrong)
    else:
        near = missed.nearest
        assert near.differing == 1 or near.way != way
        other = codes(sptc.gemm(a, b, way=near.way, backend="native"))
        differs = np.argwhere(other != wrong)
        first = tuple(map(int, differs[0]))
        assert (near.differing, near.row, near.column) == (len(differs), *first)
        assert (near.wanted, near.got) == (int(wrong[first]), int(other[first]))


def test_a_flipped_bit_is_seen_wherever_it_is(rng: Random) -> None:
    a, b = drawn(rng, "f16", (40, 200, 128))
    y = sptc.gemm(a, b, backend="native")
    for place in ((0, 0), (39, 199), (17, 101)):
        wrong = codes(y).copy()
        wrong[place] ^= 0x80000000
        found = sptc.identify(a, b, wrong, format="f16", result="f32", instruction=FIRST)
        assert (found.exact, found.way, found.possible) == (False, None, None)
        assert (found.nearest.differing, found.nearest.row, found.nearest.column) == (1, *place)


def test_slices_in_any_order(rng: Random) -> None:
    """If each output has its own order of slices, order "any" is named as possible, but not if an output is wrong."""
    a, b = drawn(rng, "f16", (20, 30, 256))
    parts = np.stack([sptc.gemm(a[:, k : k + 64], b[k : k + 64]) for k in range(0, 256, 64)], -1)
    order = rng.permuted(np.broadcast_to(np.arange(4), parts.shape), axis=2)
    first, *others = np.moveaxis(np.take_along_axis(parts, order, 2), 2, 0)
    for other in others:
        first = first + other
    found = sptc.identify(a, b, first, format="f16", result="f32", instruction=FIRST)
    assert (found.exact, found.way) == (False, None)
    assert (found.possible.split_k, found.possible.order) == (4, "any")
    wrong = first.copy()
    wrong[3, 3] *= np.float32(1.001)
    assert sptc.identify(a, b, wrong, format="f16", result="f32", instruction=FIRST).possible is None
    with pytest.raises(Error, match="depends on their order: name an order other than 'any'"):
        sptc.gemm(a, b, way=found.possible)


def test_exchanged_factors_vectors_and_epilogues(rng: Random) -> None:
    a, b = drawn(rng, "f16", (24, 16, 256))
    y = sptc.gemm(a, b, split_k=2)
    found = sptc.identify(b.T, a.T, y.T, format="f16", result="f32")
    assert (found.exact, found.way.swapped, found.way.split_k) == (True, True, 2)
    np.testing.assert_array_equal(sptc.gemm(b.T, a.T, way=found.way), y.T)
    one = {"result": "f32", "instruction": FIRST}
    assert sptc.identify(a, b[:, 0], y[:, 0], **one).way.split_k == 2
    y = sptc.gemm(a, b[:, 0], bias=np.arange(24), split_k=2)
    assert sptc.identify(a, b[:, 0], y, bias=np.arange(24), **one).way.split_k == 2
    known = {"alpha": 0.5, "bias": rng.standard_normal((24, 1)), "relu": True, "scale_b": rng.standard_normal(16)}
    y = sptc.gemm(a, b, promote=2, result="bf16", **known)
    one = {"result": "bf16", "instruction": FIRST}
    found = sptc.identify(a, b, y, **one, **known)
    assert found.exact
    turned = {**known, "bias": known["bias"].T, "scale_b": known["scale_b"][:, None]}
    assert sptc.identify(b.T, a.T, y.T, **one, **turned).exact
    wrong = codes(y).copy()
    wrong[5, 2] ^= 0x4000
    near = sptc.identify(b.T, a.T, wrong.T, **one, **turned).nearest
    assert (near.row, near.column) == (2, 5)


def test_each_candidate_forms_another_sum() -> None:
    i = instructions_for("f16", "sm_90")[0]
    plain = Way(instruction=str(i), result="f16")
    ways = [*candidates([[i]], plain, Expressions(lambda _: 24, (64, 64)))]
    assert len(set(ways)) == len(ways) > 250
    assert ways[0] == plain
    for same in ({"split_k": 2, "order": "reverse"}, {"promote": 12}, {"split_k": 3, "order": "tree"}):
        assert replace(plain, **same) not in ways  # the sums of this way are those of an earlier candidate
    assert {"tree", "halves", "reverse", "in order"} == {way.order for way in ways}
    dense = instructions_for("f16", "sm_90", dense=True)[0]
    orders = [way.order for way in candidates([[dense]], plain, Expressions(lambda _: 32, (64, 64)))]
    trees = sum(len([*permutations(range(n))]) - 2 for n in (3, 4, 5))
    assert sum(order.startswith("tree ") for order in orders) == trees


def test_a_probe_tells_ways_apart(tmp_path: Path) -> None:
    """With the factors of a probe, unlike Gaussian factors, several bf16 outputs distinguish two ways."""
    drawn_probe = probe((32, 32, 2048), format="bf16", result="bf16", seed=3)
    np.testing.assert_array_equal(drawn_probe.a, probe((32, 32, 2048), format="bf16", result="bf16", seed=3).a)
    assert drawn_probe.different > 30
    assert drawn_probe.least > drawn_probe.outputs / 4
    said = write_probe(tmp_path / "probe", drawn_probe)
    a, b = np.load(said["a"]), np.load(said["b"])
    y = sptc.gemm(a, b, format="bf16", result="bf16", split_k=7, backend="native")
    found = sptc.identify(a[:4], b, y[:4], format="bf16", result="bf16")
    assert (found.exact, found.way.split_k, found.equal) == (True, 7, ())


def test_torch_tensors(rng: Random) -> None:
    torch = pytest.importorskip("torch")
    a, b = (torch.from_numpy(array) for array in drawn(rng, "f16", (16, 16, 256)))
    y = torch.from_numpy(sptc.gemm(a, b, split_k=4)).to(torch.bfloat16)
    found = sptc.identify(a, b, y, format="f16", result="bf16")
    assert found.exact
    assert "all 256 outputs" in str(found)


A = np.tile(np.float16([1, 0]), (4, 32))
B, Y = np.ones((64, 2), np.float16), np.full((4, 2), 32, np.float32)


def test_codes_of_a_format_whose_type_numpy_does_not_know() -> None:
    """numpy knows the names of the types of ``ml_dtypes`` only after an import, which other tests have done."""
    script = "import numpy, sys; from sptc.gemm.matrices import typed_codes; assert 'ml_dtypes' not in sys.modules\n"
    script += "print(typed_codes(numpy.zeros(1, numpy.uint8), 'e4m3').dtype)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("float8_e4m3fn\n", "")


def test_dense_kernels_multiply_the_pruned_a(rng: Random) -> None:
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((8, 96), (96, 8)))
    sparse, dense = (instructions_for("f16", "sm_90", dense=dense)[0] for dense in (False, True))
    operands = Operands(a, b, sparse, prune=True, nan="error").of(Way(instruction=str(dense)))
    np.testing.assert_array_equal(operands.a.view(np.float16), expand(sparsify(a, "2:4", prune=True)))


def test_the_order_of_the_formats_of_an_instruction() -> None:
    mixed = "mma.sp.sync.aligned.m16n8k64.row.col.f32.e5m2.e4m3.f32"
    a, b = np.tile(np.uint8([0x3C, 0]), (16, 32)), np.full((64, 8), 0x3E, np.uint8)
    y = sptc.gemm(a, b, instruction=mixed)
    for factors, fmt, wrong in (((a, b, y), "e5m2,e4m3", "e4m3,e5m2"), ((b.T, a.T, y.T), "e4m3,e5m2", "e5m2,e4m3")):
        words = {"result": "f32", "instruction": mixed}
        assert sptc.identify(*factors, format=fmt, **words).exact
        with pytest.raises(Error, match=r"^mma.* multiplies e5m2 with e4m3, not "):
            sptc.identify(*factors, format=wrong, **words)


def test_what_is_refused() -> None:
    for operands, words, message in (
        ((np.ones_like(A), B, Y), {},
         r"^not 2:4 sparse: 64 of 64 .*; if both matrices are dense, give dense=True, or --dense$"),
        ((A, B[:32], Y), {}, r"^A has 64 columns and B 32 rows: they have no common K$"),
        ((A, B, Y[:3]), {}, r"^y must have the shape \(4, 2\) of the product, not \(3, 2\)$"),
        ((A, B, Y.astype("f2")), {}, r"^y must be a matrix of f32, as float32 or codes in uint32, not float16 of sh"),
        ((A, B, Y), {"result": "f64"}, r"^the result must be one of f32, "),
        ((A.view("u2"), B.view("u2"), Y), {"format": None}, r"^name the format of a and b, or an instruction$"),
        ((A, B * np.float16(np.nan), Y), {}, r"^b holds 128 NaN, the first in row 0, column 0$"),
        ((A[None], B, Y), {}, r"^a must be one matrix, not of shape \(1, 4, 64\)$"),
        ((A, B, Y), {"prune": True, "dense": True}, r"^prune needs a sparse instruction, but wgmma.* is dense$"),
        ((A, B, Y), {"beta": 1.0}, r"^beta is a factor of c, but c is missing$"),
        ((A, B, Y), {"bias": np.ones(7)}, r"^bias of shape \(7,\) does not broadcast to the shape of the product, \(4"),
    ):  # fmt: skip
        with pytest.raises(Error, match=message):
            sptc.identify(*operands, **{"format": "f16", "result": "f32", **words})


BF16 = "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16"
RECORDED = {
    name: (file, said)
    for file in ("products", "scaled")
    for name, said in json.loads((LIBRARIES / f"{file}.json").read_text(encoding="utf-8"))["products"].items()
    if "refused" not in said
}
#: Recorded products that the quick tier tests, in addition to those of cuSPARSELt.
QUICK = ("cublas.e4m3.256x128x2048.use_fast_accumFalse", "deepgemm.e4m3.64x128x512.scales1x128-by-1x128")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.regression) for name in RECORDED]
)
def test_what_libraries_computed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    import library_products

    file, said = RECORDED[name]
    every = (*library_products.products(), *library_products.scaled_products())
    (product,) = (product for product in every if product.name == name)
    assert library_products.digest_of(product) == said["operands"]
    with np.load(LIBRARIES / f"{file}.npz") as results:
        y = results[name]
    assert hashlib.sha256(y.tobytes()).hexdigest() == said["sha256"]
    identification = library_products.identified(product, y)
    assert (identification.exact, identification.compared) == (True, y.size)
    assert str(identification.way) == said["way"]


def test_what_xla_added_in_a_tree_over_bits() -> None:
    with np.load(LIBRARIES / "xla.npz") as arrays:
        a, b, y = (arrays[name] for name in "aby")
    way = sptc.identify(a, b, y, format="bf16", result="f32", instruction=BF16, dense=True).way
    assert way is not None
    assert (way.order, way.split_k) == ("tree 3 1 0 2", 16)
