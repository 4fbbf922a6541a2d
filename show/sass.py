"""PTX instructions that compile to a given SASS instruction, as text and as JSON data."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import InstructionError
from ..isa.architectures import target_named
from ..isa.sass import SOURCE, Implementation, implementations, sass_name

__all__ = ["MachineInstruction", "machine_instruction"]

#: Maximum number of SASS names that are printed if the words of the user match several names.
_LISTED = 40
_MEMORY = (
    "the name does not contain shape, types and sparsity, which are in the instruction descriptor idesc; a "
    "block-scaled kind has another tensor-memory operand after idesc"
)


@dataclass(frozen=True, repr=False)
class MachineInstruction:
    """Name of a SASS instruction, with the PTX instructions that compile to this SASS instruction."""

    name: str  #: SASS name as the user wrote it
    implemented: tuple[Implementation, ...]  #: PTX instructions that compile to this SASS instruction, at least one

    def as_dict(self) -> dict[str, object]:
        """Return this SASS name, and the PTX instructions that compile to it, as JSON data."""
        return {"sass": self.name, "implements": [vars(one) for one in self.implemented], "source": SOURCE}

    def __str__(self) -> str:
        names = list(dict.fromkeys(one.sass for one in self.implemented))
        lines = [self.name] if names == [self.name] else [f"{self.name}: {len(names)} SASS names contain these words"]
        if len(names) == 1 != (names == [self.name]):
            lines = [f"{self.name}, spelled {names[0]}"]
        for sass in names if len(names) <= _LISTED else names[:_LISTED]:
            same = [one for one in self.implemented if one.sass == sass]
            lines += [f"{sass}:"] if len(names) > 1 else []
            lines += _listed("implements", [one for one in same if one.count == 1])
            lines += _listed("two of these, and other instructions, emulate", [one for one in same if one.count > 1])
        if len(names) > _LISTED:
            lines.append(f"and {len(names) - _LISTED} more names; add words to select fewer")
        lines += [_MEMORY] if self.name.startswith("UTC") else []
        return "\n".join([*lines, SOURCE])


def _listed(heading: str, implemented: Sequence[Implementation]) -> list[str]:
    if not implemented:
        return []
    width = max(len(one.instruction) for one in implemented)
    return [f"  {heading}:", *(f"    {one.instruction:{width}}  {', '.join(one.architectures)}" for one in implemented)]


def machine_instruction(text: str, arch: str | None = None) -> MachineInstruction | None:
    """Return the PTX instructions that compile to a SASS name or a line of disassembly; None for any other text.

    A line is for example ``HMMA.SP.16832.F32 R4, R8, R12, R4, R0, 0x0``. `arch` is the target whose instructions are
    listed (default: all). Raise an `InstructionError` if no modelled instruction of the target has the name.
    """
    name = sass_name(text)
    if name is None:
        return None
    implemented = tuple(implementations(name))
    if arch:
        same = target_named(arch).arch
        implemented = tuple(one for one in implemented if same in one.architectures)
        if not implemented:
            raise InstructionError(f"no modelled instruction of {arch} compiles to the SASS instruction {name}")
    return MachineInstruction(name, implemented)
