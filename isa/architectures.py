"""Architectures by the names that PTX gives them: which numerics they have, and what they lack."""

from dataclasses import dataclass

from ..errors import InstructionError
from .instructions import Instruction, require_architecture
from .variants import ARCHITECTURES

__all__ = ["TARGETS", "Target", "require_target", "same_numerics"]


@dataclass(frozen=True)
class Target:
    """A target of the assembler.

    Attributes
    ----------
    name : str
        As PTX spells it.
    arch : str
        The one of :data:`~sptc.isa.variants.ARCHITECTURES` whose numerics it has.
    same_chip : bool
        Whether it is that architecture under another name; otherwise nothing recorded of the one is of the other.
    lacks : tuple of str
        Kinds of ``tcgen05.mma`` that it does not have.

    Notes
    -----
    Source: PTX ISA, target notes of ``mma``, ``wgmma`` and ``tcgen05.mma``, and the CUDA 13.0 assembler. That chips of
    one generation compute alike is an assumption: modelled. What sm_103 has beyond sm_100, K = 96 and absolute leading
    addresses, is not covered.
    """

    name: str
    arch: str
    same_chip: bool = True
    lacks: tuple[str, ...] = ()


#: Every name that is accepted where an architecture is wanted.
TARGETS = {
    target.name: target
    for target in (
        *(Target(arch, arch) for arch in ARCHITECTURES),
        Target("sm_90a", "sm_90"),
        Target("sm_100a", "sm_100"),
        *(Target(name, "sm_100", same_chip=False, lacks=("i8",)) for name in ("sm_103", "sm_103a")),
        *(Target(name, "sm_100", same_chip=False) for name in ("sm_110", "sm_110a")),
        Target("sm_120a", "sm_120"),
        *(Target(name, "sm_120", same_chip=False) for name in ("sm_121", "sm_121a")),
    )
}


def same_numerics(name: str) -> str:
    """Return the architecture whose numerics a target has; a name that is none stays as it is, to be refused later."""
    return TARGETS[name].arch if isinstance(name, str) and name in TARGETS else name


def require_target(instruction: Instruction, name: str) -> str:
    """Return the architecture whose numerics an instruction has on a target.

    Raises
    ------
    InstructionError
        The name is unknown, or the target does not have the instruction; names those that do.
    """
    arch = same_numerics(name)
    require_architecture(instruction, arch)
    if instruction.family == "tcgen05" and instruction.kind in TARGETS[name].lacks:
        having = [t.name for t in TARGETS.values() if t.arch == arch and instruction.kind not in t.lacks]
        raise InstructionError(f"{name} does not have {instruction}; {', '.join(having)} have it.")
    return arch
