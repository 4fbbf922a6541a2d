"""Recorded kernels of Triton, TileLang and CuTe: every result equals that of an H100."""

import numpy as np
import pytest
import sptc
from sptc.tensors.element_types import named_dtype
from sptc.tests.kernels.recorded import BLACKWELL, CUTE, TILELANG, TRITON, compiled_kernel

#: Kernels that access accumulators before the wait: Triton relies on the assembler to complete the multiplication.
WITHOUT_WAIT = ("f16.f16_accumulators", "e4m3.imprecise64")


def check(name: str) -> int:
    """Run a kernel, and return the number of its outputs."""
    kernel = compiled_kernel(name)
    result, run = kernel.run(check=False)
    kernel.assert_equal(result)
    assert bool(run.findings) == (name in WITHOUT_WAIT), name
    return result.size


def test_some(rng: np.random.Generator) -> None:
    for names in (TRITON, TILELANG, CUTE):
        check(str(rng.choice(names)))
    check_blackwell(str(rng.choice(BLACKWELL)))


@pytest.mark.regression
def test_all() -> None:
    assert sum(map(check, TRITON)) > 13_000_000
    assert sum(map(check, TILELANG)) > 3_000_000
    assert sum(map(check, CUTE)) > 1_300_000
    assert (len(TRITON), len(TILELANG), len(CUTE)) == (50, 40, 7)
    for name in BLACKWELL:
        check_blackwell(name)


def check_blackwell(name: str) -> None:
    """Compare the result of a kernel that was not run on a GPU with a chain of its instruction along K."""
    kernel = compiled_kernel(name)
    a, b, _ = kernel.operands().values()
    (_, _, kind, *pair), bits = name.split("."), 8 * a.itemsize
    if kind == "tf32":
        a, b = a & np.uint32(0xFFFFE000), b & np.uint32(0xFFFFE000)
    family = {"e4m3": "f8f6f4", "tf32": "tf32"}.get(kind, "f16")
    rows, k = (256 if pair else 128), 256 // bits
    text = f"tcgen05.mma.cta_group::{len(pair) + 1}.kind::{family} (m{rows}n128k{k}.f32.{kind}.{kind})"
    dtype = named_dtype({"f16": "float16", "bf16": "bfloat16", "e4m3": "float8_e4m3fn", "tf32": "float32"}[kind])
    operands = a.view(dtype), np.ascontiguousarray(b.T).view(dtype)
    expected = sptc.gemm(*operands, instruction=text, arch="sm_100", format=kind, backend="native")
    result, run = kernel.run()
    np.testing.assert_array_equal(result, expected.view(np.uint32))
    assert run.findings == []
    assert run.cycles
