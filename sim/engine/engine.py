"""RTL back end: runs instructions on one row (dot-product unit) in Verilator or in Amaranth's simulator."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from ...errors import BackendError
from ...isa.instructions import Instruction
from ...isa.operands import MatrixOperands, Product, StepFlags
from ...rtl.config import PRESET_OF_ARCHITECTURE, PRESETS, CoreConfig
from . import emulation
from .row_interface import row_interface
from .steps import Steps, executes, step_words, steps_of

__all__ = ["Engine", "Execution", "HardwareBackend", "Simulator", "engine", "engine_for", "multiply_with"]

#: Name of the RTL simulator. ``verilator``: compiled and fast. ``amaranth``: slow, but needs no compiler.
Simulator = Literal["verilator", "amaranth"]
#: Maximum number of outputs computed in one batch, to limit the memory for result words.
_BLOCK_OUTPUTS = 1 << 16


class Model(Protocol):
    """Model of a dot-product unit with metadata decoder; the model computes batches of steps (dot products)."""

    def run(self, steps: Steps, previous: NDArray[np.uint64] | None = None) -> NDArray[np.uint64]:
        """Compute one sum of products per output of a batch; parameters and result as for :meth:`Engine.compute`."""


@dataclass(frozen=True, eq=False)
class Execution:
    """D matrices and undefined-nibble flags of a batch of instructions that a datapath executed."""

    d: NDArray  #: Codes of the elements of D as uint32 or uint16, shape (batch, m, n)
    #: Undefined-nibble flags from the hardware: whether the metadata rule leaves a chunk's nibble undefined; shape
    #: (batch, m, chunks).
    illegal: NDArray[np.bool_]


class Engine:
    """RTL of one datapath in an RTL simulator (:data:`Simulator`), which computes dot products and instructions."""

    def __init__(self, config: CoreConfig, simulator: Simulator = "verilator") -> None:
        self.config = config
        self._words = step_words(config)
        self._lock = Lock()
        self._observer: Callable[[NDArray[np.uint32], NDArray[np.uint64]], None] | None = None
        self._model: Model
        if simulator == "verilator":
            from .compiled_row import CompiledRow

            self._model = CompiledRow(config)
        else:
            from .python_simulator import SimulatedRow

            self._model = SimulatedRow(config)

    def push(self, steps: NDArray[np.uint32]) -> NDArray[np.uint64]:
        """Compute steps (input words of a cycle), shape (count, words), in order. Return results, shape (count,)."""
        return self.compute(Steps.of_words(steps, self._words)).ravel()

    def compute(self, steps: Steps, previous: NDArray[np.uint64] | None = None) -> NDArray[np.uint64]:
        """Compute one sum of products per output of a batch, in order; return the result words, shape (batch, m, n).

        `previous` holds the result words of the previous steps, see :meth:`Steps.whole`.
        """
        with self._lock:  # one thread at a time: a model has state, and ctypes releases the GIL during the call
            results = self._model.run(steps, previous)
        if self._observer:
            self._observer(steps.whole(previous).reshape(-1, self._words.total), results.ravel())
        return results

    @contextmanager
    def observed(self, callback: Callable[[NDArray[np.uint32], NDArray[np.uint64]], None]) -> Iterator[None]:
        """Call `callback` with input words, shape (count, words), and result words, shape (count,), of each batch.

        The callback runs after each batch that is computed inside the context. It must not change the arrays. Contexts
        nest; only the innermost callback runs.
        """
        before, self._observer = self._observer, callback
        try:
            yield
        finally:
            self._observer = before

    @contextmanager
    def waves(self, path: Path) -> Iterator[Sequence[int]]:
        """Write the waveforms of this engine's simulation to a VCD file during the body of the ``with`` statement.

        The context yields a list that gets, for each step, the number of the clock period in which the step was at the
        inputs. Raise a `BackendError` if the engine does not use Amaranth's simulator, the only one that writes
        waveforms.
        """
        from .python_simulator import SimulatedRow

        if not isinstance(self._model, SimulatedRow):
            raise BackendError("only back end 'pysim' writes waveforms")
        with self._model.waves(path):
            yield self._model.entered

    def multiply(self, instruction: Instruction, operands: MatrixOperands) -> Execution:
        """Compute D for a batch of instructions; raise a ConfigError if the datapath does not support a format."""
        d = np.empty_like(operands.c)
        tiles, m, n = d.shape
        illegal = np.zeros((tiles, m, instruction.chunks), np.bool_)
        block = max(1, _BLOCK_OUTPUTS // (m * n))
        for start in range(0, tiles, block):
            part = slice(start, start + block)
            d[part], illegal[part] = self._block(instruction, operands.take(part))
        return Execution(d, illegal)

    def _block(self, instruction: Instruction, operands: MatrixOperands) -> tuple[NDArray, NDArray[np.bool_]]:
        illegal, results = [], operands.c.astype(np.uint64)
        layout = row_interface(self.config).result
        for step in steps_of(self.config, instruction, operands):
            results = self.compute(step, results)
            # All columns of a row have the same metadata, so the flags are read from column 0, from the bits above the
            # result.
            first_flag = layout["illegal"].offset
            flags = results[:, :, 0, None] >> np.arange(first_flag, first_flag + self.config.chunks, dtype=np.uint64)
            illegal.append((flags & np.uint64(1)).astype(np.bool_))
            if instruction.chunk_bytes:
                illegal[-1] = illegal[-1][..., : self.config.step_bytes // instruction.chunk_bytes]
        flagged = np.concatenate(illegal, axis=-1)[..., : instruction.chunks]
        return results.astype(np.uint32).astype(operands.c.dtype), flagged


@lru_cache(maxsize=16)
def engine(config: CoreConfig, simulator: Simulator = "verilator") -> Engine:
    """Return the engine of a datapath configuration; each engine is created only once per process."""
    return Engine(config, simulator)


def engine_for(arch: str, simulator: Simulator = "verilator") -> Engine:
    """Return the RTL engine of an architecture's datapath."""
    return engine(PRESETS[PRESET_OF_ARCHITECTURE[arch]], simulator)


