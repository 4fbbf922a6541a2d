"""The process that decides questions about graphs ends with the one that asked, however that ends."""

import os
import signal
import subprocess
import sys
import time

import pytest

_PARENT = """
import subprocess, time
from sptc.infra.abc import end_with_parent
child = subprocess.Popen(["sleep", "600"], preexec_fn=end_with_parent)
print(child.pid, flush=True)
time.sleep(600)
"""


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent is gone")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_child_ends_with_its_parent(how: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", _PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert _is_there(child)
        parent.send_signal(how)
        parent.wait()
    for _ in range(1000):
        if not _is_there(child):
            return
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    raise AssertionError("the child outlives its parent")
