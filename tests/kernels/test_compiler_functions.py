"""``sptc.triton.run`` and ``sptc.tilelang.run`` are tested with fake compilers that return recorded kernels."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import sptc
from sptc import TensorMap
from sptc.benchmarks.kernel_records import draw
from sptc.errors import BackendError, KernelError
from sptc.tensors.element_types import named_dtype
from sptc.tests.kernels.recorded import compiled_kernel

TILELANG = "sm90.f16.n24"
TYPES = {"f16": "float16", "f32": "float32"}
CONSTANTS = {"BM": 64, "BN": 64, "BK": 64}
NUMBERS = (512, 640, 320, 320, 1, 640, 1, 640, 1)


def function(*names: str, constants: tuple[str, ...] = ("BM", "BN", "BK")) -> Any:
    return SimpleNamespace(params=[
        SimpleNamespace(name=name, is_constexpr=name in constants, has_default=False) for name in (*names, *constants)
    ])  # fmt: skip


MATMUL = function("a", "b", "d", "M", "N", "K", "sam", "sak", "sbk", "sbn", "scm", "scn")
TMA = function("a", "b", "d", "M", "N", "K")


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Stand-in for Triton's compiler. It stores its arguments, and returns the recorded kernel `name`."""
    recorder = SimpleNamespace(name="f16.64x64x64", maps=())

    def compile_(source: Any, *, target: Any, options: dict[str, int]) -> Any:
        recorder.source, recorder.target, recorder.options = source, target, options
        kernel = compiled_kernel(recorder.name)
        metadata = SimpleNamespace(shared=kernel.launch["shared"], tensordesc_meta=recorder.maps, global_scratch_size=0)
        return SimpleNamespace(asm={"ptx": kernel.ptx}, metadata=metadata)

    for name in ("triton", "triton.backends", "triton.backends.compiler", "triton.compiler"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules["triton"].compile = compile_  # type: ignore[attr-defined]
    sys.modules["triton.backends.compiler"].GPUTarget = lambda *words: words  # type: ignore[attr-defined]
    sys.modules["triton.compiler"].ASTSource = lambda *words: words  # type: ignore[attr-defined]
    return recorder


def operands(name: str) -> list[Any]:
    launch = compiled_kernel(name).launch
    codes = draw(launch["arrays"], launch["seed"])
    return [codes[name].view(named_dtype(TYPES[kind])) for name, (kind, _) in launch["arrays"].items()]


def test_pointers_numbers_and_tensor_maps(compiler: SimpleNamespace) -> None:
    a, b, d = operands("f16.64x64x64")
    run = sptc.triton.run(MATMUL, lambda meta: (8 * 10,), a, b, d, *NUMBERS, **CONSTANTS, num_stages=2)
    compiled_kernel("f16.64x64x64").assert_equal(run.after(d))
    _, signature, constants, attributes = compiler.source
    assert list(signature.values())[:9] == ["*fp16"] * 3 + ["i32"] * 4 + ["constexpr", "i32"]
    assert constants == {"sak": 1, "sbn": 1, "scn": 1, **CONSTANTS}
    assert {*attributes} == {(place,) for place in (0, 1, 2, 3, 4, 5, 6, 8, 10)}
    assert (compiler.target, compiler.options) == (("cuda", 90, 32), {"num_warps": 4, "num_stages": 2})
    compiler.name = "tma.f16"
    tiles = [value for value in compiled_kernel("tma.f16").launch["arguments"] if isinstance(value, dict)]
    compiler.maps = [{"swizzle": 3, "block_size": tile["box"]} for tile in tiles]
    a, b, d = operands("tma.f16")
    maps = [*map(TensorMap, (a, b, d), ((128, 64), (128, 64), (128, 128)))]
    run = sptc.triton.run(TMA, 4 * 5, *maps, 512, 640, 320, **CONSTANTS)
    compiled_kernel("tma.f16").assert_equal(run.after(d))
    assert list(compiler.source[1].values())[:3] == [f"tensordesc<fp16[128,{n}]>" for n in (64, 64, 128)]


def test_what_is_refused(compiler: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, d = operands("f16.64x64x64")
    for arguments, keywords, message in (
        ((a, b, d, *NUMBERS), {"BM": 64, "BN": 64}, "the kernel's argument 'BK' is missing"),
        ((a, b, d, *NUMBERS), {**CONSTANTS, "BQ": 1}, "the kernel has no further parameter 'BQ'"),
        ((a, b, d, *NUMBERS, 1, 2, 3, 4), {}, "the kernel takes 15 arguments, not 16"),
        ((a, b, "d", *NUMBERS), CONSTANTS, "the argument 'd' must be an array, a tensor, a number or a tensor map"),
        ((a.astype(complex), b, d, *NUMBERS), CONSTANTS, "arrays of complex128 are not modelled"),
        ((a, b, d, *NUMBERS), {**CONSTANTS, "arch": "sm_70"}, "'sm_70' is no known architecture"),
    ):
        with pytest.raises(KernelError, match=message):
            sptc.triton.run(MATMUL, 80, *arguments, **keywords)
    with pytest.raises(KernelError, match=r"^the kernel must be a function decorated with @triton\.jit, not <function"):
        sptc.triton.run(draw, 80)
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(BackendError, match=r"triton is not installed: install it with `.*\[triton\]'?`$"):
        sptc.triton.run(MATMUL, 80, a, b, d, *NUMBERS, **CONSTANTS)


class Node:
    """Stand-in for an expression in TileLang's host code, such as a call, a variable or a number."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


Call, Text, Variable, Number = (type(name, (Node,), {}) for name in ("Call", "Text", "Variable", "Number"))


def call(name: str, *operands: Any) -> Node:
    nodes = [Number(value=value) if isinstance(value, int) else value for value in operands]
    return Call(op=Node(name="tirx.tvm_call_packed"), args=[Text(value=name), *nodes])


def variable(name: str) -> Node:
    return Variable(name=name, dtype="int32")


@pytest.fixture
def tilelang_function(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Stand-in for a TileLang function, which is compiled to a recorded kernel."""
    kernel = compiled_kernel(TILELANG)
    launch = kernel.launch
    calls, operands = [call("__tvm_set_device", 2, 0)], []
    for argument in launch["arguments"]:
        if "array" in argument:
            operands.append(variable(argument["array"]))
            continue
        name, rank = argument["tile"], len(argument["box"])
        sides = [n for key in ("shape", "strides", "box") for n in argument[key][::-1]]
        swizzle = ("none", "32B", "64B", "128B").index(argument["swizzle"])
        descriptor = variable(f"{name}_desc")
        operands.append(descriptor)
        calls.append(call("__tvm_tensormap_create_tiled", descriptor, 6, rank, variable(name), *sides, *[1] * rank,
                          0, swizzle, 2, 0))  # fmt: skip
    order = ["blockIdx.x", "blockIdx.y", "threadIdx.x", "tirx.use_dyn_shared_memory"]
    calls.append(call(launch["entry"], *operands, *launch["grid"][:2], launch["block"][0], launch["shared"]))

    def visit(node: Any, function: Any) -> None:
        for each in node if isinstance(node, list) else [node]:
            function(each)

    tirx = SimpleNamespace(
        Call=Call, StringImm=Text, Var=Variable, IntImm=Number, const=lambda value, dtype: Number(value=value),
        stmt_functor=SimpleNamespace(post_order_visit=visit, substitute=lambda value, variables: value),
    )  # fmt: skip
    tvm = SimpleNamespace(
        tirx=tirx,
        target=SimpleNamespace(Target=lambda words: monkeypatch.context()),
        transform=SimpleNamespace(PassContext=lambda **words: monkeypatch.context()),
        arith=SimpleNamespace(Analyzer=lambda: SimpleNamespace(simplify=lambda value: value)),
    )
    kernels = {Node(name_hint=launch["entry"]): Node(attrs={"tirx.kernel_launch_params": order})}
    device, host = (SimpleNamespace(functions=each) for each in (kernels, {"main": Node(body=calls)}))
    artifact = SimpleNamespace(kernel_source="", device_mod=device, host_mod=host)
    for name in ("tilelang", "tilelang.contrib"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    fields = {"tvm": tvm, "env": SimpleNamespace(TILELANG_TEMPLATE_PATH="", CUTLASS_INCLUDE_DIR="")}
    vars(sys.modules["tilelang"]).update(fields, lower=lambda function, target: artifact)
    nvcc = SimpleNamespace(compile_cuda=lambda source, form, arch, options: kernel.ptx.encode())
    vars(sys.modules["tilelang.contrib"]).update(nvcc=nvcc)
    buffers = {
        Node(name=f"{name}_handle"): Node(name=name, dtype=TYPES[kind], shape=[Number(value=side) for side in shape])
        for name, (kind, shape) in launch["arrays"].items()
    }
    return SimpleNamespace(params=[*buffers], buffer_map=buffers, calls=calls)


def test_pointers_and_maps_of_tilelang(tilelang_function: SimpleNamespace) -> None:
    a, b, d = operands(TILELANG)
    compiled_kernel(TILELANG).assert_equal(sptc.tilelang.run(tilelang_function, a, b, d).after(d))
    assert not d.any()


def test_what_tilelang_refuses(tilelang_function: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, d = operands(TILELANG)
    for arguments, message in (
        ((a, b), "the function takes 3 arguments (a_handle, b_handle, d_handle), not 2"),
        ((a[:, :8], b, d), "the argument 'a' must have the shape [256, 320], not [256, 8]"),
        ((a, b.astype(np.float32), d), "the argument 'b' must be an array of float16, not of float32"),
        ((a, b, 3), "the argument 'd' must be an array of float32, not of int"),
    ):
        with pytest.raises(KernelError) as refusal:
            sptc.tilelang.run(tilelang_function, *arguments)
        assert str(refusal.value) == message
    with pytest.raises(KernelError, match=r"^the function must be decorated with @T\.prim_func, or .* not <function "):
        sptc.tilelang.run(draw)
    tilelang_function.calls.append(tilelang_function.calls[-1])
    with pytest.raises(KernelError, match="launches 2 kernels; only functions with one kernel are modelled"):
        sptc.tilelang.run(tilelang_function, a, b, d)
    tilelang_function.calls[-1] = call("__tvm_tensormap_create_im2col")
    with pytest.raises(KernelError, match="im2col, which are not modelled"):
        sptc.tilelang.run(tilelang_function, a, b, d)
    monkeypatch.setitem(sys.modules, "tilelang", None)
    with pytest.raises(BackendError, match="TileLang is not installed: pip install tilelang"):
        sptc.tilelang.run(tilelang_function, a, b, d)
