"""``sptc vectors``: files, messages, and testbenches that run unchanged and fail at a wrong result."""

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import sptc
from sptc.cli import main
from sptc.infra.verilator import verilator
from sptc.rtl.config import PRESETS
from sptc.rtl.convert import to_rtlil
from sptc.rtl.emit import module_name
from sptc.rtl.step import unit_step_layout
from sptc.rtl.unit import Unit
from sptc.sim.faults.assumptions import AssumedSteps, step_pipeline
from sptc.sim.faults.equivalence import Verdict, settled
from sptc.sim.faults.mutants import TOP, Netlist, mutated
from sptc.tests.cli.command_line import CommandLine
from sptc.verify.register_file import read
from sptc.verify.vectors import MANIFEST

COMMAND = "vectors"
F32 = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
F16 = "mma.sp.sync.aligned.m16n8k32.row.col.f16.f16.f16.f16"
S8 = "mma.sp.sync.aligned.m16n8k64.row.col.satfinite.s32.s8.s8.s32"
TCGEN05 = "tcgen05.mma.sp.cta_group::1.kind::f16"
DESIGN = "sptc_tiny_unit"
#: Number of random faults that are injected, one at a time.
FAULTS = 10
#: Verilog of the unit with selectable faults, which replaces the unit of the testbench.
FAULTY = """
module {name}(input clk, rst, enable, input [561:0] step, output [32:0] result);
  reg [15:0] fault = 0;
  initial if (!$value$plusargs("fault=%d", fault)) fault = 0;
  bench dut (.clk(clk), .rst(rst), .enable(enable), .step(step), .result(result), .active_fault(fault));
endmodule
"""
#: Seeds of testbenches that send no step, or a step, in their first cycle. No step: (xorshift(seed + 1) >> 8) % 8 == 0.
GAP, NO_GAP = 0, 7
needs_icarus = pytest.mark.skipif(not shutil.which("iverilog"), reason="Icarus Verilog is not on this machine")


def commands(folder: Path, simulator: str) -> list[list[str]]:
    match = re.search(rf"^// +\$ ({simulator} .*)$", (folder / "tb.sv").read_text(), re.MULTILINE)
    assert match
    return [shlex.split(command) for command in match[1].split("&&")]


def build(folder: Path, simulator: str) -> None:
    """Build a testbench by the command in its header, but with the packaged Verilator and without slow optimisation."""
    tool = verilator()
    environment = {**tool.environment, "MAKEFLAGS": "OPT_FAST=-O0 OPT_SLOW=-O0 OPT_GLOBAL=-O0"}
    command = commands(folder, simulator)[0]
    if simulator == "verilator":
        command[0] = tool.program
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr


