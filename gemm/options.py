"""Convert Python arguments and command options to an instruction, a way of summation, and an epilogue."""

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import Error, FileError, OperandError, shown
from ..infra.reading import read_json
from ..isa.architectures import require_target, same_numerics
from ..isa.instructions import Instruction
from ..tensors.blocks import check_flag
from ..tensors.compressed import Compressed
from ..tensors.element_types import is_extension
from .block_scales import BlockScales, scaled_instructions
from .choice import formats_of, in_factor_order, instructions_for
from .epilogue import Epilogue, broadcasts, check_shape
from .group_scales import GroupScales
from .matrices import accumulator_codes, as_array, own_format
from .ways import Way, instruction_named

__all__ = [
    "all_chosen", "along_m", "check_types", "chosen", "epilogue_of", "exchanged", "format_of", "grouped", "oriented",
    "read_way", "way_of",
]  # fmt: skip

#: Sets of element formats that one instruction can multiply with each other.
_MIXED = ({"e4m3", "e5m2", "e3m2", "e2m3", "e2m1"}, {"s4", "u4"})
#: Possible numbers of elements along K that share a group scale, likely numbers first; and number of rows of A (or
#: columns of B) that can share a group scale.
_LENGTHS, _BLOCK = (128, 64, 32, 256, 512, 1024, 16), 128
_WORDS = {field.name: field.default for field in fields(Way)}


def chosen(
    fmt: str | None, instruction: str | None, arch: str, *, accumulate: str | None = None, scales: str | None = None
) -> Instruction:
    """Return the instruction that the caller names, or else the default instruction for an element format.

    `fmt` names the formats in the order of the instruction's factors. With `instruction`, `fmt` may be None; see
    :func:`sptc.gemm.choice.instructions_for`. Raise an `InstructionError` or `OperandError` if there is no such
    instruction, or if the instruction is not in the architecture, contradicts another argument, or cannot be chained
    along K.
    """
    if instruction is None:
        assert fmt
        i = instructions_for(fmt, same_numerics(arch), accumulate=accumulate, scales=scales)[0]
        require_target(i, arch)
        return i
    i = instruction_named(instruction, same_numerics(arch))
    require_target(i, arch)
    if fmt and formats_of(fmt) != (i.a.name, i.b.name):
        raise OperandError(f"{i} multiplies {i.a.name} with {i.b.name}, not {fmt}")
    if accumulate and accumulate != i.d.name:
        raise OperandError(f"{i} accumulates in {i.d.name}, not {accumulate}")
    if scales and not (i.scale_format and i.scale_format.name == scales):
        raise OperandError(f"{i} does not accept block scales of format {scales}")
    if i.c is not i.d:
        raise OperandError(f"{i} cannot sum along K: accumulator type {i.c.name} and result type {i.d.name} differ")
    return i


def all_chosen(
    fmt: str | None, instruction: str | None, arch: str, dense: bool, scales: BlockScales | None, k: int
) -> tuple[Instruction, ...]:
    """Return the instruction that the caller names, or else all instructions for `fmt` that differ in result bits.

    For arguments and errors see :func:`chosen` and :func:`sptc.gemm.block_scales.scaled_instructions`. Raise an
    `OperandError` if neither instruction nor format is given.
    """
    if instruction:
        return (chosen(fmt, instruction, arch),)
    if not fmt:
        raise OperandError("name the format of a and b, or an instruction")
    if scales:
        matching = scaled_instructions(scales, k, fmt, arch, dense=dense)
    else:
        matching = instructions_for(fmt, same_numerics(arch), dense=dense)
    require_target(matching[0], arch)
    return matching


def way_of(
    way: Way | None,
    words: Mapping[str, Any],
    *,
    fmt: str | None,
    instruction: str | None,
    arch: str,
    accumulate: str | None = None,
    scales: str | None = None,
    result: str | None = None,
) -> Way:
    """Return the way of summation that the caller describes.

    With a complete `way`, `arch` is ignored, and `instruction`, `accumulate` and `words` must have their defaults.
    `words` are attributes of :class:`~sptc.gemm.ways.Way` except instruction, architecture and result. The default
    result is that of `way`, or f32, or s32 for integers. `fmt` is in the order A, B. For other
    arguments and errors see :func:`chosen`.
    """
    fmt = fmt and in_factor_order(fmt, way.swapped if way else words.get("swapped", False))
    if way is None:
        i = chosen(fmt, instruction, arch, accumulate=accumulate, scales=scales)
        result = result or ("s32" if i.d.is_integer else "f32")
        return Way(instruction=str(i), arch=same_numerics(arch), result=result, **words)
    if instruction or accumulate or any(value != _WORDS[name] for name, value in words.items()):
        raise OperandError("give either the argument way or its attributes, such as instruction and tile")
    chosen(fmt, way.instruction, way.arch, scales=scales)
    return replace(way, result=result) if result else way


