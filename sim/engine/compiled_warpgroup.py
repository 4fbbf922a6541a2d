"""A warpgroup compiled by Verilator: multiplications, commits and waits in, results and their cycles out.

Around the model stand what an SM has: a shared memory, which answers in the next cycle, and registers, from which an
accumulator is read once the multiplication before has written it.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
from ...rtl.fetch import ADDRESS_BITS, descriptor_layout
from ...rtl.warp import CHUNKS, COLUMNS, LANES, REGISTERS, ROWS
from ...rtl.warpgroup import TENSOR_CORE, WARPS, Operation, warpgroup_layout
from .fingerprint import fingerprint
from .steps import wgmma_fields
from .warpgroup_driver import TOP, UNIT, driver, unit_module

__all__ = ["COMMIT", "Command", "CompiledWarpgroup", "Completion", "multiplication", "wait"]

_UNIT_BYTES = 16
#: Units of half the shared memory that a descriptor can name, where every second image lies.
_HALF = 1 << ADDRESS_BITS - 1
_FLAG_WORDS = ROWS * CHUNKS // 32
_PANEL_WORDS = WARPS * LANES * REGISTERS
_WARP_WORDS = LANES * REGISTERS + _FLAG_WORDS
#: Cycles without any transfer after which nothing is expected any more, however rarely something is offered.
_PATIENCE = 1 << 14


class _CCommand(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("payload", "image", "c", "results")),
        *((name, ctypes.c_int32) for name in ("panels", "image_units")),
        *((name, ctypes.c_int64) for name in ("taken", "done")),
    )


@dataclass(frozen=True, eq=False)
class Command:
    """What a warpgroup is told.

    Attributes
    ----------
    fields : dict
        Of :func:`~sptc.rtl.warpgroup.warpgroup_layout`, without `a` and `e`.
    a : ndarray of uint32, shape (128, 4), or None
        A, unless it is in shared memory.
    e : ndarray of uint32, shape (128,), or None
        Metadata.
    image : ndarray of uint8, shape (bytes,)
        Shared memory; empty if nothing is multiplied.
    c : ndarray of uint32, shape (128, registers), or None
        Accumulators; None for the results of the multiplication before.
    n : int
        Columns; 0 if nothing is multiplied.
    registers : int
        Of an accumulator, for eight columns.
    """

    fields: dict[str, Any]
    a: NDArray[np.uint32] | None = None
    e: NDArray[np.uint32] | None = None
    image: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))
    c: NDArray[np.uint32] | None = None
    n: int = 0
    registers: int = REGISTERS


@dataclass(frozen=True, eq=False)
class Completion:
    """What became of it.

    Attributes
    ----------
    taken, done : int
        Cycles in which it was taken, and in which its last result came out; of a commit or a wait -1.
    d : ndarray of uint32, shape (128, registers)
        Results.
    illegal : ndarray of bool, shape (panels, 64, 16)
        Flags of undefined nibbles beside every panel of results.
    """

    taken: int
    done: int
    d: NDArray[np.uint32]
    illegal: NDArray[np.bool_]


COMMIT = Command({"operation": Operation.COMMIT})


def wait(pending: int) -> Command:
    """Return a wait for all but so many groups."""
    return Command({"operation": Operation.WAIT, "pending": pending})


def multiplication(config: CoreConfig, instruction: Instruction, held: HeldOperands, case: int) -> Command:
    """Return an instruction of ``wgmma`` with one case of its operands.

    Parameters
    ----------
    config : CoreConfig
        The datapath.
    instruction : Instruction
        Of family ``wgmma``.
    held : HeldOperands
        Registers, image, immediates and descriptors.
    case : int
        Which case of them.
    """
    arrays, layout = held.arrays, descriptor_layout()
    a_descriptor, b_descriptor = (layout.from_bits(descriptor) for descriptor in held.descriptors)
    fields = {"operation": Operation.MULTIPLY, "a_descriptor": a_descriptor, "b_descriptor": b_descriptor}
    fields |= wgmma_fields(config, instruction, held.immediates)
    a, e = (arrays[name][case] if name in arrays else None for name in ("a", "e"))
    registers = REGISTERS * instruction.d.bits // 32
    return Command(fields, a, e, arrays["b"][case], arrays["c"][case], instruction.n, registers)


class CompiledWarpgroup:
    """A warpgroup compiled by Verilator, loaded into this process.

    Parameters
    ----------
    config : CoreConfig
        The array of a warp, by default that of a tensor core of sm_90. It is built on first use and kept in
        :func:`~sptc.infra.cache.cache_folder`.

    Raises
    ------
    BackendError
        The simulator or a compiler is missing or fails; one sentence that says what to install.
    """

    def __init__(self, config: CoreConfig = TENSOR_CORE) -> None:
        self.config = config
        self._layout = warpgroup_layout()
        self._payload_words = -(-self._layout.size // 32)
        text = driver(config, payload_words=self._payload_words, panel_words=_PANEL_WORDS, warp_words=_WARP_WORDS)
        library = built(f"warpgroup-{fingerprint(config, text)}.so", lambda path: self._build(text, path))
        self._library = ctypes.CDLL(str(library))
        self._library.group_create.restype = ctypes.c_void_p
        self._library.group_destroy.argtypes = [ctypes.c_void_p]
        self._library.group_run.restype = ctypes.c_int64
        pointer = ctypes.c_void_p
        self._library.group_run.argtypes = [
            pointer, pointer, ctypes.c_int, pointer, ctypes.c_size_t, ctypes.c_int64,
        ]  # fmt: skip
        self._handle = self._library.group_create()

    def _build(self, text: str, library: Path) -> None:
        progress(f"building the {self.config.name} warpgroup: elaborating")
        warpgroup = emit(self.config, "warpgroup", TOP, platform=OPERATORS, with_unit=False)
        unit = emit(self.config, "unit", UNIT, platform=OPERATORS)
        compile_library(warpgroup + unit_module(self.config), TOP, text, library, parts={UNIT: unit})

    def run(self, commands: Sequence[Command], pattern: NDArray[np.uint8] | None = None) -> list[Completion]:
        """Run what a warpgroup is told from reset on, until all results are out.

        Parameters
        ----------
        commands : sequence of Command
            In order.
        pattern : ndarray of uint8, optional
            Of each cycle, repeated: bit 0, the next is offered; bit 1, accumulators are; bit 2, results are taken. By
            default all are in every cycle.

        Raises
        ------
        AssertionError
            The hardware does not end.
        """
        pattern = np.full(1, 7, np.uint8) if pattern is None else pattern
        given, kept, multiplied, columns = (_CCommand * len(commands))(), [], 0, 0
        for command, of in zip(commands, given, strict=True):
            payload, image = self._payload(command, multiplied), np.ascontiguousarray(command.image)
            panels = command.n // COLUMNS
            if panels:
                assert command.c is not None or command.n == columns, "results go on as accumulators of as many columns"
                multiplied, columns = multiplied + 1, command.n
            c = None if command.c is None else _panels(command.c, panels)
            results = np.zeros((panels, WARPS, _WARP_WORDS), np.uint32)
            kept.append((payload, image, c, results))
            of.payload, of.image, of.results = (array.ctypes.data for array in (payload, image, results))
            of.c = None if c is None else c.ctypes.data
            of.panels, of.image_units, of.taken, of.done = panels, -(-image.size // _UNIT_BYTES), -1, -1
        cycles = self._library.group_run(
            self._handle, given, len(commands), pattern.ctypes.data, len(pattern), _PATIENCE
        )
        assert cycles >= 0, "the warpgroup does not end"
        return [
            Completion(of.taken, of.done, *_results(results, command.registers))
            for command, of, (*_, results) in zip(commands, given, kept, strict=True)
        ]

    def _payload(self, command: Command, number: int) -> NDArray[np.uint32]:
        """Return the words of the instruction, whose image lies in one half of the memory or the other."""
        words = np.zeros(self._payload_words, np.uint32)
        for name, registers in (("a", command.a), ("e", command.e)):
            if registers is not None:
                first = self._layout[name].offset // 32
                words[first : first + registers.size] = registers.ravel()
        fields = dict(command.fields)
        if number % 2 and command.image.size <= _HALF * _UNIT_BYTES:
            for name in ("a_descriptor", "b_descriptor"):
                if name in fields:
                    fields[name] = descriptor_layout().from_bits(fields[name].as_bits() ^ _HALF)
        first = self._layout["operation"].offset // 32
        rest = int(self._layout.const(fields).as_value().value) >> 32 * first
        size = self._payload_words - first
        words[first:] = np.frombuffer(rest.to_bytes(4 * size, "little"), np.uint32)
        return words

    def __del__(self) -> None:
        if handle := getattr(self, "_handle", None):
            self._library.group_destroy(handle)


def _panels(registers: NDArray[np.uint32], panels: int) -> NDArray[np.uint32]:
    """Return accumulators of 128 threads as panels of eight columns, shape (panels, 4, 32, 4)."""
    of_thread = registers.reshape(WARPS, LANES, panels, -1)
    whole = np.zeros((panels, WARPS, LANES, REGISTERS), np.uint32)
    whole[..., : of_thread.shape[-1]] = of_thread.transpose(2, 0, 1, 3)
    return whole


def _results(words: NDArray[np.uint32], registers: int) -> tuple[NDArray[np.uint32], NDArray[np.bool_]]:
    """Return the registers of 128 threads, and the flags."""
    panels = len(words)
    d = words[..., : LANES * REGISTERS].reshape(panels, WARPS, LANES, REGISTERS)[..., :registers]
    flags = np.unpackbits(np.ascontiguousarray(words[..., LANES * REGISTERS :]).view(np.uint8), bitorder="little")
    d = d.transpose(1, 2, 0, 3).reshape(WARPS * LANES, panels * registers)
    return d, flags.astype(np.bool_).reshape(panels, WARPS * ROWS, CHUNKS)
