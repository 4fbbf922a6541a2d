"""Kernel faults in operands: wrong addresses, wrong element types, unwanted rounding, or wrong metadata."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import Error
from ..isa.formats import Format
from ..isa.instructions import Instruction
from ..tensors.blocks import in_float64
from ..tensors.cutlass import atom_sm90, atom_sm100, in_atoms, interleaved_positions
from ..tensors.encode import decode_codes, encode
from .epilogue import rounded_values
from .index_maps import misread, named_maps
from .matrices import holds_codes, own_format
from .misread_tiles import misreadings, regathered
from .setting import Fault, Setting
from .ways import Way, instruction_named

__all__ = ["k_maps", "layouts", "metadata", "rounded_otherwise", "rounded_to_bf16", "rounded_words", "types"]

#: Key: correct element type. Value: types that a kernel may confuse with the correct type.
_NEIGHBOURS = {
    "e4m3": ("e5m2",), "e5m2": ("e4m3",), "s8": ("u8",), "u8": ("s8",), "s4": ("u4",), "u4": ("s4",),
    "f16": ("bf16",), "bf16": ("f16",), "e3m2": ("e2m3",), "e2m3": ("e3m2",),
}  # fmt: skip
#: Sizes of blocks, in instructions along K, for faults by which a kernel reads wrong blocks of an operand.
_BLOCKS = (1, 2, 4, 8)
_Nibbles = NDArray[np.uint8]
_READ = "operand read from other places"


def types(setting: Setting, i: Instruction) -> Iterator[Fault]:
    """Yield possible kernel faults: elements of A or B, or block scales, are interpreted as a wrong type."""
    if i.scale_format:
        scale = i.scale_format.name
        other = "ue4m3" if scale == "ue8m0" else "ue8m0"
        text = f"the block scales of type {scale} are interpreted as {other}"
        yield Fault("type", text, setting, partial(_with_instruction, old=scale, new=other))
    for a, b in product(*((fmt.name, *_NEIGHBOURS.get(fmt.name, ())) for fmt in (i.a, i.b))):
        changed = [(name, old, new) for name, old, new in (("A", i.a.name, a), ("B", i.b.name, b)) if old != new]
        if changed:
            text = " and ".join(f"{name} of type {old} is interpreted as {new}" for name, old, new in changed)
            yield Fault("type", text, setting, partial(_retyped, a=a, b=b))


def _retyped(way: Way, a: str, b: str) -> Way:
    """Return `way` with an instruction of types `a` and `b`, or `way` itself if there is no such instruction."""
    i = way.parsed
    old, new = f".{i.a.name}.{i.b.name}", f".{a}.{b}"
    for d in ("f32", "f16", "s32"):
        way = _with_instruction(way, f".{d}{old}", f".{d}{new}")
    return way


def _with_instruction(way: Way, old: str, new: str) -> Way:
    """Return a way with `new` for `old` in its instruction's name; the same way if there is no such instruction."""
    try:
        return replace(way, instruction=str(instruction_named(way.instruction.replace(old, new), way.arch)))
    except Error:
        return way


def layouts(setting: Setting, i: Instruction) -> Iterator[Fault]:
    """Yield possible kernel faults: A or B is read from memory in another layout than it was written."""

    def fault(name: str, text: str, matrix: NDArray) -> Fault:
        return Fault(_READ, f"{name.upper()}{text}", setting.with_parts({name: np.ascontiguousarray(matrix)}))

    for how in ("read", "stored"):
        for name in "ba":
            matrix = getattr(setting, name)
            read = matrix.reshape(matrix.shape[::-1]).T if how == "read" else matrix.T.reshape(matrix.shape)
            yield fault(name, f" is transposed: it is {how} in the order of its transpose", read)
    if setting.b.shape[0] == setting.b.shape[1]:
        yield fault("b", " is transposed", setting.b.T)
    for name, major, is_turned in (("b", "K", True), ("a", "K", False), ("b", "MN", False), ("a", "MN", True)):
        matrix = getattr(setting, name).T if is_turned else getattr(setting, name)
        for misreading in misreadings(len(matrix), matrix.shape[1], i.container_bits):
            if major == "K" or "swizzle" in misreading.text:
                read = regathered(matrix, misreading)
                yield fault(name, f" ({major}-major): {misreading.text}", read.T if is_turned else read)
    for size in (1, 2, 4, 8, 16, 32, 64):
        for name, axis in (("a", 1), ("b", 0)):
            matrix = getattr(setting, name)
            width = matrix.shape[axis]
            if width % (2 * size) == 0:
                text = f": neighbouring groups of {size} elements along K are exchanged"
                yield fault(name, text, matrix.take(np.arange(width) ^ size, axis))


