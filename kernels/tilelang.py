"""Function ``sptc.tilelang``: compile a TileLang function for a GPU that may be absent, and run it on the model.

TileLang and ``nvcc`` must be installed; neither is a dependency of this package.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import BackendError, KernelError, shown
from ..isa.architectures import same_numerics
from .arguments import TensorMap
from .arrays import Memories, element_type
from .launch import KernelRun, run_kernel
from .tensor_maps import FILLS, SWIZZLES

__all__ = ["Compilation", "compile_function", "run"]

#: Names of the launch axes in TileLang.
_AXES = tuple(f"{kind}.{axis}" for kind in ("blockIdx", "threadIdx") for axis in "xyz")
#: PTX types of elements by the code of their ``CUtensorMapDataType``, for types that copies round or additions flush.
_ELEMENTS = {10: "f32.ftz", 11: "tf32", 12: "tf32.ftz"}


@dataclass(frozen=True)
class Compilation:
    """A compiled TileLang function, and the kernel launch that the compiled CPU code performs."""

    ptx: str
    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    #: Size of dynamic shared memory in bytes.
    shared: int
    #: Arguments of the kernel. Each is a number, the name of a parameter of the function, or a tensor map whose field
    #: `array` is the name of a parameter.
    arguments: tuple[Any, ...]


def run(
    function: Any,
    *args: Any,
    arch: str = "sm_90a",
    backend: Any = "native",
    pass_configs: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
) -> KernelRun:
    """Compile a TileLang function for a target, and run it on copies of the arrays.

    Parameters
    ----------
    function : PrimFunc
        Function with the decorator ``@T.prim_func``, or the result of ``get_tir`` of a ``@tilelang.jit`` function.
    *args
        An array or tensor of torch on the CPU, or a number, for each parameter of the function, outputs included.
    arch : str
        Target as ``nvcc`` names it: ``"sm_80"``, ``"sm_90a"``, ``"sm_100a"``.
    backend : str or Backend
        Back end of tensor-core instructions.
    pass_configs : mapping, optional
        Configuration of TileLang's passes.
    options : mapping, optional
        Options of :func:`~sptc.kernels.launch.run_kernel`: ``check``, ``approximate``, ``limit``.

    Raises
    ------
    BackendError
        TileLang or ``nvcc`` is not installed, or does not compile the function.
    KernelError
        As :func:`~sptc.kernels.launch.run_kernel`; the function is no ``PrimFunc``; or an argument is missing or of
        another shape or type.
    """
    values, sizes = _bound(function, args)
    compiled = compile_function(function, sizes, arch, pass_configs or {})
    memories = Memories()

    def argument(value: Any) -> Any:
        if isinstance(value, TensorMap):
            return replace(value, array=memories.array(values[str(value.array)]))
        value = values[value] if isinstance(value, str) else value
        return memories.array(value) if element_type(value) else value

    result = run_kernel(
        compiled.ptx,
        compiled.grid,
        compiled.block,
        [argument(value) for value in compiled.arguments],
        entry=compiled.entry,
        arch=same_numerics(arch),
        backend=backend,
        shared=compiled.shared,
        **options or {},
    )
    memories.add_results(result)
    return result


def _bound(function: Any, args: tuple[Any, ...]) -> tuple[dict[str, Any], dict[str, int]]:
    """Return the arguments by parameter name, and the values of numeric parameters and of symbolic sizes by name."""
    if not hasattr(function, "buffer_map"):
        raise KernelError(
            "the function must be decorated with @T.prim_func, or be the result of get_tir of a @tilelang.jit "
            f"function, not {shown(function)}"
        )
    names = [str(parameter.name) for parameter in function.params]
    buffers = {str(var.name): buffer for var, buffer in function.buffer_map.items()}
    if len(args) != len(names):
        raise KernelError(f"the function takes {len(names)} arguments ({', '.join(names)}), not {len(args)}")
    values: dict[str, Any] = {}
    sizes: dict[str, int] = {}
    for name, value in zip(names, args, strict=True):
        buffer = buffers.get(name)
        if buffer is None:
            if not isinstance(value, int | float | np.number):
                raise KernelError(f"the argument {name!r} must be a number, not {type(value).__name__}")
            values[name] = sizes[name] = value  # type: ignore[assignment]
            continue
        label = str(buffer.name)
        if element_type(value) != str(buffer.dtype):
            kind = element_type(value) or type(value).__name__
            raise KernelError(f"the argument {label!r} must be an array of {buffer.dtype}, not of {kind}")
        expected = [getattr(side, "value", str(side)) for side in buffer.shape]
        if len(value.shape) != len(expected) or any(
            isinstance(side, int) and side != actual for side, actual in zip(expected, value.shape, strict=True)
        ):
            raise KernelError(f"the argument {label!r} must have the shape {expected}, not {list(value.shape)}")
        sizes |= {
            side: int(actual) for side, actual in zip(expected, value.shape, strict=True) if isinstance(side, str)
        }
        values[label] = value
    return values, sizes


def compile_function(
    function: Any, sizes: Mapping[str, int], arch: str, pass_configs: Mapping[str, Any]
) -> Compilation:
    """Compile a TileLang function, and read the kernel launch from its CPU code. `sizes`: values of symbolic sizes."""
    try:
        import tilelang
        from tilelang import env, tvm
        from tilelang.contrib import nvcc
    except ImportError:
        raise BackendError("TileLang is not installed: pip install tilelang") from None
    try:
        target = tvm.target.Target({"kind": "cuda", "arch": arch})
        with target, tvm.transform.PassContext(opt_level=3, config=dict(pass_configs)):
            artifact = tilelang.lower(function, target=target)
        includes = [f"-I{folder}" for folder in (env.TILELANG_TEMPLATE_PATH, env.CUTLASS_INCLUDE_DIR)]
        text = nvcc.compile_cuda(artifact.kernel_source, "ptx", [f"-arch={arch}"], ["-std=c++20", *includes])
    except Exception as error:
        raise BackendError(f"TileLang does not compile the function: {_last_line(error)}") from None
    kernels = {str(name.name_hint): kernel for name, kernel in artifact.device_mod.functions.items()}
    launches, maps = [], {}
    for call in _packed_calls(tvm, artifact.host_mod):
        name, *operands = call.args
        if name.value == "__tvm_tensormap_create_im2col":
            raise KernelError("the function uses tensor maps of im2col, which are not modelled")
        if name.value == "__tvm_tensormap_create_tiled":
            maps[str(operands[0].name)] = _map(operands[1:], tvm, sizes)
        elif name.value in kernels:
            launches.append((name.value, operands))
    if len(launches) != 1:
        raise KernelError(f"the function launches {len(launches)} kernels; only functions with one kernel are modelled")
    ((entry, operands),) = launches
    order = [str(word) for word in kernels[entry].attrs["tirx.kernel_launch_params"]]
    split = len(operands) - len(order)
    geometry = {word: _number(value, tvm, sizes) for word, value in zip(order, operands[split:], strict=True)}
    sides = [geometry.pop(axis, 1) for axis in _AXES]
    arguments = [
        maps.get(str(value.name), str(value.name)) if isinstance(value, tvm.tirx.Var) else _number(value, tvm, sizes)
        for value in operands[:split]
    ]
    shared = sum(value for word, value in geometry.items() if "dyn_shared" in word)
    x, y, z, tx, ty, tz = sides
    return Compilation(bytes(text).decode(), entry, (x, y, z), (tx, ty, tz), shared, tuple(arguments))


def _last_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[-1].strip() if lines else type(error).__name__


def _packed_calls(tvm: Any, module: Any) -> list[Any]:
    """Return TVM's packed calls (calls by name) in host code, such as kernel launches and tensor map encodings."""
    calls: list[Any] = []

    def visit(node: Any) -> None:
        named = isinstance(node, tvm.tirx.Call) and len(node.args) and isinstance(node.args[0], tvm.tirx.StringImm)
        if named and "packed" in str(node.op.name):
            calls.append(node)

    for function in module.functions.values():
        tvm.tirx.stmt_functor.post_order_visit(function.body, visit)
    return calls


