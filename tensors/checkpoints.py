"""Read and write compressed matrices in files, with text metadata that describes the format."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import Error, FileError, OperandError, shown
from ..isa.formats import FORMATS
from ..isa.instructions import parse
from ..isa.metadata import GRANULARITIES, Granularity
from ..operands.registers import CONTAINERS
from .blocks import row_blocks
from .compressed import Compressed
from .element_types import TYPE_OF, named_dtype
from .files import TensorFile, open_tensors, write_tensors
from .quantise import Quantised
from .scales import SCALE_LAYOUTS
from .software_formats import SOFTWARE_FORMATS, PackingOptions, SoftwareFormat, default_instruction, element_bits
from .sparsify import expand, sparsify

__all__ = ["Checkpoint", "contents", "difference", "pack", "read_compressed", "write_compressed"]

#: Software formats whose files have no text metadata, and which are recognised by the names of their arrays.
_BY_NAME = ("marlin_24", "bitmask")


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A compressed matrix, with codes and scales if the stored values are quantised."""

    #: Compressed matrix. Quantised values have the numpy or ``ml_dtypes`` type of their format; if there is no such
    #: type of at least 8 bits, they are codes.
    compressed: Compressed
    quantised: Quantised | None = None  #: Codes and scales of the stored values, or None if not quantised

    @classmethod
    def of(cls, compressed: Compressed, quantised: Quantised) -> "Checkpoint":
        """Return a compressed matrix with its stored values replaced by quantised values."""
        name, codes = TYPE_OF.get(quantised.format.name), quantised.codes
        stored = codes.view(named_dtype(name)) if name and quantised.format.bits >= 8 else codes
        return cls(replace(compressed, stored=stored), quantised)

    def recompressed(self, producer: str) -> "Checkpoint":
        """Return the matrix as written by software that first quantises, and then compresses the quantised values.

        Values that are quantised to zero count as zero, and the metadata of their chunks follow the conventions of
        `producer`, a key of :data:`sptc.tensors.sparsify.PRODUCERS`.
        """
        assert self.quantised
        dense = expand(replace(self.compressed, stored=self.quantised.codes))
        codes = sparsify(dense, self.compressed.granularity, producer=producer)
        return Checkpoint.of(codes, replace(self.quantised, codes=codes.stored))

    def values(self) -> Compressed:
        """Return the compressed matrix with dequantised values in float32."""
        if self.quantised is None:
            return self.compressed
        return replace(self.compressed, stored=self.quantised.dequantise())


def pack(checkpoint: Checkpoint, name: str, options: PackingOptions) -> tuple[dict[str, NDArray], dict[str, str]]:
    """Return the arrays of a matrix in a software format, and the text metadata for :func:`read_compressed`.

    `name` is a key of :data:`sptc.tensors.software_formats.SOFTWARE_FORMATS`. If the options name no instruction,
    format ``ptx`` uses an instruction that fits the elements.
    """
    compressed, quantised = checkpoint.compressed, checkpoint.quantised
    text = {"software_format": name, "granularity": compressed.granularity.name, "dtype": compressed.stored.dtype.name}
    if name == "ptx":
        if options.instruction is None:
            bits = element_bits(compressed.stored.dtype, compressed.granularity)
            options = replace(options, instruction=default_instruction(bits, quantised.format if quantised else None))
        text |= {"instruction": str(options.instruction), "selector": str(options.sparsity_selector)}
    elif name == "cutlass3-sm90":
        text |= {"tile_k": str(options.tile_k)}
    elif name == "marlin_24":
        _check_marlin(quantised, options)
        options = replace(options, bits=quantised.format.bits if quantised else None)
    fmt = SOFTWARE_FORMATS[name]
    arrays = fmt.pack(compressed, options)
    if options.scale_layout and (quantised is None or quantised.scales is None):
        raise OperandError("a layout of block scales is given, but the matrix has no block scales")
    if quantised:
        text["element_format"] = quantised.format.name
        if quantised.scales is not None:
            assert quantised.scale_format
            # The 128x4 layout holds only one-byte scales.
            too_wide = fmt.scale_layout == "128x4" and quantised.scales.dtype != np.uint8
            layout = options.scale_layout or ("rows" if too_wide else fmt.scale_layout)
            arrays[fmt.scales] = SCALE_LAYOUTS[layout].pack(quantised.scales)
            text |= {"scale_format": quantised.scale_format.name, "block": str(quantised.block), "scale_layout": layout}
        if quantised.tensor_scale is not None:
            text["tensor_scale"] = repr(quantised.tensor_scale)
    return arrays, text