def simulate(folder: Path, simulator: str, *plusargs: str, vectors_of: Path | None = None) -> tuple[bool, list[str]]:
    command = [*commands(folder, simulator)[1], *plusargs]
    if simulator == "verilator":
        command[0] = str(folder / command[0])
    else:
        command[2] = str(folder / command[2])
    done = subprocess.run(command, cwd=vectors_of or folder, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    (verdict,) = (line for line in lines if line.startswith(("PASS", "FAIL")))
    assert verdict.startswith("PASS") == (done.returncode == 0)
    return done.returncode == 0, lines


def alter(path: Path, line: int) -> None:
    lines = path.read_text().splitlines()
    place = [number for number, text in enumerate(lines) if not text.startswith("//")][line]
    lines[place] = f"{int(lines[place], 16) ^ 1:0{len(lines[place])}x}"
    path.write_text("\n".join(lines) + "\n")


def write_bench(folder: Path, level: str, preset: str, tiles: int, seed: int, text: str = F32) -> Path:
    words = ["--level", level, "--preset", preset, "--tiles", tiles, "--seed", seed, "--nibbles", "all", "--bench"]
    assert main([*map(str, ["vectors", text, "--format", "hex", "--arch", "sm_80", *words, "-o", folder])]) == 0
    return folder


def faulty(folder: Path, faults: int, seed: int) -> Netlist:
    """Replace the unit of a testbench of `tiny` by a unit with injected faults, of which +fault=N selects one."""
    parts = {name: (f"unit.{name}",) for name in ("select", "multiply", "align", "reduce", "round")}
    scratch = folder / "faults"
    scratch.mkdir()
    steps = AssumedSteps(Unit(PRESETS["tiny"]), "sm_80")
    netlist = mutated(to_rtlil(steps, TOP, ports=steps.ports), TOP, parts, faults, seed, scratch)
    (folder / f"{DESIGN}.v").write_text(netlist.verilog + FAULTY.format(name=DESIGN))
    return netlist


def test_register_files_and_folders(cli: CommandLine, seed: int) -> None:
    text = cli.text(F32, "--tiles", 5, "--seed", seed, "-o", ".")
    assert "5 tiles of mma.sp" in text
    assert "; 1 file of " in text
    file = read(Path("vectors.npz"))
    assert (file.cases, file.arch) == (5, "sm_90")
    assert CommandLine(cli.capsys, "run").json("--backend", "golden", "vectors.npz")["total"]["mismatches"] == 0
    manifests = cli.json(S8, TCGEN05, S8, "--tiles", 2, "--format", "hex", "-o", "new")["manifests"]
    actual = [(manifest["instruction"].split()[0], manifest["arch"]) for manifest in manifests]
    assert actual == [(S8, "sm_90"), (TCGEN05, "sm_100")]
    folders = sorted(Path("new").iterdir())
    assert [folder.name for folder in folders] == [S8, "tcgen05.mma.sp.cta_group-1.kind-f16-m128n8k32.f16.f16.f16"]
    for folder in folders:
        assert json.loads((folder / "manifest.json").read_text()) in manifests


def test_the_tiles_of_a_file(cli: CommandLine, seed: int) -> None:
    cli.text(F32, "--tiles", 3, "--seed", seed, "-o", "drawn")
    drawn = read("drawn/vectors.npz")
    tile = sptc.load("drawn/vectors.npz")
    sptc.save("tile.npz", **{**tile, "D": tile["D"] ^ 1})
    text = cli.text("tile.npz", "-o", "written")
    assert text.startswith(f"written: 3 tiles of {F32} on sm_90, level registers: A 384 x 32 bits, ")
    written = read("written/vectors.npz")
    for name in ("a", "b", "c", "e", "d"):
        np.testing.assert_array_equal(getattr(written, name), getattr(drawn, name), name)
    cli.text("tile.npz", "--format", "hex", "-o", "hex")
    assert sorted(path.name for path in Path("hex").iterdir()) == [*(f"{name}.hex" for name in "ABCDE"), MANIFEST]
    message = "applies only to random tiles and cannot be combined with FILE.npz"
    for option, value in (("--tiles", 2), ("--seed", 2), ("--seed", 0)):
        cli.refuses("tile.npz", option, value, "-o", "x", message=f"{option} {message}")
    Path("other").mkdir()
    for path in ("other.npz", "other/tile.npz"):
        Path(path).write_bytes(Path("tile.npz").read_bytes())
    cli.text("tile.npz", "other.npz", F32, "-o", "several")
    assert sorted(path.name for path in Path("several").iterdir()) == [F32, "other", "tile"]
    message = "two of the arguments would be written to the same subfolder x/tile"
    cli.refuses("tile.npz", "other/tile.npz", "-o", "x", message=message)
    cli.refuses("tile.npz", "--level", "unit", "-o", "x", message="written only at level 'registers', not 'unit'")


def test_steps_of_a_unit(cli: CommandLine) -> None:
    words = ["--level", "unit", "--formats", "f16", "--step-bytes", 16, "--alignment", 26, "--format", "json"]
    (manifest,) = cli.json(F32, *words, "-o", ".")["manifests"]
    assert (manifest["configuration"]["alignment_bits"], manifest["tables"][0]["shape"]) == (26, [1, 16, 8, 2])
    assert manifest["numerics"] == "numerics of the datapath own (L = 8, F = 26), not those of sm_90 (L = 16, F = 25)"
    (manifest,) = cli.json(F32, "--level", "unit", "-o", ".")["manifests"]
    assert manifest["configuration"]["name"] == "hopper"  # default: the preset of the instruction's architecture
    assert manifest["numerics"] == "numerics of sm_90 (L = 16, F = 25)"
    cli.text(F32, "--level", "unit", "--format", "hex", "--seed", 4, "-o", ".")
    lines = Path("step.hex").read_text().splitlines()
    comments = [line for line in lines if line.startswith("//")]
    assert comments[0] == f"// given step of {F32} on sm_90, level unit, seed 4"
    assert comments[1] == "// 1 (case) x 16 (row) x 8 (column) x 1 (step), 1010 bits a line"
    assert comments[2] == "// numerics of sm_90 (L = 16, F = 25)"
    assert any(re.fullmatch(r"// +selects +\[895:768\] .*", line) for line in comments)
    assert len(lines) - len(comments) == 128


def test_bad_input_is_one_sentence(cli: CommandLine) -> None:
    Path("file").write_text("something\n")
    cli.refuses_each(
        ([F32], "--output FOLDER is required"),
        ([F32, "-o", "-"], "cannot be written to standard output: name a folder"),
        ([F32, "-o", "file"], "vectors cannot be written to file"),
        ([F32, "--pack", F32, "-o", "new"], "INSTRUCTION cannot be combined with --pack"),
        ([F32, "--jobs", "2", "-o", "new"], "--jobs needs --pack or --check"),
        ([F32, "--preset", "tiny", "-o", "new"], "--preset needs --level warp, row or unit"),
        ([F32, "--alignment", "0", "-o", "new"], "--alignment needs --level warp, row or unit"),
        ([F32, "-o", "new", "--arch", "sm_80", "sm_90"], "name one architecture"),
        ([F32, "-o", "new", "--tiles", 1 << 57], "words of 32 bits are too many for format npz"),
        ([F32, "--level", "unit", "--bench", "-o", "new"], "and format 'hex'"),
        (["--tiles", "3", "-o", "new"], "INSTRUCTION is required"),
        (["--check", "p.npz", "--results", "r.npz", "--seed", "0"], "--seed cannot be combined with --check"),
        (["--pack", F32, "--mux", "mux3", "-o", "new"], "--mux cannot be combined with --pack"),
    )


def test_a_simulator_takes_the_include(tmp_path: Path, cli: CommandLine) -> None:
    cli.text(F32, "--level", "unit", "--format", "svh", "-o", tmp_path)
    (tmp_path / "top.sv").write_text(
        'module top; `include "vectors.svh"\n'
        "initial if ($bits(STEP[0]) != STEP_BITS || $size(RESULT) != RESULT_COUNT) $fatal; endmodule\n"
    )
    tool = verilator()
    command = [tool.program, "--lint-only", "-Wall", "-Wno-UNUSEDPARAM", "-Wno-DECLFILENAME", "top.sv"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=tool.environment)
    assert (done.returncode, done.stderr) == (0, "")


def check_bench(folder: Path, simulator: str, vector: int) -> list[str]:
    """Check that a testbench passes, and fails if a vector is altered. Return the output of the failed run."""
    build(folder, simulator)
    passes, lines = simulate(folder, simulator, "+junit=right.xml")
    assert passes, lines
    alter(folder / "result.hex", vector)
    passes, lines = simulate(folder, simulator, "+junit=wrong.xml")
    assert not passes
    for name, failures in (("right.xml", "0"), ("wrong.xml", "1")):
        (suite,) = ElementTree.parse(folder / name).getroot()
        counts = suite.get("tests"), suite.get("failures"), len(suite.findall("*/failure"))
        assert counts == ("1", failures, int(failures))
    assert lines[0].startswith(f"vector {vector} (case ")
    (failure,) = ElementTree.parse(folder / "wrong.xml").getroot().findall("*/*/failure")
    assert failure.text == lines[0] + "\n"
    return lines


@needs_icarus
@pytest.mark.parametrize("drawn", [pytest.param(GAP, marks=pytest.mark.regression), NO_GAP])
def test_a_bench_on_icarus(tmp_path: Path, drawn: int) -> None:
    """The testbench works with and without a step in its first cycle, in which uninitialised values would show."""
    folder = write_bench(tmp_path / "bench", "unit", "tiny", 1, drawn)
    lines = check_bench(folder, "iverilog", 77)
    # Vector 77 is the second of the two steps of row 4 (16 vectors for each row), column 6.
    assert re.fullmatch(
        r"vector 77 \(case 0, row 4, column 6, step 1\): expected d \w{8} overflow 0, got d \w{8} overflow 0", lines[0]
    )
    assert lines[1] == "FAIL 1 of 256"
    (folder / "result.hex").unlink()
    done = subprocess.run(commands(folder, "iverilog")[1], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "there is no result.hex in this folder" in done.stdout + done.stderr


@pytest.mark.regression
@pytest.mark.parametrize(("level", "preset", "tiles"), [("unit", "hopper", 2), ("row", "tiny", 2), ("warp", "tiny", 4)])
@pytest.mark.parametrize("simulator", [pytest.param("iverilog", marks=needs_icarus), "verilator"])
def test_other_benches(simulator: str, level: str, preset: str, tiles: int, tmp_path: Path, seed: int) -> None:
    """Verilator runs ten times as many tiles as Icarus Verilog, since Verilator is some hundred times faster."""
    folder = write_bench(tmp_path, level, preset, tiles * (10 if simulator == "verilator" else 1), seed)
    assert (folder / f"{module_name(PRESETS[preset], level)}.v").exists()
    check_bench(folder, simulator, 39 if (simulator, level) == ("verilator", "warp") else 3)


@pytest.mark.regression
def test_a_bench_finds_faults_of_every_stage(tmp_path: Path, seed: int) -> None:
    """Vectors of three instructions are needed, since some injected rounding faults change only 1 of 40,000 steps."""
    texts = enumerate((F32, F16, S8))
    folders = [write_bench(tmp_path / str(place), "unit", "tiny", 1000, seed, text) for place, text in texts]
    netlist = faulty(folders[0], FAULTS, 2)
    build(folders[0], "verilator")
    assert all(simulate(folders[0], "verilator", vectors_of=folder)[0] for folder in folders)

    def is_found(number: int) -> bool:
        runs = (simulate(folders[0], "verilator", f"+fault={number}", vectors_of=folder) for folder in folders)
        return any(not passes for passes, _ in runs)

    survivors = [fault for fault in netlist.faults if not is_found(fault.number)]
    count = len(netlist.faults)
    print(f"{count - len(survivors)} of {count} faults detected, not {[*map(str, survivors)]}")
    assert count >= FAULTS
    config = PRESETS["tiny"]
    pipeline = step_pipeline(config, "sm_80", unit_step_layout(config))
    verdicts = settled(TOP, survivors, folders[0] / "faults", 120, pipeline)
    assert not [str(fault) for fault, verdict in verdicts.items() if verdict is not Verdict.EQUIVALENT]
    components = {fault.component for fault in netlist.faults if fault not in survivors}
    assert components == {"select", "multiply", "align", "reduce", "round"}
    place = 256_000 - 1
    alter(folders[0] / "result.hex", place)
    passes, lines = simulate(folders[0], "verilator")
    assert not passes
    assert lines[0].startswith(f"vector {place} (case 999, row 15, column 7, step 1): expected d ")
    assert f"FAIL 1 of {place + 1}" in lines
