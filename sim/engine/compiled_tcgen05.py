"""Tensor cores of a CTA or CTA pair, compiled by Verilator, which execute commands on given memory contents."""

import ctypes
from collections import Counter
from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ...rtl.accumulators import ARRAYS
from ...rtl.config import WARP_COLUMNS
from ...rtl.fetch import PANEL_ROWS
from ...rtl.tcgen05 import TCGEN05_ARRAY, Tcgen05
from ...rtl.warp import CHUNKS, ROWS
from .array_units import CompiledTop, TopModel
from .driver import PATIENCE, members
from .ports import flags_of
from .tcgen05_commands import CtaCommand, CtaRun

__all__ = ["CompiledTcgen05", "CtaModel", "cta_constants", "run_ctas"]


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
        *members(ctypes.c_int64, "ctas", "count", "image_bytes", "pattern_cycles", "cycles"),
        *members(ctypes.c_int64 * 2, "arrivals"),
        *members(ctypes.c_void_p, "outputs"),
        *members(ctypes.c_int64, "compares"),
    )


def cta_constants(lanes: int) -> dict[str, int]:
    """Return the constants for the C++ driver ``drivers/tcgen05.cpp``; tensor memory has `lanes` lanes."""
    return {"rows": PANEL_ROWS, "lanes": lanes, "flag_words": lanes * CHUNKS // 32, "patience": PATIENCE}


class CtaModel(TopModel):
    """Model of one CTA's tensor cores, in a library built from ``drivers/tcgen05.cpp``."""

    prefix, arguments = "cta", (ctypes.c_void_p,)


def run_ctas(
    models: Sequence[CtaModel],
    commands: Sequence[CtaCommand],
    tmem: NDArray[np.uint32],
    smem: NDArray[np.uint8],
    pattern: NDArray[np.uint8] | None = None,
    outputs: NDArray[np.uint32] | None = None,
    *,
    compares: bool = False,
) -> CtaRun:
    """Reset one CTA or a CTA pair and run commands until all results are written and all commits have arrived.

    There is one model for each CTA; both CTAs of a pair get all commands. `tmem` has the shape (CTAs, lanes, 512), with
    the number of lanes of the models, and `smem` has the shape (CTAs, bytes). The pattern has one element per cycle,
    and repeats; bit c of an element determines whether the next command is offered to CTA c. By default, commands are
    offered in every cycle. With `outputs`, the run ends after at most as many cycles as `outputs` has elements. Each
    element gets a hash of all outputs of the models in one cycle. With `compares`, each hash is compared with the
    element of `outputs` instead, and the run ends if the two differ.
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
    work.pattern_cycles, work.compares = len(pattern), compares
    if outputs is None:
        work.cycles = np.iinfo(np.int64).max
    else:
        work.cycles, work.outputs = len(outputs), outputs.ctypes.data
    for cta in range(ctas):
        work.images[cta], work.tensors[cta] = images[cta].ctypes.data, tensors[cta].ctypes.data
    handles = (ctypes.c_void_p * ctas)(*(model.handle for model in models))
    broken = models[0].library.cta_run(handles, ctypes.byref(work))
    by_command = ("taken", "done", "undefined")
    return CtaRun(
        tmem=tensors,
        illegal=[flags_of(flags).reshape(*flags.shape[:-1], lanes, CHUNKS) for flags in buffers],
        broken=(broken or b"").decode(),
        **{name: np.array([list(getattr(entry, name))[:ctas] for entry in entries]) for name in by_command},
        arrivals=np.array(list(work.arrivals)[:ctas]),
    )


class CompiledTcgen05(CompiledTop[list[CtaModel]]):
    """Tensor cores of a pair of CTAs; each array of dot-product units is half of a tensor core of sm_100.

    An array has 16 rows, whose results are written to 16 lanes of tensor memory.
    """

    top, title, source = "tcgen05", "tensor cores of a CTA", "tcgen05.cpp"

    def __init__(self) -> None:
        super().__init__(
            TCGEN05_ARRAY,
            partial(Tcgen05, TCGEN05_ARRAY, ARRAYS),
            cta_constants(ROWS * ARRAYS),
            lambda library, units: [CtaModel(library, units) for _ in range(2)],
        )

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
