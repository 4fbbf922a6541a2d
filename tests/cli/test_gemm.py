"""``sptc gemm``: what it prints and writes, that it resumes, and one line for whatever is wrong."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from sptc.cli import main

RANDOM = ["--random", "150", "20", "64"]


def blocks(folder: Path) -> int:
    """Return how many blocks are done, also while the product is computed."""
    try:
        with closing(sqlite3.connect(f"file:{folder / 'product.db'}?mode=ro", uri=True)) as database:
            return int(database.execute("SELECT count(*) FROM entries").fetchone()[0])
    except sqlite3.OperationalError:  # it has not begun
        return 0


def gemm(*words: object) -> int:
    return main(["gemm", *map(str, words)])


def test_random_matrices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output, picture = tmp_path / "d.npy", tmp_path / "errors.svg"
    assert gemm(*RANDOM, "--dense", "--output", output, "--plot", picture, "--jobs", 1) == 0
    text = capsys.readouterr().out
    wgmma = "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16"
    assert f"150 x 20 x 64: {wgmma} on sm_90; one chain along K; result f32 (RNE)" in text
    assert "3000 outputs of golden; 0 differ on rtl" in text
    assert "96000 of 192000 products kept, 18 instructions" in text
    assert "576 cycles of the array, multipliers 65.1 % used" in text
    assert np.load(output).shape == (150, 20)
    assert picture.read_text("utf-8").startswith("<?xml")
    assert sorted(tmp_path.iterdir()) == [output, picture]


@pytest.mark.parametrize(
    ("fmt", "instruction"),
    [
        ("tf32", "wgmma.mma_async.sp.sync.aligned.m64n8k16.f32.tf32.tf32"),
        ("e4m3", "wgmma.mma_async.sp.sync.aligned.m64n8k64.f32.e4m3.e4m3"),
        ("s8", "wgmma.mma_async.sp.sync.aligned.m64n8k64.satfinite.s32.s8.s8"),
    ],
)
def test_an_instruction_for_a_format(fmt: str, instruction: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert gemm(*RANDOM, "--format", fmt, "--backend", "golden", "--json", "--jobs", 1) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["instruction"], report["backends"], report["outputs"]) == (instruction, ["golden"], 3000)


def test_files(tmp_path: Path, rng: np.random.Generator, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = rng.standard_normal((20, 40)), rng.standard_normal((12, 40))
    np.savez(tmp_path / "both.npz", a=a, b=b)
    both, output = tmp_path / "both.npz", tmp_path / "d.npy"
    words = ["--a", both, "--a-tensor", "a", "--b", both, "--b-tensor", "b", "--transpose-b"]
    assert gemm(*words, "--prune", "--rows", 7, "--output", output, "--json", "--jobs", 1) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["shape"], report["mismatches"]) == ([7, 12, 40], 0)
    assert np.load(output).shape == (7, 12)
    assert np.abs(np.load(output) - (a @ b.T)[:7]).max() < 20
    assert gemm(*words) == 2
    assert "sptc gemm: not 2:4 sparse: " in capsys.readouterr().err


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_product_resumes(sign: signal.Signals, tmp_path: Path) -> None:
    """Killed at some block, it goes on, and the file is the one of a run that nothing disturbed."""
    words = [
        sys.executable,
        "-m",
        "sptc",
        "gemm",
        "--random",
        "700",
        "600",
        "512",
        "--backend",
        "golden",
        "--jobs",
        "1",
    ]
    whole, cut = tmp_path / "whole.npy", tmp_path / "cut.npy"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    assert subprocess.run([*words, "--output", whole], check=False, **quiet).returncode == 0
    process = subprocess.Popen([*words, "--output", cut], **quiet)
    deadline = time.monotonic() + 60
    while not blocks(tmp_path / "cut.npy.partial"):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.005)
    os.kill(process.pid, sign)
    _, error = process.communicate()
    if sign == signal.SIGINT:
        assert process.returncode == 130
        assert error.decode() == f"sptc gemm: interrupted; what is done is kept in {cut}.partial\n"
    assert not cut.exists()
    assert 0 < blocks(tmp_path / "cut.npy.partial") < 12
    resumed = subprocess.run([*words, "--output", cut], check=False, **quiet)
    assert (resumed.returncode, resumed.stderr) == (0, b"")
    assert cut.read_bytes() == whole.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cut.npy", "whole.npy"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give A and B with --a and --b, or the shape of random ones with --random"),
        (["--a", "x.npy"], "give A and B with --a and --b, or the shape of random ones with --random"),
        ([*RANDOM, "--output", "d.npz"], "d.npz must end in .npy"),
        ([*RANDOM, "--format", "e2m1"], "sm_90 has no sparse instruction for e2m1"),
        ([*RANDOM, "--scales", "ue8m0"], "sm_90 has no sparse instruction for f16 with block scales of ue8m0"),
        ([*RANDOM, "--instruction", "mma.sp.x"], "'.x' in 'mma.sp.x' is no part of mma; "),
        (["--a", "none.npy", "--b", "none.npy"], "none.npy cannot be read (No such file or directory)"),
        ([*RANDOM, "--backend", "cuda", "--jobs", 1], "back end 'cuda' needs CuPy, which extra 'cuda' brings "),
    ],
)
def test_what_is_wrong(
    words: list[object],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert gemm(*words) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"sptc gemm: {message}")
    assert shown.err.count("\n") == 1


def test_nan_under_pruning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = np.ones((4, 32))
    a[2, 17] = np.nan
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", np.ones((32, 4)))
    assert gemm("--a", tmp_path / "a.npy", "--b", tmp_path / "b.npy", "--prune") == 2
    assert capsys.readouterr().err == "sptc gemm: a holds 1 NaN, the first in row 2, column 17\n"
