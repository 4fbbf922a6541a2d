"""Explanation of a descriptor in hexadecimal, as text and as JSON data."""

import re
from dataclasses import dataclass, replace
from itertools import product

from ..errors import InstructionError, OperandError
from ..isa.descriptor_fields import (
    DescriptorField,
    decoded_or_none,
    family_of,
    instruction_fields,
    offset_notes,
    readings,
    shared_fields,
)
from ..isa.names import Subject, described, resolve
from ..isa.shared_tile import MAJORS, SharedTile, check_tile, tile_shape
from ..isa.tcgen05 import every_opcode, parse_shaped
from .layout_text import span

__all__ = ["ExplainedDescriptor", "explained_descriptor"]

_HEXADECIMAL = re.compile(r"0[xX]([0-9a-fA-F_']+)[uUlL]*")
_FAMILIES = ("wgmma", "tcgen05")
#: Maximum number of opcodes that are printed for an instruction descriptor without an opcode.
_MOST_READINGS = 12


@dataclass(frozen=True, kw_only=True, repr=False)
class ExplainedDescriptor:
    """Decoded fields of a descriptor, with their meanings and problems."""

    value: int
    bits: int  #: Width of the descriptor in bits: 64 for a matrix descriptor, 32 for an instruction descriptor
    title: str  #: Kind of the descriptor, as a heading
    fields: tuple[DescriptorField, ...]
    notes: tuple[str, ...]  #: Explanations that concern several fields of the descriptor
    problems: tuple[str, ...]  #: Problems that concern several fields of the descriptor together

    @property
    def every_problem(self) -> list[str]:
        """All problems of a descriptor: first problems of single fields, then problems of several fields together."""
        wrong = [field for field in self.fields if field.problem]
        single = [f"bit{'s' * (one.width > 1)} {_bits(one)}, {one.name}: {one.problem}" for one in wrong]
        return [*single, *self.problems]

    def as_dict(self) -> dict[str, object]:
        """Return the explanation of the descriptor as JSON data."""
        return {
            "descriptor": f"{self.value:#0{self.bits // 4 + 2}x}",
            "of": self.title,
            "fields": [vars(field) for field in self.fields],
            "notes": [*self.notes],
            "problems": self.every_problem,
        }

    def __str__(self) -> str:
        rows = [(_bits(field), field.name, f"{field.value:#x}", field.meaning, field.problem) for field in self.fields]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [f"{self.value:#0{self.bits // 4 + 2}x}: {self.title}"]
        for row in rows:
            cells = [f"{cell:{width}}" for cell, width in zip(row[:4], widths, strict=False)]
            lines.append(f"  {'  '.join(cells)}{f'  <- {row[4]}' if row[4] else ''}".rstrip())
        lines += self.notes
        problems = self.every_problem
        wrong = ["wrong:", *(f"  {text}" for text in problems)] if problems else ["the descriptor has no errors"]
        return "\n".join([*lines, *wrong])


def _bits(field: DescriptorField) -> str:
    return span(field.low, field.low + field.width - 1, high_first=True)


def explained_descriptor(text: str, operand: str | None = None, major: str | None = None) -> ExplainedDescriptor | None:
    """Explain a descriptor, given as text that begins with a hexadecimal number; return None for any other text.

    The number is a 64-bit matrix descriptor (more than 8 digits) or a 32-bit instruction descriptor of ``tcgen05``.
    After the number, ``wgmma``, ``tcgen05``, or the instruction that takes the descriptor may follow. `operand` is the
    operand that a matrix descriptor places, and `major` the operand's major order (default: both). Raise an
    `InstructionError` or `OperandError` if the instruction does not parse or has no such descriptor, or the number is
    too large.
    """
    number, _, rest = text.strip().partition(" ")
    match = _HEXADECIMAL.fullmatch(number.rstrip(","))
    if not match:
        return None
    digits, rest = match[1].replace("_", "").replace("'", ""), rest.strip()
    if not digits:
        raise OperandError(f"the hexadecimal number {number} has no digits")
    value, is_matrix = int(digits, 16), len(digits) > 8
    if is_matrix or rest.startswith("wgmma"):
        return _matrix(value, rest, operand, major)
    if operand or major:
        raise OperandError("--operand and --major apply only to matrix descriptors, which have more than 8 digits")
    return _instruction(value, rest)


