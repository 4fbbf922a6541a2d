"""A scheduler and workers of Dask, all processes of this machine."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def cluster(folder: Path, workers: int) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """Give the address of a scheduler, and its workers."""
    dask, where = [sys.executable, "-m", "dask"], folder / "scheduler.json"
    local = ["--host", "127.0.0.1", "--no-dashboard"]
    quiet: dict[str, Any] = {"cwd": folder, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    started = [subprocess.Popen([*dask, "scheduler", *local, "--port", "0", "--scheduler-file", str(where)], **quiet)]
    try:
        deadline = time.monotonic() + 600
        while not where.exists() or not where.read_text().endswith("}"):  # a worker that reads half of it gives up
            assert time.monotonic() < deadline, "the scheduler does not start, or this machine is too slow"
            time.sleep(0.1)
        one = ["--scheduler-file", str(where), "--no-nanny", "--nthreads", "2"]
        started += [subprocess.Popen([*dask, "worker", *local, *one], **quiet) for _ in range(workers)]
        yield json.loads(where.read_text())["address"], started[1:]
    finally:
        for process in reversed(started):
            process.kill()
            process.wait()
