"""``sptc.gemm`` and ``sptc.identify`` reproduce how fp8, fp4 and tf32 kernels scale, convert and add."""

from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import sptc
from sptc.errors import Error
from sptc.gemm.epilogue import SCALE_ORDERS
from sptc.gemm.ways import CONVERSIONS, GROUP_SCALINGS, Way
from sptc.tests.gemm.sparse_factors import Random, drawn
from sptc.tests.gemm.test_identify import codes
from sptc.tests.gemm.test_multiply import exactly

E4M3, E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
FP8 = "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3"
TF32 = "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"
BF16 = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
HALF = "wgmma.mma_async.sp.sync.aligned.m64n8k32.f16.f16.f16"
SPARSE = "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
MXFP8 = "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e4m3.f32.ue8m0"
INTEGER = "wgmma.mma_async.sp.sync.aligned.m64n8k64.satfinite.s32.s8.s8"
M, N, K = 8, 6, 512


@pytest.fixture(autouse=True)
def few_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit the number of stream-K ways and of other ways that the search tries."""
    monkeypatch.setattr("sptc.gemm.candidates._MOST_ASKED", 100)
    monkeypatch.setattr("sptc.gemm.search._TRIED_BESIDE", 250)


def fp8(rng: Random, dtype: Any = E4M3, other: Any = E4M3) -> tuple[np.ndarray, np.ndarray]:
    return rng.standard_normal((M, K)).astype(dtype), rng.standard_normal((K, N)).astype(other)


def group_scales(rng: Random, columns: int = N) -> dict[str, np.ndarray]:
    shapes = {"group_scale_a": (M, K // 128), "group_scale_b": (K // 128, columns)}
    return {name: rng.uniform(0.5, 2, shape).astype(np.float32) for name, shape in shapes.items()}


def plainly(parts: list[np.ndarray], scale_a: np.ndarray, scale_b: np.ndarray, scaling: str) -> np.ndarray:
    """Add the scaled partial sums in exact arithmetic, with one rounding for each operation of `scaling`."""
    order, addition = scaling.split(", ")
    result = np.zeros(parts[0].shape, np.float32)
    for m, n in np.ndindex(*result.shape):
        total = np.float32(0)
        for number, part in enumerate(parts):
            group = number * (K // len(parts)) // 128
            a, b, p = (Fraction(float(x)) for x in (scale_a[m, group], scale_b[group, n], part[m, n]))
            one, other = {"product": (a * b, p), "a then b": (p * a, b), "b then a": (p * b, a)}[order]
            product = Fraction(float(exactly(one))) * other
            product = product if addition == "fused" else Fraction(float(exactly(product)))
            total = exactly(product, Fraction(float(total)))
        result[m, n] = total
    return result


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("scaling", GROUP_SCALINGS)
def test_group_scales(rng: Random, scaling: str) -> None:
    """Each `group_scaling` equals rounded exact arithmetic. `identify` finds it, but not if an output is wrong."""
    (a, b), scales, promote = fp8(rng), group_scales(rng), int(rng.choice([2, 4]))
    words: dict[str, Any] = {"instruction": FP8, "promote": promote, "backend": "native"}
    chain = 32 * promote
    parts = [sptc.gemm(a[:, k : k + chain], b[k : k + chain], instruction=FP8) for k in range(0, K, chain)]
    y = sptc.gemm(a, b, **words, **scales, group_scaling=scaling)
    np.testing.assert_array_equal(y, plainly(parts, *scales.values(), scaling))
    found = sptc.identify(a, b, y, result="f32", instruction=FP8, **scales)
    assert (found.exact, found.way.promote, found.way.group_scaling) == (True, promote, scaling)
    np.testing.assert_array_equal(sptc.gemm(a, b, way=found.way, **scales), y)
    other = str(rng.choice([one for one in GROUP_SCALINGS if one != scaling]))
    changed = sptc.gemm(a, b, **words, **scales, group_scaling=other)
    place = tuple(np.argwhere(changed != y)[0])
    y[place] = changed[place]
    missed = sptc.identify(a, b, y, result="f32", instruction=FP8, **scales)
    assert (missed.exact, missed.nearest.differing) == (False, 1)


def test_shapes_of_group_scales(rng: Random) -> None:
    """A group scale of B applies to 128 columns or to one, also as `scale_b`, in batches, vectors and transposes."""
    (a, b), scales = fp8(rng), group_scales(rng, 1)
    words: dict[str, Any] = {"instruction": FP8, "backend": "native"}
    whole = {"group_scale_a": scales["group_scale_a"], "group_scale_b": scales["group_scale_b"].repeat(N, 1)}
    y = sptc.gemm(a, b, **words, **whole)
    np.testing.assert_array_equal(sptc.gemm(a, b, **words, **scales), y)
    given = {"scale_a": scales["group_scale_a"], "scale_b": scales["group_scale_b"]}
    np.testing.assert_array_equal(sptc.gemm(a, b, **words, promote=4, **given), y)
    assert sptc.identify(a, b, y, result="f32", instruction=FP8, **given).exact
    np.testing.assert_array_equal(sptc.gemm(a, b[:, 0], **words, **scales), y[:, 0])
    np.testing.assert_array_equal(sptc.gemm(np.stack([a, a]), b, **words, **scales)[1], y)
    for promote in (2, 4):
        known = sptc.identify(a, b, y, result="f32", instruction=FP8, promote=promote, **whole)
        assert known.exact == (promote == 4)
        assert known.nearest.way.promote == promote
    with pytest.raises(Error, match=r"^no instruction has partial sums that end where each scale group of 128"):
        sptc.identify(a, b, y, result="f32", dense=True, promote=32, **whole)
    assert not sptc.identify(a, b, y, result="f32", instruction=FP8, promote=4).exact
    turned = {"group_scale_a": whole["group_scale_b"].T, "group_scale_b": whole["group_scale_a"].T}
    way = Way(instruction=FP8, promote=4, group_scaling="b then a, fused", swapped=True)
    other = sptc.gemm(a, b, **words, **whole, group_scaling="a then b, fused")
    np.testing.assert_array_equal(sptc.gemm(b.T, a.T, way=way, **turned), other.T)
    epilogue = {"scale_a": np.float32(0.7), "bias": np.ones(N)}
    y = sptc.gemm(a, b, **words, **scales, **epilogue, split_k=2, result="bf16")
    found = sptc.identify(a, b, y, result="bf16", instruction=FP8, **scales, **epilogue)
    assert found.exact
    np.testing.assert_array_equal(codes(sptc.gemm(a, b, way=found.way, **scales, **epilogue)), codes(y))
    none = {"group_scale_a": None, "group_scale_b": None}
    for change, message in (
        ({"promote": 8}, r"^a partial sum of elements 0 to 255 along K spans several groups of 128"),
        ({"group_scale_b": None}, r"^group_scale_b is missing: give group scales of both factors or of neither$"),
        ({"group_scale_b": np.ones((3, N))},
         r"^group_scale_a must be of shape \(M, groups along K\) and group_scale_b"),
        ({"group_scale_b": np.ones((4, 2))},
         r"^group_scale_b must have one scale for each of 6 columns, one for each 128 "),
        ({"c": np.ones((M, N))}, r"^with group scales, c cannot be the initial accumulator: give beta"),
        ({**none, "group_scaling": GROUP_SCALINGS[0]}, r"^a method of summation with group_scaling"),
    ):  # fmt: skip
        with pytest.raises(Error, match=message):
            sptc.gemm(a, b, **{**words, **scales, **change})


@pytest.mark.parametrize("order", SCALE_ORDERS)
def test_order_of_scales(rng: Random, order: str) -> None:
    a, b = fp8(rng)
    scales = {"scale_a": rng.uniform(0.5, 2, (M, 1)), "scale_b": rng.uniform(0.5, 2, N)}
    y = sptc.gemm(a, b, instruction=FP8, scale_order=order, promote=4, **scales)
    found = sptc.identify(a, b, y, result="f32", instruction=FP8, **scales)
    assert (found.exact, found.way.scale_order) == (True, order)
    sums = sptc.gemm(a, b, instruction=FP8, promote=4)
    first, last = (np.float32(scales[f"scale_{name}"]) for name in ("ba" if order == "b then a" else "ab"))
    np.testing.assert_array_equal(y, sums * (first * last) if order == "product" else sums * first * last)


def rounded(x: np.ndarray, conversion: str) -> np.ndarray:
    """Round float32 to 10 fraction bits in exact arithmetic, with ties away from zero or to even."""
    significand, exponent = np.frexp(x.astype(np.float64))
    scaled = significand * 2048
    whole = np.rint(scaled) if conversion == "cvt.rn" else np.sign(scaled) * np.floor(np.abs(scaled) + 0.5)
    return np.ldexp(whole, exponent - 11).astype(np.float32) if conversion else x


def test_conversions_to_tf32(rng: Random) -> None:
    a, b = rng.standard_normal((M, 64)).astype(np.float32), rng.standard_normal((64, N)).astype(np.float32)
    a.view(np.uint32)[:] &= np.uint32(0xFFFFF000)  # half of the numbers are ties when rounded to tf32
    for of_a, of_b in ((CONVERSIONS[1],) * 2, (CONVERSIONS[2],) * 2, ("cvt.rna", ""), ("", "cvt.rna"), ("", "")):
        words = {"instruction": TF32, "convert_a": of_a, "convert_b": of_b, "split_k": 2}
        y = sptc.gemm(a, b, **words)
        np.testing.assert_array_equal(y, sptc.gemm(rounded(a, of_a), rounded(b, of_b), instruction=TF32, split_k=2))
        found = sptc.identify(a, b, y, result="f32", instruction=TF32)
        assert (found.exact, found.way.convert_a, found.way.convert_b) == (True, of_a, of_b)
        assert "f32 matrices: A and B hold numbers that tf32 cannot represent" in str(found)
    wrong = codes(y).copy()
    wrong[0, 0] ^= 1
    assert not sptc.identify(a, b, wrong, result="f32", instruction=TF32).exact
    special = np.float32([[np.nan, np.inf, -np.inf, 3.4e38, 1e-45, 0, -0.0, 1.0005]])
    eye = np.eye(8, dtype=np.float32)[:, 7:]
    assert np.isnan(sptc.gemm(special, eye, instruction=TF32, convert_a="cvt.rna", nan="keep")).all()  # 0 x Inf: NaN
    with pytest.raises(Error, match=r"^convert_a applies only to factors in tf32, not to the factors of wgmma"):
        sptc.gemm(*fp8(rng), instruction=FP8, convert_a="cvt.rna")


def test_mixed_formats(rng: Random) -> None:
    """The types of the arrays determine the formats of A and B, no matter which of the two is sparse."""
    a, b = fp8(rng, E4M3, E5M2)
    a[:, ::2] = 0
    y = sptc.gemm(a, b, backend="native")
    np.testing.assert_array_equal(y, sptc.gemm(a.view("u1"), b.view("u1"), format="e4m3,e5m2"))
    found = sptc.identify(a, b, y, result="f32")
    assert (found.exact, found.way.instruction[-14:]) == (True, ".f32.e4m3.e5m2")
    np.testing.assert_array_equal(sptc.gemm(b.T, a.T, swapped=True), y.T)
    found = sptc.identify(b.T, a.T, y.T, result="f32")
    assert (found.exact, found.way.swapped, found.way.instruction[-9:]) == (True, True, "e4m3.e5m2")
    with pytest.raises(Error, match=r"^sm_90 has no sparse instruction for e4m3 by e2m1$"):
        sptc.gemm(a, b, format="e4m3,e2m1")


def test_a_dense_kernel_of_a_sparse_matrix(rng: Random) -> None:
    """`identify` also finds a dense kernel of a sparse matrix, as in `torch._scaled_mm`, and lists all equal ways."""
    a, b = fp8(rng)
    a[:, ::2] = 0
    for result, promote in (("f32", 4), ("bf16", 0)):
        scales = {"scale_a": rng.uniform(0.5, 2, (M, 1)), "scale_b": rng.uniform(0.5, 2, N)}
        y = sptc.gemm(a, b, instruction=FP8, promote=promote, result=result, **scales)
        found = sptc.identify(a, b, y, result=result, **scales)
        assert found.exact
        np.testing.assert_array_equal(codes(sptc.gemm(a, b, way=found.way, **scales)), codes(y))
        if result == "f32":
            assert found.way.instruction == FP8
            assert any(way.promote == promote for way in (found.way, *found.alike))
    half = drawn(rng, (M, N, K))
    y = sptc.gemm(*half, split_k=2)
    found = sptc.identify(*half, y, result="f32")
    assert found.way.split_k == 2
    heads = {name.partition(".m16")[0] for name in found.instructions_alike}
    assert heads == {"mma.sp.sync.aligned", "mma.sp::ordered_metadata.sync.aligned"}
    for name in found.instructions_alike:
        np.testing.assert_array_equal(sptc.gemm(*half, instruction=name, split_k=2), y)
    for way in found.alike:
        np.testing.assert_array_equal(sptc.gemm(*half, way=way), y)
    assert "not distinguished: " in str(found)
    assert found.record()["diagnosis"] is None


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("number", range(6))
def test_other_numerics(rng: Random, number: int) -> None:
    """With a changed F, step length and rounding, golden model and C++ library agree on a different result."""
    name = (FP8, TF32, HALF, SPARSE, MXFP8, BF16)[number]
    arch = "sm_120" if name == MXFP8 else "sm_90"
    own = sptc.numerics(arch, name)
    bits, products = rng.integers(6, 12), rng.choice([1, 2, 4, 8, own.step])
    rounding = str(rng.choice(["RZ-f32", "RNE-f32", "RZ-E8M13"])) if name != HALF else "RNE-f16"
    changed = own.replace(alignment_bits=bits, products=products, rounding=rounding)
    a, b = rng.standard_normal((M, K)), rng.standard_normal((K, N))
    a[:, ::2] = 0
    words: dict[str, Any] = {"instruction": name, "arch": arch, "split_k": 2}
    if name == MXFP8:
        words |= {f"block_scale_{one}": 2.0 ** rng.integers(-3, 4, (m, K // 32)) for one, m in (("a", M), ("b", N))}
    y = sptc.gemm(a, b, numerics=changed, **words)
    np.testing.assert_array_equal(sptc.gemm(a, b, numerics=changed, backend="native", **words), y)
    np.testing.assert_array_equal(sptc.gemm(a, b, numerics=own, **words), sptc.gemm(a, b, **words))
    assert (sptc.gemm(a, b, **words) != y).any()


def test_other_numerics_of_registers_and_of_a_search(rng: Random) -> None:
    a, b = rng.standard_normal((16, 64)).astype(np.float32), rng.standard_normal((64, 8)).astype(np.float32)
    changed = sptc.numerics("sm_90", TF32).replace(alignment_bits=12)
    assert changed == sptc.numerics("sm_90", TF32).replace(zero_exponent=-120, alignment_bits=12)  # e_zero depends on F
    y = sptc.gemm(a, b, instruction=TF32, numerics=changed)
    found = sptc.identify(a, b, y, instruction=TF32, result="f32", numerics=changed)
    assert (found.exact, found.instructions_alike) == (True, ())
    assert not sptc.identify(a, b, y, instruction=TF32, result="f32").exact
    d = sptc.pack(TF32, a[:, :8], b[:8])
    for backend in ("golden", "native"):
        tile = sptc.mma(**d, numerics=changed, backend=backend)
        expected = sptc.gemm(a[:, :8], b[:8], instruction=TF32, numerics=changed)
        np.testing.assert_array_equal(sptc.unpack(TF32, d=tile).d, expected)
    for change, message in (
        ({"alignment_bits": 27}, r"^alignment_bits must be one of 1, .*, 26, not 27$"),
        ({"alignment_bits": 17.0}, r"^alignment_bits must be one of 1, .*, 26, not 17.0$"),
        ({"products": 8, "step": 4}, r"^products and step are two names of one number: give only one of them$"),
        ({"alignment_bits": 24, "zero_exponent": 3}, r"^zero_exponent must be one of -120, -282, -132, not 3$"),
        ({"products": 3}, r"^step must be one of 1, 2, 4, 8, 16, 32, 64, not 3$"),
        ({"rounding": "RNE-f16"}, r"^rounding must be one of RZ-f32, RZ-E8M13, RNE-f32, RNE-E8M13, not 'RNE-f16'$"),
        ({"method": "fused"},
         r"^field 'method' of numerics cannot be changed, only step, alignment_bits, rounding, align"),
    ):  # fmt: skip
        with pytest.raises(Error, match=message):
            changed.replace(**change)
    words: dict[str, Any] = {"instruction": TF32, "numerics": changed}
    for given, message in (
        ({"backend": "pysim"}, r"^the chosen back end cannot change its numerics: use back end golden or native$"),
        ({"instruction": INTEGER, "prune": True}, r"^the given numerics do not fit wgmma.*: method, step length or"),
        ({"numerics": 17}, r"^numerics must be a record that sptc.numerics returned, not 17$"),
        ({"numerics": changed.replace(alignment="down"), "backend": "native"}, r"can only truncate terms toward zero"),
    ):
        with pytest.raises(Error, match=message):
            sptc.gemm(np.sign(a), np.sign(b), **{**words, **given})
    with pytest.raises(Error, match=r"^the argument 'numerics' applies to one instruction, so 'inst"):
        sptc.identify(a, b, y, format="tf32", dense=True, result="f32", numerics=changed)
    with pytest.raises(Error, match=r"^integer instructions sum exactly: their numerics have no parameters to change$"):
        sptc.numerics("sm_90", INTEGER).replace(alignment_bits=12)
