"""Python interface of ``drivers/tcgen05.cpp``: compiled tensor cores of one CTA or a pair."""

import ctypes
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...rtl.config import WARP_COLUMNS
from ...rtl.fetch import PANEL_ROWS
from ...rtl.tcgen05 import tcgen05_layout
from ...rtl.warp import CHUNKS
from .array_units import FUNCTIONS, unit_functions
from .driver import driver
from .tcgen05_commands import CtaCommand, CtaRun

__all__ = ["CtaModel", "cta_driver", "run_ctas"]

#: Cycles without a transfer after which a run is given up; longer than any gap in a pattern.
_PATIENCE = 1 << 14
_FOREVER = np.iinfo(np.int64).max


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


class _CWork(ctypes.Structure):
    _fields_ = (
        ("commands", ctypes.POINTER(_CCommand)),
        ("images", ctypes.c_void_p * 2),
        ("tensors", ctypes.c_void_p * 2),
        ("pattern", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("ctas", "count", "image_bytes", "pattern_cycles", "cycles", "patience")),
        *((name, ctypes.c_int64 * 2) for name in ("arrivals", "reads", "columns")),
    )


def cta_driver(ports: Sequence[str], lanes: int, top: str, more: Sequence[str] = ()) -> dict[str, str]:
    """Return the C++ that drives a model of :class:`~sptc.rtl.tcgen05.Tcgen05`.

    Parameters
    ----------
    ports : sequence of str
        Ports of the model.
    lanes : int
        Lanes of tensor memory.
    top : str
        Top module.
    more : sequence of str
        Further driver files for the same model.
    """
    constants = {"rows": PANEL_ROWS, "lanes": lanes, "flag_words": lanes * CHUNKS // 32}
    return driver("tcgen05.cpp", constants, top=top, ports=ports, more=more)


class CtaModel:
    """The tensor cores of one CTA, from a compiled library.

    Parameters
    ----------
    library : ctypes.CDLL
        Library built with ``drivers/tcgen05.cpp``.
    units : Path
        Library of their units.
    """

    def __init__(self, library: ctypes.CDLL, units: Path) -> None:
        self.library = library
        pointer = ctypes.c_void_p
        library.cta_create.restype = pointer
        library.cta_create.argtypes = [pointer] * len(FUNCTIONS)
        library.cta_destroy.argtypes = [pointer]
        library.cta_run.restype = ctypes.c_char_p
        library.cta_run.argtypes = [pointer] * 2
        self.handle = library.cta_create(*unit_functions(units))

    def select_fault(self, number: int) -> None:
        """Activate a fault of a model that has faults; zero for none."""
        self.library.select_fault(ctypes.c_void_p(self.handle), number)

    def __del__(self) -> None:
        if handle := getattr(self, "handle", None):
            self.library.cta_destroy(handle)


def run_ctas(
    models: Sequence[CtaModel],
    commands: Sequence[CtaCommand],
    tmem: NDArray[np.uint32],
    smem: NDArray[np.uint8],
    pattern: NDArray[np.uint8] | None = None,
    cycles: int = _FOREVER,
) -> CtaRun:
    """Run commands on one CTA or a pair from reset, until all results are written and all commits have arrived.

    Parameters
    ----------
    models : sequence of CtaModel
        One model, or two of the same library for a pair.
    commands : sequence of CtaCommand
        Commands in order; both CTAs of a pair get all of them.
    tmem : ndarray of uint32, shape (CTAs, lanes, 512)
        Initial tensor memory, with as many lanes as the models have.
    smem : ndarray of uint8, shape (CTAs, bytes)
        Shared memory.
    pattern : ndarray of uint8, optional
        For each cycle, bit c: the next command is offered to CTA c. The pattern repeats. By default both bits are set.
    cycles : int
        Limit after which the run is given up.
    """
    ctas, lanes = tmem.shape[:2]
    pattern = np.full(1, 3, np.uint8) if pattern is None else pattern
    given, kept = (_CCommand * len(commands))(), []
    for command, of in zip(commands, given, strict=True):
        of.panels = command.n // WARP_COLUMNS
        flags = np.zeros((ctas, of.panels, lanes * CHUNKS // 32), np.uint32)
        payloads = [_payload(command, cta) for cta in range(ctas)]
        kept.append((flags, payloads))
        for cta in range(ctas):
            of.payload[cta], of.flags[cta] = payloads[cta].ctypes.data, flags[cta].ctypes.data
        of.taken[:], of.done[:] = [-1, -1], [-1, -1]
    tensors, images = np.array(tmem, order="C"), np.array(smem, order="C")
    work = _CWork(given, pattern=pattern.ctypes.data, ctas=ctas, count=len(commands), image_bytes=images.shape[1])
    work.pattern_cycles, work.cycles, work.patience = len(pattern), cycles, _PATIENCE
    for cta in range(ctas):
        work.images[cta], work.tensors[cta] = images[cta].ctypes.data, tensors[cta].ctypes.data
    handles = (ctypes.c_void_p * ctas)(*(model.handle for model in models))
    broken = models[0].library.cta_run(handles, ctypes.byref(work))
    arrivals, reads, columns = (np.array(list(counts)[:ctas]) for counts in (work.arrivals, work.reads, work.columns))
    return CtaRun(
        tmem=tensors,
        taken=np.array([list(of.taken)[:ctas] for of in given]),
        done=np.array([list(of.done)[:ctas] for of in given]),
        illegal=[_flags(flags, lanes) for flags, _ in kept],
        arrivals=arrivals,
        reads=reads,
        columns=columns,
        undefined=np.array([list(of.undefined)[:ctas] for of in given]),
        broken=(broken or b"").decode(),
    )


def _payload(command: CtaCommand, cta: int) -> NDArray[np.uint32]:
    layout = tcgen05_layout()
    bits = int(layout.const(command.fields | ({"odd": cta} if command.n else {})).as_value().value)
    return np.frombuffer(bits.to_bytes(4 * -(-layout.size // 32), "little"), np.uint32)


def _flags(words: NDArray[np.uint32], lanes: int) -> NDArray[np.bool_]:
    bits = np.unpackbits(words.view(np.uint8), axis=-1, bitorder="little")
    return bits.astype(np.bool_).reshape(*words.shape[:-1], lanes, CHUNKS)
