"""Fault injection into a warpgroup with commit groups, two concurrent multiplications, and concurrent ``mma``."""

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...isa.memory import UNIT_BYTES
from ...isa.timing import RegisterCycles
from ...rtl.convert import to_rtlil
from ...rtl.emit import unit_instance, unit_of
from ...rtl.fetch import CORE_MATRICES
from ...rtl.life_cycle import Operation
from ...rtl.round import ResultCode
from ...rtl.tensor_cores import WARPS, mma_layout, ready_cycles
from ...rtl.unit import Unit
from ...rtl.warp import FRAGMENT, Warp, warp_operands_layout, warp_result_layout
from ...rtl.warpgroup import Warpgroup, warpgroup_layout
from ..benches.items import Item, warp_items
from ..benches.settings import Settings
from ..benches.warpgroup_items import Command, Job, commands
from ..engine.array_units import ARRAY
from ..engine.compiled_warpgroup import CArray, CCommand, CInstruction, CWork, GroupModel, group_constants
from ..engine.driver import CycleBits
from ..engine.ports import clocked_ports
from ..engine.warp_operands import RESULT_WORDS
from .assumptions import AssumedArray, AssumedStream, assumed_control
from .mutants import REST, TOP, UNTOUCHED, Fault, mutated
from .streams import joined, stream_pattern

__all__ = ["WarpgroupRegression"]

#: Path of the submodule that contains the tensor cores of the design.
_CORES = "design.tensor_cores"
#: Number of distinct ``mma`` instructions in the test, which are offered in turn.
_BESIDE = 64
#: Maximum number of cycles from the last result to the completion of the last commit group.
_TAIL = 64
#: Submodules of each component. The first entry lists modules without injected faults: warps, which have a fault
#: regression of their own, and the checker of undefined ``wgmma`` usage, which only raises flags and has its own tests.
_COMPONENTS = {
    UNTOUCHED: (*(f"{_CORES}.core_{core}.warp" for core in range(WARPS)), "design.commands_0.life_cycle"),
    "operand_fetch": (f"{_CORES}.fetch",),
    "tensor_core": tuple(f"{_CORES}.core_{core}" for core in range(WARPS)),
    "warpgroup": REST,
}


