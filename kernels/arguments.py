"""Arguments of a kernel launch: arrays, numbers, tensor maps and structures, and the memory that they refer to."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import KernelError
from .memory import GlobalMemory, parameter_space
from .program import Kernel, Parameter
from .tensor_maps import MAP_BYTES, MapRecord, element_bits

__all__ = ["StructParameter", "TensorMap", "global_memory"]

_POINTER_BYTES = 8


@dataclass(frozen=True)
class TensorMap:
    """A tensor map over an array whose last axis is the innermost, passed as a kernel parameter of 128 bytes."""

    #: Array in global memory that the tensor map describes. The array may also be passed as a pointer.
    array: NDArray
    #: Size of the box that one copy moves, in elements along each axis of the tensor.
    box: tuple[int, ...]
    #: Swizzle of shared memory: ``none``, ``32B``, ``64B``, ``128B`` or ``128B with 32B atoms``.
    swizzle: str = "128B"
    #: Value of elements outside the array: ``zeros`` or ``nan``.
    fill: str = "zeros"
    #: Interleave mode of the tensor map. Only ``none`` is modelled.
    interleave: str = "none"
    #: Size of the tensor in elements along each axis. The default is the array's shape.
    shape: tuple[int, ...] | None = None
    #: Distance in bytes between neighbouring elements along each axis. The default is the array's strides.
    strides: tuple[int, ...] | None = None
    #: PTX type of the elements, which reductions of tiles use. The default is the type of the array's elements. With
    #: ``tf32`` or ``tf32.ftz``, copies to shared memory round f32 elements to tf32. An array of bytes may contain
    #: elements of any type, also packed elements of 4 or 6 bits (``b4x16``, ``b4x16_p64``, ``b6x16_p32``).
    element: str | None = None


@dataclass(frozen=True)
class StructParameter:
    """A structure that is passed as a kernel parameter, such as the parameters of a kernel of CUTLASS."""

    #: All bytes of the structure. Those of pointers and tensor maps have no effect.
    content: bytes
    #: Pointers and tensor maps in the structure, by their offset in bytes. An array is a pointer to its first byte, and
    #: a pair ``(array, n)`` is a pointer to byte `n` of the array.
    pointers: Mapping[int, NDArray | TensorMap | tuple[NDArray, int]] = field(default_factory=dict)


def global_memory(kernel: Kernel, args: Sequence[Any]) -> tuple[GlobalMemory, bytes, list[tuple[int, NDArray]]]:
    """Return global memory with copies of the arrays, the bytes of parameter space, and the address of each array."""
    if not isinstance(args, Sequence):
        raise KernelError(f"'args' must be a sequence of arguments, not {type(args).__name__}")
    if len(args) != len(kernel.parameters):
        raise KernelError(f"{kernel.name} takes {len(kernel.parameters)} arguments, not {len(args)}")
    names = [f"argument {position} ({parameter.name})" for position, parameter in enumerate(kernel.parameters)]
    for where, parameter, value in zip(names, kernel.parameters, args, strict=True):
        if isinstance(value, StructParameter):
            _check_structure(where, parameter.size, value)
    distinct = {id(array): array for where, value in zip(names, args, strict=True) for array in _arrays(where, value)}
    memory = GlobalMemory(distinct.values(), kernel.variables)
    addresses = dict(zip(distinct, memory.addresses, strict=False))
    values = [
        _value(where, parameter, value, addresses)
        for where, parameter, value in zip(names, kernel.parameters, args, strict=True)
    ]
    return memory, parameter_space(kernel, values), [(addresses[key], array) for key, array in distinct.items()]


def _arrays(where: str, value: Any) -> Iterator[NDArray]:
    """Check and yield the arrays to which an argument, or an item of a structure, refers."""
    if isinstance(value, StructParameter):
        for item in value.pointers.values():
            yield from _arrays(where, item[0] if isinstance(item, tuple) else item)
    elif isinstance(value, TensorMap):
        if not isinstance(value.array, np.ndarray):
            raise KernelError(f"the tensor map of {where} must hold an array, not {type(value.array).__name__}")
        yield from _arrays(where, value.array)
    elif isinstance(value, np.ndarray):
        if not value.flags.c_contiguous:
            raise KernelError(f"{where} must be a contiguous array")
        if value.dtype.hasobject or value.dtype.byteorder == ">":
            raise KernelError(f"{where} must be an array of numbers in little-endian order, not of {value.dtype.str}")
        yield value


def _value(where: str, parameter: Parameter, value: Any, addresses: Mapping[int, int]) -> int | float | bytes:
    """Return an argument as a number or as bytes. `addresses` has the address of each array, by its ``id``."""
    if isinstance(value, StructParameter):
        return _structure(value, addresses)
    if isinstance(value, TensorMap | np.ndarray):
        if parameter.size != _size_of(value):
            what = "tensor map" if isinstance(value, TensorMap) else "pointer to an array"
            raise KernelError(f"{where} has {parameter.size} bytes and takes no {what}")
        return _reference(value, addresses)
    if isinstance(value, bool | int | np.integer | float | np.floating):
        number = float(value) if isinstance(value, float | np.floating) else int(value)
        is_float = parameter.type[0] == "f"
        bits = 64 if is_float else 8 * parameter.size
        fits = (is_float and isinstance(number, float)) or -(1 << bits - 1) <= number < 1 << bits
        if parameter.size > 8 or not fits:
            raise KernelError(f"{where} of {parameter.size} bytes does not accept the number {value!r}")
        return number
    if isinstance(value, bytes) and len(value) == parameter.size:
        return value
    raise KernelError(f"{where} of {parameter.size} bytes must be an array, a number, a tensor map, a structure or "
                      f"bytes of that length, not {type(value).__name__}")  # fmt: skip


def _size_of(value: NDArray | TensorMap) -> int:
    """Return the number of bytes of a tensor map, or of a pointer to an array."""
    return MAP_BYTES if isinstance(value, TensorMap) else _POINTER_BYTES


def _reference(value: NDArray | TensorMap, addresses: Mapping[int, int], start: int = 0) -> bytes:
    """Return the bytes of a pointer to byte `start` of an array, or of a tensor map."""
    if isinstance(value, TensorMap):
        return _tensor_map(value, addresses[id(value.array)]).encoded()
    return (addresses[id(value)] + start).to_bytes(_POINTER_BYTES, "little")


def _check_structure(where: str, size: int, value: StructParameter) -> None:
    """Raise an error unless a structure has `size` bytes, and all its pointers and tensor maps are inside it."""
    if not isinstance(value.content, bytes) or len(value.content) != size:
        raise KernelError(f"{where} needs a structure of {size} bytes")
    if not isinstance(value.pointers, Mapping):
        raise KernelError(f"the pointers of {where} must be a dictionary, not {type(value.pointers).__name__}")
    for offset, item in value.pointers.items():
        target, *start = item if isinstance(item, tuple) and item else (item,)
        fits = isinstance(offset, int | np.integer) and isinstance(target, TensorMap | np.ndarray)
        if not fits or not 0 <= offset <= size - _size_of(target):
            raise KernelError(f"{where} of {size} bytes needs an array or tensor map that fits at offset {offset!r}")
        if start and not (
            isinstance(target, np.ndarray)
            and len(start) == 1
            and isinstance(start[0], int | np.integer)
            and 0 <= start[0] <= target.nbytes
        ):
            raise KernelError(f"the pointer at offset {offset} of {where} needs an array, and a byte of this array")


def _structure(value: StructParameter, addresses: Mapping[int, int]) -> bytes:
    """Return the bytes of a structure with its pointers and tensor maps."""
    content = bytearray(value.content)
    for offset, item in value.pointers.items():
        target, start = item if isinstance(item, tuple) else (item, 0)
        content[offset : offset + _size_of(target)] = _reference(target, addresses, int(start))
    return bytes(content)


def _tensor_map(tile: TensorMap, address: int) -> MapRecord:
    array, element = tile.array, tile.element or _element(tile.array.dtype)
    if not isinstance(element, str):
        raise KernelError(f"the element type of a tensor map must be a name, not {element!r}")
    bits = element_bits(element)
    size = max(bits // 8, 1)
    shape: Any = tile.shape
    strides: Any = tile.strides
    if shape is None and array.ndim:
        shape = (*array.shape[:-1], array.shape[-1] * array.itemsize * 8 // bits)
    if strides is None and array.ndim:
        strides = (*array.strides[:-1], size)
    for name, sides in (("box", tile.box), ("shape", shape), ("strides", strides)):
        if not isinstance(sides, tuple | list) or not sides or not all(isinstance(s, int | np.integer) for s in sides):
            raise KernelError(f"the {name} of a tensor map must be a tuple of integers, not {sides!r}")
    if array.itemsize not in (1, size):
        raise KernelError(f"a tensor map with elements of {element} does not fit an array of {array.dtype}")
    if tile.interleave != "none":
        raise KernelError(f"interleave {tile.interleave!r} of a tensor map is not modelled")
    if not len(tile.box) == len(shape) == len(strides):
        raise KernelError(
            f"a tensor map needs a box, a shape and strides of equal length, not {tile.box}, {shape} and {strides}"
        )
    if strides[-1] != size:
        raise KernelError(f"the last stride of a tensor map must be {size} bytes, not {strides[-1]}")
    rows = zip(shape[:-1], strides[:-1], strict=True)
    end = sum((side - 1) * stride for side, stride in rows) + shape[-1] * bits // 8
    if end > array.nbytes:
        raise KernelError(f"a tensor map of {end} bytes does not fit an array of {array.nbytes} bytes")
    return MapRecord(
        address,
        tuple(shape[::-1]),
        tuple(strides[:-1][::-1]),
        tuple(tile.box[::-1]),
        element,
        tile.swizzle,
        tile.fill,
    )


def _element(dtype: np.dtype) -> str:
    """Return the PTX type of an array's elements, or an unsigned type of equal width if PTX cannot reduce them."""
    bits = 8 * dtype.itemsize
    if dtype.name == "bfloat16":
        return "bf16"
    if dtype.kind == "f" and bits > 8:
        return f"f{bits}"
    return f"s{bits}" if dtype.kind == "i" and bits >= 32 else f"u{bits}"
