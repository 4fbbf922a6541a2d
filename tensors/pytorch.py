"""PyTorch tensors of a running program, and tensors loaded safely from ``.pt`` files.

A ``.pt`` file is an archive with a pickle and the bytes of every storage. This module checks the file before PyTorch
loads it with ``weights_only``: its size must match its headers, and its pickle may name only the classes of tensors and
of dictionaries of tensors. A pickle that names anything else is rejected, even if PyTorch would accept it.
"""

import pickletools
import re
import sys
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

from numpy.typing import NDArray

from ..errors import FileError, OperandError
from ..infra.reading import opened, reason_of
from ..isa.metadata import GRANULARITIES
from .compressed import Compressed
from .element_types import named_dtype, needed
from .software_formats import SOFTWARE_FORMATS, PackingOptions
from .sparsify import expand

__all__ = ["array_of", "compressed_of", "is_semi_structured", "is_tensor", "read_weights"]

#: Element types that PyTorch cannot convert to numpy.
_FOREIGN = ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu")
_SEMI_STRUCTURED = ("SparseSemiStructuredTensorCUTLASS", "SparseSemiStructuredTensorCUSPARSELT")
#: Names that a pickle may use, besides the names of storages and element types. Names for plain tensors are first,
#: names for semi-structured tensors are last.
_ALLOWED = {
    "collections OrderedDict",
    "torch Size",
    "torch._utils _rebuild_parameter",
    "torch._utils _rebuild_tensor_v2",
    "torch._utils _rebuild_tensor_v3",
    "torch.storage TypedStorage",
    "torch.storage UntypedStorage",
    "torch device",
    "torch._tensor _rebuild_from_type_v2",
    "torch._utils _rebuild_wrapper_subclass",
    "torch.serialization _get_layout",
    *(f"torch.sparse.semi_structured {name}" for name in _SEMI_STRUCTURED),
}
#: Attributes of a semi-structured tensor that hold plain tensors.
_PARTS = ("packed", "meta", "packed_t", "meta_t", "compressed_swizzled_bitmask")
_STORAGE_OR_TYPE = re.compile(r"[A-Za-z0-9]+Storage|bool|(u?int|b?float|complex)[0-9]+(_e[a-z0-9]+)?")
#: Pickle opcodes that name or create objects and that do not occur in files of PyTorch.
_OTHER_MAKERS = {"STACK_GLOBAL", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "EXT1", "EXT2", "EXT4"}
_PROGRAM_BYTES = 1 << 26


def is_tensor(value: Any) -> bool:
    """Return whether a value is a PyTorch tensor, without importing PyTorch."""
    modules = {kind.__module__.partition(".")[0] for kind in type(value).__mro__}
    return hasattr(value, "detach") and "torch" in modules


def is_semi_structured(value: Any) -> bool:
    """Return whether a value is a ``torch.sparse.SparseSemiStructuredTensor``."""
    return is_tensor(value) and any("SemiStructured" in kind.__name__ for kind in type(value).__mro__)


def array_of(name: str, tensor: Any) -> NDArray:
    """Return a PyTorch tensor of any layout and on any device as a dense numpy array of the same type.

    bfloat16 and float8 have types of ``ml_dtypes``. `name` is the name of the tensor in messages. Raise an
    `OperandError` if numpy cannot hold the type, or the tensor cannot be converted to a dense one.
    """
    if is_semi_structured(tensor):
        turned = getattr(tensor, "packed", None) is None
        content = compressed_of(name, tensor, transposed=turned)
        dense = expand(content) if isinstance(content, Compressed) else content
        return dense.T if turned else dense
    try:
        if str(tensor.layout) != "torch.strided":
            tensor = tensor.to_dense()
        tensor = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
        dtype = str(tensor.dtype).removeprefix("torch.")
        if dtype in _FOREIGN:
            torch: Any = sys.modules["torch"]  # If the value is a tensor, PyTorch has been imported already.
            words: NDArray = tensor.view(torch.int16 if tensor.element_size() == 2 else torch.int8).numpy()
            return words.view(named_dtype(dtype))
        array: NDArray = tensor.numpy()
    except (TypeError, RuntimeError) as error:
        reason = reason_of(error)
        raise OperandError(f"{name} is a tensor of {tensor.dtype} that numpy cannot hold ({reason})") from None
    return array


def compressed_of(name: str, tensor: Any, *, transposed: bool = False) -> Compressed | NDArray:
    """Return the matrix of a ``torch.sparse.SparseSemiStructuredTensor``, or its transpose, in compressed form.

    With `transposed`, return the transpose: a weight ``w.t()`` is compressed along the rows of ``w``. Values and
    metadata of the CUTLASS back end are used directly. The layout of cuSPARSELt is not public; its tensors are returned
    as dense matrices, if their GPU is present to expand them. `name` is the name of the tensor in messages. Raise an
    `OperandError` if the tensor is compressed only along the other axis, the shapes of its parts do not match, or the
    GPU of a tensor of cuSPARSELt is not present.
    """
    if any("CUSPARSELT" in kind.__name__ for kind in type(tensor).__mro__):
        dense = _expanded_by_cusparselt(name, tensor)
        return dense.T if transposed else dense
    suffix = "_t" if transposed else ""
    values, metadata = (getattr(tensor, part + suffix, None) for part in ("packed", "meta"))
    other = getattr(tensor, "packed" if transposed else "packed_t", None)
    if values is None and other is not None:
        raise OperandError(
            f"{name} is compressed along its {'rows' if transposed else 'columns'}, but the product is summed along "
            f"the {'columns' if transposed else 'rows'}"
        )
    if values is None or metadata is None:
        raise OperandError(f"{name} is a semi-structured tensor without values and metadata")
    arrays = {"values": array_of(name, values), "metadata": array_of(name, metadata)}
    granularity = GRANULARITIES["1:2" if arrays["values"].dtype.itemsize == 4 else "2:4"]
    try:
        compressed = SOFTWARE_FORMATS["cutlass2"].unpack(arrays, granularity, PackingOptions())
    except OperandError as error:
        raise OperandError(f"{name}: {error}") from None
    shape = tuple(tensor.shape)[::-1] if transposed else tuple(tensor.shape)
    if compressed.shape != shape:
        raise OperandError(f"{name} has shape {shape}, but its compressed values have shape {compressed.shape}")
    return compressed


