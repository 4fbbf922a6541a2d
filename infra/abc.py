"""Run ABC in a separate process to decide properties of and-inverter graphs."""

import ctypes
import importlib.util
import signal
import subprocess
import sys
from pathlib import Path

from ..errors import BackendError
from .installation import install_line
from .limits import limited, memory_failure

__all__ = ["end_with_parent", "run_abc"]

#: Option number of Linux's ``prctl`` by which a process receives a signal when its parent ends.
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def end_with_parent() -> None:
    """Request that the kernel kill this process when its parent ends. A ``preexec_fn`` of subprocess, on Linux only."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def run_abc(folder: Path, graph: str, commands: str, seconds: float | None) -> str:
    """Run ABC on an and-inverter graph and return its output.

    `graph` is the name of an AIGER file in `folder`, and `commands` are separated by semicolons. Constraints are folded
    into the outputs of the graph; uninitialised registers may hold any value. Raise a `BackendError` if ABC is not
    installed, fails or takes more memory than :func:`~sptc.infra.limits.limited` allows, and a `TimeoutError` after
    `seconds` of processor time, so that the outcome does not depend on the load of the machine.
    """
    yosys = importlib.util.find_spec("pyosys")
    if yosys is None or yosys.origin is None:
        raise BackendError(f"proofs need ABC: install it with `{install_line('formal')}`")
    program = Path(yosys.origin).parent / "yosys-abc"
    words = [str(program), "-q", f"read_aiger {graph}; logic; undc; strash; zero; fold; {commands}"]
    done = subprocess.run(  # The ABC process ends with its parent, since a search may take hours.
        words, cwd=folder, capture_output=True, text=True, check=False, preexec_fn=limited(end_with_parent, seconds)
    )
    if seconds is not None and done.returncode == -signal.SIGXCPU:
        raise TimeoutError
    if done.returncode:
        if failure := memory_failure("ABC", done):
            raise BackendError(failure)
        raise BackendError(f"ABC failed: {(done.stdout + done.stderr).strip().splitlines()[-1:]}")
    return done.stdout
