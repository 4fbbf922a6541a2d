"""The timing model agrees with recorded cycles of single instructions and of whole matrix products."""

import csv
import json
import re
from collections import Counter
from decimal import Decimal
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import sptc
from sptc.errors import InstructionError, OperandError
from sptc.isa.architectures import TARGETS
from sptc.isa.instructions import every_instruction, parse
from sptc.isa.kernel_timing import Tile, dense_twin, product_timing
from sptc.isa.rates import RATES, timing_on
from sptc.isa.tcgen05 import build_instruction, parse_opcode, parse_shaped
from sptc.isa.timing import Resource, Source, is_sequence, tcgen05_timing, timing

FOLDER = Path(sptc.__file__).parent / "recordings" / "cycles"
WGMMA = "wgmma.mma_async.sp.sync.aligned.m64n{}k32.{}.f16.f16"
TCGEN05 = "tcgen05.mma.{}.kind::f16 (m{}n256k{})"


def rows(name: str) -> list[dict[str, str]]:
    """Return the rows of a CSV file of recorded cycles, without comment lines."""
    lines = (FOLDER / name).read_text(encoding="utf-8").splitlines()
    return [*csv.DictReader(line for line in lines if not line.startswith("#"))]


@pytest.fixture(scope="module")
def alone() -> list[dict[str, str]]:
    """Measurements of instructions without concurrent work on other warps."""
    return [row for row in rows("h200-2026-11-24.csv") if not row["beside"]]


def test_wgmma(alone: list[dict[str, str]]) -> None:
    """The model of ``wgmma`` agrees with measurements, for all types, locations of A, swizzles and majors."""
    compared, swizzles = Counter[str](), set()
    for row in alone:
        if not row["a_from"]:
            continue
        law = timing(parse(row["instruction"]), "sm_90", row["a_from"])
        group, cycles = int(row["group"]), float(row["cycles"])
        if row["warps"] in ("8", "12"):
            compared["warpgroups"] += 1  # several warpgroups start at different times, and are not faster than one
            assert cycles == pytest.approx(law.interval, rel=0.04), row
        elif (row["warps"], row["pending"]) == ("4", "1"):
            compared["intervals"] += 1
            swizzles.add((row["swizzle"], row["a_transposed"], row["b_transposed"]))
            assert cycles == pytest.approx(law.interval, abs=0.011), row
        elif (row["warps"], row["pending"]) == ("4", "0"):
            compared["groups"] += 1
            assert cycles * group == pytest.approx(law.latency + (group - 1) * law.interval, abs=0.02 * group), row
    assert compared["warpgroups"] > 300
    assert compared["intervals"] > 500
    assert compared["groups"] > 1000
    assert len(swizzles) == 16


def test_mma(alone: list[dict[str, str]]) -> None:
    """Measured intervals of eight warps and latencies of one warp agree with the model, also if operands repeat."""
    compared = 0
    for row in alone:
        if not row["a_from"] and row["warps"] in ("1", "8"):
            law = timing(parse(row["instruction"]), "sm_90")
            expected = law.latency if row["warps"] == "1" else law.interval
            assert float(row["cycles"]) == pytest.approx(expected, abs=0.2), row
            compared += 1
    assert compared > 80


def test_measured_instructions_are_those_of_the_recording(alone: list[dict[str, str]]) -> None:
    recorded = {(row["instruction"], row["a_from"]) for row in alone}
    for i in every_instruction():
        if "sm_90" in i.architectures and not is_sequence(i, "sm_90"):
            for a_from in ("registers", "shared") if i.family == "wgmma" else ("",):
                is_measured = timing(i, "sm_90", a_from).source is Source.MEASURED
                assert is_measured == ((str(i), a_from) in recorded), (i, a_from)


