"""Speed of the compiled hardware on one thread, beside mmasim's software model on the same operands."""

from measure import Row, best_seconds, one_core, options, show

one_core()

import os  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402

import numpy as np  # noqa: E402
import sptc  # noqa: E402
from sptc.golden.registers import unpack, unpack_nibbles  # noqa: E402
from sptc.golden.select import kept_rows  # noqa: E402
from sptc.isa.fragments import a_fragment, accumulator_fragment, b_fragment  # noqa: E402
from sptc.isa.instructions import parse  # noqa: E402
from sptc.isa.operands import MatrixOperands  # noqa: E402
from sptc.rtl.config import PRESETS  # noqa: E402
from sptc.sim.engine.engine import engine  # noqa: E402
from sptc.sim.engine.steps import steps_of  # noqa: E402
from sptc.verify.stimulus import random_operands  # noqa: E402

from golden import F16, kept, mmasim_seconds  # noqa: E402

TILES = 1024
_READY = """
import time
start = time.perf_counter()
from sptc.rtl.config import PRESETS
from sptc.sim.engine.engine import engine
engine(PRESETS["hopper"])
print(time.perf_counter() - start)
"""


def start_seconds(cache: str) -> float:
    """Return what a fresh process takes to have a hopper engine ready."""
    environment = {**os.environ, "SPTC_CACHE": cache}
    shown = subprocess.run([sys.executable, "-c", _READY], env=environment, check=True, capture_output=True, text=True)
    return float(shown.stdout)


def main() -> None:
    """Measure and print."""
    chosen = options(__doc__).parse_args()
    instruction, rng = parse(F16), np.random.default_rng(0)
    macs = kept(instruction) * TILES / 1e6
    operands = random_operands(instruction, "mid", TILES, rng)
    assert operands.e is not None
    rows = []

    with tempfile.TemporaryDirectory() as cache:
        rows.append(Row("hopper unit, build from nothing", "s", start_seconds(cache), "at most 60"))
        rows.append(Row("hopper unit, cached start", "s", start_seconds(cache), "at most 1"))

    a, b, c = (
        unpack(part, fragment(instruction))
        for part, fragment in ((operands.a, a_fragment), (operands.b, b_fragment), (operands.c, accumulator_fragment))
    )
    nibbles = unpack_nibbles(operands.e, instruction, 0)
    unit = engine(PRESETS["hopper"])
    (words,) = steps_of(unit.config, instruction, MatrixOperands(a, b, c, nibbles))
    batches = np.split(words.reshape(-1, words.shape[-1]), 8)
    seconds = best_seconds(lambda: [unit.push(batch) for batch in batches])
    rows.append(Row("hopper unit, f16 steps", "M kept MAC/s", macs / seconds, "at least 25"))
    seconds = best_seconds(lambda: sptc.mma(F16, operands.a, operands.b, operands.c, operands.e, backend="rtl"))
    rows.append(Row("m16n8k32 f16 through registers", "M kept MAC/s", macs / seconds))

    where = kept_rows(nibbles, instruction.granularity)
    gathered = np.moveaxis(np.take_along_axis(b[:, None], where[..., None], axis=2), 2, 3)
    peer = mmasim_seconds(np.broadcast_to(a[:, :, None], gathered.shape), gathered, c)
    if peer:
        rows.append(Row("mmasim 2.1.1, same tiles", "M kept MAC/s", macs / peer))
        rows.append(Row("ratio, hardware through registers to mmasim", "x", peer / seconds, "above 1"))
    show(rows, chosen.json)


if __name__ == "__main__":
    main()
