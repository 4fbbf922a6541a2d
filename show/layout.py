"""Layout of an instruction: placement of its operands, and its numerics on an architecture."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..api.operands import checked_selector
from ..errors import OperandError
from ..isa.architectures import require_target
from ..isa.descriptor_fields import shared_fields
from ..isa.instruction_descriptor import decode_instruction_descriptor
from ..isa.instructions import Instruction
from ..isa.names import Subject, resolve, subject_of_line
from ..isa.pasted_line import OperandRole, PastedLine, operand_roles, paste
from ..isa.placement import Memory, OperandPlacement, Placements, placements
from ..isa.shared_tile import SharedTile, packed_tile
from .layout_choice import Choice
from .layout_picture import layout_as_svg, tiles_as_svg
from .layout_text import layout_as_text, numerics_as_dict

__all__ = ["Layout", "PastedInstruction", "TileChoice", "layout"]

#: Default architecture: the one with the most recorded GPU results.
_ARCH = "sm_90"
#: Maximum width of a list of registers in characters; longer lists are shortened.
_WIDTH = 44


@dataclass(frozen=True, kw_only=True)
class PastedInstruction:
    """Instruction in a line of PTX that the user gave, with the role of each operand in the line."""

    subject: Subject
    line: PastedLine
    roles: tuple[OperandRole, ...]
    selector: int | None  #: Sparsity selector; None if the line of PTX gives no constant selector
    notes: tuple[str, ...]  #: Remarks on added qualifiers, wrong descriptors, and values that the PTX line omits

    def as_dict(self) -> dict[str, object]:
        """Return the roles of the operands as JSON data."""
        return {
            "predicate": self.line.predicate or None,
            "operands": [vars(role) for role in self.roles],
            "notes": [*self.notes],
        }

    def __str__(self) -> str:
        shown = [_shortened(role.text) for role in self.roles]
        widths = [max(map(len, column)) for column in ([role.role for role in self.roles], shown)]
        lines = ["operands of the line:"]
        if self.line.predicate:
            condition = f"{self.line.predicate.lstrip('!')} is {'false' if '!' in self.line.predicate else 'true'}"
            lines[0] = f"executed if {condition}; {lines[0]}"
        for role, text in zip(self.roles, shown, strict=True):
            lines.append(f"  {role.role:{widths[0]}}  {text:{widths[1]}}  {role.meaning}")
        return "\n".join([*lines, *self.notes])


@dataclass(frozen=True, kw_only=True, repr=False)
class Layout:
    """Lane, register and bits of every operand element of an instruction, with conversion to text, JSON and SVG."""

    subject: Subject
    arch: str  #: Architecture that determines the numerics
    selector: int = 0
    #: Operand to show, None for all: ``a``, ``b``, ``c``, ``d``, ``metadata``, ``scale_a`` or ``scale_b``.
    operand: str | None = None
    choice: Choice = field(default_factory=Choice)
    tiles: Mapping[str, SharedTile] = field(default_factory=dict)  #: Tiles of ``a`` and ``b`` in shared memory
    pasted: PastedInstruction | None = None  #: Line of PTX that the user gave, with the roles of its operands

    @cached_property
    def placements(self) -> Placements:
        """Placements of the operands to show; raise an `OperandError` if the selector or the operand does not exist."""
        i = self.subject.instruction
        checked_selector(self.selector, i)
        every = placements(i, self.selector, self.subject.opcode, self.tiles)
        if self.tiles:
            every = Placements(tuple(place for place in every.operands if place.tile))
        return self.choice.keep(every if self.operand is None else _only(every, self.operand, self.subject.name))

    @cached_property
    def numerics(self) -> dict[str, object]:
        """Numerics of the instruction; raise an `InstructionError` if the architecture lacks the instruction."""
        return numerics_as_dict(self.subject, self.arch)

    def as_dict(self) -> dict[str, Any]:
        """Return the layout as JSON data, with the position of every element."""
        i, shown = self.subject.instruction, self.placements
        alone = len({place.operand for place in shown.operands}) == 1
        places: list[OperandPlacement] = []
        for place in shown.operands:
            places += [replace(place, operand="c")] if place.operand == "d" and not alone else []
            places.append(place)
        return {
            "instruction": self.subject.name,
            **({"line": self.pasted.as_dict()} if self.pasted else {}),
            "shape": {"m": i.m, "n": i.n, "k": i.k},
            "types": {name: getattr(i, name).name for name in "abcd"},
            "architectures": list(i.architectures),
            "sparsity": _sparsity_as_dict(i, self.selector),
            "operands": [_operand_as_dict(place, i.family == "wgmma", self.choice) for place in places],
            "unknown": dict(shown.unknown),
            "numerics": self.numerics,
        }

    def as_svg(self) -> bytes:
        """Return a picture of the operands as SVG: grids above a common k axis.

        Operands with an element in `choice` are drawn whole. Tiles of shared memory are drawn as lines of 128 bytes.
        Raise an `OperandError` if no operand can be drawn, and a `BackendError` if matplotlib is not installed.
        """
        if self.tiles:
            return tiles_as_svg(self.subject.name, self.placements.operands)
        return layout_as_svg(self.subject.instruction, self.subject.name, self.placements, self.selector)

    def __str__(self) -> str:
        text = layout_as_text(self.subject, self.placements, self.selector, self.numerics, self.choice)
        if self.pasted is None:
            return text
        name, rest = text.split("\n", 1)
        return f"{name}\n{self.pasted}\n\n{rest}"

    def __repr__(self) -> str:
        return f"<layout of {self.subject.name}>"

    def _repr_svg_(self) -> str:
        return self.as_svg().decode()


@dataclass(frozen=True, kw_only=True)
class TileChoice:
    """Placement of operands in shared memory. If an offset is None, the offset of a tile without gaps is used."""

    swizzle: str = "none"  #: Name of the swizzle, a key of :data:`~sptc.isa.memory.SWIZZLES`
    major: str = "k"  #: Dimension along which elements are adjacent in memory: ``k`` or ``mn``
    #: Fields of the matrix descriptor: two offsets and the start address in bytes, and the base offset.
    leading_offset: int | None = None
    stride_offset: int | None = None
    start: int = 0
    base_offset: int = 0

    def tiles(self, subject: Subject, operand: str | None) -> dict[str, SharedTile]:
        """Return the tiles of A and B, or of `operand`, in shared memory; raise an `OperandError` for invalid tiles."""
        if operand not in (None, "a", "b"):
            raise OperandError(f"only operands a and b can be in shared memory, not {operand}")
        offsets = self.leading_offset, self.stride_offset
        words: dict[str, Any] = {"swizzle": self.swizzle, "major": self.major, "offsets": offsets}
        words |= {"start": self.start, "base_offset": self.base_offset}
        i, opcode = subject.instruction, subject.opcode
        return {name: packed_tile(i, name, opcode, **words) for name in (operand or "ab")}


def layout(
    words: str | Subject,
    arch: str | None = None,
    *,
    selector: int | None = None,
    operand: str | None = None,
    row: int | None = None,
    lane: int | None = None,
    choice: Choice | None = None,
    tiles: TileChoice | None = None,
) -> Layout:
    """Return the placement of the operands of an instruction, and its numerics.

    Parameters
    ----------
    words : str or Subject
        Name of the instruction, a line of PTX with its operands, or words that identify the instruction, such as
        ``m16n8k32 f16 ordered_metadata f32``.
    arch : str, optional
        Architecture whose numerics are shown. Default: sm_90, or the first architecture that has the instruction.
    selector : int, optional
        Sparsity selector. Default: the selector in the line of PTX, or 0.
    operand : str, optional
        The only operand to show.
    row, lane : int, optional
        Show only this row of A, C, D and metadata; show only this thread, or this lane of tensor memory.
    choice : Choice, optional
        Another choice of elements, instead of `row` and `lane`.
    tiles : TileChoice, optional
        Swizzle, major and offsets of A and B in shared memory; only operands in shared memory are then shown. Default:
        packed tiles, and all operands.

    Raises
    ------
    InstructionError
        No instruction or more than one has these words, or the architecture does not have the instruction.
    OperandError
        The selector, the operand or a chosen element does not exist; or the operands cannot lie in such tiles.
    """
    pasted = _read_line(words) if isinstance(words, str) else None
    known = pasted.subject if pasted else words
    subject = known if isinstance(known, Subject) else resolve(known, arch)
    architectures = subject.instruction.architectures
    chosen = arch or (_ARCH if _ARCH in architectures else architectures[0])
    require_target(subject.instruction, chosen, subject.opcode)
    written = pasted.selector if pasted else None
    if None not in (selector, written) and selector != written:
        raise OperandError(f"the line of PTX has sparsity selector {written}, which contradicts selector {selector}")
    result = Layout(
        subject=subject,
        arch=chosen,
        selector=selector if selector is not None else written or 0,
        operand=operand,
        choice=choice or Choice(row, lane),
        tiles=tiles.tiles(subject, operand) if tiles else {},
        pasted=pasted,
    )
    _ = result.placements, result.numerics  # report wrong arguments now, not only when the layout is printed
    return result


def _only(found: Placements, operand: str, instruction: str) -> Placements:
    """Return only the placement of `operand`. For C, return that of D."""
    name = "d" if operand == "c" else operand
    kept = tuple(place for place in found.operands if place.operand == name)
    unknown = {key: reason for key, reason in found.unknown.items() if key.split()[0] == name}
    if not kept and not unknown:
        lacking = "dense and has no metadata" if operand == "metadata" else "not block-scaled"
        raise OperandError(f"{instruction} is {lacking}")
    return Placements(tuple(replace(place, operand=operand) for place in kept), unknown)


def _sparsity_as_dict(i: Instruction, selector: int) -> dict[str, object] | None:
    if not (i.granularity and i.rule):
        return None
    return {
        "granularity": i.granularity.name,
        "stored": i.granularity.stored,
        "logical": i.granularity.logical,
        "chunks": i.chunks,
        "rule": i.rule.name,
        "legal": sorted(i.rule.legal),
        "selectors": i.sparsity_selectors,
        "selector": selector,
    }


def _operand_as_dict(place: OperandPlacement, warpgroup: bool, choice: Choice) -> dict[str, object]:
    return {
        "operand": place.operand,
        "memory": place.memory.value,
        "shape": list(place.shape),
        "bits": place.bits,
        "value_low_bit": place.value_low_bit,
        "value_bits": place.value_bits,
        "formulas": dict(place.formulas),
        "notes": list(place.notes),
        "elements": [
            _element(place, (row, column), warpgroup) for row, column in np.argwhere(choice.of(place)).tolist()
        ],
    }


def _element(place: OperandPlacement, at: tuple[int, int], warpgroup: bool) -> dict[str, int]:
    entry = dict(zip(place.indices, at, strict=True))
    lane, low_bit = int(place.lanes[at]), int(place.low_bits[at])
    if place.memory is Memory.REGISTERS and warpgroup:
        entry |= {"warp": lane // 32, "lane": lane % 32}
    elif place.memory is not Memory.SHARED:
        entry["lane"] = lane
    return {**entry, place.memory.word: int(place.words[at]), "low_bit": low_bit, "high_bit": low_bit + place.bits - 1}


def _read_line(text: str) -> PastedInstruction | None:
    """Read a line of PTX with operands; return None for any other text.

    Raise an `InstructionError` or `OperandError` if the instruction or one of its operands is wrong.
    """
    line = paste(text)
    if line is None:
        return None
    notes = [f"{line.added} is missing in the line of PTX and was added"] if line.added else []
    subject = subject_of_line(line)
    i, opcode = subject.instruction, subject.opcode
    roles = operand_roles(line, i, opcode)
    notes += _descriptor_problems(roles, i.family)
    descriptor = _value(roles, ("idesc",))
    selector = _value(roles, ("f", "sp-sel"))
    if opcode and descriptor is not None:
        selector = decode_instruction_descriptor(opcode, descriptor).sparsity_selector
    elif opcode and not line.shape_and_types:
        notes.append(
            f"shape and types are in the register idesc; the layout is that of {i.shape_and_types}. "
            "Append another shape and other types in brackets to the opcode."
        )
    elif not opcode and i.sparse and selector is None:
        notes.append("the selector of the line is not a constant; the layout is that of selector f = 0")
    return PastedInstruction(subject=subject, line=line, roles=roles, selector=selector, notes=tuple(notes))


def _value(roles: Sequence[OperandRole], names: tuple[str, ...]) -> int | None:
    return next((role.value for role in roles if role.role in names), None)


def _descriptor_problems(roles: Sequence[OperandRole], family: str) -> Iterator[str]:
    """Yield the problems of matrix descriptors that are constants in a line of PTX."""
    for role in roles:
        if role.role in ("a-desc", "b-desc") and role.value is not None:
            for field in shared_fields(role.value, family):
                if field.problem:
                    yield f"{role.role} {role.text}: the field {field.name} is wrong: {field.problem}"


def _shortened(text: str) -> str:
    """Shorten a long list of registers to the first two registers and the last register."""
    parts = [part.strip() for part in text.strip("{}").split(",")]
    if len(text) <= _WIDTH or not text.startswith("{") or len(parts) <= 3:
        return text
    return f"{{{parts[0]}, {parts[1]}, ... {parts[-1]}}}"
