"""Compilation of designs with injected faults by Verilator."""

from collections.abc import Mapping
from ctypes import CDLL
from pathlib import Path

from ...infra.loader import load_library
from ...infra.verilator import compile_library
from ..engine.driver import driver
from .mutants import Netlist

__all__ = ["TOP", "compile_faulty"]

#: Module name of the top module in every fault regression.
TOP = "bench"


def compile_faulty(netlist: Netlist, sources: Mapping[str, str], folder: Path) -> CDLL:
    """Build a shared library in a folder from a design with injected faults and its C++ driver; return the library."""
    library = folder / "model.so"
    # The configuration in `sources`, which describes the design, replaces the empty one of the driver of faults.
    with_faults = {**driver("faults.cpp", {}), **sources}
    compile_library(netlist.verilog, TOP, with_faults, library, optimisation=("-O1",))
    return load_library(library)
