"""Run Yosys in a separate process, for fault injection, proofs and synthesis."""

import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from ..errors import BackendError
from .compiler import printed_by
from .installation import install_line
from .limits import LONGEST_RUN, limited, memory_failure

__all__ = ["run_yosys", "yosys_folder", "yosys_version"]

_PROGRAM = """\
import sys
from pyosys import libyosys
libyosys.run_pass("script " + sys.argv[1], libyosys.Design())
"""
#: Environment variable with the path of a Yosys that is used instead of Yosys in the Python wheel.
_OWN = "SPTC_YOSYS"


def yosys_folder() -> Path | None:
    """Return the folder that contains Yosys (of :func:`run_yosys`) and ABC, or None if Yosys is not installed."""
    if own := shutil.which(os.environ.get(_OWN, "")):
        return Path(own).parent
    spec = importlib.util.find_spec("pyosys")
    return Path(spec.origin).parent if spec and spec.origin else None


def yosys_version() -> str:
    """Return the version of the Yosys that :func:`run_yosys` runs.

    The environment variable ``SPTC_YOSYS`` names the program; the default is the Yosys of the wheel ``pyosys``.
    Versions 0.23 and 0.70 are tested. Raise a `BackendError` if Yosys is missing, or the program does not run.
    """
    if own := os.environ.get(_OWN):
        return printed_by(_OWN, own, "-V")
    if importlib.util.find_spec("pyosys") is None:
        raise BackendError(f"Yosys is not installed: install it with `{install_line('area')}`")
    return importlib.metadata.version("pyosys")


def run_yosys(folder: Path, script: str, timeout: float = LONGEST_RUN) -> str:
    """Run a Yosys script, one command per line, in a folder. Return the output of Yosys.

    During the run, the folder also contains the script and scratch files. Raise a `BackendError` if Yosys is not
    installed, or the script fails, takes longer than `timeout` seconds, or more memory than
    :func:`~sptc.infra.limits.limited` allows.
    """
    own = os.environ.get(_OWN)
    yosys_version()
    with tempfile.NamedTemporaryFile("w", dir=folder, suffix=".ys", encoding="utf-8") as file:
        file.write(script)
        file.flush()
        environment = {**os.environ, "TMPDIR": str(folder.absolute())}  # temporary folder in which ABC writes its files
        command = [own, "-s"] if own else [sys.executable, "-c", _PROGRAM]
        command.append(Path(file.name).name)
        try:
            done = subprocess.run(
                command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=timeout,
                preexec_fn=limited(),
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise BackendError(f"Yosys took longer than {timeout:g} seconds") from None
    if done.returncode:
        if failure := memory_failure("Yosys", done):
            raise BackendError(failure)
        lines = [line for line in (done.stdout + done.stderr).splitlines() if "ERROR" in line] or ["no message"]
        raise BackendError(f"Yosys failed: {lines[0].strip()}")
    return done.stdout
