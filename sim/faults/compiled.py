"""Faulty hardware compiled by Verilator, with a driver in C++."""

import ctypes
from pathlib import Path

from numpy.typing import NDArray

from ...infra.verilator import compile_library
from .mutants import SELECT, Netlist

__all__ = ["COMMON", "TOP", "compiled", "pointer"]

#: Name of the top module of every regression.
TOP = "bench"
_OPTIMISATION = ("-O1",)
#: What every driver begins with.
COMMON = f"""
static V{TOP} top;
extern "C" void select_fault(int fault) {{ top.{SELECT} = fault; }}
"""


def compiled(netlist: Netlist, driver: str, folder: Path) -> ctypes.CDLL:
    """Return the library of a design with faults and of a driver that begins with :data:`COMMON`, built in a folder."""
    library = folder / "model.so"
    compile_library(netlist.verilog, TOP, driver, library, optimisation=_OPTIMISATION)
    return ctypes.CDLL(str(library))


def pointer(array: NDArray) -> ctypes.c_void_p:
    """Return where the elements of an array are, one behind the other."""
    assert array.flags.c_contiguous
    return ctypes.c_void_p(array.ctypes.data)
