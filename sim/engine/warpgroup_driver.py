"""Python interface of ``drivers/warpgroup.cpp``: compiled models of a warpgroup, and the structures that they take."""

import ctypes
from collections.abc import Sequence
from pathlib import Path

from ...rtl.fetch import PANEL_ROWS
from ...rtl.life_cycle import Operation
from ...rtl.tensor_cores import WARPS, mma_layout
from ...rtl.warp import LANES, REGISTERS, warp_operands_layout
from .array_units import unit_functions
from .driver import CompiledModel, driver, pattern_constants
from .warp_operands import RESULT_WORDS

__all__ = ["CArray", "CCommand", "CInstruction", "CWork", "GroupModel", "group_driver"]


def _pointers(*names: str) -> list[tuple[str, type]]:
    return [(name, ctypes.c_void_p) for name in names]


def _numbers(kind: type, *names: str) -> list[tuple[str, type]]:
    return [(name, kind) for name in names]


class CCommand(ctypes.Structure):
    """``Command`` of the driver."""

    _fields_ = (
        *_pointers("payload", "image", "c", "expected", "results"),
        *_numbers(ctypes.c_int32, "operation", "pending", "panels", "first_unit", "image_units", "reads", "ready"),
        *_numbers(ctypes.c_int64, "taken", "done"),
    )


class CInstruction(ctypes.Structure):
    """``Instruction`` of the driver."""

    _fields_ = (
        *_pointers("payload", "expected", "result"),
        *_numbers(ctypes.c_int32, "after", "surroundings", "interval"),
        *_numbers(ctypes.c_int64, "taken", "done"),
    )


class CArray(ctypes.Structure):
    """``Array`` of the driver."""

    _fields_ = (
        ("instructions", ctypes.POINTER(CInstruction)),
        *_numbers(ctypes.c_int32, "count", "issued", "answered"),
    )


class CWork(ctypes.Structure):
    """``Work`` of the driver."""

    _fields_ = (
        ("commands", ctypes.POINTER(CCommand)),
        ("arrays", ctypes.POINTER(CArray)),
        ("pattern", ctypes.c_void_p),
        *_numbers(ctypes.c_int64, "count", "pattern_cycles", "cycles", "patience", "longest_wait", "longest_silence"),
        ("ends_with_commands", ctypes.c_int64),
    )


def group_driver(ports: Sequence[str], top: str, more: Sequence[str] = ()) -> dict[str, str]:
    """Return the C++ that drives a :class:`~sptc.rtl.warpgroup.Warpgroup`; as for :func:`.driver.driver`."""
    operations = {name.lower(): operation.value for name, operation in Operation.__members__.items()}
    constants = operations | {
        "panel_words": WARPS * LANES * REGISTERS,
        "warp_words": RESULT_WORDS,
        "c_word": warp_operands_layout()["c"].offset // 32,
        "core_bit": mma_layout()["core"].offset,
        "warps": WARPS,
        "rows": PANEL_ROWS,
    }
    constants |= pattern_constants()
    return driver("warpgroup.cpp", constants, top=top, ports=ports, more=more)


class GroupModel(CompiledModel):
    """One warpgroup of a library built with ``drivers/warpgroup.cpp``.

    Its units are in a library of their own, unless `library` contains them, and are computed by a number of threads.
    """

    prefix, arguments = "group", (ctypes.c_void_p, ctypes.c_void_p)

    def __init__(self, library: ctypes.CDLL, units: Path | None = None, threads: int = 1) -> None:
        super().__init__(library, *unit_functions(units), threads)

    def run(self, work: CWork) -> tuple[str, int]:
        """Run work; return the broken rule, empty for none, and the number of accumulator panels that were taken."""
        taken = ctypes.c_int64()
        return self.run_driver(ctypes.byref(work), ctypes.byref(taken)), taken.value
