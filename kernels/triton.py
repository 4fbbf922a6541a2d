"""Function ``sptc.triton``: compile a Triton kernel for a GPU that may be absent, and run it on the model."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from ..errors import BackendError, InstructionError, KernelError, shown
from ..infra.installation import install_line
from ..isa.architectures import target_named
from .arguments import TensorMap
from .arrays import Memories, element_type
from .launch import KernelRun, run_kernel
from .tensor_maps import SWIZZLES

__all__ = ["Compilation", "bound_arguments", "compile_kernel", "run"]

#: Triton's element type for each type of numpy, ``ml_dtypes`` or torch.
_TYPES = {
    "float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64", "float8_e4m3fn": "fp8e4nv",
    "float8_e5m2": "fp8e5", "float8_e8m0fnu": "u8", "float4_e2m1fn_x2": "u8", "int8": "i8", "int16": "i16",
    "int32": "i32", "int64": "i64", "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64", "bool": "i1",
}  # fmt: skip
_WARP_THREADS = 32
#: PTX element type for each floating-point type of Triton. Tensors of torch are passed as integers of the same width.
_ELEMENTS = {"fp16": "f16", "bf16": "bf16", "fp32": "f32", "fp64": "f64"}


@dataclass(frozen=True)
class Compilation:
    """A compiled Triton kernel, and the sizes that its launch needs."""

    ptx: str
    #: Number of threads per CTA, and size of dynamic shared memory in bytes.
    block: int
    shared: int
    #: Size of the scratch memory of a CTA in bytes.
    scratch: int
    #: Box and swizzle of each tensor map, in the order of the parameters. A wide tile is copied as several boxes.
    maps: tuple[tuple[tuple[int, ...], str], ...]
    #: Names of the kernel parameters that are not constants, in order.
    parameters: tuple[str, ...]


def run(
    kernel: Any,
    grid: int | Sequence[int] | Callable[[Mapping[str, Any]], Sequence[int]],
    *args: Any,
    arch: str = "sm_90",
    backend: Any = "native",
    num_warps: int = 4,
    num_stages: int = 3,
    options: Mapping[str, Any] | None = None,
    **keywords: Any,
) -> KernelRun:
    """Compile a ``@triton.jit`` function for a target, and run it on copies of the arrays.

    Parameters
    ----------
    kernel : JITFunction
        The kernel.
    grid : int, sequence of int, or callable
        CTAs along each axis; a callable receives the arguments by name, as in Triton.
    *args, **keywords
        Arguments: numpy arrays and tensors of torch on the CPU, ints, floats, and for a tensor descriptor a
        :class:`~sptc.TensorMap` with the block that the kernel loads; values of ``tl.constexpr``.
    arch : str
        Target of PTX, for example ``"sm_90"``.
    backend : str or Backend
        Back end of tensor-core instructions.
    num_warps, num_stages : int
        Options of the compiler.
    options : mapping, optional
        Options of :func:`~sptc.kernels.launch.run_kernel`: ``check``, ``approximate``, ``limit``.

    Raises
    ------
    BackendError
        Triton is not installed, or does not compile the kernel.
    KernelError
        As :func:`~sptc.kernels.launch.run_kernel`; the kernel is not decorated with ``@triton.jit``; an argument is
        missing or of another type; or the target is unknown.
    """
    values = bound_arguments(kernel, args, keywords)
    compiled = compile_kernel(kernel, values, arch, num_warps=num_warps, num_stages=num_stages)
    shape = grid(values) if callable(grid) else grid
    ctas = prod(shape) if isinstance(shape, Sequence) else int(shape)
    maps = iter(compiled.maps)
    arguments: list[Any] = []
    memories = Memories()
    for name in compiled.parameters:
        value = values[name]
        if isinstance(value, TensorMap):
            box, swizzle = next(maps)
            element = value.element or _ELEMENTS.get(_type_of(value.array))
            value = replace(value, array=memories.array(value.array), box=box, swizzle=swizzle, element=element)
            strides = [stride // value.array.itemsize for stride in value.array.strides]
            arguments += [value, *value.array.shape, *strides]
        else:
            arguments.append(memories.array(value) if _type_of(value) else value)
    # Triton adds pointers to scratch memory and to profiling data as last parameters; some versions add only one.
    scratch = np.zeros(max(compiled.scratch * ctas, 1), np.uint8)
    count = compiled.ptx.partition(".visible .entry")[2].partition(")")[0].count(".param ")
    arguments += [scratch if compiled.scratch else 0, 0][: max(count - len(arguments), 0)]
    run = run_kernel(
        compiled.ptx,
        shape,
        compiled.block,
        arguments,
        arch=arch,
        backend=backend,
        shared=compiled.shared,
        **options or {},
    )
    memories.add_results(run)
    return run


def bound_arguments(kernel: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> dict[str, Any]:
    """Return the values of all kernel parameters by name."""
    if not hasattr(kernel, "params"):
        raise KernelError(f"the kernel must be a function decorated with @triton.jit, not {shown(kernel)}")
    names = [parameter.name for parameter in kernel.params]
    if len(args) > len(names):
        raise KernelError(f"the kernel takes {len(names)} arguments, not {len(args)}")
    values = dict(zip(names, args, strict=False))
    if unknown := [name for name in keywords if name not in names or name in values]:
        raise KernelError(f"the kernel has no further parameter {unknown[0]!r}; its parameters are {', '.join(names)}")
    values |= keywords
    for parameter in kernel.params:
        if parameter.name not in values and getattr(parameter, "has_default", False):
            values[parameter.name] = parameter.default
    if missing := [name for name in names if name not in values]:
        raise KernelError(f"the kernel's argument {missing[0]!r} is missing")
    return {name: values[name] for name in names}


def _type_of(value: Any) -> str:
    """Return Triton's name of the element type of an array or tensor, or an empty string for any other value."""
    name = element_type(value)
    if name and name not in _TYPES:
        raise KernelError(f"arrays of {name} are not modelled")
    return _TYPES.get(name, "")


