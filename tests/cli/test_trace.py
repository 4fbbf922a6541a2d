"""``sptc trace`` shows one output of a file, a random tile or a product, as a table, as JSON or as SVG."""

import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import sptc
from sptc.isa.names import subject_named
from sptc.tests.cli.command_line import CommandLine, saved
from sptc.verify.register_file import read, shipped, write
from sptc.verify.trace_output import trace

COMMAND = "trace"
F16 = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
S8 = "mma.sp.sync.aligned.m16n8k64.row.col.satfinite.s32.s8.s8.s32"
OF_WARPGROUP = "wgmma.mma_async.sp.sync.aligned.m64n8k64.f32.e4m3.e5m2"
OF_CTA = "tcgen05.mma.sp.cta_group::1.kind::f16 (m128n64k32.f32.f16.f16)"
FILE = next(path for path in shipped() if path.name == "mma.sp-ordered.m16n8k32.f32.f16.f16.f32.selector0.npz")


def test_an_output_of_a_file(cli: CommandLine) -> None:
    words = [FILE, "--case", 1, "--row", 2, "--column", 3, "--golden-only"]
    assert cli.text(*words, "--svg", "trace.svg") == f"{trace(FILE, 1, 2, 3, hardware=False)}\n"
    assert ElementTree.parse("trace.svg").getroot().tag.endswith("svg")
    report = cli.json(*words)
    file = read(FILE)
    assert file.d is not None
    assert report["golden"]["d"] == f"0x{file.matrix(file.d)[1, 2, 3]:08x}"
    assert (report["hardware"], report["first_difference"]) == (None, None)
    (step,) = report["golden"]["steps"]
    assert len(step["products"]) + 1 == len(step["terms"]) == 17
    assert {*step["products"][0]} == {"element", "chunk", "nibble", "selected", "a", "b", "value"}


@pytest.mark.regression
def test_golden_model_and_hardware(cli: CommandLine, rng: np.random.Generator) -> None:
    lines = cli.text(F16, "--seed", 3, "--distribution", "wide").splitlines()
    assert lines[0].endswith("which agree in every field")
    assert lines[1] == f"{F16} on sm_90: case 0, row 0, column 0"
    assert [line.split()[-1] for line in lines if line.endswith("=")] == ["="] * 17
    saved_matrices(rng)
    text = cli.text(F16, "--a", "a.npy", "--b", "b.npy", "--c", "c.npy", "--row", 5, "--column", 7)
    assert text.splitlines()[0].endswith("; golden model and hardware are equal in 3 instructions")
    assert text.count("which agree in every field") == 3


def test_random_tiles(cli: CommandLine) -> None:
    actual = [cli.text(S8, "--golden-only", "--seed", seed, "--case", 1) for seed in (1, 1, 2)]
    assert actual[0] == actual[1] != actual[2]
    for seed in range(8):
        cli.json(F16, "--golden-only", "--distribution", "special", "--seed", seed)
    for distribution in ("huge", "special"):
        words = ["--golden-only", "--distribution", distribution, "--svg", "x.svg"]
        cli.text("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", *words)


def test_other_numerics(cli: CommandLine) -> None:
    """With changed numerics, only the golden model is traced, and the D of the file differs."""
    lines = cli.text(FILE, "--alignment", 11, "--products", 4, status=1).splitlines()
    assert " with L = 4, F = 11, RZ-f32: case 0" in lines[2]
    steps = [line for line in lines if line.startswith("step ")]
    assert [line.partition(", the last")[0].partition("F ")[2] for line in steps] == ["11"] * 4
    a, b = np.zeros((16, 32), np.float16), np.ones((32, 8), np.float16)
    a[0, ::4], a[0, 1] = 2.0**-9, 1
    saved(a=a, b=b)
    words = [F16, "--a", "a.npy", "--b", "b.npy"]
    changed = sptc.numerics("sm_90", F16).replace(alignment_bits=7)
    d = cli.json(*words, "--alignment", 7)["d"]
    assert d == f"0x{sptc.gemm(a, b, instruction=F16, numerics=changed).view('u4')[0, 0]:08x}"
    assert cli.json(*words, "--golden-only")["d"] != d


def test_bad_words(cli: CommandLine) -> None:
    file = read(FILE)
    assert file.e is not None
    write(Path("bad.npz"), replace(file, e=file.e & 0, metadata="strict"))
    cli.refuses_each(
        ([FILE, "--seed", 1], "--seed draws a random tile and cannot be combined with FILE.npz"),
        ([FILE, "--arch", "sm_90"], "--arch draws a random tile and cannot be combined with FILE.npz"),
        ([FILE, "--golden-only", "--svg", "none/x.svg"], "cannot be written"),
        ([FILE, "--golden-only", "--theme", "dark"], "--theme needs --datapath FILE.svg"),
        ([FILE, "--golden-only", "--prune"], "--prune needs --a and --b"),
        ([F16, "--golden-only", "--b-tensor", "x"], "--b-tensor needs --a and --b"),
        ([F16, "--golden-only", "--case", (1 << 63) - 1], f"--case must be below 131072 for random tiles of {F16}"),
        (["bad.npz", "--golden-only", "--case", 1], "at case 1, row 0, ...0b0000"),  # policy strict of the file applies
    )


