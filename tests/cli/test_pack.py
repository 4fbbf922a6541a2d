"""``sptc pack`` writes packs, ``sptc judge`` judges results, and the former names of both commands still work."""

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from sptc.infra.pools import cores
from sptc.isa.instructions import ARCHITECTURES
from sptc.tests.cli.command_line import CommandLine
from sptc.tests.verify.test_conformance import results_of
from sptc.verify.conformance import read_pack
from sptc.verify.neighbours import neighbours_of
from sptc.verify.pack_files import every_subject

COMMAND = "pack"
F16 = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
PAIR = "tcgen05.mma.sp.cta_group::2.kind::i8 (m128n32k64.satfinite.s32.s8.s8)"


def test_packs(cli: CommandLine) -> None:
    text = cli.text(F16, "--arch", "sm_90", "-o", "one.npz")
    assert "distinguishes 13 neighbours" in text
    reason = "the 16 products of a sum fit into one step of either length"
    assert f"L = 32: cannot give other results, since {reason}" in text
    assert "13 of 13 pairs of instruction and neighbour distinguished; 4 pairs cannot differ" in text
    assert [*Path().iterdir()] == [Path("one.npz")]
    folder = Path("new/packs")
    report = cli.json(F16, PAIR, F16, "-o", folder, "--jobs", 2)
    actual = [(row["instruction"], row["arch"]) for row in report["packs"]]
    assert actual == [*((F16, arch) for arch in ARCHITECTURES), (PAIR, "sm_100")]
    assert sorted(Path(row["file"]) for row in report["packs"]) == sorted(folder.iterdir())
    name = "tcgen05.mma.sp.cta_group-2.kind-i8-m128n32k64.satfinite.s32.s8.s8.sm_100.npz"
    assert Path(report["packs"][-1]["file"]).name == name
    assert report["total"]["missed"] == 0
    assert report["total"]["told_apart"] == sum(len(row["told_apart"]) for row in report["packs"]) > 70
    assert CommandLine(cli.capsys, "run").json("--backend", "golden", *folder.iterdir())["total"]["files"] == 7


def test_the_former_name_of_pack(cli: CommandLine) -> None:
    words = [F16, "--arch", "sm_90", "--seed", 3, "-o", "one.npz", "--jobs", 1]
    expected, pack = cli.json(*words), Path("one.npz").read_bytes()
    former = CommandLine(cli.capsys, "vectors")
    assert former.json("--pack", *words) == expected
    assert Path("one.npz").read_bytes() == pack
    for more, message in (
        (["-o", ".", "--results", "x"], "--results cannot be combined with --pack"),
        (["--check", "x"], "--check cannot be combined with --pack"),
        (["-o", ".", "--github"], "--github cannot be combined with --pack"),
        ([], "--pack needs --output FOLDER"),
    ):
        former.refuses("--pack", F16, *more, message=message)


