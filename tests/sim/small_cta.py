"""The tensor cores of CTAs of 64 lanes, a half of what there is, whose arrays echo: built in a fraction of the time.

Two partitions of tensor memory are left, of the four that are alike, and four arrays of eight.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray
from sptc.rtl import tcgen05, tensor_memory, tensor_operands
from sptc.rtl.tcgen05 import TCGEN05_ARRAY
from sptc.rtl.warp import CHUNKS, ROWS
from sptc.sim.engine import compiled_tcgen05, tcgen05_driver
from sptc.sim.engine.compiled_tcgen05 import CompiledTcgen05, CtaCommand, CtaRun
from sptc.tests.sim.echoing_arrays import echoing_arrays

__all__ = ["LANES", "SmallCta"]

LANES = 64


@contextmanager
def _of_64_lanes() -> Iterator[None]:
    arrays = LANES // ROWS
    with pytest.MonkeyPatch.context() as patch:
        for module in (tcgen05, tensor_memory, tensor_operands, tcgen05_driver):
            patch.setattr(module, "TENSOR_LANES", LANES)
        patch.setattr(tcgen05, "ARRAYS", arrays)
        for name in ("Accumulators", "accumulator_memory_signature"):
            patch.setattr(tcgen05, name, partial(getattr(tcgen05, name), arrays=arrays))
        patch.setattr(compiled_tcgen05, "LANES", LANES)
        patch.setattr(compiled_tcgen05, "_FLAG_WORDS", LANES * CHUNKS // 32)
        yield


class SmallCta:
    """As :class:`~sptc.sim.engine.compiled_tcgen05.CompiledTcgen05`, of the first 64 lanes of tensor memory."""

    def __init__(self) -> None:
        self.config = TCGEN05_ARRAY
        with _of_64_lanes():
            self._hardware = CompiledTcgen05(self.config, echoing_arrays(self.config, ("-O0",)))

    def run(
        self,
        commands: Sequence[CtaCommand],
        tmem: NDArray[np.uint32],
        smem: NDArray[np.uint8],
        pattern: NDArray[np.uint8] | None = None,
    ) -> CtaRun:
        """Run commands from reset on; `tmem` may have more lanes, which are left away."""
        with _of_64_lanes():
            return self._hardware.run(commands, tmem[:, :LANES], smem, pattern)
