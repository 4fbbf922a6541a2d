"""``sptc gemm``: what it prints and writes, that it resumes, and one line for whatever is wrong."""

import sys
from pathlib import Path

import numpy as np
import pytest
from sptc.tests.cli.command_line import CommandLine

COMMAND = "gemm"
RANDOM = ["--random", "150", "20", "64"]


def test_random_matrices(cli: CommandLine) -> None:
    text = cli.text(*RANDOM, "--dense", "--output", "d.npy", "--plot", "errors.svg", "--jobs", 1)
    wgmma = "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16"
    for words in (
        f"150 x 20 x 64: {wgmma} on sm_90; one chain along K; result f32 (RNE)",
        "3000 outputs of golden; 0 differ on rtl",
        "96000 of 192000 products kept, 18 instructions",
        "576 cycles of the array, multipliers 65.1 % used",
    ):
        assert words in text, words
    assert np.load("d.npy").shape == (150, 20)
    assert Path("errors.svg").read_text("utf-8").startswith("<?xml")
    assert sorted(Path().iterdir()) == [Path("d.npy"), Path("errors.svg")]


def test_files(rng: np.random.Generator, cli: CommandLine) -> None:
    a, b = rng.standard_normal((20, 40)), rng.standard_normal((12, 40))
    np.savez("both.npz", a=a, b=b)
    words = ["--a", "both.npz", "--a-tensor", "a", "--b", "both.npz", "--b-tensor", "b", "--transpose-b"]
    report = cli.json(*words, "--prune", "--rows", 7, "--output", "d.npy", "--jobs", 1)
    assert (report["shape"], report["mismatches"]) == ([7, 12, 40], 0)
    assert np.load("d.npy").shape == (7, 12)
    assert np.abs(np.load("d.npy") - (a @ b.T)[:7]).max() < 20
    cli.refuses(*words, message="not 2:4 sparse: ")
    a[2, 17] = np.nan
    np.savez("both.npz", a=a, b=b)
    cli.refuses(*words, "--prune", message="a holds 1 NaN, the first in row 2, column 17")


def test_what_is_wrong(monkeypatch: pytest.MonkeyPatch, cli: CommandLine) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    for words, message in (
        ([], "give A and B with --a and --b, or the shape of random ones with --random"),
        (["--a", "x.npy"], "give A and B with --a and --b, or the shape of random ones with --random"),
        ([*RANDOM, "--output", "d.npz"], "d.npz must end in .npy"),
        ([*RANDOM, "--format", "e2m1"], "sm_90 has no sparse instruction for e2m1"),
        ([*RANDOM, "--scales", "ue8m0"], "sm_90 has no sparse instruction for f16 with block scales of ue8m0"),
        ([*RANDOM, "--instruction", "mma.sp.x"], "'.x' in 'mma.sp.x' is no part of mma; "),
        (["--a", "none.npy", "--b", "none.npy"], "none.npy cannot be read (No such file or directory)"),
        ([*RANDOM, "--backend", "cuda", "--jobs", 1], "back end 'cuda' needs CuPy, which extra 'cuda' brings "),
    ):
        cli.refuses(*words, message=message)
