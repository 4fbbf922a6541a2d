"""Coverage of steps: hand-made steps reach the bins they should and no others, and follow the golden model."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sptc.golden.decode import WIDE, decode
from sptc.golden.matrix import multiply
from sptc.golden.registers import CONTAINERS
from sptc.isa.formats import FORMATS, Format
from sptc.isa.instructions import Instruction, every_instruction, parse
from sptc.isa.numerics import Method, numerics
from sptc.isa.operands import MatrixOperands
from sptc.rtl.config import PRESETS, CoreConfig
from sptc.rtl.step import control_layout, row_result_layout
from sptc.sim.benches.random_operands import distributions, random_codes
from sptc.sim.coverage.alignment import AlignmentCoverage
from sptc.sim.coverage.arithmetic import evaluate
from sptc.sim.coverage.operands import StepReader
from sptc.sim.coverage.operations import operations_of
from sptc.sim.coverage.specials import CASES
from sptc.sim.coverage.steps import StepCoverage
from sptc.sim.engine.steps import step_words, steps_of

Random = np.random.Generator
INF, NAN = float("inf"), float("nan")
ARCHITECTURES = {"tiny": "sm_80", "ampere": "sm_80", "ada": "sm_89", "hopper": "sm_90", "rtx-blackwell": "sm_120"}
F16 = "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"
HALF = "mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16"
BF16 = "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32"
SPARSE = "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
TF32 = "mma.sp.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"
FP8 = "wgmma.mma_async.sp.sync.aligned.m64n8k64.f32.e5m2.e5m2"
MXF8 = "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e4m3.f32.ue8m0"
NVF4 = "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3"
PRESET_OF = {F16: "tiny", HALF: "tiny", SPARSE: "tiny", BF16: "ampere", TF32: "ampere", FP8: "hopper",
             MXF8: "rtx-blackwell", NVF4: "rtx-blackwell"}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One output of one instruction: what is not given is zero; a number is a value, a string a code in hexadecimal."""

    text: str
    a: dict[int, Any] = field(default_factory=dict)
    b: dict[int, Any] = field(default_factory=dict)
    c: Any = 0.0
    nibbles: dict[int, int] = field(default_factory=dict)
    scale_a: dict[int, int] = field(default_factory=dict)
    scale_b: dict[int, int] = field(default_factory=dict)


def code_of(fmt: Format, value: float | str) -> int:
    """Return the code of a number that the format has, in its container."""
    if isinstance(value, str):
        return int(value, 16)
    if fmt.name == "f16":
        return int(np.float16(value).view(np.uint16))
    if fmt.exponent_bits == 8:
        return int(np.float32(value).view(np.uint32)) >> 32 - fmt.container_bits
    codes = np.arange(1 << fmt.bits)
    (found,) = np.nonzero(decode(codes, fmt, WIDE).values == value)
    return int(found[0])


