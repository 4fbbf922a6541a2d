"""JSON files that describe a launch: geometry, arrays and arguments of a kernel."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import FileError
from ..infra.reading import beyond_budget, memory_budget, read_json
from ..tensors.element_types import named_dtype
from ..tensors.files import open_tensors
from .arguments import StructParameter, TensorMap
from .launch import KernelRun, run_kernel

__all__ = ["LaunchFile", "read_launch"]

#: JSON keys of a launch description, and of the objects in it.
_PARAMETERS = {"entry", "grid", "block", "cluster", "shared"}
_KEYS = _PARAMETERS | {"arrays", "arguments"}
_MAP_KEYS = {"swizzle", "fill", "element", "shape", "strides"}
_ARRAY_KEYS = ({"file"}, {"file", "tensor"}, {"zeros", "shape"})
_MOST_AXES = 32
_COPIES = 2  # a launch holds two copies of each array: for the caller, and in global memory


@dataclass(frozen=True)
class LaunchFile:
    """A kernel launch read from a JSON file, with its arrays."""

    #: Arrays of the launch by name.
    arrays: dict[str, NDArray]
    #: Other parameters of :func:`~sptc.kernels.launch.run_kernel` by name: grid, block, args, entry, cluster, shared.
    parameters: dict[str, Any]

    def run(self, ptx: str, **options: Any) -> KernelRun:
        """Run a kernel of a module. The options are those of :func:`~sptc.kernels.launch.run_kernel`."""
        return run_kernel(ptx, **self.parameters, **options)


def read_launch(path: Path) -> LaunchFile:
    """Read the description of a kernel launch from a file.

    Parameters
    ----------
    path : Path
        A JSON file with the keys ``grid`` and ``block`` (one to three ints), ``arrays`` and ``arguments``, and
        optionally ``entry`` (the name of the kernel), ``shared`` (bytes of dynamic shared memory) and ``cluster``.
        Each array is ``{"file": "a.npy"}``, ``{"file": "all.npz", "tensor": "a"}`` or
        ``{"zeros": "float16", "shape": [512, 512]}``; paths are relative to the folder of `path`. All arrays of zeros
        and their copies in global memory take at most 1 GiB, or the limit in the environment variable
        ``SPTC_ARCHIVE_GIB``. An argument is a number, ``{"array": "a"}`` for a pointer, or for a tensor map
        ``{"map": "a", "box": [128, 64], "swizzle": "128B", "fill": "zeros"}``, with ``shape`` in elements and
        ``strides`` in bytes if the shape of the tensor is not that of the array. A structure is
        ``{"struct": "00ff...", "pointers": {"16": {"array": "a"}}}``: all its bytes in hexadecimal, and the pointers
        and tensor maps in it by their offset in bytes. With ``"offset": n``, a pointer is to byte `n` of the array.

    Raises
    ------
    FileError
        The file, or a file of an array, cannot be read; or the file does not have this structure.
    """
    launch = read_json(path)
    if not isinstance(launch, dict) or not {"grid", "block", "arrays", "arguments"} <= launch.keys() <= _KEYS:
        raise FileError(f"{path} must be a JSON object with the keys grid, block, arrays and arguments, "
                        "and optionally entry, cluster and shared")  # fmt: skip
    refuse: Callable[[str], FileError] = lambda text: FileError(f"{path}: {text}")  # noqa: E731
    if not isinstance(launch["arrays"], dict) or not isinstance(launch["arguments"], list):
        raise refuse("'arrays' must be an object, and 'arguments' must be a list")
    arrays, left = {}, memory_budget()
    for name, value in launch["arrays"].items():
        arrays[name] = _array(path.parent, name, value, refuse, left)
        left -= _COPIES * arrays[name].nbytes if "zeros" in value else 0
    arguments = [_argument(place, value, arrays, refuse) for place, value in enumerate(launch["arguments"])]
    if not isinstance(launch.get("shared", 0), int):
        raise refuse("'shared' must be a number of bytes")
    return LaunchFile(arrays, {key: launch[key] for key in launch.keys() & _PARAMETERS} | {"args": arguments})


def _array(folder: Path, name: str, value: Any, refuse: Callable[[str], FileError], most_bytes: int) -> NDArray:
    if not isinstance(value, dict) or {*value} not in _ARRAY_KEYS:
        raise refuse(f"array {name!r} must have the key 'file', or 'file' and 'tensor', or 'zeros' and 'shape'")
    if "zeros" in value:
        shape = value["shape"]
        if not isinstance(shape, list) or len(shape) > _MOST_AXES or not all(type(s) is int and s > 0 for s in shape):
            raise refuse(f"the shape of array {name!r} must be a list of at most {_MOST_AXES} integers above 0")
        dtype = named_dtype(str(value["zeros"]))
        if dtype.hasobject or not dtype.itemsize:
            raise refuse(f"the elements of array {name!r} must be numbers, not {dtype}")
        if np.prod(shape, dtype=float) * dtype.itemsize * _COPIES > most_bytes:
            raise refuse(f"array {name!r} is too large: {beyond_budget()}")
        return np.zeros(shape, dtype)
    if not all(isinstance(word, str) for word in value.values()):
        raise refuse(f"'file' and 'tensor' of array {name!r} must be strings")
    file = open_tensors(folder / value["file"])
    return np.array(file.get(value["tensor"] if "tensor" in value else file.only("tensor")), order="C")


def _argument(place: int, value: Any, arrays: dict[str, NDArray], refuse: Callable[[str], FileError]) -> Any:
    if isinstance(value, int | float):
        return value
    if isinstance(value, dict) and "struct" in value and {*value} <= {"struct", "pointers"}:
        return _structure(place, value["struct"], value.get("pointers", {}), arrays, refuse)
    if isinstance(value, dict) and {*value} in ({"array"}, {"map", "box"} | {*value} & _MAP_KEYS):
        name = value.get("array", value.get("map"))
        if not isinstance(name, str) or name not in arrays:
            raise refuse(f"argument {place} names the array {name!r}, which is not a key of 'arrays'")
        if "array" in value:
            return arrays[name]
        sides: dict[str, tuple[int, ...]] = {}
        for key in {"box", "shape", "strides"} & {*value}:
            if not isinstance(value[key], list) or not all(isinstance(side, int) for side in value[key]):
                raise refuse(f"the {key} of argument {place} must be a list of integers")
            sides[key] = tuple(value[key])
        words = {key: str(value[key]) for key in {"swizzle", "fill", "element"} & {*value}}
        return TensorMap(arrays[name], sides.pop("box"), **words, **sides)  # type: ignore[arg-type]
    raise refuse(f"argument {place} must be a number, an array, a tensor map or a structure, not {value!r:.60}")


def _structure(
    place: int, content: Any, pointers: Any, arrays: dict[str, NDArray], refuse: Callable[[str], FileError]
) -> StructParameter:
    try:
        octets = bytes.fromhex(content)
        items = {int(offset): _pointer(place, item, arrays, refuse) for offset, item in pointers.items()}
    except FileError:
        raise
    except (TypeError, ValueError, AttributeError):
        raise refuse(
            f"argument {place} needs a 'struct' of hexadecimal bytes, and 'pointers' with integer offsets as keys"
        ) from None
    return StructParameter(octets, items)


def _pointer(place: int, value: Any, arrays: dict[str, NDArray], refuse: Callable[[str], FileError]) -> Any:
    if isinstance(value, dict) and {*value} == {"array", "offset"} and isinstance(value["offset"], int):
        return _argument(place, {"array": value["array"]}, arrays, refuse), value["offset"]
    return _argument(place, value, arrays, refuse)
