"""Read and write tensors in ``.npy``, ``.npz``, ``.safetensors`` and ``.pt`` files."""

import difflib
import io
import json
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import FileError, OperandError
from ..infra.files import is_stream, require_writable, write_whole
from ..infra.reading import opened, read_array, read_arrays
from .blocks import native
from .compressed import Compressed
from .element_types import is_extension, named_dtype, needed
from .pytorch import array_of, compressed_of, is_semi_structured, read_weights

__all__ = ["SUFFIXES", "TensorFile", "check_output", "open_tensors", "read_matrix", "write_tensors"]

#: Suffixes of files that can be read and written. Files with suffix ``.npy`` or ``.pt`` can only be read.
SUFFIXES = (".safetensors", ".npz")

_INCOMPLETE = "is not a complete {} file"
#: Name of the numpy or ``ml_dtypes`` type for each element type of safetensors.
_SAFETENSORS_TYPES = {
    **{f"F{bits}": f"float{bits}" for bits in (64, 32, 16)},
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
    **{f"{kind[0].upper()}{bits}": f"{kind}{bits}" for bits in (64, 32, 16, 8) for kind in ("int", "uint")},
}
#: Name of the ``.npz`` member that holds the text metadata as JSON.
_METADATA = "__metadata__"
#: Metadata key in an ``.npz`` file. The JSON value of this key gives, by tensor name, the element types that ``.npz``
#: cannot express.
_TYPES = "types"
#: Names of the arrays of a matrix that compressed-tensors stores as a bitmask. The 2:4 bitmask format has no row
#: offsets.
_BITMASK_PARTS = ("compressed", "bitmask", "shape", "row_offsets")


@dataclass(frozen=True, eq=False)
class TensorFile:
    """An open file of tensors, which reads each tensor on demand."""

    path: Path
    #: Names of the tensors. The tensor of an ``.npy`` file, and a single tensor in a ``.pt`` file, has the empty name.
    names: tuple[str, ...]
    metadata: dict[str, str]  #: Text metadata that the file contains
    _read: Callable[[str], NDArray]
    #: Semi-structured tensors of a ``.pt`` file, by name. :meth:`get` returns them dense.
    compressed: Mapping[str, Callable[[], Compressed]] = field(default_factory=dict)
    #: Names of matrices that the file stores as a bitmask with row offsets. :meth:`get` returns them dense.
    bitmasks: tuple[str, ...] = ()

    def get(self, name: str) -> NDArray:
        """Return a tensor, memory-mapped unless it is in an ``.npz`` file, or not contiguous in a ``.pt`` file.

        Raise a `FileError` if there is no such tensor, or it cannot be read.
        """
        if name not in self.names:
            close = difflib.get_close_matches(name, self.names, 3, 0.4) or self.names[:3]
            raise FileError(f"{self.path} has no tensor {name!r}; it has {_some(close, len(self.names))}")
        return self._read(name)

    def only(self, word: str = "a name") -> str:
        """Return the name of the only tensor in the file.

        Raise a `FileError` if the file holds no tensor, or several; `word` is the option that names a tensor, for the
        message.
        """
        if len(self.names) != 1:
            raise FileError(
                f"{self.path} holds {_some(self.names[:3], len(self.names))}: {word} must select one of them"
                if self.names
                else f"{self.path} holds no tensor"
            )
        return self.names[0]


def _some(shown: "tuple[str, ...] | list[str]", total: int) -> str:
    more = f" and {total - len(shown)} more" if total > len(shown) else ""
    return ", ".join(map(repr, shown)) + more


def open_tensors(path: Path) -> TensorFile:
    """Open an ``.npy``, ``.npz`` or ``.safetensors`` file, or a ``.pt`` file of PyTorch that holds only tensors.

    Raise a `FileError` if the file has another type, is truncated, or cannot be read.
    """
    openers = {".npy": _open_npy, ".npz": _open_npz, ".safetensors": _open_safetensors, ".pt": _open_pt}
    if path.suffix not in openers:
        raise FileError(f"{path} must end in one of {', '.join(openers)}")
    try:
        return _with_bitmasks(openers[path.suffix](path))
    except OSError as error:
        raise FileError(f"{path} cannot be read ({error.strerror or error})") from None


def _open_npy(path: Path) -> TensorFile:
    return TensorFile(path, ("",), {}, lambda _: _native(path, read_array(path, _INCOMPLETE.format(path.suffix))))


