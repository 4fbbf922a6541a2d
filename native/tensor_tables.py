"""Generator of the C++ tables of ``tcgen05.mma``: opcodes, descriptors, and placement in tensor memory."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from ..errors import OperandError
from ..isa.column_mask import FIELDS, largest_shift
from ..isa.instruction_descriptor import MAX_SHIFTS, descriptor_fields, m_unit
from ..isa.instructions import Instruction
from ..isa.tcgen05 import KINDS, Kind, Opcode, every_opcode, instructions_of
from ..isa.tensor_memory import (
    COLUMNS,
    LANES,
    LAYOUTS,
    METADATA_COLUMNS,
    PARTITION,
    Layout,
    TensorMap,
    a_map,
    accumulator_map,
    layout_for,
    metadata_map,
    scale_map,
)
from .initializers import Table, array, braces, padded, place_row

__all__ = ["instructions", "tables"]

_CODES_OF_TYPES, _CODES_OF_ACCUMULATORS, _MOST_ROWS = 8, 4, 3
_CONTAINERS = (4, 8, 16, 32)
_SCALE_SIZES = (1, 2, 4)
_FIELDS = ("sparsity_selector", "sparse", "saturate", "d", "a", "b", "negate_a", "negate_b", "transpose_a",
           "transpose_b", "n", "m", "max_shift", "scale_id_a", "scale_id_b", "scale_type", "k")  # fmt: skip
_MASK_FIELDS = ("starts", "skip_first", "generated", "skip_span", "use_span", "shift")


def _opcodes() -> Iterator[Opcode]:
    """Yield each ``tcgen05.mma`` opcode without scale size, and again with ``.ashift`` if the opcode allows it."""
    for opcode in dict.fromkeys(replace(opcode, scale_word="") for opcode in every_opcode()):
        yield opcode
        if not opcode.weight_stationary and not KINDS[opcode.kind].scales:
            yield replace(opcode, shifts_a=True)


@lru_cache(maxsize=1)
def instructions() -> tuple[Instruction, ...]:
    """Return every instruction of every ``tcgen05.mma`` opcode; the same instruction can occur several times."""
    return tuple(i for opcode in every_opcode() for i in instructions_of(opcode))


def _by_code(codes: Mapping[str, int], count: int, formats: Mapping[str, int]) -> str:
    numbers = [-1] * count
    for name, code in codes.items():
        numbers[code] = formats[name]
    return braces(numbers)


def _fields(fields: Mapping[str, tuple[int, int]], names: Sequence[str]) -> str:
    assert set(fields) <= set(names)
    defined = sum(((1 << width) - 1) << low for low, width in fields.values())
    return braces([f"0x{defined:x}", *(braces(fields.get(name, (0, 0))) for name in names)])


def _kind_row(name: str, kind: Kind, formats: Mapping[str, int], descriptors: Table) -> str:
    opcode = next(opcode for opcode in every_opcode() if opcode.kind == name)
    scale_types = [_by_code(kind.scale_types.get(size, {}), 2, formats) for size in _SCALE_SIZES]
    saturates = any(i.satfinite for i in instructions() if i.kind == name)
    flags = (bool(kind.scales), kind.mixes, kind.transposes, kind.negates, saturates)
    return braces([
        f'"{name}"', descriptors.number(_fields(descriptor_fields(opcode), _FIELDS)), m_unit(opcode),
        _by_code(kind.types, _CODES_OF_TYPES, formats), _by_code(kind.accumulators, _CODES_OF_ACCUMULATORS, formats),
        braces(scale_types), *map(int, flags),
    ])  # fmt: skip


def _opcode_row(opcode: Opcode, multiples: Callable[[Sequence[int]], int]) -> str:
    layouts = [[*LAYOUTS].index(layout_for(opcode, m).name) for m in opcode.rows]
    return braces([
        [*KINDS].index(opcode.kind), int(opcode.sparse), opcode.cta_group, int(opcode.weight_stationary),
        int(opcode.shifts_a), opcode.selectors, int(opcode.scales_input_d), len(opcode.rows),
        braces(padded(opcode.rows, _MOST_ROWS)), braces(padded(layouts, _MOST_ROWS)), multiples(opcode.columns),
    ])  # fmt: skip


def _places(where: TensorMap) -> str:
    return place_row(where.lanes, where.columns, where.low_bits)


def _map_of_a(layout: Layout, container_bits: int) -> TensorMap | None:
    """Return the tensor-memory placement of A for the largest K and unpadded elements; None if it is not documented."""
    unpadded = [i for i in instructions() if i.container_bits == i.a.container_bits == container_bits]
    try:
        return a_map(layout, max(unpadded, key=lambda i: i.stored_k), 0)
    except OperandError:
        return None


def _map_of_metadata(layout: Layout, wide: bool) -> TensorMap:
    sparse = [i for i in instructions() if i.sparse and i.wide == wide]
    widest = max(sparse, key=lambda i: i.chunks)
    where = metadata_map(layout, widest, 0, 0)
    for selector in range(widest.sparsity_selectors):
        moved = metadata_map(layout, widest, selector, 0)
        assert (moved.columns - where.columns == selector).all()
        assert (moved.lanes == where.lanes).all()
    return where


def _layout_row(layout: Layout, places: Table) -> str:
    parts = layout.column_parts
    # Each part of the columns of D starts `layout.rows` lanes after the previous part. Each copy of A, and each copy of
    # the metadata, also starts `layout.rows` lanes after the previous copy.
    assert layout.copies == tuple(layout.rows * part for part in range(parts))
    whole, width = accumulator_map(layout, 256, 32, 0), 256 // parts
    assert (whole.lanes[0, ::width] == layout.rows * np.arange(parts)).all()
    part_of_d = TensorMap(whole.lanes[:, :width], whole.columns[:, :width], whole.low_bits[:, :width], 32)
    maps_of_a = [_map_of_a(layout, bits) for bits in _CONTAINERS]
    return braces([
        f'"{layout.name}"', layout.rows, parts, int(layout.half_lanes), largest_shift(layout.rows),
        places.number(_places(part_of_d)),
        braces(-1 if where is None else places.number(_places(where)) for where in maps_of_a),
        braces(places.number(_places(_map_of_metadata(layout, wide))) for wide in (False, True)),
    ])  # fmt: skip


def tables(formats: Mapping[str, int], multiples: Callable[[Sequence[int]], int]) -> str:
    """Return the C++ text of the tables of ``tcgen05.mma``.

    `formats` has the index of each format in the C++ table FORMATS; `multiples` returns the index in MULTIPLES of a set
    of multiples of 8.
    """
    descriptors, places = Table("DescriptorFields", "DESCRIPTOR_FIELDS"), Table("TensorPlaces", "TENSOR_PLACES")
    kinds = [_kind_row(name, kind, formats, descriptors) for name, kind in KINDS.items()]
    words = [
        braces([number, f'"{word}"', size])
        for number, kind in enumerate(KINDS.values())
        for word, size in kind.scales.items()
    ]
    layouts = [_layout_row(layout, places) for layout in LAYOUTS.values()]
    scales = places.number(_places(scale_map("", 256, max(_SCALE_SIZES), 0, 0)))
    constants = {"TENSOR_LANES": LANES, "TENSOR_COLUMNS": COLUMNS, "PARTITION": PARTITION,
                 "METADATA_COLUMNS": METADATA_COLUMNS, "SCALE_PLACES": scales}  # fmt: skip
    return "".join((
        "\n" + "".join(f"constexpr int {name} = {value};\n" for name, value in constants.items()),
        f"constexpr int MAX_SHIFTS[] = {braces(MAX_SHIFTS)};\n",
        f"constexpr ColumnMaskFields COLUMN_MASK_FIELDS = {_fields(FIELDS, _MASK_FIELDS)};\n",
        str(descriptors),
        array("Kind", "KINDS", kinds),
        array("ScaleWord", "SCALE_WORDS", words),
        array("OpcodeShapes", "OPCODE_SHAPES", [_opcode_row(opcode, multiples) for opcode in _opcodes()]),
        str(places),
        array("Layout", "LAYOUTS", layouts),
    ))  # fmt: skip
