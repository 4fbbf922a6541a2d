"""Fixture that builds each bench once per test file, in a folder of its own."""

import gc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sptc.sim.benches.runner import Bench, build
from sptc.sim.benches.settings import Settings

ROOT = Path(__file__).parents[2]


@pytest.fixture
def collect() -> Iterator[None]:
    """Free never-elaborated components while the test runs, because only its filter ignores the warnings about them."""
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
