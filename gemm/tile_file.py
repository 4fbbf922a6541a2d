"""Functions ``sptc.save`` and ``sptc.load``: write and read files with the operands of one instruction."""

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from inspect import signature
from io import BytesIO
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..api.operands import is_integer
from ..api.tcgen05 import tcgen05_mma
from ..api.warp import mma
from ..api.warpgroup import wgmma
from ..errors import FileError, OperandError, shown
from ..infra.files import write_whole
from ..infra.reading import read_arrays
from ..isa.architectures import TARGETS
from ..isa.names import Subject, described, resolve
from ..isa.text import is_word_of
from ..operands.tile_arrays import KEYS, family_of, register_keys, renamed
from ..tensors.compressed import Compressed
from .matrices import as_array
from .unpack import unpack

__all__ = ["holds_tile", "load", "save", "tile_instruction", "tile_matrix"]

#: Key: instruction family. Value: function that computes an instruction of this family.
_FUNCTIONS: dict[str, Callable[..., Any]] = {"mma": mma, "wgmma": wgmma, "tcgen05": tcgen05_mma}
#: Key: instruction family. Value: names of the arguments that are arrays; all other arguments are numbers.
_ARRAYS = {
    "mma": ("a", "b", "c", "e", "D", "scale_a", "scale_b"),
    "wgmma": ("d", "a", "e", "smem", "D"),
    "tcgen05": ("tmem", "smem", "D"),
}
#: Arguments that are True or False, which a file may store as 1 or 0.
_FLAGS = ("scale_d", "enable_input_d")
#: Key: other name of an operand or result of ``mma`` in a file. Value: name in :data:`_ARRAYS`.
_OTHER_NAMES = {"A": "a", "B": "b", "C": "c", "E": "e", "d": "D"}
_REFUSAL = "is not a readable .npz file"


def save(path: str | Path, instruction: str, **operands: Any) -> None:
    """Save the operands of an instruction, and its result if it is known.

    Parameters
    ----------
    path : str or Path
        An ``.npz`` file; an existing file is replaced.
    instruction : str
        PTX opcode with its qualifiers.
    **operands
        Arguments of :func:`sptc.mma`, :func:`sptc.wgmma` or :func:`sptc.tcgen05_mma`, as :func:`sptc.pack` returns
        them; for ``mma`` also under the names `A`, `B`, `C` and `E`. `D` is the known result: registers, or tensor
        memory; for ``mma`` also under the name `d`. `arch` and `metadata` are as for these functions. None means that
        an operand is absent.

    Raises
    ------
    OperandError
        A name is not an argument of the function, or a value is neither an array nor a number.
    InstructionError
        The instruction does not parse.
    FileError
        The file cannot be written.

    Examples
    --------
    >>> tile = sptc.pack(instruction, a, b)
    >>> sptc.save("tile.npz", **tile, D=sptc.mma(**tile))
    """
    if Path(path).suffix != ".npz":
        raise FileError(f"{path} must end in .npz")
    subject = resolve(instruction)
    instruction, family = str(subject.opcode or subject.instruction), subject.instruction.family
    other_names = _OTHER_NAMES if family == "mma" else {}
    known = {*_arguments_of(family), "D", "d", "arch", *other_names}
    for name in operands:
        if name not in known:
            near = get_close_matches(name, known, 1)
            raise OperandError(
                f"{shown(name)} is no argument of {family}" + (f"; did you mean {near[0]}?" if near else "")
            )
    contents: dict[str, Any] = {"instruction": np.array(instruction)}
    scale_ids = [0, 0, 0, 0]
    present = {name: value for name, value in operands.items() if value is not None}
    for name, value in renamed(present, other_names).items():
        if name in ("scale_a", "scale_b") and family == "mma":
            if not isinstance(value, tuple) or len(value) != 3:
                raise OperandError(f"{name} must be a tuple (registers, byte id, thread id), as sptc.pack returns it")
            value, *ids = value
            first = 0 if name == "scale_a" else 2
            scale_ids[first : first + 2] = ids
            contents["scale_ids"] = np.array(scale_ids)
        contents[name] = _array(name, value, name in _ARRAYS[family])
    register_keys(contents)
    stream = BytesIO()
    np.savez_compressed(stream, allow_pickle=False, **contents)
    write_whole(Path(path), stream.getvalue())


def _arguments_of(family: str) -> list[str]:
    """Return the argument names of an instruction family's function, except instruction, backend and numerics."""
    others = ("instruction", "backend", "numerics")
    return [name for name in signature(_FUNCTIONS[family]).parameters if name not in others]


def _array(name: str, value: Any, is_array: bool) -> NDArray[Any]:
    array = as_array(name, value) if is_array and not is_integer(value) else np.asarray(value)
    if array.dtype.hasobject or (not is_array and (array.dtype.kind not in "biuU" or array.ndim > 1)):
        expected = "an array of numbers" if is_array else "a number of at most 64 bits or a string"
        raise OperandError(f"{name} must be {expected}, not {shown(value)}")
    return array


