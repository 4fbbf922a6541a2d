"""Cycles of an instruction: what a datapath takes, and what an H200 was measured to take."""

from dataclasses import dataclass

from ..isa.instructions import Instruction
from ..isa.numerics import Method, numerics
from ..rtl.config import WARP_ROWS, CoreConfig

__all__ = ["Cycles", "measured", "modelled", "unit_steps"]


@dataclass(frozen=True)
class Cycles:
    """Cycles of one instruction of a warp.

    Attributes
    ----------
    interval : float
        From one instruction to the next, without dependence.
    latency : int
        From operands to result.
    """

    interval: float
    latency: int


#: Cycles of the SM clock on one of the four tensor cores of an SM, by (sparse, k, element): NVIDIA H200, 2026-11-20.
_MEASURED = {
    (True, 32, "f16"): Cycles(8.1, 24),
    (True, 32, "bf16"): Cycles(8.1, 24),
    (True, 16, "f16"): Cycles(6.1, 17),
    (True, 16, "tf32"): Cycles(8.1, 24),
    (True, 8, "tf32"): Cycles(6.1, 17),
    (True, 64, "s8"): Cycles(8.1, 24),
    (True, 32, "s8"): Cycles(6.1, 17),
    (False, 16, "f16"): Cycles(6.0, 24),
    (False, 8, "tf32"): Cycles(6.0, 24),
    (False, 32, "s8"): Cycles(6.0, 24),
}


def measured(instruction: Instruction, arch: str) -> Cycles | None:
    """Return what an H200 takes, None where nobody measured it."""
    if arch != "sm_90" or instruction.family != "mma" or instruction.a != instruction.b:
        return None
    return _MEASURED.get((bool(instruction.sparse), instruction.k, instruction.a.name))


def unit_steps(config: CoreConfig, instruction: Instruction) -> int:
    """Return the steps of K in which a unit computes one output of an instruction."""
    return -(-instruction.stored_k * instruction.container_bits // (8 * config.step_bytes))


def modelled(config: CoreConfig, instruction: Instruction, arch: str) -> Cycles | None:
    """Return what :class:`sptc.rtl.warp.Warp` takes, None for what it does not execute by itself."""
    if instruction.family != "mma" or instruction.m != WARP_ROWS or not config.holds(instruction):
        return None
    if numerics(instruction, arch).method is Method.EMULATED:
        return None
    steps = unit_steps(config, instruction)
    return Cycles(config.warp_interval(steps), config.warp_latency(steps))
