"""Cycles of an instruction on a datapath of this package; for a real GPU, see :mod:`sptc.isa.timing`."""

from dataclasses import dataclass

from ..isa.instructions import Instruction
from ..isa.numerics import Method, numerics
from ..isa.timing import ARCHITECTURE, Resource, resource_cycles
from ..rtl.config import PRESET_OF_ARCHITECTURE, PRESETS, WARP_COLUMNS, WARP_ROWS, CoreConfig
from ..rtl.tensor_cores import ready_cycles
from ..sim.engine.steps import step_count

__all__ = ["Cycles", "modelled", "step_count"]


@dataclass(frozen=True)
class Cycles:
    """Cycles of one instruction on a datapath of this package."""

    #: Interval between independent instructions, and latency from operands to result, in cycles.
    interval: float
    latency: float


def modelled(config: CoreConfig, instruction: Instruction, arch: str, a_from: str = "registers") -> Cycles | None:
    """Return the cycles of an instruction on a datapath; None if the datapath lacks the instruction or emulates it.

    An ``mma`` runs on a :class:`~sptc.rtl.warp.Warp` of the datapath; a ``wgmma``, with A in ``"registers"`` or
    ``"shared"``, on :class:`~sptc.rtl.warpgroup.Warpgroup`. The arrays of the latter have the rate of the H200, so that
    the interval of a ``wgmma`` is that of :mod:`sptc.isa.timing`.
    """
    if instruction.family == "wgmma":
        needed, panels = resource_cycles(instruction, a_from), instruction.n // WARP_COLUMNS
        panel_reads = int(resource_cycles(instruction, "registers")[Resource.SHARED_MEMORY]) // panels
        ready = ready_cycles(int(needed[Resource.REGISTER_FILE]), panels, panel_reads)
        stages = PRESETS[PRESET_OF_ARCHITECTURE[ARCHITECTURE]].latency
        return Cycles(max(needed.values()), ready + 1 + stages + needed[Resource.TENSOR_CORE])
    if instruction.family != "mma" or instruction.m != WARP_ROWS or not config.holds(instruction):
        return None
    if numerics(instruction, arch).method is Method.EMULATED:
        return None
    steps = step_count(config, instruction)
    return Cycles(config.warp_interval(steps), config.warp_latency(steps))
