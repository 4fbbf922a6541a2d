"""libsptc as the reference of SystemVerilog benches, without Python at run time, under the packaged Verilator."""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sptc.infra.verilator import verilator_root
from sptc.native.vendor import write_files
from sptc.rtl.config import PRESETS
from sptc.rtl.emit import emit

from .datapath import package, single_steps

pytestmark = pytest.mark.regression

REFUSED = "undefined metadata at tile 0, row 1, chunk 4 (lane 5, bits 3:0): nibble 0b0000 breaks the ordered rule"


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library's files, and the library, built."""
    folder = tmp_path_factory.mktemp("dpi") / "libsptc"
    write_files(folder)
    subprocess.run(["make", "-s", "-j2", "-C", str(folder), "build/libsptc.a"], check=True, capture_output=True)
    return folder


def built(top: str, files: Sequence[Path], folder: Path, sources: Path) -> Path:
    """Compile a bench to a program."""
    root = verilator_root()
    words = ["--binary", "--timing", "-O3", "-Wno-fatal", "-Wno-lint", "-j", "2", "--top-module", top]
    words += [f"-I{sources}/dpi", f"-I{folder}", "-CFLAGS", f"-std=gnu++20 -fcoroutines -I{sources}/include"]
    words += ["-LDFLAGS", f"{sources}/build/libsptc.a -pthread", "-MAKEFLAGS", "CFG_CXXFLAGS_PCH_I=-include"]
    words += ["--Mdir", str(folder / "obj"), "-o", top, *map(str, files), str(sources / "dpi" / "sptc_dpi.cpp")]
    environment = {**os.environ, "VERILATOR_ROOT": str(root)}
    command = [str(root / "bin" / "verilator_bin"), *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return folder / "obj" / top


def row_bench(folder: Path, sources: Path, **changes: object) -> Path:
    """Build the bench of the row of `hopper`, with some of its parameters changed."""
    config = PRESETS["hopper"]
    (folder / "datapath.svh").write_text(package(config, single_steps("sm_90"), "sm_90"), encoding="utf-8")
    (folder / "row.v").write_text(emit(replace(config, **changes), "row", "row"), encoding="utf-8")
    return built("row_tb", [folder / "row.v", Path(__file__).parent / "row_tb.sv"], folder, sources)


def run(program: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(program), *words], cwd=program.parent, capture_output=True, text=True, check=False)


def test_the_example(sources: Path, tmp_path: Path) -> None:
    program = built("reference", [sources / "examples" / "reference.sv"], tmp_path, sources)
    done = run(program)
    assert done.returncode == 0, done.stdout
    lines = done.stdout.splitlines()
    assert lines[0].startswith(REFUSED)
    assert lines[1] == "every element is 32 and 33"


def test_the_row_is_the_library(sources: Path, tmp_path: Path, rng: np.random.Generator) -> None:
    """Every way to use the row of `hopper` in one step, legal and undefined nibbles, gaps."""
    program = row_bench(tmp_path, sources)
    for seed in rng.integers(1, 1 << 30, 3):
        done = run(program, "+steps=200000", f"+verilator+seed+{seed}")
        assert done.returncode == 0, done.stdout
        assert "200000 steps of 62 instructions" in done.stdout


@pytest.mark.parametrize("changes", [{"alignment_bits": 24}, {"mux": "mux3"}])
def test_another_row_is_found(changes: dict[str, object], sources: Path, tmp_path: Path) -> None:
    """A bit less below the largest exponent; multiplexers that do not reach every unit."""
    program = row_bench(tmp_path, sources, **changes)
    done = run(program, "+steps=200000", "+verilator+seed+7")
    assert done.returncode != 0
    assert "MISMATCH" in done.stdout
