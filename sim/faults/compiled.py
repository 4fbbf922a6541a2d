"""Compilation of designs with injected faults by Verilator."""

from collections.abc import Mapping, Sequence
from ctypes import CDLL
from pathlib import Path

from ...infra.loader import load_library
from ...infra.verilator import compile_library
from ..engine.driver import driver
from .mutants import Netlist

__all__ = ["TOP", "compile_faulty"]

#: Module name of the top module in every fault regression.
TOP = "bench"


def compile_faulty(
    netlist: Netlist, folder: Path, source: str, constants: Mapping[str, int], ports: Sequence[str] = ()
) -> CDLL:
    """Build a shared library in a folder from a design with injected faults; return the library.

    The C++ driver is that of :func:`~sptc.sim.engine.driver.driver` for the file `source`, `constants` and `ports`.
    """
    library = folder / "model.so"
    # The configuration of the design replaces the empty one of the driver of faults.
    sources = {**driver("faults.cpp", {}), **driver(source, constants, top=TOP, ports=ports)}
    compile_library(netlist.verilog, TOP, sources, library, optimisation=("-O1",))
    return load_library(library)
