"""Tensor cores of a CTA or CTA pair, compiled by Verilator, which execute commands on given memory contents."""

import ctypes
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...rtl.accumulators import ARRAYS
from ...rtl.config import WARP_COLUMNS
from ...rtl.fetch import PANEL_ROWS
from ...rtl.tcgen05 import TCGEN05_ARRAY, Tcgen05
from ...rtl.warp import CHUNKS, ROWS
from .array_units import CompiledTop, unit_functions
from .driver import PATIENCE, CompiledModel, driver, members
from .ports import flags_of
from .tcgen05_commands import CtaCommand, CtaRun

__all__ = ["CompiledTcgen05", "CtaModel", "cta_driver", "run_ctas"]

_FOREVER = np.iinfo(np.int64).max
#: Names of the result fields that the C++ driver writes for each command.
_OF_COMMANDS = ("taken", "done", "undefined")


class _CCommand(ctypes.Structure):
    _fields_ = (
        *members(ctypes.c_void_p * 2, "payload", "flags"),
        *members(ctypes.c_int32, "panels"),
        *members(ctypes.c_int32 * 2, "written", "undefined"),
        *members(ctypes.c_int64 * 2, "taken", "done"),
    )


class _CWork(ctypes.Structure):
    _fields_ = (
        ("commands", ctypes.POINTER(_CCommand)),
        *members(ctypes.c_void_p * 2, "images", "tensors"),
        *members(ctypes.c_void_p, "pattern"),
        *members(ctypes.c_int64, "ctas", "count", "image_bytes", "pattern_cycles", "cycles", "patience"),
        *members(ctypes.c_int64 * 2, "arrivals"),
        *members(ctypes.c_void_p, "outputs"),
        *members(ctypes.c_int64, "compares"),
    )


def cta_driver(ports: Sequence[str], top: str, *, lanes: int) -> dict[str, str]:
    """Return the C++ driver of a :class:`~sptc.rtl.tcgen05.Tcgen05` model; parameters as for :func:`.driver.driver`."""
    constants = {"rows": PANEL_ROWS, "lanes": lanes, "flag_words": lanes * CHUNKS // 32}
    return driver("tcgen05.cpp", constants, top=top, ports=ports)


class CtaModel(CompiledModel):
    """Model of one CTA's tensor cores, whose dot-product units are simulated by a separate library."""

    prefix, arguments = "cta", (ctypes.c_void_p,)

    def __init__(self, library: ctypes.CDLL, units: Path) -> None:
        super().__init__(library, unit_functions(units))


def run_ctas(
    models: Sequence[CtaModel],
    commands: Sequence[CtaCommand],
    tmem: NDArray[np.uint32],
    smem: NDArray[np.uint8],
    pattern: NDArray[np.uint8] | None = None,
    cycles: int = _FOREVER,
    outputs: NDArray[np.uint32] | None = None,
    *,
    compares: bool = False,
) -> CtaRun:
    """Reset one CTA or a CTA pair and run commands until all results are written and all commits have arrived.

    There is one model for each CTA; both CTAs of a pair get all commands. Tensor memory has the shape (CTAs, lanes,
    512) with the lanes that the models have, shared memory the shape (CTAs, bytes). The pattern repeats; bit c of its
    element for a cycle determines whether the next command is offered to CTA c. By default, commands are offered in
    every cycle. The run ends after at most `cycles` cycles. A hash of all outputs in each cycle is stored in `outputs`
    or, with `compares`, compared with the one there; the run ends if the two differ.
    """
    ctas, lanes = tmem.shape[:2]
    pattern = np.full(1, 3, np.uint8) if pattern is None else pattern
    entries, buffers = (_CCommand * len(commands))(), []
    for command, entry in zip(commands, entries, strict=True):
        entry.panels = command.n // WARP_COLUMNS
        flags = np.zeros((ctas, entry.panels, lanes * CHUNKS // 32), np.uint32)
        buffers.append(flags)
        for cta in range(ctas):
            entry.payload[cta], entry.flags[cta] = command.payloads[cta].ctypes.data, flags[cta].ctypes.data
        entry.taken[:], entry.done[:] = [-1, -1], [-1, -1]
    tensors, images = np.array(tmem, order="C"), np.array(smem, order="C")
    work = _CWork(entries, pattern=pattern.ctypes.data, ctas=ctas, count=len(commands), image_bytes=images.shape[1])
    work.pattern_cycles, work.cycles, work.patience = len(pattern), cycles, PATIENCE
    work.outputs, work.compares = None if outputs is None else outputs.ctypes.data, compares
    for cta in range(ctas):
        work.images[cta], work.tensors[cta] = images[cta].ctypes.data, tensors[cta].ctypes.data
    handles = (ctypes.c_void_p * ctas)(*(model.handle for model in models))
    broken = models[0].library.cta_run(handles, ctypes.byref(work))
    return CtaRun(
        tmem=tensors,
        illegal=[flags_of(flags).reshape(*flags.shape[:-1], lanes, CHUNKS) for flags in buffers],
        broken=(broken or b"").decode(),
        **{name: np.array([list(getattr(entry, name))[:ctas] for entry in entries]) for name in _OF_COMMANDS},
        arrivals=np.array(list(work.arrivals)[:ctas]),
    )


def _models_of_pair(library: ctypes.CDLL, units: Path) -> list[CtaModel]:
    return [CtaModel(library, units) for _ in range(2)]


class CompiledTcgen05(CompiledTop[list[CtaModel]]):
    """Tensor cores of a pair of CTAs; each array of dot-product units is half of a tensor core of sm_100.

    An array has 16 rows, whose results are written to 16 lanes of tensor memory.
    """

    top, title = "tcgen05", "tensor cores of a CTA"

    def __init__(self) -> None:
        component, driver = partial(Tcgen05, TCGEN05_ARRAY, ARRAYS), partial(cta_driver, lanes=ROWS * ARRAYS)
        super().__init__(TCGEN05_ARRAY, component, driver, _models_of_pair)

    def run(
        self,
        commands: Sequence[CtaCommand],
        tmem: NDArray[np.uint32],
        smem: NDArray[np.uint8],
        pattern: NDArray[np.uint8] | None = None,
    ) -> CtaRun:
        """Reset one CTA or a CTA pair and run commands until all results are written; see :func:`.run_ctas`.

        Raise an `AssertionError` if the hardware breaks a rule or does not finish.
        """
        steps: Counter[int] = Counter()
        for command in commands:
            if command.n:
                steps[int(command.fields["control"].as_bits())] += tmem.shape[0] * tmem.shape[1] * command.n
        run = run_ctas(self._model(steps)[: len(tmem)], commands, tmem, smem, pattern)
        assert not run.broken, f"the hardware of a CTA breaks a rule: it {run.broken}"
        return run
