"""Limits of memory and time for tools that run as separate processes."""

import ctypes
import math
import resource
import signal
import subprocess
from collections.abc import Callable

from .reading import memory_limit

__all__ = ["LONGEST_RUN", "limited", "memory_failure"]

#: Option ``PR_SET_PDEATHSIG`` of Linux's ``prctl``: a process receives a signal when its parent ends.
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)

#: Environment variable that sets the memory limit of a tool process in GiB, and default limit in GiB.
_VARIABLE, _DEFAULT = "SPTC_TOOL_GIB", 16.0
#: Default time limit in seconds for one run of a tool.
LONGEST_RUN = 4 * 3600.0
#: Texts in the output of a tool that report a lack of memory.
_SIGNS = ("bad_alloc", "out of memory", "Out of memory", "MemoryError", "annot allocate")


def _gib() -> float:
    return memory_limit(_VARIABLE, _DEFAULT)


def limited(seconds: float | None = None) -> Callable[[], None]:
    """Return a function for ``preexec_fn`` that limits the memory of a process and its children.

    If `seconds` is given, SIGXCPU ends the process after this processor time, rounded up to whole seconds. The kernel
    kills the process when its parent ends. Raise an `Error` if the environment variable ``SPTC_TOOL_GIB`` is not a
    number above 0.
    """
    size = int(_gib() * (1 << 30))

    def set_limit() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        _, most = resource.getrlimit(resource.RLIMIT_AS)
        size_now = size if most == resource.RLIM_INFINITY else min(size, most)
        resource.setrlimit(resource.RLIMIT_AS, (size_now, most))
        if seconds is not None:
            _, most = resource.getrlimit(resource.RLIMIT_CPU)
            resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(seconds), most))

    return set_limit


def memory_failure(tool: str, done: "subprocess.CompletedProcess[str]") -> str:
    """Return an error message if the output of a failed process reports a lack of memory, else an empty string."""
    if not any(sign in done.stdout + done.stderr for sign in _SIGNS):
        return ""
    return f"{tool} ran out of memory: the limit is {_gib():g} GiB, and {_VARIABLE} sets another limit"
