"""Run ABC in a separate process to decide properties of and-inverter graphs."""

import signal
import subprocess
from pathlib import Path

from ..errors import BackendError
from .installation import install_line
from .limits import limited, memory_failure
from .yosys import yosys_folder

__all__ = ["run_abc"]


def run_abc(folder: Path, graph: str, commands: str, seconds: float | None) -> str:
    """Run ABC on an and-inverter graph and return the text that ABC prints.

    `graph` is the name of an AIGER file in `folder`, and `commands` are separated by semicolons. Constraints are folded
    into the outputs of the graph; uninitialised registers may hold any value. Raise a `BackendError` if ABC is not
    installed, fails or takes more memory than :func:`~sptc.infra.limits.limited` allows, and a `TimeoutError` after
    `seconds` of processor time. A limit of processor time, unlike one of real time, does not depend on the load of the
    machine.
    """
    yosys = yosys_folder()
    if yosys is None:
        raise BackendError(f"proofs need ABC: install it with `{install_line('formal')}`")
    words = [str(yosys / "yosys-abc"), "-q", f"read_aiger {graph}; logic; undc; strash; zero; fold; {commands}"]
    done = subprocess.run(  # A search may take hours, so the ABC process ends when its parent process ends.
        words, cwd=folder, capture_output=True, text=True, check=False, preexec_fn=limited(seconds)
    )
    if seconds is not None and done.returncode == -signal.SIGXCPU:
        raise TimeoutError
    if done.returncode:
        if failure := memory_failure("ABC", done):
            raise BackendError(failure)
        raise BackendError(f"ABC failed: {(done.stdout + done.stderr).strip().splitlines()[-1:]}")
    return done.stdout
