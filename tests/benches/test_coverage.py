"""What the benches cover: of the streams everything that can be, and the lines that Verilator counts.

The seed is fixed: that everything is reached is a property of the regression, not of luck.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from sptc.cli import main
from sptc.rtl.config import PRESETS
from sptc.sim.benches.settings import Settings
from sptc.sim.coverage.code import CodeCoverage
from sptc.sim.coverage.groups import Coverage
from sptc.sim.coverage.steps import StepCoverage

SEED = 5


@pytest.mark.regression
@pytest.mark.parametrize(
    ("preset", "top", "items"), [("tiny", "core", 1500), ("hopper", "core", 2500), ("tiny", "warp", 300)]
)
def test_streams_reach_everything(bench: Callable, tmp_path: Path, preset: str, top: str, items: int) -> None:
    path = tmp_path / "coverage.json"
    assert bench(preset, top, items).run(SEED, settings=Settings(preset, top, items, str(path))) == []
    coverage = Coverage.read(path)
    assert {group.name.split()[0] for group in coverage} == {top}
    assert coverage.complete, coverage.table()


@pytest.mark.regression
def test_steps_and_lines_of_a_unit(bench: Callable, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Bins of steps from both tests of the bench, and Verilator's count beside them, in one report."""
    built = bench("tiny", "row", 1500, code_coverage=True)
    path = tmp_path / "coverage.json"
    assert built.run(SEED, settings=Settings("tiny", "row", 1500, str(path))) == []
    coverage = Coverage.read(path)
    assert {group.key for group in coverage} == {group.key for group in StepCoverage(PRESETS["tiny"]).coverage}
    assert coverage["tiny", "selection of 16 bits"].percentage == 100
    assert not any(group.contradictions for group in coverage)
    report = CodeCoverage.read(built.code_coverage).report()
    assert report["line"]["percentage"] == 100
    assert 80 < report["branch"]["percentage"] < 100
    assert 80 < report["toggle"]["percentage"] < 100
    assert main(["coverage", str(path), str(built.code_coverage)]) == 1  # a short run reaches not every bin
    shown = capsys.readouterr().out
    assert "tiny: selection of 16 bits" in shown
    assert f"line: {report['line']['hit']} of {report['line']['points']} blocks of statements that ran" in shown