def read_way(path: Path) -> Way:
    """Read a way of summation from the output of ``sptc identify --json``, or from a file that holds only the way.

    Raise a `FileError` if the file cannot be read, or does not hold a way of summation.
    """
    record = read_json(path)
    if isinstance(record, dict) and "way" in record:
        record = record["way"]
        if record is None:
            raise FileError(f"{path} holds no method of summation: no tried method gives all bits of the result")
    try:
        return Way.of_record(record)
    except Error as error:
        raise FileError(f"{path}: {error}") from None


def format_of(left: NDArray | Compressed, right: NDArray | Compressed) -> str | None:
    """Return the format that the element types of both factors imply; None if the types imply no format.

    Two formats that one instruction can multiply are returned with a comma between them. Of any other two formats, the
    first is returned, and the elements of the second factor are rounded to this format.
    """
    names = [own_format(array.stored if isinstance(array, Compressed) else array) for array in (left, right)]
    # A uint8 array may hold numbers of type u8, or codes of any narrow format.
    known = [name for name in dict.fromkeys(names) if name and name != "u8"]
    if len(known) == 2 and any({*known} <= mixed for mixed in _MIXED):
        return ",".join(known)
    return known[0] if known else None


def grouped(
    way: Way | None,
    epilogue: Epilogue,
    group_scale_a: Any,
    group_scale_b: Any,
    shape: tuple[int, int],
    k: int,
    start: NDArray | None = None,
) -> tuple[GroupScales | None, Epilogue]:
    """Return the group scales given by the caller, or None, and the epilogue without group scales.

    The scales have the shapes (M, groups) and (groups, N); one scale may serve 128 rows (columns) or all rows
    (columns). The scales of the epilogue are group scales if they have these shapes, for groups of 128 elements or of a
    promoted chain of `way`, and do not broadcast to the product of `shape`. `way` is None if the way of summation is
    not known. Raise an `OperandError` if only one factor has group scales, a shape or type does not fit, or there is an
    initial accumulator `start`, which group scales would multiply.
    """
    a = None if group_scale_a is None else _floats("group_scale_a", group_scale_a)
    b = None if group_scale_b is None else _floats("group_scale_b", group_scale_b)
    chain = way.promote * way.parsed.k if way else 0
    if a is None and b is None:
        a, b = epilogue.scale_a, epilogue.scale_b
        if a is None or b is None or not _are_groups(a, b, shape, k, chain):
            return None, epilogue
        epilogue = replace(epilogue, scale_a=None, scale_b=None)
    if a is None or b is None:
        missing = "a" if a is None else "b"
        raise OperandError(f"group_scale_{missing} is missing: give group scales of both factors or of neither")
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != len(b) or not len(b):
        raise OperandError(
            f"group_scale_a must be of shape (M, groups along K) and group_scale_b of (groups, N), not {a.shape} and "
            f"{b.shape}"
        )
    length = _length(k, len(b), chain)
    a, b = _spread("group_scale_a", a, shape[0], "rows"), _spread("group_scale_b", b.T, shape[1], "columns")
    if start is not None:
        raise OperandError("with group scales, c cannot be the initial accumulator: give beta, the factor of c")
    return GroupScales(np.ascontiguousarray(a.T)[:, :, None], np.ascontiguousarray(b.T)[:, None, :], length), epilogue


