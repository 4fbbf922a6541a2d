"""Tensors of PyTorch: those of a program, and those in its files, of which no object is ever made.

A ``.pt`` file is an archive of a pickle and of the bytes of every storage. Before PyTorch reads it (weights only), the
archive must be as long as it says, and the pickle may name nothing but what tensors and dictionaries of them are made
of: it is refused for any other name, whatever PyTorch would do with that.
"""

import pickletools
import re
import sys
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

from numpy.typing import NDArray

from ..errors import FileError, OperandError
from ..infra.reading import opened
from ..isa.metadata import GRANULARITIES
from .compressed import Compressed
from .element_types import named_dtype, needed
from .software_formats import SOFTWARE_FORMATS, PackingOptions

__all__ = ["array_of", "compressed_of", "is_semi_structured", "is_tensor", "read_weights"]

#: Types that PyTorch does not hand to numpy.
_FOREIGN = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
#: What a pickle of tensors names, beside storages and types of elements.
_ALLOWED = {
    "collections OrderedDict",
    "torch Size",
    "torch._utils _rebuild_parameter",
    "torch._utils _rebuild_tensor_v2",
    "torch._utils _rebuild_tensor_v3",
    "torch.storage TypedStorage",
    "torch.storage UntypedStorage",
}
_STORAGE_OR_TYPE = re.compile(r"[A-Za-z0-9]+Storage|bool|(u?int|b?float|complex)[0-9]+(_e[a-z0-9]+)?")
#: Ways of a pickle to name or to make something that PyTorch's own files do not take.
_OTHER_MAKERS = {"STACK_GLOBAL", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "EXT1", "EXT2", "EXT4"}
_PROGRAM_BYTES = 1 << 26


def is_tensor(value: Any) -> bool:
    """Return whether something is a tensor, without importing PyTorch."""
    modules = {kind.__module__.partition(".")[0] for kind in type(value).__mro__}
    return hasattr(value, "detach") and "torch" in modules


def is_semi_structured(value: Any) -> bool:
    """Return whether something is a ``torch.sparse.SparseSemiStructuredTensor``."""
    return is_tensor(value) and any("SemiStructured" in kind.__name__ for kind in type(value).__mro__)


def array_of(name: str, tensor: Any) -> NDArray:
    """Return what a tensor holds, dense, wherever it lies.

    Parameters
    ----------
    name : str
        For messages.
    tensor : torch.Tensor
        Of any layout.

    Returns
    -------
    ndarray
        Of the tensor's type; bfloat16 and float8 in the types of ``ml_dtypes``.

    Raises
    ------
    OperandError
        numpy cannot hold it, or PyTorch cannot make it dense.
    """
    try:
        if is_semi_structured(tensor) or str(tensor.layout) != "torch.strided":
            tensor = tensor.to_dense()
        tensor = tensor.detach().cpu().contiguous()
        dtype = str(tensor.dtype).removeprefix("torch.")
        if dtype in _FOREIGN:
            torch: Any = sys.modules["torch"]  # loaded, since a tensor of it is here
            held: NDArray = tensor.view(torch.int16 if tensor.element_size() == 2 else torch.int8).numpy()
            return held.view(named_dtype(dtype))
        found: NDArray = tensor.numpy()
    except (TypeError, RuntimeError) as error:
        reason = " ".join(str(error).split()).split(". ")[0]
        raise OperandError(f"{name} is a tensor of {tensor.dtype} that numpy cannot hold ({reason})") from None
    return found


