"""Commands leave no wrong files if they are killed at random moments, or if the disk is full."""

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sptc.tests.cli.test_campaign import records

_SPTC = (sys.executable, "-m", "sptc")
_GEMM = "gemm --random 900 700 768 --backend golden --jobs 2 --output d.npy"
_CAMPAIGN = "campaign --arch sm_80 --tiles 2 --seed 11 --shards 400 --state state"
_PROVE = "prove metadata --preset tiny --jobs 2 --json"
_SWEEP = "sweep --formats s8 f16 --step-bytes 4 8 --cuts none --jobs 2 --json"
BUILD = """
import numpy as np
from sptc.rtl.config import PRESETS
from sptc.sim.engine.engine import engine
from sptc.sim.engine.steps import step_words
unit = engine(PRESETS["tiny"])
steps = np.arange(64 * step_words(unit.config).total, dtype=np.uint32).reshape(64, -1)
print(unit.push(steps).tolist())
"""
#: Size limit of each file in bytes, less than the commands write.
_ROOM = 50_000


@dataclass(frozen=True)
class Work:
    """Command that stores completed parts of its work in its current folder, or in a cache below this folder."""

    words: tuple[str, ...]
    #: Function that returns the result of a run from its output and its folder. All complete runs have equal results.
    result: Callable[[str, Path], object]
    #: Number of kills of this command. All commands together are killed twenty times.
    kills: int
    #: Name of an output file that may exist only if it is complete. Empty if the command writes no such file.
    finished: str = ""
    #: True if the command stores its work in the cache. Such a command gets a cache of its own.
    fills_cache: bool = False


def _rows(printed: str, name: str) -> list[dict[str, Any]]:
    """Return the rows of a report without times and without fields that depend on the cache."""
    rows = json.loads(printed)[name]
    for row in rows:
        for part in (row, row.get("unit") or {}):
            for field in ("seconds", "cached"):
                part.pop(field, None)
    return sorted(rows, key=json.dumps)


WORKS = {
    "gemm": Work((*_SPTC, *_GEMM.split()), lambda _, folder: (folder / "d.npy").read_bytes(), 9, "d.npy"),
    "campaign": Work((*_SPTC, *_CAMPAIGN.split()), lambda _, folder: records(folder / "state"), 6),
    "prove": Work((*_SPTC, *_PROVE.split()), lambda printed, _: _rows(printed, "proofs"), 2),
    "sweep": Work((*_SPTC, *_SWEEP.split()), lambda printed, _: _rows(printed, "points"), 1, fills_cache=True),
    "build": Work((sys.executable, "-c", BUILD), lambda printed, folder: printed, 2, fills_cache=True),
}


def _command(*words: str, **options: Any) -> "subprocess.Popen[str]":
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def _started(work: Work, folder: Path) -> "subprocess.Popen[str]":
    environment = {**os.environ, **({"SPTC_CACHE": str(folder / "cache")} if work.fills_cache else {})}
    return _command(*work.words, cwd=folder, env=environment, start_new_session=True)


def _ended(work: Work, folder: Path) -> object:
    process = _started(work, folder)
    printed, errors = process.communicate(timeout=1800)  # raises an error if the machine is too slow
    assert process.returncode == 0, errors
    return work.result(printed, folder)


def _killed(work: Work, folder: Path, delay: float, everything: bool) -> str | None:
    """Start a command, and kill it after `delay` seconds. Return its output if it ended before that, else None."""
    process = _started(work, folder)
    try:
        printed, errors = process.communicate(timeout=delay)
    except subprocess.TimeoutExpired:
        if everything:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
        process.communicate(timeout=600)
        return None
    assert process.returncode == 0, errors
    return printed


def survives(work: Work, folder: Path, kills: int, rng: np.random.Generator) -> None:
    """Compare the results of a command that is killed at random moments with those of an uninterrupted run."""
    whole, cut = folder / "whole", folder / "cut"
    whole.mkdir()
    cut.mkdir()
    start = time.monotonic()
    expected = _ended(work, whole)
    seconds = time.monotonic() - start
    done = 0
    while done < kills:
        printed = _killed(work, cut, float(rng.uniform(0, seconds)), bool(rng.random() < 0.5))
        done += printed is None
        if work.finished and (cut / work.finished).exists():
            assert work.result("", cut) == expected, f"{work.finished} exists after kill {done} but is not complete"
            (cut / work.finished).unlink()
        elif printed is not None:
            assert work.result(printed, cut) == expected, f"the result is wrong after kill {done}"
            shutil.rmtree(cut)
            cut.mkdir()
    assert _ended(work, cut) == expected
    if work.finished:
        assert {path.name for path in cut.iterdir()} == {path.name for path in whole.iterdir()}


@pytest.mark.regression
@pytest.mark.parametrize("name", WORKS)
def test_kills(name: str, tmp_path: Path, rng: np.random.Generator) -> None:
    survives(WORKS[name], tmp_path, WORKS[name].kills, rng)


@pytest.mark.regression
@pytest.mark.parametrize(
    "words",
    [
        ("gemm", "--random", "300", "300", "64", "--backend", "golden", "--jobs", "1", "--output", "OUT.npy"),
        # Yosys, which writes OUT.v, inherits the size limit.
        ("verilog", "--preset", "hopper", "-o", "OUT.v"),
        ("explain", "wgmma.mma_async.sp.sync.aligned.m64n64k32.f32.f16.f16", "--svg", "OUT.svg"),
        ("compress", "IN.npy", "--prune", "--output", "OUT.npz"),
        ("campaign", "--shards", "40", "--arch", "sm_80", "--state", "OUT", "--jobs", "1"),
    ],
    ids=lambda words: words[0],
)
def test_a_full_disk(words: tuple[str, ...], tmp_path: Path, rng: np.random.Generator) -> None:
    np.save(tmp_path / "IN.npy", rng.standard_normal((512, 512)))
    given = [str(tmp_path / word) if word.startswith(("OUT", "IN")) else word for word in words]
    process = _command(*_SPTC, *given, preexec_fn=partial(resource.setrlimit, resource.RLIMIT_FSIZE, (_ROOM, _ROOM)))
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 2, errors
    assert len(errors.splitlines()) == 1, errors
    assert re.search(r"cannot (be written|write|hold) ", errors), errors
    assert not next(tmp_path / word for word in words if word.startswith("OUT")).is_file()


#: A careless program: it writes a file byte by byte under its final name, and treats an existing file as complete.
_CARELESS = """
import time
from pathlib import Path
if not Path("d").exists():
    with open("d", "wb", buffering=0) as file:
        for part in range(20):
            file.write(bytes([part]))
            time.sleep(0.02)
"""


def test_careless_work_is_seen(tmp_path: Path, rng: np.random.Generator) -> None:
    work = Work((sys.executable, "-c", _CARELESS), lambda printed, folder: (folder / "d").read_bytes(), 0, "d")
    with pytest.raises(AssertionError, match=r"^d exists after kill \d+ but is not complete"):
        survives(work, tmp_path, 8, rng)
