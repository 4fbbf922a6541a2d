"""Counting cycles on a stand-in for a GPU: what is run, what is made of the counts, and the table."""

import csv
from collections.abc import Callable
from pathlib import Path

import pytest
import sptc
from sptc.cli import main
from sptc.gpu.cycles import arrangements, beside_each_other, chosen, measure
from sptc.gpu.loops import Loop
from sptc.isa.instructions import parse
from sptc.isa.timing import is_sequence

SPARSE = parse("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32")
WGMMA = parse("wgmma.mma_async.sp.sync.aligned.m64n64k32.f32.f16.f16")


def test_cycles_of_a_tensor_core(machine: Callable) -> None:
    """What a run takes beside its rounds is not in it; warps that share a tensor core take turns."""
    machine()
    for warps, cycles in ((1, 24), (4, 24), (8, 12), (16, 6)):
        (found,) = measure(Loop(SPARSE, warps, group=32))
        assert (found.cycles, found.beside) == (cycles, None)


def test_loops_beside_each_other(machine: Callable) -> None:
    """Each by its own rounds; one that has no turn takes for ever."""
    cupy = machine()
    loop, other = Loop(WGMMA, 4), Loop(SPARSE, 8, accumulators=8, group=32)
    first, second = measure(loop, other)
    assert (first.loop, first.beside, first.cycles) == (loop, other, 24)
    assert (second.loop, second.beside, second.cycles) == (other, loop, 12)
    cupy.turns = 0
    assert measure(loop, other)[1].cycles == float("inf")


def test_a_driver_that_refuses(machine: Callable) -> None:
    machine().refuses = "CUDA_ERROR_INVALID_PTX"
    with pytest.raises(sptc.BackendError, match=r"^the GPU, NVIDIA H200, does not run mma\.sp.*\(CUDA_ERROR_INVALID"):
        measure(Loop(SPARSE, 4))


def test_what_is_measured() -> None:
    """Every kind of instruction that the hardware has, and of each every way to run it."""
    found = [*chosen("sm_90")]
    kinds = {(i.family, i.sparse, i.a.name, i.k) for i in found}
    assert {("wgmma", "sp", "s8", 64), ("mma", "", "tf32", 4), ("mma", "sp::ordered_metadata", "bf16", 16)} <= kinds
    sequences = [i for i in found if is_sequence(i, "sm_90")]
    assert len(sequences) == 80
    assert all(loop.fresh for i in sequences for loop in arrangements(i, "sm_90"))
    assert not any(loop.fresh for loop in arrangements(SPARSE, "sm_90"))
    ways = [*arrangements(WGMMA, "sm_90")]
    assert len(set(ways)) == len(ways)
    assert {(way.a_from, way.group, way.pending, way.warps) for way in ways} == {
        (a_from, *rest)
        for a_from in ("registers", "shared")
        for rest in ((8, 1, 4), (8, 0, 4), (4, 0, 4), (2, 0, 4), (1, 0, 4), (8, 1, 8), (8, 1, 12))
    }
    assert sum(way.group == 8 and way.pending == 1 and way.warps == 4 for way in ways) == 4 * 2 + 4 * 4
    assert {(loop.instruction.n, other.instruction.sparse) for loop, other in beside_each_other(found)} == {
        (n, sparse) for n in (64, 128, 192, 256) for sparse in ("", "sp")
    }


def test_the_table(machine: Callable, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    machine()
    path = tmp_path / "cycles.csv"
    assert main(["gpu", "cycles", "--instruction", str(SPARSE), str(WGMMA), "-o", str(path)]) == 0
    about, *lines = path.read_text(encoding="utf-8").splitlines()
    assert about.startswith("# NVIDIA H200, CUDA 13.0, driver 580.159.04, 20")
    rows = [*csv.DictReader(lines)]
    assert len(rows) == sum(len([*arrangements(i, "sm_90")]) for i in (SPARSE, WGMMA))
    plain = {"a_from": "", "swizzle": "", "a_transposed": "0", "b_transposed": "0", "beside": "", "beside_warps": ""}
    counts = {"warps": "1", "accumulators": "1", "operands": "1", "group": "32", "pending": "1", "cycles": "24.000"}
    assert rows[0] == {"instruction": str(SPARSE), **plain, **counts}
    assert capsys.readouterr().out == f"{len(rows)} measurements of 2 instructions in {path}\n"


def test_an_instruction_that_the_gpu_lacks(
    machine: Callable, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine({"name": b"NVIDIA A100", "major": 8, "minor": 0})
    assert main(["gpu", "cycles", "--instruction", str(WGMMA), "-o", str(tmp_path / "cycles.csv")]) == 2
    assert "sm_80" in capsys.readouterr().err
    assert not (tmp_path / "cycles.csv").exists()