def _native(path: Path, array: NDArray) -> NDArray:
    """Convert elements to native byte order. Raise a `FileError` if their type is unknown."""
    if array.dtype.kind == "V" and array.dtype.names is None:
        raise FileError(
            f"{path} does not state the type of its elements of {array.dtype.itemsize} bytes: .npy and .npz files "
            "cannot express bfloat16 and float8, but .safetensors files can"
        )
    return native(array)


def _open_npz(path: Path) -> TensorFile:
    refusal = _INCOMPLETE.format(path.suffix)

    def member(name: str) -> NDArray:
        with read_arrays(path, refusal) as archive:
            return _native(path, archive.read(name))

    with read_arrays(path, refusal) as archive:
        names = list(archive.names)
    metadata: dict[str, str] = {}
    if _METADATA in names:
        names.remove(_METADATA)
        try:
            text = dict(json.loads(str(member(_METADATA))))
            metadata = {str(key): str(value) for key, value in text.items()}
            types = dict(json.loads(metadata.pop(_TYPES, "{}")))
        except (ValueError, TypeError, RecursionError):
            raise FileError(f"{path}: the member {_METADATA} does not hold a JSON object") from None
    else:
        types = {}

    def read(name: str) -> NDArray:
        array = member(name)
        if name not in types:
            return array
        try:
            return array.view(named_dtype(str(types[name])))
        except (ValueError, TypeError):
            raise FileError(f"{path}: {name!r} does not hold elements of type {types[name]}") from None

    return TensorFile(path, tuple(names), metadata, read)


def _open_safetensors(path: Path) -> TensorFile:
    safetensors = needed("safetensors")
    with opened(path):  # opened() raises an error for a pipe, on which safe_open() would wait for data.
        pass
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
    except safetensors.SafetensorError as error:
        raise FileError(f"{path} is not a complete .safetensors file ({error})") from None
    # safetensors has checked the header and the size of the data. Mapping keeps large tensors out of memory.
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        header = json.loads(stream.read(length))
    header.pop("__metadata__", None)

    def read(name: str) -> NDArray:
        entry = header[name]
        if entry["dtype"] not in _SAFETENSORS_TYPES:
            raise FileError(
                f"{path}: elements of {name!r} are {entry['dtype']}, not one of {', '.join(_SAFETENSORS_TYPES)}"
            )
        dtype, shape = named_dtype(_SAFETENSORS_TYPES[entry["dtype"]]), tuple(entry["shape"])
        if 0 in shape:
            return np.empty(shape, dtype)
        return np.memmap(path, np.dtype(f"V{dtype.itemsize}"), "r", 8 + length + entry["data_offsets"][0], shape).view(
            dtype
        )

    return TensorFile(path, tuple(sorted(header)), dict(metadata), read)


def _open_pt(path: Path) -> TensorFile:
    tensors = read_weights(path)

    def compressed(name: str) -> Compressed:
        content = compressed_of(f"{path}: {name!r}", tensors[name])
        assert isinstance(content, Compressed)
        return content

    sparse = {name: partial(compressed, name) for name, tensor in tensors.items() if is_semi_structured(tensor)}
    return TensorFile(path, tuple(tensors), {}, lambda name: array_of(f"{path}: {name!r}", tensors[name]), sparse)


def _with_bitmasks(file: TensorFile) -> TensorFile:
    """Return the file with each matrix that is stored as bitmask and row offsets presented as one dense matrix."""
    last = f".{_BITMASK_PARTS[-1]}"
    whole = {name.removesuffix(last) for name in file.names if name.endswith(last)}
    parts = {name: tuple(f"{name}.{part}" for part in _BITMASK_PARTS) for name in sorted(whole)}
    parts = {name: keys for name, keys in parts.items() if name not in file.names and {*keys} <= {*file.names}}
    if not parts:
        return file
    inside = {key for keys in parts.values() for key in keys}

    def read(name: str) -> NDArray:
        if name not in parts:
            return file.get(name)
        arrays = (file.get(key) for key in parts[name])
        try:
            return _dense_from_bitmask(dict(zip(_BITMASK_PARTS, arrays, strict=True)))
        except OperandError as error:
            raise FileError(f"{file.path}: {name!r}: {error}") from None

    names = (*(name for name in file.names if name not in inside), *parts)
    return replace(file, names=names, _read=read, bitmasks=tuple(parts))


