"""Decode each field of matrix and instruction descriptors, valid or invalid, to its meaning and its error."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..errors import OperandError
from .instruction_descriptor import MAX_SHIFTS, decode_instruction_descriptor, descriptor_fields, m_unit
from .memory import GENERATIONS, TCGEN05_FIXED, UNIT_BYTES, SharedDescriptor, decode_descriptor
from .shared_tile import MAJORS
from .tcgen05 import KINDS, Opcode, every_opcode

__all__ = [
    "DescriptorField",
    "decoded_or_none",
    "encoded",
    "family_of",
    "instruction_fields",
    "offset_notes",
    "readings",
    "shared_fields",
]

_RESERVED = "reserved"
#: Names of the fields of a matrix descriptor that contain an address or an offset.
_OFFSETS = ("start address", "leading byte offset", "stride byte offset")
#: Titles in printed tables for fields of an instruction descriptor. Without an entry, the title is the field's name.
_TITLES = {
    "d": "type of D",
    "a": "type of A",
    "b": "type of B",
    "negate_a": "negate A",
    "negate_b": "negate B",
    "transpose_a": "major of A",
    "transpose_b": "major of B",
    "n": "N",
    "m": "M",
    "max_shift": "maximum shift of B",
    "scale_id_a": "scale factor A id",
    "scale_id_b": "scale factor B id",
    "scale_type": "type of block scales",
    "k": "K",
}


@dataclass(frozen=True, kw_only=True)
class DescriptorField:
    """One field of a matrix or instruction descriptor."""

    name: str
    low: int  #: Position of the lowest bit of the descriptor field
    width: int  #: Width of the descriptor field in bits
    value: int
    meaning: str = ""  #: Meaning of the field's value in words, or empty for reserved bits
    problem: str = ""  #: Error in the field's value in words, or empty if the value is valid


def encoded(fields: Sequence[DescriptorField]) -> int:
    """Return the descriptor as an integer, composed of the given fields."""
    return sum(field.value << field.low for field in fields)


def _partition(value: int, bits: int, places: Mapping[str, tuple[int, int]]) -> Iterator[DescriptorField]:
    """Yield the fields of a descriptor value from bit 0 on, and the reserved bits between them, without meanings."""
    start = 0
    for name, (low, width) in [*sorted(places.items(), key=lambda item: item[1]), ("", (bits, 0))]:
        if gap := low - start:
            rest = value >> start & (1 << gap) - 1
            problem = "must be 0" if rest else ""
            yield DescriptorField(name=_RESERVED, low=start, width=gap, value=rest, problem=problem)
        if name:
            yield DescriptorField(name=name, low=low, width=width, value=value >> low & (1 << width) - 1)
        start = low + width


def family_of(value: int) -> str:
    """Return the family of a matrix descriptor: ``tcgen05`` if bits 48:46 are 0b001, else ``wgmma``."""
    return "tcgen05" if value >> 46 & 7 == TCGEN05_FIXED else "wgmma"


def shared_fields(value: int, family: str) -> tuple[DescriptorField, ...]:
    """Return the fields of a 64-bit matrix descriptor of a family. Raise an `OperandError` for more than 64 bits."""
    if not 0 <= value < 1 << 64:
        raise OperandError(f"a shared-memory descriptor has 64 bits, not {value.bit_length()}")
    generation = GENERATIONS[family]
    swizzle = generation.swizzles.get(value >> generation.fields["swizzle"][0])
    fields = []
    for field in _partition(value, 64, generation.fields):
        meaning, problem = _shared_meaning(field, swizzle, generation.swizzles)
        fields.append(replace(field, meaning=meaning, problem=problem or field.problem))
    return tuple(fields)


def _shared_meaning(field: DescriptorField, swizzle: str | None, known: Mapping[int, str]) -> tuple[str, str]:
    """Return meaning and error of a field of a matrix descriptor. The error is empty if the value is valid."""
    name, value = field.name, field.value
    if name in _OFFSETS:
        return f"{value * UNIT_BYTES} bytes", ""
    if name == "base offset":
        unused = "has no effect without swizzle" if value and swizzle == "none" else ""
        start = f"128-byte row {value} (modulo 8)" if value else "its natural boundary"
        return f"the swizzle pattern starts at {start}", unused
    if name == "fixed":
        return "", "" if value == TCGEN05_FIXED else f"must be {TCGEN05_FIXED:#05b}"
    if name == "leading offset mode":
        problem = "an absolute leading address exists on sm_103 only, and is not modelled" if value else ""
        return "absolute address" if value else "relative offset", problem
    if name == "swizzle":
        accepted = ", ".join(f"{code} ({other})" for code, other in known.items())
        return swizzle or "", "" if swizzle else f"must be {accepted}"
    return "", ""


def offset_notes(descriptor: SharedDescriptor, major: str) -> tuple[str, str]:
    """Return meaning and error of a matrix descriptor's offsets for an operand in K-major or MN-major order."""
    swizzle = descriptor.swizzle
    rows, units = ("rows (columns of B)", "k") if major == "k" else ("k", "rows (columns of B)")
    size = swizzle.pattern_rows * swizzle.row_bytes
    if swizzle.units > 1:
        count, wide = swizzle.pattern_rows, swizzle.row_bytes
        note = f"a swizzle pattern has {count} {rows} x {wide} bytes of {units}; SBO leads to the next {count}"
        small = f"SBO {descriptor.stride_offset}" if descriptor.stride_offset < size else ""
        note += f"; LBO leads to the next {wide} bytes of {units}, if the operand has more"
    else:
        names = ("SBO", "LBO") if major == "k" else ("LBO", "SBO")
        note = f"{names[0]} leads to the next 8 {rows}, {names[1]} to the next 16 bytes of {units}"
        offsets = descriptor.stride_offset, descriptor.leading_offset
        fits = min(offsets) >= size or (min(offsets) and max(offsets) > size)
        small = "" if fits else f"the smaller of SBO and LBO, {min(offsets)},"
    problem = f"{small} is less than the {size} bytes of a block, so that adjacent blocks overlap" if small else ""
    return f"{MAJORS[major]}: {note}", problem


