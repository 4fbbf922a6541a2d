"""Energy of a unit on operands: its mapped netlist, the toggles that they cause, and what these take."""

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from ..isa.instructions import Instruction
from ..isa.operands import MatrixOperands
from ..rtl.config import CoreConfig
from .costs import Activity, Costs, costs_of
from .mapping import mapped_row
from .netlist import CellLibrary, MappedNetlist
from .operands import CHAIN, step_count, streamed
from .plan import Plan
from .simulator import STREAMS_OF_A_WORD, Simulator, packed, unpacked
from .stages import stages_of

__all__ = ["MappedUnit", "Measured"]

_WORD = 32
#: Streams that are run at once, at most, and the cycles that each of fewer has at least.
_MOST_STREAMS, _CYCLES_OF_STREAM = 16 * STREAMS_OF_A_WORD, 64
#: Cycles of a stream at least, behind those in which the pipeline fills.
_LEAST_COUNTED = 8


@dataclass(frozen=True)
class Measured:
    """What a unit took.

    Attributes
    ----------
    instruction : Instruction
        What it multiplied.
    operands : str
        Their name.
    cycles : int
        Between which toggles were counted.
    products : int
        Kept products of a cycle.
    stages : dict of str to float
        Of a kept product, by stage, in the unit of the library: fJ, or gate equivalents that switch.
    toggles : float
        Of all nets, in a cycle, without the clock.
    glitches : float or None
        What of the total, in the same unit, is taken by what is gone when the netlist is settled; None where gates have
        no delay.
    what_if : dict of str to float
        Of a kept product, without glitches, if something was done otherwise; None where that cannot be. See
        :mod:`sptc.energy.what_if`; empty if nobody asked.
    """

    instruction: Instruction
    operands: str
    cycles: int
    products: int
    stages: dict[str, float]
    toggles: float
    glitches: float | None
    what_if: dict[str, float | None] = field(default_factory=dict)

    @property
    def total(self) -> float:
        """Of all stages, of a kept product."""
        return sum(self.stages.values())


