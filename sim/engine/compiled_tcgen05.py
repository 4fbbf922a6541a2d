"""Tensor cores of a CTA, or of a CTA pair, compiled by Verilator: commands and memories in, tensor memory out."""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...rtl.accumulators import ARRAYS
from ...rtl.config import CoreConfig
from ...rtl.tcgen05 import TCGEN05_ARRAY, Tcgen05
from ...rtl.warp import ROWS
from .array_units import CompiledTop, StandIn
from .tcgen05_commands import CtaCommand, CtaRun
from .tcgen05_driver import CtaModel, cta_driver, run_ctas

__all__ = ["CompiledTcgen05"]


class CompiledTcgen05(CompiledTop[list[CtaModel]]):
    """The tensor cores of two CTAs, by default with half of a tensor core of sm_100 as an array of 16 rows.

    Each array has 16 lanes of tensor memory. Fewer arrays than all need a stand-in.
    """

    top, title = "tcgen05", "tensor cores of a CTA"

    def __init__(
        self, config: CoreConfig = TCGEN05_ARRAY, stand_in: StandIn | None = None, arrays: int = ARRAYS
    ) -> None:
        assert stand_in or arrays == ARRAYS, "what is emitted has all arrays"
        driver = partial(cta_driver, lanes=ROWS * arrays)
        super().__init__(config, partial(Tcgen05, config, arrays), driver, ARRAYS, stand_in)

    def _create(self, units: Path) -> list[CtaModel]:
        return [CtaModel(self._library, units) for _ in range(2)]

    def run(
        self,
        commands: Sequence[CtaCommand],
        tmem: NDArray[np.uint32],
        smem: NDArray[np.uint8],
        pattern: NDArray[np.uint8] | None = None,
    ) -> CtaRun:
        """Run commands on one CTA or a pair from reset, until all results are written; see :func:`.run_ctas`.

        An AssertionError says that the hardware breaks a rule, or does not finish.
        """
        steps: Counter[int] = Counter()
        for command in commands:
            if command.n:
                steps[int(command.fields["control"].as_bits())] += tmem.shape[0] * tmem.shape[1] * command.n
        run = run_ctas(self._model(steps)[: len(tmem)], commands, tmem, smem, pattern)
        assert not run.broken, f"the tensor cores of a CTA: {run.broken}"
        return run