def _check_marlin(quantised: Quantised | None, options: PackingOptions) -> None:
    """Raise an `OperandError` for values or scales that kernels of marlin_24 cannot read."""
    scales = quantised.scale_format.name if quantised and quantised.scale_format else "no scales"
    if not quantised or quantised.format.name not in ("s4", "s8") or scales != "f16":
        content = f"{quantised.format.name} with {scales}" if quantised else "unquantised numbers"
        raise OperandError(f"marlin_24 needs s4 or s8 with f16 scales (recipe channel or group), not {content}")
    if quantised.block not in (64, quantised.codes.shape[1]):
        raise OperandError(f"marlin_24 needs a scale per row or per 64 stored values, not per {quantised.block}")
    if options.scale_layout not in (None, "marlin_24"):
        raise OperandError(f"marlin_24 needs the scale layout marlin_24, not {options.scale_layout}")


def write_compressed(path: Path, tensor: str, checkpoint: Checkpoint, name: str, options: PackingOptions) -> None:
    """Write a compressed matrix in a software format to a ``.safetensors`` or ``.npz`` file.

    `tensor` is the prefix of the names of the arrays, followed by a dot; it may be empty. The other parameters are as
    for :func:`pack`.
    """
    arrays, text = pack(checkpoint, name, options)
    if name == "ptx" and path.suffix == ".npz" and not tensor:  # Add the two keys that files of sptc.save() have.
        arrays |= {"instruction": np.array(text["instruction"]), "selector": np.array(int(text["selector"]))}
    write_tensors(path, {f"{tensor}.{key}" if tensor else key: array for key, array in arrays.items()}, text)


def read_compressed(
    path: Path,
    name: str,
    tensor: str | None = None,
    granularity: Granularity | None = None,
    options: PackingOptions | None = None,
    required: Mapping[str, str] | None = None,
) -> Checkpoint:
    """Read a compressed matrix from a file in a software format. The file may have been written by other software.

    `name` is a key of :data:`sptc.tensors.software_formats.SOFTWARE_FORMATS`, and `tensor` the prefix of the names of
    the arrays, needed if the file holds several matrices. `granularity` and `options` replace what the metadata of the
    file do not state; the default granularity is 1:2 for 32-bit elements and 2:4 for other elements. Raise a
    `FileError` if the file does not hold such a matrix in this format, or if the metadata of the file state another
    granularity than `granularity`, or other values than those of `required`, texts by name such as ``tile_k``.
    """
    file = open_tensors(path)
    text = file.metadata
    requested = SOFTWARE_FORMATS[name]
    if name == "cutlass2" and file.compressed:
        names = [*file.compressed] if tensor is None else [tensor]
        if len(names) != 1 or names[0] not in file.compressed:
            raise FileError(
                f"{path} holds the semi-structured tensors {', '.join(map(repr, file.compressed))}: name one of them"
            )
        return Checkpoint(file.compressed[names[0]]())
    if name == "bitmask" and file.bitmasks:
        whole = file.get(tensor or TensorFile.only(replace(file, names=file.bitmasks)))
        return Checkpoint(sparsify(whole, granularity or "2:4", producer=name))
    if text.get("software_format", name) != name:
        raise FileError(f"the metadata of {path} states the format {text['software_format']}, not {name}")
    prefix = _prefix(file, requested.tensors, tensor)
    arrays = {key: file.get(prefix + key) for key in requested.tensors}
    try:
        text = {**requested.implied(arrays), **text}
        required = {**(required or {}), **({"granularity": granularity.name} if granularity else {})}
        for key, value in required.items():
            if text.get(key, value) != value:
                raise FileError(f"the metadata of {path} states the {key} {text[key]}, not {value}")
        options = options or PackingOptions()
        options = replace(
            options,
            instruction=parse(text["instruction"]) if "instruction" in text else options.instruction,
            sparsity_selector=int(text.get("selector", options.sparsity_selector)),
            tile_k=int(text.get("tile_k", options.tile_k)),
        )
        if granularity is None:
            thirty_two = name not in ("ptx", "bitmask") and arrays[requested.tensors[0]].dtype.itemsize == 4
            granularity = GRANULARITIES[text.get("granularity", "1:2" if thirty_two else "2:4")]
        compressed = requested.unpack(arrays, granularity, options)
        if "dtype" in text:
            compressed = replace(compressed, stored=_restored(compressed, text["dtype"]))
        return Checkpoint(compressed, _quantised(file, prefix, requested, text, compressed))
    except FileError:
        raise
    except Error as error:
        raise FileError(f"{path}: {error}") from None
    except (KeyError, ValueError, ArithmeticError) as error:
        raise FileError(f"{path}: the text metadata is invalid ({error})") from None


def _prefix(file: TensorFile, keys: tuple[str, ...], tensor: str | None) -> str:
    if tensor is not None:
        return f"{tensor}." if tensor else ""
    prefixes = _prefixes(file, keys[0])
    if len(prefixes) != 1:
        raise FileError(
            f"{file.path} holds {len(prefixes)} matrices with an array named {keys[0]!r}"
            + (f": {', '.join(repr(one.removesuffix('.')) for one in prefixes[:5])}; choose one" if prefixes else "")
        )
    return prefixes[0]


