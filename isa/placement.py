"""Data classes: where each operand of an instruction is stored in registers, shared memory and tensor memory."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import OperandError
from .formats import Format, low_bit
from .fragments import Fragment, a_fragment, accumulator_fragment, b_fragment, metadata_map, scale_map
from .instructions import Instruction
from .shared_tile import MAJORS, SharedTile, packed_tile, tile_shape
from .tcgen05 import Opcode
from .tensor_memory import Layout, TensorMap, a_map, accumulator_map, layout_for
from .tensor_memory import metadata_map as tensor_metadata_map
from .tensor_memory import scale_map as tensor_scale_map

__all__ = ["Memory", "OperandPlacement", "Placements", "placements"]

Index = NDArray[np.intp]


class Memory(Enum):
    """Kind of memory that holds an operand."""

    REGISTERS = "registers"
    SHARED = "shared memory"
    TENSOR = "tensor memory"

    @property
    def word(self) -> str:
        """Unit of memory with an address: register of a thread, byte of shared memory, or column of tensor memory."""
        return {"registers": "register", "shared memory": "byte", "tensor memory": "column"}[self.value]


@dataclass(frozen=True, eq=False, kw_only=True)
class OperandPlacement:
    """Placement of one operand, as index arrays and as formulas.

    The maps in :mod:`sptc.isa.fragments`, :mod:`sptc.isa.memory` and :mod:`sptc.isa.tensor_memory` state the sources.
    """

    #: Operand: ``a`` (stored A), ``b``, ``d`` (also the placement of C), ``metadata``, ``scale_a`` or ``scale_b``.
    operand: str
    memory: Memory
    indices: tuple[str, str]  #: Names of the two coordinates of the matrix, such as row and k
    #: For each element: its thread if it is in registers, its lane if it is in tensor memory, 0 if in shared memory.
    lanes: Index
    #: For each element, its register in the thread, its column of tensor memory, or its byte of shared memory.
    words: Index
    low_bits: Index  #: Lowest bit of each element in its register, column or byte
    bits: int  #: Width in bits of the space for an element, including ignored bits
    #: Lowest bit and width of the value in the space for its element, in bits. Other bits of the space are ignored.
    value_low_bit: int
    value_bits: int
    #: Placement as Python expressions. For matrices in registers, they compute the matrix coordinates from warp w,
    #: ``g = lane >> 2``, ``t = lane & 3``, register r and element j of the register. For metadata, scales and operands
    #: in other memories, they compute lane, word and low bit from the matrix coordinates and the selector f.
    formulas: Mapping[str, str]
    notes: tuple[str, ...] = ()  #: Further conditions on the placement, as text
    tile: SharedTile | None = None  #: Tile in shared memory, if the caller chose one

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns of the operand matrix whose placement is described."""
        rows, columns = self.words.shape
        return rows, columns


@dataclass(frozen=True, eq=False)
class Placements:
    """Placement of all operands of an instruction."""

    #: Placements in the order A, metadata, B, D, scales. A has two entries if the instruction can read it from two
    #: memories.
    operands: tuple[OperandPlacement, ...]
    #: Reason why the placement is not known, for each operand without a known placement. The keys are operand names.
    unknown: Mapping[str, str] = field(default_factory=dict)


def placements(
    instruction: Instruction,
    sparsity_selector: int = 0,
    opcode: Opcode | None = None,
    tiles: Mapping[str, SharedTile] | None = None,
) -> Placements:
    """Return the placement of every operand of an instruction. ``tcgen05.mma`` also needs its opcode.

    The sparsity selector is below ``instruction.sparsity_selectors``. `tiles` are the tiles of ``a`` and ``b`` in
    shared memory; by default, they are packed, K-major and without swizzle. For ``tcgen05``, the result is the
    placement of the rows of one CTA, with lanes and columns of tensor memory relative to the address of the operand.
    Block scales are placed for byte id, thread id and scale id 0.
    """
    if instruction.family != "tcgen05":
        return Placements(tuple(_in_registers(instruction, sparsity_selector, tiles or {})))
    if opcode is None:
        raise ValueError(f"the placement of operands of {instruction} depends on its opcode, which is missing")
    return _in_tensor_memory(instruction, sparsity_selector, opcode, tiles or {})


class _Places(NamedTuple):
    """For each element of an operand, its lane, word and lowest bit; also the width of an element in bits."""

    lanes: Index
    words: Index
    low_bits: Index
    bits: int