@pytest.mark.regression
def test_every_instruction(tmp_path: Path, seed: int, rng: np.random.Generator, cli: CommandLine) -> None:
    """Packs of a random architecture distinguish 99 % of the pairs of an instruction and a neighbouring model."""
    arch = str(rng.choice(ARCHITECTURES))
    report = cli.json("all", "--arch", arch, "-o", tmp_path, "--seed", seed, "--jobs", cores())
    assert [row["instruction"] for row in report["packs"]] == [subject.name for subject in every_subject(arch)]
    total = report["total"]
    assert total["told_apart"] >= 0.99 * (total["told_apart"] + total["missed"])
    assert all(0 < row["cases"] <= 256 for row in report["packs"])
    paths = sorted(map(str, tmp_path.glob("*.npz")))
    assert len(paths) == total["packs"]
    sample = sorted(rng.choice(paths, max(1, len(paths) // 5), replace=False))
    for backend, chosen in (("native", paths), ("rtl", sample)):
        outcome = CommandLine(cli.capsys, "run").json("--backend", backend, *chosen)["total"]
        assert (outcome["files"], outcome["mismatches"]) == (len(chosen), 0)


@pytest.fixture
def judge(cli: CommandLine) -> CommandLine:
    return CommandLine(cli.capsys, "judge")


@pytest.fixture
def pack(tmp_path: Path, cli: CommandLine) -> Path:
    cli.text(F16, "--arch", "sm_90", "-o", "pack.npz")
    return tmp_path / "pack.npz"


def results(path: Path, name: str) -> Path:
    """Write the results of a neighbouring model for a pack to a file beside the pack, with one register per line."""
    pack = read_pack(path)
    [neighbour] = [each for each in neighbours_of(pack.file.instruction, pack.file.arch) if each.name == name]
    text = path.with_suffix(".hex")
    text.write_text("\n".join(f"{word:08x}" for word in results_of(pack, neighbour).ravel()))
    return text


def test_right_results_and_results_like_none(pack: Path, judge: CommandLine) -> None:
    output, errors = judge.streams(pack, pack, "--junit", "junit.xml", "--github")
    assert output.startswith("all 768 outputs of mma.sp")
    assert errors == "::notice title=sptc judge::1 right, 0 wrong\n"
    assert ElementTree.parse("junit.xml").getroot().attrib == {"tests": "1", "failures": "0"}
    d = read_pack(pack).file.d.copy()
    d[0, 3, 1] ^= 0x00400000
    np.savez("d.npz", D=d)
    lines = judge.text(pack, "d.npz", status=1).splitlines()
    assert lines[0] == f"1 of 768 outputs of {F16} on sm_90 differ"
    assert lines[1].startswith("first: case 0, row 0, column 7: wanted 0x")
    assert lines[1].endswith(", in register 1 of thread 3")
    assert lines[2] == "nearest model: the right model, which gives 767 of 768 outputs"


def test_results_of_a_neighbour(pack: Path, judge: CommandLine) -> None:
    for name in ("F = 24", "L = 8", "rounding RNE-f32", "metadata of the next sparsity selector"):
        words = [pack, results(pack, name)]
        report = judge.json(*words, status=1)
        assert (report["explained_by"], report["nearest"], report["explained"]) == ([name], name, report["outputs"])
        assert report["first"]["wanted"] != report["first"]["got"]
        output, errors = judge.streams(*words, "--github", "--junit", "junit.xml", status=1)
        assert output == report["verdict"] + "\n"
        assert output.splitlines()[-1] == f"the results are those of a model with {name}"
        assert "::error title=sptc judge" in errors
        assert f"the results are those of a model with {name}" in Path("junit.xml").read_text("utf-8")


def test_the_former_name_of_judge(pack: Path, judge: CommandLine) -> None:
    file = results(pack, "F = 24")
    former = CommandLine(judge.capsys, "vectors")
    assert former.json("--check", pack, "--results", file, status=1) == judge.json(pack, file, status=1)
    former.refuses_each(
        (["--check", pack], "--check needs --results"),
        (["--check", pack, "--results", file, "--arch", "sm_90"], "--arch cannot be combined with --check"),
        (["--results", file], "INSTRUCTION is required"),
    )


def test_bad_words(cli: CommandLine, judge: CommandLine) -> None:
    for command, words, message in (
        (cli, [F16, "-o", "x.npz"], "x.npz can hold one conformance pack, not 6"),
        (cli, [F16, "-o", "-"], "--output - can hold one conformance pack, not 6: --output must be a folder"),
        (cli, [F16, "-o", "none/x.npz", "--arch", "sm_90"], "cannot be written"),
        (cli, [F16, "-o", "/dev/null/packs"], "the folder /dev/null/packs cannot be created"),
        (cli, ["all", F16, "-o", "."], "'all' already includes every instruction"),
        (judge, ["none.npz", "x"], "does not exist"),
        (judge, ["none.npz", "x", "--junit", "none/x.xml"], "cannot be written"),
    ):
        command.refuses(*words, message=message)
