"""Energy of a dot-product unit: simulate its mapped netlist with operands, and sum up the energies of all toggles."""

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from ...isa.instructions import Instruction
from ...isa.operands import MatrixOperands
from ...rtl.config import CoreConfig
from ...sim.engine.steps import step_count
from .costs import Activity, Costs, costs_of
from .electrical import CellLibrary
from .mapping import mapped_row
from .netlist import MappedNetlist
from .operands import CHAIN, streamed
from .plan import Plan
from .simulator import STREAMS_OF_A_WORD, Simulator, packed, unpacked
from .stages import stages_of

__all__ = ["MappedUnit", "Measured"]

_WORD = 32
#: Maximum number of parallel input streams in a simulation, and number of cycles that each stream should have at
#: least. A simulation of few cycles has fewer streams.
_MOST_STREAMS, _CYCLES_OF_STREAM = 16 * STREAMS_OF_A_WORD, 64
#: Minimum number of cycles per input stream in which toggles are counted, after the pipeline is full.
_LEAST_COUNTED = 8


@dataclass(frozen=True)
class Measured:
    """Measured energy of an instruction on a dot-product unit or on a warp."""

    instruction: Instruction
    operands: str
    cycles: int  #: Number of cycles in which toggles were counted
    products: int  #: Number of products of stored elements of A that the dot-product unit computes per cycle
    #: Energy per product of a stored element of A, by stage, in the unit of reports: fJ, or switched gate equivalents.
    stages: dict[str, float]
    toggles: float  #: Number of toggles per cycle of all nets except the clock
    #: Energy of glitches, per product of a stored element of A; a part of the total. None if gates have no delay.
    glitches: float | None
    #: Energy per product of a stored element of A, without glitches, after each change of the design in
    #: :mod:`sptc.synth.energy.what_if`. The energy is None for an impossible change. Empty if not requested.
    what_if: dict[str, float | None] = field(default_factory=dict)

    @property
    def total(self) -> float:
        """Energy per kept product (product of a stored element of A), summed over all stages."""
        return sum(self.stages.values())


class MappedUnit:
    """A metadata decoder and a dot-product unit, mapped to library cells, with the energy per toggle of each net.

    `by_module` is as for :func:`~sptc.synth.energy.mapping.mapped_row`. With `glitches`, glitches are measured too,
    with a delay of one time unit per gate. `scale` is the factor from energies of the library's tables to reported
    energies, `netlist` the mapped netlist, and `costs` the energies of toggles.
    """

    def __init__(self, config: CoreConfig, cells: CellLibrary, *, by_module: bool, glitches: bool = False) -> None:
        self._cells, self._by_module = cells, by_module
        self._others: dict[tuple[str, ...], MappedUnit] = {}
        self.config = config
        self.scale = cells.scale
        self.netlist: MappedNetlist = mapped_row(config, cells.library, by_module=by_module)
        self.costs: Costs = costs_of(self.netlist, cells, stages_of(self.netlist, cells))
        self._plan = Plan.of(self.netlist, cells)
        self._plan_in_time = Plan.of(self.netlist, cells, glitches=True) if glitches else None

    def with_formats(self, formats: tuple[str, ...]) -> "MappedUnit":
        """Return a (cached) dot-product unit, mapped to cells, with only these formats and no block scales."""
        if formats not in self._others:
            config = replace(self.config, formats=formats, scales=())
            self._others[formats] = MappedUnit(config, self._cells, by_module=self._by_module)
        return self._others[formats]

    def run(self, steps: NDArray[np.uint32], *, glitches: bool = False) -> tuple[Activity, NDArray[np.uint8]]:
        """Simulate the unit on parallel input sequences; return their total toggle counts, and the outputs.

        `steps` has one step per stream and cycle, shape (streams, cycles, words), for a multiple of 64 streams. Toggles
        are counted after the pipeline is full; with `glitches`, for which the unit must have been created, glitches are
        counted too. The outputs are bits, shape (streams, cycles, bits).
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
        """Return the 32-bit results for input words of shape (cycles, words), and flags of sums that exceed 32 bits."""
        latency, streams = self.config.latency, _in_streams(steps, self.config.latency)
        behind = np.zeros((len(streams), latency, steps.shape[1]), np.uint32)
        _, results = self.run(np.concatenate([streams, behind], axis=1))
        results = results[:, latency:].reshape(-1, results.shape[-1])[: len(steps)]
        d = np.packbits(results[:, :_WORD], axis=1, bitorder="little").view("<u4")[:, 0]
        return d, results[:, _WORD].astype(np.bool_)

    def measure(self, instruction: Instruction, arch: str, operands: MatrixOperands, name: str) -> Measured:
        """Measure the energy of an ``mma`` or ``wgmma`` in the unit's formats. `name` names the operands in reports.

        Each tile of the operands is a chain of instructions along K, see :mod:`sptc.synth.energy.operands`; errors are
        those of :func:`~sptc.synth.energy.operands.streamed`.
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
        """Simulate inputs `steps`. Return toggle counts, and energy per product of a stored element of A, by stage."""
        activity, _ = self.run(_in_streams(steps, self.config.latency), glitches=glitches)
        products = self.products(instruction)
        return activity, {stage: self.scale * taken / products for stage, taken in self.costs.of(activity).items()}

    def products(self, instruction: Instruction) -> int:
        """Return the number of products of stored elements of A that the dot-product unit computes per cycle."""
        return min(self.config.step_bytes * 8 // instruction.container_bits, instruction.stored_k)

    def tiles(self, instruction: Instruction, cycles: int, chain: int = CHAIN) -> int:
        """Return how many output tiles (M x N), with `chain` instructions along K each, take about `cycles` cycles."""
        config = self.config
        outputs = -(-instruction.m // config.rows) * -(-instruction.n // config.columns)
        of_tile = chain * outputs * step_count(config, instruction)
        return -(-(cycles + _streams_of(2 * cycles) * (config.latency + 1)) // of_tile)


def _streams_of(steps: int) -> int:
    return min(_MOST_STREAMS, max(1, steps // (_CYCLES_OF_STREAM * STREAMS_OF_A_WORD)) * STREAMS_OF_A_WORD)


def _in_streams(steps: NDArray[np.uint32], latency: int) -> NDArray[np.uint32]:
    """Split the input words of a dot-product unit, shape (cycles, words), into parallel streams of equal length.

    Steps are repeated to fill the streams. Every stream is longer than the latency of the pipeline.
    """
    streams = _streams_of(len(steps))
    cycles = max(-(-len(steps) // streams), latency + _LEAST_COUNTED)
    return np.resize(steps, (streams, cycles, steps.shape[1]))