def _placed(
    i: Instruction,
    operand: str,
    memory: Memory,
    places: _Places,
    *,
    formulas: Mapping[str, str],
    notes: Sequence[str] = (),
    tile: SharedTile | None = None,
) -> OperandPlacement:
    fmt: Format | None = getattr(i, operand, None)  # metadata and block scales have no element format
    indices = {
        "a": ("row", "stored" if i.sparse else "k"),
        "b": ("k", "n"),
        "d": ("row", "n"),
        "metadata": ("row", "chunk"),
        "scale_a": ("row", "block"),
        "scale_b": ("n", "block"),
    }
    return OperandPlacement(
        operand=operand,
        memory=memory,
        indices=indices[operand],
        **places._asdict(),
        value_low_bit=low_bit(fmt, places.bits) if fmt else 0,
        value_bits=fmt.bits if fmt else places.bits,
        formulas=formulas,
        notes=tuple(notes),
        tile=tile,
    )


def _in_registers(i: Instruction, sparsity_selector: int, tiles: Mapping[str, SharedTile]) -> list[OperandPlacement]:
    warpgroup = i.family == "wgmma"
    warp = "16*w + " if warpgroup else ""
    elements, k = 32 // i.container_bits, "stored" if i.sparse else "k"
    row = f"{warp}g + 8*(r & 1)" if i.m > 8 else "g"
    places = [_of_fragment("a", a_fragment(i), i, {"row": row, k: _packed(elements, "(r >> 1)")})]
    if warpgroup:
        places.append(_shared("a", i, tiles))
    if i.sparse:
        places.append(_metadata(i, sparsity_selector, "32*(row//16) + " if warpgroup else ""))
    if warpgroup:
        places.append(_shared("b", i, tiles))
    else:
        places.append(_of_fragment("b", b_fragment(i), i, {"k": _packed(elements, "r"), "n": "g"}))
    c = "r" if i.d.bits == 32 else "(2*r + j)"
    d_row = f"{warp}g + 8*({c} >> 1 & 1)" if i.m > 8 else "g"
    d_column = f"{f'8*({c} >> 2) + ' if i.n > 8 else ''}2*t + ({c} & 1)"
    places.append(_of_fragment("d", accumulator_fragment(i), i, {"row": d_row, "n": d_column}))
    if i.scale_size:
        places += [_scales(i, "a", "4*(row & 7) + (row >> 3)", 2), _scales(i, "b", "4*n", 1)]
    return places


def _packed(elements: int, register: str) -> str:
    """Return the formula for the K coordinate of an element in a register fragment."""
    return f"t + 4*{register}" if elements == 1 else f"{elements}*(t + 4*{register}) + j"


def _of_fragment(operand: str, fragment: Fragment, i: Instruction, formulas: Mapping[str, str]) -> OperandPlacement:
    threads, registers, elements = np.unravel_index(fragment.positions, fragment.rows.shape)
    places = _Places(threads, registers, elements * fragment.element_bits, fragment.element_bits)
    return _placed(i, operand, Memory.REGISTERS, places, formulas=formulas)


def _metadata(i: Instruction, sparsity_selector: int, warp: str) -> OperandPlacement:
    if i.wide:
        quad_lane = "f" if i.chunks == 4 else f"{i.chunks // 4}*f + (chunk >> 2)"
        bit = "16*(row >> 3 & 1) + 4*(chunk & 3)"
    else:
        quad_lane = f"{'2*f' if i.chunks == 8 else '2*(chunk >> 3)'} + (row >> 3 & 1)"
        bit = "4*(chunk & 7)"
    formulas = {"lane": f"{warp}4*(row & 7) + {quad_lane}", "low bit": bit}
    notes = ["the bits of other lanes are ignored"] if i.sparsity_selectors > 1 else []
    where = metadata_map(i, sparsity_selector)
    places = _Places(where.lanes, np.zeros_like(where.lanes), where.low_bits, 4)
    return _placed(i, "metadata", Memory.REGISTERS, places, formulas=formulas, notes=notes)


def _scales(i: Instruction, matrix: str, lane: str, lanes_per_id: int) -> OperandPlacement:
    where = scale_map(i, matrix, 0, 0)
    notes = (
        "for byte id 0 and thread id 0; each further byte id adds 8 to the low bit, each further thread id adds "
        f"{lanes_per_id} to the lane",
        f"a block has {i.span} logical columns along K",
    )
    places = _Places(where.lanes, np.zeros_like(where.lanes), where.low_bits, 8)
    formulas = {"lane": lane, "low bit": "8*block"}
    return _placed(i, f"scale_{matrix}", Memory.REGISTERS, places, formulas=formulas, notes=notes)


