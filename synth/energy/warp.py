"""Energy of a warp: gathering operands from registers, the array of dot-product units, and scattering results."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count

import numpy as np
from numpy.typing import NDArray

from ...errors import Error
from ...golden.matrix import multiply
from ...isa.fragments import a_fragment, accumulator_fragment, b_fragment
from ...isa.instructions import Instruction
from ...isa.operands import HeldOperands, MatrixOperands
from ...operands.registers import pack_nibbles, to_registers
from ...rtl.config import CoreConfig
from ...rtl.emit import unit_of
from ...rtl.warp import warp_operands_layout
from ...sim.engine.steps import step_count
from ...sim.engine.warp_operands import warp_words
from ..netlist import TOP, around_units, unit
from .costs import Activity, Costs, costs_of, net_loads
from .electrical import CellLibrary
from .mapping import mapped
from .measure import Measured
from .netlist import Bit, MappedNetlist
from .operands import CHAIN
from .plan import Plan
from .simulator import STREAMS_OF_A_WORD, Lanes, Simulator, packed, unpacked
from .stages import stages_of

__all__ = ["MappedWarp"]

_LANES, _REGISTERS = 32, 4


@dataclass(frozen=True)
class _Item:
    """One instruction per parallel simulation: bits of its operand registers, and expected result registers."""

    payload: NDArray[np.uint8]
    d: NDArray[np.uint32]


class MappedWarp:
    """A warp mapped to library cells: one netlist for its dot-product units, and one for the logic around them.

    Instructions follow each other without a pause, with operands in registers. The accumulators of a chain are also
    read from registers, as if instructions of other warps were executed between those of the chain. Raise an `Error` if
    the configuration does not serve a warp, or has no register after the rounding.
    """

    def __init__(self, config: CoreConfig, cells: CellLibrary) -> None:
        if "round" not in config.cuts:
            raise Error("the energy of a warp is measured only with a register after rounding (--cuts round)")
        self._scale = cells.scale
        self.config = config
        self._around: MappedNetlist = mapped(around_units(config, "warp"), cells.library, boxes=[unit_of(TOP)])
        self._unit: MappedNetlist = mapped(unit(config), cells.library)
        self._plans = Plan.of(self._around, cells), Plan.of(self._unit, cells)
        kept = {
            net
            for kind, pins in self._unit.cells.values()
            for pin, net in pins.items()
            if cells.is_register(kind) and (kind, pin) in cells.functions
        }
        if not kept.issuperset(self._unit.outputs["result"]):
            raise Error(
                "the energy of a warp can be measured only if registers, not gates, drive the results of its units"
            )
        inside = dict.fromkeys({box.module for box in self._around.boxes.values()}, self._unit)
        self._costs: tuple[Costs, Costs] = (
            costs_of(self._around, cells, stages_of(self._around, cells, of_warp=True), inside=inside),
            costs_of(self._unit, cells, stages_of(self._unit, cells), outside=self._outside_loads(cells)),
        )

    def _outside_loads(self, cells: CellLibrary) -> dict[Bit, float]:
        """Return the external load in pF of each result bit of a dot-product unit: the mean over all units."""
        loads, boxes = net_loads(self._around, cells), self._around.boxes.values()
        return {
            net: sum(loads.get(box.ports["result"][place], 0.0) for box in boxes) / len(boxes)
            for place, net in enumerate(self._unit.outputs["result"])
        }

    def _interval(self, instruction: Instruction) -> int:
        """Return the interval, in cycles, between the starts of two successive instructions of a warp."""
        return self.config.warp_interval(step_count(self.config, instruction))

    def _uncounted(self, instruction: Instruction) -> int:
        """Return the number of initial instructions whose toggles are not counted, as the pipeline is not yet full."""
        return 1 + -(-(self.config.latency + 2) // self._interval(instruction))

    def tiles(self, instruction: Instruction, cycles: int, chain: int = CHAIN) -> int:
        """Return how many output tiles, each of `chain` instructions along K, occupy the warp for `cycles` cycles."""
        of_instruction = self._interval(instruction) * len(self._around.boxes) * STREAMS_OF_A_WORD
        instructions = self._uncounted(instruction) + -(-cycles // of_instruction)
        return -(-instructions // chain) * STREAMS_OF_A_WORD

    def measure(self, instruction: Instruction, arch: str, operands: MatrixOperands, name: str) -> Measured:
        """Measure an ``mma`` with 16 rows whose formats the units support. `name` is the operands' name in reports.

        Each tile of the operands is a chain of instructions along K, see :mod:`sptc.synth.energy.operands`; tiles that
        do not fill all streams are left out. Raise an `Error` if the results of warp and golden model differ, or there
        are too few tiles.
        """
        items = [*_items(self.config, instruction, arch, operands)]
        uncounted = self._uncounted(instruction)
        if len(items) <= uncounted:
            raise Error(
                f"{len(operands.a)} output tiles are too few to measure a warp: {STREAMS_OF_A_WORD} tiles run in "
                f"parallel, so there are {len(items)} successive instructions, but more than {uncounted} are needed"
            )
        around, units, results = self._run(items, uncounted)
        for item, d in zip(items, results, strict=True):
            if (item.d != d).any():
                raise Error(
                    f"the netlist of the warp gives wrong results for {instruction} of {arch}, so no energy is given"
                )
        counted = (len(items) - uncounted) * STREAMS_OF_A_WORD
        products = instruction.m * instruction.n * instruction.stored_k * counted
        stages: dict[str, float] = {}
        for costs, activity in zip(self._costs, (around, units), strict=True):
            for stage, taken in costs.of(activity).items():
                stages[stage] = stages.get(stage, 0.0) + self._scale * taken * activity.cycles / products
        # Nets at the ports of dot-product units are counted as nets of the logic around the units, and not as nets of
        # the units.
        ports = {net for nets in (*self._unit.inputs.values(), *self._unit.outputs.values()) for net in nets}
        inside = sum(count for net, count in units.toggles.items() if net not in ports)
        toggles = (sum(around.toggles.values()) + inside) / units.cycles
        return Measured(instruction, name, units.cycles, products // units.cycles, stages, toggles, None)

    def _run(self, items: list[_Item], uncounted: int) -> tuple[Activity, Activity, list[NDArray[np.uint32]]]:
        """Simulate a warp; return toggle counts around dot-product units, toggle counts of these units, and results."""
        boxes = self._around.boxes.values()
        around, units = Simulator(self._plans[0], 1), Simulator(self._plans[1], len(boxes))
        of_boxes = {
            port: around.rows_of([net for box in boxes for net in box.ports[port]])
            for port in ("step", "enable", "result")
        }
        of_unit = {
            port: units.rows_of((self._unit.outputs if port == "result" else self._unit.inputs)[port])
            for port in of_boxes
        }
        ports = {name: around.rows_of(nets) for name, nets in {**self._around.inputs, **self._around.outputs}.items()}
        yes, no = np.full((1, 1), ~np.uint64(0)), np.zeros((1, 1), np.uint64)
        results: list[NDArray[np.uint32]] = []
        accepted = 0
        around.put(ports["o__ready"], yes)
        for cycle in count():
            for simulator in (around, units):
                simulator.begin()
            around.put(ports["rst"], yes if cycle == 0 else no)
            around.put(ports["i__valid"], yes if cycle and accepted < len(items) else no)
            if accepted < len(items):
                around.put(ports["i__payload"], packed(items[accepted].payload))
            around.put(of_boxes["result"], _outside(units.get(of_unit["result"]), len(boxes)))
            counted = uncounted <= accepted < len(items)
            around.settle(counted=counted)
            for port in ("step", "enable"):
                units.put(of_unit[port], _inside(around.get(of_boxes[port]), len(boxes)))
            units.settle(counted=counted)
            if cycle and around.get(ports["o__valid"]).any():
                bits = unpacked(around.get(ports["o__payload"]))[:, : 32 * _LANES * _REGISTERS]
                words = np.packbits(np.ascontiguousarray(bits), axis=1, bitorder="little").view("<u4")
                results.append(words.reshape(-1, _LANES, _REGISTERS))
            if len(results) == len(items):
                break
            accepted += bool(cycle and accepted < len(items) and around.get(ports["i__ready"]).any())
        return Activity(around.cycles, around.toggles), Activity(units.cycles, units.toggles), results


def _outside(lanes: Lanes, boxes: int) -> Lanes:
    """Convert net values of all instances of a module from shape (nets, instances) to shape (instances x nets, 1)."""
    return lanes.reshape(-1, boxes).T.reshape(-1, 1)


def _inside(lanes: Lanes, boxes: int) -> Lanes:
    """Convert net values of all instances of a module from shape (instances x nets, 1) to shape (nets, instances)."""
    return np.ascontiguousarray(lanes.reshape(boxes, -1).T)


def _items(config: CoreConfig, i: Instruction, arch: str, operands: MatrixOperands) -> Iterator[_Item]:
    """Yield instructions with operands for all parallel simulations. Each computes one output tile after another."""
    bits = warp_operands_layout().size
    for first in range(0, len(operands.a) - STREAMS_OF_A_WORD + 1, STREAMS_OF_A_WORD):
        chains = operands.take(slice(first, first + STREAMS_OF_A_WORD))
        c = chains.c
        for step in chains.steps(i):
            of_step = replace(step, c=c)
            c = multiply(i, arch, of_step)
            words = warp_words(config, i, _held(i, of_step))
            payload = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little")[:, :bits]
            d = np.zeros((STREAMS_OF_A_WORD, _LANES, _REGISTERS), np.uint32)
            packed_d = to_registers(c, accumulator_fragment(i))
            d[..., : packed_d.shape[2]] = packed_d
            yield _Item(payload, d)


def _held(i: Instruction, matrices: MatrixOperands) -> HeldOperands:
    """Convert matrices to the operand registers of a warp."""
    fragments = {"a": a_fragment(i), "b": b_fragment(i), "c": accumulator_fragment(i)}
    arrays = {name: to_registers(getattr(matrices, name), fragment) for name, fragment in fragments.items()}
    if matrices.nibbles is not None:
        others = np.zeros((len(matrices.a), _LANES), np.uint32)
        arrays["e"] = pack_nibbles(matrices.nibbles, i, 0, others)
    return HeldOperands(arrays)