def instruction_fields(value: int, opcode: Opcode) -> tuple[DescriptorField, ...]:
    """Return the fields of a 32-bit instruction descriptor, or raise an `OperandError` for more than 32 bits.

    Field `problem` states why the opcode does not support the value of a descriptor field.
    """
    if not 0 <= value < 1 << 32:
        raise OperandError(f"an instruction descriptor has 32 bits, not {value.bit_length()}")
    fields = []
    for field in _partition(value, 32, descriptor_fields(opcode)):
        if field.name != _RESERVED:
            meaning, problem = _instruction_meaning(field, opcode)
            title = _TITLES.get(field.name, field.name.replace("_", " "))
            field = replace(field, name=title, meaning=meaning, problem=problem)
        fields.append(field)
    return tuple(fields)


def _instruction_meaning(field: DescriptorField, opcode: Opcode) -> tuple[str, str]:
    """Return meaning and error of a field of an instruction descriptor. The error is empty if the value is valid."""
    kind, name, value = KINDS[opcode.kind], field.name, field.value
    if name in "abd" or name == "scale_type":
        tables = {"d": kind.accumulators, "scale_type": kind.scale_types.get(opcode.scale_size or 0, {})}
        table = tables.get(name, kind.types)
        known_type = next((known for known, code in table.items() if code == value), "")
        accepted = ", ".join(f"{code} ({known})" for known, code in table.items())
        return known_type, "" if known_type else f"must be {accepted}"
    if name in ("m", "n"):
        size, accepted_sizes = (value * m_unit(opcode), opcode.rows) if name == "m" else (value * 8, opcode.columns)
        return str(size), "" if size in accepted_sizes else f"{opcode} does not have this {name.upper()}"
    if name == "sparse":
        required = "1 for '.sp'" if opcode.sparse else "0 without '.sp'"
        return "sparse A" if value else "dense A", "" if bool(value) == opcode.sparse else f"must be {required}"
    if name == "k":
        return "96" if value else str(opcode.k), "K = 96 is not modelled" if value else ""
    if name.startswith("transpose"):
        problem = f".kind::{opcode.kind} is K-major only" if value and not kind.transposes else ""
        return MAJORS["mn" if value else "k"], problem
    if name.startswith("negate"):
        return "yes" if value else "no", f".kind::{opcode.kind} does not negate" if value and not kind.negates else ""
    if name == "saturate":
        return "yes" if value else "no", "only .kind::i8 saturates" if value and opcode.kind != "i8" else ""
    if name == "max_shift":
        problem = "must be 0 without '.ws'" if value and not opcode.weight_stationary else ""
        return f"{MAX_SHIFTS[value]} columns", problem
    if name == "sparsity_selector":
        return str(value), "" if value < opcode.selectors else f"must be below {opcode.selectors}"
    ids = range(0, 4, opcode.scale_size or 4)
    return f"byte {value}", "" if value in ids else f"must be {', '.join(map(str, ids))}"


def readings(value: int) -> Iterator[tuple[Opcode, str]]:
    """Yield every opcode that accepts an instruction descriptor, with the shape and types in the descriptor."""
    for opcode in every_opcode():
        try:
            yield opcode, decode_instruction_descriptor(opcode, value).instruction.shape_and_types
        except OperandError:
            continue


def decoded_or_none(value: int, family: str) -> SharedDescriptor | None:
    """Return a decoded matrix descriptor, or None for an invalid descriptor."""
    try:
        return decode_descriptor(value, family)
    except OperandError:
        return None
