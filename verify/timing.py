"""Cycles of an instruction on a datapath; :mod:`sptc.isa.timing` says what silicon takes."""

from dataclasses import dataclass

from ..isa.instructions import Instruction
from ..isa.numerics import Method, numerics
from ..isa.timing import Resource, resource_cycles
from ..rtl.config import WARP_ROWS, CoreConfig

__all__ = ["Cycles", "modelled", "of_warpgroup", "unit_steps"]

#: Of ``wgmma``: columns of a panel of B, cycles in which one is read by whether it is of a sparse instruction, and how
#: many are read before A in shared memory, which takes 16.
_PANEL_COLUMNS, _PANEL_READS, _PANELS_FIRST, _A_READS = 8, {False: 2, True: 4}, 2, 16
#: From the last of A to the first multiplication and from the last one to its results: that A is stored, or read, and
#: the stages of the array.
_FROM_REGISTERS, _FROM_SHARED = 7, 8


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


def modelled(
    config: CoreConfig, instruction: Instruction, arch: str, a_from: str | None = "registers"
) -> Cycles | None:
    """Return what the hardware takes, None for what it does not execute by itself.

    Parameters
    ----------
    config : CoreConfig
        Of the :class:`~sptc.rtl.warp.Warp` that executes ``mma``.
    instruction : Instruction
        ``wgmma`` is executed by :class:`~sptc.rtl.warpgroup.Warpgroup`, whose arrays have the rate of silicon.
    arch : str
        Architecture.
    a_from : str, optional
        Of ``wgmma``: ``"registers"`` or ``"shared"``.
    """
    if instruction.family == "wgmma":
        return of_warpgroup(instruction, a_from or "registers")
    if instruction.family != "mma" or instruction.m != WARP_ROWS or not config.holds(instruction):
        return None
    if numerics(instruction, arch).method is Method.EMULATED:
        return None
    steps = unit_steps(config, instruction)
    return Cycles(config.warp_interval(steps), config.warp_latency(steps))


def of_warpgroup(instruction: Instruction, a_from: str) -> Cycles:
    """Return what :class:`~sptc.rtl.warpgroup.Warpgroup` takes: its interval is the law's.

    Parameters
    ----------
    instruction : Instruction
        Of family ``wgmma``.
    a_from : str
        ``"registers"`` or ``"shared"``.
    """
    needed = resource_cycles(instruction, a_from)
    ready = needed[Resource.REGISTER_FILE] + _FROM_REGISTERS
    if a_from == "shared":
        first = min(instruction.n // _PANEL_COLUMNS, _PANELS_FIRST) * _PANEL_READS[bool(instruction.sparse)]
        ready = first + _A_READS + _FROM_SHARED
    return Cycles(max(needed.values()), ready + needed[Resource.TENSOR_CORE])
