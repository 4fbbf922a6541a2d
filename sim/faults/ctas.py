"""Fault regression of the tensor cores of a CTA, alone and in a pair, with arrays that return hashes of operands.

The faults are in the first CTA of a pair; the second one is correct. A fault shows in the memories of
either CTA, in the number of their reads, or in the cycles in which commands are accepted and end.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np

from ...rtl.convert import to_rtlil
from ...rtl.tcgen05 import TCGEN05_ARRAY, Tcgen05
from ...rtl.warp import ROWS
from ..benches.settings import Settings
from ..engine.compiled_tcgen05 import CtaModel, cta_driver, run_ctas
from ..engine.echo import ECHOING_PORTS, echoing_arrays
from ..engine.ports import clocked_ports
from ..engine.tcgen05_commands import CtaProgram, CtaRun
from .assumptions import AssumedStream
from .compiled import TOP, compile_faulty
from .mutants import REST, UNTOUCHED, Fault, mutated

__all__ = ["CtaRegression"]

#: Number of arrays in the design under test: only the two arrays of one partition of tensor memory, since all four
#: partitions are equal.
_ARRAYS = 2
_COMPONENTS = {
    # No faults are injected into the placement checker, which only raises flags and has its own tests.
    UNTOUCHED: ("design.placement",),
    "slots": ("design.slots",),
    "fetch": ("design.fetch", "design.requests_a", "design.requests_b"),
    "tensor_operands": ("design.tensor_operands",),
    "stored": ("design.stored_a", "design.words"),
    "accumulators": ("design.accumulators",),
    "commits": ("design.commits",),
    "tcgen05": REST,
}
#: Period of the random gap patterns, in cycles, and length of the first run in cycles, which ends with a reset.
_PATTERN_CYCLES, _CUT_SHORT = 997, 300


class CtaRegression:
    """Fault regression of a CTA's tensor cores; runs a :class:`~sptc.sim.engine.tcgen05_commands.CtaProgram`."""

    def __init__(self, settings: Settings, faults: int, seed: int, folder: Path) -> None:
        rng = np.random.default_rng(seed)
        config = replace(settings.config, rows=TCGEN05_ARRAY.rows, columns=TCGEN05_ARRAY.columns)
        stand_in = echoing_arrays(config)
        design = AssumedStream(Tcgen05(config, _ARRAYS, warp_class=stand_in.warp_class))
        ports, lanes = clocked_ports(design), ROWS * _ARRAYS
        self.netlist = mutated(to_rtlil(design, TOP) + ECHOING_PORTS, TOP, _COMPONENTS, faults, seed, folder)
        faulty = replace(self.netlist, verilog=self.netlist.verilog + stand_in.module)
        library = compile_faulty(faulty, cta_driver(ports, TOP, lanes=lanes), folder)
        self._models = [CtaModel(library, stand_in.library) for _ in range(2)]
        program = CtaProgram.read(Path(settings.jobs))
        self._program = replace(
            program,
            tmem=np.ascontiguousarray(program.tmem[:, :lanes]),
            expected=program.expected[:, :lanes],
            flags=program.flags[:, :, :lanes],
        )
        # Three runs: one with random gaps, ended early by a reset; one with a command offered in every cycle; one with
        # other random gaps.
        gaps = [rng.integers(0, 4, _PATTERN_CYCLES, np.uint8) for _ in range(2)]
        self._runs = [(gaps[0], _CUT_SHORT), (np.full(1, 3, np.uint8), None), (gaps[1], None)]
        self._right = [self._run(number) for number in range(len(self._runs))]

    def first_failure(self, fault: Fault | None) -> int | None:
        """Run the program; return the number of commands accepted before the first error, None without an error."""
        self._models[0].select_fault(fault.number if fault else 0)
        taken = 0
        for number, right in enumerate(self._right):
            run = self._run(number)
            taken += int(np.count_nonzero(run.taken[:, 0] >= 0))
            is_complete = self._runs[number][1] is None
            if run.broken or (is_complete and not self._is_right(run, right)):
                return taken
        return None

    def _run(self, number: int) -> CtaRun:
        program, (pattern, cycles) = self._program, self._runs[number]
        limit = {} if cycles is None else {"cycles": cycles}
        return run_ctas(self._models, program.commands, program.tmem, program.smem, pattern, **limit)

    def _is_right(self, run: CtaRun, right: CtaRun) -> bool:
        """Return whether a run has the expected results, and the reads and cycles of the design without faults."""
        program = self._program
        commits = sum(not command.n for command in program.commands)
        return (
            bool((run.tmem == program.expected).all())
            and bool((np.concatenate(run.illegal, axis=1) == program.flags).all())
            and not run.undefined.any()
            and bool((run.arrivals == commits).all())
            and all(
                bool((getattr(run, name) == getattr(right, name)).all())
                for name in ("reads", "columns", "taken", "done")
            )
        )
