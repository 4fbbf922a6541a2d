"""``sptc vectors INSTRUCTION``: files, sentences, and benches that run as they are and fail on faulty hardware."""

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from sptc.cli import main
from sptc.infra.verilator import verilator_root
from sptc.rtl.config import PRESETS
from sptc.rtl.convert import to_rtlil
from sptc.rtl.emit import module_name
from sptc.rtl.step import unit_step_layout
from sptc.rtl.unit import Unit
from sptc.sim.faults.assumptions import AssumedSteps, step_pipeline
from sptc.sim.faults.compiled import TOP
from sptc.sim.faults.equivalence import Verdict, settled
from sptc.sim.faults.mutants import Netlist, mutated
from sptc.verify.register_file import read

F32 = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
F16 = "mma.sp.sync.aligned.m16n8k32.row.col.f16.f16.f16.f16"
S8 = "mma.sp.sync.aligned.m16n8k64.row.col.satfinite.s32.s8.s8.s32"
TCGEN05 = "tcgen05.mma.sp.cta_group::1.kind::f16"
DESIGN = "sptc_tiny_unit"
#: Single faults that are drawn, and how many of them may change nothing that these vectors can show.
FAULTS = 40
FAULTS_OF_QUICK_TESTS = 8
#: The unit with faults in place of the unit.
FAULTY = """
module {name}(input clk, rst, enable, input [561:0] step, output [32:0] result);
  reg [15:0] fault = 0;
  initial if (!$value$plusargs("fault=%d", fault)) fault = 0;
  bench dut (.clk(clk), .rst(rst), .enable(enable), .step(step), .result(result), .active_fault(fault));
endmodule
"""
needs_icarus = pytest.mark.skipif(not shutil.which("iverilog"), reason="Icarus Verilog is not on this machine")


def vectors(*words: object) -> int:
    return main(["vectors", *map(str, words)])


def commands(folder: Path, simulator: str) -> list[list[str]]:
    """Return the commands that a bench names for a simulator: the one that builds and the one that runs."""
    found = re.search(rf"^// +\$ ({simulator} .*)$", (folder / "tb.sv").read_text(), re.MULTILINE)
    assert found
    return [shlex.split(command) for command in found[1].split("&&")]


def build(folder: Path, simulator: str) -> None:
    """Build a bench as it says itself, by the packaged Verilator and without optimisation, which takes long."""
    root = verilator_root()
    environment = {**os.environ, "MAKEFLAGS": "OPT_FAST=-O0 OPT_SLOW=-O0 OPT_GLOBAL=-O0", "VERILATOR_ROOT": str(root)}
    command = commands(folder, simulator)[0]
    if simulator == "verilator":
        command[0] = str(root / "bin" / "verilator_bin")
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr


def simulate(folder: Path, simulator: str, *plusargs: str, vectors_of: Path | None = None) -> tuple[bool, list[str]]:
    """Run a built bench; return whether it passes, and what it says."""
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
    """Flip the lowest bit of a vector."""
    lines = path.read_text().splitlines()
    place = [number for number, text in enumerate(lines) if not text.startswith("//")][line]
    lines[place] = f"{int(lines[place], 16) ^ 1:0{len(lines[place])}x}"
    path.write_text("\n".join(lines) + "\n")


def write_bench(folder: Path, level: str, preset: str, tiles: int, seed: int, text: str = F32) -> Path:
    words = ["--level", level, "--preset", preset, "--tiles", tiles, "--seed", seed, "--nibbles", "all", "--bench"]
    assert vectors(text, "--format", "hex", "--arch", "sm_80", *words, "-o", folder) == 0
    return folder


def faulty(folder: Path, faults: int, seed: int) -> Netlist:
    """Put a unit with single faults in place of that of a bench of `tiny`; +fault=N selects one."""
    parts = {name: (f"unit.{name}",) for name in ("select", "multiply", "align", "reduce", "round")}
    scratch = folder / "faults"
    scratch.mkdir()
    steps = AssumedSteps(Unit(PRESETS["tiny"]), "sm_80")
    netlist = mutated(to_rtlil(steps, TOP, ports=steps.ports), TOP, parts, faults, seed, scratch)
    (folder / f"{DESIGN}.v").write_text(netlist.verilog + FAULTY.format(name=DESIGN))
    return netlist


def test_a_register_file_to_replay(tmp_path: Path, capsys: pytest.CaptureFixture[str], seed: int) -> None:
    assert vectors(F32, "--tiles", 5, "--seed", seed, "-o", tmp_path) == 0
    assert "5 tiles of mma.sp" in capsys.readouterr().out
    path = tmp_path / "vectors.npz"
    assert (read(path).cases, read(path).arch) == (5, "sm_90")
    assert main(["run", "--backend", "golden", "--json", str(path)]) == 0
    assert json.loads(capsys.readouterr().out)["total"]["mismatches"] == 0


