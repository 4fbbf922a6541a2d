"""Results of compiled kernels equal those of an H100, or those of a chain of instructions along K."""

import numpy as np
import pytest
import sptc
from numpy.typing import NDArray
from sptc.isa.instructions import parse
from sptc.operands.registers import unpack_nibbles
from sptc.tensors.compressed import Compressed
from sptc.tensors.element_types import TYPE_OF, named_dtype
from sptc.tests.kernels import recorded

#: Kernels that access accumulators before the wait: Triton relies on the assembler to insert the wait.
WITHOUT_WAIT = ("f16.f16_accumulators", "e4m3.imprecise64")


def check(name: str) -> int:
    """Compare the result of a kernel with the result of an H100, and return the number of outputs."""
    kernel = recorded.compiled_kernel(name)
    result, run = kernel.run(check=False)
    kernel.assert_equal(result)
    assert bool(run.findings) == (name in WITHOUT_WAIT), name
    return result.size


def test_some_kernels(rng: np.random.Generator) -> None:
    for names in (recorded.TRITON, recorded.TILELANG, recorded.CUTE):
        check(str(rng.choice(names)))
    check_blackwell(str(rng.choice(recorded.BLACKWELL)))
    check_cuda(str(rng.choice(recorded.CUDA)))


@pytest.mark.regression
def test_all_kernels() -> None:
    assert sum(map(check, recorded.TRITON)) > 13_000_000
    assert sum(map(check, recorded.TILELANG)) > 3_000_000
    assert sum(map(check, recorded.CUTE)) > 1_300_000
    assert (len(recorded.TRITON), len(recorded.TILELANG), len(recorded.CUTE)) == (50, 40, 7)
    for name in recorded.BLACKWELL:
        check_blackwell(name)


def check_blackwell(name: str) -> None:
    """Compare the result of a kernel that was not run on a GPU with a chain of `tcgen05` instructions along K."""
    kernel = recorded.compiled_kernel(name)
    a, b, _ = kernel.operands().values()
    (_, _, kind, *pair), bits = name.split("."), 8 * a.itemsize
    family = {"e4m3": "f8f6f4", "tf32": "tf32"}.get(kind, "f16")
    rows, k = (256 if pair else 128), 256 // bits
    text = f"tcgen05.mma.cta_group::{len(pair) + 1}.kind::{family} (m{rows}n128k{k}.f32.{kind}.{kind})"
    operands = elements(a, kind), np.ascontiguousarray(elements(b, kind).T)
    expected = sptc.gemm(*operands, instruction=text, arch="sm_100", format=kind, backend="native")
    result, run = kernel.run()
    np.testing.assert_array_equal(result, expected.view(np.uint32))
    assert run.findings == []
    assert run.cycles


def elements(codes: NDArray, kind: str) -> NDArray:
    """Return a matrix of elements from stored codes: a byte with two e2m1 becomes two columns."""
    if kind == "e2m1":
        codes = np.stack([codes & 15, codes >> 4], -1).reshape(len(codes), -1)
    if kind == "tf32":
        codes = codes & np.uint32(0xFFFFE000)
    return codes.view(named_dtype(TYPE_OF[kind]))


def chain(kernel: recorded.CompiledKernel) -> NDArray:
    """Return the matrix product of the kernel's operands, computed as a chain of its instruction along K."""
    launch, operands = kernel.launch, kernel.operands()
    instruction = parse(launch["opcode"])
    a = elements(operands["a"], instruction.a.name)
    b = np.ascontiguousarray(elements(operands["b"], instruction.b.name).T)
    if "e" in operands:
        tiles, steps, _ = operands["e"].shape
        words = operands["e"].view("<u4").reshape(tiles * steps, instruction.threads)
        nibbles = unpack_nibbles(words, instruction, launch["selector"])
        nibbles = nibbles.reshape(tiles, steps, instruction.m, -1).swapaxes(1, 2).reshape(len(a), -1)
        a = Compressed(a, np.ascontiguousarray(nibbles), instruction.granularity)
    scales = {f"block_scale_{name[1]}": operands[name] for name in ("sa", "sb") if name in operands}
    form = {"format": "tf32"} if instruction.a.name == "tf32" else {}
    form |= {"result": "f16"} if instruction.d.name == "f16" else {}
    return sptc.gemm(a, b, instruction=launch["opcode"], arch=kernel.arch, backend="native", **form, **scales)


def check_cuda(name: str) -> None:
    kernel = recorded.compiled_kernel(name)
    result, run = kernel.run()
    np.testing.assert_array_equal(result, chain(kernel).view(result.dtype))
    if name in recorded.CUDA:
        kernel.assert_equal(result)
    assert run.findings == []


@pytest.mark.regression
@pytest.mark.parametrize("name", [*recorded.CUDA, *recorded.CUDA_SM120])
def test_all_kernels_of_cuda(name: str) -> None:
    check_cuda(name)
