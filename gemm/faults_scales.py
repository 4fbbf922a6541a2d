"""Faults of scales, C and bias: they are ignored, applied wrongly, or read from wrong places."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..isa.formats import FORMATS
from ..isa.instructions import Instruction
from ..tensors.encode import encode
from .index_maps import Index, named_maps
from .setting import Fault, Setting
from .ways import Way

__all__ = ["LineArray", "epilogue_faults", "line_arrays", "scale_faults"]

#: Powers of two for index maps of rows and columns; then powers of two for index maps of blocks along K.
_LINE_POWERS, _BLOCK_POWERS = (1, 2, 4, 8, 16, 32, 64, 128, 256), (1, 2, 4, 8)
#: Number of rows or columns that share one group scale in block-wise scaling.
_SHARED = 128
#: Numbers of instructions per promoted partial sum, for faults in which the accumulator is not cleared.
_PROMOTIONS = (1, 2, 4, 8, 16)

_Applied = dict[str, NDArray]


def _array_names(setting: Setting) -> dict[str, tuple[str, str]]:
    """Return kind and name of each array of an epilogue; A and B mean the factors of the product as it is computed."""
    a, b = "BA" if setting.swapped else "AB"
    return {
        "scale_a": ("scale", f"the scale of {a}"), "scale_b": ("scale", f"the scale of {b}"), "c": ("C", "C"),
        "bias": ("bias", "the bias"),
    }  # fmt: skip


# Operand arrays with entries for each row or column of the product.


@dataclass(frozen=True, eq=False)
class LineArray:
    """An operand array with entries for each row (axis 0) or each column (axis 1) of the product."""

    kind: str
    name: str
    axis: int
    move: Callable[[Setting, Setting], Setting]  #: Copies this array from the second setting into the first

    def with_lines(self, setting: Setting, index: Index) -> Setting:
        """Return a product in which row or column p uses the array entries of row or column ``index[p]``."""
        places = [np.arange(size) for size in setting.shape]
        places[self.axis] = index
        return self.move(setting, setting.take(places[0], places[1]))

    def line_against_all(self, setting: Setting, line: int, others: Index) -> Setting:
        """Return copies of one row (or column) of a product, each with the array entries of another row or column."""
        count = setting.shape[self.axis]
        places = [others, others]
        places[self.axis] = np.arange(count)
        entries = setting.take(places[0], places[1])
        places[self.axis] = np.full(count, line)
        return self.move(setting.take(places[0], places[1]), entries)


def line_arrays(setting: Setting) -> Iterator[LineArray]:
    """Yield the metadata, scales, C and bias of a product, each with the axis along which it varies."""
    if setting.nibbles is not None:
        yield LineArray("metadata", "the metadata", 0, lambda to, other: replace(to, nibbles=other.nibbles))
    for name, (kind, text) in _array_names(setting).items():
        if (array := getattr(setting.epilogue, name)) is not None:
            whole = np.broadcast_to(array, setting.shape)
            for axis in (0, 1):
                if not (whole == whole.take([0], axis)).all():
                    yield LineArray(kind, text, axis, partial(_with_epilogue_array, name=name))
    for axis in (0, 1) if setting.scales else ():
        yield LineArray("scale", f"the block scales of {'AB'[axis]}", axis, partial(_with_block_scales_of, axis=axis))
    if setting.groups:
        for axis, field in enumerate("ba" if setting.swapped else "ab"):
            if getattr(setting.groups, field).shape[1 + axis] > 1:
                move = partial(_with_group_array, field=field)
                yield LineArray("scale", f"the group scales of {'AB'[axis]}", axis, move)


def _with_epilogue_array(to: Setting, other: Setting, name: str) -> Setting:
    return _changed(to, **{name: np.broadcast_to(getattr(other.epilogue, name), to.shape)})


def _with_block_scales_of(to: Setting, other: Setting, axis: int) -> Setting:
    assert other.scales
    return _with_block_scales(to, other.scales[axis], axis)


def _with_block_scales(to: Setting, codes: NDArray[np.uint8], axis: int) -> Setting:
    assert to.scales
    return replace(to, scales=(codes, to.scales[1]) if axis == 0 else (to.scales[0], codes))


def _with_group_array(to: Setting, other: Setting, field: str) -> Setting:
    assert to.groups
    return replace(to, groups=replace(to.groups, **{field: getattr(other.groups, field)}))


def _changed(setting: Setting, /, **arrays: object) -> Setting:
    """Return the operands with some parameters of the epilogue replaced."""
    return replace(setting, epilogue=replace(setting.epilogue, **arrays))  # type: ignore[arg-type]


def _fault(kind: str, text: str, **arrays: object) -> Fault:
    return Fault(kind, text, partial(_changed, **arrays))


# Kinds of faults of the epilogue.


def epilogue_faults(setting: Setting) -> Iterator[Fault]:
    """Yield faults of the epilogue of a product."""
    shape, epilogue = setting.shape, setting.epilogue
    names = _array_names(setting)
    for name, (kind, text) in names.items():
        if (array := getattr(epilogue, name)) is None:
            continue
        if kind == "scale":
            applied = {f"{text} {how}": changed for how, changed in _applied(array).items()}
        else:
            applied = {f"{text} is added twice": array + array, f"{text} is subtracted": -array}
        for sentence, changed in {f"{text} is ignored": None, **applied}.items():
            yield _fault(kind, sentence, **{name: changed})
        whole = np.broadcast_to(array, shape)
        if shape[0] == shape[1]:
            yield _fault(kind, f"{text} is transposed: rows and columns are exchanged", **{name: whole.T})
        elif array.size == whole.size:
            yield _fault(kind, f"{text} is transposed in memory", **{name: whole.T.reshape(shape)})
        for axis, line in enumerate(("row", "column")):
            if not (whole == whole.take([0], axis)).all():
                for where, index in _line_maps(shape[axis]):
                    sentence = f"{text} is that of another {line}: {line} p takes that of {line} {where}"
                    yield _fault(kind, sentence, **{name: whole.take(index, axis)})
    one, other = epilogue.scale_a, epilogue.scale_b
    if one is not None and other is not None:
        yield _fault("scale", "the scales of A and B are ignored", scale_a=None, scale_b=None)
        both = [np.broadcast_to(array, shape) for array in (one, other)]
        for how, changed in _applied(one).items():
            sentence = f"the scales of A and B {how.replace('is ', 'are ', 1)}"
            yield _fault("scale", sentence, scale_a=changed, scale_b=_applied(other)[how])
        if shape[0] == shape[1]:
            yield _fault("scale", "the scales of A and B are exchanged", scale_a=both[1].T, scale_b=both[0].T)
    if epilogue.alpha != 1:
        yield _fault("scale", "alpha is ignored", alpha=1.0)
        for how, changed in _applied(np.float32(epilogue.alpha)).items():
            yield _fault("scale", f"alpha {how}", alpha=float(changed))
        if one is None:
            again = np.full((1, 1), epilogue.alpha, np.float32)
            yield _fault("scale", "alpha is applied twice, with a rounding in between", scale_a=again)
    if epilogue.c is not None and epilogue.beta != 1:
        yield _fault("C", "beta is ignored", beta=1.0)
    if epilogue.relu:
        yield _fault("rounding of the result", "ReLU is ignored", relu=False)


def _applied(scale: NDArray[np.float32] | np.float32) -> _Applied:
    """Return f32 scales changed by common mistakes of kernels, by texts that complete a sentence about the scale."""
    with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
        bits = np.asarray(scale, np.float32).view(np.uint32)
        power = bits & np.uint32(0xFF800000)
        return {
            "is applied twice": scale * scale,
            "is applied as its reciprocal": np.float32(1) / scale,
            "is rounded to bf16": (
                bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1)) & np.uint32(0xFFFF0000)
            ).view(np.float32),
            "is truncated to bf16": (bits & np.uint32(0xFFFF0000)).view(np.float32),
            "is rounded up to a power of two": (power + (bits != power) * np.uint32(1 << 23)).view(np.float32),
            "is rounded down to a power of two": power.view(np.float32),
        }


def _line_maps(count: int, powers: tuple[int, ...] = _LINE_POWERS) -> Iterator[tuple[str, Index]]:
    """Yield the index maps of :func:`named_maps`, and maps of each index to the first index or to its block number."""
    every, seen = np.arange(count), set()
    for text, index in named_maps(count, powers=powers):
        seen.add(index.tobytes())
        yield text, index
    for size in (*powers[1:], 512):
        for text, index in ((f"p - p mod {size}", every // size * size), (f"p // {size}", every // size)):
            if size < count and index.tobytes() not in seen:
                yield text, index


# Kinds of faults of block scales and group scales.


@dataclass(frozen=True, eq=False)
class _Table:
    """Scales of A or B as a table: a row for one or 128 rows of A (columns of B), a column for each block along K."""

    name: str  #: Name of the factor of the product, A or B
    line: str  #: Noun for one row of the table of scales, such as "row" or "column"
    array: NDArray
    applied: _Applied  #: Scales changed by common mistakes of kernels, by text of the mistake
    put: Callable[[Setting, NDArray], Setting]  #: Returns the product with another table of scales


def scale_faults(setting: Setting, i: Instruction) -> Iterator[Fault]:
    """Yield faults of the block scales and group scales of a product with instruction `i`."""
    if setting.scales and i.scale_format:
        yield from _table_faults(_block_tables(setting, i.scale_format.name), "block")
    if setting.groups:
        tables = _group_tables(setting)
        yield from _table_faults(tables, "group")
        yield from _tile_faults(tables)
        yield from _grouping_faults(setting)
    if not i.d.is_integer and not setting.scales:
        yield from _uncleared_faults(setting, i)


def _block_tables(setting: Setting, fmt: str) -> list[_Table]:
    assert setting.scales
    tables = []
    for axis, codes in enumerate(setting.scales):
        applied = {"are ignored": np.full_like(codes, encode(np.ones(1), FORMATS[fmt], saturate=True)[0])}
        if fmt == "ue8m0":
            exponents = codes.astype(int)
            for how, wide in (("twice", 2 * exponents - 0x7F), ("as their reciprocals", 0xFE - exponents)):
                clipped = np.where(codes == 0xFF, 0xFF, np.clip(wide, 0, 0xFE))
                applied[f"are applied {how}"] = clipped.astype(np.uint8)
        put = partial(_with_block_scales, axis=axis)
        tables.append(_Table("AB"[axis], ("row", "column")[axis], codes, applied, put))
    return tables


def _group_tables(setting: Setting) -> list[_Table]:
    assert setting.groups
    tables = []
    for axis, field in enumerate("ba" if setting.swapped else "ab"):
        whole = getattr(setting.groups, field)
        array, line = whole.reshape(len(whole), -1).T, ("row", "column")[axis]
        count = len(array)
        if count > _SHARED and np.array_equal(array, array[::_SHARED].repeat(_SHARED, 0)[:count]):
            array, line = array[::_SHARED], f"block of {_SHARED} {line}s"
        applied = {how.replace("is ", "are ", 1): one for how, one in _applied(np.ascontiguousarray(array)).items()}
        put = partial(_with_group_scales, field=field, shape=whole.shape)
        tables.append(_Table("AB"[axis], line, array, {"are ignored": np.ones_like(array), **applied}, put))
    return tables


def _with_group_scales(setting: Setting, array: NDArray[np.float32], field: str, shape: tuple[int, ...]) -> Setting:
    assert setting.groups
    count = shape[1] * shape[2]
    lines = array if len(array) == count else array.repeat(_SHARED, 0)[:count]
    changed: dict[str, Any] = {field: np.ascontiguousarray(lines.T).reshape(shape)}
    return replace(setting, groups=replace(setting.groups, **changed))


def _table_faults(tables: list[_Table], noun: str) -> Iterator[Fault]:
    """Yield faults of the scales of A, faults of the scales of B, and faults that affect both scales."""
    changes = [{**one.applied, **_places(one, noun)} for one in tables]
    for one, changed in zip(tables, changes, strict=True):
        text = f"the {noun} scales of {one.name}"
        for how, array in changed.items():
            yield Fault("scale", f"{text} {how}", partial(_put, tables=[one], arrays=[array]))
        for where, index in _line_maps(len(one.array)):
            if np.array_equal(one.array[index], one.array):
                continue
            sentence = f"{text} are those of another {one.line}: {one.line} p takes those of {one.line} {where}"
            yield Fault("scale", sentence, partial(_put, tables=[one], arrays=[one.array[index]]))
    for how, array in changes[0].items():
        if how in changes[1]:
            both = partial(_put, tables=tables, arrays=[array, changes[1][how]])
            yield Fault("scale", f"the {noun} scales of A and B {how}", both)
    if tables[0].array.shape == tables[1].array.shape:
        both = partial(_put, tables=tables, arrays=[tables[1].array, tables[0].array])
        yield Fault("scale", f"the {noun} scales of A and B are exchanged", both)


def _put(setting: Setting, tables: list[_Table], arrays: list[NDArray]) -> Setting:
    for one, array in zip(tables, arrays, strict=True):
        setting = one.put(setting, array)
    return setting


def _places(table: _Table, noun: str) -> _Applied:
    """Return scales that a kernel reads from wrong blocks along K, or in another memory layout than written."""
    array, places = table.array, dict[str, NDArray]()
    for text, index in _line_maps(array.shape[1], _BLOCK_POWERS):
        places[f"are those of another {noun}: {noun} p along K takes that of {noun} {text}"] = array[:, index]
    layouts = _layouts(*array.shape)
    for (writer, written), (reader, read) in permutations(layouts.items(), 2):
        memory = np.zeros(1 + max(int(written.max()), int(read.max())), array.dtype)
        memory[written] = array
        places[f"are written {writer} and read {reader}"] = memory[read]
    if array.shape[1] % 4 == 0:
        words = array.reshape(len(array), -1, 4)
        for byte in range(4):
            places[f"are read from byte {byte} of each word alone"] = np.repeat(words[:, :, byte], 4, 1)
    distinct = {one.tobytes(): how for how, one in reversed(places.items()) if not np.array_equal(one, array)}
    return {how: places[how] for how in reversed(distinct.values())}


def _layouts(rows: int, blocks: int) -> dict[str, Index]:
    """Return the address of each scale in memory, shape (rows, blocks), by layout."""
    row, block = np.indices((rows, blocks))
    inside, plain = row % 32 * 16 + row % 128 // 32 * 4 + block % 4, row % 128 * 4 + block % 4
    across, down = -(-blocks // 4), -(-rows // 128)
    return {
        "row by row": row * blocks + block,
        "block by block along K (MN-major)": block * rows + row,
        "row by row with a pitch of whole 4 blocks": row * across * 4 + block,
        "MN-major with a pitch of whole 4 rows": block * -(-rows // 4) * 4 + row,
        "in tiles of 128 x 4": (row // 128 * across + block // 4) * 512 + inside,
        "in tiles of 128 x 4, tiles along the rows first": (block // 4 * down + row // 128) * 512 + inside,
        "in tiles of 128 x 4 without interleaved rows": (row // 128 * across + block // 4) * 512 + plain,
    }


def _tile_faults(tables: list[_Table]) -> Iterator[Fault]:
    """Yield faults by which a scale that belongs to 128 rows or columns is applied to a block of another size."""
    for one in tables:
        if not one.line.startswith("block"):
            continue
        noun, count = one.line.split()[-1][:-1], len(one.array) * _SHARED
        for size in (16, 32, 64, 256):
            index = np.arange(count) // size % len(one.array)
            text = f"the group scales of {one.name} are applied to blocks of {size} {noun}s, not {_SHARED}"
            yield Fault("scale", text, partial(_spread, table=one, index=index))


def _spread(setting: Setting, table: _Table, index: Index) -> Setting:
    count = setting.shape["AB".index(table.name)]
    return table.put(setting, table.array[index[:count]])


def _grouping_faults(setting: Setting) -> Iterator[Fault]:
    """Yield faults of kernels that advance the scale group too early, or apply one group's scale to the whole sum."""
    groups = setting.groups
    assert groups
    count = len(groups.a)
    for parts in (2, 4, 8):
        length, every = groups.length // parts, np.arange(count * parts)
        for end, index in (("the last remains", np.minimum(every, count - 1)), ("and begins again", every % count)):
            text = f"the group advances after {length} elements along K instead of {groups.length}, {end}"
            yield Fault("scale", text, partial(_regrouped, length=length, index=index), partial(_cut_chains, length))
    for name, place in (("first", 0), ("last", count - 1)):
        text = f"the scales of the {name} group are applied once, to the sum of all of K"
        change = partial(_regrouped, length=count * groups.length, index=np.array([place]))
        yield Fault("scale", text, change, lambda way: replace(way, promote=0))


def _regrouped(setting: Setting, length: int, index: Index) -> Setting:
    assert setting.groups
    a, b = (array[index] for array in (setting.groups.a, setting.groups.b))
    return replace(setting, groups=replace(setting.groups, a=a, b=b, length=length))


def _cut_chains(length: int, way: Way) -> Way:
    """Return a way of summation whose chains are not longer than a scale group."""
    k = way.parsed.k
    return way if way.promote * k <= length else replace(way, promote=max(1, length // k))


def _uncleared_faults(setting: Setting, i: Instruction) -> Iterator[Fault]:
    """Yield faults of kernels whose promoted partial sums still contain the earlier partial sums."""
    for number in _PROMOTIONS:
        if setting.groups is None or setting.groups.length % (number * i.k) == 0:
            text = f"the accumulator is not cleared after its promotion, every {number} instructions"
            change: Callable[[Setting], Setting] = partial(replace, is_cleared=False)
            yield Fault("accumulator", text, change, partial(_promoted, number))


def _promoted(number: int, way: Way) -> Way:
    return way if way.promote == number else replace(way, promote=number)