class HardwareBackend:
    """RTL back end for all architectures; an instruction that a datapath lacks is emulated as the assembler does."""

    def __init__(self, simulator: Simulator) -> None:
        self.simulator = simulator

    def make_ready(self, arch: str) -> None:
        """Build the model of an architecture's datapath; raise a BackendError if simulator or compiler is missing."""
        engine_for(arch, self.simulator)

    def multiply(self, instruction: Instruction, arch: str, operands: MatrixOperands) -> Product:
        """Compute D as :func:`sptc.golden.matrix.multiply` does, with a chain of instructions along K.

        Raise a `BackendError` if the simulator or a compiler is missing, or the datapath lacks a format.
        """
        unit = engine_for(arch, self.simulator)
        return multiply_with(unit.multiply, unit.config, instruction, arch, operands)


def multiply_with(
    execute: Callable[[Instruction, MatrixOperands], Execution],
    config: CoreConfig,
    instruction: Instruction,
    arch: str,
    operands: MatrixOperands,
) -> Product:
    """Compute D by successive instructions along K that the datapath supports; `execute` computes one of them.

    Raise a `BackendError` if the datapath lacks a format.
    """
    emulated = not executes(config, instruction, arch)
    flags: list[StepFlags] = []

    def execute_step(instruction: Instruction, operands: MatrixOperands) -> NDArray:
        execution = execute(instruction, operands)
        flags.append(StepFlags(instruction, operands.nibbles, execution.illegal))
        return execution.d

    d = operands.c
    for step in operands.steps(instruction):
        with_c = replace(step, c=d)
        d = emulation.run(execute_step, instruction, with_c) if emulated else execute_step(instruction, with_c)
    return Product(d, tuple(flags))
