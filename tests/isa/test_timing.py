"""The law of cycles against all that was recorded, and against what another program found."""

import csv
from collections import Counter
from pathlib import Path

import pytest
import sptc
from sptc.isa.instructions import every_instruction, parse
from sptc.isa.timing import Resource, is_sequence, timing

FOLDER = Path(sptc.__file__).parent / "recordings" / "cycles"
WGMMA = "wgmma.mma_async.sp.sync.aligned.m64n{}k32.{}.f16.f16"


def rows(name: str) -> list[dict[str, str]]:
    lines = (FOLDER / name).read_text(encoding="utf-8").splitlines()
    return [*csv.DictReader(line for line in lines if not line.startswith("#"))]


@pytest.fixture(scope="module")
def alone() -> list[dict[str, str]]:
    """What was measured of instructions that nothing else ran beside."""
    return [row for row in rows("h200-2026-11-24.csv") if not row["beside"]]


def test_wgmma(alone: list[dict[str, str]]) -> None:
    """Within a hundredth of a cycle: every type, sparse and dense, A in either place, every swizzle, either major.

    A group that drains takes the latency, and an interval for each further one. Several warpgroups gain nothing; they
    start at different times, so that their intervals are known within 4 per cent.
    """
    compared, swizzles = Counter[str](), set()
    for row in alone:
        if not row["a_from"]:
            continue
        found = timing(parse(row["instruction"]), "sm_90", row["a_from"])
        assert found is not None
        group, cycles = int(row["group"]), float(row["cycles"])
        if row["warps"] in ("8", "12"):
            compared["warpgroups"] += 1
            assert cycles == pytest.approx(found.interval, rel=0.04), row
        elif (row["warps"], row["pending"]) == ("4", "1"):
            compared["intervals"] += 1
            swizzles.add((row["swizzle"], row["a_transposed"], row["b_transposed"]))
            assert cycles == pytest.approx(found.interval, abs=0.011), row
        elif (row["warps"], row["pending"]) == ("4", "0"):
            compared["groups"] += 1
            assert cycles * group == pytest.approx(found.latency + (group - 1) * found.interval, abs=0.02 * group), row
    assert compared["warpgroups"] > 300
    assert compared["intervals"] > 500
    assert compared["groups"] > 1000
    assert len(swizzles) == 16


def test_mma(alone: list[dict[str, str]]) -> None:
    """Intervals of eight warps, latencies of one; the same operands again make nothing faster."""
    compared = 0
    for row in alone:
        if not row["a_from"] and row["warps"] in ("1", "8"):
            found = timing(parse(row["instruction"]), "sm_90")
            assert found is not None
            expected = found.latency if row["warps"] == "1" else found.interval
            assert float(row["cycles"]) == pytest.approx(expected, abs=0.2), row
            compared += 1
    assert compared > 80


def test_another_program_found_the_same() -> None:
    """All 136 forms, recorded apart: each within a cycle, all but a few within a tenth."""
    texts = {(bool(i.sparse), i.a.name, i.n, i.d.name): i for i in every_instruction("wgmma") if i.a == i.b}
    differences = []
    for row in rows("wgmma-h200-2026-11-22.csv"):
        i = texts[row["sparse"] == "1", row["element"], int(row["n"]), row["accumulate"]]
        found = timing(i, "sm_90", row["a_from"])
        assert found is not None
        differences.append(abs(float(row["interval"]) - found.interval))
    assert len(differences) == 136
    assert max(differences) < 1
    assert sum(difference < 0.11 for difference in differences) >= 134


def test_what_decides() -> None:
    for text, a_from, interval, bound_by, rate in (
        (WGMMA.format(256, "f32"), "registers", 128, Resource.TENSOR_CORE, 512),
        (WGMMA.format(256, "f32"), "shared", 144, Resource.SHARED_MEMORY, 512 * 128 / 144),
        (WGMMA.format(16, "f32"), "registers", 18, Resource.REGISTER_FILE, 64 * 16 * 16 / 4 / 18),
        (WGMMA.format(16, "f16"), "registers", 16, Resource.REGISTER_FILE, 64 * 16 * 16 / 4 / 16),
        ("mma.sp.sync.aligned.m16n8k64.row.col.s32.s8.s8.s32", "registers", 8, Resource.REGISTER_FILE, 512),
    ):
        found = timing(parse(text), "sm_90", a_from)
        assert found is not None
        assert (found.interval, found.bound_by) == (interval, bound_by), text
        assert found.kept_mac_per_cycle == pytest.approx(rate), text


def test_sequences_take_what_was_measured() -> None:
    """Every instruction that is a sequence, within a quarter of a cycle of its own line."""
    seen = set()
    for row in rows("sequences-h100-2026-11-25.csv"):
        instruction = parse(row["instruction"])
        found = timing(instruction, "sm_90")
        assert found is not None
        assert (is_sequence(instruction, "sm_90"), found.bound_by) == (True, Resource.ISSUE)
        if row["warps"] in ("1", "16"):
            said = found.latency if row["warps"] == "1" else found.interval
            assert said == pytest.approx(float(row["cycles"]), abs=0.25)
            seen.add(instruction)
    of_warps = (i for i in every_instruction() if i.family == "mma" and "sm_90" in i.architectures)
    assert seen == {i for i in of_warps if is_sequence(i, "sm_90")}


def test_which_instructions_have_cycles() -> None:
    """All of sm_90; of other architectures nothing is known."""
    assert all(timing(i, "sm_90") for i in every_instruction() if "sm_90" in i.architectures)
    assert timing(parse("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"), "sm_80") is None
