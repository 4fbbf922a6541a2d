"""The recorded cycles: two programs found the same, and one law of three resources says what."""

import csv
from pathlib import Path

import pytest
import sptc
from sptc.isa.instructions import Instruction, parse

FOLDER = Path(sptc.__file__).parent / "recordings" / "cycles"
#: A warpgroup alone, B and A as most kernels have them, groups of eight that overlap.
PLAIN = {
    "a_transposed": "0",
    "b_transposed": "0",
    "swizzle": "128B",
    "warps": "4",
    "group": "8",
    "pending": "1",
    "beside": "",
}


def rows(name: str) -> list[dict[str, str]]:
    lines = (FOLDER / name).read_text(encoding="utf-8").splitlines()
    return [*csv.DictReader(line for line in lines if not line.startswith("#"))]


@pytest.fixture(scope="module")
def plain() -> dict[tuple[Instruction, str], float]:
    """Intervals of single warpgroups, by instruction and where A is."""
    found = [row for row in rows("h200-2026-11-24.csv") if PLAIN.items() <= row.items()]
    return {(parse(row["instruction"]), row["a_from"]): float(row["cycles"]) for row in found}


def law(i: Instruction, a_from: str) -> float:
    """Return the largest of what tensor cores, shared memory and registers take."""
    read = i.n * i.k * i.container_bits // 8 + (2048 if a_from == "shared" else 0)
    if a_from == "shared":
        return max(i.n / 2, read / 128)
    of_registers = 13 if not i.sparse else 16 if i.n == 8 or i.d.name == "f16" else 18
    return max(i.n / 2, read / 128, of_registers)


def test_the_law_of_intervals(plain: dict[tuple[Instruction, str], float]) -> None:
    """Of every type, sparse and dense, A in either place, within a hundredth of a cycle."""
    assert len(plain) > 250
    assert {key: cycles for key, cycles in plain.items() if abs(cycles - law(*key)) > 0.01} == {}


def test_another_program_found_the_same(plain: dict[tuple[Instruction, str], float]) -> None:
    compared = 0
    by_kind = {(bool(i.sparse), i.a.name, i.n, a_from, i.d.name): cycles for (i, a_from), cycles in plain.items()}
    for row in rows("wgmma-h200-2026-11-22.csv"):
        kind = (row["sparse"] == "1", row["element"], int(row["n"]), row["a_from"], row["accumulate"])
        if kind in by_kind:
            compared += 1
            assert float(row["interval"]) == pytest.approx(by_kind[kind], abs=0.11), kind
    assert compared > 120


def test_intervals_and_latencies_of_mma() -> None:
    """By what is stored of a row of A, 16 bytes or 32; the same operands again make nothing faster."""
    compared = 0
    for row in rows("h200-2026-11-24.csv"):
        i = parse(row["instruction"])
        if i.family != "mma" or i.m != 16 or row["beside"]:
            continue
        short = i.stored_k * i.container_bits == 128
        wanted = {"1": 17 if short else 24, "8": (6 if short else 8) if i.sparse else 4 if short else 6}
        if row["warps"] in wanted:
            compared += 1
            assert float(row["cycles"]) == pytest.approx(wanted[row["warps"]], abs=0.2), row
    assert compared > 80


def test_neither_swizzle_nor_transposition_matters() -> None:
    """Canonical layouts meet no conflict of banks."""
    found: dict[tuple[str, str], set[float]] = {}
    for row in rows("h200-2026-11-24.csv"):
        same = {name: PLAIN[name] for name in ("warps", "group", "pending", "beside")}
        if same.items() <= row.items() and row["a_from"]:
            found.setdefault((row["instruction"], row["a_from"]), set()).add(float(row["cycles"]))
    varied = [cycles for cycles in found.values() if max(cycles) - min(cycles) > 0.01]
    assert varied == []
    assert len(found) > 250