def _number(value: Any, tvm: Any, sizes: Mapping[str, int]) -> int:
    """Evaluate an expression that contains constants and symbolic sizes."""
    variables: dict[Any, Any] = {}

    def visit(node: Any) -> None:
        if isinstance(node, tvm.tirx.Var):
            if str(node.name) not in sizes:
                raise KernelError(f"the launch depends on the size {node.name}, which no argument has")
            variables[node] = tvm.tirx.const(sizes[str(node.name)], node.dtype)

    if isinstance(value, int):
        return value
    tvm.tirx.stmt_functor.post_order_visit(value, visit)
    folded = tvm.arith.Analyzer().simplify(tvm.tirx.stmt_functor.substitute(value, variables))
    if not isinstance(folded, tvm.tirx.IntImm):
        raise KernelError(f"the launch has the argument {value}, which is not an integer")
    return int(folded.value)


def _map(operands: list[Any], tvm: Any, sizes: Mapping[str, int]) -> TensorMap:
    """Return the tensor map that a call encodes from type, rank, array, sizes, strides, box, element strides, modes."""
    rank = _number(operands[1], tvm, sizes)
    numbers = [_number(value, tvm, sizes) for value in operands[3:]]
    shape, strides, box, steps = (tuple(numbers[place : place + rank][::-1]) for place in range(0, 4 * rank, rank))
    interleave, swizzle, _, fill = numbers[4 * rank :]
    if interleave or swizzle >= len(SWIZZLES) or fill >= len(FILLS) or any(step != 1 for step in steps):
        raise KernelError(f"a tensor map is not modelled: {interleave=}, {swizzle=}, {fill=}, element strides {steps}")
    name: Any = str(operands[2].name)
    element = _ELEMENTS.get(_number(operands[0], tvm, sizes))
    return TensorMap(name, box, SWIZZLES[swizzle], FILLS[fill], shape=shape, strides=strides, element=element)
