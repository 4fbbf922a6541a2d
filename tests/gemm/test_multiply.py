"""``sptc.gemm`` gives right results for all kinds of operands, and rejects invalid input with one sentence."""

from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import sptc
from sptc.errors import Error, InstructionError, OperandError
from sptc.gemm.choice import instructions_for
from sptc.gemm.epilogue import Epilogue, to_codes
from sptc.gemm.matrices import dense_codes, factors, sparse_codes
from sptc.gemm.sources import read_factor
from sptc.gemm.ways import Way
from sptc.golden.matrix import multiply
from sptc.isa.formats import FORMATS
from sptc.isa.instructions import parse
from sptc.isa.metadata import GRANULARITIES
from sptc.isa.operands import MatrixOperands
from sptc.tensors.compressed import Compressed, NibbleError, SparsityError
from sptc.tensors.encode import decode_codes
from sptc.tensors.sparsify import sparsify
from sptc.tests.gemm.sparse_factors import sparse
from sptc.tests.isa.test_formats import DTYPES

Random = np.random.Generator
SCALED = "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X"
SCALED += ".f32.e4m3.e4m3.f32.ue8m0"
MIXED = "mma.sp.sync.aligned.m16n8k64.row.col.f32.e5m2.e4m3.f32"
DENSE = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
WGMMA = "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16"


def test_instructions_that_a_library_would_use_and_targets_of_the_assembler() -> None:
    for fmt, arch, instruction in (
        ("f16", "sm_90", "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16"),
        ("e4m3", "sm_90", "wgmma.mma_async.sp.sync.aligned.m64n8k64.f32.e4m3.e4m3"),
        ("tf32", "sm_90", "wgmma.mma_async.sp.sync.aligned.m64n8k16.f32.tf32.tf32"),
        ("s8", "sm_90", "wgmma.mma_async.sp.sync.aligned.m64n8k64.satfinite.s32.s8.s8"),
        ("bf16", "sm_80", "mma.sp.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32"),
        ("f16", "sm_100", "tcgen05.mma.sp.kind::f16 (m64n8k32.f32.f16.f16)"),
    ):
        first, *others = instructions_for(fmt, arch)
        assert str(first) == instruction
        assert all(i.k <= first.k or i.family != first.family for i in others), instruction
    found = sptc.gemm(HALVES, B, arch="sm_90a")
    np.testing.assert_array_equal(found, sptc.gemm(HALVES, B))
    assert sptc.identify(HALVES, B, found, format="f16", result="f32", arch="sm_90a").way.arch == "sm_90"
    with pytest.raises(InstructionError, match=r"^sm_103a does not have tcgen05.mma.sp.kind::i8 "):
        sptc.gemm(HALVES.astype(np.int8), B.astype(np.int8), arch="sm_103a", format="s8", accumulate="s32")


