"""Results are right in threads, in forked and spawned processes, and while the interpreter ends; nothing hangs."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import sptc
from sptc.native.library import library_file
from sptc.rtl.config import PRESETS
from sptc.sim.engine.engine import Engine, Simulator
from sptc.sim.engine.steps import step_words

THREADS = 8
MMA = "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
#: First lines of each program: operands, and a function that computes with a back end.
START = f"""
import os, sys, threading
import numpy as np
import sptc

words = np.random.default_rng(5).integers(0, 1 << 32, (20, 32, 12), dtype=np.uint32)
a, b, c, e = words[..., :4], words[..., 4:8], words[..., 8:], np.full((20, 32), 0x44444444, np.uint32)
operands = ("{MMA}", a, b, c, e, 0)
def result(backend="native"):
    return sptc.mma(*operands, backend=backend)
"""
PROGRAMS = {
    # The process computes, forks a child that computes, and then computes again.
    "fork": """
before = result()
child = os.fork()
if not child:
    os._exit(not np.array_equal(result(), before))
assert os.waitpid(child, 0)[1] == 0
assert np.array_equal(result(), before)
""",
    "spawn": """
from multiprocessing import get_context
if __name__ == "__main__":
    with get_context("spawn").Pool(1) as pool:
        assert np.array_equal(pool.apply(sptc.mma, operands, {"backend": "native"}), result("golden"))
""",
    # Threads and an exit handler compute while the main thread ends.
    "shutdown": """
import atexit
def work(backend):
    started.set()
    while True:
        result(backend)
expected = result()
for backend in ("golden", "native") * 2:
    started = threading.Event()
    threading.Thread(target=work, args=(backend,), daemon=True).start()
    started.wait()
atexit.register(lambda: print(np.array_equal(result("golden"), expected)))
""",
}


@pytest.fixture(scope="session", autouse=True)
def _compiled() -> None:
    library_file()


@pytest.mark.parametrize("backend", ["golden", "native"])
def test_threads(backend: str, rng: np.random.Generator) -> None:
    def operands() -> tuple[np.ndarray, ...]:
        words = rng.integers(0, 1 << 32, (50, 32, 12), dtype=np.uint32)
        return words[..., :4], words[..., 4:8], words[..., 8:], np.full((50, 32), 0x44444444, np.uint32)

    tasks = [operands() for _ in range(3 * THREADS)]
    expected = [sptc.mma(MMA, *task, 0, backend="golden") for task in tasks]
    with ThreadPoolExecutor(THREADS) as pool:
        results = pool.map(lambda task: sptc.mma(MMA, *task, 0, backend=backend), tasks)
        for one, other in zip(results, expected, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.regression
@pytest.mark.parametrize(("simulator", "steps"), [("verilator", 5_000), ("pysim", 20)])
def test_threads_share_a_compiled_model(simulator: Simulator, steps: int, rng: np.random.Generator) -> None:
    engine = Engine(PRESETS["tiny"], simulator)
    words = step_words(engine.config).total
    tasks = [rng.integers(0, 1 << 32, (steps, words), dtype=np.uint32) for _ in range(3 * THREADS)]
    expected = [engine.push(task) for task in tasks]
    with ThreadPoolExecutor(THREADS) as pool:
        for one, other in zip(pool.map(engine.push, tasks), expected, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("name", "times"), [*((name, 1) for name in PROGRAMS), pytest.param("shutdown", 20, marks=pytest.mark.regression)]
)
def test_programs(name: str, times: int, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(START + PROGRAMS[name])
    for _ in range(times):
        done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=False, timeout=300)
        assert (done.returncode, done.stderr) == (0, ""), (name, done.returncode, done.stderr)
        assert done.stdout == ("True\n" if name == "shutdown" else "")
