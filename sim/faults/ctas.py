"""Fault injection into the tensor cores of a CTA, alone and in a pair, with arrays that return hashes of operands.

The faults are in the first CTA of a pair; the second one is correct. A fault shows in the memories of either CTA, or in
outputs of either CTA that differ in any cycle from those without the fault.
"""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from amaranth.hdl import Assume
from numpy.typing import NDArray

from ...rtl.config import CoreConfig
from ...rtl.convert import to_rtlil
from ...rtl.tcgen05 import TCGEN05_ARRAY, CtaOperation, Tcgen05
from ...rtl.warp import ROWS
from ..benches.settings import Settings
from ..engine.compiled_tcgen05 import CtaModel, cta_constants, run_ctas
from ..engine.echo import ECHOING_PORTS, echoing_arrays
from ..engine.ports import clocked_ports
from ..engine.tcgen05_commands import CtaProgram, CtaRun
from .assumptions import AssumedArray, AssumedStream, assumed_control
from .mutants import REST, TOP, UNTOUCHED, Fault, mutated

__all__ = ["CtaRegression"]

#: Number of arrays of dot-product units in the design under test: only the two arrays of one partition of tensor
#: memory, since all four partitions are equal.
_ARRAYS = 2
_COMPONENTS = {
    # Module `placement`, which only flags undefined operand addresses, gets no faults: it has its own tests.
    UNTOUCHED: ("design.placement", *(f"design.array_{array}" for array in range(_ARRAYS))),
    "slots": ("design.slots",),
    "fetch": ("design.fetch", "design.requests_a", "design.requests_b"),
    "tensor_operands": ("design.tensor_operands",),
    "stored": ("design.stored_a", "design.words"),
    "accumulators": ("design.accumulators",),
    "commits": ("design.commits",),
    "tcgen05": REST,
}
#: Period of the random gap patterns, and maximum length of the runs that a reset ends early, both in cycles.
_PATTERN_CYCLES, _CUT_SHORT = 997, 400
#: Maximum number of cycles from the last result to the arrival of the last commit.
_ARRIVALS = 64


class _Run(NamedTuple):
    """Run of a test program, or of its first cycles. In a cycle, bit c of `pattern` offers CTA c its next command."""

    program: CtaProgram
    pattern: NDArray[np.uint8]
    is_whole: bool  #: Whether the run executes the whole program. If not, results are not compared.
    outputs: NDArray[np.uint32]  #: For each cycle, hash of the outputs without a fault


class CtaRegression:
    """Fault regression of a CTA's tensor cores; runs :class:`~sptc.sim.engine.tcgen05_commands.CtaProgram` objects."""

    def __init__(
        self, settings: Settings, faults: int, seed: int, folder: Path, programs: Iterable[CtaProgram]
    ) -> None:
        rng = np.random.default_rng(seed)
        config = replace(settings.config, rows=TCGEN05_ARRAY.rows, columns=TCGEN05_ARRAY.columns)
        stand_in = echoing_arrays(config)
        design, lanes = _design(settings, config), ROWS * _ARRAYS
        self.netlist = mutated(to_rtlil(design, TOP) + ECHOING_PORTS, TOP, _COMPONENTS, faults, seed, folder)
        faulty = replace(self.netlist, verilog=self.netlist.verilog + stand_in.module)
        library = faulty.compiled(folder, "tcgen05.cpp", cta_constants(lanes), clocked_ports(design))
        self._models = [CtaModel(library, stand_in.library) for _ in range(2)]
        gaps, always = rng.integers(0, 4, _PATTERN_CYCLES, np.uint8), np.full(1, 3, np.uint8)
        #: Each program runs twice: with a command offered in every cycle, and with random gaps. A run that a reset ends
        #: early precedes each of these two runs.
        self._runs = [
            self._recorded(program, pattern, cycles)
            for program in (_of_lanes(program, lanes) for program in programs)
            for pattern in (always, gaps)
            for cycles in (1 + int(rng.integers(_CUT_SHORT)), None)
        ]

    def first_failure(self, fault: Fault | None) -> int | None:
        """Run the programs; return the number of commands accepted before the first error, None without an error."""
        self._models[0].select_fault(fault.number if fault else 0)
        taken = 0
        for run in self._runs:
            actual = self._run(run, compares=True)
            taken += int(np.count_nonzero(actual.taken[:, 0] >= 0))
            if actual.broken or (run.is_whole and not _is_right(actual, run.program)):
                return taken
        return None

    def _recorded(self, program: CtaProgram, pattern: NDArray[np.uint8], cycles: int | None) -> _Run:
        """Run a test program without a fault for `cycles` cycles (None: to its end); return the run and its outputs."""
        if is_whole := cycles is None:
            done = run_ctas(self._models, program.commands, program.tmem, program.smem, pattern).done
            cycles = int(done.max()) + _ARRIVALS
        run = _Run(program, pattern, is_whole, np.zeros(cycles, np.uint32))
        self._run(run, compares=False)
        return run

    def _run(self, run: _Run, *, compares: bool) -> CtaRun:
        commands, tmem, smem = run.program.commands, run.program.tmem, run.program.smem
        return run_ctas(self._models, commands, tmem, smem, run.pattern, run.outputs, compares=compares)


def _design(settings: Settings, config: CoreConfig) -> AssumedStream:
    """Return a CTA's tensor cores whose arrays are separate instances and whose inputs are assumed to be valid."""
    cta = Tcgen05(config, _ARRAYS, warp_class=AssumedArray)
    command = cta.i.payload
    multiplies = cta.i.valid & (command.operation == CtaOperation.MULTIPLY)
    assumed = assumed_control(command.control, config, settings.arch, multiplies)
    # In a pair of CTAs, N (the number of columns of D) is a multiple of 16.
    assumed.d.comb += Assume(~(multiplies & command.pair) | command.last_panel[0])
    return AssumedStream(cta, assumed)


def _of_lanes(program: CtaProgram, lanes: int) -> CtaProgram:
    return replace(
        program,
        tmem=np.ascontiguousarray(program.tmem[:, :lanes]),
        expected=program.expected[:, :lanes],
        flags=program.flags[:, :, :lanes],
    )


def _is_right(actual: CtaRun, program: CtaProgram) -> bool:
    commits = sum(not command.n for command in program.commands)
    return (
        bool((actual.tmem == program.expected).all())
        and bool((np.concatenate(actual.illegal, axis=1) == program.flags).all())
        and not actual.undefined.any()
        and bool((actual.arrivals == commits).all())
    )
