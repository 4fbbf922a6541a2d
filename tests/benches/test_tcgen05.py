"""The tensor cores of a CTA behind their streams: any instructions, whatever waits for whom."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sptc.isa.tcgen05 import every_opcode
from sptc.rtl.convert import to_verilog
from sptc.rtl.emit import unit_instance, unit_of
from sptc.rtl.tcgen05 import Tcgen05
from sptc.rtl.unit import Unit
from sptc.sim.benches.runner import Failure, build
from sptc.sim.benches.settings import Settings
from sptc.sim.coverage.groups import Coverage
from sptc.tests.benches.wrong_addresses import WRONG_FETCH
from sptc.verify.tcgen05_jobs import random_work

#: A panel every 64 cycles; eight arrays of two units.
ARRAY = (1, 2)
INSTRUCTIONS = 4
#: Columns of an instruction at most.
WIDEST = 32
OPCODES = [opcode for opcode in every_opcode() if not opcode.weight_stationary]

Run = Callable[..., list[Failure]]


def write(path: Path, settings: Settings, seed: int) -> None:
    random_work(settings.config, OPCODES, INSTRUCTIONS, np.random.default_rng(seed), WIDEST).write(path)


@pytest.fixture
def tcgen05(bench: Callable, seed: int, tmp_path: Path) -> Run:
    """Run random work on the bench."""

    def run(coverage: str) -> list[Failure]:
        built = bench("blackwell", "tcgen05", INSTRUCTIONS, array=ARRAY)
        write(tmp_path / "work", built.settings, seed)
        settings = replace(built.settings, jobs=str(tmp_path / "work"), coverage=coverage)
        return built.run(seed, settings=settings)

    return run


@pytest.mark.regression
def test_any_instructions(tcgen05: Run, tmp_path: Path) -> None:
    """A cycle takes 30 ms: all stalls are met in hours, not in this test, but nothing that is declared impossible."""
    path = tmp_path / "coverage.json"
    assert tcgen05(str(path)) == []
    coverage = Coverage.read(path)
    assert [name for group in coverage for name in group.contradicted()] == []
    assert {group.name.split()[0] for group in coverage if group.hits.any()} == {"cta"}


@pytest.mark.regression
def test_the_bench_sees_a_planted_fault(seed: int, tmp_path: Path) -> None:
    settings = Settings("blackwell", "tcgen05", INSTRUCTIONS, jobs=str(tmp_path / "work"), array=ARRAY)
    write(tmp_path / "work", settings, seed)
    unit = unit_instance("bench")
    wrong = Tcgen05(settings.config, unit_class=unit, fetch_class=WRONG_FETCH)
    text = to_verilog(wrong, "bench") + to_verilog(Unit(settings.config), unit_of("bench"))
    failures = build(settings, tmp_path, verilog_text=text).run(seed)
    assert failures
    assert all("differ from the golden model" in failure.message for failure in failures)
