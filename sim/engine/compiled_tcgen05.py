"""The tensor cores of a CTA, or of a pair, compiled by Verilator: instructions and memories in, tensor memory out."""

import ctypes
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...infra.cache import built
from ...infra.compiler import progress
from ...infra.verilator import compile_library
from ...isa.instruction_descriptor import InstructionDescriptor
from ...isa.tcgen05 import Opcode
from ...isa.tensor_memory import COLUMNS, LANES
from ...rtl.accumulators import ARRAYS
from ...rtl.cells.platforms import OPERATORS
from ...rtl.config import WARP_COLUMNS, CoreConfig
from ...rtl.convert import to_verilog
from ...rtl.emit import emit
from ...rtl.fetch import descriptor_layout
from ...rtl.step import control_layout
from ...rtl.tcgen05 import TCGEN05_ARRAY, CtaOperation, Tcgen05, tcgen05_layout
from ...rtl.warp import CHUNKS, ScaleSizeCode
from .array_units import FUNCTIONS, UNIT, StandIn, unit_drivers, unit_module
from .fingerprint import fingerprint
from .libraries import Libraries
from .steps import control_word
from .tcgen05_driver import TOP, driver

__all__ = ["COMMIT", "CompiledTcgen05", "CtaCommand", "CtaRun", "cta_command"]

_FLAG_WORDS = LANES * CHUNKS // 32
#: Bits of a descriptor of shared memory that ask for atoms of 32 bytes and for an absolute leading address.
_NOT_BUILT = 1 << 61 | 1 << 52
#: Selectors of the metadata that are built; of more nobody says what they pick.
_SELECTORS = 2
_SCALE_SIZES = {1: ScaleSizeCode.X1, 2: ScaleSizeCode.X2, 4: ScaleSizeCode.X4}
#: What lies in tensor memory whatever the instruction, by the names of the fields.
_COLUMN_OPERANDS = {"d": "d", "metadata": "e", "scale_a": "scale_a", "scale_b": "scale_b"}
#: The smallest descriptor of shared memory; addresses of tensor memory are less.
_SMALLEST_DESCRIPTOR = 1 << 46
#: Cycles without any transfer after which nothing is expected any more, however rarely something is offered.
_PATIENCE = 1 << 14


@dataclass(frozen=True, eq=False)
class CtaCommand:
    """What the tensor cores are told.

    Attributes
    ----------
    fields : dict
        Of :func:`~sptc.rtl.tcgen05.tcgen05_layout`, without `odd`.
    n : int
        Columns; 0 of a commit.
    """

    fields: dict[str, Any]
    n: int = 0


@dataclass(frozen=True, eq=False)
class CtaRun:
    """What became of it all.

    Attributes
    ----------
    tmem : ndarray of uint32, shape (CTAs, 128, 512)
        Tensor memory.
    taken, done : ndarray of int64, shape (commands, CTAs)
        Cycles in which each was taken, and in which its last result was written; of a commit -1.
    illegal : list of ndarray of bool, shape (CTAs, panels, 128, 16)
        Flags of undefined nibbles beside every panel of results, in their order; nothing of a commit.
    arrivals : ndarray of int32, shape (CTAs,)
        Commits that arrived.
    undefined : ndarray of int64, shape (commands, CTAs)
        Bits of :func:`~sptc.rtl.placement.placement_layout` beside each command.
    """

    tmem: NDArray[np.uint32]
    taken: NDArray[np.int64]
    done: NDArray[np.int64]
    illegal: list[NDArray[np.bool_]]
    arrivals: NDArray[np.int32]
    undefined: NDArray[np.int64]


COMMIT = CtaCommand({"operation": CtaOperation.COMMIT})


