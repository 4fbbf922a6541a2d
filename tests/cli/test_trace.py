"""``sptc trace``: an output of a file or of a drawn tile, as a table, JSON and SVG."""

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from sptc.cli import main
from sptc.verify.register_file import read, shipped, write
from sptc.verify.trace_output import trace

F16 = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
S8 = "mma.sp.sync.aligned.m16n8k64.row.col.satfinite.s32.s8.s8.s32"
FILE = next(path for path in shipped() if path.name == "mma.sp-ordered.m16n8k32.f32.f16.f16.f32.selector0.npz")


def run(*words: object) -> int:
    return main(["trace", *map(str, words)])


def test_an_output_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "trace.svg"
    words = [FILE, "--case", 1, "--row", 2, "--column", 3, "--golden-only"]
    assert run(*words, "--svg", picture) == 0
    assert capsys.readouterr().out == f"{trace(FILE, 1, 2, 3, hardware=False)}\n"
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")
    assert run(*words, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    file = read(FILE)
    assert file.d is not None
    assert found["golden"]["d"] == f"0x{file.matrix(file.d)[1, 2, 3]:08x}"
    assert (found["hardware"], found["first_difference"]) == (None, None)
    (step,) = found["golden"]["steps"]
    assert len(step["products"]) + 1 == len(step["terms"]) == 17
    assert {*step["products"][0]} == {"element", "chunk", "nibble", "selected", "a", "b", "value"}


def test_golden_model_and_hardware(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(F16, "--seed", 3, "--distribution", "wide") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{F16} on sm_90: case 0, row 0, column 0"
    assert lines[1].endswith("which agree in every field")
    assert [line.split()[-1] for line in lines if line.endswith("=")] == ["="] * 17


def test_the_seed_decides(capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for seed in (1, 1, 2):
        assert run(S8, "--golden-only", "--seed", seed, "--case", 1) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1] != said[2]


def test_special_values_are_words_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    for seed in range(8):
        assert run(F16, "--golden-only", "--distribution", "special", "--seed", seed, "--json") == 0
        text = capsys.readouterr().out
        assert "NaN" not in text
        assert "Infinity" not in text
        json.loads(text)


def test_a_result_that_overflows_is_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16"
    for distribution in ("huge", "special"):
        assert run(text, "--golden-only", "--distribution", distribution, "--svg", tmp_path / "x.svg") == 0
    capsys.readouterr()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["none.npz"], "none.npz does not exist"),
        ([FILE, "--row", 16], "row must be 0 to 15"),
        ([FILE, "--case", 99999], "case must be 0 to"),
        ([FILE, "--seed", 1], "--seed is for an instruction"),
        ([FILE, "--arch", "sm_90"], "--arch is for an instruction"),
        ([FILE, "--nibbles", "all"], "--nibbles is for an instruction"),
        (["mma.nothing"], "is no part of mma"),
        ([F16, "--distribution", "odd"], "distribution must be one of"),
        ([S8.replace("m16n8k64.row.col.satfinite", "m64n8k64"), "--column", 8], "is no"),
        ([FILE, "--golden-only", "--svg", "{}/none/x.svg"], "cannot be written"),
    ],
)
def test_bad_words(words: list[object], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*(str(word).format(tmp_path) for word in words)) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_undefined_metadata_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As the policy of the file says."""
    file = read(FILE)
    assert file.e is not None
    write(tmp_path / "bad.npz", replace(file, e=file.e & 0, metadata="strict"))
    assert run(tmp_path / "bad.npz", "--golden-only") == 2
    assert "0b0000" in capsys.readouterr().err
