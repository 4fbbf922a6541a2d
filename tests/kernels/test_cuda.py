"""CUDA C++ kernels of ``benchmarks/cuda``: outputs equal a chain along K, and those of an H100 where recorded."""

import numpy as np
import pytest
import sptc
from numpy.typing import NDArray
from sptc.isa.instructions import parse
from sptc.operands.registers import unpack_nibbles
from sptc.tensors.compressed import Compressed
from sptc.tensors.element_types import named_dtype
from sptc.tests.kernels.recorded import CUDA, CUDA_SM120, CompiledKernel, compiled_kernel

DTYPES = {"f16": "float16", "bf16": "bfloat16", "tf32": "float32", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2",
          "e2m1": "float4_e2m1fn", "s8": "int8", "u8": "uint8"}  # fmt: skip


def elements(codes: NDArray, kind: str) -> NDArray:
    """Return the stored codes of a matrix as elements: two e2m1 of a byte become two columns."""
    if kind == "e2m1":
        codes = np.stack([codes & 15, codes >> 4], -1).reshape(len(codes), -1)
    if kind == "tf32":
        codes = codes & np.uint32(0xFFFFE000)
    return codes.view(named_dtype(DTYPES[kind]))


def chain(kernel: CompiledKernel) -> NDArray:
    """Return the product as a chain of the kernel's instruction."""
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
    result = {"result": "f16"} if instruction.d.name == "f16" else {}
    return sptc.gemm(a, b, instruction=launch["opcode"], arch=kernel.arch, backend="native",
                     **form, **scales, **result)  # fmt: skip


def check(name: str) -> None:
    kernel = compiled_kernel(name)
    result, run = kernel.run()
    np.testing.assert_array_equal(result, chain(kernel).view(result.dtype))
    if name in CUDA:
        kernel.assert_equal(result)
    assert run.findings == []


def test_one(rng: np.random.Generator) -> None:
    check(str(rng.choice(CUDA)))


@pytest.mark.regression
@pytest.mark.parametrize("name", [*CUDA, *CUDA_SM120])
def test_all(name: str) -> None:
    check(name)
