"""Python functions and commands use the C++ library as back end, and report an error of the compiler."""

import json
from pathlib import Path

import numpy as np
import pytest
from sptc.api.backends import backend
from sptc.cli import main
from sptc.errors import BackendError
from sptc.golden.matrix import multiply as golden
from sptc.isa.instructions import parse
from sptc.isa.operands import Product
from sptc.native import backend as native
from sptc.native import library
from sptc.sim.engine.engine import HardwareBackend

from .products import random_product

F16 = "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"


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
    assert "--coverage is sampled only on back end rtl: add rtl to --backend" in capsys.readouterr().err


@pytest.mark.parametrize("coverage", [[], pytest.param(["--coverage"], marks=pytest.mark.regression)], ids=str)
def test_a_wrong_library_is_found(
    coverage: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`sptc campaign` finds a wrong result of the C++ library, and prints commands that repeat the mismatch."""
    right = native.multiply
    monkeypatch.setattr(native, "multiply", lambda *operands, **choices: right(*operands, **choices) ^ 1)
    monkeypatch.chdir(tmp_path)
    words = ["--arch", "sm_80", "--tiles", "2", "--seed", "3", "--shards", "2", "--jobs", "1", "--json"]
    if not coverage:
        assert main(["campaign", "--backend", "native", *words]) == 1
        mismatch = json.loads(capsys.readouterr().out)["mismatch"]
        assert "--backend native" in mismatch["replay"]
        assert "--backend native" in mismatch["rerun"]
        # Without coverage, the golden model replaces the hardware, so that the hardware is not compiled.
        monkeypatch.setattr(HardwareBackend, "make_ready", lambda self, arch: None)
        monkeypatch.setattr(HardwareBackend, "multiply", lambda self, *operands: Product(golden(*operands)))
    assert main(["campaign", "--backend", "rtl", "native", *words, *coverage]) == 1
    assert json.loads(capsys.readouterr().out)["total"]["mismatches"] > 0


def test_a_compiler_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "native"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "raw.cpp").write_text("int main( {\n", encoding="utf-8")
    (folder / "src" / "kernels.cpp").write_text("", encoding="utf-8")
    monkeypatch.setattr(library, "SOURCES", folder)
    library.library.cache_clear()
    with pytest.raises(BackendError, match=r"the C\+\+ compiler failed while building libsptc: .*raw\.cpp"):
        backend("native").make_ready("sm_90")
    library.library.cache_clear()


def test_what_the_library_refuses_is_one_sentence(rng: np.random.Generator) -> None:
    instruction = parse(F16)
    operands = random_product(instruction, "narrow", rng, 1, 1)
    message = r"^back end native cannot compute the instruction: 'sm_91' is no known architecture\b"
    with pytest.raises(BackendError, match=message):
        native.multiply(instruction, "sm_91", operands)
    with pytest.raises(BackendError, match="threads must be 1 to 1024, not 0"):
        native.multiply(instruction, "sm_90", operands, threads=0)