def cta_command(
    config: CoreConfig,
    opcode: Opcode,
    descriptor: InstructionDescriptor,
    operands: dict[str, int],
    *,
    enable_input_d: bool = True,
) -> CtaCommand | None:
    """Return an instruction as the hardware is told it, None for one that it does not execute.

    Parameters
    ----------
    config : CoreConfig
        The datapath of an array.
    opcode, descriptor : Opcode, InstructionDescriptor
        What runs.
    operands : dict of str to int
        Descriptors and addresses of `a`, `b`, `d`, and where there are any `e`, `scale_a`, `scale_b`, as of
        :func:`sptc.tcgen05_mma`.
    enable_input_d : bool
        Whether D is added.
    """
    i, shared = descriptor.instruction, operands["a"] >= _SMALLEST_DESCRIPTOR
    in_shared = [("b", descriptor.transpose_b), *([("a", descriptor.transpose_a)] if shared else [])]
    moved = any(transposed and i.container_bits != 16 for _, transposed in in_shared)
    other = any(operands[name] & _NOT_BUILT for name, _ in in_shared)
    narrow = not shared and i.a.bits < i.container_bits == 8
    lacks = opcode.weight_stationary or opcode.shifts_a or i.m != LANES * opcode.cta_group
    if lacks or moved or other or narrow or descriptor.sparsity_selector >= _SELECTORS:
        return None
    layout = descriptor_layout()
    columns = {f"{name}_column": operands.get(key, 0) % COLUMNS for name, key in _COLUMN_OPERANDS.items()}
    columns["a_column"] = 0 if shared else operands["a"] % COLUMNS
    return CtaCommand(
        {
            "operation": CtaOperation.MULTIPLY,
            "control": control_layout().from_bits(control_word(config, i, last=True)),
            "a_descriptor": layout.from_bits(operands["a"] if shared else 0),
            "b_descriptor": layout.from_bits(operands["b"]),
            "a_shared": shared,
            "a_transposed": descriptor.transpose_a,
            "b_transposed": descriptor.transpose_b,
            "negated": descriptor.negate_a != descriptor.negate_b,
            "add": enable_input_d,
            "last_panel": i.n // WARP_COLUMNS - 1,
            "sparsity_selector": descriptor.sparsity_selector,
            **columns,
            "scale_size": _SCALE_SIZES[i.scale_size or 1],
            "byte_a": descriptor.scale_id_a,
            "byte_b": descriptor.scale_id_b,
            "pair": opcode.cta_group == 2,
        },
        i.n,
    )


class _CCommand(ctypes.Structure):
    _fields_ = (
        ("payload", ctypes.c_void_p * 2),
        ("flags", ctypes.c_void_p * 2),
        ("panels", ctypes.c_int32),
        ("written", ctypes.c_int32 * 2),
        ("undefined", ctypes.c_int32 * 2),
        ("taken", ctypes.c_int64 * 2),
        ("done", ctypes.c_int64 * 2),
    )