def _are_groups(a: NDArray, b: NDArray, shape: tuple[int, int], k: int, chain: int) -> bool:
    """Return whether an epilogue's scales have shapes of group scales along K, not of scales of rows and columns."""
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != len(b) or len(b) == 1:
        return False
    lengths = [length for length in (chain, _BLOCK) if length]
    return not (broadcasts(a, shape) and broadcasts(b, shape)) and len(b) in (-(-k // length) for length in lengths)


def _length(k: int, groups: int, chain: int) -> int:
    """Return the number of elements along K that share a group scale."""
    for length in (chain, *_LENGTHS):
        if length and -(-k // length) == groups:
            return length
    if k % groups:
        raise OperandError(f"a K of {k} cannot be divided into {groups} groups of equal length")
    return k // groups


def _spread(name: str, scales: NDArray[np.float32], lines: int, noun: str) -> NDArray[np.float32]:
    """Return scales of groups along K for each row of A (or column of B); one row if all rows share the scales."""
    if len(scales) in (1, lines):
        return scales
    if len(scales) != -(-lines // _BLOCK):
        raise OperandError(
            f"{name} must have one scale for each of {lines} {noun}, one for each {_BLOCK} {noun}, or a single scale, "
            f"not {len(scales)} scales"
        )
    return scales.repeat(_BLOCK, axis=0)[:lines]


def epilogue_of(
    *,
    alpha: float = 1.0,
    beta: float | None = None,
    c: Any = None,
    bias: Any = None,
    scale_a: Any = None,
    scale_b: Any = None,
    relu: bool = False,
) -> Epilogue:
    """Return an epilogue; arrays and tensors of any float type are converted to float32.

    Raise an `OperandError` if an array does not hold numbers, a number exceeds the range of float32, or `beta` is given
    without C.
    """
    if beta is not None and c is None:
        raise OperandError("beta is a factor of c, but c is missing")
    alpha, factor = _number("alpha", alpha), 1.0 if beta is None else _number("beta", beta)
    arrays = {
        name: None if value is None else _floats(name, value)
        for name, value in (("c", c), ("bias", bias), ("scale_a", scale_a), ("scale_b", scale_b))
    }
    return Epilogue(alpha=alpha, beta=factor, relu=relu, **arrays)


def _number(name: str, value: Any) -> float:
    values = _floats(name, value)
    if values.size != 1:
        raise OperandError(f"{name} must be one number, not an array of shape {values.shape}")
    return value if isinstance(value, (int, float)) else float(values.item())


def check_types(way: Way | None, texts: Mapping[str, object], flags: Mapping[str, object]) -> None:
    """Raise an `OperandError` unless `way` is a `Way` or None, `texts` are texts or None, and `flags` are bools."""
    if way is not None and not isinstance(way, Way):
        raise OperandError(f"the argument way must be of class sptc.gemm.ways.Way, not {shown(way)}")
    for name, value in texts.items():
        if value is not None and not isinstance(value, str):
            raise OperandError(f"{name} must be a text, not {shown(value)}")
    for name, value in flags.items():
        check_flag(name, value)


def along_m(addend: NDArray) -> NDArray:
    """Return an addend of a matrix-vector product as a column, if the addend is a vector of length M."""
    return addend[:, None] if addend.ndim == 1 else addend


def oriented(
    way: Way, shape: tuple[int, int], epilogue: Epilogue, start: NDArray | None
) -> tuple[Epilogue, NDArray | None]:
    """Return the epilogue and the accumulator; transpose both if the way of summation exchanges the factors A and B.

    `start`, the accumulator of the first chain, holds numbers or codes of the instruction's accumulator type; it is
    returned as codes in the shape of the sums. Raise an `OperandError` if an array does not broadcast to the product of
    shape `shape`, or `start` is of another type.
    """
    epilogue.check(shape)
    if start is not None:
        check_shape("c", start, shape)
        start = np.broadcast_to(accumulator_codes(start, way.parsed), shape)
    if way.swapped:
        return epilogue.turned(shape), None if start is None else start.T
    return epilogue, start


def exchanged(way: Way, left: Any, right: Any) -> tuple[Any, NDArray, tuple[str, str]]:
    """Return the sparse and the dense factor with their names, exchanged if the way of summation exchanges A and B.

    Raise an `OperandError` if the dense factor is compressed.
    """
    names = ("a", "b")
    if way.swapped:
        # A compressed matrix is not transposed: it is always compressed along K. A dense array is transposed.
        left, right = (one.T if isinstance(one, np.ndarray) else one for one in (right, left))
        names = ("b", "a")
    if not isinstance(right, np.ndarray):
        raise OperandError(f"{names[1]} is the dense factor and cannot be compressed")
    return left, right, names


def _floats(name: str, value: Any) -> NDArray[np.float32]:
    array = np.asarray(value) if isinstance(value, (int, float, np.generic)) else as_array(name, value)
    if array.dtype.kind not in "fiu" and not is_extension(array.dtype):
        raise OperandError(f"{name} must hold numbers, not {array.dtype}")
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):  # numpy reports "invalid" for a signalling NaN
        values, exact = array.astype(np.float32), array.astype(np.float64)
    lost = np.isfinite(exact) & ~np.isfinite(values) | (exact != 0) & (values == 0)
    if lost.any():
        raise OperandError(f"{name} holds {exact[lost].flat[0]:g}, which is beyond the range of float32")
    return values
