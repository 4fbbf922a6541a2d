"""``sptc energy``: its table, its JSON, its CSV, and what it refuses."""

import csv
import json
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from sptc.cli import main
from sptc.tests.energy.power_library import TEXT

pytest.importorskip("pyosys")
SPARSE = "mma.sp.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"
DENSE = "mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32"


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    cells = tmp_path / "cells.lib"
    cells.write_text(TEXT, encoding="utf-8")
    return ["energy", "--liberty", str(cells), "--formats", "s8", "--cycles", "200", "--operands", "zeros,normal"]


def test_a_table_json_and_csv(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "energy.csv"
    assert main([*words, SPARSE, DENSE, "--json", "--csv", str(path)]) == 0
    found = json.loads(capsys.readouterr().out)
    rows = found["measured"]
    assert [(row["instruction"], row["operands"]) for row in rows] == [
        (instruction, distribution) for instruction in (SPARSE, DENSE) for distribution in ("zeros", "normal")
    ]
    assert all(row["total"] == pytest.approx(sum(row["stages"].values())) for row in rows)
    actions = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    of_first = [float(row["energy_pj"]) for row in actions if (row["action"], row["operands"]) == (SPARSE, "normal")]
    assert sum(of_first) == pytest.approx(rows[1]["total"] / 1000, rel=1e-4)
    assert main([*words, SPARSE, DENSE]) == 0
    printed = capsys.readouterr().out
    assert f"{rows[1]['total']:.0f}" in printed
    assert "without wires, without glitches" in printed
    ratio = rows[1]["total"] / rows[3]["total"]
    assert f"s8, normal: a kept product takes {100 * (ratio - 1):.1f} % more than the dense " in printed


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["tcgen05.mma.sp"], "tcgen05"),
        (["mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"], "do not include f16"),
        ([SPARSE, "--liberty", "missing.lib"], "missing.lib"),
        ([SPARSE, "--dense"], "is sparse, and the datapath does not select"),
        ([SPARSE, "--operands", "zeros,many"], "not 'many'"),
        ([SPARSE, "--csv", "no/such/folder/x.csv"], "no/such/folder"),
        ([SPARSE, "--operands", "101%"], "not '101%'"),
        ([SPARSE, "--plot", "no/such/folder/x.svg"], "no/such/folder"),
        (
            ["mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.kind::f8f6f4.f32.e4m3.e4m3.f32"],
            "sm_90 does not have",
        ),
        ([SPARSE, "--a-tensor", "x"], "--a-tensor is of a matrix: add --a and --b"),
        ([SPARSE, "--top", "warp", "--rows", "3"], "rows"),
        ([SPARSE, "--top", "warp", "--glitches"], "--glitches is of a unit; leave out --top warp"),
        (["wgmma.mma_async.sp.sync.aligned.m64n8k64.s32.s8.s8", "--top", "warp"], "is no mma of 16 rows"),
        ([SPARSE, "--step-bytes", "8"], "steps of 8 bytes are not simulated"),
        ([SPARSE, "--a", "a.npy"], "--a and --b are given together"),
        ([SPARSE, "--a", "a.npy", "--b", "b.npy"], "--operands does not go with --a and --b"),
    ],
)
def test_what_is_refused(more: list[str], message: str, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with suppress(SystemExit):
        assert main([*words, *more]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert message in said.err
    assert said.err.count("\n") == 1


def test_matrices(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Pruned for the sparse instruction, as they are for the dense one; M and N are not of whole tiles."""
    rng, words = np.random.default_rng(0), words[:-2]
    a, b = (str(tmp_path / f"{name}.npy") for name in "ab")
    np.save(a, rng.standard_normal((20, 96)))
    np.save(b, rng.standard_normal((96, 11)))
    assert main([*words, SPARSE, DENSE, "--json", "--a", a, "--b", b, "--prune"]) == 0
    sparse, dense = json.loads(capsys.readouterr().out)["measured"]
    assert sparse["operands"] == dense["operands"] == "a.npy x b.npy"
    assert sparse["cycles"] > 0
    assert 0 < dense["total"] < sparse["total"]
    assert main([*words, SPARSE, "--a", a, "--b", b]) == 2
    assert "not 2:4 sparse" in capsys.readouterr().err
    assert main([*words, SPARSE, "--prune"]) == 2
    assert "--prune is of a matrix" in capsys.readouterr().err


def test_gate_equivalents(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place, path = words.index("--liberty"), tmp_path / "gates.csv"
    del words[place : place + 2]
    assert main([*words, SPARSE, "--csv", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "gate equivalents (four transistors) that switch" in printed
    rows = [line.split() for line in printed.splitlines() if line.startswith(SPARSE)]
    zeros, normal = (float(words[2]) for words in rows)
    assert 0 < zeros < normal
    actions = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    of_normal = sum(float(row["gate_equivalents"]) for row in actions if row["operands"] == "normal")
    assert of_normal == pytest.approx(normal, abs=0.06)


def test_glitches(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, SPARSE, "--glitches"]) == 0
    printed = capsys.readouterr().out
    assert "with glitches as if every gate took a unit of time" in printed
    assert f"{SPARSE}, normal: glitches add " in printed


@pytest.mark.regression
def test_a_warp(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    words += ["--rows", "16", "--columns", "8", "--step-bytes", "16", "--cuts", "multiply,round"]
    assert main([*words, DENSE, "--top", "warp"]) == 0
    assert "warp registers" in capsys.readouterr().out


def test_what_if_and_a_picture(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "energy.svg"
    words[words.index("s8")] = "s8,u8"
    operands = ["--operands", "normal,75%", "--what-if"]
    assert main([*words, SPARSE, DENSE, *operands, "--plot", str(path)]) == 0
    printed = capsys.readouterr().out
    gated, order, formats = (
        "the clock of registers that never change is gated: ",
        "each output takes all of K before the next one: ",
        "it has no formats but s8: ",
    )
    assert [printed.count(words) for words in (gated, order, formats)] == [4, 4, 4]
    assert printed.count("where one operand of a product is zero, the other is held: ") == 2
    assert main([*words, DENSE, *operands, "--json"]) == 0
    normal, mostly_zeros = json.loads(capsys.readouterr().out)["measured"]
    saved = [
        1 - row["what_if"]["where one operand of a product is zero, the other is held"] / row["total"]
        for row in (normal, mostly_zeros)
    ]
    assert saved[1] > 0.05 > saved[0] >= 0
    drawn = path.read_text(encoding="utf-8")
    for said in ("mma s8 to s32, sparse, 75%", "multiply", "zeros among A and B", "energy of a kept product"):
        assert said in drawn


def test_a_datapath_that_does_not_select_takes_less(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    totals = []
    for more in ([], ["--dense"]):
        assert main([*words, DENSE, "--json", *more]) == 0
        totals.append(json.loads(capsys.readouterr().out)["measured"][1]["total"])
    assert totals[1] < totals[0]


def test_a_unit_without_registers(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """It takes nothing where all operands are zero, and nothing is compared with that."""
    assert main([*words, SPARSE, DENSE, "--cuts", "none", "--what-if"]) == 0
    printed = capsys.readouterr().out
    assert "s8, normal: a kept product takes" in printed
    assert "s8, zeros: a kept product takes" not in printed


def test_a_library_without_power(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cells.lib").write_text(TEXT.replace("internal_power", "no_power"), encoding="utf-8")
    assert main([*words, SPARSE]) == 2
    assert "cells.lib has no energies" in capsys.readouterr().err
