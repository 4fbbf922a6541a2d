"""A warpgroup behind its streams: random forms of `wgmma`, groups, and `mma` between, whatever waits for whom."""

from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from sptc.rtl.convert import to_verilog
from sptc.rtl.emit import unit_instance, unit_of
from sptc.rtl.unit import Unit
from sptc.rtl.warpgroup import Warpgroup
from sptc.sim.benches.jobs import write_jobs
from sptc.sim.benches.runner import Failure, build
from sptc.sim.benches.settings import Settings
from sptc.sim.coverage.groups import Coverage
from sptc.tests.benches.wrong_addresses import WRONG_FETCH
from sptc.verify.wgmma_jobs import random_warpgroup_jobs

#: A panel every 32 cycles; four arrays of four units.
ARRAY = (1, 4)
JOBS, JOBS_AT_LENGTH = 24, 160

Run = Callable[..., list[Failure]]


def write(path: Path, settings: Settings, seed: int, jobs: int) -> None:
    write_jobs(path, islice(random_warpgroup_jobs(settings.config, np.random.default_rng(seed)), jobs))


@pytest.fixture
def warpgroup(bench: Callable, seed: int, tmp_path: Path) -> Run:
    """Run random jobs on the bench."""

    def run(jobs: int = JOBS, coverage: str = "", further: int = 0) -> list[Failure]:
        built = bench("hopper", "warpgroup", JOBS, array=ARRAY)
        write(tmp_path / "jobs", built.settings, seed + further, jobs)
        settings = replace(built.settings, jobs=str(tmp_path / "jobs"), coverage=coverage)
        return built.run(seed + further, settings=settings)

    return run


@pytest.mark.regression
def test_every_form(warpgroup: Run) -> None:
    assert warpgroup() == []


@pytest.mark.regression
def test_every_form_at_length_meets_every_stall(warpgroup: Run, tmp_path: Path) -> None:
    """Some meetings happen once in hundreds of instructions: runs are added up until all did, eight at most."""
    path = tmp_path / "coverage.json"
    for further in range(8):
        assert warpgroup(JOBS_AT_LENGTH, str(path), further) == []
        coverage = Coverage.read(path)
        if coverage.complete:
            break
    assert [name for group in coverage for name in (*group.missing(), *group.contradicted())] == []


@pytest.mark.regression
def test_the_bench_sees_a_planted_fault(seed: int, tmp_path: Path) -> None:
    settings = Settings("hopper", "warpgroup", JOBS, jobs=str(tmp_path / "jobs"), array=ARRAY)
    write(tmp_path / "jobs", settings, seed, JOBS)
    unit = unit_instance("bench")
    wrong = Warpgroup(settings.config, unit_class=unit, fetch_class=WRONG_FETCH)
    text = to_verilog(wrong, "bench") + to_verilog(Unit(settings.config), unit_of("bench"))
    failures = build(settings, tmp_path, verilog_text=text).run(seed)
    assert failures
    assert all("differ from the golden model" in failure.message for failure in failures)