def test_several_instructions_in_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert vectors(S8, TCGEN05, S8, "--tiles", 2, "--format", "hex", "-o", tmp_path / "new", "--json") == 0
    manifests = json.loads(capsys.readouterr().out)["manifests"]
    assert [(manifest["instruction"].split()[0], manifest["arch"]) for manifest in manifests] == [
        (S8, "sm_90"),
        (TCGEN05, "sm_100"),
    ]
    folders = sorted((tmp_path / "new").iterdir())
    assert [folder.name for folder in folders] == [S8, "tcgen05.mma.sp.cta_group-1.kind-f16-m128n8k32.f16.f16.f16"]
    for folder in folders:
        assert json.loads((folder / "manifest.json").read_text()) in manifests


def test_a_datapath_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--level", "unit", "--formats", "f16", "--step-bytes", 16, "--alignment", 26, "--format", "json"]
    assert vectors(F32, *words, "-o", tmp_path, "--json") == 0
    (manifest,) = json.loads(capsys.readouterr().out)["manifests"]
    assert (manifest["configuration"]["alignment_bits"], manifest["tables"][0]["shape"]) == (26, [1, 16, 8, 2])
    assert vectors(F32, "--level", "unit", "-o", tmp_path, "--json") == 0
    (manifest,) = json.loads(capsys.readouterr().out)["manifests"]
    assert manifest["configuration"]["name"] == "hopper"  # that of the architecture, unless one is named


