"""A warp compiled by Verilator: instructions of ``mma`` with their registers in, results and their cycles out."""

import ctypes
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...infra.cache import built
from ...infra.compiler import progress
from ...infra.verilator import compile_library
from ...isa.instructions import Instruction
from ...isa.operands import HeldOperands
from ...rtl.cells.platforms import OPERATORS
from ...rtl.config import CoreConfig
from ...rtl.emit import emit
from ...rtl.warp import CHUNKS, COLUMNS, LANES, REGISTERS, ROWS, Warp
from .array_units import UNIT, unit_drivers, unit_module
from .fingerprint import Sources, fingerprint
from .libraries import Libraries
from .pattern import CycleBits
from .ports import ports_only
from .steps import control_word
from .stream_model import StreamModel, stream_driver
from .warp_operands import warp_words

__all__ = ["CompiledWarp", "WarpRun"]

_TOP = "warp"
_RESULT_WORDS = LANES * REGISTERS + ROWS * CHUNKS // 32
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


class CompiledWarp:
    """A warp compiled by Verilator, loaded into this process.

    Parameters
    ----------
    config : CoreConfig
        Datapath of the warp. It is built on first use and cached in :func:`~sptc.infra.cache.cache_folder`.

    Raises
    ------
    BackendError
        The simulator or a compiler is missing or fails; one sentence that says what to install.
    """

    def __init__(self, config: CoreConfig) -> None:
        self.config = config
        sources = stream_driver(ports_only(lambda: Warp(config)), _TOP)
        library = built(f"warp-{fingerprint(config, sources)}.so", lambda path: self._build(sources, path))
        self._library = ctypes.CDLL(str(library))
        self._units = Libraries(config, "unit", UNIT, *unit_drivers(config, 1))
        self._units.of_every_instruction()
        self._models: dict[Path, StreamModel] = {}

    def _build(self, sources: Sources, library: Path) -> None:
        progress(f"building the {self.config.name} warp: elaborating")
        warp = emit(self.config, "warp", _TOP, platform=OPERATORS, with_unit=False)
        compile_library(warp + unit_module(self.config, _TOP), _TOP, sources, library)

    def _model(self, control: int, steps: int) -> StreamModel:
        """Return the warp with the best units for `steps` steps of one control word."""
        path = self._units.of({control: steps})
        if path not in self._models:
            self._models[path] = StreamModel(self._library, path)
        return self._models[path]

    def run(self, instruction: Instruction, operands: HeldOperands) -> WarpRun:
        """Execute an instruction on each case of its operands, one after the other from reset on.

        Parameters
        ----------
        instruction : Instruction
            Instruction of ``mma`` with 16 rows, whose formats the datapath has.
        operands : HeldOperands
            Registers and immediates.

        Raises
        ------
        AssertionError
            The hardware breaks a rule of its streams, or gives no result.
        """
        words = warp_words(self.config, instruction, operands)
        cases, step_bytes = len(words), self.config.step_bytes
        results = np.zeros((cases, _RESULT_WORDS), np.uint32)
        accepted, done = np.zeros(cases, np.int64), np.zeros(cases, np.int64)
        steps = -(-instruction.stored_k * instruction.container_bits // (8 * step_bytes)) * ROWS * COLUMNS * cases
        model = self._model(control_word(self.config, instruction, last=True), steps)
        broken = model.record(words, results, accepted, done, _ALWAYS, _PATIENCE)
        assert not broken, f"the warp {broken}"
        d, flags = np.split(results, [LANES * REGISTERS], axis=1)
        registers = operands.arrays["c"].shape[2]
        illegal = np.unpackbits(np.ascontiguousarray(flags).view(np.uint8), axis=1, bitorder="little")
        return WarpRun(
            d.reshape(cases, LANES, REGISTERS)[..., :registers],
            illegal.astype(np.bool_).reshape(cases, ROWS, CHUNKS),
            accepted,
            done,
        )
