"""The generator for FuseSoC: FuseSoC itself runs it, and what is wrong with a request is said in one line."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import sptc
from sptc.cli import main
from sptc.infra.verilator import verilator_root
from sptc.rtl.config import PRESETS

ROOT = Path(__file__).parents[1]
CORES = ROOT / "fusesoc"
HOPPER = (CORES / "hopper.core").read_text(encoding="utf-8")


def command(*words: object, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run with the packages of this Python, its Verilator by its usual name, and nobody's configuration."""
    tools, root = folder / "tools", verilator_root()
    tools.mkdir(exist_ok=True)
    (tools / "verilator").write_text(f'#!/bin/sh\nVERILATOR_ROOT={root} exec {root}/bin/verilator_bin "$@"\n')
    (tools / "verilator").chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FUSESOC_")}
    environment |= {f"XDG_{name}_HOME": str(folder / "home") for name in ("CACHE", "CONFIG", "DATA")}
    environment["PATH"] = f"{tools}:{Path(sys.executable).parent}:{environment['PATH']}"
    line = [str(word) for word in words]
    return subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300)


def lint(folder: Path, core: str, name: str) -> subprocess.CompletedProcess[str]:
    """Let FuseSoC lint a core file that lies beside those of the project."""
    (folder / "cores").mkdir(exist_ok=True)
    (folder / "cores" / "wanted.core").write_text(core, encoding="utf-8")
    roots = ("--cores-root", CORES, "--cores-root", "cores")
    return command(sys.executable, "-m", "fusesoc.main", *roots, "run", "--target=lint", name, folder=folder)


def exported(folder: Path) -> list[Path]:
    """Return the sources that FuseSoC hands to the tool, without the scratch folder of the generator."""
    return sorted(folder.glob("build/*/lint/src/*/*"))


@pytest.mark.regression
def test_fusesoc_writes_and_lints_the_verilog(tmp_path: Path) -> None:
    """With the core file of the project, for a smaller preset."""
    done = lint(tmp_path, HOPPER.replace("hopper", "tiny"), "sptc:cores:tiny")
    assert done.returncode == 0, done.stderr
    assert "V e r i l a t i o n   R e p o r t" in done.stdout
    (source,) = exported(tmp_path)
    assert source.name == "sptc_tiny_core.v"
    assert main(["verilog", "--preset", "tiny", "-o", str(tmp_path / "tiny.v")]) == 0
    assert source.read_text(encoding="utf-8") == (tmp_path / "tiny.v").read_text(encoding="utf-8")


@pytest.mark.regression
def test_the_design_of_the_readme(tmp_path: Path) -> None:
    """It lints whole: the top it asks for is a module under the name that it says."""
    (core,) = re.findall(r"```yaml\n(CAPI=2:\n.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    (module,) = re.findall(r"sptc_\w+", core)
    source = f"/* verilator lint_off PINMISSING */ module mine (input clk); {module} part (.clk(clk)); endmodule\n"
    (tmp_path / "cores").mkdir()
    (tmp_path / "cores" / "mine.v").write_text(source)
    done = lint(tmp_path, core, "mine")
    assert done.returncode == 0, done.stderr
    assert {path.name for path in exported(tmp_path)} == {"mine.v", f"{module}.v"}


def test_the_core_files_are_of_this_version() -> None:
    texts = [path.read_text(encoding="utf-8") for path in CORES.glob("*.core")]
    names = [name for text in texts for name in re.findall(r"sptc:\w+:\w+:[\w.]+", text)]
    assert len(names) == 3
    assert all(name.endswith(f":{sptc.__version__}") for name in names)


def test_the_core_of_the_project_names_what_there_is() -> None:
    (preset,) = re.findall(r"preset: (\w+)", HOPPER)
    assert preset in PRESETS
    assert f"toplevel: sptc_{preset}_core\n" in HOPPER


def test_fusesoc_stops_at_an_unknown_preset(tmp_path: Path) -> None:
    done = lint(tmp_path, HOPPER.replace("preset: hopper", "preset: volta"), "sptc:cores:hopper")
    assert done.returncode != 0
    assert re.search(r"^sptc verilog: argument --preset: invalid choice: 'volta' \(.*\)$", done.stderr, re.MULTILINE)
    assert exported(tmp_path) == []


REQUESTS = {
    "unknown top": ("{preset: tiny, top: chip}", "sptc verilog: argument --top: invalid choice: 'chip'"),
    "no preset": ("{top: unit}", "the parameter preset is missing"),
    "nothing": ("{}", "the parameter preset is missing"),
    "superfluous": ("{preset: tiny, rows: 2}", "there is no parameter rows, only preset and top"),
    "no name": ("{preset: tiny, top: 1}", "the parameter top is a name, not 1"),
    "empty": ("{preset: }", "the parameter preset is a name, not None"),
    "a list": ("[tiny]", "parameters are names with values, not ['tiny']"),
    "no YAML": ("{", "cannot be read as YAML ("),
}


@pytest.mark.parametrize(("parameters", "message"), REQUESTS.values(), ids=REQUESTS.keys())
def test_bad_requests(parameters: str, message: str, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    request = tmp_path / "request.yml"
    request.write_text(f"gapi: '1.0'\nfiles_root: .\nvlnv: '::mine-core:0'\nparameters: {parameters}\n")
    done = subprocess.run(
        [sys.executable, CORES / "generate.py", request],
        cwd=work,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode != 0
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert message in done.stderr
    assert list(work.iterdir()) == []


MISSING = {"no file": ["missing.yml"], "none": [], "no name": ["request.yml"]}


@pytest.mark.parametrize("words", MISSING.values(), ids=MISSING.keys())
def test_what_is_no_request(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "request.yml").write_text("parameters: {preset: tiny}\n")
    done = command(sys.executable, CORES / "generate.py", *words, folder=tmp_path)
    assert done.returncode != 0
    assert re.fullmatch(r"sptc generator: .+\n", done.stderr)


def test_a_python_without_the_package(tmp_path: Path) -> None:
    """As it happens when another `python3` comes first on the path."""
    done = command(sys.executable, "-I", "-S", CORES / "generate.py", "request.yml", folder=tmp_path)
    assert done.returncode != 0
    assert re.fullmatch(r"sptc generator: \S+ cannot import sptc: .+\n", done.stderr)