def k_maps(setting: Setting, unit: int) -> Iterator[Fault]:
    """Yield possible kernel faults: the kernel reads blocks of A, of B or of metadata from wrong positions along K.

    The smallest block has `unit` columns of A, which is the K of one instruction.
    """
    operands = {
        "A": ("a", "nibbles"), "the stored values of A, without their metadata,": ("a",), "B": ("b",),
        "the metadata": ("nibbles",),
    }  # fmt: skip
    if setting.nibbles is None:
        operands = {"A": ("a",), "B": ("b",)}
    for blocks in _BLOCKS:
        size = blocks * unit
        count = -(-setting.k // size)
        if count < 2 or (blocks > 1 and count * size != setting.k):
            continue
        for text, index in _maps(count):
            for who, names in operands.items():
                kind = "metadata" if names == ("nibbles",) else _READ
                where = f"{who} is read from other blocks of {size} elements along K: block p holds block {text}"
                yield Fault(kind, where, setting.with_blocks(size, dict.fromkeys(names, index)))


def _maps(count: int) -> Iterator[tuple[str, NDArray[np.intp]]]:
    yield from named_maps(count, powers=(1, 2, 4))
    every = np.arange(count)
    yield "p - 1, and the first block holds zeros", every - 1
    yield "p + 1, and the last block holds zeros", np.where(every + 1 < count, every + 1, -1)
    yield "p - 1, and the first block is read twice", np.maximum(every - 1, 0)
    yield "p + 1, and the last block is read twice", np.minimum(every + 1, count - 1)
    yield "p - 2, and the first two blocks hold zeros", np.maximum(every - 2, -1)


def rounded_words(setting: Setting) -> Iterator[Fault]:
    """Yield possible kernel faults: f32 operands are rounded before the tf32 instruction drops their low 13 bits."""
    rounders: dict[str, Callable[[NDArray[np.uint32]], NDArray[np.uint32]]] = {
        "truncated to bf16": lambda x: x & np.uint32(0xFFFF0000),
        "rounded to bf16 to nearest even": rounded_to_bf16,
        "rounded to f16": _through_f16,
    }
    for text, rounder in rounders.items():
        for who, names in (("A and B are", "ab"), ("A is", "a"), ("B is", "b")):
            parts = {name: rounder(getattr(setting, name)) for name in names}
            yield Fault("rounding of operands", f"{who} {text}", setting.with_parts(parts))


def rounded_to_bf16(words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Round codes of f32 to bf16, to nearest even; return codes of f32."""
    return words + np.uint32(0x7FFF) + (words >> np.uint32(16) & np.uint32(1)) & np.uint32(0xFFFF0000)


def _through_f16(words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return words.view(np.float32).astype(np.float16).astype(np.float32).view(np.uint32)


def rounded_otherwise(left: Any, right: NDArray, formats: tuple[Format, Format]) -> Iterator[tuple[str, Any, NDArray]]:
    """Yield A and B rounded to the instruction's formats in other rounding modes, with a text for each rounding.

    Factors that hold codes are not rounded: nothing is yielded for them.
    """
    factors = [*zip((left, right), formats, strict=True)]
    are_numbers = [
        isinstance(array, np.ndarray) and not fmt.is_integer and not fmt.ignored_low_bits
        and not holds_codes(array, fmt) and own_format(array) != fmt.name
        for array, fmt in factors
    ]  # fmt: skip
    rounders: dict[str, Callable[[NDArray, Format], NDArray]] = {
        "truncated (rounded toward zero)": partial(_rounded, rounding="RZ"),
        "rounded to nearest, ties away from zero": partial(_rounded, rounding="RNA"),
        "rounded twice, through f16": lambda x, fmt: _through(x, "f16"),
        "rounded twice, through bf16": lambda x, fmt: _through(x, "bf16"),
    }
    for how, rounder in rounders.items():
        for who, rounded in (("A and B are", (True, True)), ("A is", (True, False)), ("B is", (False, True))):
            if all(number or not one for one, number in zip(rounded, are_numbers, strict=True)):
                a, b = (
                    rounder(in_float64(array), fmt) if one else array
                    for one, (array, fmt) in zip(rounded, factors, strict=True)
                )
                yield f"{who} {how}", a, b


def _rounded(values: NDArray[np.float64], fmt: Format, rounding: str) -> NDArray[np.float64]:
    return decode_codes(encode(values, fmt, saturate=True, rounding=rounding), fmt)


def _through(values: NDArray[np.float64], name: str) -> NDArray[np.float64]:
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return rounded_values(values.astype(np.float32), name).astype(np.float64)


# Faults by which a kernel uses wrong metadata: it multiplies stored elements of A by the wrong elements of B.


def metadata(setting: Setting, bits: int) -> Iterator[Fault]:
    """Yield possible kernel faults: all metadata of A is wrong in the same manner; an element of A has `bits` bits."""
    assert setting.nibbles is not None
    nibbles = setting.nibbles

    def fault(text: str, wrong: _Nibbles) -> Fault:
        return Fault("metadata", text, replace(setting, nibbles=np.ascontiguousarray(wrong)))

    for text, table in _tables():
        yield fault(text, table[nibbles])
    rows, chunks = nibbles.shape
    for text, index in _lines(rows):
        yield fault(f"of other rows: row p has the metadata of row {text}", nibbles[index])
    for text, index in named_maps(chunks, powers=(1, 2, 4, 8, 16)):
        yield fault(f"of other chunks: chunk p of each row has the nibble of chunk {text}", nibbles[:, index])
    for shift in (1, -1, 2, -2, 4, -4, 8, -8):
        text = f"shifted by {abs(shift)} nibbles {'down' if shift > 0 else 'up'} in memory, across rows"
        yield fault(text, np.roll(nibbles.ravel(), shift).reshape(rows, chunks))
    for writer, reader, read in misread(nibbles, _layouts(rows, chunks, bits)):
        if (read != nibbles).any():
            yield fault(f"of another interleave: written as {writer}, read as {reader}", read)
    for row, row_index in named_maps(rows, powers=(1, 8)):
        for chunk, chunk_index in named_maps(chunks, powers=(1, 2, 4)):
            if "^" in row and "^" in chunk:
                text = f"of other rows and chunks: row p has the metadata of row {row}, chunk q that of chunk {chunk}"
                yield fault(text.replace("that of p", "that of q"), nibbles[row_index][:, chunk_index])


def _lines(rows: int) -> Iterator[tuple[str, NDArray[np.intp]]]:
    """Yield wrong index maps for metadata rows, with descriptions: maps of the whole matrix and of blocks of rows."""
    yield from named_maps(rows)
    every = np.arange(rows)
    for size in (8, 16, 32, 64, 128):
        if size < rows:
            yield f"p % {size} of the last {size} rows", every % size + rows - size
            half = size // 2
            yield f"p, or p - {half} in the second half of each {size} rows", every & ~half
            yield f"p, or p + {half} in the first half of each {size} rows", (every | half) % rows
    quads = every & ~15 | (every & 1) << 3 | (every & 14) >> 1
    yield "8 * (p % 2) + p % 16 // 2 of the same 16 rows", quads % rows
    pairs = every & ~15 | (every & 7) << 1 | every >> 3 & 1
    yield "2 * (p % 8) + p // 8 % 2 of the same 16 rows", pairs % rows


def _tables() -> Iterator[tuple[str, NDArray]]:
    """Yield tables of wrong nibbles: each table replaces each of the 16 metadata nibbles by another nibble."""
    every = np.arange(16, dtype=np.uint8)
    yield "of zeros: every nibble is 0x0", np.zeros_like(every)
    for value in (0x4, 0xE, 0x8, 0x9, 0xC, 0xD, 0x6, 0xF, 0x5, 0xA, 0x1):
        yield f"constant: every nibble is 0x{value:x}", np.full_like(every, value)
    yield "with both indices of a nibble exchanged (i0 and i1)", every >> 2 | (every & 3) << 2
    yield "with every index complemented", every ^ 15
    yield "with the bits of a nibble reversed", np.array([int(f"{n:04b}"[::-1], 2) for n in range(16)], np.uint8)
    yield "with the bits of each index exchanged", (every & 5) << 1 | (every & 10) >> 1
    yield "with the upper index of each nibble used for both elements", every >> 2 | every & 12
    yield "with the lower index of each nibble used for both elements", every & 3 | (every & 3) << 2


def _layouts(rows: int, chunks: int, bits: int) -> dict[str, NDArray[np.intp]]:
    """Return the addresses of nibbles in each memory layout of metadata; entry [i, j] is for nibble j of row i."""
    row, chunk = np.indices((rows, chunks))
    every = row * chunks + chunk
    addresses = {"row by row": every}
    for size in (1, 2, 4, 8):
        if chunks % size == 0:
            address = (chunk // size * rows + row) * size + chunk % size
            addresses[f"column by column in words of {4 * size} bits"] = address
    for size in (4, 8):
        with suppress(Error):
            if chunks % size == 0:
                words = interleaved_positions(rows, chunks // size, 4 * size)
                address = words.repeat(size, axis=1) * size + chunk % size
                addresses[f"CUTLASS 2.x (reordered, words of {4 * size} bits)"] = address
    atoms = {f"CUTLASS 3 for sm_90 (K tile {tile_k})": partial(atom_sm90, bits, tile_k) for tile_k in (128, 64)}
    for name, atom_of in {**atoms, "CUTLASS 3 for sm_100": partial(atom_sm100, bits)}.items():
        with suppress(Error, KeyError, ValueError):
            placed = in_atoms(every, atom_of()).ravel()
            if placed.size == every.size:  # Skip layouts that need padding of the metadata.
                addresses[name] = placed.argsort().reshape(rows, chunks)
    return addresses
