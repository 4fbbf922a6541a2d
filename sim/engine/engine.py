"""The elaborated hardware as a back end: batches of numpy arrays through a compiled row, or Amaranth's simulator."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from ...errors import BackendError
from ...isa.instructions import Instruction
from ...isa.numerics import Method, numerics
from ...isa.operands import MatrixOperands, Product, StepFlags
from ...rtl.config import PRESET_OF_ARCHITECTURE, PRESETS, CoreConfig
from . import emulation
from .row_interface import row_interface
from .steps import step_words, steps_of

__all__ = [
    "Engine",
    "Execution",
    "HardwareBackend",
    "Simulator",
    "engine",
    "engine_for",
    "multiply_with",
]

#: Compiled and fast, or without a compiler and slow.
Simulator = Literal["verilator", "amaranth"]
#: Outputs pushed through a model at once; bounds the memory of the step words.
_BLOCK_OUTPUTS = 1 << 14


class Model(Protocol):
    """Something that computes steps of a row."""

    def run(self, steps: NDArray[np.uint32]) -> NDArray[np.uint64]:
        """Compute steps, shape (count, words); return result words, shape (count,)."""


@dataclass(frozen=True, eq=False)
class Execution:
    """What a batch of instructions gave.

    Attributes
    ----------
    d : ndarray of uint32 or uint16, shape (tiles, m, n)
        Result codes.
    illegal : ndarray of bool, shape (tiles, m, chunks)
        Chunks whose nibble the instruction's rule does not define, as the hardware flags them.
    steps : int
        Steps computed.
    """

    d: NDArray
    illegal: NDArray[np.bool_]
    steps: int


class Engine:
    """A datapath ready to compute.

    Parameters
    ----------
    config : CoreConfig
        Which datapath.
    simulator : str
        ``"verilator"`` (compiled, fast) or ``"amaranth"`` (needs no compiler, slow).
    """

    def __init__(self, config: CoreConfig, simulator: Simulator = "verilator") -> None:
        self.config = config
        self._words = step_words(config)
        self._observer: Callable[[NDArray[np.uint32], NDArray[np.uint64]], None] | None = None
        self._model: Model
        if simulator == "verilator":
            from .compiled_row import CompiledRow

            self._model = CompiledRow(config, self._words.total)
        else:
            from .python_simulator import SimulatedRow

            self._model = SimulatedRow(config)

    def push(self, steps: NDArray[np.uint32]) -> NDArray[np.uint64]:
        """Push steps, shape (count, words), straight through the row; return result words, shape (count,)."""
        results = self._model.run(steps)
        if self._observer:
            self._observer(steps, results)
        return results

    @contextmanager
    def observed(self, callback: Callable[[NDArray[np.uint32], NDArray[np.uint64]], None]) -> Iterator[None]:
        """Call `callback` with every batch of steps, shape (count, words), and its results, shape (count,).

        While the context lasts, and after the batch was computed; the arrays must not be changed. Contexts nest, and
        the innermost one is called.
        """
        before, self._observer = self._observer, callback
        try:
            yield
        finally:
            self._observer = before

    @contextmanager
    def waves(self, path: Path) -> Iterator[Sequence[int]]:
        """Write the waves of what this engine computes to a VCD file while the context lasts.

        Gives the periods of :data:`~sptc.sim.engine.python_simulator.PERIOD` in which the steps stood at the inputs.

        Raises
        ------
        BackendError
            The engine is not Amaranth's simulator, the one that writes waves.
        """
        from .python_simulator import SimulatedRow

        if not isinstance(self._model, SimulatedRow):
            raise BackendError("waves are written by the pysim back end only")
        with self._model.waves(path):
            yield self._model.entered

    def multiply(self, instruction: Instruction, operands: MatrixOperands) -> Execution:
        """Compute a batch of instructions that the datapath holds.

        Parameters
        ----------
        instruction : Instruction
            What to compute; K of the operands is its k.
        operands : MatrixOperands
            The matrices.

        Raises
        ------
        ConfigError
            The datapath lacks a format.
        """
        d = np.empty_like(operands.c)
        tiles, m, n = d.shape
        illegal = np.zeros((tiles, m, instruction.chunks), np.bool_)
        count = 0
        block = max(1, _BLOCK_OUTPUTS // (m * n))
        for start in range(0, tiles, block):
            part = slice(start, start + block)
            d[part], illegal[part], steps = self._block(instruction, operands.take(part))
            count += steps
        return Execution(d, illegal, count)

    def _block(self, instruction: Instruction, operands: MatrixOperands) -> tuple[NDArray, NDArray[np.bool_], int]:
        illegal, c = [], operands.c
        overflow = np.zeros(c.shape, np.uint32)
        layout = row_interface(self.config).result
        steps = steps_of(self.config, instruction, operands)
        for step in steps:
            step[..., self._words.c] = c[..., None]
            step[..., self._words.control] |= overflow[..., None] << np.uint32(self._words.overflow_bit)
            results = self.push(step.reshape(-1, self._words.total)).reshape(c.shape)
            c = results.astype(np.uint32).astype(c.dtype)
            overflow = (results >> np.uint64(layout["overflow"].offset)).astype(np.uint32) & np.uint32(1)
            # Every column of a row sees the same metadata; its flags stand above the result.
            first_flag = layout["illegal"].offset
            flags = results[:, :, 0, None] >> np.arange(first_flag, first_flag + self.config.chunks, dtype=np.uint64)
            illegal.append((flags & np.uint64(1)).astype(np.bool_))
            if instruction.chunk_bytes:
                illegal[-1] = illegal[-1][..., : self.config.step_bytes // instruction.chunk_bytes]
        flagged = np.concatenate(illegal, axis=-1)[..., : instruction.chunks]
        return c, flagged, len(steps) * c.size


@lru_cache(maxsize=16)
def engine(config: CoreConfig, simulator: Simulator = "verilator") -> Engine:
    """Return the engine of a configuration, built once a process."""
    return Engine(config, simulator)


def engine_for(arch: str, simulator: Simulator = "verilator") -> Engine:
    """Return the engine of an architecture's datapath."""
    return engine(PRESETS[PRESET_OF_ARCHITECTURE[arch]], simulator)


