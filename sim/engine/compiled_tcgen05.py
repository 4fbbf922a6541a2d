"""Tensor cores of a CTA, or of a CTA pair, compiled by Verilator: commands and memories in, tensor memory out."""

import ctypes
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...infra.cache import built
from ...infra.compiler import progress
from ...infra.verilator import compile_library
from ...rtl.accumulators import ARRAYS
from ...rtl.cells.platforms import OPERATORS
from ...rtl.config import CoreConfig
from ...rtl.convert import to_verilog
from ...rtl.emit import emit
from ...rtl.tcgen05 import TCGEN05_ARRAY, Tcgen05
from ...rtl.warp import ROWS
from .array_units import UNIT, StandIn, unit_drivers, unit_module
from .fingerprint import Sources, fingerprint
from .libraries import Libraries
from .ports import ports_only
from .tcgen05_commands import CtaCommand, CtaRun
from .tcgen05_driver import CtaModel, cta_driver, run_ctas

__all__ = ["CompiledTcgen05"]

#: Top module.
TOP = "tcgen05"


class CompiledTcgen05:
    """The tensor cores of two CTAs compiled by Verilator, loaded into this process.

    Parameters
    ----------
    config : CoreConfig
        Datapath of an array of 16 rows, by default half of a tensor core of sm_100. It is built on first use and cached
        in :func:`~sptc.infra.cache.cache_folder`.

    stand_in : StandIn, optional
        Replaces the arrays; results are then those of the stand-in.
    arrays : int
        Number of arrays, each with 16 lanes of tensor memory. Fewer than all need a stand-in.

    Raises
    ------
    BackendError
        The simulator or a compiler is missing or fails; one sentence that says what to install.
    """

    def __init__(
        self, config: CoreConfig = TCGEN05_ARRAY, stand_in: StandIn | None = None, arrays: int = ARRAYS
    ) -> None:
        assert stand_in or arrays == ARRAYS, "what is emitted has all arrays"
        self.config, self._stand_in = config, stand_in
        self._arrays = arrays
        sources = cta_driver(ports_only(lambda: Tcgen05(config, arrays)), ROWS * arrays, TOP)
        others = () if stand_in is None else (stand_in.module, *stand_in.optimisation)
        library = built(f"tcgen05-{fingerprint(config, sources, *others)}.so", lambda path: self._build(sources, path))
        self._library = ctypes.CDLL(str(library))
        self._units = Libraries(config, "unit", UNIT, *unit_drivers(config, ARRAYS))
        self._models: dict[Path, list[CtaModel]] = {}
        if stand_in is None:
            self._units.of_every_instruction()

    def _build(self, sources: Sources, library: Path) -> None:
        progress(f"building the {self.config.name} tensor cores of a CTA: elaborating")
        if self._stand_in is not None:
            component = Tcgen05(self.config, self._arrays, warp_class=self._stand_in.warp_class)
            cores = to_verilog(component, TOP, platform=OPERATORS) + self._stand_in.module
            compile_library(cores, TOP, sources, library, optimisation=self._stand_in.optimisation)
            return
        cores = emit(self.config, "tcgen05", TOP, platform=OPERATORS, with_unit=False)
        compile_library(cores + unit_module(self.config, TOP), TOP, sources, library)

    def _ctas(self, steps: Counter[int]) -> list[CtaModel]:
        """Return the models of two CTAs with the best units for `steps`, the number of steps by control word."""
        path = self._units.of(steps) if self._stand_in is None else self._stand_in.library
        if path not in self._models:
            self._models[path] = [CtaModel(self._library, path) for _ in range(2)]
        return self._models[path]

    def run(
        self,
        commands: Sequence[CtaCommand],
        tmem: NDArray[np.uint32],
        smem: NDArray[np.uint8],
        pattern: NDArray[np.uint8] | None = None,
    ) -> CtaRun:
        """Run commands on one CTA or a pair from reset, until all results are written.

        Parameters
        ----------
        commands, tmem, smem, pattern
            As for :func:`~sptc.sim.engine.tcgen05_driver.run_ctas`.

        Raises
        ------
        AssertionError
            The hardware breaks a rule, or does not finish.
        """
        steps: Counter[int] = Counter()
        for command in commands:
            if command.n:
                steps[int(command.fields["control"].as_bits())] += tmem.shape[0] * tmem.shape[1] * command.n
        run = run_ctas(self._ctas(steps)[: len(tmem)], commands, tmem, smem, pattern)
        assert not run.broken, f"the tensor cores of a CTA: {run.broken}"
        return run