class WarpgroupRegression:
    """Fault regression of a warpgroup with faults outside its warps; the regression of a warp covers faults inside."""

    def __init__(self, settings: Settings, faults: int, seed: int, folder: Path, jobs: list[Job]) -> None:
        rng, config = np.random.default_rng(seed), settings.config
        registers = _registers(config.warp_blocks)
        pace, panels = 2 * config.warp_blocks, sum(len(job.panels) for job in jobs)
        design = _design(settings, registers)
        array, unit = to_rtlil(Warp(config, unit_instance(TOP)), ARRAY), to_rtlil(Unit(config), unit_of(TOP))
        text = "\n".join((to_rtlil(design, TOP), array, unit))
        self.netlist = mutated(text, TOP, _COMPONENTS, faults, seed, folder, whole=ARRAY)
        library = self.netlist.compiled(folder, "warpgroup.cpp", group_constants(), clocked_ports(design))
        self._model = GroupModel(library)
        self._buffers: list[object] = []  # references to the data to which C structures point
        issued = [*commands(iter(jobs), rng)]
        beside = list(islice(warp_items(config, settings.arch, rng), _BESIDE))
        cycles = 6 * panels * pace
        pattern = stream_pattern(rng, pace, cycles) | _pattern_beside(rng, pace, cycles)
        busy = _with_long_stalls(rng, _with_more_offers(rng, pattern), pace)
        self._arrays = self._instructions(beside, registers, busy)
        grouped = [*commands(iter(_shortest_first(jobs)), rng, many_groups=True)]
        #: Commands and ``mma`` instructions of three runs. In the second and the third run, many instructions and
        #: commit groups are in flight.
        self._works = [
            self._work(issued, pattern, registers, pace),
            self._work(grouped, busy, registers, pace),
            self._work(grouped, _with_long_stalls(rng, pattern, pace), registers, pace),
        ]
        for work in self._works:
            self._record(work)

    def first_failure(self, fault: Fault | None) -> int | None:
        """Run the warpgroup's commands. Return how many accumulators were accepted before a violation, or None.

        A fault also shows in outputs that differ in any cycle from those without the fault.
        """
        self._model.select_fault(fault.number if fault else 0)
        before = 0
        for work in self._works:
            broken = self._run(work, compares=True)
            before += work.accepted
            if broken:
                return before
        return None

    def _record(self, work: CWork) -> None:
        """Run the warpgroup's commands without a fault; record the run's length, and a hash of all outputs a cycle."""
        self._run(work, compares=False)
        accepted, ended = zip(*((one.taken, one.done) for one in work.commands[: work.count]), strict=True)
        assert min(accepted) >= 0, "the run is too short for its commands"
        work.cycles = max(*accepted, *ended) + _TAIL
        work.outputs = self._address(np.zeros(work.cycles, np.uint32))
        self._run(work, compares=False)

    def _run(self, work: CWork, *, compares: bool) -> str:
        """Run the commands; return the rule that the hardware breaks as text, or an empty text if all rules hold."""
        work.compares = compares
        for array in self._arrays:
            array.issued = array.answered = 0
        for command in work.commands[: work.count]:
            command.taken = command.done = -1
        return self._model.run_driver(work)

    def _work(self, issued: list[Command], pattern: NDArray[np.uint16], registers: RegisterCycles, pace: int) -> CWork:
        described = (CCommand * len(issued))()
        for command, record in zip(issued, described, strict=True):
            self._describe(command, record, registers)
        work = CWork(described, self._arrays, self._address(pattern), len(issued), len(pattern))
        work.cycles = work.patience = len(pattern)
        work.longest_wait, work.longest_silence = 8 * pace + 64, 1_000 * pace
        work.ends_with_commands = True
        return work

    def _address(self, array: NDArray) -> int:
        """Return the memory address of an array for the C++ driver, and keep the array alive."""
        self._buffers.append(array)
        return array.ctypes.data

    def _describe(self, command: Command, described: CCommand, registers: RegisterCycles) -> None:
        described.payload = self._address(joined([command.payload], warpgroup_layout().size))
        described.operation, described.pending = command.operation.value, command.pending
        if (job := command.job) is None:
            return
        described.image = self._address(joined(job.memory, 8 * UNIT_BYTES))
        described.c = self._address(joined((panel.payload for panel in job.panels), WARPS * FRAGMENT.size))
        expected = joined((panel.expected for panel in job.panels), WARPS * warp_result_layout().size)
        described.expected = self._address(expected)
        described.results = self._address(np.zeros_like(expected))
        described.panels, described.first_unit, described.image_units = len(job.panels), job.base, len(job.memory)
        described.reads, described.ready = job.reads, _ready(registers, job)

    def _instructions(self, items: list[Item], registers: RegisterCycles, pattern: NDArray[np.uint16]) -> Any:
        """Return ``mma`` for each tensor core: `items`, repeated until there is one for each offer in `pattern`."""
        payloads = [self._address(joined([item.payload], mma_layout().size)) for item in items]
        results = [self._address(joined([item.expected], warp_result_layout().size)) for item in items]
        answer = self._address(np.zeros(RESULT_WORDS, np.uint32))
        operands = [warp_operands_layout().from_bits(item.payload) for item in items]
        # For each ``mma``, minimum number of cycles from its start to the start of the next ``mma``.
        intervals = [registers.of_mma[bool(one.control.sparse), bool(one.long)] for one in operands]
        offered = pattern[pattern & CycleBits.OFFER_MMA != 0] // CycleBits.ARRAY % WARPS
        arrays = (CArray * WARPS)()
        for core, count in enumerate(np.bincount(offered, minlength=WARPS)):
            # Each tensor core gets one instruction more than the pattern offers, so that its list never runs empty.
            instructions = (CInstruction * (int(count) + 1))()
            for number, instruction in enumerate(instructions):
                place = (WARPS * number + core) % len(items)
                instruction.payload, instruction.expected, instruction.result = payloads[place], results[place], answer
                instruction.after, instruction.interval = -1, intervals[place]
            arrays[core].instructions, arrays[core].count = instructions, len(instructions)
        return arrays


