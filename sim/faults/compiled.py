"""Compilation of designs with injected faults by Verilator."""

from collections.abc import Mapping
from pathlib import Path

from ...infra.verilator import compile_library
from .mutants import Netlist

__all__ = ["LIBRARY", "SELECTING", "TOP", "compile_faulty"]

#: Module name of the top module in every fault regression.
TOP = "bench"
#: C++ driver file that activates a fault; it is compiled together with the driver of the top module.
SELECTING = ("faults.cpp",)
#: File name of the compiled library in the folder of a fault regression.
LIBRARY = "model.so"
_OPTIMISATION = ("-O1",)


def compile_faulty(netlist: Netlist, sources: Mapping[str, str], folder: Path) -> None:
    """Build a shared library in a folder from a design with injected faults and its C++ driver."""
    compile_library(netlist.verilog, TOP, sources, folder / LIBRARY, optimisation=_OPTIMISATION)
