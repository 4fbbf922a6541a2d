"""Read dense or compressed matrices from files, for all commands that compute matrix products."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import FileError, shown
from ..infra.reading import read_array
from ..tensors.blocks import native
from ..tensors.checkpoints import Checkpoint, read_compressed
from ..tensors.compressed import Compressed
from ..tensors.files import open_tensors
from ..tensors.software_formats import SOFTWARE_FORMATS
from .tile_file import holds_tile, tile_matrix

__all__ = ["Source", "read_factor"]

#: Key: command option. Value: operand that the option reads by default if its file holds all operands of one
#: instruction.
_OPERANDS = {"--a-tensor": "a", "--b-tensor": "b", "--y-tensor": "y"}


@dataclass(frozen=True)
class Source:
    """Location of a matrix in a file: path, tensor name and transposition."""

    path: str
    tensor: str | None = None  #: Name of the tensor in the file
    #: Whether the file holds the transpose of the matrix. Compressed matrices are always compressed along K.
    transposed: bool = False
    option: str = "a name"  #: Command option that names the tensor, for messages

    def read(self) -> NDArray | Checkpoint:
        """Return the matrix, memory-mapped if the file format allows it; a compressed matrix stays compressed.

        Raise a `FileError` if the file cannot be read, or holds no such array.
        """
        matrix = _read(Path(self.path), self.tensor, self.option)
        return matrix.T if self.transposed and isinstance(matrix, np.ndarray) else matrix


def read_factor(path: Path, tensor: str | None = None, option: str = "a name") -> NDArray | Compressed:
    """Read an array from a file, or a compressed matrix without block scales that was written by ``sptc compress``.

    The file is an ``.npz``, ``.safetensors`` or ``.pt`` file, or an ``.npy`` file, whose elements may be raw bytes.
    `tensor` names the tensor if the file holds several, and `option` is the command option for the name. Raise a
    `FileError` if the file cannot be read, holds no such array, or has block scales.
    """
    matrix = _read(path, tensor, option)
    if isinstance(matrix, Checkpoint):
        if matrix.quantised and matrix.quantised.scales is not None:
            raise FileError(f"{path} holds block scales, which only `sptc gemm` accepts")
        return matrix.compressed
    return matrix


def _read(path: Path, tensor: str | None, option: str) -> NDArray | Checkpoint:
    """Read an array with any number of axes, or a compressed matrix that was written by ``sptc compress``."""
    if path.suffix == ".npy" and tensor is None:
        array = read_array(path, "is not a complete .npy file")
    else:
        file = open_tensors(path)
        if "software_format" in file.metadata:
            if file.metadata["software_format"] not in SOFTWARE_FORMATS:
                raise FileError(f"{path} is in an unknown format, {shown(file.metadata['software_format'])}")
            return read_compressed(path, file.metadata["software_format"], tensor)
        if path.suffix == ".npz" and holds_tile(file.names):
            name = tensor or _OPERANDS.get(option)
            if name is None:
                raise FileError(f"{path} holds the operands of an instruction: {option} must select a, b, c or y")
            matrix = tile_matrix(path, name.lower())
            return Checkpoint(matrix) if isinstance(matrix, Compressed) else matrix
        name = file.only(option) if tensor is None else tensor
        if name in file.compressed:
            return Checkpoint(file.compressed[name]())
        array = file.get(name)
    if not array.size or array.dtype.kind not in "fiuV" or array.dtype.names:
        raise FileError(f"{path} must hold floats, integers or codes, not {array.dtype} of shape {array.shape}")
    return native(array)
