"""A disk that is full, a cache that cannot be written, and two builders of one thing: as commands meet them."""

import os
import re
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sptc.tests.hostile.test_kills import BUILD

#: Elements of what the command writes; more bytes than the disk has left.
_ROOM = 50_000


def _command(*words: str, room: int | None = None, **environment: str) -> "subprocess.Popen[str]":
    """Start a command, with so many bytes of room for each file."""

    def limit() -> None:
        if room is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, *words], env=os.environ | environment, preexec_fn=limit, **pipes)


@pytest.mark.regression
@pytest.mark.parametrize(
    "words",
    [
        ("gemm", "--random", "300", "300", "64", "--backend", "golden", "--jobs", "1", "--output", "OUT.npy"),
        # The tool that writes it has no room of its own either.
        ("verilog", "--preset", "hopper", "-o", "OUT.v"),
        ("explain", "wgmma.mma_async.sp.sync.aligned.m64n64k32.f32.f16.f16", "--svg", "OUT.svg"),
        ("compress", "IN.npy", "--prune", "--output", "OUT.npz"),
        ("campaign", "--shards", "40", "--arch", "sm_80", "--state", "OUT", "--jobs", "1"),
    ],
    ids=lambda words: words[0],
)
def test_a_full_disk(words: tuple[str, ...], tmp_path: Path, rng: np.random.Generator) -> None:
    """One sentence that names the file, status 2, and no file that looks whole."""
    source = tmp_path / "IN.npy"
    np.save(source, rng.standard_normal((512, 512)))
    given = [str(tmp_path / word) if word.startswith(("OUT", "IN")) else word for word in words]
    process = _command("-m", "sptc", *given, room=_ROOM)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 2, errors
    assert len(errors.splitlines()) == 1, errors
    assert re.search(r"cannot (be written|write|hold) ", errors), errors
    output = next(tmp_path / word for word in words if word.startswith("OUT"))
    assert not output.is_file()


@pytest.mark.regression
def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    process = _command("-c", BUILD, SPTC_CACHE="/dev/null/cache")
    printed, errors = process.communicate(timeout=300)
    assert (process.returncode, errors) == (0, "")
    assert printed.startswith("[")