class MappedUnit:
    """A decoder and a unit in library cells, with what their toggles take.

    Parameters
    ----------
    config : CoreConfig
        The array that the unit is one of.
    cells : CellLibrary
        Of what it is made.
    by_module : bool
        As for :func:`~sptc.energy.mapping.mapped_row`.
    glitches : bool
        Measure glitches, too, with a unit of time for every gate.

    Attributes
    ----------
    config : CoreConfig
        As given.
    scale : float
        From energies of the library's tables to those that are reported.
    netlist : MappedNetlist
        The cells.
    costs : Costs
        What toggles take.
    """

    def __init__(self, config: CoreConfig, cells: CellLibrary, *, by_module: bool, glitches: bool = False) -> None:
        self._cells, self._by_module = cells, by_module
        self._others: dict[tuple[str, ...], MappedUnit] = {}
        self.config = config
        self.scale = cells.electrical.scale
        self.netlist: MappedNetlist = mapped_row(config, cells.library, by_module=by_module)
        self.costs: Costs = costs_of(self.netlist, cells, stages_of(self.netlist, cells))
        self._plan = Plan.of(self.netlist, cells)
        self._plan_in_time = Plan.of(self.netlist, cells, glitches=True) if glitches else None

    def with_formats(self, formats: tuple[str, ...]) -> "MappedUnit":
        """Return the same unit with some of its formats alone, and no block scales; mapped once."""
        if formats not in self._others:
            config = replace(self.config, formats=formats, scales=())
            self._others[formats] = MappedUnit(config, self._cells, by_module=self._by_module)
        return self._others[formats]

    def run(self, steps: NDArray[np.uint32], *, glitches: bool = False) -> tuple[Activity, NDArray[np.uint8]]:
        """Run streams of steps, and count what they toggle once the pipeline is full of them.

        Parameters
        ----------
        steps : ndarray of uint32, shape (streams, cycles, words)
            One a cycle; the streams fill whole words of 64.
        glitches : bool
            Count glitches too, which must be what the unit was made for.

        Returns
        -------
        activity : Activity
            Of all streams together.
        results : ndarray of uint8, shape (streams, cycles, bits)
            What came out.
        """
        plan = self._plan_in_time if glitches else self._plan
        assert plan is not None
        streams, cycles, _ = steps.shape
        simulator = Simulator(plan, streams // STREAMS_OF_A_WORD)
        nets = self.netlist.inputs["step"]
        step, result = simulator.rows_of(nets), simulator.rows_of(self.netlist.outputs["result"])
        results = np.empty((streams, cycles, len(result)), np.uint8)
        for cycle in range(cycles):
            simulator.begin()
            bits = np.unpackbits(np.ascontiguousarray(steps[:, cycle]).view(np.uint8), axis=1, bitorder="little")
            simulator.put(step, packed(bits[:, : len(nets)]))
            simulator.settle(counted=cycle > self.config.latency)
            results[:, cycle] = unpacked(simulator.get(result))
        return Activity(simulator.cycles, simulator.toggles), results

    def compute(self, steps: NDArray[np.uint32]) -> tuple[NDArray[np.uint32], NDArray[np.bool_]]:
        """Return the results of steps, shape (steps, words), and whether a sum left 32 bits."""
        latency, given = self.config.latency, _in_streams(steps, self.config.latency)
        behind = np.zeros((len(given), latency, steps.shape[1]), np.uint32)
        _, results = self.run(np.concatenate([given, behind], axis=1))
        results = results[:, latency:].reshape(-1, results.shape[-1])[: len(steps)]
        d = np.packbits(results[:, :_WORD], axis=1, bitorder="little").view("<u4")[:, 0]
        return d, results[:, _WORD].astype(np.bool_)

    def measure(self, instruction: Instruction, arch: str, operands: MatrixOperands, name: str) -> Measured:
        """Measure an instruction.

        Parameters
        ----------
        instruction : Instruction
            What is multiplied, chained; one of ``mma`` or ``wgmma`` whose formats the unit has.
        arch : str
            Whose numerics the configuration has.
        operands : MatrixOperands
            Tiles with a chain along K, as :mod:`sptc.energy.operands` has them.
        name : str
            Of the operands.

        Raises
        ------
        Error
            As :func:`~sptc.energy.operands.streamed`.
        """
        steps = streamed(self.config, instruction, arch, operands, self.compute)
        activity, stages = self.taken(instruction, steps)
        glitches = None
        if self._plan_in_time:
            settled = sum(stages.values())
            activity, stages = self.taken(instruction, steps, glitches=True)
            glitches = sum(stages.values()) - settled
        toggles = sum(activity.toggles.values()) / activity.cycles
        return Measured(instruction, name, activity.cycles, self.products(instruction), stages, toggles, glitches)

    def taken(
        self, instruction: Instruction, steps: NDArray[np.uint32], *, glitches: bool = False
    ) -> tuple[Activity, dict[str, float]]:
        """Return the activity that steps of an instruction cause, and what a kept product takes, by stage."""
        activity, _ = self.run(_in_streams(steps, self.config.latency), glitches=glitches)
        products = self.products(instruction)
        return activity, {stage: self.scale * taken / products for stage, taken in self.costs.of(activity).items()}

    def products(self, instruction: Instruction) -> int:
        """Return the kept products of a cycle."""
        return min(self.config.step_bytes * 8 // instruction.container_bits, instruction.stored_k)

    def tiles(self, instruction: Instruction, cycles: int, chain: int = CHAIN) -> int:
        """Return how many tiles with a chain of so many instructions are measured in so many cycles."""
        config = self.config
        outputs = -(-instruction.m // config.rows) * -(-instruction.n // config.columns)
        of_tile = chain * outputs * step_count(config, instruction)
        return -(-(cycles + _streams_of(2 * cycles) * (config.latency + 1)) // of_tile)


def _streams_of(steps: int) -> int:
    """Return as how many streams steps are run."""
    return min(_MOST_STREAMS, max(1, steps // (_CYCLES_OF_STREAM * STREAMS_OF_A_WORD)) * STREAMS_OF_A_WORD)


def _in_streams(steps: NDArray[np.uint32], latency: int) -> NDArray[np.uint32]:
    """Return a stream of steps, shape (steps, words), cut into streams; where steps are missing, the first ones follow.

    Every stream goes on for some cycles behind those in which the pipeline fills.
    """
    streams = _streams_of(len(steps))
    cycles = max(-(-len(steps) // streams), latency + _LEAST_COUNTED)
    return np.resize(steps, (streams, cycles, steps.shape[1]))
