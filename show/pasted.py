"""A line of PTX from a user: its instruction and the roles of its operands, as text and as JSON data."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..isa.descriptor_fields import shared_fields
from ..isa.instruction_descriptor import decode_instruction_descriptor
from ..isa.names import Subject, subject_of_line
from ..isa.pasted_line import OperandRole, PastedLine, operand_roles, paste

__all__ = ["PastedInstruction", "read_line"]

#: Maximum width of a list of registers in characters; longer lists are shortened.
_WIDTH = 44


@dataclass(frozen=True, kw_only=True)
class PastedInstruction:
    """Instruction of a line of PTX, with the roles of its operands."""

    subject: Subject
    line: PastedLine
    roles: tuple[OperandRole, ...]
    selector: int | None  #: Sparsity selector; None if the line has none or one that is not constant
    notes: tuple[str, ...]  #: Notes about missing operands and about words that were added to the name

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


def read_line(text: str) -> PastedInstruction | None:
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
            "Append others in brackets to the opcode."
        )
    elif not opcode and i.sparse and selector is None:
        notes.append("the selector of the line is no constant; the layout is that of f = 0")
    return PastedInstruction(subject=subject, line=line, roles=roles, selector=selector, notes=tuple(notes))


def _value(roles: Sequence[OperandRole], names: tuple[str, ...]) -> int | None:
    return next((role.value for role in roles if role.role in names), None)


def _descriptor_problems(roles: Sequence[OperandRole], family: str) -> Iterator[str]:
    """Yield the problems of matrix descriptors that the line gives as constants."""
    for role in roles:
        if role.role in ("a-desc", "b-desc") and role.value is not None:
            for field in shared_fields(role.value, family):
                if field.problem:
                    yield f"{role.role} {role.text}: the field {field.name} is wrong; it {field.problem}"


def _shortened(text: str) -> str:
    """Shorten a long list of registers to its first two registers and its last one."""
    parts = [part.strip() for part in text.strip("{}").split(",")]
    if len(text) <= _WIDTH or not text.startswith("{") or len(parts) <= 3:
        return text
    return f"{{{parts[0]}, {parts[1]}, ... {parts[-1]}}}"
