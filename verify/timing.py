"""Cycles of an instruction on a datapath; :mod:`sptc.isa.timing` says what silicon takes."""

from dataclasses import dataclass

from ..isa.instructions import Instruction
from ..isa.numerics import Method, numerics
from ..rtl.config import WARP_ROWS, CoreConfig

__all__ = ["Cycles", "modelled", "unit_steps"]


@dataclass(frozen=True)
class Cycles:
    """Cycles of one instruction of a warp.

    Attributes
    ----------
    interval, latency : float
        From one instruction to the next, without dependence; from operands to result.
    """

    interval: float
    latency: float


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