def _dense_from_bitmask(arrays: Mapping[str, NDArray]) -> NDArray:
    """Return the dense matrix of a ``sparse-bitmask`` checkpoint, with +0 where no bit is set.

    The arrays are ``compressed``, the non-zero values row by row; ``bitmask``, uint8 of shape (rows, columns / 8
    rounded up), the first column in the lowest bit; ``shape``; and ``row_offsets``, the index of the first value of
    every row. Raise an `OperandError` if the arrays contradict each other.

    Source: ``sparse_bitmask.py`` of compressed-tensors 0.10.2, which does not store -0.0. Where the original matrix has
    -0.0, the returned matrix has +0.
    """
    values, mask, shape, offsets = (arrays[name] for name in _BITMASK_PARTS)
    sizes = shape.ravel().tolist() if shape.dtype.kind in "iu" and shape.size == 2 else [0, 0]
    rows, columns = int(sizes[0]), int(sizes[1])
    if rows < 1 or columns < 1 or mask.shape != (rows, -(-columns // 8)) or mask.dtype.itemsize != 1:
        raise OperandError(f"a {mask.dtype.name} bitmask of shape {mask.shape} does not fit a matrix {tuple(sizes)}")
    octets = np.ascontiguousarray(mask).view(np.uint8)
    bits = np.unpackbits(octets, axis=1, bitorder="little").view(bool)
    if bits[:, columns:].any():
        raise OperandError(f"the bitmask marks elements beyond column {columns - 1}")
    kept = bits[:, :columns]
    counts = kept.sum(1)
    if values.ndim != 1 or len(values) != counts.sum():
        raise OperandError(
            f"the bitmask marks {counts.sum()} elements, but there are {values.size} values of shape {values.shape}"
        )
    if not np.array_equal(offsets.ravel(), np.cumsum(counts) - counts):
        raise OperandError("the row offsets do not match the bitmask")
    dense = np.zeros((rows, columns), values.dtype)
    dense[kept] = values
    return dense


def read_matrix(path: Path, name: str | None = None) -> NDArray:
    """Read a matrix from a file that :func:`open_tensors` can open; all but ``.npz`` files are mapped into memory.

    `name` is the name of the tensor, not needed if the file holds only one. bfloat16 and float8 have types of
    ``ml_dtypes``. Raise a `FileError` if the file cannot be read, is truncated, or has no such tensor; or if the tensor
    is not a matrix, or its type is not a real number (complex, text, bool).
    """
    file = open_tensors(path)
    chosen = file.only() if name is None else name
    array = file.get(chosen)
    label = f"{path}: {chosen!r}" if chosen else str(path)
    if array.ndim != 2:
        raise FileError(f"{label} must have two axes, not shape {array.shape}")
    if array.dtype.kind not in "fiuV" or array.dtype.names:
        raise FileError(f"{label} must hold floats or integers, not {array.dtype}")
    return array


def check_output(path: Path, names: Iterable[str] = ()) -> None:
    """Check that a file can be written, before its content is computed.

    Raise a `FileError` if the suffix of the file is not in :data:`SUFFIXES` and the file is no stream, it cannot be
    written, the file cannot hold a tensor with one of these `names`, or a package is not installed.
    """
    if path.suffix not in SUFFIXES and not is_stream(path):
        raise FileError(f"{path} must end in {' or '.join(SUFFIXES)}")
    if _METADATA in names:
        raise FileError(f"{path} cannot hold a tensor named {_METADATA!r}, which is the name of the metadata")
    if path.suffix == ".safetensors":
        needed("safetensors")
    require_writable(path)


def write_tensors(path: Path, tensors: Mapping[str, NDArray], metadata: Mapping[str, str]) -> None:
    """Write a ``.safetensors`` or ``.npz`` file of tensors atomically: readers see the old or the complete new file.

    Standard output, a device or a pipe without the suffix ``.safetensors`` receives an ``.npz`` file. In an ``.npz``
    file, the text metadata are the member ``__metadata__``. Raise a `FileError` if the suffix is wrong, the file cannot
    hold a type, or it cannot be written.
    """
    check_output(path, tensors)
    contiguous = {name: np.asarray(array, order="C") for name, array in tensors.items()}
    if path.suffix != ".safetensors":
        types = {name: array.dtype.name for name, array in contiguous.items() if is_extension(array.dtype)}
        plain = {
            name: array.view(f"u{array.dtype.itemsize}") if name in types else array
            for name, array in contiguous.items()
        }
        text = json.dumps({**metadata, **({_TYPES: json.dumps(types)} if types else {})})
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w") as archive:  # np.savez() takes no array named "file"
            for name, array in (*plain.items(), (_METADATA, np.array(text))):
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
        write_whole(path, stream.getvalue())
        return
    safetensors, library = needed("safetensors"), needed("safetensors.numpy")
    try:
        data = library.save(contiguous, dict(metadata))
    except safetensors.SafetensorError as error:
        raise FileError(f"{path} cannot be written ({error})") from None
    write_whole(path, data)
