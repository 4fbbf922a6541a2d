"""A warp compiled by Verilator: instructions of ``mma`` with their registers in, results and their cycles out."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...isa.instructions import Instruction
from ...isa.operands import HeldOperands
from ...rtl.config import CoreConfig
from ...rtl.warp import COLUMNS, ROWS, Warp
from .array_units import CompiledTop
from .driver import CycleBits
from .steps import control_word
from .stream_model import StreamModel, stream_driver
from .warp_operands import RESULT_WORDS, warp_results, warp_words

__all__ = ["CompiledWarp", "WarpRun"]

#: Cycles without a due result after which the warp counts as hung.
_PATIENCE = 1 << 14
#: An instruction is offered and a result taken in every cycle.
_ALWAYS = np.array([CycleBits.OFFER | CycleBits.TAKE], np.uint16)


@dataclass(frozen=True, eq=False)
class WarpRun:
    """Results of instructions that a warp executed one after the other."""

    d: NDArray[np.uint32]  #: Result registers, shape (cases, 32, registers)
    #: Flags of undefined nibbles by row and chunk, shape (cases, 16, 16).
    illegal: NDArray[np.bool_]
    #: Cycles in which each instruction was accepted, and in which its result came out; shape (cases,).
    accepted: NDArray[np.int64]
    done: NDArray[np.int64]


class CompiledWarp(CompiledTop[StreamModel]):
    """A warp; parameters as for :class:`~sptc.sim.engine.array_units.CompiledTop`."""

    top = title = "warp"

    def __init__(self, config: CoreConfig) -> None:
        super().__init__(config, partial(Warp, config), stream_driver, arrays=1)

    def _create(self, units: Path) -> StreamModel:
        return StreamModel(self._library, units)

    def run(self, instruction: Instruction, operands: HeldOperands) -> WarpRun:
        """Execute an instruction on each case of its operands, one after the other from reset on.

        The instruction is one of ``mma`` with 16 rows, whose formats the datapath has. An AssertionError says that the
        hardware breaks a rule of its streams, or gives no result.
        """
        words = warp_words(self.config, instruction, operands)
        cases, step_bytes = len(words), self.config.step_bytes
        results = np.zeros((cases, RESULT_WORDS), np.uint32)
        accepted, done = np.zeros(cases, np.int64), np.zeros(cases, np.int64)
        steps = -(-instruction.stored_k * instruction.container_bits // (8 * step_bytes)) * ROWS * COLUMNS * cases
        model = self._model({control_word(self.config, instruction, last=True): steps})
        broken = model.record(words, results, accepted, done, _ALWAYS, _PATIENCE)
        assert not broken, f"the warp {broken}"
        return WarpRun(*warp_results(results, operands.arrays["c"].shape[2]), accepted, done)