def words_of(
    config: CoreConfig, i: Instruction, arch: str, operands: tuple[NDArray, ...]
) -> tuple[NDArray[np.uint32], NDArray[np.uint64]]:
    """Return the step words of an instruction of one step, and its results by the golden model and the rule."""
    _, _, c, nibbles, _, _ = operands
    given = MatrixOperands(*operands)
    d = multiply(i, arch, given)
    (step,) = steps_of(config, i, given)
    words = step_words(config)
    step[..., words.c] = c[..., None]
    results = d.astype(np.uint64)
    if i.rule:
        wide = i.container_bits >= 16
        metadata = np.zeros((*nibbles.shape[:2], config.chunks // (1 + wide)), np.int64)
        metadata[..., : i.chunks] = nibbles
        flags = ~np.isin(metadata, [*i.rule.legal])
        shifted = flags.astype(np.uint64) << np.arange(metadata.shape[-1], dtype=np.uint64)
        results |= (shifted.sum(axis=-1) << np.uint64(row_result_layout(config)["illegal"].offset))[..., None]
    return step.reshape(-1, words.total), results.reshape(-1)


def sample(case: Case, coverage: StepCoverage | None = None) -> StepCoverage:
    i = parse(case.text)
    config = PRESETS[PRESET_OF[case.text]]
    coverage = coverage or StepCoverage(config)
    container = CONTAINERS[i.container_bits]
    a, b = np.zeros((1, 1, i.stored_k), container), np.zeros((1, i.k, 1), container)
    for slot, value in case.a.items():
        a[0, 0, slot] = code_of(i.a, value)
    for row, value in case.b.items():
        b[0, row, 0] = code_of(i.b, value)
    c = np.full((1, 1, 1), code_of(i.c, case.c), CONTAINERS[i.c.bits])
    nibbles = np.full((1, 1, i.chunks), 0b0100, np.uint8)
    for chunk, nibble in case.nibbles.items():
        nibbles[0, 0, chunk] = nibble
    scales = []
    for given in (case.scale_a, case.scale_b):
        one = i.scale_format.bias << i.scale_format.fraction_bits if i.scale_format else 0
        scales.append(np.full((1, 1, i.scale_size or 0), one, np.uint8))
        for place, scale in given.items():
            scales[-1][0, 0, place] = scale
    arch = ARCHITECTURES[config.name]
    coverage.sample(*words_of(config, i, arch, (a, b, c, nibbles, *scales)))
    results = coverage.coverage[config.name, "results"]
    assert (results.hits.sum(), results.contradictions) == (1, 0)
    return coverage


def reached(coverage: StepCoverage, group: str) -> set[str]:
    found = coverage.coverage[coverage.config.name, group]
    assert not found.contradictions, found.contradicted()
    return {*found.names(found.hits > 0)}


ALL_NEGATIVE_ZERO = dict.fromkeys(range(8), -0.0)
TINY_A = {0: 2.0**-24}
#: Cases of `special cases`, each with everything it reaches there.
SPECIALS: list[tuple[Case, set[str]]] = [
    (Case(F16, {0: 1.0}, {0: 1.0}), set()),
    (Case(F16, {0: NAN}, {0: 1.0}), {"NaN in A alone"}),
    (Case(F16, {0: 1.0}, {0: NAN}), {"NaN in B alone"}),
    (Case(F16, c=NAN), {"NaN in C alone"}),
    (Case(F16, {0: NAN}, {0: 1.0}, NAN), set()),
    (Case(F16, {0: NAN, 1: INF}, {0: 1.0}), set()),
    (Case(F16, {0: INF}), {"Inf in A times zero alone"}),
    (Case(F16, {}, {0: INF}), {"zero in A times Inf alone"}),
    (Case(F16, {0: INF, 1: INF}, {0: 1.0, 1: -1.0}), {"Inf - Inf between products alone"}),
    (Case(F16, {0: INF, 1: INF}, {0: 1.0, 1: -1.0}, INF), set()),
    (Case(F16, {0: INF}, {0: 1.0}, -INF), {"Inf of a product and -Inf in C alone"}),
    (Case(F16, {0: INF}, {0: -1.0}, INF), {"-Inf of a product and Inf in C alone"}),
    (Case(F16, {0: INF}, {0: 1.0}), {"Inf of a product"}),
    (Case(F16, {0: -INF}, {0: 1.0}), {"-Inf of a product"}),
    (Case(F16, c=INF), {"Inf in C"}),
    (Case(F16, c=-INF), {"-Inf in C"}),
    (Case(SPARSE, {0: 1.0}, {0: 1.0, 2: NAN}), {"NaN in an unselected B"}),
    (Case(SPARSE, {0: 1.0}, {0: 1.0, 3: INF}), {"Inf in an unselected B"}),
    (Case(SPARSE, {0: 1.0}, {0: NAN, 2: 1.0}, nibbles={0: 0b1110}), {"NaN in an unselected B"}),
    (Case(TF32, {0: 1.0}, {0: 1.0, 1: NAN}), {"NaN in an unselected B"}),
    (Case(TF32, {0: 1.0}, {0: "7f810000", 1: 1.0}, nibbles={0: 0b1100}), set()),  # its low half was selected
    (Case(HALF, {0: 65504.0}, {0: 1.0}, 65504.0), {"Inf from a finite sum"}),
    (Case(HALF, {0: -65504.0}, {0: 1.0}, -65504.0), {"-Inf from a finite sum"}),
    (Case(F16, {}, {0: 1.0}, 1.0), {"zero in A times a number"}),
    (Case(F16, TINY_A, {0: 1.0}), {"subnormal A", "product below 1 sets E"}),
    (Case(F16, {0: 1.0}, TINY_A), {"subnormal B", "product below 1 sets E"}),
    (Case(F16, TINY_A, {0: 1.0}, 1.0), {"subnormal A"}),
    (Case(F16, TINY_A, {}, 1.0), {"zero in B times a number"}),
    (Case(F16, c=2.0**-130), {"subnormal C", "subnormal result"}),
    (Case(F16, c=-(2.0**-130)), {"subnormal C", "negative subnormal result"}),
    (Case(F16, c=2.0**-149), {"subnormal C", "subnormal result", "smallest subnormal result"}),
    (Case(F16, c=-(2.0**-149)), {"subnormal C", "negative subnormal result", "negative smallest subnormal result"}),
    (Case(FP8, c=2.0**-139), {"subnormal C", "subnormal result", "smallest subnormal result"}),
    (Case(FP8, c=2.0**-140), {"subnormal C", "truncated positive C", "zero: every term below the grid"}),
    (Case(HALF, c="8001"), {"subnormal C", "negative subnormal result", "negative smallest subnormal result"}),
    (Case(F16, {0: 1.5}, {0: 1.5}), {"product of 2 and more sets E"}),
    (Case(F16, {0: 1.5}, {0: 1.5}, 1024.0), set()),
    (Case(F16, {0: 1 + 2.0**-10}, {0: 1.0}, 2.0**20), {"truncated positive term"}),
    (Case(F16, {0: 1 + 2.0**-10}, {0: -1.0}, 2.0**20), {"truncated negative term"}),
    (Case(F16, {0: 1024.0}, {0: 1024.0}, 1 + 2.0**-20), {"truncated positive C"}),
    (Case(F16, {0: 1024.0}, {0: 1024.0}, -1 - 2.0**-20), {"truncated negative C"}),
    (Case(F16), {"zero: every term zero"}),
    (Case(F16, c=-0.0), {"zero: every term zero"}),
    (Case(F16, ALL_NEGATIVE_ZERO, c=-0.0), {"zero: every term zero", "zero: every term -0"}),
    (Case(F16, ALL_NEGATIVE_ZERO), {"zero: every term zero"}),
    (Case(F16, {0: 1.0}, {0: 1.0}, -1.0), {"zero: terms cancel"}),
    (
        Case(F16, {0: 1.0, 1: -1.0}, {0: 1.0, 1: 1.0}, 2.0**-40),
        {"zero: terms cancel, truncation dropped the rest", "truncated positive C"},
    ),
    (
        Case(HALF, TINY_A, TINY_A),
        {"subnormal A", "subnormal B", "truncated positive term", "zero: every term below the grid"},
    ),
    (Case(HALF, {0: 2.0**-13}, {0: 2.0**-13}), {"zero: positive sum rounded"}),
    (Case(HALF, {0: 2.0**-13}, {0: -(2.0**-13)}), {"zero: negative sum rounded"}),
]


@pytest.mark.parametrize(("case", "wanted"), SPECIALS, ids=lambda value: None)
def test_special_cases(case: Case, wanted: set[str]) -> None:
    coverage = sample(case)
    assert {name.partition(", ")[2] for name in reached(coverage, "special cases")} == wanted


def test_every_special_case_has_a_step() -> None:
    assert {case for _, wanted in SPECIALS for case in wanted} == {*CASES}


TOP16, TOP32 = 65504.0, float(FORMATS["f32"].maximum)
ROUNDINGS = [
    (Case(HALF, {0: 1.0}, {0: 1.0}), {"exact, normal"}),
    (Case(HALF, {0: 2.0**-6}, {0: 2.0**-6}, 1.0), {"below a tie, normal"}),
    (Case(HALF, {0: 2.0**-6}, {0: 2.0**-5}, 1.0), {"tie, down to even, normal"}),
    (Case(HALF, {0: 2.0**-6}, {0: 2.0**-5}, 1 + 2.0**-10), {"tie, up to even, normal"}),
    (Case(HALF, {0: 1.5 * 2.0**-6}, {0: 2.0**-5}, 1.0), {"above a tie, normal"}),
    (
        Case(HALF, {0: 2.0**-6}, {0: 2.0**-5}, 2 - 2.0**-10),
        {"tie, up to even, normal", "carry from the fraction into the exponent"},
    ),
    (
        Case(HALF, {0: 2.0**-13}, {0: 2.0**-12}, 2.0**-14 - 2.0**-24),
        {"tie, up to even, subnormal", "subnormal to normal by carry"},
    ),
    (Case(HALF, {0: 2.0**-13}, {0: 2.0**-12}, 2.0**-23), {"tie, down to even, subnormal"}),
    (Case(HALF, {0: 2.0**-13}, {0: 2.0**-12}), {"tie, down to even, subnormal", "rounded to zero"}),
    (Case(HALF, {0: 2.0**-13}, {0: 2.0**-13}), {"below a tie, subnormal", "rounded to zero"}),
    (Case(HALF, {0: 2.0**-13}, {0: 1.5 * 2.0**-12}), {"above a tie, subnormal"}),
    (Case(HALF, {0: 2.0**-12}, {0: 2.0**-12}), {"exact, subnormal"}),
    (Case(HALF, {0: 8.0}, {0: 1.0}, TOP16), {"below a tie, normal", "down to the largest finite number"}),
    (Case(HALF, {0: 16.0}, {0: 1.0}, TOP16), {"tie, up to even, normal", "overflow to Inf by rounding"}),
    (Case(HALF, {0: 32.0}, {0: 1.0}, TOP16), {"overflow to Inf from 2**16 on"}),
    (Case(BF16, {0: 1.0}, {0: 1.0}), {"exact, normal"}),
    (Case(BF16, c=2.0**-149), {"exact, subnormal"}),
    (Case(BF16, {0: 2.0**-12}, {0: 2.0**-12}, 1.0), {"truncated, normal"}),
    (Case(BF16, {0: 2.0**-74}, {0: 1.5 * 2.0**-75}), {"truncated, subnormal"}),
    (Case(BF16, {0: 2.0**-75}, {0: 2.0**-75}), {"truncated to zero"}),
    (Case(BF16, {0: 2.0**52}, {0: 2.0**51}, TOP32), {"truncated, normal", "truncated to the largest finite number"}),
    (Case(BF16, {0: 2.0**52}, {0: 2.0**52}, TOP32), {"overflow to Inf"}),
    (Case(BF16, {0: 1.0}, {0: 1.0}, -1.0), None),
    (Case(BF16, c=INF), None),
    (Case(FP8, {0: 1.0}, {0: 1.0}), {"exact, normal"}),
    (Case(FP8, c=2.0**-139), {"exact, subnormal"}),
    (Case(FP8, {0: 1.0, 1: 1.0}, {0: 1.0, 1: 1.0}, 2.0**-13), {"truncated, normal"}),
]


@pytest.mark.parametrize("negative", [False, True], ids=["positive", "negative"])
@pytest.mark.parametrize(("case", "wanted"), ROUNDINGS, ids=lambda value: None)
def test_rounding(case: Case, wanted: set[str] | None, negative: bool) -> None:
    if negative:
        case = Case(case.text, case.a, {row: -value for row, value in case.b.items()}, -case.c)
    result = {HALF: "f16", BF16: "f32", FP8: "e8m13"}[case.text]
    sign = "negative" if negative else "positive"
    assert reached(sample(case), f"rounding to {result}") == {f"{sign}, {event}" for event in wanted or ()}


@pytest.mark.parametrize("result", ["f16", "f32", "e8m13"])
def test_every_reachable_rounding_has_a_step(result: str) -> None:
    text = {"f16": HALF, "f32": BF16, "e8m13": FP8}[result]
    config = PRESETS[PRESET_OF[text]]
    group = StepCoverage(config).coverage[config.name, f"rounding to {result}"]
    found = {event for case, wanted in ROUNDINGS if case.text == text for event in wanted or ()}
    assert {name.partition(", ")[2] for name in group.missing()} == found


ALIGNMENTS = [
    (Case(F16, {3: 1.0}, {3: 1.0}, 32.0), {"slot 3, distance 5", "c, distance 0"}, "the accumulator alone"),
    (Case(F16, {3: 1.0}, {3: 1.0}, 1.5), {"slot 3, distance 0", "c, distance 0"}, "a term and the accumulator"),
    (Case(F16, {7: 2.0**15}, {7: 2.0**15}, 32.0), {"slot 7, distance 0", "c, distance 25"}, "one term alone"),
    (Case(F16, {7: 2.0**15}, {7: 2.0**15}, 16.0), {"slot 7, distance 0", "c, beyond"}, "one term alone"),
    (Case(F16, {0: 1.5}, {0: 1.5}, 2.0**25), {"slot 0, distance 25", "c, distance 0"}, "the accumulator alone"),
    (Case(F16, {0: 1.5}, {0: 1.5}, 2.0**26), {"slot 0, beyond", "c, distance 0"}, "the accumulator alone"),
    (Case(F16, {0: 1.0, 1: 1.0}, {0: 1.0, 1: 1.0}), {"slot 0, distance 0", "slot 1, distance 0"}, "several terms"),
    (Case(F16, {0: 4.0, 1: 1.0}, {0: 1.0, 1: 1.0}), {"slot 0, distance 0", "slot 1, distance 2"}, "one term alone"),
    (Case(F16, TINY_A, {0: 1.0}), {"slot 0, distance 0"}, "one term alone"),
    (Case(F16, c=2.0**-140), {"c, distance 0"}, "the accumulator alone"),
    (Case(F16), set(), "e_zero, every term zero"),
    (Case(F16, {0: INF, 1: 1.0}, {0: 1.0, 1: 1.0}, 1.0), set(), ""),
    (Case(HALF, {0: 2.0**-12}, {0: 2.0**-12}), {"slot 0, distance 4"}, "e_zero, above every term"),
]


@pytest.mark.parametrize(("case", "wanted", "source"), ALIGNMENTS, ids=lambda value: None)
def test_alignment(case: Case, wanted: set[str], source: str) -> None:
    coverage = sample(case)
    assert reached(coverage, "alignment of floats, F = 24") == wanted
    result = "f16" if case.text == HALF else "f32"
    expected = {f"floats, F = 24 to {result}, {source}"} if source else set()
    assert reached(coverage, "largest exponent") == expected


def test_reachable_distances_are_those_of_every_exponent() -> None:
    """Of formats with few exponents: all pairs of two products, or one, with every accumulator."""
    config = CoreConfig(name="few", formats=("e2m1",), alignment_bits=40, fp8_alignment_bits=40, step_bytes=16)
    operations = tuple(operation for operation in operations_of(config) if operation.result == "f16")
    coverage = AlignmentCoverage("few", operations)
    pairs = np.stack(np.meshgrid(*2 * [np.arange(16, dtype=np.uint8) << 2]), -1).reshape(-1, 2)
    c = np.arange(0, 0x7C00, 1 << 9, dtype=np.uint16)
    a = np.zeros((1, len(pairs), 16), np.uint8)
    a[0, :, :2] = pairs
    b = np.full((1, 2 * len(c), 16), 2 << 2, np.uint8)
    b[0, : len(c)] = 7 << 2
    i = parse("mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f16.e2m1.e2m1.f16")
    (step,) = steps_of(config, i, MatrixOperands(a, b.swapaxes(1, 2), np.zeros((1, len(pairs), 2 * len(c)), np.uint16)))
    words = step_words(config)
    step[..., words.c.start] = np.tile(c, 2)
    steps = step.reshape(-1, words.total)
    reader = StepReader(config)
    control = reader.control(int(reader.control_words(steps)[0]))
    coverage.sample(evaluate(operations[0], reader.operands(steps, control)))
    group = coverage.groups[0]
    assert 0 < group.reachable < group.bins
    for place in (0, 1, -1):
        np.testing.assert_array_equal(group.hits[place] > 0, ~group.unreachable[place], err_msg=str(place))


def test_an_accumulator_below_e_zero() -> None:
    """Where few bits are kept, e_zero is above the smallest accumulators: -116 against -126."""
    config = CoreConfig(name="few", formats=("e2m1",), alignment_bits=8, fp8_alignment_bits=8, step_bytes=16)
    i = parse("mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e2m1.f32")
    zeros = np.zeros((1, 1, 16), np.uint8)
    (step,) = steps_of(config, i, MatrixOperands(zeros, zeros.swapaxes(1, 2), np.zeros((1, 1, 1), np.uint32)))
    for exponent, distance in ((-116, "distance 0"), (-117, "distance 1"), (-126, "beyond")):
        step[..., step_words(config).c] = exponent + 127 << 23
        coverage = StepCoverage(config)
        coverage.sample(step.reshape(1, -1), np.zeros(1, np.uint64))
        assert reached(coverage, "alignment of floats, F = 8") == {f"c, {distance}"}


def test_selection() -> None:
    """Neither a stored zero nor a choice among units that are all alike shows anything."""
    b = {8: 1.0, 9: 2.0, 10: 3.0, 11: 4.0}
    found = reached(sample(Case(SPARSE, {4: 1.0}, b, nibbles={2: 0b1101})), "selection of 16 bits")
    assert found == {"f16 x f16 (2:4), nibble 0b1101, slot 4"}
    assert not reached(sample(Case(SPARSE, {4: -0.0}, b, nibbles={2: 0b1101})), "selection of 16 bits")
    alike = dict.fromkeys(range(8, 12), 1.0)
    assert not reached(sample(Case(SPARSE, {4: 1.0}, alike, nibbles={2: 0b1101})), "selection of 16 bits")
    assert not reached(sample(Case(F16, {4: 1.0}, {4: 1.0})), "selection of 16 bits")


def test_operations() -> None:
    assert reached(sample(Case(SPARSE, {0: 1.0}, {0: 1.0})), "operations") == {"f16 x f16 to f32, sparse"}
    assert reached(sample(Case(HALF, {0: 1.0}, {0: 1.0})), "operations") == {"f16 x f16 to f16, dense"}


def test_legality() -> None:
    """Of every chunk in use: those beyond the instruction hold nibble 0."""
    found = reached(sample(Case(SPARSE, nibbles={0: 0b0001, 3: 0b1111})), "legality")
    nibbles = ("0b0001", "0b0100", "0b0100", "0b1111")
    assert found == {f"rule plain, nibble {nibble}, chunk {chunk}" for chunk, nibble in enumerate(nibbles)}
    assert not reached(sample(Case(F16)), "legality")


def test_a_flag_that_contradicts_the_rule() -> None:
    config = PRESETS["tiny"]
    i = parse(SPARSE)
    zeros = (np.zeros((1, 1, 8), np.uint16), np.zeros((1, 16, 1), np.uint16), np.zeros((1, 1, 1), np.uint32))
    nibbles = np.array([[[0b0100, 0b1111, 0b0100, 0b0100]]], np.uint8)
    steps, results = words_of(config, i, "sm_80", (*zeros, nibbles, None, None))
    StepCoverage(config).sample(steps, results)
    offset = row_result_layout(config)["illegal"].offset
    with pytest.raises(AssertionError, match="chunk 1 holds nibble 0b1111, which the rule plain does not define"):
        StepCoverage(config).sample(steps, results ^ np.uint64(2 << offset))
    with pytest.raises(AssertionError, match="chunk 0 holds nibble 0b0100, which the rule plain defines"):
        StepCoverage(config).sample(steps, results ^ np.uint64(1 << offset))
    with pytest.raises(AssertionError, match="does not use"):
        StepCoverage(config).sample(steps, results ^ np.uint64(1 << offset + 7))


def test_a_result_that_does_not_follow_is_a_contradiction() -> None:
    config, i = PRESETS["tiny"], parse(F16)
    ones = np.full((1, 1, 8), 0x3C00, np.uint16)
    given = (ones, ones.reshape(1, 8, 1), np.zeros((1, 1, 1), np.uint32), None, None, None)
    steps, results = words_of(config, i, "sm_80", given)
    coverage = StepCoverage(config)
    coverage.sample(steps, results + np.uint64(1))
    assert coverage.coverage["tiny", "results"].contradicted() == ["f32, another"]
    assert "CONTRADICTED, declared unreachable but reached: tiny: results: f32, another" in coverage.coverage.table()


ONES = dict.fromkeys(range(64), 1.0)
GROUP0, GROUP1 = dict.fromkeys(range(16), 1.0), dict.fromkeys(range(16, 32), 1.0)


def kinds(coverage: StepCoverage) -> set[str]:
    return reached(coverage, "scaled groups with ue4m3")


def test_scaled_groups() -> None:
    zero = {f"group {group}, zero products" for group in range(4)}
    assert kinds(sample(Case(NVF4))) == zero
    one = zero - {"group 1, zero products"}
    assert kinds(sample(Case(NVF4, GROUP1, ONES))) == one | {"group 1, ordinary"}
    assert kinds(sample(Case(NVF4, GROUP1, ONES, scale_a={1: 0x80}))) == one | {"group 1, scale of zero"}
    cancelling = {16: 1.0, 17: -1.0}
    assert kinds(sample(Case(NVF4, cancelling, ONES))) == one | {"group 1, products cancel"}
    alone = "group 1, products cancel and set E alone above another term"
    assert kinds(sample(Case(NVF4, cancelling, ONES, 0.25))) == one | {"group 1, products cancel", alone}
    assert kinds(sample(Case(NVF4, cancelling, ONES, 1.5))) == one | {"group 1, products cancel"}
    assert kinds(sample(Case(NVF4, GROUP0, ONES, scale_b={2: 0x7F}))) == {"group 2, zero products under a NaN scale"}
    assert kinds(sample(Case(NVF4, GROUP0, ONES, scale_b={0: 0x7F}))) == set()


CODES = {0: "zero", 0x80: "zero with sign bit", 1: "subnormal", 0x87: "subnormal with sign bit", 8: "normal",
         0x7D: "normal", 0x7E: "largest", 0xFE: "normal with sign bit", 0x88: "normal with sign bit", 0x7F: "NaN",
         0xFF: "NaN with sign bit"}  # fmt: skip


@pytest.mark.parametrize("code", CODES)
def test_scales_of_groups(code: int) -> None:
    found = reached(sample(Case(NVF4, ONES, ONES, scale_b={2: code})), "ue4m3 scales of groups")
    others = {f"{side}, group {group}, normal" for side in "AB" for group in range(4)} - {"B, group 2, normal"}
    nan = CODES[code].startswith("NaN")
    assert found == {f"B, group 2, {CODES[code]}"} | (set() if nan else others)


@pytest.mark.parametrize(
    ("code", "label"),
    [(0, "code 0 (2**-127)"), (1, "below 1"), (126, "below 1"), (127, "1"), (128, "above 1"), (253, "above 1"),
     (254, "largest"), (255, "NaN")],
)  # fmt: skip
def test_scales_of_a_step(code: int, label: str) -> None:
    coverage = sample(Case(MXF8, {0: 1.0}, {0: 1.0}, scale_a={0: code}))
    other = set() if label == "NaN" else {"B, whole step, 1"}
    assert reached(coverage, "ue8m0 scales of a step") == {f"A, whole step, {label}"} | other
    wanted = {"some product"} if label == "NaN" else set()
    assert reached(coverage, "ue8m0 NaN over a whole step") == wanted


def test_causes_of_nan_beside_a_scale() -> None:
    """A NaN scale counts where nothing else is NaN; over products that are all zero, too."""
    assert reached(sample(Case(MXF8, scale_a={0: 255})), "ue8m0 NaN over a whole step") == {"zero products"}
    for case in (
        Case(MXF8, scale_a={0: 255}, scale_b={0: 255}),
        Case(MXF8, c=NAN, scale_a={0: 255}),
        Case(MXF8, {0: "7f"}, {0: 1.0}, scale_a={0: 255}),
    ):
        coverage = sample(case)
        assert not reached(coverage, "ue8m0 NaN over a whole step")
        assert not reached(coverage, "ue8m0 scales of a step")
        assert not reached(coverage, "special cases")


def native(config: CoreConfig, arch: str) -> list[Instruction]:
    """Return one instruction of one step for each set of formats, sparse by any rule and dense."""
    found: dict[tuple[object, ...], Instruction] = {}
    for i in every_instruction():
        one_step = i.stored_k * i.container_bits <= 8 * config.step_bytes
        held = arch in i.architectures and config.holds(i) and numerics(i, arch).method is not Method.EMULATED
        if held and one_step and (not i.a.is_integer or i.satfinite):
            found.setdefault((i.a, i.b, i.d, i.container_bits, i.sparse, i.scale_format, i.rule), i)
    return [*found.values()]


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_what_is_derived_is_the_golden_models(rng: Random, name: str) -> None:
    """Every operation of an architecture with every kind of operand: results agree, nothing is contradicted."""
    config, arch = PRESETS[name], ARCHITECTURES[name]
    for i in native(config, arch):
        coverage = StepCoverage(config)
        container = CONTAINERS[i.container_bits]
        for kind in rng.permutation(distributions(i))[:4].tolist():
            a = random_codes(i.a, kind, (1, 8, i.stored_k), rng) << i.low_bit(i.a)
            b = random_codes(i.b, kind, (1, i.k, 4), rng) << i.low_bit(i.b)
            c = random_codes(i.c, kind, (1, 8, 4), rng).astype(CONTAINERS[i.c.bits])
            nibbles = rng.integers(0, 16, (1, 8, i.chunks), dtype=np.uint8)
            scales = [rng.integers(100, 127, (1, rows, i.scale_size or 0), dtype=np.uint8) for rows in (8, 4)]
            operands = (a.astype(container), b.astype(container), c, nibbles, *scales)
            coverage.sample(*words_of(config, i, arch, operands))
        groups = [*coverage.coverage]
        assert [(group.name, group.contradicted()) for group in groups if group.contradictions] == []
        assert coverage.coverage[name, "results"].hits.sum() == 32 * min(4, len(distributions(i)))
        assert len(reached(coverage, "operations")) == 1


def test_exchange() -> None:
    """A plain nibble that 3:1 multiplexers cannot serve trades its slots; both are counted as stored."""
    config = PRESETS["rtx-blackwell"]
    i = parse(SPARSE)
    a, b = np.zeros((1, 1, 8), np.uint16), np.arange(16, dtype=np.uint16).reshape(1, 16, 1)
    a[0, 0, [2, 5]] = 0x3C00
    nibbles = np.full((1, 1, 4), 0b0001, np.uint8)
    coverage = StepCoverage(config)
    coverage.sample(*words_of(config, i, "sm_120", (a, b, np.zeros((1, 1, 1), np.uint32), nibbles, None, None)))
    chosen = "f16 x f16 (2:4), nibble 0b0001, slot"
    assert reached(coverage, "selection of 16 bits") == {f"{chosen} 2", f"{chosen} 5"}
    route = "16-bit units, rule plain, nibble 0b0001, slot"
    assert reached(coverage, "exchange") == {f"{route} 0 of the chunk", f"{route} 1 of the chunk"}
    # Slot 2 meets unit 1 of its chunk and becomes slot 3; slot 5 meets unit 0 and becomes slot 4.
    places = {name.split(",")[0] for name in reached(coverage, "alignment of floats, F = 25")}
    assert places == {"slot 3", "slot 4"}


def test_steps_that_no_instruction_asks_for() -> None:
    """Formats that never meet count for legality alone, and control codes that mean nothing for nothing."""
    config = PRESETS["ampere"]
    i = parse(SPARSE)
    zeros = (np.zeros((1, 1, 8), np.uint16), np.zeros((1, 16, 1), np.uint16), np.zeros((1, 1, 1), np.uint32))
    steps, results = words_of(config, i, "sm_80", (*zeros, np.full((1, 1, 4), 0b0100, np.uint8), None, None))
    control = step_words(config).control.start
    mixed = steps.copy()
    mixed[:, control] |= np.uint32(1 << 4)  # B becomes bf16
    coverage = StepCoverage(config)
    coverage.sample(mixed, results)
    assert {group.name for group in coverage.coverage if group.hits.any()} == {"legality"}
    rule = control_layout()["rule"].offset
    for code in (15, 7 << rule):
        unknown = steps.copy()
        unknown[:, control] |= np.uint32(code)
        coverage = StepCoverage(config)
        coverage.sample(unknown, results)
        assert not any(group.hits.any() for group in coverage.coverage)