def compressed_of(name: str, tensor: Any, *, transposed: bool = False) -> Compressed | NDArray:
    """Return a semi-structured tensor as it is compressed.

    Parameters
    ----------
    name : str
        For messages.
    tensor : torch.sparse.SparseSemiStructuredTensor
        What CUTLASS compressed, as values and metadata, is taken as it is; of cuSPARSELt, which keeps both in a
        layout of its own, the dense matrix.
    transposed : bool
        Return that of the transpose: a weight ``w.t()`` is compressed along the rows of ``w``.

    Raises
    ------
    OperandError
        It is compressed along the other axis only, or its parts do not fit.
    """
    suffix = "_t" if transposed else ""
    values, metadata = (getattr(tensor, part + suffix, None) for part in ("packed", "meta"))
    other = getattr(tensor, "packed" if transposed else "packed_t", None)
    if values is None and other is not None:
        raise OperandError(
            f"{name} is compressed along its {'rows' if transposed else 'columns'}, which are not summed"
        )
    if values is None or metadata is None:
        dense = array_of(name, tensor)
        return dense.T if transposed else dense
    arrays = {"values": array_of(name, values), "metadata": array_of(name, metadata)}
    granularity = GRANULARITIES["1:2" if arrays["values"].dtype.itemsize == 4 else "2:4"]
    try:
        found = SOFTWARE_FORMATS["cutlass2"].unpack(arrays, granularity, PackingOptions())
    except OperandError as error:
        raise OperandError(f"{name}: {error}") from None
    shape = tuple(tensor.shape)[::-1] if transposed else tuple(tensor.shape)
    if found.shape != shape:
        raise OperandError(f"{name} of shape {shape} holds compressed values of shape {found.shape}")
    return found


def read_weights(path: Path) -> dict[str, Any]:
    """Return the tensors of a ``.pt`` file, mapped from it.

    Parameters
    ----------
    path : Path
        What ``torch.save`` wrote: a tensor, or a dictionary of tensors, perhaps of dictionaries.

    Returns
    -------
    dict of str to torch.Tensor
        By their names, those of inner dictionaries joined with dots; a tensor alone has the empty one.

    Raises
    ------
    FileError
        It is none, is cut short, holds an object that is no tensor, or PyTorch is missing.
    """
    with opened(path) as file:
        try:
            size = file.seek(0, 2)
            sizes = _check(path, file, size)
            torch = needed("torch", "torch")
            held = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
            found = _tensors(held, torch)
            for tensor in found.values():
                if tensor.untyped_storage().nbytes() not in sizes or tensor.numel() * tensor.element_size() > size:
                    raise ValueError(f"a tensor of shape {tuple(tensor.shape)} is not as large as it says")
        except (FileError, OSError):
            raise
        except Exception as error:  # damage shows in as many ways as zip, pickle and PyTorch have
            reason = " ".join(str(error).split()).split(". ")[0] or type(error).__name__
            raise FileError(f"{path} is no whole .pt file ({reason})") from None
    if not found:
        raise FileError(f"{path} holds no tensor, but {type(held).__name__}")
    return found


def _check(path: Path, file: BinaryIO, size: int) -> set[int]:
    """Refuse an archive that claims more than it has, or whose pickle makes anything but tensors; return its sizes."""
    file.seek(0)
    if not zipfile.is_zipfile(file):
        raise ValueError("it is no zip archive, as PyTorch writes since version 1.6")
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        if any(member.compress_type != zipfile.ZIP_STORED for member in members):
            raise ValueError("its members are compressed")
        if sum(member.file_size for member in members) > size:
            raise ValueError("its members take more than the file")
        programs = [member for member in members if member.filename.rpartition("/")[2] == "data.pkl"]
        if len(programs) != 1 or programs[0].file_size > _PROGRAM_BYTES:
            raise ValueError("it has not one data.pkl")
        program = archive.read(programs[0])
    for opcode, argument, _ in pickletools.genops(program):
        if opcode.name in _OTHER_MAKERS:
            raise ValueError(f"{opcode.name} in its pickle")
        if opcode.name == "GLOBAL" and not _is_of_tensors(str(argument)):
            raise FileError(
                f"{path} holds an object that is no tensor, {'.'.join(str(argument).split())}: objects are not loaded; "
                "torch.save(model.state_dict(), ...) writes tensors alone"
            )
    return {0, *(member.file_size for member in members)}


def _is_of_tensors(name: str) -> bool:
    module, _, word = name.partition(" ")
    return name in _ALLOWED or (module == "torch" and _STORAGE_OR_TYPE.fullmatch(word) is not None)


def _tensors(held: Any, torch: Any) -> dict[str, Any]:
    """Return the tensors of what was loaded, each dictionary once."""
    found: dict[str, Any] = {}
    waiting, seen = [("", held)], set()
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, torch.Tensor):
            found[name] = value
        elif isinstance(value, dict) and id(value) not in seen:
            seen.add(id(value))
            prefix = f"{name}." if name else ""
            waiting += [(f"{prefix}{key}", part) for key, part in reversed(value.items())]
    return found
