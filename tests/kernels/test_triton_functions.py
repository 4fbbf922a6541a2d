"""``sptc.triton.run`` with a compiler that returns recorded kernels: arguments of the compiler and of the launch."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import sptc
from sptc.benchmarks.kernel_records import draw
from sptc.errors import BackendError, KernelError
from sptc.kernels.launch import TensorMap
from sptc.tests.kernels.recorded import compiled_kernel

CONSTANTS = {"BM": 64, "BN": 64, "BK": 64}


def function(*names: str, constants: tuple[str, ...] = ("BM", "BN", "BK")) -> Any:
    return SimpleNamespace(params=[
        SimpleNamespace(name=name, is_constexpr=name in constants, has_default=False) for name in (*names, *constants)
    ])  # fmt: skip


MATMUL = function("a", "b", "d", "M", "N", "K", "sam", "sak", "sbk", "sbn", "scm", "scn")
TMA = function("a", "b", "d", "M", "N", "K")


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Replacement for Triton that records its arguments and returns the recorded kernel `name`."""
    asked = SimpleNamespace(name="f16.64x64x64", maps=())

    def compile_(source: Any, *, target: Any, options: dict[str, int]) -> Any:
        asked.source, asked.target, asked.options = source, target, options
        kernel = compiled_kernel(asked.name)
        shared = kernel.launch["shared"]
        metadata = SimpleNamespace(shared=shared, tensordesc_meta=asked.maps, global_scratch_size=0)
        return SimpleNamespace(asm={"ptx": kernel.ptx}, metadata=metadata)

    for name in ("triton", "triton.backends", "triton.backends.compiler", "triton.compiler"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules["triton"].compile = compile_  # type: ignore[attr-defined]
    sys.modules["triton.backends.compiler"].GPUTarget = lambda *words: words  # type: ignore[attr-defined]
    sys.modules["triton.compiler"].ASTSource = lambda *words: words  # type: ignore[attr-defined]
    return asked


def operands(name: str) -> tuple[Any, ...]:
    launch = compiled_kernel(name).launch
    return tuple(array.view(np.float16) for array in draw(launch["arrays"], launch["seed"]).values())


def test_pointers_and_numbers(compiler: SimpleNamespace) -> None:
    a, b, d = operands("f16.64x64x64")
    run = sptc.triton.run(
        MATMUL, lambda meta: (8 * 10,), a, b, d, 512, 640, 320, 320, 1, 640, 1, 640, 1, **CONSTANTS, num_stages=2
    )
    compiled_kernel("f16.64x64x64").assert_equal(run.after(d))
    _, signature, constants, attributes = compiler.source
    assert list(signature.values())[:9] == ["*fp16"] * 3 + ["i32"] * 4 + ["constexpr", "i32"]
    assert constants == {"sak": 1, "sbn": 1, "scn": 1, **CONSTANTS}
    assert {*attributes} == {(place,) for place in (0, 1, 2, 3, 4, 5, 6, 8, 10)}
    assert (compiler.target, compiler.options) == (("cuda", 90, 32), {"num_warps": 4, "num_stages": 2})


def test_tensor_maps(compiler: SimpleNamespace) -> None:
    compiler.name = "tma.f16"
    tiles = [value for value in compiled_kernel("tma.f16").launch["arguments"] if isinstance(value, dict)]
    compiler.maps = [{"swizzle": 3, "block_size": tile["box"]} for tile in tiles]
    a, b, d = operands("tma.f16")
    blocks = (128, 64), (128, 64), (128, 128)
    maps = [TensorMap(array, block) for array, block in zip((a, b, d), blocks, strict=True)]
    run = sptc.triton.run(TMA, 4 * 5, *maps, 512, 640, 320, **CONSTANTS)
    compiled_kernel("tma.f16").assert_equal(run.after(d))
    assert list(compiler.source[1].values())[:3] == [f"tensordesc<fp16[128,{n}]>" for n in (64, 64, 128)]


def test_what_is_refused(compiler: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, d = operands("f16.64x64x64")
    numbers = (512, 640, 320, 320, 1, 640, 1, 640, 1)
    for arguments, keywords, message in (
        ((a, b, d, *numbers), {"BM": 64, "BN": 64}, "the kernel's argument 'BK' is missing"),
        ((a, b, d, *numbers), {**CONSTANTS, "BQ": 1}, "the kernel has no further parameter 'BQ'"),
        ((a, b, d, *numbers, 1, 2, 3, 4), {}, "the kernel takes 15 arguments, not 16"),
        ((a, b, "d", *numbers), CONSTANTS, "the argument 'd' must be an array, a tensor, a number or a tensor map"),
        ((a.astype(complex), b, d, *numbers), CONSTANTS, "arrays of complex128 are not modelled"),
        ((a, b, d, *numbers), {**CONSTANTS, "arch": "sm_70"}, "'sm_70' is no known architecture"),
    ):
        with pytest.raises(KernelError, match=message):
            sptc.triton.run(MATMUL, 80, *arguments, **keywords)
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(BackendError, match="triton is not installed: pip install 'sptc\\[triton\\]'"):
        sptc.triton.run(MATMUL, 80, a, b, d, *numbers, **CONSTANTS)