@pytest.mark.parametrize("fmt", ["f16", "bf16", "e4m3", "e5m2", "tf32", "s8"])
@pytest.mark.parametrize("arch", ["sm_90", "sm_100"])
def test_it_is_the_golden_model(rng: Random, fmt: str, arch: str) -> None:
    """Factors given as codes or as numbers give the results of a chain of instructions on the golden model."""
    i = instructions_for(fmt, arch)[0]
    k = 3 * i.k
    numbers = rng.standard_normal((5, k)), rng.standard_normal((k, 7))
    if fmt == "s8":
        numbers = rng.integers(-128, 128, (5, k)), rng.integers(-128, 128, (k, 7))
    dtype = {**DTYPES, "s8": np.int8}[fmt]
    a = numbers[0].astype(dtype)
    if fmt == "tf32":  # clear the low bits that tf32 drops, because pruning ignores them
        a = (a.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    compressed = sparsify(a, i.granularity, prune=True)
    b = numbers[1].astype(dtype)
    code = np.dtype(f"u{b.dtype.itemsize}")
    matrices = compressed.stored.view(code), b.view(code), np.zeros((5, 7), np.uint32), compressed.nibbles
    expected = multiply(i, arch, MatrixOperands(*(matrix[None] for matrix in matrices)))[0]
    found = sptc.gemm(a, b, format=fmt, arch=arch, prune=True)
    assert found.dtype == (np.int32 if fmt == "s8" else np.float32)
    np.testing.assert_array_equal(found.view(np.uint32), expected)
    for left in (a.view(code), a.view(code.str.replace("u", "i")), compressed):
        given = sptc.gemm(left, b.view(code), format=fmt, arch=arch, prune=left is not compressed, backend="native")
        np.testing.assert_array_equal(given, found)


def test_shapes(rng: Random) -> None:
    a, b = sparse(rng, 6, 44), rng.standard_normal((44, 5)).astype(np.float16)
    whole = sptc.gemm(a, b)
    np.testing.assert_allclose(whole, a.astype(float) @ b.astype(float), atol=1e-3)
    np.testing.assert_array_equal(sptc.gemm(a, b[:, 2]), whole[:, 2])
    c = rng.standard_normal(6).astype(np.float32)
    np.testing.assert_array_equal(sptc.gemm(a, b[:, 2], bias=c), whole[:, 2] + c)
    np.testing.assert_array_equal(sptc.gemm(a, b[:, 2], c), sptc.gemm(a, b, c[:, None])[:, 2])
    batch = sptc.gemm(np.stack([a, a[::-1]])[:, None], np.stack([b, b[:, ::-1], b]))
    assert batch.shape == (2, 3, 6, 5)
    np.testing.assert_array_equal(batch[1, 1], whole[::-1, ::-1])
    np.testing.assert_array_equal(sptc.gemm(b.T, a.T, swapped=True), whole.T)
    compressed = sparsify(a, "2:4")
    np.testing.assert_array_equal(sptc.gemm(compressed, np.stack([b, b]))[1], whole)
    np.testing.assert_array_equal(sptc.gemm(sparsify(a.astype(">f2"), "2:4"), b), whole)
    scales = {"group_scale_a": rng.random((5, 2), np.float32), "group_scale_b": rng.random((2, 6), np.float32)}
    np.testing.assert_array_equal(*[sptc.gemm(b.T, factor, swapped=True, **scales) for factor in (compressed, a.T)])


def test_metadata_that_fills_an_instruction_is_legal(rng: Random) -> None:
    for text in (
        "mma.sp.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32",
        "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32",
        "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32",
        "mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.s32.s4.s4.s32",
    ):
        i = parse(text)
        k = i.k + i.granularity.logical
        a, b = rng.integers(1, 5, (3, k)).astype(np.float32), rng.integers(0, 5, (k, 2)).astype(np.float32)
        filled = factors(sparse_codes("a", a, i, prune=True), dense_codes("b", b, i.b), i)
        assert filled.nibbles.shape == (3, 2 * i.chunks), text
        assert {*filled.nibbles.ravel().tolist()} <= i.rule.legal, text


def exactly(*steps: Fraction) -> np.float32:
    """Add exact numbers, and round the sum once to float32, to nearest even."""
    total = sum(steps, Fraction(0))
    if abs(total) >= 2**128 - 2**103:  # half a unit in the last place above the largest float32
        return np.float32(np.inf if total > 0 else -np.inf)
    near = np.float32(float(total))
    around = (np.nextafter(near, np.float32(-np.inf)), near, np.nextafter(near, np.float32(np.inf)))
    return min(around, key=lambda one: (abs(Fraction(float(one)) - total), one.view(np.uint32) & 1))


def product_of(one: float, other: float) -> float:
    """Multiply two numbers with one rounding to float32. An infinity remains an infinity."""
    return float(exactly(Fraction(one) * Fraction(other))) if np.isfinite([one, other]).all() else one * other


@pytest.mark.parametrize("exponents", [(-20, 20), (-149, 127)])
def test_every_operation_of_an_epilogue(rng: Random, exponents: tuple[int, int]) -> None:
    """Each operation of an epilogue rounds once. Multiplying by alpha and adding C is one fused multiply-add."""

    def numbers(*shape: int) -> np.ndarray:
        values = rng.uniform(1, 2, shape) * rng.choice([-1, 1], shape) * 2.0 ** rng.integers(*exponents, shape)
        return values.astype(np.float32)

    sums, arrays = numbers(8, 50), {"c": numbers(8, 50), "bias": numbers(50)}
    arrays |= {"scale_a": numbers(8, 1), "scale_b": numbers(1, 50)}
    signed = rng.choice([-1, 1], 2) * rng.uniform(1, 2, 2) * 2.0 ** rng.integers(-60, 60, 2)
    alpha, beta = (float(factor) for factor in signed.astype(np.float32))
    found = Epilogue(alpha=alpha, beta=beta, relu=True, **arrays).apply(sums)
    shaped = {name: np.broadcast_to(array, sums.shape) for name, array in arrays.items()}
    compared = 0
    for place in np.ndindex(sums.shape):
        scale_a, scale_b, c, bias = (float(shaped[name][place]) for name in ("scale_a", "scale_b", "c", "bias"))
        x = product_of(product_of(float(sums[place]), scale_a), scale_b)
        addend = product_of(beta, c)
        if np.isfinite([x, addend]).all():
            x = float(exactly(Fraction(x) * Fraction(alpha), Fraction(addend)))
        else:
            x = (x * alpha if np.isinf(x) else 0.0) + addend
        x = float(exactly(Fraction(x), Fraction(bias))) if np.isfinite(x) else x
        assert found[place] == max(x, 0) or np.isnan([found[place], x]).all(), place
        compared += 0 < found[place] < np.inf
    assert compared > 20
    clipped = Epilogue(relu=True).apply(np.float32([[-1, -np.inf, np.nan, np.inf, 2]]))
    np.testing.assert_array_equal(clipped, [[0, 0, np.nan, np.inf, 2]])


@pytest.mark.parametrize("result", ["f16", "bf16", "e4m3", "e5m2"])
def test_rounding_to_a_result(rng: Random, result: str) -> None:
    """A result is rounded to the nearest code, at a tie to the even code. Overflow saturates or becomes infinite."""
    fmt = FORMATS[result]
    every = np.arange(1 << fmt.bits - 1, dtype=np.uint16 if fmt.bits == 16 else np.uint8)
    numbers = decode_codes(every, fmt)
    every, numbers = every[np.isfinite(numbers)], numbers[np.isfinite(numbers)]
    below = rng.integers(0, len(numbers) - 1, 400)
    middle = ((numbers[below] + numbers[below + 1]) / 2).astype(np.float32)
    values = np.concatenate([middle, np.nextafter(middle, np.float32(np.inf)), np.nextafter(middle, np.float32(0))])
    for signed in (values, -values):
        np.testing.assert_array_equal(to_codes(signed, result), signed.astype(DTYPES[result]).view(every.dtype))
    toward = every[np.searchsorted(numbers, values.astype(float), side="right") - 1]
    np.testing.assert_array_equal(to_codes(values, result, "RZ"), toward)
    outside = np.inf if result == "bf16" else 1e30
    codes = to_codes(np.array([[outside, -outside, np.nan]], np.float32), result)[0]
    largest = numbers.max() if result in ("e4m3", "e5m2") else np.inf
    assert decode_codes(codes, fmt)[:2].tolist() == [largest, -largest]
    assert codes[2] == (1 << fmt.bits - 1) - 1


def test_integer_results(rng: Random) -> None:
    a, b = rng.integers(-128, 128, (4, 64)).astype(np.int8), rng.integers(-128, 128, (64, 3)).astype(np.int8)
    a[:, ::2] = 0
    exact = a.astype(np.int64) @ b
    assert sptc.gemm(a, b).dtype == np.int32
    for kind in (np.int64, np.int16, np.float64):  # integers in types other than int8
        np.testing.assert_array_equal(sptc.gemm(a.astype(kind), b.astype(kind), format="s8"), exact)
    np.testing.assert_array_equal(sptc.gemm(a, b, result="s8"), exact.clip(-128, 127))
    scaled = sptc.gemm(a, b, result="s8", alpha=0.001)
    np.testing.assert_array_equal(scaled, np.rint(exact.astype(np.float32) * np.float32(0.001)))
    halved = sptc.gemm(a, b, result="f16", scale_a=np.float32(0.5))
    np.testing.assert_array_equal(halved, (exact / 2).astype(np.float16))


def test_a_pruned_layer_of_pytorch() -> None:
    """The model gives the output of `torch.nn.Linear` on an H200 with 2:4 weights (cuSPARSELt), for one vector."""
    rng = np.random.default_rng(20261125)
    w = rng.standard_normal((256, 1024), np.float32)
    kept = np.argsort(rng.random((256, 256, 4)), axis=2) < 2
    x = rng.standard_normal(1024, np.float32).astype(np.float16)
    w = (w * kept.reshape(w.shape)).astype(np.float16)
    with np.load(Path(__file__).parents[2] / "recordings" / "libraries" / "layer.npz") as recorded:
        y = recorded["y"]
    found = sptc.gemm(w, x, result="f16")
    assert found.dtype == y.dtype
    np.testing.assert_array_equal(found.view(np.uint16), y.view(np.uint16))


def test_tensors(rng: Random) -> None:
    torch = pytest.importorskip("torch")
    weights, x = sparse(rng, 8, 64, np.float32), rng.standard_normal((64, 3)).astype(np.float32)
    for name, fmt, d in (("bfloat16", "bf16", "bf16"), ("float16", "f16", "f32"), ("float8_e4m3fn", "e4m3", "f32")):
        tensors = (torch.from_numpy(array).to(getattr(torch, name)) for array in (weights, x))
        product = sptc.gemm(*tensors, result=d)
        assert product.dtype.name == {"bf16": "bfloat16", "f32": "float32"}[d]
        np.testing.assert_array_equal(product, sptc.gemm(weights, x, format=fmt, result=d))
    halves = torch.from_numpy(weights).half().requires_grad_(), torch.from_numpy(x).half()[:, 0]
    np.testing.assert_array_equal(sptc.gemm(*halves), sptc.gemm(weights.astype(np.float16), x[:, 0], format="f16"))


@pytest.mark.regression
@pytest.mark.filterwarnings("ignore:The PyTorch API of SparseSemiStructuredTensor")
def test_semi_structured_tensors(rng: Random, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A or B may be a semi-structured tensor, also from a file. PyTorch expands cuSPARSELt tensors to dense."""
    torch = pytest.importorskip("torch")
    # A stub of `torch._dynamo`: the real module is slow to import.
    monkeypatch.setitem(torch.__dict__, "_dynamo", SimpleNamespace(allow_in_graph=id))
    from torch.sparse import SparseSemiStructuredTensorCUSPARSELT, SparseSemiStructuredTensorCUTLASS
    from torch.sparse._semi_structured_conversions import sparse_semi_structured_from_dense_cutlass

    weights, x = sparse(rng, 32, 128), rng.standard_normal((128, 5)).astype(np.float16)
    dense, right = torch.from_numpy(weights), torch.from_numpy(x)
    packed = sparse_semi_structured_from_dense_cutlass(dense)
    w = SparseSemiStructuredTensorCUTLASS(dense.shape, *packed, None, None, None)
    expected = sptc.gemm(weights, x, split_k=2)
    np.testing.assert_array_equal(sptc.gemm(w, right, split_k=2), expected)
    torch.save({"w": w, "x": right}, tmp_path / "state.pt")
    saved = read_factor(tmp_path / "state.pt", "w")
    assert isinstance(saved, Compressed)
    np.testing.assert_array_equal(sptc.gemm(saved, read_factor(tmp_path / "state.pt", "x"), split_k=2), expected)
    np.testing.assert_array_equal(sptc.gemm(right.T, w.t(), split_k=2, swapped=True), expected.T)
    found = sptc.identify(w, right, expected, format="f16", result="f32")
    assert found.exact
    assert found.way.split_k == 2

    class Packed(SparseSemiStructuredTensorCUSPARSELT):
        def to_dense(self) -> Any:
            return dense

    whole = Packed(dense.shape, dense.ravel(), None, None, None, None)
    np.testing.assert_array_equal(sptc.gemm(whole, right, split_k=2), expected)
    turned = Packed(dense.T.shape, None, None, dense.ravel(), None, None)
    turned.to_dense = lambda: dense.T
    np.testing.assert_array_equal(sptc.gemm(right.T, turned, split_k=2, swapped=True), expected.T)


A, B = np.ones((4, 8), np.float16), np.ones((8, 2), np.float16)
HALVES = np.tile(np.float16([1, 0]), (4, 4))
NAN = np.where(np.arange(32).reshape(4, 8) == 10, np.float16(np.nan), HALVES)

#: Rejected operands and keyword arguments, and the expected message.
REFUSED: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
    ((A, B), {}, r"^not 2:4 sparse: 8 of 8 chunks have more than 2 of 4 elements that are not zero \(first: row"),
    ((HALVES, B[:4]), {}, r"^A has 8 columns and B 4 rows: they have no common K$"),
    ((NAN, B), {}, r"^a holds 1 NaN, the first in row 1, column 2$"),
    ((HALVES, NAN.T), {}, r"^b holds 1 NaN, the first in row 2, column 1$"),
    ((HALVES, B.astype(complex)), {}, r"^b must hold bit patterns or numbers of f16, not values of type complex128$"),
    ((HALVES.astype("f8"), B.astype("f8")), {}, r"^the types of a and b do not imply a format: name a format or"),
    ((HALVES, B), {"format": "f61"}, r"^the format must be one of f32, f16, "),
    ((HALVES, B), {"arch": "sm_70"}, r"^'sm_70' is no known architecture; "),
    ((HALVES, B), {"result": "f64"}, r"^the result must be one of f32, f16, bf16, e4m3, e5m2, s32, s8, not"),
    ((HALVES, B), {"result": "s32"}, r"^the result of wgmma.* must be f32 or f16 or bf16 or e4m3 or e5m2 or"),
    ((HALVES, B), {"order": "any", "split_k": 1, "nan": "maybe"}, r"^the policy for NaN must be one of error, k"),
    ((HALVES, B), {"bias": np.ones(3)}, r"^bias of shape \(3,\) does not broadcast to the shape of the product, \(4"),
    ((HALVES, B, np.ones((4, 2))), {}, r"^c must hold f32, as float32 or as codes in uint32, not float64$"),
    ((HALVES, B), {"instruction": WGMMA, "format": "e4m3"}, r"^wgmma.* multiplies f16 with f16, not e4m3$"),
    ((HALVES, B), {"instruction": MIXED, "format": "e4m3,e5m2"}, r"^mma.* multiplies e5m2 with e4m3, not e4m3,e5m2$"),
    ((HALVES, B), {"instruction": MIXED, "format": "e4m3"}, r"^mma.* multiplies e5m2 with e4m3, not e4m3$"),
    ((HALVES, B), {"way": Way(instruction=MIXED, swapped=True), "format": "e5m2,e4m3"}, r"^mma.* not e4m3,e5m2$"),
    ((A, B), {"instruction": DENSE, "prune": True}, r"^prune needs a sparse instruction, but mma.* is dense$"),
    ((HALVES, B), {"instruction": WGMMA, "accumulate": "f16"}, r"^wgmma.* accumulates in f32, not f16$"),
    ((HALVES, B), {"format": "f16", "accumulate": "s32"}, r"^sm_90 has no sparse instruction for f16 that accum"),
    (([1.0], B), {}, r"^a must be an array of numpy or a tensor of PyTorch, not list$"),
    ((np.zeros((0, 4, 8), np.float16), B), {}, r"^a must be a matrix or a batch of matrices, not of shape \(0, 4"),
    ((HALVES, B), {"bias": np.array(["x", "y"])}, r"^bias must hold numbers, not <U1$"),
    ((HALVES[0], B), {}, r"^a must be a matrix or a batch of matrices, not of shape \(8,\)$"),
    ((HALVES * 0.3, B), {"format": "s8"}, r"^a must hold integers from -128 to 127, the range of s8, not 0.3.* in row"),
    ((np.stack([HALVES] * 2), np.stack([B] * 3)), {}, r"^the batch shapes \(2,\) of a and \(3,\) of b do not broadc"),
    ((HALVES, B), {"way": Way(instruction=WGMMA), "split_k": 2}, r"^give either the argument way or its"),
    ((HALVES, sparsify(HALVES, "2:4")), {}, r"^b is the dense factor and cannot be compressed$"),
    ((HALVES, B), {"instruction": SCALED, "arch": "sm_120"}, r"^mma.* needs block scales, but none are given$"),
    ((sparsify(HALVES, "1:2"), B), {}, r"^wgmma.* needs a matrix compressed to 2:4, not a matrix compressed to 1:2$"),
    ((HALVES, B), {"instruction": WGMMA, "arch": "sm_80"}, r"^sm_80 does not have wgmma"),
]  # fmt: skip


def test_what_is_refused() -> None:
    types = {"^not 2:4": SparsityError, "^sm_80 ": InstructionError, "^A has": OperandError}
    for operands, words, message in REFUSED:
        kind = next((kind for start, kind in types.items() if message.startswith(start)), Error)
        with pytest.raises(kind, match=message):
            sptc.gemm(*operands, **words)


def test_what_policies_let_through() -> None:
    assert sptc.gemm(NAN, B, nan="keep").view(np.uint32)[1].tolist() == [0x7FFFFFFF] * 2
    np.testing.assert_array_equal(sptc.gemm(NAN, B, nan="zero")[1], [3, 3])
    assert sptc.gemm(NAN.astype(np.float32), B, nan="zero", format="f16")[1, 0] == 3
    wrong = sptc.Compressed(np.ones((4, 4), np.float16), np.full((4, 2), 0b0101, np.uint8), GRANULARITIES["2:4"])
    with pytest.raises(NibbleError, match="undefined metadata"):
        sptc.gemm(wrong, B)


def test_the_package_gemm_does_not_hide_the_function() -> None:
    import sptc.gemm.product

    assert sptc.gemm.product.__name__ == "sptc.gemm.product"
    np.testing.assert_array_equal(sptc.gemm(HALVES, B), np.full((4, 2), 4, np.float32))
    with pytest.raises(AttributeError, match="has no attribute 'gemmm'"):
        sptc.gemmm  # noqa: B018
