"""Warp compiled by Verilator: executes ``mma`` instructions and returns results with their cycle numbers."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ...isa.instructions import Instruction
from ...isa.operands import HeldOperands
from ...rtl.config import CoreConfig
from ...rtl.warp import COLUMNS, ROWS, Warp
from .array_units import CompiledTop, TopModel
from .driver import PATIENCE, CycleBits
from .steps import control_word, step_count
from .warp_operands import RESULT_WORDS, warp_results, warp_words

__all__ = ["CompiledWarp", "StreamModel", "WarpRun"]

#: Cycle events that offer an instruction and accept a result in every cycle.
_ALWAYS = np.array([CycleBits.OFFER | CycleBits.TAKE], np.uint16)


class StreamModel(TopModel):
    """Model of a component with an input stream and a result stream, in a library built from ``drivers/stream.cpp``."""

    prefix = "stream"
    arguments = (*[ctypes.c_void_p] * 5, ctypes.c_int64, ctypes.c_void_p, *[ctypes.c_int64] * 3, ctypes.c_void_p)

    def run(
        self,
        items: NDArray[np.uint32],
        pattern: NDArray[np.uint16],
        longest_wait: int,
        *,
        cycles: int = np.iinfo(np.int64).max,
        expected: NDArray[np.uint32] | None = None,
        recorded: Sequence[NDArray | None] = (None, None, None),
    ) -> tuple[str, int]:
        """Run test inputs until each has a result; return the violated rule (or "") and the number of accepted inputs.

        Items and results are payloads, shape (count, words). Results are compared with `expected`, if given. The three
        arrays `recorded`, if given, get the result of each item, the cycle in which the item was accepted, and the
        cycle in which its result was accepted. The pattern has the :class:`~sptc.sim.engine.driver.CycleBits` of each
        cycle, and repeats; it must have no resets if results are recorded. Up to `longest_wait` cycles without a
        result, or without acceptance of the offered item, are allowed. The run ends after at most `cycles` cycles.
        """
        taken = ctypes.c_int64()
        pointers = (None if array is None else array.ctypes.data for array in (items, expected, *recorded))
        limits = len(pattern), cycles, longest_wait
        broken = self.run_driver(*pointers, len(items), pattern.ctypes.data, *limits, ctypes.byref(taken))
        return broken, taken.value


@dataclass(frozen=True, eq=False)
class WarpRun:
    """Results and cycle numbers of the instructions that a warp executed."""

    d: NDArray[np.uint32]  #: Result registers, shape (cases, 32, registers)
    #: Undefined-nibble flags for each row of A and each chunk, shape (cases, 16, 16).
    illegal: NDArray[np.bool_]
    #: Cycles in which the instructions were accepted (`accepted`) and delivered results (`done`), shape (cases,).
    accepted: NDArray[np.int64]
    done: NDArray[np.int64]


class CompiledWarp(CompiledTop[StreamModel]):
    """Warp with the datapath `config`, compiled by Verilator."""

    top = title = "warp"
    source = "stream.cpp"

    def __init__(self, config: CoreConfig) -> None:
        super().__init__(config, partial(Warp, config), {}, StreamModel)

    def run(self, instruction: Instruction, operands: HeldOperands) -> WarpRun:
        """Reset the warp, and execute an instruction once for each set of operands in `operands`, in order.

        The instruction is an ``mma`` with 16 rows and formats of the datapath. Raise an `AssertionError` if the
        hardware breaks a rule of its streams or gives no result.
        """
        words = warp_words(self.config, instruction, operands)
        cases = len(words)
        results = np.zeros((cases, RESULT_WORDS), np.uint32)
        accepted, done = np.zeros(cases, np.int64), np.zeros(cases, np.int64)
        steps = step_count(self.config, instruction) * ROWS * COLUMNS * cases
        model = self._model({control_word(self.config, instruction, last=True): steps})
        broken, _ = model.run(words, _ALWAYS, PATIENCE, recorded=(results, accepted, done))
        assert not broken, f"the warp breaks a rule: it {broken}"
        return WarpRun(*warp_results(results, operands.arrays["c"].shape[2]), accepted, done)
