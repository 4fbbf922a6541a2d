"""``sptc pack``: the packs that it writes, its former name, and one line for whatever is wrong."""

from pathlib import Path

import numpy as np
import pytest
from sptc.infra.pools import cores
from sptc.isa.instructions import ARCHITECTURES
from sptc.tests.cli.command_line import CommandLine
from sptc.verify.pack_files import every_subject

COMMAND = "pack"
F16 = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
PAIR = "tcgen05.mma.sp.cta_group::2.kind::i8 (m128n32k64.satfinite.s32.s8.s8)"


def test_packs_in_a_folder(cli: CommandLine) -> None:
    folder = Path("new/packs")
    said = cli.json(F16, PAIR, F16, "-o", folder, "--jobs", 2)
    found = [(row["instruction"], row["arch"]) for row in said["packs"]]
    assert found == [*((F16, arch) for arch in ARCHITECTURES), (PAIR, "sm_100")]
    assert sorted(Path(row["file"]) for row in said["packs"]) == sorted(folder.iterdir())
    assert Path(said["packs"][-1]["file"]).name == (
        "tcgen05.mma.sp.cta_group-2.kind-i8-m128n32k64.satfinite.s32.s8.s8.sm_100.npz"
    )
    assert said["total"]["missed"] == 0
    assert said["total"]["told_apart"] == sum(len(row["told_apart"]) for row in said["packs"]) > 70
    total = CommandLine(cli.capsys, "run").json("--backend", "golden", *folder.iterdir())["total"]
    assert total["files"] == 7


def test_one_pack(cli: CommandLine) -> None:
    text = cli.text(F16, "--arch", "sm_90", "-o", "one.npz")
    assert "tells 13 neighbours apart" in text
    assert "L = 32: cannot differ, since the 16 products that are summed in a row are one step of either length" in text
    assert "13 of 13 pairs of instruction and neighbour told apart; 3 that cannot differ" in text
    assert [*Path().iterdir()] == [Path("one.npz")]


def test_its_former_name(cli: CommandLine) -> None:
    words = [F16, "--arch", "sm_90", "--seed", 3, "-o", "one.npz", "--jobs", 1]
    expected, pack = cli.json(*words), Path("one.npz").read_bytes()
    former = CommandLine(cli.capsys, "vectors")
    assert former.json("--pack", *words) == expected
    assert Path("one.npz").read_bytes() == pack
    for more, message in (
        (["--check", "x"], "--check cannot be combined with --pack"),
        (["-o", ".", "--results", "x"], "--results cannot be combined with --pack"),
        (["-o", ".", "--github"], "--github cannot be combined with --pack"),
        (["-o", ".", "--alignment", 3], "--alignment cannot be combined with --pack"),
        ([], "--pack needs --output FOLDER"),
    ):
        former.refuses("--pack", F16, *more, message=message)


def test_bad_words(cli: CommandLine) -> None:
    for words, message in (
        ([], "the following arguments are required: INSTRUCTION, -o/--output"),
        ([F16], "the following arguments are required: -o/--output"),
        ([F16, "-o", "x.npz"], "holds one pack, not 6"),
        ([F16, "-o", "none/x.npz", "--arch", "sm_90"], "cannot be written"),
        ([F16, "-o", "/dev/null/packs"], "cannot be made a folder"),
        (["all", F16, "-o", "."], "'all' already names every instruction"),
    ):
        cli.refuses(*words, message=message)


@pytest.mark.regression
def test_every_instruction(tmp_path: Path, seed: int, rng: np.random.Generator, cli: CommandLine) -> None:
    """At least 99 % of all pairs of instruction and neighbour are told apart; packs pass on native, some on rtl.

    In every run for one architecture that is drawn anew.
    """
    arch = str(rng.choice(ARCHITECTURES))
    said = cli.json("all", "--arch", arch, "-o", tmp_path, "--seed", seed, "--jobs", cores())
    assert [row["instruction"] for row in said["packs"]] == [subject.name for subject in every_subject(arch)]
    total = said["total"]
    assert total["told_apart"] >= 0.99 * (total["told_apart"] + total["missed"])
    assert all(0 < row["cases"] <= 256 for row in said["packs"])
    paths = sorted(map(str, tmp_path.glob("*.npz")))
    assert len(paths) == total["packs"]
    sample = sorted(rng.choice(paths, max(1, len(paths) // 5), replace=False))
    for backend, chosen in (("native", paths), ("rtl", sample)):
        outcome = CommandLine(cli.capsys, "run").json("--backend", backend, *chosen)["total"]
        assert (outcome["files"], outcome["mismatches"]) == (len(chosen), 0)
