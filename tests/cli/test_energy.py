"""``sptc energy`` prints energies as a table, JSON and CSV, and rejects options that do not fit each other."""

import csv
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from sptc.synth.energy.mapping import mapped_row
from sptc.tests.cli.command_line import CommandLine
from sptc.tests.synth.power_library import TEXT

pytest.importorskip("pyosys")
COMMAND = "energy"
SPARSE = "mma.sp.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"
DENSE = "mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32"


@pytest.fixture(scope="module", autouse=True)
def _mapped_once() -> Iterator[None]:
    """Map each datapath to gates only once per library, since most tests differ only in operands."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sptc.synth.energy.measure.mapped_row", cache(mapped_row))
        yield


@pytest.fixture
def words(cli: CommandLine) -> list[str]:
    Path("cells.lib").write_text(TEXT, encoding="utf-8")
    datapath = ["--formats", "s8", "--step-bytes", "16"]
    return ["--liberty", "cells.lib", *datapath, "--cycles", "200", "--operands", "zeros,normal"]


def actions(path: str, column: str) -> dict[tuple[str, str], float]:
    """Return the sum of one column of a CSV file for each pair of instruction and operands."""
    sums: dict[tuple[str, str], float] = {}
    for row in csv.DictReader(Path(path).read_text(encoding="utf-8").splitlines()):
        key = row["action"], row["operands"]
        sums[key] = sums.get(key, 0) + float(row[column])
    return sums


@pytest.mark.regression
def test_a_table_json_and_csv(words: list[str], cli: CommandLine) -> None:
    rows = cli.json(*words, SPARSE, DENSE, "--csv", "energy.csv")["measured"]
    assert [(row["instruction"], row["operands"]) for row in rows] == [*product((SPARSE, DENSE), ("zeros", "normal"))]
    assert all(row["total"] == pytest.approx(sum(row["stages"].values())) for row in rows)
    assert actions("energy.csv", "energy_pj")[SPARSE, "normal"] == pytest.approx(rows[1]["total"] / 1000, rel=1e-4)
    printed = cli.text(*words, SPARSE, DENSE)
    assert f"{rows[1]['total']:.0f}" in printed
    assert "leakage and wires are not; without glitches" in printed
    ratio = rows[1]["total"] / rows[3]["total"]
    assert f"s8, normal: energy per kept product {100 * (ratio - 1):.1f} % more than for the dense " in printed


def test_what_is_refused(words: list[str], cli: CommandLine) -> None:
    for more, message in (
        (["tcgen05.mma.sp"], "tcgen05"),
        (["mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"], "do not include f16"),
        ([DENSE.replace("s32.s8.s8.s32", "f32.f16.f16.f32"), "--formats", "f16"], "add --arch ARCH to compare results"),
        ([SPARSE, "--dense"], "is sparse, but the datapath does not support sparsity"),
        ([SPARSE, "--operands", "zeros,many"], "not 'many'"),
        ([SPARSE, "--plot", "no/such/folder/x.svg"], "no/such/folder"),
        ([SPARSE, "--a-tensor", "x"], "--a-tensor needs --a and --b"),
        ([SPARSE, "--top", "warp", "--rows", "3"], "rows"),
        ([SPARSE, "--top", "warp", "--glitches"], "--glitches cannot be combined with --top warp"),
        (["wgmma.mma_async.sp.m64n8k64.s32.s8.s8", "--top", "warp"], "--top warp executes only mma with 16 rows of A"),
        ([SPARSE, "--cycles", "9" * 18], "must be an integer of at most 1000000000, not"),
        ([SPARSE, "--step-bytes", "8"], "units that read 8 bytes of stored A per cycle, only for multiples of"),
        ([SPARSE, "--a", "a.npy"], "--a and --b must be given together"),
        ([SPARSE, "--a", "a.npy", "--b", "b.npy"], "--operands cannot be combined with --a and --b"),
    ):  # fmt: skip
        cli.refuses(*words, *more, message=message)
    Path("cells.lib").write_text(TEXT.replace("internal_power", "no_power"), encoding="utf-8")
    cli.refuses(*words, SPARSE, message="cells.lib has no energies")


@pytest.mark.regression
def test_matrices(words: list[str], cli: CommandLine) -> None:
    """M and N are not multiples of the tile size."""
    rng, words = np.random.default_rng(0), words[:-2]
    np.save("a\udcff.npy", rng.standard_normal((20, 96)))
    np.save("b.npy", rng.standard_normal((96, 11)))
    files = ["--a", "a\udcff.npy", "--b", "b.npy"]
    sparse, dense = cli.json(*words, SPARSE, DENSE, *files, "--prune", "--csv", "energy.csv")["measured"]
    assert sparse["operands"] == dense["operands"] == r"a\udcff.npy x b.npy"
    assert sparse["cycles"] > 0
    assert 0 < dense["total"] < sparse["total"]
    cli.refuses(*words, SPARSE, *files, message="not 2:4 sparse")
    cli.refuses(*words, SPARSE, "--prune", message="--prune needs --a and --b")


@pytest.mark.regression
def test_gate_equivalents_and_a_dense_datapath(words: list[str], cli: CommandLine) -> None:
    printed = cli.text(*words[2:], SPARSE, "--csv", "gates.csv")
    assert "switched gate equivalents (four transistors each) per kept" in printed
    zeros, normal = (float(line.split()[2]) for line in printed.splitlines() if line.startswith(SPARSE))
    assert 0 < zeros < normal
    assert actions("gates.csv", "gate_equivalents")[SPARSE, "normal"] == pytest.approx(normal, abs=0.06)
    totals = [cli.json(*words, DENSE, *more)["measured"][1]["total"] for more in ([], ["--dense"])]
    assert totals[1] < totals[0]


@pytest.mark.regression
def test_glitches_a_warp_and_a_unit_without_registers(words: list[str], cli: CommandLine) -> None:
    """A unit without registers takes no energy if all operands are zero, so no ratio to this energy is printed."""
    assert "f16, normal: energy per kept product" in cli.text("--preset", "tiny", *words[-4:])
    printed = cli.text(*words, SPARSE, "--glitches")
    assert "with glitches of gates that have one unit of delay" in printed
    assert f"{SPARSE}, normal: glitches add " in printed
    of_warp = ["--rows", "16", "--columns", "8", "--cuts", "multiply,round", "--top", "warp"]
    assert "warp registers" in cli.text(*words, DENSE, *of_warp)
    printed = cli.text(*words, SPARSE, DENSE, "--cuts", "none", "--what-if")
    assert "s8, normal: energy per kept product" in printed
    assert "s8, zeros: energy per kept product" not in printed


@pytest.mark.regression
def test_what_if_and_a_picture(words: list[str], cli: CommandLine) -> None:
    words[words.index("s8")] = "s8,u8"
    operands = ["--operands", "normal,75%", "--what-if"]
    printed = cli.text(*words, SPARSE, DENSE, *operands, "--plot", "energy.svg")
    held = "an operand that is multiplied by zero keeps its previous value"
    for text, count in (
        ("the clocks of registers that never change are gated: ", 4),
        ("the unit computes all of K for an output before the next output: ", 4),
        ("the unit supports only s8: ", 4),
        (f"{held}: ", 2),
    ):
        assert printed.count(text) == count, text
    normal, mostly_zeros = cli.json(*words, DENSE, *operands)["measured"]
    saved = [1 - row["what_if"][held] / row["total"] for row in (normal, mostly_zeros)]
    assert saved[1] > 0.05 > saved[0] >= 0
    drawn = Path("energy.svg").read_text(encoding="utf-8")
    for text in ("mma s8 to s32, sparse, 75%", "multiply", "zeros among A and B", "energy per kept product"):
        assert text in drawn