def compile_kernel(
    kernel: Any, values: Mapping[str, Any], arch: str, *, num_warps: int, num_stages: int
) -> Compilation:
    """Compile a kernel for given argument types. Like Triton, assume that pointers are multiples of 16 bytes."""
    try:
        import triton
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource
    except ImportError:
        raise BackendError(f"triton is not installed: install it with `{install_line('triton')}`") from None
    try:
        capability = int("".join(filter(str.isdigit, target_named(arch).name)))
    except InstructionError as error:
        raise KernelError(str(error)) from None
    signature: dict[str, str] = {}
    constants: dict[str, Any] = {}
    attributes: dict[tuple[int, ...], list[list[Any]]] = {}
    for place, parameter in enumerate(kernel.params):
        name, value = parameter.name, values[parameter.name]
        kind, aligned = _signature(name, value, constant=parameter.is_constexpr)
        signature[name] = kind
        if kind == "constexpr":
            constants[name] = value
        elif aligned:
            attributes[(place,)] = [["tt.divisibility", 16]]
    try:
        compiled = triton.compile(
            ASTSource(kernel, signature, constants, attributes),
            target=GPUTarget("cuda", capability, _WARP_THREADS),
            options={"num_warps": num_warps, "num_stages": num_stages},
        )
    except Exception as error:
        raise BackendError(f"Triton does not compile the kernel: {error}") from None
    ptx, metadata = compiled.asm["ptx"], compiled.metadata
    maps = getattr(metadata, "tensordesc_meta", None) or ()
    return Compilation(
        ptx,
        int(ptx.partition(".reqntid ")[2].split()[0].strip(",")),
        metadata.shared,
        getattr(metadata, "global_scratch_size", 0) or 0,
        tuple((tuple(each["block_size"]), SWIZZLES[each["swizzle"]]) for each in maps),
        tuple(name for name, kind in signature.items() if kind != "constexpr"),
    )


def _signature(name: str, value: Any, *, constant: bool) -> tuple[str, bool]:
    """Return the Triton type of a parameter, and whether its value is a multiple of 16."""
    if constant or value is None or (isinstance(value, int) and not isinstance(value, bool) and value == 1):
        return "constexpr", False
    if isinstance(value, TensorMap):
        return f"tensordesc<{_type_of(value.array)}{list(value.box)}>".replace(" ", ""), False
    if kind := _type_of(value):
        return f"*{kind}", True
    if isinstance(value, bool):
        return "u1", False
    if isinstance(value, int | np.integer):
        return ("i32" if -(1 << 31) <= value < 1 << 31 else "i64"), value % 16 == 0
    if isinstance(value, float | np.floating):
        return "fp32", False
    raise KernelError(f"the argument {name!r} must be an array, a tensor, a number or a tensor map, "
                      f"not {type(value).__name__}")  # fmt: skip
