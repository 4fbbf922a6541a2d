"""Energy of a unit on operands: its mapped netlist, the toggles that they cause, and what these take."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..isa.instructions import Instruction
from ..rtl.config import CoreConfig
from ..synth.liberty import Library
from .activity import Activity, MappedNetlist, Pipeline
from .costs import Costs, costs_of
from .electrical import ElectricalLibrary
from .mapping import mapped_row
from .operands import CHAIN, drawn, streamed
from .stages import REGISTERS, stage_of

__all__ = ["MappedUnit", "Measured"]

_WORD = 32
_FEMTO = 1000.0


@dataclass(frozen=True)
class Measured:
    """What a unit took.

    Attributes
    ----------
    instruction : Instruction
        What it multiplied.
    distribution : str
        Of its operands.
    cycles : int
        Between which toggles were counted.
    products : int
        Kept products of a cycle.
    stages : dict of str to float
        fJ of a kept product, by stage.
    toggles : float
        Of all nets, in a cycle, without the clock.
    """

    instruction: Instruction
    distribution: str
    cycles: int
    products: int
    stages: dict[str, float]
    toggles: float

    @property
    def total(self) -> float:
        """Of all stages, in fJ of a kept product."""
        return sum(self.stages.values())


class MappedUnit:
    """A decoder and a unit in library cells, with what their toggles take.

    Parameters
    ----------
    config : CoreConfig
        The array that the unit is one of.
    library : Library
        Its cells.
    by_module : bool
        As for :func:`~sptc.energy.mapping.mapped_row`.

    Attributes
    ----------
    netlist : MappedNetlist
        The cells.
    pipeline : Pipeline
        The same, ready to be run.
    costs : Costs
        What toggles take.
    """

    def __init__(self, config: CoreConfig, library: Library, *, by_module: bool) -> None:
        self._config = config
        self._electrical = ElectricalLibrary.of(library)
        self.netlist: MappedNetlist = mapped_row(config, library, by_module=by_module)
        self.pipeline = Pipeline(self.netlist, library, self._electrical)
        self.costs: Costs = costs_of(self.netlist, self._electrical, self.pipeline.order, self._stage_of)

    def _stage_of(self, cell: str) -> str:
        is_register = bool(self._electrical.cells[self.netlist.cells[cell][0]].clock)
        return REGISTERS if is_register else stage_of(cell)

    def run(self, steps: NDArray[np.uint32]) -> Activity:
        """Run steps, shape (cycles, words), and count what they toggle."""
        bits = np.unpackbits(np.ascontiguousarray(steps).view(np.uint8), axis=1, bitorder="little")
        step = bits[:, : len(self.netlist.inputs["step"])]
        return self.pipeline.run({"step": step, "rst": np.zeros((len(bits), 1), np.uint8)})

    def compute(self, steps: NDArray[np.uint32]) -> tuple[NDArray[np.uint32], NDArray[np.bool_]]:
        """Return the results of steps, and whether a sum left 32 bits."""
        latency = self.pipeline.latency
        behind = np.zeros((latency + 2, steps.shape[1]), np.uint32)
        results = self.run(np.concatenate([steps, behind])).outputs["result"]
        results = results[latency : latency + len(steps)]
        d = np.packbits(results[:, :_WORD], axis=1, bitorder="little").view("<u4")[:, 0]
        return d, results[:, _WORD].astype(np.bool_)

    def measure(
        self,
        instruction: Instruction,
        arch: str,
        distribution: str,
        cycles: int,
        rng: np.random.Generator,
    ) -> Measured:
        """Measure an instruction.

        Parameters
        ----------
        instruction : Instruction
            What is multiplied, chained; one of ``mma`` whose formats the unit has.
        arch : str
            Whose numerics the configuration has.
        distribution : str
            Of A and B.
        cycles : int
            At least so many.
        rng : Generator
            Draws operands.

        Raises
        ------
        Error
            As :func:`~sptc.energy.operands.streamed`.
        """
        config = self._config
        of_tile = _cycles_of_chain(config, instruction)
        operands = drawn(instruction, distribution, -(-cycles // of_tile), rng)
        activity = self.run(streamed(config, instruction, arch, operands, self.compute))
        products = min(config.step_bytes * 8 // instruction.container_bits, instruction.stored_k)
        taken = self.costs.of(activity)
        toggles = sum(activity.toggles.values()) / activity.cycles
        stages = {stage: _FEMTO * value / products for stage, value in taken.items()}
        return Measured(instruction, distribution, activity.cycles, products, stages, toggles)


def _cycles_of_chain(config: CoreConfig, instruction: Instruction) -> int:
    """Return the cycles in which one unit executes a chain of instructions."""
    outputs = -(-instruction.m // config.rows) * -(-instruction.n // config.columns)
    stored_bytes = instruction.stored_k * instruction.container_bits // 8
    return CHAIN * outputs * -(-stored_bytes // config.step_bytes)