def _expanded_by_cusparselt(name: str, tensor: Any) -> NDArray:
    """Return a dense array of a tensor that cuSPARSELt compressed; cuSPARSELt expands it on the tensor's GPU."""
    own_class = type(tensor).__module__.partition(".")[0] == "torch"
    try:
        if own_class and tensor.device.type != "cuda":
            raise TypeError  # On a CPU, to_dense() would multiply the tensor by a large identity matrix.
        dense = tensor.to_dense()
    except (AttributeError, TypeError, RuntimeError):
        raise OperandError(
            f"{name} is compressed by cuSPARSELt: values and metadata lie in one buffer whose layout is not public and "
            "changes with its version; give the result of .to_dense() on the GPU that made it, or a tensor of "
            "SparseSemiStructuredTensorCUTLASS"
        ) from None
    return array_of(name, dense)


def read_weights(path: Path) -> dict[str, Any]:
    """Return the tensors of a ``.pt`` file by name, memory-mapped.

    ``torch.save`` wrote the file: a tensor, or a (nested) dictionary of tensors, dense or semi-structured. Names of
    nested dictionaries are joined with dots. A single tensor has the empty name. Raise a `FileError` if the file is not
    a ``.pt`` file, is truncated, or holds other objects than tensors; or if PyTorch is not installed.
    """
    with opened(path) as file:
        try:
            size = file.seek(0, 2)
            sizes = _check(path, file, size)
            torch = needed("torch", "torch")
            kinds = [getattr(torch.sparse, name) for name in _SEMI_STRUCTURED if hasattr(torch.sparse, name)]
            with torch.serialization.safe_globals(kinds):
                loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
            tensors = _tensors(path, loaded, torch)
            for tensor in (part for whole in tensors.values() for part in _parts(whole, torch)):
                if tensor.untyped_storage().nbytes() not in sizes or tensor.numel() * tensor.element_size() > size:
                    raise ValueError(f"the stored data do not have the size of a tensor of shape {tuple(tensor.shape)}")
        except (FileError, OSError):
            raise
        except Exception as error:  # A damaged file can raise any error of the modules zip, pickle and PyTorch.
            raise FileError(f"{path} is not a complete .pt file ({reason_of(error)})") from None
    if not tensors:
        raise FileError(f"{path} holds no tensor, but {type(loaded).__name__}")
    return tensors


def _parts(tensor: Any, torch: Any) -> list[Any]:
    """Return the plain tensors that make up a semi-structured tensor."""
    if not is_semi_structured(tensor):
        return [tensor]
    parts = [part for name in _PARTS if (part := getattr(tensor, name, None)) is not None]
    if not parts or any(type(part) is not torch.Tensor for part in parts):
        raise ValueError("the file holds a semi-structured tensor without values")
    return parts


def _check(path: Path, file: BinaryIO, size: int) -> set[int]:
    """Raise an error if a ``.pt`` archive is too short or its pickle creates other objects than tensors.

    Return the sizes of the members of the archive in bytes, and 0 for empty tensors.
    """
    file.seek(0)
    if not zipfile.is_zipfile(file):
        raise ValueError("the file is not a zip archive, as PyTorch writes since version 1.6")
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        if any(member.compress_type != zipfile.ZIP_STORED for member in members):
            raise ValueError("the members of the zip archive must be uncompressed")
        if sum(member.file_size for member in members) > size:
            raise ValueError("the members of the zip archive are larger than the file")
        programs = [member for member in members if member.filename.rpartition("/")[2] == "data.pkl"]
        if len(programs) != 1 or programs[0].file_size > _PROGRAM_BYTES:
            raise ValueError("the archive does not have exactly one data.pkl of accepted size")
        program = archive.read(programs[0])
    for opcode, argument, _ in pickletools.genops(program):
        if opcode.name in _OTHER_MAKERS:
            raise ValueError(f"the pickle has the opcode {opcode.name}, which is not accepted")
        if opcode.name == "GLOBAL" and not _is_of_tensors(str(argument)):
            raise FileError(
                f"{path} holds an object that is not a tensor, {'.'.join(str(argument).split())}: such objects are not "
                "loaded; torch.save(model.state_dict(), ...) writes only tensors"
            )
    return {0, *(member.file_size for member in members)}


def _is_of_tensors(name: str) -> bool:
    module, _, word = name.partition(" ")
    return name in _ALLOWED or (module == "torch" and _STORAGE_OR_TYPE.fullmatch(word) is not None)


def _tensors(path: Path, loaded: Any, torch: Any) -> dict[str, Any]:
    """Return all tensors, by name, in an object loaded from a ``.pt`` file. Visit each nested dictionary only once."""
    tensors: dict[str, Any] = {}
    waiting, seen = [("", loaded)], set()
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, torch.Tensor):
            if name in tensors:
                raise FileError(f"{path} holds two tensors named {name!r}")
            tensors[name] = value
        elif isinstance(value, dict) and id(value) not in seen:
            seen.add(id(value))
            prefix = f"{name}." if name else ""
            waiting += [(f"{prefix}{key}", part) for key, part in reversed(value.items())]
    return tensors
