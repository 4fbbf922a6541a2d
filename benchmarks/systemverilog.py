"""Speed of the SystemVerilog testbench of module `row` with libsptc, relative to the Python testbench, on one core."""

from measure import Row, one_core, options, show

one_core()

import sys  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
from dataclasses import dataclass  # noqa: E402
from pathlib import Path  # noqa: E402

from sptc.errors import BackendError  # noqa: E402
from sptc.sim.benches.runner import build  # noqa: E402
from sptc.sim.benches.settings import Settings  # noqa: E402
from sptc.sim.benches.systemverilog import build_bench, build_library, run  # noqa: E402

BENCH = Path(__file__).parents[1] / "tests" / "native" / "row_tb.sv"
#: Number of tests in the Python testbench. Each test drives the inputs of all steps (one step per dot product).
TESTS = 2


@dataclass(frozen=True)
class Size:
    """Size of a run: preset of the module `row`, and number of dot products that each testbench computes."""

    preset: str
    systemverilog: int
    python: int


FULL = Size("hopper", 400_000, 8_000)
SMALL = Size("tiny", 400, 40)


def systemverilog(size: Size, folder: Path) -> float:
    """Return the steps (one cycle each) that the SystemVerilog testbench simulates per second, start-up included."""
    settings = Settings(size.preset, "row", size.systemverilog)
    library = build_library(folder / "libsptc")
    program = build_bench("row", settings.config, settings.arch, BENCH, folder / "systemverilog", library)
    start = time.perf_counter()
    done = run(program, f"+steps={settings.items}", seed=1)
    seconds = time.perf_counter() - start
    assert done.returncode == 0, done.stdout
    return settings.items / seconds


def python(size: Size, folder: Path) -> float:
    """Return the steps (one cycle each) that the Python testbench simulates per second, start-up time included."""
    bench = build(Settings(size.preset, "row", size.python), folder / "python")
    start = time.perf_counter()
    failures = bench.run(1)
    seconds = time.perf_counter() - start
    assert failures == []
    return TESTS * size.python / seconds


def main() -> None:
    """Measure the speed of the SystemVerilog and the Python testbench, and print the figures."""
    chosen = options(__doc__).parse_args()
    size = SMALL if chosen.small else FULL
    with tempfile.TemporaryDirectory() as scratch:
        speeds = [measured(size, Path(scratch)) for measured in (systemverilog, python)]
    rows = [
        Row(f"{size.preset} row, in SystemVerilog against libsptc", "steps/s", speeds[0]),
        Row(f"{size.preset} row, in Python against the golden model", "steps/s", speeds[1]),
        Row("ratio, SystemVerilog to Python", "x", speeds[0] / speeds[1], "at least 1"),
    ]
    show(rows, chosen.json)


if __name__ == "__main__":
    try:
        main()
    except BackendError as error:
        sys.exit(str(error))
