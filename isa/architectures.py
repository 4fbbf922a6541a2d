"""PTX targets such as sm_90a: the architecture that gives a target its numerics, and the instructions it lacks."""

import re
from dataclasses import dataclass
from difflib import get_close_matches

from ..errors import InstructionError, shown
from .instructions import Instruction, lacking, one_of
from .tcgen05 import Opcode
from .text import is_word_of
from .variants import ARCHITECTURES

__all__ = ["TARGETS", "Target", "kind_word", "require_target", "same_numerics", "target_named"]


@dataclass(frozen=True)
class Target:
    """Target of the PTX assembler, such as ``sm_90a``.

    Source: PTX ISA 9.1, ``.target`` and the target notes of ``mma``, ``wgmma`` and ``tcgen05.mma``; the CUDA 13.0 and
    13.5 assemblers. Modelled: chips of one generation are assumed to have the same numerics. The model has no feature
    that sm_103 adds to sm_100 (K = 96, absolute leading addresses).
    """

    name: str  #: Name of the target in PTX
    #: Modelled architecture with the numerics of the target, one of :data:`~sptc.isa.variants.ARCHITECTURES`.
    arch: str
    #: Whether code for this target runs only on the chip of `arch`. If the code also runs on other chips, recordings of
    #: the chip of `arch` are no evidence for the target.
    same_chip: bool = True
    #: Words (see :func:`kind_word`) for instructions that `arch` has, but this PTX target does not support.
    lacks: frozenset[str] = frozenset()

    def has(self, instruction: Instruction) -> bool:
        """Return whether the PTX target supports an instruction."""
        return self.arch in instruction.architectures and kind_word(instruction) not in self.lacks

    @property
    def is_family(self) -> bool:
        """Whether the target is a family target (suffix ``f``), whose code also runs on later chips of the family."""
        return self.name.endswith("f")


def kind_word(instruction: Instruction) -> str:
    """Return family, sparsity and kind of an instruction as one word, for example ``tcgen05.sp.mxf4``."""
    return ".".join([instruction.family, *(["sp"] if instruction.sparse else []), instruction.kind])


_INTEGERS = frozenset({"tcgen05.i8", "tcgen05.sp.i8"})
#: Instructions that no family target supports: assemblers accept them only for a target of one chip (suffix ``a``).
_OF_ONE_CHIP = _INTEGERS | {"tcgen05.sp.mxf4", "tcgen05.sp.mxf4nvf4", "mma.sp.mxf4", "mma.sp.mxf4nvf4"}


def _chip(name: str, arch: str, lacks: frozenset[str] = frozenset()) -> tuple[Target, Target, Target]:
    """Return the three targets of a chip: without suffix, chip-specific (suffix ``a``), and family (suffix ``f``)."""
    same = name == arch
    family = frozenset(word for word in _OF_ONE_CHIP if word.startswith("mma") == (arch == "sm_120"))
    return (
        Target(name, arch, same, lacks),
        Target(f"{name}a", arch, same, lacks),
        Target(f"{name}f", arch, same_chip=False, lacks=family),
    )


#: PTX targets; the keys are their names. Every parameter for an architecture accepts these names. A name without suffix
#: stands for the chip. sm_101 is the former name of sm_110. sm_87 (Orin) counts as sm_80: its tensor cores have the
#: rates of sm_80, and CUTLASS uses instructions of sm_80 on sm_87.
TARGETS = {
    target.name: target
    for target in (
        *(Target(arch, arch) for arch in ARCHITECTURES),
        Target("sm_87", "sm_80", same_chip=False),
        Target("sm_88", "sm_86", same_chip=False),
        Target("sm_90a", "sm_90"),
        *_chip("sm_100", "sm_100"),
        *_chip("sm_103", "sm_100", _INTEGERS),
        *_chip("sm_110", "sm_100"),
        *_chip("sm_101", "sm_100"),
        *_chip("sm_120", "sm_120"),
        *_chip("sm_121", "sm_120"),
    )
}
#: Targets of PTX 9.1 without sparse tensor cores.
_EARLIER = tuple(f"sm_{number}" for number in (50, 52, 53, 60, 61, 62, 70, 72, 75))


def target_named(name: str) -> Target:
    """Return the PTX target with a given name.

    Raise an `InstructionError` if the name is unknown (the message has the nearest known target), or the target is
    older than sm_80.
    """
    if is_word_of(name, TARGETS):
        return TARGETS[name]
    unknown = f"{shown(name)} is no known architecture"
    if is_word_of(name, _EARLIER):
        raise InstructionError(f"{unknown}; GPUs older than {ARCHITECTURES[0]} have no sparse tensor cores")
    if isinstance(name, str) and name.strip().startswith(("mma.", "wgmma.", "tcgen05.")):
        raise InstructionError(
            f"{unknown}; it is an instruction. The architecture is the first argument of sptc.numerics and the second "
            "argument of sptc.evidence"
        )
    near = get_close_matches(_spelled(name), TARGETS, 1, 0.75) if isinstance(name, str) else []
    raise InstructionError(f"{unknown}; {f'did you mean {near[0]}?' if near else f'expected {one_of([*TARGETS])}'}")


def _spelled(name: str) -> str:
    """Return a target's name in lower case with the prefix ``sm_``: ``sm_90a`` for ``SM90a`` or ``compute_90a``."""
    match = re.fullmatch(r"(?:sm|compute)?[_-]?(\d{2,3}\w?)", name[:20].strip().lower())
    return f"sm_{match[1]}" if match else ""


def same_numerics(name: str) -> str:
    """Return the architecture that has the numerics of a target. An unknown name is returned unchanged."""
    return TARGETS[name].arch if is_word_of(name, TARGETS) else name


def require_target(instruction: Instruction, name: str, opcode: Opcode | None = None) -> str:
    """Return the architecture with the numerics of a target, after a check that the target supports an instruction.

    `opcode` has the qualifiers of a ``tcgen05.mma``: a family target does not accept ``.scale_vec``. Raise an
    `InstructionError` if the name of the target is unknown, or the target lacks the instruction; the message then names
    the targets that have it.
    """
    target = target_named(name)
    if target.arch not in instruction.architectures:
        raise lacking(name, instruction, instruction.architectures)
    if not target.has(instruction):
        having = [other.name for other in TARGETS.values() if other.has(instruction)]
        raise lacking(name, instruction, having)
    if opcode and target.is_family and opcode.scale_word.startswith("scale_vec"):
        block = "block16" if opcode.scale_size == 4 else "block32"
        raise InstructionError(f"{name} does not have '.{opcode.scale_word}' of {opcode}; use '.{block}' instead")
    return target.arch
