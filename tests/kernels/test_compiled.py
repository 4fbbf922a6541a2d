"""Each output of a kernel that Triton compiles, for several architectures, equals a chain of instructions along K."""

from typing import Any

import numpy as np
import pytest
import sptc
from numpy.typing import NDArray
from sptc import TensorMap
from sptc.tensors.element_types import TYPE_OF, named_dtype

#: Triton 3.9 warns that its default for fusing multiplications and additions will change.
pytestmark = [pytest.mark.regression, pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION")]
pytest.importorskip("triton", reason="Triton is not installed: pip install 'sptc[triton]'")
import triton  # noqa: E402
import triton.language as tl  # noqa: E402
from sptc.tests.kernels.triton_kernels import device_maps, host_maps, pointers, scaled  # noqa: E402

M = N = 256
K = 192
#: Triton 3.6 generates no proxy fence between cp.async and wgmma or tcgen05.mma; Triton 3.8 generates one.
WITHOUT_FENCE = triton.__version__.startswith("3.6.")
BLOCK = {"BM": 128, "BN": 128, "BK": 64}


def chain(kind: str, arch: str) -> str:
    """Return the instruction that Triton generates for a type of A and B on an architecture."""
    d, k = ("s32" if kind == "s8" else "f32"), 256 // {"f16": 16, "bf16": 16, "e4m3": 8, "s8": 8, "tf32": 32}[kind]
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
    if kind == "tf32":  # take exact tf32 numbers, since kernels differ in how they round f32 to tf32
        return (values.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    return values.astype(named_dtype(TYPE_OF[kind]))


CASES = [
    *(("pointers", kind, arch) for arch in ("sm_80", "sm_89", "sm_90", "sm_100", "sm_120")
      for kind in ("f16", "bf16", "e4m3", "s8", "tf32") if (kind, arch) != ("e4m3", "sm_80")),
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
    reads_shared_memory = arch == "sm_90" or (arch == "sm_100" and kind != "s8")  # s8 kernels of sm_100 use mma
    assert bool(run.findings) == (WITHOUT_FENCE and way == "pointers" and reads_shared_memory)


#: Block-scaled formats: element format, elements per byte, elements per scale, scale type, qualifiers (mma, tcgen05).
SCALED = {
    "mxfp8": ("e4m3", 1, 32, "float8_e8m0fnu", "mxf8f6f4.block_scale.scale_vec::1X", "mxf8f6f4.block_scale"),
    "mxfp4": ("e2m1", 2, 32, "float8_e8m0fnu", "mxf4nvf4.block_scale.scale_vec::2X", "mxf4.block_scale"),
    "nvfp4": ("e2m1", 2, 16, "float8_e4m3fn", *["mxf4nvf4.block_scale.scale_vec::4X"] * 2),
}


@pytest.mark.parametrize("arch", ["sm_100", "sm_120"])
@pytest.mark.parametrize("name", SCALED)
def test_block_scales(name: str, arch: str, rng: np.random.Generator) -> None:
    kind, packed, group, scales, of_mma, of_tcgen05 = SCALED[name]
    k = 256
    a, b = (rng.integers(0, 256, (M, k // packed), np.uint8) & (0xBF if packed == 1 else 0xFF) for _ in "ab")
    low, high = (0, 0x78) if group == 16 else (120, 130)
    sa, sb = (rng.integers(low, high, (M, k // group), np.uint8).view(named_dtype(scales)) for _ in "ab")
    d = np.zeros((M, N), np.float32)
    operands = [array if packed == 2 else array.view(named_dtype(TYPE_OF["e4m3"])) for array in (a, b)]
    run = sptc.triton.run(scaled, (2, 2), *operands, d, sa, sb, N, k, BM=128, BN=128, BK=128, FORMAT=kind,
                          PACKED=packed, GROUP=group, arch=arch)  # fmt: skip
    if packed == 2:
        pairs = (np.stack([array & 15, array >> 4], -1).reshape(M, k) for array in (a, b))
        operands = [array.view(named_dtype("float4_e2m1fn")) for array in pairs]
    scale = "ue4m3" if group == 16 else "ue8m0"
    depth = 32 * packed
    if arch == "sm_120":
        text = f"mma.sync.aligned.m16n8k{depth}.row.col.kind::{of_mma}.f32.{kind}.{kind}.f32.{scale}"
    else:
        text = f"tcgen05.mma.cta_group::1.kind::{of_tcgen05} (m128n128k{depth}.f32.{kind}.{kind}.{scale})"
    expected = sptc.gemm(operands[0], np.ascontiguousarray(operands[1].T), instruction=text, arch=arch,
                         block_scale_a=sa, block_scale_b=sb)  # fmt: skip
    np.testing.assert_array_equal(run.after(d).view(np.uint32), expected.view(np.uint32))
    kinds = {"no proxy fence"} if WITHOUT_FENCE and arch == "sm_100" else set()
    assert {finding.kind for finding in run.findings} == kinds
