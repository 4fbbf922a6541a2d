"""Target names of PTX: the architecture whose numerics each has, and the kinds that it lacks."""

from dataclasses import dataclass

from ..errors import InstructionError
from .instructions import Instruction, require_architecture
from .variants import ARCHITECTURES

__all__ = ["TARGETS", "Target", "require_target", "same_numerics"]


@dataclass(frozen=True)
class Target:
    """A target of the PTX assembler.

    Notes
    -----
    Source: PTX ISA, target notes of ``mma``, ``wgmma`` and ``tcgen05.mma``, and the CUDA 13.0 assembler. Modelled:
    chips of one generation are assumed to have the same numerics. The additions of sm_103 to sm_100 (K = 96, absolute
    leading addresses) are not covered.
    """

    name: str  #: PTX name
    #: Architecture whose numerics it has, one of :data:`~sptc.isa.variants.ARCHITECTURES`.
    arch: str
    #: Whether it is the same chip as `arch` under another name. If not, recordings of one are no evidence for the
    #: other.
    same_chip: bool = True
    lacks: tuple[str, ...] = ()  #: Kinds of ``tcgen05.mma`` that it does not have


#: Every name that is accepted as an architecture.
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
    """Return the architecture whose numerics a target has; an unknown name is returned as it is and rejected later."""
    return TARGETS[name].arch if isinstance(name, str) and name in TARGETS else name


def require_target(instruction: Instruction, name: str) -> str:
    """Return the architecture whose numerics an instruction has on a target.

    Raises
    ------
    InstructionError
        The name is unknown, or the target lacks the instruction; the message names the targets that have it.
    """
    arch = same_numerics(name)
    require_architecture(instruction, arch)
    if instruction.family == "tcgen05" and instruction.kind in TARGETS[name].lacks:
        having = [t.name for t in TARGETS.values() if t.arch == arch and instruction.kind not in t.lacks]
        raise InstructionError(f"{name} does not have {instruction}; {', '.join(having)} have it.")
    return arch
