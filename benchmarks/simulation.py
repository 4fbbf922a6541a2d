"""Speed of the compiled hardware simulation on one and on two cores, compared with the model mmasim."""

from measure import Row, best_seconds, one_core, options, show

one_core()

import os  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
from collections.abc import Iterator  # noqa: E402
from functools import partial  # noqa: E402
from unittest.mock import patch  # noqa: E402

import numpy as np  # noqa: E402
import sptc  # noqa: E402
from sptc.isa.instructions import Instruction, parse  # noqa: E402
from sptc.isa.operands import HeldOperands  # noqa: E402
from sptc.operands.registers import gather_warp  # noqa: E402
from sptc.rtl.config import PRESETS  # noqa: E402
from sptc.sim.benches.random_operands import random_operands  # noqa: E402
from sptc.sim.engine import libraries  # noqa: E402
from sptc.sim.engine.compiled_warpgroup import CompiledWarpgroup  # noqa: E402
from sptc.sim.engine.engine import engine  # noqa: E402
from sptc.sim.engine.libraries import can_be_specialised  # noqa: E402
from sptc.sim.engine.steps import steps_of  # noqa: E402
from sptc.sim.engine.warpgroup_commands import multiplication  # noqa: E402

from golden import F16, kept, mmasim_seconds  # noqa: E402

#: Number of executions of an mma, and preset of the datapath. Values `SMALL` apply if `--small` is given.
TILES, PRESET = 1024, "hopper"
SMALL_TILES, SMALL_PRESET = 16, "tiny"
#: M = N = K of the matrix product of ``sptc.gemm``.
SIZE, SMALL_SIZE = 1024, 64
#: Instruction of the warpgroup benchmark, and number of test cases without and with `--small`.
WGMMA, CASES, SMALL_CASES = "wgmma.mma_async.sp.sync.aligned.m64n256k32.f32.f16.f16", 64, 1
_READY = """
import sys, time
start = time.perf_counter()
from sptc.rtl.config import PRESETS
from sptc.sim.engine.engine import engine
engine(PRESETS[sys.argv[1]])
print(time.perf_counter() - start)
"""


def start_seconds(preset: str, cache: str) -> float:
    """Return how many seconds a new process needs until it can run a datapath's compiled simulation."""
    environment = {**os.environ, "SPTC_CACHE": cache}
    words = [sys.executable, "-c", _READY, preset]
    return float(subprocess.run(words, env=environment, check=True, capture_output=True, text=True).stdout)


def hardware_rows(instruction: Instruction, preset: str, operands: HeldOperands, macs: float) -> list[Row]:
    """Measure the general compiled simulation, a simulation specialised for one instruction, and the model mmasim."""
    rows, tiles = [], gather_warp(instruction, operands)
    unit = engine(PRESETS[preset])
    batches = steps_of(unit.config, instruction, tiles)
    seconds = best_seconds(lambda: [unit.compute(batch) for batch in batches])
    rows.append(Row(f"{preset} unit, f16 steps", "M kept MAC/s", macs / seconds, "at least 25"))
    seconds = best_seconds(lambda: sptc.mma(F16, **operands.arrays, backend="rtl"))
    rows.append(Row("m16n8k32 f16 through registers", "M kept MAC/s", macs / seconds))
    if can_be_specialised():
        libraries.WORTH = 1
        unit.compute(batches[0])
        tied = best_seconds(lambda: [unit.compute(batch) for batch in batches])
        rows.append(Row("  sixteen steps at once, constant control word", "M kept MAC/s", macs / tied, "at least 80"))

    peer = mmasim_seconds(instruction, tiles)
    if peer:
        rows.append(Row("mmasim 2.1.1, same tiles", "M kept MAC/s", macs / peer))
        rows.append(Row("ratio, hardware through registers to mmasim", "x", peer / seconds, "above 1"))
        if can_be_specialised():
            rows.append(Row("ratio, sixteen steps at once to mmasim", "x", peer / tied, "at least 4"))
    return rows


def use_cores(count: int) -> None:
    """Restrict this process to the first `count` cores, if the operating system supports such a restriction."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, range(count))


def product_rows(size: int) -> Iterator[Row]:
    """Measure a matrix product of f16 on back end ``rtl``, on one and two cores; its bits must equal libsptc's."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((size, size)).astype(np.float16) for _ in "ab")
    a.reshape(size, -1, 4)[..., :2] = 0
    expected = sptc.gemm(a, b, backend="native")
    for cores, promise in ((1, "at least 100"), (2, "at least 200")):
        use_cores(cores)
        assert np.array_equal(sptc.gemm(a, b, backend="rtl"), expected)
        seconds = best_seconds(lambda: sptc.gemm(a, b, backend="rtl"))
        macs = size**3 / 2e6
        yield Row(f"sptc.gemm, {size} x {size} x {size} f16, cores: {cores}", "M kept MAC/s", macs / seconds, promise)


def warpgroup_rows(cases: int) -> Iterator[Row]:
    """Measure how fast one processor core simulates the four tensor cores of an SM for one fixed instruction."""
    instruction, rng = parse(WGMMA), np.random.default_rng(0)
    arrays: dict[str, np.ndarray] = {
        "a": rng.integers(0, 1 << 32, (cases, 128, 4), np.uint32),
        "b": rng.integers(0, 256, (cases, 1 << 15), np.uint8),
        "c": np.zeros((cases, 128, instruction.n // 2), np.uint32),
        "e": np.full((cases, 128), 0x44444444, np.uint32),
    }
    macs = kept(instruction) * cases / 1e6
    use_cores(1)
    hardware = CompiledWarpgroup()
    commands = [multiplication(hardware.config, instruction, HeldOperands(arrays), case) for case in range(cases)]
    seconds = best_seconds(partial(hardware.run, commands))
    yield Row("warpgroup, m64n256k32 f16, threads: 1", "M kept MAC/s", macs / seconds, "at least 40")


def main() -> None:
    """Measure the speed of the simulated hardware and of the public model mmasim, and print the figures."""
    chosen = options(__doc__).parse_args()
    count, preset = (SMALL_TILES, SMALL_PRESET) if chosen.small else (TILES, PRESET)
    instruction = parse(F16)
    macs = kept(instruction) * count / 1e6
    operands = random_operands(instruction, "mid", count, np.random.default_rng(0))
    with tempfile.TemporaryDirectory() as cache, patch.dict(os.environ):
        rows = [
            Row(f"{preset} unit, start with an empty cache", "s", start_seconds(preset, cache), "at most 30"),
            Row(f"{preset} unit, start with a filled cache", "s", start_seconds(preset, cache), "at most 0.3"),
        ]
        os.environ["SPTC_CACHE"] = cache
        rows += hardware_rows(instruction, preset, operands, macs)
    if can_be_specialised():
        libraries.WORTH = 1
        rows += product_rows(SMALL_SIZE if chosen.small else SIZE)
        rows += warpgroup_rows(SMALL_CASES if chosen.small else CASES)
    show(rows, chosen.json)


if __name__ == "__main__":
    main()
