"""ABC, in a process of its own: what decides questions about and-inverter graphs."""

import ctypes
import importlib.util
import signal
import subprocess
import sys
from pathlib import Path

from ..errors import BackendError
from .installation import install_line

__all__ = ["end_with_parent", "run_abc"]

#: Of Linux's ``prctl``: a signal for this process once its parent is gone.
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def end_with_parent() -> None:
    """Let this process be killed once its parent is gone, however that ended; for ``preexec_fn``, on Linux alone."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def run_abc(folder: Path, graph: str, commands: str, seconds: float | None) -> str:
    """Run ABC on a graph with constraints, folded into its outputs; registers without a first value hold any.

    Parameters
    ----------
    folder : Path
        Where the graph is.
    graph : str
        Its file, in AIGER.
    commands : str
        What is done with it, with semicolons between.
    seconds : float or None
        After which the process is ended; None for no limit.

    Returns
    -------
    str
        What ABC printed.

    Raises
    ------
    BackendError
        ABC is not installed, or fails.
    TimeoutError
        Time was up.
    """
    found = importlib.util.find_spec("pyosys")
    if found is None or found.origin is None:
        raise BackendError(f"proofs need ABC: install it with `{install_line('formal')}`")
    program = Path(found.origin).parent / "yosys-abc"
    words = [str(program), "-q", f"read_aiger {graph}; logic; undc; strash; zero; fold; {commands}"]
    try:
        done = subprocess.run(  # a search may take hours, and its parent be killed meanwhile
            words, cwd=folder, capture_output=True, text=True, check=False, timeout=seconds, preexec_fn=end_with_parent
        )
    except subprocess.TimeoutExpired:
        raise TimeoutError from None
    if done.returncode:
        raise BackendError(f"ABC failed: {(done.stdout + done.stderr).strip().splitlines()[-1:]}")
    return done.stdout
