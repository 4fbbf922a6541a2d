"""``sptc trace``: an output of a file or of a drawn tile, as a table, JSON and SVG."""

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from sptc.tests.cli.command_line import CommandLine
from sptc.verify.register_file import read, shipped, write
from sptc.verify.trace_output import trace

COMMAND = "trace"
F16 = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
S8 = "mma.sp.sync.aligned.m16n8k64.row.col.satfinite.s32.s8.s8.s32"
FILE = next(path for path in shipped() if path.name == "mma.sp-ordered.m16n8k32.f32.f16.f16.f32.selector0.npz")


def test_an_output_of_a_file(cli: CommandLine) -> None:
    words = [FILE, "--case", 1, "--row", 2, "--column", 3, "--golden-only"]
    assert cli.text(*words, "--svg", "trace.svg") == f"{trace(FILE, 1, 2, 3, hardware=False)}\n"
    assert ElementTree.parse("trace.svg").getroot().tag.endswith("svg")
    found = cli.json(*words)
    file = read(FILE)
    assert file.d is not None
    assert found["golden"]["d"] == f"0x{file.matrix(file.d)[1, 2, 3]:08x}"
    assert (found["hardware"], found["first_difference"]) == (None, None)
    (step,) = found["golden"]["steps"]
    assert len(step["products"]) + 1 == len(step["terms"]) == 17
    assert {*step["products"][0]} == {"element", "chunk", "nibble", "selected", "a", "b", "value"}


@pytest.mark.regression
def test_golden_model_and_hardware(cli: CommandLine) -> None:
    lines = cli.text(F16, "--seed", 3, "--distribution", "wide").splitlines()
    assert lines[0] == f"{F16} on sm_90: case 0, row 0, column 0"
    assert lines[1].endswith("which agree in every field")
    assert [line.split()[-1] for line in lines if line.endswith("=")] == ["="] * 17


def test_the_seed_decides(cli: CommandLine) -> None:
    said = [cli.text(S8, "--golden-only", "--seed", seed, "--case", 1) for seed in (1, 1, 2)]
    assert said[0] == said[1] != said[2]


def test_special_values_and_overflows(cli: CommandLine) -> None:
    for seed in range(8):
        cli.json(F16, "--golden-only", "--distribution", "special", "--seed", seed)
    for distribution in ("huge", "special"):
        words = ["--golden-only", "--distribution", distribution, "--svg", "x.svg"]
        cli.text("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", *words)


def test_bad_words(cli: CommandLine) -> None:
    file = read(FILE)
    assert file.e is not None
    write(Path("bad.npz"), replace(file, e=file.e & 0, metadata="strict"))
    for words, message in (
        (["none.npz"], "none.npz does not exist"),
        ([FILE, "--seed", 1], "--seed draws a random tile and cannot be combined with FILE.npz"),
        ([FILE, "--arch", "sm_90"], "--arch draws a random tile and cannot be combined with FILE.npz"),
        ([FILE, "--nibbles", "all"], "--nibbles draws a random tile and cannot be combined with FILE.npz"),
        ([FILE, "--golden-only", "--svg", "none/x.svg"], "cannot be written"),
        (["bad.npz", "--golden-only"], "0b0000"),  # as the policy of the file says
    ):
        cli.refuses(*words, message=message)


def test_the_d_of_the_file_decides_the_status(cli: CommandLine) -> None:
    file = read(FILE)
    assert file.d is not None
    write(Path("other.npz"), replace(file, d=file.d ^ 1))
    words = ["other.npz", "--case", 1, "--row", 2, "--column", 3, "--golden-only"]
    lines = cli.text(*words, status=1).splitlines()
    assert lines[2].startswith(f"the file holds 0x{file.matrix(file.d)[1, 2, 3] ^ 1:08x} (")
    assert lines[2].endswith("), another D; it could differ in the only step")
    assert [line for line in lines if "<- the D of the file could differ from here on" in line] == [lines[4]]
    said = cli.json(*words, "--svg", "x.svg", status=1)["file"]
    assert (said["agrees"], said["first_possible_step"]) == (False, 1)
    assert "the file holds" in cli.text(FILE, "--golden-only")