class HardwareBackend:
    """The datapaths of the architectures as a back end, through the assembler's emulation where they lack formats.

    Parameters
    ----------
    simulator : str
        As for :class:`Engine`.
    """

    def __init__(self, simulator: Simulator) -> None:
        self.simulator = simulator

    def make_ready(self, arch: str) -> None:
        """Build the datapath of an architecture.

        Raises
        ------
        BackendError
            The simulator or a compiler is missing.
        """
        engine_for(arch, self.simulator)

    def multiply(self, instruction: Instruction, arch: str, operands: MatrixOperands) -> Product:
        """Compute D, one instruction along K after the other.

        Parameters
        ----------
        instruction, arch, operands
            As for :func:`sptc.golden.matrix.multiply`.

        Raises
        ------
        BackendError
            The simulator, a compiler or a format is missing.
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
    """Compute D from instructions that a datapath holds, one along K after the other.

    Parameters
    ----------
    execute : callable
        Computes one of them.
    config : CoreConfig
        The datapath.
    instruction, arch, operands
        As for :meth:`HardwareBackend.multiply`.

    Raises
    ------
    BackendError
        The datapath lacks a format.
    """
    emulated = not config.holds(instruction) or numerics(instruction, arch).method is Method.EMULATED
    flags: list[StepFlags] = []

    def execute_step(instruction: Instruction, operands: MatrixOperands) -> NDArray:
        execution = execute(instruction, operands)
        flags.append(StepFlags(instruction, operands.nibbles, execution.illegal))
        return execution.d

    d = operands.c
    for step in operands.steps(instruction):
        given = replace(step, c=d)
        d = emulation.run(execute_step, instruction, given) if emulated else execute_step(instruction, given)
    return Product(d, tuple(flags))