def _shared(
    operand: str, i: Instruction, tiles: Mapping[str, SharedTile], opcode: Opcode | None = None
) -> OperandPlacement:
    shape, ctas = tile_shape(i, operand, opcode), opcode.cta_group if opcode else 1
    tile = tiles.get(operand) or packed_tile(i, operand, opcode)
    where, descriptor = shape.map(tile), tile.descriptor
    addresses, low_bits = where.addresses, where.low_bits
    outer, inner = "row", "stored" if i.sparse else "k"
    if operand == "b":
        addresses, low_bits, outer, inner = addresses.T, low_bits.T, "n", "k"
    if tile.major == "mn":
        outer, inner = inner, outer
    offsets = f"SBO {descriptor.stride_offset}, LBO {descriptor.leading_offset}"
    if operand in tiles:
        base = f", base offset {descriptor.base_offset}" if descriptor.base_offset else ""
        notes = [
            f"through the descriptor {tile.encoded(i.family):#018x}: {MAJORS[tile.major]}, "
            f"swizzle {descriptor.swizzle.name}, start {descriptor.start}, {offsets}{base}",
            *tile.problems(shape),
        ]
    else:
        notes = [
            f"through a 64-bit matrix descriptor; shown packed, K-major, without swizzle: start 0, {offsets}; other "
            "offsets and swizzles move units of 16 bytes (--swizzle, --major, --lbo, --sbo)"
        ]
    if padded := i.padded_unit(shape.fmt):
        notes.append(f"a unit of 16 bytes holds {padded} elements of {shape.element_bits} bits, and padding above them")
    if ctas > 1:
        of_b = f"each CTA holds {shape.mn} of the {ctas * shape.mn} columns"
        notes.append(of_b if operand == "b" else f"{shape.mn} rows in each CTA")
    places = _Places(np.zeros_like(addresses), addresses, low_bits, shape.element_bits)
    formulas = tile.formulas(shape, inner, outer)
    return _placed(i, operand, Memory.SHARED, places, formulas=formulas, notes=notes, tile=tiles.get(operand))


def _in_tensor_memory(
    i: Instruction, sparsity_selector: int, opcode: Opcode, tiles: Mapping[str, SharedTile]
) -> Placements:
    layout = layout_for(opcode, i.m)
    lane = "row//16*32 + row % 16" if layout.half_lanes else "row"
    ordered: list[OperandPlacement] = []
    unknown: dict[str, str] = {}

    def add(operand: str, make: Callable[[], TensorMap], *lane_column_bit: str) -> None:
        try:
            formulas = dict(zip(("lane", "column", "low bit"), lane_column_bit, strict=True))
            ordered.append(_of_tensor_map(operand, make(), i, layout, formulas))
        except OperandError as error:
            unknown["a in tensor memory" if operand == "a" else operand] = str(error)

    per_word, k = 32 // i.container_bits, "stored" if i.sparse else "k"
    add("a", lambda: a_map(layout, i, 0), lane, f"{k}//{per_word}", f"{i.container_bits}*({k} % {per_word})")
    ordered.append(_shared("a", i, tiles, opcode))
    if i.sparse:
        of_metadata = lane, "chunk//8", "4*(chunk % 8)"
        if i.wide:
            apart = 32 if layout.half_lanes else 16
            of_metadata = f"row//16*{apart} + chunk//4*8 + row % 8", "f", "row % 16//8*16 + 4*(chunk % 4)"
        add("metadata", lambda: tensor_metadata_map(layout, i, sparsity_selector, 0), *of_metadata)
    ordered.append(_shared("b", i, tiles, opcode))
    add("d", lambda: accumulator_map(layout, i.n, i.d.bits, 0), *_of_accumulator(layout, i.n, lane))
    for name, index, lines, parts in (("scale_a", "row", layout.rows, 1), ("scale_b", "n", i.n, layout.column_parts)):
        if i.scale_size:
            make = partial(tensor_scale_map, name, lines, i.scale_size, 0, 0, parts)
            add(name, make, *_of_scales(index, lines // parts, parts))
    return Placements(tuple(ordered), unknown)


def _of_tensor_map(
    operand: str, where: TensorMap, i: Instruction, layout: Layout, formulas: Mapping[str, str]
) -> OperandPlacement:
    notes = ["lanes and columns are relative to the operand's address"]
    if where.copies[1:]:
        notes.append(f"with copies at lane offsets {', '.join(map(str, where.copies[1:]))}")
    if layout.half_lanes:
        notes.append("the operand's address may also be at lane 16")
    if layout.cta_group > 1 and operand != "scale_b":
        notes.append(f"{layout.rows} rows in each CTA")
    places = _Places(where.lanes, where.columns, where.low_bits, where.element_bits)
    return _placed(i, operand, Memory.TENSOR, places, formulas=formulas, notes=notes)


def _of_scales(index: str, lines: int, parts: int) -> tuple[str, str, str]:
    """Return formulas for lane, column and low bit of block scales. Rows are divided into `parts` parts of `lines`."""
    if parts == 1:
        return f"{index} % 32", f"{index}//32", "8*block"
    return f"{128 // parts}*({index}//{lines}) + {index} % 32", f"{index} % {lines}//32", "8*block"


def _of_accumulator(layout: Layout, n: int, lane: str) -> tuple[str, str, str]:
    """Return the formulas for lane, column and low bit of D in tensor memory."""
    if layout.column_parts == 1:
        return lane, "n", "0"
    width = n // layout.column_parts
    return f"{lane} + {layout.rows}*(n//{width})", f"n % {width}", "0"
