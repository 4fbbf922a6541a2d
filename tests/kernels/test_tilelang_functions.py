"""``sptc.tilelang.run`` with a compiler that returns a recorded kernel: arguments, tensor maps and the launch."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import sptc
from sptc.benchmarks.kernel_records import draw
from sptc.errors import BackendError, KernelError
from sptc.tensors.element_types import named_dtype
from sptc.tests.kernels.recorded import compiled_kernel

NAME = "sm90.f16.n24"
TYPES = {"f16": "float16", "f32": "float32"}


class Node:
    """An expression of host code: a call, a variable or a number."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


class Call(Node):
    pass


class Text(Node):
    pass


class Variable(Node):
    pass


class Number(Node):
    pass


def call(name: str, *operands: Any) -> Call:
    nodes = [Number(value=value) if isinstance(value, int) else value for value in operands]
    return Call(op=Node(name="tirx.tvm_call_packed"), args=[Text(value=name), *nodes])


def variable(name: str) -> Variable:
    return Variable(name=name, dtype="int32")


@pytest.fixture
def function(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Replacement for a TileLang function; its compiler returns a recorded kernel."""
    kernel = compiled_kernel(NAME)
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
    artifact = SimpleNamespace(
        kernel_source="",
        device_mod=SimpleNamespace(
            functions={Node(name_hint=launch["entry"]): Node(attrs={"tirx.kernel_launch_params": order})}
        ),
        host_mod=SimpleNamespace(functions={"main": Node(body=calls)}),
    )
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


def operands() -> list[Any]:
    arrays = compiled_kernel(NAME).launch["arrays"]
    codes = draw(arrays, compiled_kernel(NAME).launch["seed"])
    return [codes[name].view(named_dtype(TYPES[kind])) for name, (kind, _) in arrays.items()]


def test_pointers_and_maps(function: SimpleNamespace) -> None:
    a, b, d = operands()
    run = sptc.tilelang.run(function, a, b, d)
    compiled_kernel(NAME).assert_equal(run.after(d))
    assert not d.any()


def test_what_is_refused(function: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, d = operands()
    for arguments, message in (
        ((a, b), "the function takes 3 arguments (a_handle, b_handle, d_handle), not 2"),
        ((a[:, :8], b, d), "the argument 'a' must have the shape [256, 320], not [256, 8]"),
        ((a, b.astype(np.float32), d), "the argument 'b' must be an array of float16, not of float32"),
        ((a, b, 3), "the argument 'd' must be an array of float32, not of int"),
    ):
        with pytest.raises(KernelError) as refusal:
            sptc.tilelang.run(function, *arguments)
        assert str(refusal.value) == message
    function.calls.append(function.calls[-1])
    with pytest.raises(KernelError, match="launches 2 kernels; only functions with one kernel are modelled"):
        sptc.tilelang.run(function, a, b, d)
    function.calls[-1] = call("__tvm_tensormap_create_im2col")
    with pytest.raises(KernelError, match="im2col, which are not modelled"):
        sptc.tilelang.run(function, a, b, d)
    monkeypatch.setitem(sys.modules, "tilelang", None)
    with pytest.raises(BackendError, match="TileLang is not installed: pip install tilelang"):
        sptc.tilelang.run(function, a, b, d)
