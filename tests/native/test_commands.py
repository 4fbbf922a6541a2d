"""The library as a back end of the API and of every command that takes one; and a machine without a compiler."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sptc import mma
from sptc.api.backends import backend
from sptc.cli import main
from sptc.errors import BackendError
from sptc.isa.instructions import parse
from sptc.native import backend as native
from sptc.native import library

from .products import random_product

F16 = "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"


def test_the_first_example_of_the_readme() -> None:
    a, b = np.full((32, 4), 0x3C003C00, np.uint32), np.full((32, 4), 0x40004000, np.uint32)
    c, e = np.zeros((32, 4), np.uint32), np.full(32, 0x44444444, np.uint32)
    d = mma(F16, a, b, c, e, selector=0, arch="sm_90", backend="native")
    assert (d.view(np.float32) == 32.0).all()


def test_every_recording(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--backend", "native", "--json"]) == 0
    total = json.loads(capsys.readouterr().out)["total"]
    assert (total["mismatches"], total["outputs"] > 1_500_000) == (0, True)


# Workers are forked on purpose, from a process whose numerical library has threads; newer Pythons warn of any fork.
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_campaign_and_a_product(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["campaign", "--backend", "native", "--arch", "sm_120", "--tiles", "4", "--seed", "5", "--json"]
    assert main([*words, "--shards", "200", "--jobs", "2"]) == 0
    total = json.loads(capsys.readouterr().out)["total"]
    assert (total["shards"], total["mismatches"]) == (200, 0)
    words = ["gemm", "--random", "70", "50", "256", "--format", "e4m3", "--backend", "golden", "native"]
    assert main([*words, "--jobs", "1", "--output", str(tmp_path / "d.npy"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["mismatches"] == 0


def test_coverage_is_that_of_the_hardware(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["campaign", "--backend", "native", "--coverage", "--shards", "1"]) == 2
    error = capsys.readouterr().err
    assert error == ("sptc campaign: --coverage samples the hardware: it needs --backend rtl beside native\n")


@pytest.mark.parametrize("coverage", [[], ["--coverage"]], ids=["plain", "coverage"])
def test_every_back_end_of_a_campaign_is_compared(
    coverage: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = native.multiply
    monkeypatch.setattr(native, "multiply", lambda *operands, **choices: right(*operands, **choices) ^ 1)
    monkeypatch.chdir(tmp_path)
    words = ["campaign", "--backend", "rtl", "native", "--arch", "sm_80", "--tiles", "2", "--shards", "1"]
    assert main([*words, "--jobs", "1", "--json", *coverage]) == 1
    assert json.loads(capsys.readouterr().out)["total"]["mismatches"] > 0


def test_the_way_to_repeat_a_mismatch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong library is found, and the command that is printed asks it again."""
    right = native.multiply

    def wrong(*operands: object, **choices: object) -> object:
        return right(*operands, **choices) ^ 1  # type: ignore[arg-type]

    monkeypatch.setattr(native, "multiply", wrong)
    monkeypatch.chdir(tmp_path)
    words = ["--tiles", "2", "--seed", "3", "--shards", "2", "--jobs", "1", "--json"]
    assert main(["campaign", "--backend", "native", "--arch", "sm_80", *words]) == 1
    mismatch = json.loads(capsys.readouterr().out)["mismatch"]
    assert "--backend native" in mismatch["replay"]
    assert "--backend native" in mismatch["rerun"]


def test_without_a_compiler(tmp_path: Path) -> None:
    program = f"""
import numpy as np
from sptc import mma
from sptc.errors import BackendError
try:
    mma({F16!r}, *(np.zeros((32, 4), np.uint32),) * 3, np.full(32, 0x44444444, np.uint32), backend="native")
except BackendError as error:
    print(error)
"""
    environment = {"PATH": str(tmp_path), "SPTC_CACHE": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == "this needs a C++ compiler: install g++ (on Debian or Ubuntu, `apt install g++`)\n"


def test_a_compiler_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "native"
    for source in ("src", "include"):
        (folder / source).mkdir(parents=True)
        for path in (library.SOURCES / source).iterdir():
            (folder / source / path.name).write_bytes(path.read_bytes())
    (folder / "src" / "raw.cpp").write_text("int main( {\n", encoding="utf-8")
    monkeypatch.setattr(library, "SOURCES", folder)
    library.library.cache_clear()
    with pytest.raises(BackendError, match=r"the C\+\+ compiler failed while building libsptc: .*raw\.cpp"):
        backend("native").make_ready("sm_90")
    library.library.cache_clear()


def test_what_the_library_refuses_is_one_sentence(rng: np.random.Generator) -> None:
    instruction = parse(F16)
    operands = random_product(instruction, "narrow", rng, 1, 1)
    with pytest.raises(BackendError, match=r"^back end native cannot compute this: 'sm_91' is no known architecture\b"):
        native.multiply(instruction, "sm_91", operands)
    with pytest.raises(BackendError, match="threads must be 1 to 1024, not 0"):
        native.multiply(instruction, "sm_90", operands, threads=0)