def test_the_d_of_the_file_decides_the_status(cli: CommandLine) -> None:
    file = read(FILE)
    assert file.d is not None
    write(Path("other.npz"), replace(file, d=file.d ^ 1))
    words = ["other.npz", "--case", 1, "--row", 2, "--column", 3, "--golden-only"]
    lines = cli.text(*words, status=1).splitlines()
    assert lines[1].startswith(f"the file holds another D, 0x{file.matrix(file.d)[1, 2, 3] ^ 1:08x} (")
    assert lines[1].endswith("); the first difference arose in the only step")
    assert [line for line in lines if "<- the first step that can explain the D of the file" in line] == [lines[4]]
    report = cli.json(*words, "--svg", "x.svg", status=1)["file"]
    assert (report["agrees"], report["first_possible_step"]) == (False, 1)
    assert "the file holds" in cli.text(FILE, "--golden-only")


def saved_matrices(rng: np.random.Generator, types: str = "f16") -> None:
    """Save A (24 x 96, two zeros in four), B (96 x 10) and C (24 x 10) to files."""
    kept = np.tile([1, 0, 0, 1], 24)
    if types == "s8":
        a, b = rng.integers(-128, 128, (24, 96)) * kept, rng.integers(-128, 128, (96, 10))
        saved(a=a.astype(np.int8), b=b.astype(np.int8), c=rng.integers(-9999, 9999, (24, 10)).astype(np.int32))
        return
    a, b = rng.standard_normal((24, 96)) * kept, rng.standard_normal((96, 10))
    saved(a=a.astype(np.float16), b=b.astype(np.float16), c=rng.standard_normal((24, 10)).astype(np.float32))


@pytest.mark.parametrize("text", [F16, S8, OF_WARPGROUP, OF_CTA, "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"])
def test_own_matrices(text: str, cli: CommandLine, rng: np.random.Generator) -> None:
    saved_matrices(rng, "s8" if text == S8 else "f16")
    a, b, c = (np.load(f"{name}.npy") for name in "abc")
    row, column = int(rng.integers(24)), int(rng.integers(10))
    words = [text, "--a", "a.npy", "--b", "b.npy", "--row", row, "--column", column, "--golden-only"]
    i = subject_named(text).instruction
    report = cli.json(*words)
    assert len(report["instructions"]) == -(-96 // i.k)
    arch = report["instructions"][0]["golden"]["arch"]
    if text in (F16, S8):
        assert int(report["d"], 16) == int(sptc.gemm(a, b, instruction=text, arch=arch)[row, column].view(np.uint32))
    previous = c[row, column]
    for one in cli.json(*words, "--c", "c.npy")["instructions"]:
        assert one["golden"]["steps"][0]["c"] == f"0x{int(previous.view(np.uint32)):08x}"
        previous = np.uint32(int(one["golden"]["d"], 16))
    np.save("b.npy", np.ascontiguousarray(b.T))
    assert cli.json(*words, "--transpose-b") == report
    saved(b=b[:, column], c=c[:, column])  # B and C are vectors, which count as matrices of one column
    vector = [text, "--a", "a.npy", "--b", "b.npy", "--row", row, "--golden-only"]
    assert cli.json(*vector)["d"] == report["d"]
    assert cli.json(*vector, "--c", "c.npy")["d"] == one["golden"]["d"]


def test_one_instruction_of_a_product(cli: CommandLine, rng: np.random.Generator) -> None:
    saved_matrices(rng)
    words = [F16, "--a", "a.npy", "--b", "b.npy", "--row", 23, "--golden-only"]
    lines = cli.text(*words).splitlines()
    heads = [f"{F16} on sm_90: instruction {number}, row 23, column 0" for number in range(3)]
    assert [line for line in lines if " on sm_90: " in line] == heads
    assert re.fullmatch(r"row 23, column 0 of the product is 0x[0-9a-f]{8} = \S+", lines[0])
    one = cli.text(*words, "--case", 1, "--svg", "x.svg").splitlines()
    assert (one[0], one[3]) == (lines[0], heads[1])
    np.save("dense.npy", rng.standard_normal((24, 96)).astype(np.float16))
    cli.text(*[word if word != "a.npy" else "dense.npy" for word in words], "--prune")
    cli.refuses_each(
        ((*words, "--case", 3), "--case 3: the matrix product takes only 3 instructions along K"),
        ((*words, "--svg", "y.svg"),
         "--svg and --datapath draw one of the 3 instructions along K: choose it with --case"),
        ((*words, "--seed", 1), "--seed draws a random tile and cannot be combined with --a and --b"),
        ((*words[:3], "--golden-only"), "name the files of A and B with --a and --b"),
        ((*words[:5], "--row", 24), "row must be 0 to 23 in this matrix product, not 24"),
        ((F16, "--a", "dense.npy", "--b", "b.npy", "--row", 2), "row 2 of a, read as a matrix with one row, is inval"),
    )  # fmt: skip