def test_hex_says_what_it_is(tmp_path: Path) -> None:
    assert vectors(F32, "--level", "unit", "--format", "hex", "--seed", 4, "-o", tmp_path) == 0
    lines = (tmp_path / "step.hex").read_text().splitlines()
    comments = [line for line in lines if line.startswith("//")]
    assert comments[0] == f"// given step of {F32} on sm_90, level unit, seed 4"
    assert comments[1] == "// 1 (case) x 16 (row) x 8 (column) x 1 (step), 1010 bits a line"
    assert any(re.fullmatch(r"// +selects +\[895:768\] .*", line) for line in comments)
    assert len(lines) - len(comments) == 128


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["mma.sp", "-o", "new"], "'.sync' is missing"),
        ([F32], "take where to write: --output FOLDER"),
        ([F32, "-o", "-"], "take a folder, not standard output"),
        ([F32, "-o", "file"], "cannot be made a folder"),
        ([F32, "--pack", F32, "-o", "new"], "without --pack"),
        ([F32, "--jobs", "2", "-o", "new"], "--jobs are for packs"),
        ([F32, "--preset", "tiny", "-o", "new"], "--preset is for the levels warp, row, unit"),
        ([F32, "-o", "new", "--arch", "sm_80", "sm_90"], "of one architecture"),
        ([F32, "--level", "unit", "--bench", "-o", "new"], "in format hex"),
        ([F32, "--level", "warp", "--rows", "3", "-o", "new"], "rows and columns must divide"),
        ([F32, "--distribution", "flat", "-o", "new"], "distribution must be one of"),
        ([TCGEN05, "--level", "warp", "-o", "new"], "a warp computes instructions of mma"),
        (["--tiles", "3", "-o", "new"], "--tiles is for the vectors of an instruction, and none is named"),
        (["--pack", F32, "--mux", "mux3", "-o", "new"], "--mux is for the vectors of an instruction"),
    ],
)
def test_bad_input_is_one_sentence(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("something\n")
    assert vectors(*words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err
    assert captured.err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_simulator_takes_the_include(tmp_path: Path) -> None:
    assert vectors(F32, "--level", "unit", "--format", "svh", "-o", tmp_path) == 0
    (tmp_path / "top.sv").write_text(
        'module top; `include "vectors.svh"\n'
        "initial if ($bits(STEP[0]) != STEP_BITS || $size(RESULT) != RESULT_COUNT) $fatal; endmodule\n"
    )
    root = verilator_root()
    command = [
        root / "bin" / "verilator_bin",
        "--lint-only",
        "-Wall",
        "-Wno-UNUSEDPARAM",
        "-Wno-DECLFILENAME",
        "top.sv",
    ]
    environment = {**os.environ, "VERILATOR_ROOT": str(root)}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stderr) == (0, "")


def begins_with_a_gap(seed: int) -> bool:
    """Follow the generator of a bench by one step."""
    state = seed % ((1 << 32) - 1) + 1
    state ^= state << 13 & 0xFFFFFFFF
    state ^= state >> 17
    state ^= state << 5 & 0xFFFFFFFF
    return (state >> 8) % 8 == 0


@needs_icarus
@pytest.mark.parametrize("first", ["step", "gap"])
def test_a_bench_on_icarus(first: str, tmp_path: Path, seed: int) -> None:
    """Whatever the first cycle brings: at a step, all that is still unknown by then would show."""
    while begins_with_a_gap(seed) != (first == "gap"):
        seed += 1
    write_bench(tmp_path, "unit", "tiny", 1, seed)
    build(tmp_path, "iverilog")
    passes, lines = simulate(tmp_path, "iverilog")
    assert passes
    assert lines == ["PASS 256"]
    alter(tmp_path / "result.hex", 77)
    passes, lines = simulate(tmp_path, "iverilog")
    assert not passes
    assert lines[0].startswith("vector 77: wanted d ")
    assert lines[1] == "FAIL 1 of 256"
    (tmp_path / "result.hex").unlink()
    done = subprocess.run(commands(tmp_path, "iverilog")[1], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "there is no result.hex in this folder" in done.stdout + done.stderr


def test_a_bench_on_verilator_finds_planted_faults(tmp_path: Path, seed: int) -> None:
    """The commands and files are those of the bench; the unit in them has faults of which none is selected first."""
    write_bench(tmp_path, "unit", "tiny", 20, seed)
    netlist = faulty(tmp_path, FAULTS_OF_QUICK_TESTS, 1)
    build(tmp_path, "verilator")
    assert simulate(tmp_path, "verilator")[0]
    found = [fault for fault in netlist.faults if not simulate(tmp_path, "verilator", f"+fault={fault.number}")[0]]
    assert len(found) >= len(netlist.faults) // 2, set(netlist.faults) - set(found)
    alter(tmp_path / "result.hex", 5119)
    passes, lines = simulate(tmp_path, "verilator")
    assert not passes
    assert lines[0].startswith("vector 5119: wanted d ")
    assert "FAIL 1 of 5120" in lines


@pytest.mark.regression
@pytest.mark.parametrize(
    ("level", "preset", "tiles"),
    [("unit", "tiny", 20), ("unit", "hopper", 20), ("row", "tiny", 20), ("warp", "tiny", 40)],
)
@pytest.mark.parametrize("simulator", ["verilator", pytest.param("iverilog", marks=needs_icarus)])
def test_benches_run_as_they_are(
    level: str, preset: str, tiles: int, simulator: str, tmp_path: Path, seed: int
) -> None:
    """Icarus takes fewer tiles: it is some hundred times slower."""
    few = tiles if simulator == "verilator" else -(-tiles // 10)
    write_bench(tmp_path, level, preset, few, seed)
    assert (tmp_path / f"{module_name(PRESETS[preset], level)}.v").exists()
    build(tmp_path, simulator)
    passes, lines = simulate(tmp_path, simulator)
    assert passes, lines
    last = few - 1 if level == "warp" else 3
    alter(tmp_path / "result.hex", last)
    passes, lines = simulate(tmp_path, simulator)
    assert not passes
    assert lines[0].startswith(f"vector {last}: ")


@pytest.mark.regression
def test_a_bench_finds_faults_of_every_stage(tmp_path: Path, seed: int) -> None:
    """Vectors of three instructions through one program; a rounding at fault is seen in one step of some 40,000."""
    folders = [
        write_bench(tmp_path / str(place), "unit", "tiny", 1000, seed, text)
        for place, text in enumerate((F32, F16, S8))
    ]
    netlist = faulty(folders[0], FAULTS, 2)
    build(folders[0], "verilator")
    assert all(simulate(folders[0], "verilator", vectors_of=folder)[0] for folder in folders)

    def is_found(number: int) -> bool:
        runs = (simulate(folders[0], "verilator", f"+fault={number}", vectors_of=folder) for folder in folders)
        return any(not passes for passes, _ in runs)

    survivors = [fault for fault in netlist.faults if not is_found(fault.number)]
    print(f"{len(netlist.faults) - len(survivors)} of {len(netlist.faults)} found; {[*map(str, survivors)]}")
    assert len(netlist.faults) >= FAULTS
    config = PRESETS["tiny"]
    pipeline = step_pipeline(config, "sm_80", unit_step_layout(config))
    verdicts = {str(fault): settled(TOP, fault, folders[0] / "faults", 120, pipeline) for fault in survivors}
    assert not [name for name, verdict in verdicts.items() if verdict is not Verdict.EQUIVALENT], verdicts
    assert {fault.component for fault in netlist.faults if fault not in survivors} == {
        "select", "multiply", "align", "reduce", "round",
    }  # fmt: skip