class CompiledTcgen05:
    """The tensor cores of two CTAs compiled by Verilator, loaded into this process.

    Parameters
    ----------
    config : CoreConfig
        The array of 16 rows, by default half of a tensor core of sm_100. It is built on first use and kept in
        :func:`~sptc.infra.cache.cache_folder`.

    stand_in : StandIn, optional
        What stands in place of the arrays, whose results are then its own.

    Raises
    ------
    BackendError
        The simulator or a compiler is missing or fails; one sentence that says what to install.
    """

    def __init__(self, config: CoreConfig = TCGEN05_ARRAY, stand_in: StandIn | None = None) -> None:
        self.config, self._stand_in = config, stand_in
        self._layout = tcgen05_layout()
        text = driver(-(-self._layout.size // 32), _FLAG_WORDS)
        kept = text if stand_in is None else text + stand_in.module + " ".join(stand_in.optimisation)
        library = built(f"tcgen05-{fingerprint(config, kept)}.so", lambda path: self._build(text, path))
        self._library = ctypes.CDLL(str(library))
        pointer = ctypes.c_void_p
        self._library.cta_create.restype = pointer
        self._library.cta_create.argtypes = [pointer] * len(FUNCTIONS)
        self._library.cta_destroy.argtypes = [pointer]
        self._library.cta_run.restype = ctypes.c_int64
        self._library.cta_run.argtypes = [
            pointer, ctypes.c_int, pointer, ctypes.c_int, pointer, pointer, pointer, pointer, pointer, ctypes.c_size_t,
            ctypes.c_int64,
        ]  # fmt: skip
        self._units = Libraries(config, "unit", UNIT, *unit_drivers(config, ARRAYS))
        self._handles: dict[Any, list[int]] = {}
        if stand_in is None:
            self._units.of_every_instruction()

    def _build(self, text: str, library: Any) -> None:
        progress(f"building the {self.config.name} tensor cores of a CTA: elaborating")
        if self._stand_in is not None:
            component = Tcgen05(self.config, warp_class=self._stand_in.warp_class)
            cores = to_verilog(component, TOP, platform=OPERATORS) + self._stand_in.module
            compile_library(cores, TOP, text, library, optimisation=self._stand_in.optimisation)
            return
        cores = emit(self.config, "tcgen05", TOP, platform=OPERATORS, with_unit=False)
        compile_library(cores + unit_module(self.config, TOP), TOP, text, library)

    def _ctas(self, steps: Counter[int]) -> list[int]:
        """Return two CTAs of the units that so many steps of each control word are worth."""
        path = self._units.of(steps) if self._stand_in is None else self._stand_in.library
        if path not in self._handles:
            units = ctypes.CDLL(str(path))
            functions = [ctypes.cast(getattr(units, f"units_{name}"), ctypes.c_void_p) for name in FUNCTIONS]
            self._handles[path] = [self._library.cta_create(*functions) for _ in range(2)]
        return self._handles[path]

    def run(
        self,
        commands: Sequence[CtaCommand],
        tmem: NDArray[np.uint32],
        smem: NDArray[np.uint8],
        pattern: NDArray[np.uint8] | None = None,
    ) -> CtaRun:
        """Run what one CTA or a pair is told from reset on, until all results are written.

        Parameters
        ----------
        commands : sequence of CtaCommand
            In order; each CTA of a pair is told all of them.
        tmem : ndarray of uint32, shape (CTAs, 128, 512)
            Tensor memory.
        smem : ndarray of uint8, shape (CTAs, bytes)
            Shared memory.
        pattern : ndarray of uint8, optional
            Of each cycle, repeated: bit c, CTA c is offered the next. By default both are in every cycle.

        Raises
        ------
        AssertionError
            The hardware does not end.
        """
        ctas = len(tmem)
        pattern = np.full(1, 3, np.uint8) if pattern is None else pattern
        given, kept = (_CCommand * len(commands))(), []
        steps: Counter[int] = Counter()
        for command, of in zip(commands, given, strict=True):
            of.panels = command.n // WARP_COLUMNS
            flags = np.zeros((ctas, of.panels, _FLAG_WORDS), np.uint32)
            payloads = [self._payload(command, cta) for cta in range(ctas)]
            kept.append((flags, payloads))
            if of.panels:
                steps[int(command.fields["control"].as_bits())] += ctas * LANES * command.n
            for cta in range(ctas):
                of.payload[cta], of.flags[cta] = payloads[cta].ctypes.data, flags[cta].ctypes.data
            of.taken[:], of.done[:] = [-1, -1], [-1, -1]
        tensors, images = np.array(tmem, order="C"), np.array(smem, order="C")
        arrivals = np.zeros(ctas, np.int32)
        sizes = np.full(ctas, images.shape[1], np.int64)
        cycles = self._library.cta_run(
            _pointers(self._ctas(steps)), ctas, given, len(commands), _pointers(of.ctypes.data for of in images),
            sizes.ctypes.data, _pointers(of.ctypes.data for of in tensors), arrivals.ctypes.data, pattern.ctypes.data,
            len(pattern), _PATIENCE,
        )  # fmt: skip
        assert cycles >= 0, "the tensor cores do not end"
        return CtaRun(
            tensors,
            np.array([list(of.taken)[:ctas] for of in given]),
            np.array([list(of.done)[:ctas] for of in given]),
            [_flags(flags) for flags, _ in kept],
            arrivals,
            np.array([list(of.undefined)[:ctas] for of in given]),
        )

    def _payload(self, command: CtaCommand, cta: int) -> NDArray[np.uint32]:
        bits = int(self._layout.const(command.fields | ({"odd": cta} if command.n else {})).as_value().value)
        words = -(-self._layout.size // 32)
        return np.frombuffer(bits.to_bytes(4 * words, "little"), np.uint32)

    def __del__(self) -> None:
        for handles in getattr(self, "_handles", {}).values():
            for handle in handles:
                self._library.cta_destroy(handle)


def _pointers(addresses: Any) -> Any:
    listed = list(addresses)
    return (ctypes.c_void_p * len(listed))(*listed)


def _flags(words: NDArray[np.uint32]) -> NDArray[np.bool_]:
    bits = np.unpackbits(words.view(np.uint8), axis=-1, bitorder="little")
    return bits.astype(np.bool_).reshape(*words.shape[:-1], LANES, CHUNKS)
