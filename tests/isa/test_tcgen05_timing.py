"""The law of ``tcgen05`` against what others measured on a B200, and what it says where nobody did."""

import csv
from pathlib import Path

import pytest
import sptc
from sptc.isa.instructions import Instruction
from sptc.isa.tcgen05 import Opcode, build_instruction, parse_opcode, parse_shaped
from sptc.isa.timing import Resource, Source, tcgen05_timing

PATH = Path(sptc.__file__).parent / "recordings" / "cycles" / "tcgen05-b200-2026-03-06.csv"


def measured() -> list[tuple[Opcode, Instruction, dict[str, str]]]:
    """Return every row with its instruction; some of integers are of an N that PTX does not list."""
    lines = PATH.read_text(encoding="utf-8").splitlines()
    found = []
    for row in csv.DictReader(line for line in lines if not line.startswith("#")):
        opcode = parse_opcode(row["instruction"])
        shape, d, a, b, *scale = row["shape_and_types"].split(".")
        m, n, k = (int(word) for word in shape[1:].replace("n", " ").replace("k", " ").split())
        instruction = build_instruction(opcode, m, n, d, a, b, scale_type=scale[0] if scale else None)
        assert instruction.k == k
        found.append((opcode, instruction, row))
    return found


def test_intervals() -> None:
    """One CTA: all within 0.06 of a cycle; a pair: none is shorter, those of N less than 112 up to 4.1 longer."""
    differences = {1: [], 2: []}
    for opcode, i, row in measured():
        found = tcgen05_timing(opcode, i, row["a_from"])
        difference = float(row["interval"]) - found.interval
        differences[opcode.cta_group].append(difference)
        assert found.source is Source.MEASURED_ELSEWHERE
        assert -0.01 < difference < (0.06 if opcode.cta_group == 1 or i.n >= 112 else 4.1), row
    assert [len(of) for of in differences.values()] == [120, 144]
    assert sum(difference < 0.06 for difference in differences[2]) == 102


def test_latencies() -> None:
    """All to the cycle, but for scaled ones with A in tensor memory and N = 256, two cycles later."""
    late = []
    for opcode, i, row in measured():
        found = tcgen05_timing(opcode, i, row["a_from"])
        if float(row["latency"]) != found.latency:
            late.append((i.kind, i.m // opcode.cta_group, i.n, row["a_from"], float(row["latency"]) - found.latency))
    assert len(late) == 4
    assert {tuple(rest) for _, *rest in late} == {(128, 256, "tensor", 2.0)}
    assert {kind for kind, *_ in late} == {"mxf8f6f4", "mxf4"}


def test_what_decides() -> None:
    """A sparse pair of 64 rows each has half of the lanes, a dense one both halves of N in all of them."""
    for text, a_from, interval, bound_by, rate in (
        ("sp.cta_group::1.kind::f16 (m128n256k32.f32.f16.f16)", "tensor", 128, Resource.TENSOR_CORE, 1024),
        ("sp.cta_group::1.kind::f16 (m128n256k32.f32.f16.f16)", "shared", 160, Resource.SHARED_MEMORY, 819.2),
        ("sp.cta_group::2.kind::f16 (m256n256k32.f32.f16.f16)", "shared", 128, Resource.TENSOR_CORE, 1024),
        ("sp.cta_group::2.kind::f16 (m128n256k32.f32.f16.f16)", "tensor", 128, Resource.TENSOR_CORE, 512),
        ("cta_group::2.kind::f16 (m128n256k16.f32.bf16.bf16)", "tensor", 64, Resource.TENSOR_CORE, 1024),
        ("cta_group::1.kind::tf32 (m128n256k8.f32.tf32.tf32)", "shared", 128, Resource.TENSOR_CORE, 512),
    ):
        opcode, instruction = parse_shaped(f"tcgen05.mma.{text}")
        found = tcgen05_timing(opcode, instruction, a_from)
        assert (found.interval, found.bound_by) == (interval, bound_by), text
        assert found.kept_mac_per_cycle == pytest.approx(rate), text
        is_measured = not opcode.sparse and instruction.a.name == "bf16"
        assert found.source is (Source.MEASURED_ELSEWHERE if is_measured else Source.MODELLED), text
