"""SystemVerilog benches without Python compare hardware with the reference model libsptc, in Verilator."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sptc.rtl.config import PRESETS
from sptc.rtl.emit import emit
from sptc.sim.benches.systemverilog import build_bench, build_library, build_program, run

pytestmark = pytest.mark.regression

HERE = Path(__file__).parent
HOPPER, ARCH = PRESETS["hopper"], "sm_90"
REFUSED = "undefined metadata at tile 0, row 1, chunk 4 (lane 5, bits 3:0): nibble 0b0000 breaks the ordered rule"
#: Plusarg for each bench, and start of the line that the bench prints.
WORK = {"row": ("+steps=150000", r"150000 steps of 62 "), "warp": ("+instructions=15000", r"15000 instructions of 72 ")}
Build = Callable[..., Path]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_library(tmp_path_factory.mktemp("dpi") / "libsptc")


@pytest.fixture
def bench(library: Path, tmp_path: Path) -> Build:
    """Function that builds the bench of a row or a warp, with the preset `hopper` or with a given Verilog design."""

    def build(top: str, design: str = "") -> Path:
        return build_bench(top, HOPPER, ARCH, HERE / f"{top}_tb.sv", tmp_path, library, design=design)

    return build


def test_the_example(library: Path, tmp_path: Path) -> None:
    done = run(build_program("reference", [library / "examples" / "reference.sv"], tmp_path, library), seed=1)
    assert done.returncode == 0, done.stdout
    lines = done.stdout.splitlines()
    assert lines[0].startswith(REFUSED)
    assert lines[1] == "every element is 32 and 33"


@pytest.mark.parametrize("top", WORK)
def test_the_hardware_equals_the_library(bench: Build, top: str, rng: np.random.Generator) -> None:
    """The row (all one-step instructions) and the warp (all instructions and selectors) give the results of libsptc."""
    program = bench(top)
    words, said = WORK[top]
    for seed in rng.integers(1, 1 << 30, 2).tolist():
        print(f"+verilator+seed+{seed}")
        done = run(program, words, seed=seed)
        assert done.returncode == 0, done.stdout
        assert re.match(said, done.stdout)


@pytest.mark.parametrize(("top", "changes"), [("warp", {"alignment_bits": 24}), ("row", {"mux": "mux3"})], ids=str)
def test_other_hardware_is_found(bench: Build, top: str, changes: dict[str, object]) -> None:
    """The bench detects wrong hardware: one alignment bit less, or 3:1 multiplexers in place of 4:1 multiplexers."""
    array = {"rows": 1, "columns": 2} if top == "warp" else {}  # a small array, for a short compile time
    done = run(bench(top, emit(replace(HOPPER, **array, **changes), top, top)), WORK[top][0], seed=7)
    assert done.returncode != 0
    assert "MISMATCH" in done.stdout
