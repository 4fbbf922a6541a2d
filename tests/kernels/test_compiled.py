"""Kernels that Triton compiles here for architectures whose GPU nobody has: each output is that of a chain along K."""

from typing import Any

import numpy as np
import pytest
import sptc
from numpy.typing import NDArray
from sptc.kernels.launch import TensorMap
from sptc.tensors.element_types import named_dtype

pytestmark = pytest.mark.regression
pytest.importorskip("triton", reason="Triton is not installed: pip install 'sptc[triton]'")
import triton.language as tl  # noqa: E402
from sptc.tests.kernels.triton_kernels import device_maps, host_maps, pointers  # noqa: E402

TYPES = {"f16": "float16", "bf16": "bfloat16", "e4m3": "float8_e4m3fn", "s8": "int8", "tf32": "float32"}
M = N = 256
K = 192
BLOCK = {"BM": 128, "BN": 128, "BK": 64}


def chain(kind: str, arch: str) -> str:
    """Return the instruction that Triton chooses for a type."""
    bits = {"f16": 16, "bf16": 16, "e4m3": 8, "s8": 8, "tf32": 32}[kind]
    d, k = ("s32" if kind == "s8" else "f32"), 256 // bits
    if arch == "sm_100":
        family = {"f16": "f16", "bf16": "f16", "e4m3": "f8f6f4", "s8": "i8", "tf32": "tf32"}[kind]
        return f"tcgen05.mma.cta_group::1.kind::{family} (m128n128k{k}.{d}.{kind}.{kind})"
    if arch == "sm_90":
        return f"wgmma.mma_async.sync.aligned.m64n128k{k}.{d}.{kind}.{kind}"
    return f"mma.sync.aligned.m16n8k{k}.row.col.{d}.{kind}.{kind}.{d}"


def operand(kind: str, shape: tuple[int, int], rng: np.random.Generator) -> NDArray:
    if kind == "s8":
        return rng.integers(-128, 128, shape).astype(np.int8)
    values = rng.standard_normal(shape).astype(np.float32)
    if kind == "tf32":  # rounded already, since kernels differ in how they do
        return (values.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    return values.astype(named_dtype(TYPES[kind]))


CASES = [
    *(("pointers", kind, arch) for arch in ("sm_80", "sm_89", "sm_90", "sm_100", "sm_120")
      for kind in TYPES if (kind, arch) != ("e4m3", "sm_80")),
    *(("host maps", kind, arch) for arch in ("sm_90", "sm_100", "sm_120") for kind in ("f16", "bf16", "e4m3")),
    *(("device maps", "f16", arch) for arch in ("sm_80", "sm_89", "sm_90", "sm_100", "sm_120")),
]  # fmt: skip


@pytest.mark.parametrize(("way", "kind", "arch"), CASES)
def test_a_kernel_is_a_chain(way: str, kind: str, arch: str, rng: np.random.Generator) -> None:
    a, b = operand(kind, (M, K), rng), operand(kind, (N, K), rng)
    d = np.zeros((M, N), np.int32 if kind == "s8" else np.float32)
    block = BLOCK | ({"BK": 32} if kind == "tf32" else {})
    grid = (M // block["BM"], N // block["BN"])
    options: dict[str, Any] = {"arch": arch, "options": {"check": way == "pointers"}}
    if way == "pointers":
        sums = tl.int32 if kind == "s8" else tl.float32
        run = sptc.triton.run(pointers, grid, a, b, d, M, N, K, K, 1, 1, K, **block, SUM=sums, **options)
    elif way == "host maps":
        maps = [TensorMap(array, box) for array, box in ((a, (128, 64)), (b, (128, 64)), (d, (128, 128)))]
        run = sptc.triton.run(host_maps, grid, *maps, K, **block, **options)
    else:
        run = sptc.triton.run(device_maps, grid, a, b, d, M, N, K, **block, **options)
    right = np.ascontiguousarray(b.T)
    form = {"format": "tf32"} if kind == "tf32" else {}
    expected = sptc.gemm(a, right, instruction=chain(kind, arch), arch=arch, backend="native", **form)
    np.testing.assert_array_equal(run.after(d).view(np.uint32), expected.view(np.uint32))
    assert all(finding.kind == "no proxy fence" for finding in run.findings)
    assert bool(run.findings) == (way == "pointers" and arch == "sm_90")
