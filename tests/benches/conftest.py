"""A fixture that builds each bench once per test file, and a function that returns a fault of a small design."""

import gc
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sptc.sim.benches.runner import Bench, build
from sptc.sim.benches.settings import Settings
from sptc.sim.faults.mutants import FLAT, Fault

ROOT = Path(__file__).parents[2]


@pytest.fixture
def collect() -> Iterator[None]:
    """Free components that were never elaborated while the test's filter ignores Amaranth's warnings about them."""
    yield
    gc.collect()


@pytest.fixture(scope="module")
def bench(request: pytest.FixtureRequest) -> Callable[..., Bench]:
    """Build a bench in its own folder, which receives JUnit XML, log, coverage and, if requested, waveforms."""
    waves: Path | None = request.config.getoption("--waves")
    built: dict[tuple[object, ...], Bench] = {}

    def get(
        preset: str, top: str, items: int, simulator: str = "verilator", code_coverage: bool = False, array=(1, 2)
    ) -> Bench:
        key = (preset, top, simulator, code_coverage, array)
        if key not in built:
            name = "-".join([preset, top, simulator, *(["coverage"] if code_coverage else [])])
            folder = (waves.resolve() if waves else ROOT / "build" / "benches") / request.path.stem / name
            options = {"simulator": simulator, "waves": waves is not None, "code_coverage": code_coverage}
            built[key] = build(Settings(preset, top, items, array=array), folder, **options)
        return built[key]

    return get


def fault_at(folder: Path, kind: str, command: str, with_text: str = "") -> Fault:
    """Return the fault of a Yosys `mutate` command at the first cell of type `kind` with a text in its connections."""
    cells = re.findall(rf"cell \${kind} (\S+)\n(.*?)\n  end\n", (folder / FLAT).read_text(encoding="utf-8"), re.DOTALL)
    cell = next(name for name, connections in cells if with_text in connections)
    mode, rest = command.split(maxsplit=1)
    return Fault(1, "whole", f"mutate -mode {mode} -module bench -cell {cell} {rest}")
