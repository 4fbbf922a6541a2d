"""The cocotb benches of components, row, core and warp find no difference from the golden model."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from sptc.cli import main
from sptc.errors import BackendError
from sptc.rtl.config import PRESETS
from sptc.sim.benches.settings import Settings
from sptc.sim.coverage.code import CodeCoverage
from sptc.sim.coverage.groups import Coverage
from sptc.sim.coverage.steps import StepCoverage

#: Number of inputs in a run: vectors of each component, steps of a row, tiles of a core, instructions of a warp.
ITEMS = {"components": 500, "row": 2000, "core": 600, "warp": 40}
TINY_COMPONENTS = {
    *("metadata", "mux8", "mux16", "select"),
    *("unpack_a0", "unpack_b0", "multiply0", "unpack_a15", "unpack_b15", "multiply15", "accumulator", "offset"),
    *("e_max", "largest_of_products", "align0", "align_c", "sum_tree", "adder", "accumulate", "leading_zeros", "round"),
}
#: Fixed seed, so that full coverage does not depend on random numbers.
COVERAGE_SEED = 5
#: Name of one preset for each different datapath.
DATAPATHS = [*{replace(config, name=""): name for name, config in reversed(PRESETS.items())}.values()]
#: Number of vectors of each component in the test of JUnit XML.
FEW = 200


@pytest.mark.regression
def test_on_verilator_whole_and_one_test(bench: Callable, seed: int) -> None:
    """The JUnit XML of a run has one test case for each component, or only the test case that was selected."""
    built = bench("tiny", "components", FEW)
    assert built.run(seed) == []
    assert {case.get("name") for case in ElementTree.parse(built.results).iter("testcase")} == TINY_COMPONENTS
    built = bench("tiny", "components", FEW)
    built.run(seed, settings=Settings("tiny", "components", 10), test="round")
    assert [case.get("name") for case in ElementTree.parse(built.results).iter("testcase")] == ["round"]
    with pytest.raises(BackendError):
        built.run(seed, settings=Settings("tiny", "components", 10), test="nothing like it")


@pytest.mark.regression
@pytest.mark.skipif(not shutil.which("iverilog"), reason="Icarus Verilog is not on this machine: apt install iverilog")
def test_on_icarus(bench: Callable, seed: int) -> None:
    for preset, top in (("tiny", "components"), ("tiny", "row"), ("tiny", "core"), ("hopper", "components")):
        assert bench(preset, top, ITEMS[top] // 5, "icarus").run(seed) == [], (preset, top)


@pytest.mark.regression
@pytest.mark.parametrize("top", ITEMS)
def test_a_datapath(bench: Callable, seed: int, rng: np.random.Generator, top: str) -> None:
    """Cores and warps are tested on one of two presets; other presets differ mostly in the number of bytes per step."""
    presets = DATAPATHS if top in ("components", "row") else ["tiny", "rtx-blackwell"]
    for preset in rng.choice(presets, len(presets) // 2, replace=False).tolist():
        assert bench(preset, top, ITEMS[top]).run(seed) == [], preset


@pytest.mark.regression
@pytest.mark.parametrize(
    ("preset", "top", "items"), [("tiny", "core", 1500), ("hopper", "core", 2500), ("tiny", "warp", 300)]
)
def test_streams_reach_everything(bench: Callable, tmp_path: Path, preset: str, top: str, items: int) -> None:
    path = tmp_path / "coverage.json"
    assert bench(preset, top, items).run(COVERAGE_SEED, settings=Settings(preset, top, items, str(path))) == []
    coverage = Coverage.read(path)
    assert {group.name.split()[0] for group in coverage} == {top}
    assert coverage.complete, coverage.table()


@pytest.mark.regression
def test_steps_and_lines_of_a_unit(bench: Callable, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One report shows the step coverage of both tests of the bench, and the line coverage of Verilator."""
    built = bench("tiny", "row", 1500, code_coverage=True)
    path = tmp_path / "coverage.json"
    assert built.run(COVERAGE_SEED, settings=Settings("tiny", "row", 1500, str(path))) == []
    coverage = Coverage.read(path)
    assert {group.key for group in coverage} == {group.key for group in StepCoverage(PRESETS["tiny"]).coverage}
    assert coverage["tiny", "selection of 16 bits"].percentage == 100
    assert not any(group.contradictions for group in coverage)
    lines = built.folder / "coverage.dat"
    report = CodeCoverage.read(lines).report()
    assert report["line"]["percentage"] == 100
    assert 80 < report["branch"]["percentage"] < 100
    assert 80 < report["toggle"]["percentage"] < 100
    # The exit status is 1, because a short run does not reach every bin.
    assert main(["coverage", str(path), str(lines)]) == 1
    shown = capsys.readouterr().out
    assert "tiny: selection of 16 bits" in shown
    assert f"line: {report['line']['hit']} of {report['line']['points']} blocks of statements that ran" in shown
