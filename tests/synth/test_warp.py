"""A small mapped warp has the golden model's results. Units in the warp take the same energy as a separate unit."""

from functools import cache

import numpy as np
import pytest
from sptc.errors import Error
from sptc.isa.instructions import Instruction
from sptc.rtl.config import CoreConfig
from sptc.synth.energy.electrical import CellLibrary
from sptc.synth.energy.measure import MappedUnit
from sptc.synth.energy.netlist import MappedNetlist
from sptc.synth.energy.operands import drawn
from sptc.synth.energy.warp import MappedWarp
from sptc.tests.synth.power_library import LIBRARY
from sptc.tests.synth.small_unit import DENSE, SPARSE

pytest.importorskip("pyosys")
CYCLES = 40_000
CELLS = CellLibrary.of(LIBRARY)
CONFIG = CoreConfig(name="small", formats=("s8",), step_bytes=16, rows=16, columns=8, cuts=("multiply", "round"))


@cache
def warp() -> MappedWarp:
    return MappedWarp(CONFIG, CELLS)


def totals(instruction: Instruction, distribution: str) -> dict[str, float]:
    operands = drawn(instruction, distribution, warp().tiles(instruction, CYCLES), np.random.default_rng(0))
    result = warp().measure(instruction, "sm_90", operands, distribution)
    assert result.products == 16
    assert result.cycles >= CYCLES
    return result.stages


@pytest.mark.regression
def test_energy_of_a_warp_and_of_its_units() -> None:
    sparse, dense, zeros = totals(SPARSE, "normal"), totals(DENSE, "normal"), totals(SPARSE, "zeros")
    unit = MappedUnit(CONFIG, CELLS, by_module=True)
    operands = drawn(SPARSE, "normal", unit.tiles(SPARSE, CYCLES), np.random.default_rng(0))
    alone = unit.measure(SPARSE, "sm_90", operands, "normal").stages
    for stage in ("multiply", "reduce", "registers"):
        assert sparse[stage] == pytest.approx(alone[stage], rel=0.1)
    assert sparse["logic"] > alone["logic"], "registers with an enable input have multiplexers in front of them"
    assert 0 < zeros["warp registers"] < sparse["warp registers"]
    assert dense["decode"] == 0 < sparse["decode"]
    assert dense["warp"] < sparse["warp"]
    assert zeros["multiply"] == 0
    assert dense["multiply"] == pytest.approx(sparse["multiply"], rel=0.02)


@pytest.mark.regression
def test_wrong_results_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sptc.synth.energy.warp.multiply", lambda instruction, arch, operands: operands.c + 1)
    with pytest.raises(Error, match=r"the netlist of the warp gives wrong results for mma.* of sm_90,"):
        totals(SPARSE, "normal")


def test_results_from_gates_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = {"gate": ("INV", {"A": 0, "Y": 1}), "held": ("FLOP", {"D": 1, "K": 2, "Q": 3})}
    unit = MappedNetlist(cells, {"step": [0], "clk": [2]}, {"result": [1]})
    around = MappedNetlist({}, {}, {})
    monkeypatch.setattr("sptc.synth.energy.warp.mapped", lambda netlist, library, boxes=(): around if boxes else unit)
    with pytest.raises(Error, match="not gates"):
        MappedWarp(CONFIG, CELLS)


@pytest.mark.regression
def test_too_few_tiles() -> None:
    few = drawn(SPARSE, "normal", 63, np.random.default_rng(0))
    message = r"63 output tiles are too few to measure a warp: 64 tiles run in parallel, so there are 0 succ"
    with pytest.raises(Error, match=message):
        warp().measure(SPARSE, "sm_90", few, "normal")


def test_a_datapath_without_a_register_behind_the_rounding() -> None:
    with pytest.raises(Error, match="only with a register after rounding"):
        MappedWarp(CoreConfig(name="none", formats=("s8",), step_bytes=16, cuts=()), CELLS)