def test_an_independent_measurement_agrees() -> None:
    """The model is within one cycle of 136 intervals from another program, and within 0.11 cycles of all but two."""
    texts = {(bool(i.sparse), i.a.name, i.n, i.d.name): i for i in every_instruction("wgmma") if i.a == i.b}
    differences = []
    for row in rows("wgmma-h200-2026-11-22.csv"):
        i = texts[row["sparse"] == "1", row["element"], int(row["n"]), row["accumulate"]]
        differences.append(abs(float(row["interval"]) - timing(i, "sm_90", row["a_from"]).interval))
    assert len(differences) == 136
    assert max(differences) < 1
    assert sum(difference < 0.11 for difference in differences) >= 134


def test_what_limits_the_interval() -> None:
    """A sparse pair with 64 rows per CTA uses half of the lanes. A dense pair uses all lanes, for both halves of N."""
    for text, a_from, interval, bound_by, rate in (
        (WGMMA.format(256, "f32"), "shared", 144, Resource.SHARED_MEMORY, 512 * 128 / 144),
        (WGMMA.format(16, "f32"), "registers", 18, Resource.REGISTER_FILE, 64 * 16 * 16 / 4 / 18),
        (WGMMA.format(16, "f16"), "registers", 16, Resource.REGISTER_FILE, 64 * 16 * 16 / 4 / 16),
        ("mma.sp.sync.aligned.m16n8k64.row.col.s32.s8.s8.s32", "registers", 8, Resource.REGISTER_FILE, 512),
        (TCGEN05.format("sp.cta_group::1", 128, "32.f32.f16.f16"), "tensor", 128, Resource.TENSOR_CORE, 1024),
        (TCGEN05.format("sp.cta_group::1", 128, "32.f32.f16.f16"), "shared", 160, Resource.SHARED_MEMORY, 819.2),
        (TCGEN05.format("sp.cta_group::2", 128, "32.f32.f16.f16"), "tensor", 128, Resource.TENSOR_CORE, 512),
        (TCGEN05.format("cta_group::2", 128, "16.f32.bf16.bf16"), "tensor", 64, Resource.TENSOR_CORE, 1024),
    ):
        law = tcgen05_timing(*parse_shaped(text), a_from) if "tcgen05" in text else timing(parse(text), "sm_90", a_from)
        assert (law.interval, law.bound_by) == (interval, bound_by), text
        assert law.kept_mac_per_cycle == pytest.approx(rate), text
        of_others = Source.MEASURED_ELSEWHERE if "bf16" in text else Source.MODELLED
        assert law.source is (of_others if "tcgen05" in text else Source.MEASURED), text


def test_sequences_take_the_measured_cycles() -> None:
    """For each instruction that the assembler replaces by a sequence, the model is within 0.25 cycles of an H100."""
    seen = set()
    for row in rows("sequences-h100-2026-11-25.csv"):
        instruction = parse(row["instruction"])
        law = timing(instruction, "sm_90")
        assert (is_sequence(instruction, "sm_90"), law.bound_by) == (True, Resource.ISSUE)
        if row["warps"] in ("1", "16"):
            predicted = law.latency if row["warps"] == "1" else law.interval
            assert predicted == pytest.approx(float(row["cycles"]), abs=0.25)
            seen.add(instruction)
    of_warps = (i for i in every_instruction() if i.family == "mma" and "sm_90" in i.architectures)
    assert seen == {i for i in of_warps if is_sequence(i, "sm_90")}


def test_which_instructions_have_cycles() -> None:
    """`timing` returns cycles for sm_90, and None for sm_80. `timing_on` returns cycles of mma on every target."""
    assert all(timing(i, "sm_90") for i in every_instruction() if "sm_90" in i.architectures)
    assert timing(parse("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"), "sm_80") is None
    for name, target in TARGETS.items():
        for i in every_instruction("mma"):
            cycles = timing_on(i, name)
            assert (cycles is not None) == (target.arch in i.architectures), (name, i)
            if cycles and cycles.source is Source.DATA_SHEET:
                assert cycles.interval * cycles.kept_mac_per_cycle == i.m * i.n * i.stored_k
                assert target.same_chip


