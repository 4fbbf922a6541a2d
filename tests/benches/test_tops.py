"""Benches run random instructions, with stalls at all ports, on the two top-level modules that have memories."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from amaranth.hdl import Module
from sptc.isa.tcgen05 import every_opcode
from sptc.rtl import operand_fetch
from sptc.rtl.convert import to_verilog
from sptc.rtl.emit import unit_instance, unit_of
from sptc.rtl.fetch import CoreMatrixAddress
from sptc.rtl.tcgen05 import Tcgen05
from sptc.rtl.unit import Unit
from sptc.rtl.warpgroup import Warpgroup
from sptc.sim.benches.runner import Failure, build
from sptc.sim.benches.settings import Settings
from sptc.sim.coverage.groups import Coverage
from sptc.verify.bench_jobs import random_warpgroup_jobs, random_work

pytestmark = pytest.mark.regression
#: Maximum N of the random instructions for ``tcgen05``.
WIDEST = 32
OPCODES = [opcode for opcode in every_opcode() if not opcode.weight_stationary]


@dataclass(frozen=True)
class Top:
    """A top-level module with few dot-product units per array, and the number of instructions in a run."""

    preset: str
    name: str
    array: tuple[int, int]
    items: int
    component: type[Warpgroup | Tcgen05]

    def settings(self, path: Path, seed: int, items: int = 0) -> Settings:
        """Write random instructions to a file, and return the settings of a run."""
        made = Settings(self.preset, self.name, self.items, jobs=str(path), array=self.array)
        rng, count = np.random.default_rng(seed), items or self.items
        if self.component is Tcgen05:
            made.write_program(random_work(made.config, OPCODES, count, rng, WIDEST))
        else:
            made.write_program([*islice(random_warpgroup_jobs(made.config, rng), count)])
        return made


#: Arrays with four units take 32 cycles for a panel, and arrays with two units take 64.
WARPGROUP = Top("hopper", "warpgroup", (1, 4), 24, Warpgroup)
CTA = Top("blackwell", "tcgen05", (1, 2), 2, Tcgen05)
ITEMS_AT_LENGTH = 160


def run(bench: Callable, top: Top, folder: Path, seed: int, coverage: str = "", items: int = 0) -> list[Failure]:
    built = bench(top.preset, top.name, top.items, array=top.array)
    settings = top.settings(folder / "jobs", seed, items)
    failures: list[Failure] = built.run(seed, settings=replace(settings, coverage=coverage))
    return failures


def test_every_form_of_wgmma_meets_every_stall(bench: Callable, seed: int, tmp_path: Path) -> None:
    """Since some coverage bins need hundreds of instructions, up to eight runs add coverage until no bin is missing."""
    path = tmp_path / "coverage.json"
    for further in range(8):
        assert run(bench, WARPGROUP, tmp_path, seed + further, str(path), ITEMS_AT_LENGTH) == []
        coverage = Coverage.read(path)
        if coverage.complete:
            break
    assert [name for group in coverage for name in (*group.missing(), *group.contradicted())] == []


@pytest.mark.bench
def test_any_instructions_of_tcgen05(bench: Callable, seed: int, tmp_path: Path) -> None:
    """A simulated cycle takes 30 ms, too long to require all coverage bins of stalls. No illegal bin may be hit."""
    path = tmp_path / "coverage.json"
    assert run(bench, CTA, tmp_path, seed, str(path)) == []
    coverage = Coverage.read(path)
    assert [name for group in coverage for name in group.contradicted()] == []
    assert {group.name.split()[0] for group in coverage if group.hits.any()} == {"cta"}


class NeighbouringUnit(CoreMatrixAddress):
    """Faulty address generator: the lowest bit of the start address is inverted, which is an error of 16 bytes."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.right = right = CoreMatrixAddress()
        request = self.request
        m.d.comb += [right.request.eq(request), right.request.descriptor.start.eq(request.descriptor.start ^ 1)]
        m.d.comb += [right.segment.eq(self.segment), *(self.address[i].eq(right.address[i]) for i in range(8))]
        return m


@pytest.mark.bench
@pytest.mark.parametrize("top", [WARPGROUP, CTA], ids=lambda top: top.name)
def test_a_bench_sees_a_planted_fault(top: Top, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = top.settings(tmp_path / "jobs", seed, 2)
    with monkeypatch.context() as planted:
        planted.setattr(operand_fetch, "CoreMatrixAddress", NeighbouringUnit)
        faulty = to_verilog(top.component(settings.config, unit_class=unit_instance("bench")), "bench")
    text = faulty + to_verilog(Unit(settings.config), unit_of("bench"))
    failures = build(settings, tmp_path, verilog_text=text).run(seed)
    assert failures
    assert all("differ from the golden model" in failure.message for failure in failures)
