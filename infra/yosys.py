"""Run Yosys in a separate process, for fault injection, proofs and synthesis."""

import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from ..errors import BackendError
from .installation import install_line
from .limits import LONGEST_RUN, limited, memory_failure

__all__ = ["run_yosys"]

_PROGRAM = """\
import ctypes, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, 9)  # killed when its parent is, which cannot say good-bye
from pyosys import libyosys
libyosys.run_pass("script " + sys.argv[1], libyosys.Design())
"""


def run_yosys(folder: Path, script: str, timeout: float = LONGEST_RUN) -> str:
    """Run a Yosys script, one command per line, in a folder. Return what Yosys printed.

    The folder also gets a scratch file during the run. Raise a `BackendError` if Yosys is not installed, or the script
    fails, takes longer than `timeout` seconds, or more memory than :func:`~sptc.infra.limits.limited` allows.
    """
    if importlib.util.find_spec("pyosys") is None:
        raise BackendError(f"this needs Yosys: install it with `{install_line('yosys')}`")
    with tempfile.NamedTemporaryFile("w", dir=folder, suffix=".ys", encoding="utf-8") as file:
        file.write(script)
        file.flush()
        environment = {**os.environ, "TMPDIR": str(folder.absolute())}  # temporary folder in which ABC writes its files
        command = [sys.executable, "-c", _PROGRAM, Path(file.name).name]
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
