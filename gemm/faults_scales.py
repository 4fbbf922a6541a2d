"""Faults in scales, C and bias: a kernel ignores such an array, applies it wrongly, or reads it at wrong positions."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..isa.formats import FORMATS
from ..isa.instructions import Instruction
from ..tensors.encode import encode
from .faults_operands import rounded_to_bf16
from .index_maps import Index, misread, named_maps
from .setting import Fault, Setting
from .ways import Way

__all__ = ["LineArray", "epilogue_faults", "line_arrays", "scale_faults"]

#: Powers of two in the formulas of wrong index maps, such as 8 in p ^ 8: for maps of rows or columns, and for maps of
#: blocks along K.
_LINE_POWERS, _BLOCK_POWERS = (1, 2, 4, 8, 16, 32, 64, 128, 256), (1, 2, 4, 8)
#: Number of rows or columns that share one group scale in block-wise scaling.
_SHARED = 128
#: Numbers of instructions after which a faulty kernel adds the accumulator to f32 registers without clearing it.
_PROMOTIONS = (1, 2, 4, 8, 16)
#: Names of axis 0 and axis 1 of the matrix product in texts that describe kernel faults.
_LINES = ("row", "column")

_Applied = dict[str, NDArray]


def _epilogue_arrays(setting: Setting) -> Iterator[tuple[str, str, str, NDArray]]:
    """For each array of the epilogue (scales of A and B, C, bias), yield field, kind of fault, name and array.

    If the product is computed transposed, the names are those of the transposed product.
    """
    a, b = "BA" if setting.swapped else "AB"
    names = {
        "scale_a": ("scale", f"the scale of {a}"), "scale_b": ("scale", f"the scale of {b}"), "c": ("C", "C"),
        "bias": ("bias", "the bias"),
    }  # fmt: skip
    for field, (kind, name) in names.items():
        if (array := getattr(setting.epilogue, field)) is not None:
            yield field, kind, name, array


def _axes(array: NDArray) -> list[int]:
    """Return the axes along which the values of a matrix differ."""
    return [axis for axis in (0, 1) if not (array == array.take([0], axis)).all()]


# Operand arrays with entries for each row or column of the matrix product.


@dataclass(frozen=True, eq=False)
class LineArray:
    """An operand array with entries for each row (axis 0) or each column (axis 1) of the matrix product."""

    kind: str
    name: str
    axis: int
    part: str  #: Argument of :meth:`sptc.gemm.setting.Setting.part` that selects the array

    def with_lines(self, setting: Setting, index: Index) -> Setting:
        """Return operands in which one array (such as C) has, at row or column p, the entries of ``index[p]``."""
        places = [np.arange(size) for size in setting.shape]
        places[self.axis] = index
        return setting.with_parts({self.part: setting.take(places[0], places[1]).part(self.part)})

    def line_against_all(self, setting: Setting, line: int, others: Index) -> Setting:
        """Return a product with copies of row (column) `line`; copy p uses row (column) p of one array, such as C."""
        count = setting.shape[self.axis]
        places = [others, others]
        places[self.axis] = np.arange(count)
        entries = setting.take(places[0], places[1])
        places[self.axis] = np.full(count, line)
        return setting.take(places[0], places[1]).with_parts({self.part: entries.part(self.part)})


def line_arrays(setting: Setting) -> Iterator[LineArray]:
    """Yield the metadata, scales, C and bias of a matrix product, each with the axis along which it varies."""
    if setting.nibbles is not None:
        yield LineArray("metadata", "the metadata", 0, "nibbles")
    for field, kind, name, array in _epilogue_arrays(setting):
        for axis in _axes(np.broadcast_to(array, setting.shape)):
            yield LineArray(kind, name, axis, f"epilogue.{field}")
    for axis in (0, 1) if setting.scales else ():
        yield LineArray("scale", f"the block scales of {'AB'[axis]}", axis, f"scales.{axis}")
    if setting.groups:
        for axis, field in enumerate("ba" if setting.swapped else "ab"):
            if getattr(setting.groups, field).shape[1 + axis] > 1:
                yield LineArray("scale", f"the group scales of {'AB'[axis]}", axis, f"groups.{field}")


# Faults in the epilogue of a kernel.


def epilogue_faults(setting: Setting) -> Iterator[Fault]:
    """Yield possible kernel faults in the epilogue of a matrix product."""
    shape, epilogue = setting.shape, setting.epilogue

    def fault(kind: str, text: str, wrong: dict[str, Any]) -> Fault:
        return Fault(kind, text, replace(setting, epilogue=replace(epilogue, **wrong)))

    for field, kind, name, array in _epilogue_arrays(setting):
        if kind == "scale":
            applied = {f"{name} {how}": changed for how, changed in _applied(array).items()}
        else:
            applied = {f"{name} is added twice": array + array, f"{name} is subtracted": -array}
        for text, changed in {f"{name} is ignored": None, **applied}.items():
            yield fault(kind, text, {field: changed})
        whole = np.broadcast_to(array, shape)
        if shape[0] == shape[1]:
            yield fault(kind, f"{name} is transposed: rows and columns are exchanged", {field: whole.T})
        elif array.size == whole.size:
            yield fault(kind, f"{name} is transposed in memory", {field: whole.T.reshape(shape)})
        for axis in _axes(whole):
            line = _LINES[axis]
            for where, index in _line_maps(shape[axis]):
                text = f"{name} is that of another {line}: {line} p takes the value of {line} {where}"
                yield fault(kind, text, {field: whole.take(index, axis)})
    a, b = epilogue.scale_a, epilogue.scale_b
    if a is not None and b is not None:
        yield fault("scale", "the scales of A and B are ignored", {"scale_a": None, "scale_b": None})
        for (how, changed_a), changed_b in zip(_applied(a).items(), _applied(b).values(), strict=True):
            text = f"the scales of A and B {how.replace('is ', 'are ', 1)}"
            yield fault("scale", text, {"scale_a": changed_a, "scale_b": changed_b})
        if shape[0] == shape[1]:
            exchanged = {"scale_a": np.broadcast_to(b, shape).T, "scale_b": np.broadcast_to(a, shape).T}
            yield fault("scale", "the scales of A and B are exchanged", exchanged)
    if epilogue.alpha != 1:
        yield fault("scale", "alpha is ignored", {"alpha": 1.0})
        for how, changed in _applied(np.float32(epilogue.alpha)).items():
            yield fault("scale", f"alpha {how}", {"alpha": float(changed)})
        if a is None:
            again = np.full((1, 1), epilogue.alpha, np.float32)
            yield fault("scale", "alpha is applied twice, with a rounding in between", {"scale_a": again})
    if epilogue.c is not None and epilogue.beta != 1:
        yield fault("C", "beta is ignored", {"beta": 1.0})
    if epilogue.relu:
        yield fault("rounding of the result", "ReLU is ignored", {"relu": False})


def _applied(scale: NDArray[np.float32] | np.float32) -> _Applied:
    """Return f32 scales with common mistakes of kernels. Keys: texts of the mistakes, such as "is rounded to bf16"."""
    with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
        bits = np.asarray(scale, np.float32).view(np.uint32)
        power = bits & np.uint32(0xFF800000)
        return {
            "is applied twice": scale * scale,
            "is applied as its reciprocal": np.float32(1) / scale,
            "is rounded to bf16": rounded_to_bf16(bits).view(np.float32),
            "is truncated to bf16": (bits & np.uint32(0xFFFF0000)).view(np.float32),
            "is rounded up to a power of two": (power + (bits != power) * np.uint32(1 << 23)).view(np.float32),
            "is rounded down to a power of two": power.view(np.float32),
        }


def _line_maps(count: int, powers: tuple[int, ...] = _LINE_POWERS) -> Iterator[tuple[str, Index]]:
    """Yield the index maps of :func:`named_maps`; then, for block sizes n, maps of p to p - p mod n and to p // n."""
    every, seen = np.arange(count), set()
    for text, index in named_maps(count, powers=powers):
        seen.add(index.tobytes())
        yield text, index
    for size in (*powers[1:], 512):
        for text, index in ((f"p - p mod {size}", every // size * size), (f"p // {size}", every // size)):
            if size < count and index.tobytes() not in seen:
                yield text, index


# Faults by which a kernel uses wrong block scales or group scales.


@dataclass(frozen=True, eq=False)
class _Table:
    """Table of scales. A table row is for 1 or 128 rows of A (or columns of B), a table column for a block along K."""

    setting: Setting  #: Operands and epilogue that the kernel should have used
    axis: int  #: Axis of the matrix product along which the scales vary: 0 for scales of A, 1 for scales of B
    line: str  #: Noun for what a table row stands for, such as "row", "column" or "block of 128 rows"
    array: NDArray
    applied: _Applied  #: Key: text of a common mistake of kernels. Value: scales with this mistake
    part: str  #: Name of the scales, as an argument of :meth:`sptc.gemm.setting.Setting.part`
    shape: tuple[int, ...] = ()  #: Shape of the group scales before their conversion to a table; empty for block scales

    @property
    def name(self) -> str:
        """Name of the factor that the scales multiply, A or B."""
        return "AB"[self.axis]

    def parts(self, table: NDArray) -> dict[str, NDArray]:
        """Return the argument of :meth:`sptc.gemm.setting.Setting.with_parts` that replaces the scales by `table`."""
        if not self.shape:
            return {self.part: table}
        count = self.shape[1] * self.shape[2]  # number of rows of A (columns of B) with own scales; 1 for shared scales
        lines = table if len(table) == count else table.repeat(_SHARED, 0)[:count]
        return {self.part: np.ascontiguousarray(lines.T).reshape(self.shape)}

    def fault(self, text: str, table: NDArray) -> Fault:
        """Return the fault that a kernel uses the scales in `table` instead of the correct scales."""
        return Fault("scale", text, self.setting.with_parts(self.parts(table)))


def scale_faults(setting: Setting, i: Instruction) -> Iterator[Fault]:
    """Yield possible kernel faults in the block scales and group scales of a matrix product with instruction `i`."""
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
        tables.append(_Table(setting, axis, _LINES[axis], codes, applied, f"scales.{axis}"))
    return tables


def _group_tables(setting: Setting) -> list[_Table]:
    tables = []
    for axis, field in enumerate("ba" if setting.swapped else "ab"):
        whole = getattr(setting.groups, field)
        array, line = whole.reshape(len(whole), -1).T, _LINES[axis]
        count = len(array)
        if count > _SHARED and np.array_equal(array, array[::_SHARED].repeat(_SHARED, 0)[:count]):
            array, line = array[::_SHARED], f"block of {_SHARED} {line}s"
        applied = {how.replace("is ", "are ", 1): one for how, one in _applied(np.ascontiguousarray(array)).items()}
        applied = {"are ignored": np.ones_like(array), **applied}
        tables.append(_Table(setting, axis, line, array, applied, f"groups.{field}", whole.shape))
    return tables


def _table_faults(tables: list[_Table], noun: str) -> Iterator[Fault]:
    """Yield possible kernel faults: in the scales of A only, in the scales of B only, and in both scales at once."""
    changes = [{**table.applied, **_places(table, noun)} for table in tables]
    for table, changed in zip(tables, changes, strict=True):
        text, line = f"the {noun} scales of {table.name}", table.line
        for how, array in changed.items():
            yield table.fault(f"{text} {how}", array)
        for where, index in _line_maps(len(table.array)):
            array = table.array[index]
            if not np.array_equal(array, table.array):
                yield table.fault(f"{text} are those of another {line}: {line} p takes those of {line} {where}", array)
    a, b = tables
    both = {how: (array, changes[1][how]) for how, array in changes[0].items() if how in changes[1]}
    if a.array.shape == b.array.shape:
        both["are exchanged"] = b.array, a.array
    for how, (array_a, array_b) in both.items():
        parts = {**a.parts(array_a), **b.parts(array_b)}
        yield Fault("scale", f"the {noun} scales of A and B {how}", a.setting.with_parts(parts))


def _places(table: _Table, noun: str) -> _Applied:
    """Return scales as read from wrong blocks along K or in a wrong memory layout, by the description of the error."""
    array, places = table.array, dict[str, NDArray]()
    for text, index in _line_maps(array.shape[1], _BLOCK_POWERS):
        places[f"are those of another {noun}: {noun} p along K takes the scale of {noun} {text}"] = array[:, index]
    for writer, reader, read in misread(array, _layouts(*array.shape)):
        places[f"are written {writer} and read {reader}"] = read
    if array.shape[1] % 4 == 0:
        words = array.reshape(len(array), -1, 4)
        for byte in range(4):
            places[f"are all read from byte {byte} of a word of four scales"] = np.repeat(words[:, :, byte], 4, 1)
    distinct = {one.tobytes(): how for how, one in reversed(places.items()) if not np.array_equal(one, array)}
    return {how: places[how] for how in reversed(distinct.values())}


def _layouts(rows: int, blocks: int) -> dict[str, Index]:
    """Return, for each memory layout of scales, the addresses of all scales, shape (rows, blocks)."""
    row, block = np.indices((rows, blocks))
    inside, plain = row % 32 * 16 + row % 128 // 32 * 4 + block % 4, row % 128 * 4 + block % 4
    across, down = -(-blocks // 4), -(-rows // 128)
    return {
        "row by row": row * blocks + block,
        "block by block along K (MN-major)": block * rows + row,
        "row by row, with the pitch rounded up to a multiple of 4 blocks": row * across * 4 + block,
        "MN-major, with the pitch rounded up to a multiple of 4 rows": block * -(-rows // 4) * 4 + row,
        "in tiles of 128 x 4": (row // 128 * across + block // 4) * 512 + inside,
        "in tiles of 128 x 4, tiles along the rows first": (block // 4 * down + row // 128) * 512 + inside,
        "in tiles of 128 x 4 without interleaved rows": (row // 128 * across + block // 4) * 512 + plain,
    }


def _tile_faults(tables: list[_Table]) -> Iterator[Fault]:
    """Yield possible kernel faults: a group scale of 128 rows or columns is applied to 16, 32, 64 or 256 of them."""
    for table in tables:
        if table.line.startswith("block"):
            for size in (16, 32, 64, 256):
                index = np.arange(table.setting.shape[table.axis]) // size % len(table.array)
                lines = f"blocks of {size} {_LINES[table.axis]}s, not {_SHARED}"
                yield table.fault(f"the group scales of {table.name} are applied to {lines}", table.array[index])


def _grouping_faults(setting: Setting) -> Iterator[Fault]:
    """Yield possible kernel faults: the next group's scales are used too early, or one group's scales for all of K."""
    groups = setting.groups
    assert groups
    count = len(groups.a)
    for parts in (2, 4, 8):
        length, every = groups.length // parts, np.arange(count * parts)
        last, again = "and the last group is used to the end of K", "and the first group follows the last"
        for end, index in ((last, np.minimum(every, count - 1)), (again, every % count)):
            text = f"the scale group advances after {length} elements along K instead of {groups.length}, {end}"
            yield Fault("scale", text, _regrouped(setting, length, index), partial(_cut_chains, length))
    for name, place in (("first", 0), ("last", count - 1)):
        text = f"the scales of the {name} group are applied once, to the sum of all of K"
        changed = _regrouped(setting, count * groups.length, np.array([place]))
        yield Fault("scale", text, changed, lambda way: replace(way, promote=0))


def _regrouped(setting: Setting, length: int, index: Index) -> Setting:
    groups = setting.groups
    assert groups
    return replace(setting, groups=replace(groups, a=groups.a[index], b=groups.b[index], length=length))


def _cut_chains(length: int, way: Way) -> Way:
    """Return a way of summation whose chains of instructions have at most `length` elements along K."""
    k = way.parsed.k
    return way if way.promote * k <= length else replace(way, promote=max(1, length // k))


def _uncleared_faults(setting: Setting, i: Instruction) -> Iterator[Fault]:
    """Yield possible kernel faults: the accumulator is added to f32 registers repeatedly, but is never cleared."""
    for number in _PROMOTIONS:
        if setting.groups is None or setting.groups.length % (number * i.k) == 0:
            text = f"the accumulator is not cleared after its promotion, every {number} instructions"
            yield Fault("accumulator", text, replace(setting, is_cleared=False), partial(replace, promote=number))