def _pattern_beside(rng: np.random.Generator, pace: int, cycles: int) -> NDArray[np.uint16]:
    """Return random ``mma`` events per cycle: acceptance of results, and offers, even to a tensor core that is full.

    An ``mma`` that waits behind a stalled result keeps its array busy, so no ``mma`` is offered for two thirds of the
    time.
    """
    draws, is_quiet = rng.random(cycles) * 16 * pace, np.zeros(cycles, np.bool_)
    quiet = True
    for cycle, draw in enumerate(draws.tolist()):
        quiet ^= draw < (1 if quiet else 2)
        is_quiet[cycle] = quiet
    offered = ~is_quiet & (rng.random(cycles) < 2 / pace)
    bits = CycleBits.BLIND | rng.integers(WARPS, size=cycles, dtype=np.uint16) * CycleBits.ARRAY
    bits |= np.where(offered, CycleBits.OFFER_MMA, 0).astype(np.uint16)
    for core in range(WARPS):
        bits |= np.where(rng.random(cycles) < 0.75, CycleBits.TAKE_MMA << core, 0).astype(np.uint16)
    return bits.astype(np.uint16)


def _shortest_first(jobs: list[Job]) -> list[Job]:
    """Return the instructions sorted by N, but so that successive ones use alternate halves of shared memory."""
    halves = [sorted(jobs[half::2], key=lambda job: len(job.panels)) for half in range(2)]
    return [job for pair in zip(*halves, strict=False) for job in pair]


def _with_more_offers(rng: np.random.Generator, pattern: NDArray[np.uint16]) -> NDArray[np.uint16]:
    """Return a pattern of handshakes: commands and accumulators offered in all cycles, ``mma`` in at least 25 %."""
    result = pattern | np.uint16(CycleBits.OFFER | CycleBits.OFFER_C)
    result[rng.random(len(pattern)) < 0.25] |= np.uint16(CycleBits.OFFER_MMA)
    return result


def _with_long_stalls(rng: np.random.Generator, pattern: NDArray[np.uint16], pace: int) -> NDArray[np.uint16]:
    """Return a pattern of handshakes in which results of ``wgmma`` and of ``mma`` on each tensor core wait many cycles.

    Many instructions are then in flight, and results of a panel wait behind those of an ``mma`` on one tensor core.
    """
    result = pattern.copy()
    for bit in (CycleBits.TAKE, *(CycleBits.TAKE_MMA << core for core in range(WARPS))):
        is_stalled = np.repeat(rng.random(len(pattern)) < 0.2, 2 * pace)[: len(pattern)]
        result[is_stalled] &= np.uint16(0xFFFF ^ bit)
    return result


def _registers(blocks: int) -> RegisterCycles:
    """Return the minimum cycles between ``mma`` of each kind: all different, and more than a tensor core needs."""
    cases = [(False, False), (False, True), (True, False), (True, True)]
    return RegisterCycles(of_mma={case: blocks + 3 + 5 * number for number, case in enumerate(cases)})


def _ready(registers: RegisterCycles, job: Job) -> int:
    """Return the cycles from acceptance of a multiplication that runs alone to acceptance of its first accumulators."""
    command = warpgroup_layout().from_bits(job.instruction)
    sparse, narrow = bool(command.control.sparse), command.control.result == ResultCode.F16 or not command.last_panel
    of_a = 0 if command.a_shared else registers.of_wgmma(sparse=sparse, narrow=narrow)
    return ready_cycles(of_a, command.last_panel + 1, CORE_MATRICES if sparse else CORE_MATRICES // 2)


def _design(settings: Settings, registers: RegisterCycles) -> AssumedStream:
    """Return a warpgroup whose arrays are separate instances and whose inputs are assumed to be valid instructions."""
    config = settings.config
    warpgroup = Warpgroup(config, registers, warp_class=AssumedArray)
    command, mma = warpgroup.i.payload, warpgroup.mma
    multiplies = warpgroup.i.valid & (command.operation == Operation.MULTIPLY)
    control = assumed_control(command.control, config, settings.arch, multiplies)
    control.submodules.beside = assumed_control(mma.payload.operands.control, config, settings.arch, mma.valid)
    return AssumedStream(warpgroup, control)