def _prefixes(file: TensorFile, key: str) -> list[str]:
    """Return the prefixes (empty, or ending in a dot) of all arrays in a file whose names are a prefix and `key`."""
    return [name.removesuffix(key) for name in file.names if f".{name}".endswith(f".{key}")]


def _restored(compressed: Compressed, name: str) -> NDArray:
    """Return elements in their original type. Signed 4-bit elements are sign-extended to a byte."""
    stored, dtype = compressed.stored, named_dtype(name)
    if stored.dtype == dtype:
        return stored
    if stored.dtype.itemsize != dtype.itemsize:
        raise OperandError(f"elements of type {dtype.name} cannot be stored as {stored.dtype.name}")
    if compressed.granularity.name == "4:8" and dtype.name in ("int8", "int4"):
        stored = (stored ^ 8) - np.uint8(8)
    return stored.view(dtype)


def _quantised(
    file: TensorFile, prefix: str, form: SoftwareFormat, text: dict[str, str], compressed: Compressed
) -> Quantised | None:
    if "element_format" not in text:
        return None
    fmt = FORMATS[text["element_format"]]
    stored = np.ascontiguousarray(compressed.stored)
    tensor_scale = float(text["tensor_scale"]) if "tensor_scale" in text else None
    codes = stored.view(f"u{stored.dtype.itemsize}")
    if fmt.bits > 8 * codes.itemsize:
        raise OperandError(f"elements of type {stored.dtype.name} are too narrow for codes of {fmt.name}")
    if "scale_format" not in text:
        return Quantised(codes, fmt, tensor_scale=tensor_scale)
    block, scale_format = int(text["block"]), FORMATS[text["scale_format"]]
    layout = SCALE_LAYOUTS[text.get("scale_layout", "rows")]
    scales = layout.unpack(file.get(prefix + form.scales), len(codes), -(-codes.shape[1] // block))
    if scales.dtype != CONTAINERS[8 if scale_format.bits <= 8 else 16]:
        raise OperandError(f"scales of {scale_format.name} cannot be stored as {scales.dtype.name}")
    return Quantised(codes, fmt, np.asarray(scales), scale_format, block, tensor_scale)


def contents(path: Path) -> dict[str, Callable[[], NDArray]]:
    """Return functions that read the dense values of the tensors in a file. Keys: names of the tensors.

    The file holds dense tensors, or was written by ``sptc compress``, or is a checkpoint of compressed-tensors, vLLM or
    PyTorch with compressed matrices. The name of a compressed matrix is the prefix of its arrays. Raise a `FileError`
    if the file cannot be read, or is in no known format.
    """
    file = open_tensors(path)
    own = file.metadata.get("software_format")
    if own is not None and own not in SOFTWARE_FORMATS:
        raise FileError(f"the metadata of {path} states the unknown format {shown(own)}")
    readers: dict[str, Callable[[], NDArray]] = {}
    parts = {"instruction", "selector"} if own == "ptx" else set[str]()
    for name in [own] if own else _BY_NAME:
        form = SOFTWARE_FORMATS[name]
        prefixes = _prefixes(file, form.tensors[0])
        for prefix in (one for one in prefixes if all(one + key in file.names for key in form.tensors)):
            parts |= {prefix + key for key in (*form.tensors, form.scales)}
            readers[prefix.removesuffix(".")] = partial(_expanded, path, name, prefix.removesuffix("."))
    return readers | {name: partial(file.get, name) for name in file.names if name not in parts}


def _expanded(path: Path, name: str, prefix: str) -> NDArray:
    return expand(read_compressed(path, name, prefix).values())


def difference(left: NDArray, right: NDArray) -> tuple[int, tuple[int, ...] | None]:
    """Count the positions at which two tensors of equal shape differ. Also return the index of the first difference.

    The tensors may have any types of real numbers. -0.0 equals 0, and NaN equals NaN.
    """
    if not left.size:
        return 0, None
    integers = left.dtype.kind in "biu" and right.dtype.kind in "biu"
    # On most machines, a long double has 64 significant bits, so it holds 64-bit integers and floats exactly.
    wide = np.longdouble if max(left.dtype.itemsize, right.dtype.itemsize) >= 8 else np.float64
    shape, total, first = left.shape, 0, None
    left, right = (one.reshape(len(one) if one.ndim else 1, -1) for one in (left, right))
    for rows in row_blocks(left.shape):
        with np.errstate(invalid="ignore"):  # numpy reports "invalid" for a signalling NaN
            one, other = (part[rows] if integers else part[rows].astype(wide) for part in (left, right))
        differs = (one != other) & ~(np.isnan(one) & np.isnan(other))
        if differs.any() and first is None:
            flat = int(differs.ravel().argmax()) + rows.start * left.shape[1]
            first = tuple(int(index) for index in np.unravel_index(flat, shape))
        total += int(differs.sum())
    return total, first
