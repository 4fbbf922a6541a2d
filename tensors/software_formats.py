"""Memory formats of stored values and metadata in software: one object per format, with pack and unpack functions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..errors import OperandError
from ..isa.formats import Format
from ..isa.fragments import a_fragment
from ..isa.instructions import Instruction, parse
from ..isa.metadata import Granularity, indices, join_nibbles, split_nibbles
from ..operands import registers
from .compressed import Compressed, NibbleError
from .cutlass import Atom, atom_sm90, atom_sm100, from_atoms, interleaved_positions, to_atoms
from .marlin import marlin_bits, pack_marlin, unpack_marlin

__all__ = ["SOFTWARE_FORMATS", "PackingOptions", "SoftwareFormat", "default_instruction", "element_bits"]

Tensors = dict[str, NDArray]

#: Key: element width in bits. Value: default instruction of format ``ptx``.
_INSTRUCTIONS = {
    32: "mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32",
    16: "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32",
    8: "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.s32.s8.s8.s32",
    4: "mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.s32.s4.s4.s32",
}
_FOUR_BIT_TYPES = ("int4", "uint4", "float4_e2m1fn")


@dataclass(frozen=True, kw_only=True)
class PackingOptions:
    """Packing options that apply only to some software formats."""

    #: Option of format ``ptx``: instruction whose registers are filled (default: largest ``mma.sp`` of the element
    #: width).
    instruction: Instruction | None = None
    sparsity_selector: int = 0  #: Option of format ``ptx``: sparsity selector of the instruction
    tile_k: int = 128  #: Option of format ``cutlass3-sm90``: K tile of the kernel, at most 128
    bits: int | None = None  #: Option of format ``marlin_24``: element width, 4 or 8 (default: width of the type)
    #: Layout in which block scales are written, a key of :data:`sptc.tensors.scales.SCALE_LAYOUTS` (default: layout of
    #: the format).
    scale_layout: str | None = None


@dataclass(frozen=True)
class SoftwareFormat:
    """Memory format of a software library for compressed matrices: array names, pack and unpack functions."""

    tensors: tuple[str, ...]  #: Names of the format's arrays. An array of scales is listed only if every file has it.
    #: Function ``pack(compressed, options)``: returns the arrays by name.
    pack: Callable[[Compressed, PackingOptions], Tensors]
    #: Function ``unpack(arrays, granularity, options)``: returns the compressed matrix. 4-bit elements are uint8 codes,
    #: elements of format ``ptx`` are codes of the element width.
    unpack: Callable[[Mapping[str, NDArray], Granularity, PackingOptions], Compressed]
    scales: str = "scales"  #: Name of the array that holds the block scales
    scale_layout: str = "rows"  #: Default layout of block scales, a key of :data:`sptc.tensors.scales.SCALE_LAYOUTS`
    #: Function ``implied(arrays)``: derives the text metadata from the arrays of a file that other software wrote.
    implied: Callable[[Mapping[str, NDArray]], dict[str, str]] = field(default=lambda arrays: {})


def element_bits(dtype: np.dtype, granularity: Granularity) -> int:
    """Return the width of a stored element in hardware, in bits: 4 for 4:8, 32 for 1:2, 8 or 16 for 2:4.

    Raise an `OperandError` if no sparse instruction has elements of this width in this sparsity structure.
    """
    accepted = {"1:2": ((4,), "32 bits"), "2:4": ((1, 2), "8 or 16 bits"), "4:8": ((1,), "4 bits")}
    sizes, expected = accepted[granularity.name]
    if dtype.itemsize not in sizes:
        raise OperandError(f"{granularity.name} is for elements of {expected}, not {dtype.name}")
    return 4 if granularity.name == "4:8" else 8 * dtype.itemsize


def default_instruction(bits: int, fmt: Format | None = None) -> Instruction:
    """Return the largest ``mma.sp`` for an element width. `fmt` matters only for 4-bit or 6-bit formats in bytes."""
    if bits == 8 and fmt is not None and fmt.bits < 8:
        kind = ".kind::f8f6f4.m16n8k64.row.col.f32."
        return parse(f"mma.sp::ordered_metadata.sync.aligned{kind}{fmt.name}.{fmt.name}.f32")
    return parse(_INSTRUCTIONS[bits])


def _codes(stored: NDArray, bits: int) -> NDArray:
    """View elements as unsigned codes. 4-bit codes are in the low half of a byte."""
    codes: NDArray = np.ascontiguousarray(stored).view(f"u{stored.dtype.itemsize}")
    if bits != 4:
        return codes
    if stored.dtype.name in _FOUR_BIT_TYPES:
        return codes & np.uint8(15)
    signed = stored.dtype.kind == "i"
    low, high = (-8, 7) if signed else (0, 15)
    if stored.dtype.kind not in "iu" or (stored < low).any() or (stored > high).any():
        raise OperandError(
            f"elements of 4:8 must fit into 4 bits: {stored.dtype.name} elements must be {low} to {high}"
        )
    return codes & np.uint8(15)


def _unpack_values(values: NDArray, granularity: Granularity) -> NDArray:
    if values.ndim != 2:
        raise OperandError(f"stored values must have two axes, not shape {values.shape}")
    if granularity.name != "4:8":
        return values
    if values.dtype.itemsize != 1:
        raise OperandError(f"values of 4:8 sparsity must be bytes, each with two elements, not {values.dtype.name}")
    return split_nibbles(np.ascontiguousarray(values).view(np.uint8))


def _size(stored: NDArray, granularity: Granularity) -> tuple[int, int]:
    """Return the number of rows of a matrix, and the number of metadata nibbles per row."""
    if stored.shape[1] % granularity.stored:
        raise OperandError(
            f"{granularity.name} stores a multiple of {granularity.stored} elements per row, not {stored.shape[1]}"
        )
    return stored.shape[0], stored.shape[1] // granularity.stored


def _join(nibbles: NDArray[np.uint8], word_bits: int) -> NDArray:
    """Join consecutive metadata nibbles of a row into words, the first nibble in the lowest bits."""
    per_word = word_bits // 4
    if nibbles.shape[1] % per_word:
        raise OperandError(
            f"metadata words of {word_bits} bits need a multiple of {per_word} nibbles a row, not {nibbles.shape[1]}"
        )
    return np.ascontiguousarray(join_nibbles(nibbles)).view(f"<u{word_bits // 8}")


def _split(words: NDArray, rows: int, chunks: int) -> NDArray[np.uint8]:
    """Split words into metadata nibbles, the inverse of :func:`_join`. Signed words are read as bits."""
    if words.dtype.kind not in "iu" or words.size * words.dtype.itemsize * 2 != rows * chunks:
        raise OperandError(
            f"{rows} rows of {chunks} nibbles take {rows * chunks // 2} bytes of metadata in integer words, "
            f"not {words.size} words of {words.dtype.name}"
        )
    octets = np.ascontiguousarray(words).reshape(rows, -1).view(np.uint8)
    return split_nibbles(octets).reshape(rows, chunks)


def _word_bits(bits: int) -> int:
    return 16 if bits >= 16 else 32


def _with_metadata(
    write: Callable[[NDArray[np.uint8], int, PackingOptions], NDArray],
    read: Callable[[NDArray, NDArray, Granularity, PackingOptions], NDArray[np.uint8]],
) -> tuple[Callable, Callable]:
    """Return the functions `pack` and `unpack` of a file format that stores values row by row.

    ``write(nibbles, bits, options)`` arranges the metadata in memory, ``read(metadata, stored, granularity, options)``
    returns the nibbles.
    """

    def pack(compressed: Compressed, options: PackingOptions) -> Tensors:
        stored, bits = compressed.stored, element_bits(compressed.stored.dtype, compressed.granularity)
        metadata = write(compressed.nibbles, bits, options)
        # A byte holds two 4-bit elements, the first in the low half.
        return {"values": join_nibbles(_codes(stored, bits)) if bits == 4 else stored, "metadata": metadata}

    def unpack(arrays: Mapping[str, NDArray], granularity: Granularity, options: PackingOptions) -> Compressed:
        stored = _unpack_values(arrays["values"], granularity)
        return Compressed(stored, read(arrays["metadata"], stored, granularity, options), granularity)

    return pack, unpack


def _interleaved(nibbles: NDArray[np.uint8], bits: int, options: PackingOptions) -> NDArray:
    words = _join(nibbles, _word_bits(bits))
    placed = np.empty(words.size, words.dtype)
    placed[interleaved_positions(words.shape[0], words.shape[1], _word_bits(bits))] = words
    return placed.reshape(words.shape)


def _from_interleaved(
    words: NDArray, stored: NDArray, granularity: Granularity, options: PackingOptions
) -> NDArray[np.uint8]:
    rows, chunks = _size(stored, granularity)
    word_bits = _word_bits(element_bits(stored.dtype, granularity))
    if words.dtype.itemsize * 8 != word_bits:
        raise OperandError(
            f"CUTLASS 2.x metadata of {stored.dtype.name} must be words of {word_bits} bits, not {words.dtype.name}"
        )
    if words.size * word_bits != rows * chunks * 4:
        raise OperandError(f"{rows} rows of {chunks} nibbles do not fit metadata of shape {words.shape}")
    natural = words.ravel()[interleaved_positions(rows, chunks * 4 // word_bits, word_bits)]
    return _split(natural, rows, chunks)


def _in_atoms(atom_of: Callable[[int, PackingOptions], Atom]) -> tuple[Callable, Callable]:
    """Return `pack` and `unpack` for metadata in CUTLASS layout atoms. ``atom_of(bits, options)`` returns the atom."""

    def read(octets: NDArray, stored: NDArray, granularity: Granularity, options: PackingOptions) -> NDArray[np.uint8]:
        atom = atom_of(element_bits(stored.dtype, granularity), options)
        return from_atoms(np.ascontiguousarray(octets).view(np.uint8), atom, *_size(stored, granularity))

    return _with_metadata(lambda nibbles, bits, options: to_atoms(nibbles, atom_of(bits, options)), read)


def _instruction(bits: int, granularity: Granularity, options: PackingOptions) -> Instruction:
    i = options.instruction or default_instruction(bits)
    if i.granularity != granularity or i.container_bits != bits or i.family == "tcgen05":
        raise OperandError(f"{i} does not hold {granularity.name} elements of {bits} bits in registers")
    if not 0 <= options.sparsity_selector < i.sparsity_selectors:
        raise OperandError(f"the selector of {i} must be below {i.sparsity_selectors}, not {options.sparsity_selector}")
    return i


def _pack_ptx(compressed: Compressed, options: PackingOptions) -> Tensors:
    bits = element_bits(compressed.stored.dtype, compressed.granularity)
    i = _instruction(bits, compressed.granularity, options)
    rows, columns = compressed.shape
    if rows % i.m or columns % i.k:
        raise OperandError(f"tiles of {i.shape} need multiples of {i.m} rows and {i.k} columns, not {rows} x {columns}")
    down, across = rows // i.m, columns // i.k

    def tiles(matrix: NDArray) -> NDArray:
        return matrix.reshape(down, i.m, across, -1).swapaxes(1, 2).reshape(down * across, i.m, -1)

    # An element has the same code in memory and in registers (for tf32, the code of a float32). The exception is an
    # e2m1 in a byte, which is shifted in registers.
    codes = _codes(compressed.stored, bits) << (i.low_bit(i.a) if bits == 8 else 0)
    a = registers.to_registers(tiles(codes), a_fragment(i))
    others = np.zeros((down * across, i.threads), np.uint32)
    e = registers.pack_nibbles(tiles(compressed.nibbles), i, options.sparsity_selector, others)
    return {"a": a.reshape(down, across, i.threads, -1), "e": e.reshape(down, across, i.threads)}


def _unpack_ptx(arrays: Mapping[str, NDArray], granularity: Granularity, options: PackingOptions) -> Compressed:
    a, e = arrays["a"], arrays["e"]
    if a.ndim != 4 or a.dtype.itemsize != 4 or e.dtype.itemsize != 4 or e.shape != a.shape[:3]:
        raise OperandError(
            "registers must be 32-bit words, a of shape (tiles down, tiles across, threads, registers) and e of shape "
            f"(tiles down, tiles across, threads), not {a.dtype.name} {a.shape} and {e.dtype.name} {e.shape}"
        )
    default = {"1:2": 32, "2:4": 16, "4:8": 4}[granularity.name]
    i = _instruction(options.instruction.container_bits if options.instruction else default, granularity, options)
    fragment = a_fragment(i)
    if a.shape[2:] != (i.threads, fragment.registers):
        raise OperandError(f"{i} has {i.threads} threads with {fragment.registers} registers of A, not {a.shape[2:]}")
    down, across = a.shape[:2]

    def matrix(tiles: NDArray) -> NDArray:
        return tiles.reshape(down, across, i.m, -1).swapaxes(1, 2).reshape(down * i.m, -1)

    codes = registers.from_registers(np.ascontiguousarray(a).view(np.uint32).reshape(-1, *a.shape[2:]), fragment)
    if i.container_bits == 8:
        codes = codes >> i.low_bit(i.a) & np.uint8((1 << i.a.bits) - 1)
    nibbles = registers.unpack_nibbles(
        np.ascontiguousarray(e).view(np.uint32).reshape(-1, i.threads), i, options.sparsity_selector
    )
    return Compressed(matrix(codes), matrix(nibbles), granularity)


def _require_2_to_4(granularity: Granularity) -> None:
    if granularity.name != "2:4":
        raise OperandError(f"the bitmask format stores only 2:4 sparsity, not {granularity.name}")


def _pack_bitmask(compressed: Compressed, options: PackingOptions) -> Tensors:
    _require_2_to_4(compressed.granularity)
    rows, columns = compressed.shape
    i0, i1 = indices(compressed.nibbles)
    pairs = compressed.stored.reshape(rows, -1, 2)
    equal = i0 == i1
    if (bad := equal & (pairs != 0).any(-1)).any():
        row, chunk = (int(part) for part in np.argwhere(bad)[0])
        raise NibbleError(row, chunk, int(compressed.nibbles[row, chunk]), "plain")
    # A bitmask sets two of every four bits, and cannot express the order of the two stored elements. If a nibble has
    # two equal indices, which is accepted only for zeros, the bits of elements 0 and 1 are set.
    i0, i1 = np.where(equal, 0, i0), np.where(equal, 1, i1)
    values = np.where((i0 > i1)[..., None], pairs[..., ::-1], pairs).reshape(compressed.stored.shape)
    kept = (np.arange(4) == i0[..., None]) | (np.arange(4) == i1[..., None])
    mask = np.packbits(kept.reshape(rows, columns), axis=1, bitorder="little")
    return {"compressed": values, "bitmask": mask, "shape": np.array([rows, columns], np.int64)}


def _unpack_bitmask(arrays: Mapping[str, NDArray], granularity: Granularity, options: PackingOptions) -> Compressed:
    _require_2_to_4(granularity)
    stored, mask, shape = arrays["compressed"], arrays["bitmask"], arrays["shape"].ravel()
    rows, columns = (int(shape[0]), int(shape[1])) if shape.size == 2 else (0, 0)
    expected = ((rows, columns // 2), (rows, -(-columns // 8)))
    if columns < 4 or columns % 4 or (stored.shape, mask.shape) != expected or mask.dtype.itemsize != 1:
        raise OperandError(
            f"values of shape {stored.shape} and a bitmask {mask.dtype.name} {mask.shape} do not make a 2:4 matrix of "
            f"shape {tuple(shape.tolist())}"
        )
    octets = np.ascontiguousarray(mask).view(np.uint8)
    halves = split_nibbles(octets).reshape(rows, -1)[:, : columns // 4]
    of_mask = np.full(16, 0xFF, np.uint8)
    for low in range(4):
        for high in range(low + 1, 4):
            of_mask[1 << low | 1 << high] = low | high << 2
    nibbles = of_mask.take(halves)
    if (bad := nibbles == 0xFF).any():
        row, chunk = (int(part) for part in np.argwhere(bad)[0])
        raise OperandError(
            f"the bitmask must mark 2 of every 4 elements, not {int(halves[row, chunk]).bit_count()}: row {row}, "
            f"column {4 * chunk}"
        )
    return Compressed(stored, nibbles, granularity)


def _pack_marlin(compressed: Compressed, options: PackingOptions) -> Tensors:
    dtype = compressed.stored.dtype
    bits = options.bits or (4 if dtype.name in _FOUR_BIT_TYPES else 8)
    if compressed.granularity.name != "2:4" or dtype.itemsize != 1 or dtype.kind not in "iu":
        name = compressed.granularity.name
        raise OperandError(f"marlin_24 stores one-byte integers of 2:4 sparsity, not {dtype.name} of {name}")
    packed, meta = pack_marlin(_codes(compressed.stored, bits), compressed.nibbles, bits)
    return {"weight_packed": packed, "meta": meta}


def _unpack_marlin(arrays: Mapping[str, NDArray], granularity: Granularity, options: PackingOptions) -> Compressed:
    codes, nibbles = unpack_marlin(arrays["weight_packed"], arrays["meta"])
    bits = marlin_bits(arrays["weight_packed"], arrays["meta"])
    return Compressed(codes.view(np.int8) if bits == 8 else codes, nibbles, granularity)


def _implied_by_marlin(arrays: Mapping[str, NDArray]) -> dict[str, str]:
    bits, scales = marlin_bits(arrays["weight_packed"], arrays["meta"]), arrays["scale_packed"]
    stored = 16 * len(arrays["meta"])
    formats = {"float16": "f16", "bfloat16": "bf16"}
    if scales.ndim != 2 or not len(scales) or stored % len(scales) or scales.dtype.name not in formats:
        raise OperandError(f"scale_packed must be float16 of shape (groups, N), not {scales.dtype.name} {scales.shape}")
    return {
        "granularity": "2:4",
        "element_format": f"s{bits}",
        "scale_format": formats[scales.dtype.name],
        "scale_layout": "marlin_24",
        "block": str(stored // len(scales)),
    }


_VALUES = ("values", "metadata")

#: Memory formats of ML software, by name.
SOFTWARE_FORMATS = {
    # Row-major values, and one metadata nibble per byte. Source: isa/metadata.py
    "natural": SoftwareFormat(
        _VALUES,
        lambda compressed, options: {"values": compressed.stored, "metadata": compressed.nibbles},
        lambda arrays, granularity, options: Compressed(arrays["values"], arrays["metadata"], granularity),
    ),
    # Registers of A and of the metadata operand, tile by tile. Sources: PTX ISA 9.7.14.6.2; isa/fragments.py
    "ptx": SoftwareFormat(("a", "e"), _pack_ptx, _unpack_ptx),
    # Metadata words of CUTLASS 2.x and PyTorch, reordered and interleaved. Sources: CUTLASS host_reorder.h;
    # torch/sparse/_semi_structured_conversions.py
    "cutlass2": SoftwareFormat(_VALUES, *_with_metadata(_interleaved, _from_interleaved)),
    # Metadata bytes of CUTLASS 3 and 4 for sm_90, in whole layout atoms. Source: CUTLASS sm90_sparse_config.inl
    "cutlass3-sm90": SoftwareFormat(_VALUES, *_in_atoms(lambda bits, options: atom_sm90(bits, options.tile_k))),
    # Metadata bytes of CUTLASS 3 and 4 for sm_100 and sm_120, in layout atoms. Source: CUTLASS sm1xx_sparse_config.inl
    "cutlass3-sm100": SoftwareFormat(
        _VALUES, *_in_atoms(lambda bits, options: atom_sm100(bits)), scale_layout="128x4"
    ),
    # sparse-24-bitmask checkpoints: stored values, and one bit for every element. Source: compressed-tensors,
    # sparse_24_bitmask.py
    "bitmask": SoftwareFormat(("compressed", "bitmask", "shape"), _pack_bitmask, _unpack_bitmask),
    # Row-major metadata as in tilelang/utils/sparse.py: 16-bit words, or 32-bit words if elements have 8 or 4 bits
    "tilelang": SoftwareFormat(
        _VALUES,
        *_with_metadata(
            lambda nibbles, bits, options: _join(nibbles, _word_bits(bits)).view(f"<i{_word_bits(bits) // 8}"),
            lambda words, stored, granularity, options: _split(words, *_size(stored, granularity)),
        ),
    ),
    # marlin_24 checkpoints of vLLM: s4 or s8 with f16 scales, permuted. Source: compressed-tensors, marlin_24.py
    "marlin_24": SoftwareFormat(
        ("weight_packed", "meta", "scale_packed"), _pack_marlin, _unpack_marlin, scales="scale_packed",
        scale_layout="marlin_24", implied=_implied_by_marlin,
    ),
}  # fmt: skip
