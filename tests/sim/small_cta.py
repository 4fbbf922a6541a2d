"""The tensor cores of CTAs of 64 lanes, a half of what there is, whose arrays echo: built in a fraction of the time.

Two partitions of tensor memory are left, of the four that are alike, and four arrays of eight.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sptc.rtl.tcgen05 import TCGEN05_ARRAY
from sptc.rtl.warp import ROWS
from sptc.sim.engine.compiled_tcgen05 import CompiledTcgen05
from sptc.sim.engine.echo import echoing_arrays
from sptc.sim.engine.tcgen05_commands import CtaCommand, CtaRun

__all__ = ["LANES", "SmallCta"]

LANES = 64


class SmallCta(CompiledTcgen05):
    """As :class:`~sptc.sim.engine.compiled_tcgen05.CompiledTcgen05`, of the first 64 lanes of tensor memory."""

    def __init__(self) -> None:
        super().__init__(TCGEN05_ARRAY, echoing_arrays(TCGEN05_ARRAY, ("-O0",)), LANES // ROWS)

    def run(
        self,
        commands: Sequence[CtaCommand],
        tmem: NDArray[np.uint32],
        smem: NDArray[np.uint8],
        pattern: NDArray[np.uint8] | None = None,
    ) -> CtaRun:
        """Run commands from reset on; `tmem` may have more lanes, which are left away."""
        return super().run(commands, tmem[:, :LANES], smem, pattern)