def test_intervals_and_latencies_of_tcgen05() -> None:
    """Measured intervals are at most 0.06 cycles above the model, or 4.1 cycles for a CTA pair with N below 112."""
    differences, late = {1: [], 2: []}, []
    for row in rows("tcgen05-b200-2026-03-06.csv"):  # some measured integer instructions have an N that PTX lacks
        opcode = parse_opcode(row["instruction"])
        shape, d, a, b, *scale = row["shape_and_types"].split(".")
        m, n, k = (int(word) for word in shape[1:].replace("n", " ").replace("k", " ").split())
        i = build_instruction(opcode, m, n, d, a, b, scale_type=scale[0] if scale else None)
        assert i.k == k
        law = tcgen05_timing(opcode, i, row["a_from"])
        difference = float(row["interval"]) - law.interval
        differences[opcode.cta_group].append(difference)
        assert law.source is Source.MEASURED_ELSEWHERE
        assert -0.01 < difference < (0.06 if opcode.cta_group == 1 or i.n >= 112 else 4.1), row
        if float(row["latency"]) != law.latency:  # happens only with block scales, A in tensor memory and N = 256
            late.append((i.kind, i.m // opcode.cta_group, i.n, row["a_from"], float(row["latency"]) - law.latency))
    assert [len(of) for of in differences.values()] == [120, 144]
    assert sum(difference < 0.06 for difference in differences[2]) == 102
    assert {tuple(rest) for _, *rest in late} == {(128, 256, "tensor", 2.0)}
    assert {kind for kind, *_ in late} == {"mxf8f6f4", "mxf4"}


SPARSE = {
    "f16": "wgmma.mma_async.sp.sync.aligned.m64n256k32.f32.f16.f16",
    "bf16": "wgmma.mma_async.sp.sync.aligned.m64n256k32.f32.bf16.bf16",
    "e4m3": "wgmma.mma_async.sp.sync.aligned.m64n256k64.f32.e4m3.e4m3",
    "s8": "wgmma.mma_async.sp.sync.aligned.m64n256k64.s32.s8.s8",
}
RESULT_BYTES = {"f16": 2, "bf16": 2, "e4m3": 2, "s8": 4}
NAME = re.compile(r"(cuBLAS|cuSPARSELt) (\w+) (\d+)(?:x(\d+)x(\d+))? (zeros|normal)")


def measured_products() -> dict[tuple[str, bool, tuple[int, int, int], str], float]:
    """Return measured cycles of products by type, sparsity, shape and operands. Dense s8 without wgmma is left out."""
    results = {}
    for path in ("libraries-h200-2026-11-24.json", "products-h200-2026-11-25.json"):
        values = {row["name"]: row["value"] for row in json.loads((FOLDER / path).read_text(encoding="utf-8"))}
        for name, milliseconds in values.items():
            if match := NAME.fullmatch(name):
                library, element, m, n, k, operands = match.groups()
                if (library, element) != ("cuBLAS", "s8"):
                    cycles = milliseconds * values[f"{name}, clock"] * 1e3
                    results[element, library == "cuSPARSELt", (int(m), int(n or m), int(k or m)), operands] = cycles
    return results


def estimated(element: str, sparse: bool, shape: tuple[int, int, int]) -> float:
    instruction = parse(SPARSE[element])
    of = instruction if sparse else dense_twin(instruction)
    return product_timing(of, shape, result_bytes=RESULT_BYTES[element]).cycles


def test_the_estimate_of_a_product() -> None:
    """Estimated cycles have a mean error below 1/8 for large products, and errors below 1/4 with one tile per SM."""
    ratios: dict[bool, list[float]] = {True: [], False: []}
    for (element, sparse, shape, _), cycles in measured_products().items():
        if min(shape[:2]) >= 4096 or shape[:2] in ((1536, 2816), (2816, 1536)):
            ratios[min(shape[:2]) >= 4096].append(estimated(element, sparse, shape) / cycles)
    large, of_a_wave = ratios[True], ratios[False]
    assert len(large) > 50
    assert all(0.64 < ratio < 1.25 for ratio in large)
    assert np.mean(np.abs(np.log(large))) < 1 / 8
    assert len(of_a_wave) == 84
    assert all(0.75 < ratio < 1.25 for ratio in of_a_wave)
    assert np.mean([0.875 < ratio < 1.125 for ratio in of_a_wave]) > 0.6


def test_what_sparsity_gains() -> None:
    """Sparsity speeds up a whole product less than an instruction, since loads also use the shared-memory port."""
    cycles = measured_products()
    for element, shape in product(("f16", "bf16", "e4m3"), ((4096,) * 3, (8192,) * 3)):
        gain = estimated(element, False, shape) / estimated(element, True, shape)
        assert 1.3 < gain < 16 / 9
        for operands in ("zeros", "normal"):
            result = cycles[element, False, shape, operands] / cycles[element, True, shape, operands]
            assert gain == pytest.approx(result, rel=0.14), (element, shape, operands)


def test_parts_of_a_product_and_products_that_are_refused() -> None:
    instruction = parse(SPARSE["f16"])
    one = product_timing(instruction, (1536, 2816, 3200))
    assert (one.waves, one.bound_by) == (1, "shared memory")
    # Cycles per 32 elements along K: two instructions of 144 cycles each, and loads of A, its metadata and B at 300
    # bytes per cycle.
    assert one.multiplying == round(3200 // 32 * (2 * 144 + (128 * (32 + 4) + 256 * 32 * 2) / 300))
    assert product_timing(instruction, (1536, 2817, 3200)).waves == 2
    dense = product_timing(dense_twin(instruction), (1536, 2816, 3200))
    assert (dense.bound_by, dense.multiplying) == ("tensor core", 3200 // 16 * 256)
    assert one.cycles - one.multiplying - one.storing == dense.cycles - dense.multiplying - dense.storing
    assert product_timing(instruction, (1536, 2816, 3200), Tile(64, 512)).multiplying >= 3200 // 32 * 2 * 144
    with pytest.raises(OperandError, match="multiple of 64 rows"):
        Tile(96, 256)
    with pytest.raises(InstructionError, match="wgmma on sm_90"):
        product_timing(parse("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"), (64, 64, 64))


#: Dense tera-operations per second in white papers: architecture, number of tensor cores, clock in GHz, rates by key.
PUBLISHED = [
    ("sm_80", 432, "1.41", {"32": "156", "16": "312", "16 f16": "312", "integer 8": "624"}),
    ("sm_86", 328, "1.695", {"32": "35.6", "16": "71", "16 f16": "142", "integer 4": "569"}),
    ("sm_89", 512, "2.52", {"32": "82.6", "16": "165.2", "16 f16": "330.3", "8": "330.3", "8 f16": "660.6"}),
    ("sm_89", 512, "2.52", {"integer 8": "660.6", "integer 4": "1321.2"}),
    ("sm_120", 680, "2.407", {"32": "104.8", "16": "209.5", "16 f16": "419", "8": "419", "8 f16": "838", "4": "1676"}),
    ("sm_120", 680, "2.407", {"integer 8": "838"}),
]


def test_rates_are_the_published_ones() -> None:
    seen = set()
    for arch, cores, clock, figures in PUBLISHED:
        for key, figure in figures.items():
            digits = len(figure.partition(".")[2])
            rate = Decimal(2 * cores * RATES[arch].macs[key]) * Decimal(clock) / 1000
            assert round(rate, digits) == Decimal(figure), (arch, key)
            seen.add((arch, key))
    # Two rates are missing in PUBLISHED, because the white papers print them as twice or half of another rate.
    both = {(arch, key) for arch, rates in RATES.items() for key in rates.macs}
    assert both - seen == {("sm_86", "integer 8"), ("sm_80", "integer 4")}
    assert all(RATES[arch].macs["integer 4"] == 2 * RATES[arch].macs["integer 8"] for arch in ("sm_80", "sm_86"))