def load(path: str | Path) -> dict[str, Any]:
    """Load the operands of an instruction from a file.

    Parameters
    ----------
    path : str or Path
        File of :func:`save`, or of ``np.savez(path, **sptc.pack(...))``; a register file; or a file with the registers
        of A, which ``sptc compress --to ptx`` wrote.

    Returns
    -------
    dict of str to object
        Arguments for :func:`sptc.mma`, :func:`sptc.wgmma` or :func:`sptc.tcgen05_mma`, in the shapes of the file; and
        as ``D`` the result if the file has it. ``D`` is no argument of these functions, so remove it from the
        dictionary before a call: ``d = tile.pop("D", None); sptc.mma(**tile)``.

    Raises
    ------
    FileError
        The file cannot be read, or does not hold the operands of an instruction.
    """
    path = Path(path)
    with read_arrays(path, _REFUSAL, _REFUSAL) as archive:
        arrays = {name: archive.read(name) for name in archive.names if name in KEYS}
    text = arrays.get("instruction")
    if text is None or text.shape != () or text.dtype.kind != "U":
        raise FileError(f"{path} does not name the instruction of its operands")
    family = family_of(str(text))
    try:
        named = _of_register_file(family, arrays)
    except (KeyError, ValueError, TypeError) as error:
        raise FileError(f"{path} does not hold valid operands of {family} ({error})") from None
    if family == "wgmma" and "e" not in named:
        named.pop("selector", None)  # The file of a dense instruction may have a sparsity selector, which is not used.
    tile: dict[str, Any] = {"instruction": str(text)}
    for name in (*_arguments_of(family), "D"):
        if name in named and named[name] is not None:
            value = named[name]
            value = value.item() if isinstance(value, np.ndarray) and value.ndim == 0 else value
            tile[name] = bool(value) if name in _FLAGS and isinstance(value, int) and value in (0, 1) else value
    if "disable_output_lane" in tile:
        tile["disable_output_lane"] = tuple(np.ravel(tile["disable_output_lane"]).tolist())
    return tile


def _of_register_file(family: str, arrays: dict[str, Any]) -> dict[str, Any]:
    """Rename the arrays of an operand file (``.npz``) as the arguments of the instruction family's Python function."""
    if family == "tcgen05":
        return arrays
    if family == "mma":
        named = renamed(arrays, _OTHER_NAMES)
        byte_a, thread_a, byte_b, thread_b = np.asarray(arrays.get("scale_ids", np.zeros(4, int))).ravel().tolist()
        for name, ids in (("scale_a", (byte_a, thread_a)), ("scale_b", (byte_b, thread_b))):
            if name in named:
                named[name] = (named[name], *ids)
        return named
    if "smem" in arrays:
        return arrays
    named = renamed(arrays, {"A": "a", "a_descriptor": "a", "b_descriptor": "b", "C": "d", "E": "e"})
    named["smem"] = np.ascontiguousarray(named.pop("B")).view(np.uint8)
    for name in ("a", "b"):
        if named[name].ndim < 2:
            distinct = np.unique(named[name])
            if len(distinct) != 1:
                raise ValueError(f"the file has several descriptors of {name}, but sptc.wgmma takes one for the batch")
            named[name] = distinct.reshape(())
    for name in ("imm_scale", "imm_trans"):
        if name in named:
            named |= {f"{name}_{operand}": value for operand, value in zip("ab", named.pop(name), strict=True)}
    return named


def holds_tile(names: Sequence[str]) -> bool:
    """Return whether an ``.npz`` file with arrays of the given names holds the operands of an instruction."""
    return "instruction" in names and any(name in names for name in ("a", "A", "a_descriptor", "tmem"))


def tile_instruction(path: Path) -> tuple[Subject, str | None] | None:
    """Return the instruction whose operands an ``.npz`` file holds, and the architecture that the file names.

    The architecture is None if the file names none. The result is None if the file holds no operands.
    """
    if path.suffix != ".npz":
        return None
    with read_arrays(path, _REFUSAL, _REFUSAL) as archive:
        if not holds_tile(archive.names):
            return None
    tile = load(path)
    subject, arch, idesc = resolve(tile["instruction"]), tile.get("arch"), tile.get("idesc")
    if arch is not None and not is_word_of(arch, TARGETS):
        raise FileError(f"arch in {path} must be a known architecture, not {shown(arch)}")
    if subject.opcode:
        if not is_integer(idesc):
            raise FileError(f"{path} must have the key idesc, the instruction descriptor, as one integer")
        subject = Subject(described(subject.opcode, int(idesc)), subject.opcode)
    return subject, arch


def tile_matrix(path: Path, name: str) -> NDArray | Compressed:
    """Return a matrix of a file that holds the operands of one instruction.

    `name` is ``a``, which is compressed if the instruction is sparse, ``b``, ``c`` or, as the result, ``d`` or ``y``.
    Raise a `FileError` if the file holds several tiles, or no such matrix.
    """
    tile = load(path)
    result = tile.pop("D", None)
    tile = {name: tile[name] for name in signature(unpack).parameters if name in tile}
    if name in ("d", "y"):
        if result is None or family_of(tile["instruction"]) != "mma":
            raise FileError(f"{path} holds no result registers")
        tile = {"instruction": tile["instruction"], "d": result}
    matrices = unpack(**tile)
    i = matrices.instruction
    parts = {"a": matrices.stored, "b": matrices.b, "c": matrices.c, "d": matrices.d, "y": matrices.d}
    matrix = parts.get(name)
    if matrix is None:
        raise FileError(f"{path} has no matrix {name!r}; it holds an instruction's a, b, c, and possibly its result y")
    if matrices.scale_a is not None and name in ("a", "b"):
        raise FileError(f"{path} has block scales, which only commands for one instruction accept, such as `sptc run`")
    if matrix.size != prod(matrix.shape[-2:]):
        raise FileError(f"{path} holds {matrix.size // prod(matrix.shape[-2:])} matrices {name!r} instead of one")
    matrix = matrix.reshape(matrix.shape[-2:])
    if name != "a" or matrices.nibbles is None:
        return matrix
    assert i.granularity
    return Compressed(matrix, matrices.nibbles.reshape(i.m, i.chunks), i.granularity)
