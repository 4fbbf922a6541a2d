"""Compile hardware with faults by Verilator."""

from collections.abc import Mapping
from pathlib import Path

from ...infra.verilator import compile_library
from .mutants import Netlist

__all__ = ["LIBRARY", "SELECTING", "TOP", "compile_faulty"]

#: Name of the top module of every regression.
TOP = "bench"
#: Driver that selects a fault, compiled beside the driver of the top.
SELECTING = ("faults.cpp",)
#: File name of the library in the folder of a regression.
LIBRARY = "model.so"
_OPTIMISATION = ("-O1",)


def compile_faulty(netlist: Netlist, sources: Mapping[str, str], folder: Path) -> None:
    """Build the library of a design with faults and its driver in a folder."""
    compile_library(netlist.verilog, TOP, sources, folder / LIBRARY, optimisation=_OPTIMISATION)
