"""Emitted Verilog has one module for all units, and is always the same text. Test test_systemverilog lints Verilog."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from sptc.rtl.cells.platforms import OPERATORS
from sptc.rtl.config import PRESETS, CoreConfig
from sptc.rtl.convert import to_rtlil
from sptc.rtl.emit import emit
from sptc.rtl.operand_slots import PanelRequests
from sptc.rtl.step import unit_step_layout

TINY = PRESETS["tiny"]
COMBINATIONAL = replace(TINY, cuts=())
NAME = "tensor"


@cache
def text(config: CoreConfig, top: str) -> str:
    return emit(config, top, NAME)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("top", "rows", "columns"), [("core", 1, 2), ("core", 4, 4), ("warp", 1, 2)])
def test_one_module_for_all_units(top: str, rows: int, columns: int) -> None:
    verilog = text(replace(TINY, rows=rows, columns=columns), top)
    names = [name.strip("\\") for name in re.findall(r"^module (\S+?) ?\(", verilog, re.MULTILINE)]
    assert names[0] == NAME
    assert len(set(names)) == len(names)
    assert names.count(f"{NAME}_unit") == 1
    assert len(re.findall(rf"^ +{NAME}_unit \S+ \($", verilog, re.MULTILINE)) == rows * columns
    parts = [name for name in names if re.search(r"\.multiply\d+$", name)]
    assert len(parts) == 16  # one multiplier per slot, as all instances of the unit share one module
    assert all(name.startswith(f"{NAME}_unit.") for name in parts)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("config", "open_pins"), [(TINY, set()), (COMBINATIONAL, {"enable"})], ids=["cut", "whole"])
def test_every_pin_of_the_unit_is_connected(config: CoreConfig, open_pins: set[str]) -> None:
    """Every pin of the unit is connected, except the enable input of a unit without registers."""
    verilog = text(config, "core")
    ports = re.search(rf"^module {NAME}_unit ?\((.*)\);$", verilog, re.MULTILINE)[1].split(", ")
    for instance in re.findall(rf"^ +{NAME}_unit \S+ \(\n(.*?)\);", verilog, re.MULTILINE | re.DOTALL):
        assert set(ports) - set(re.findall(r"\.(\w+)\(", instance)) <= open_pins


@pytest.mark.regression
@pytest.mark.parametrize(("top", "hash_seed"), [("core", 1), ("warp", 2)])
def test_the_text_does_not_depend_on_the_process(top: str, hash_seed: int, tmp_path: Path) -> None:
    own = os.environ.get("PYTHONHASHSEED", "random")
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed + 2 * (own == str(hash_seed)))}
    program = (
        "import sys; from sptc.rtl.config import PRESETS; from sptc.rtl.emit import emit;"
        f"sys.stdout.write(emit(PRESETS['tiny'], {top!r}, {NAME!r}))"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == text(TINY, top)


@pytest.mark.skipif(not shutil.which("iverilog"), reason="Icarus Verilog is not installed")
@pytest.mark.parametrize("generation", ["2005", "2012"])
def test_initial_values_are_known(generation: str, tmp_path: Path) -> None:
    """In Verilog and in SystemVerilog, registers have their initial values before any block reads them."""
    width = unit_step_layout(COMBINATIONAL).size
    bench = f"""
        module bench;
          reg [{width - 1}:0] step = 0;
          {NAME} dut (.enable(1'b1), .step(step));
          initial #1 $display("%b", dut.result);
        endmodule
    """
    (tmp_path / "bench.v").write_text(bench + text(COMBINATIONAL, "unit"), encoding="utf-8")
    command = ["iverilog", f"-g{generation}", "-o", "bench.vvp", "-s", "bench", "bench.v"]
    subprocess.run(command, cwd=tmp_path, check=True)
    command = ["vvp", "-n", "bench.vvp"]
    printed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert set(printed.strip()) <= {"0", "1"}, printed


def test_compiled_simulation_has_no_wires_for_fields() -> None:
    """RTLIL for compiled simulation lacks only wires for fields, assignments to these wires, and names of codes."""
    texts = (to_rtlil(PanelRequests(4), NAME, platform=platform) for platform in (None, OPERATORS))
    complete, slim = ([line for line in text.split("\n") if line and "\\enum_" not in line] for text in texts)
    fields = {line.split()[-1] for line in complete if re.search(r" wire .*[.\[]\w+\]?$", line)}
    assert fields
    assert slim == [line for line in complete if not fields & {*line.split()[:2], line.split()[-1]}]
