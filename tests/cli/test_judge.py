"""``sptc judge``: right results, results of a neighbour and of no model, and its former name."""

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from sptc.isa.fragments import accumulator_fragment
from sptc.operands.registers import to_registers
from sptc.tests.cli.command_line import CommandLine
from sptc.verify.conformance import read_pack
from sptc.verify.neighbours import neighbours_of
from sptc.verify.pack_files import given_of

COMMAND = "judge"
F16 = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"


@pytest.fixture
def pack(tmp_path: Path, cli: CommandLine) -> Path:
    CommandLine(cli.capsys, "pack").text(F16, "--arch", "sm_90", "-o", "pack.npz")
    return tmp_path / "pack.npz"


def results(path: Path, name: str) -> Path:
    """Write what a neighbour makes of a pack beside it, a word a line."""
    file = read_pack(path).file
    [neighbour] = [each for each in neighbours_of(file.instruction, file.arch) if each.name == name]
    d = to_registers(neighbour.multiply(given_of(file)), accumulator_fragment(file.instruction))
    text = path.with_suffix(".hex")
    text.write_text("\n".join(f"{word:08x}" for word in d.ravel()))
    return text


def test_right_results(pack: Path, cli: CommandLine) -> None:
    assert cli.status(pack, pack, "--junit", "junit.xml", "--github") == 0
    captured = cli.capsys.readouterr()
    assert captured.out.startswith("all 768 outputs of mma.sp")
    assert captured.err == "::notice title=sptc judge::1 right, 0 wrong\n"
    assert ElementTree.parse("junit.xml").getroot().attrib == {"tests": "1", "failures": "0"}


def test_results_of_a_neighbour(pack: Path, cli: CommandLine) -> None:
    for name in ("F = 24", "L = 8", "rounding RNE-f32", "metadata of the next sparsity selector"):
        words = [pack, results(pack, name)]
        said = cli.json(*words, status=1)
        assert (said["explained_by"], said["nearest"], said["explained"]) == ([name], name, said["outputs"])
        assert said["first"]["wanted"] != said["first"]["got"]
        assert cli.status(*words, "--github", "--junit", "junit.xml") == 1
        captured = cli.capsys.readouterr()
        assert captured.out == said["verdict"] + "\n"
        assert captured.out.splitlines()[-1] == f"these are the results with {name}"
        assert "::error title=sptc judge" in captured.err
        assert f"these are the results with {name}" in Path("junit.xml").read_text("utf-8")


def test_results_like_none(pack: Path, cli: CommandLine) -> None:
    d = read_pack(pack).file.d.copy()
    d[0, 3, 1] ^= 0x00400000
    np.savez("d.npz", D=d)
    lines = cli.text(pack, "d.npz", status=1).splitlines()
    assert lines[0] == f"1 of 768 outputs of {F16} on sm_90 differ"
    assert lines[1].startswith("first: case 0, row 0, column 7: wanted 0x")
    assert lines[2] == "nearest: the right model, which gives 767 of 768 outputs"


def test_its_former_name(pack: Path, cli: CommandLine) -> None:
    file = results(pack, "F = 24")
    former = CommandLine(cli.capsys, "vectors")
    assert former.json("--check", pack, "--results", file, status=1) == cli.json(pack, file, status=1)
    for words, message in (
        (["--check", pack], "--check needs --results"),
        (["--check", pack, "--results", file, "--arch", "sm_90"], "--arch cannot be combined with --check"),
        ([F16, "--check", pack, "--results", file], "INSTRUCTION cannot be combined with --check"),
        (["--results", file], "INSTRUCTION is required"),
    ):
        former.refuses(*words, message=message)


def test_bad_words(cli: CommandLine) -> None:
    for words, message in (
        (["none.npz"], "the following arguments are required: RESULTS"),
        (["none.npz", "x"], "does not exist"),
        (["none.npz", "x", "--junit", "none/x.xml"], "cannot be written"),
    ):
        cli.refuses(*words, message=message)
