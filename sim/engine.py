"""The elaborated hardware as a back end: batches of numpy arrays through a compiled unit, or Amaranth's simulator."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import BackendError
from ..isa.instructions import Instruction
from ..isa.numerics import Method, numerics
from ..rtl.config import PRESET_OF_ARCHITECTURE, PRESETS, CoreConfig
from ..rtl.step import result_layout
from . import emulation
from .steps import Matrices, octets, step_words, steps_of

__all__ = ["Engine", "Execution", "engine", "engine_for", "multiply"]

#: Outputs pushed through a model at once; bounds the memory of the step words.
_BLOCK_OUTPUTS = 1 << 14


class Model(Protocol):
    """Something that computes unit steps."""

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
        Unit steps computed.
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

    def __init__(self, config: CoreConfig, simulator: str = "verilator") -> None:
        self.config = config
        self._words = step_words(config)
        self._observer: Callable[[NDArray[np.uint32], NDArray[np.uint64]], None] | None = None
        self._model: Model
        if simulator == "verilator":
            from .verilate import CompiledUnit

            self._model = CompiledUnit(config, self._words.total)
        else:
            from .python_simulator import SimulatedUnit

            self._model = SimulatedUnit(config)

    def push(self, steps: NDArray[np.uint32]) -> NDArray[np.uint64]:
        """Push steps, shape (count, words), straight through the unit; return result words, shape (count,)."""
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
    def waves(self, path: Path) -> Iterator[None]:
        """Write the waves of what this engine computes to a VCD file while the context lasts.

        Raises
        ------
        BackendError
            The engine is not Amaranth's simulator, the one that writes waves.
        """
        from .python_simulator import SimulatedUnit

        if not isinstance(self._model, SimulatedUnit):
            raise BackendError("waves are written by the pysim back end only")
        with self._model.waves(path):
            yield

    def multiply(
        self,
        instruction: Instruction,
        a: NDArray,
        b: NDArray,
        c: NDArray,
        nibbles: NDArray[np.uint8] | None = None,
        scale_a: NDArray[np.uint8] | None = None,
        scale_b: NDArray[np.uint8] | None = None,
    ) -> Execution:
        """Compute a batch of instructions that the datapath holds.

        Parameters
        ----------
        instruction : Instruction
            What to compute.
        a : ndarray of uint8, uint16 or uint32, shape (tiles, m, stored k)
            Stored elements of A, one a container (4-bit elements in the low half of a byte).
        b : ndarray, same type, shape (tiles, k, n)
            B.
        c : ndarray of uint16 or uint32, shape (tiles, m, n)
            Accumulator codes.
        nibbles : ndarray of uint8, shape (tiles, m, chunks), optional
            Metadata.
        scale_a, scale_b : ndarray of uint8, shape (tiles, m or n, scales), optional
            Block scales.

        Raises
        ------
        ConfigError
            The datapath lacks a format.
        """
        bits = instruction.container_bits
        columns = np.ascontiguousarray(b.transpose(0, 2, 1))
        matrices = Matrices(octets(a, bits), octets(columns, bits), nibbles, scale_a, scale_b)
        d = np.empty_like(c)
        tiles, m, n = c.shape
        illegal = np.zeros((tiles, m, instruction.chunks), np.bool_)
        count = 0
        block = max(1, _BLOCK_OUTPUTS // (m * n))
        for start in range(0, tiles, block):
            part = slice(start, start + block)
            d[part], illegal[part], steps = self._block(instruction, matrices.take(part), c[part])
            count += steps
        return Execution(d, illegal, count)

    def _block(
        self, instruction: Instruction, matrices: Matrices, c: NDArray
    ) -> tuple[NDArray, NDArray[np.bool_], int]:
        illegal = []
        overflow = np.zeros(c.shape, np.uint32)
        layout = result_layout(self.config)
        steps = steps_of(self.config, instruction, matrices)
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
def engine(config: CoreConfig, simulator: str = "verilator") -> Engine:
    """Return the engine of a configuration, built once a process."""
    return Engine(config, simulator)


def engine_for(arch: str, backend: str) -> Engine:
    """Return the engine of an architecture's datapath for ``"rtl"`` or ``"pysim"``."""
    return engine(PRESETS[PRESET_OF_ARCHITECTURE[arch]], {"rtl": "verilator", "pysim": "amaranth"}[backend])


def multiply(
    backend: str,
    instruction: Instruction,
    arch: str,
    a: NDArray,
    b: NDArray,
    c: NDArray,
    nibbles: NDArray[np.uint8] | None = None,
    scale_a: NDArray[np.uint8] | None = None,
    scale_b: NDArray[np.uint8] | None = None,
) -> NDArray:
    """Compute D on the datapath of `arch`, through the assembler's emulation where it has no such formats.

    Parameters
    ----------
    backend : str
        ``"rtl"`` or ``"pysim"``.
    instruction, arch, a, b, c, nibbles, scale_a, scale_b
        As for :func:`sptc.golden.matrix.multiply`, of which only one instruction of K is taken.

    Raises
    ------
    BackendError
        The simulator, a compiler or a format is missing.
    """
    unit = engine_for(arch, backend)
    if unit.config.holds(instruction) and numerics(instruction, arch).method is not Method.EMULATED:
        return unit.multiply(instruction, a, b, c, nibbles, scale_a, scale_b).d
    return emulation.run(lambda *operands: unit.multiply(*operands).d, instruction, a, b, c, nibbles)