def _matrix(value: int, rest: str, operand: str | None, major: str | None) -> ExplainedDescriptor:
    subject = resolve(rest) if rest and rest not in _FAMILIES else None
    family = subject.instruction.family if subject else rest or family_of(value)
    if family not in _FAMILIES:
        raise OperandError(f"{rest} reads its operands from registers and has no matrix descriptor")
    if operand not in (None, "a", "b"):
        raise OperandError(f"only operands a and b can be in shared memory, not {operand}")
    fields = shared_fields(value, family)
    decoded, notes, problems = decoded_or_none(value, family), [], []
    if decoded:
        majors = [major] if major else [*MAJORS]
        each = [offset_notes(decoded, one) for one in majors]
        notes = [note for note, _ in each]
        verdicts = {MAJORS[one]: [problem] * bool(problem) for one, (_, problem) in zip(majors, each, strict=True)}
        if subject:
            pairs = product([operand] if operand else "ab", majors)
            verdicts = {
                f"{one.upper()}, {MAJORS[way]}": _tile_problems(subject, one, SharedTile(decoded, way))
                for one, way in pairs
            }
            notes += [f"{name}: fits" for name, wrong in verdicts.items() if not wrong]
        lines = [f"{name}: {problem}" for name, wrong in verdicts.items() for problem in wrong]
        if all(verdicts.values()):  # the descriptor fits no operand in any major order
            problems = lines
        else:
            notes += lines
    title = f"shared-memory matrix descriptor of {subject.name if subject else family}"
    if not rest:
        title += " (family from bits 48:46)"
    return ExplainedDescriptor(
        value=value, bits=64, title=title, fields=fields, notes=tuple(notes), problems=tuple(problems)
    )


def _tile_problems(subject: Subject, operand: str, tile: SharedTile) -> list[str]:
    """Return the reasons why a tile in shared memory does not fit an operand; empty if the tile fits."""
    shape, d = tile_shape(subject.instruction, operand, subject.opcode), tile.descriptor
    try:
        check_tile(subject.instruction, subject.opcode, shape.fmt, d.swizzle.name, tile.major)
    except OperandError as error:
        return [str(error)]
    problems = [*tile.problems(shape)]
    other = replace(d, leading_offset=d.stride_offset, stride_offset=d.leading_offset)
    if problems and not [*SharedTile(other, tile.major).problems(shape)]:
        problems.append("the tile would fit with LBO and SBO exchanged")
    return problems


def _instruction(value: int, rest: str) -> ExplainedDescriptor:
    accepted = [*readings(value)]
    notes: list[str] = []
    problems: list[str] = []
    if rest and rest != "tcgen05":
        if not rest.startswith("tcgen05."):
            raise InstructionError(f"only tcgen05.mma has an instruction descriptor, not {rest.split()[0]}")
        opcode, i = parse_shaped(rest)
        try:
            i = described(opcode, value, i.shape_and_types if " " in rest else "")
            notes.append(f"shape and types: {i.shape_and_types}")
        except (InstructionError, OperandError) as error:
            problems.append(str(error))
    else:
        sparse = bool(value >> 2 & 1)
        plain = next(one for one in every_opcode() if one.sparse == sparse and one.kind == "f16")
        opcode = accepted[0][0] if accepted else plain
        if accepted:
            width = max(len(str(one)) for one, _ in accepted)
            more = "" if len(accepted) <= _MOST_READINGS else ", the first:"
            notes.append(f"accepted by {len(accepted)} opcodes{more}")
            notes += [f"  {one!s:{width}}  {shape}" for one, shape in accepted[:_MOST_READINGS]]
        else:
            problems.append("no tcgen05.mma accepts the descriptor; append an opcode to the number to see the reason")
    return ExplainedDescriptor(
        value=value,
        bits=32,
        title=f"instruction descriptor, decoded for {opcode}",
        fields=instruction_fields(value, opcode),
        notes=tuple(notes),
        problems=tuple(problems),
    )
