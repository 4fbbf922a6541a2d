"""Directed steps of floats reach the expected bins of special cases, rounding and alignment."""

import numpy as np
import pytest
from sptc.isa.formats import FORMATS
from sptc.isa.instructions import parse
from sptc.isa.operands import MatrixOperands
from sptc.rtl.config import PRESETS, CoreConfig
from sptc.sim.coverage.float_groups import alignment
from sptc.sim.coverage.operands import StepReader, operations_of
from sptc.sim.coverage.steps import StepCoverage
from sptc.sim.coverage.values import FloatValues
from sptc.sim.engine.steps import steps_of

from .coverage_cases import BF16, F16, FP8, HALF, INF, NAN, PRESET_OF, SPARSE, TF32, Case, reached, sample

ALL_NEGATIVE_ZERO = dict.fromkeys(range(8), -0.0)
TINY_A = {0: 2.0**-24}
#: Steps for the covergroup `special cases`, each with all bins that it reaches.
SPECIALS: list[tuple[Case, set[str]]] = [
    (Case(F16, {0: 1.0}, {0: 1.0}), set()),
    (Case(F16, {0: NAN}, {0: 1.0}), {"NaN only from NaN in A"}),
    (Case(F16, {0: 1.0}, {0: NAN}), {"NaN only from NaN in B"}),
    (Case(F16, c=NAN), {"NaN only from NaN in C"}),
    (Case(F16, {0: NAN}, {0: 1.0}, NAN), set()),
    (Case(F16, {0: NAN, 1: INF}, {0: 1.0}), set()),
    (Case(F16, {0: INF}), {"NaN only from Inf in A times zero"}),
    (Case(F16, {}, {0: INF}), {"NaN only from zero in A times Inf"}),
    (Case(F16, {0: INF, 1: INF}, {0: 1.0, 1: -1.0}), {"NaN only from Inf - Inf of products"}),
    (Case(F16, {0: INF, 1: INF}, {0: 1.0, 1: -1.0}, INF), set()),
    (Case(F16, {0: INF}, {0: 1.0}, -INF), {"NaN only from Inf of a product and -Inf in C"}),
    (Case(F16, {0: INF}, {0: -1.0}, INF), {"NaN only from -Inf of a product and Inf in C"}),
    (Case(F16, {0: INF}, {0: 1.0}), {"Inf of a product"}),
    (Case(F16, {0: -INF}, {0: 1.0}), {"-Inf of a product"}),
    (Case(F16, c=INF), {"Inf in C"}),
    (Case(F16, c=-INF), {"-Inf in C"}),
    (Case(SPARSE, {0: 1.0}, {0: 1.0, 2: NAN}), {"NaN in an unselected element of B"}),
    (Case(SPARSE, {0: 1.0}, {0: 1.0, 3: INF}), {"Inf in an unselected element of B"}),
    (Case(SPARSE, {0: 1.0}, {0: NAN, 2: 1.0}, nibbles={0: 0b1110}), {"NaN in an unselected element of B"}),
    (Case(TF32, {0: 1.0}, {0: 1.0, 1: NAN}), {"NaN in an unselected element of B"}),
    (Case(TF32, {0: 1.0}, {0: "7f810000", 1: 1.0}, nibbles={0: 0b1100}), set()),  # selects the NaN's low half
    (Case(HALF, {0: 65504.0}, {0: 1.0}, 65504.0), {"Inf from a finite sum"}),
    (Case(HALF, {0: -65504.0}, {0: 1.0}, -65504.0), {"-Inf from a finite sum"}),
    (Case(F16, {}, {0: 1.0}, 1.0), {"zero in A times a nonzero number"}),
    (Case(F16, TINY_A, {0: 1.0}), {"subnormal A", "product below 1 sets e_max"}),
    (Case(F16, {0: 1.0}, TINY_A), {"subnormal B", "product below 1 sets e_max"}),
    (Case(F16, TINY_A, {0: 1.0}, 1.0), {"subnormal A"}),
    (Case(F16, TINY_A, {}, 1.0), {"zero in B times a nonzero number"}),
    (Case(F16, c=2.0**-130), {"subnormal C", "subnormal result"}),
    (Case(F16, c=-(2.0**-130)), {"subnormal C", "negative subnormal result"}),
    (Case(F16, c=2.0**-149), {"subnormal C", "subnormal result", "smallest subnormal result"}),
    (Case(F16, c=-(2.0**-149)), {"subnormal C", "negative subnormal result", "negative smallest subnormal result"}),
    (Case(FP8, c=2.0**-139), {"subnormal C", "subnormal result", "smallest subnormal result"}),
    (Case(FP8, c=2.0**-140), {"subnormal C", "truncated positive C", "zero: every term truncated to zero"}),
    (Case(HALF, c="8001"), {"subnormal C", "negative subnormal result", "negative smallest subnormal result"}),
    (Case(F16, {0: 1.5}, {0: 1.5}), {"product of 2 or more sets e_max"}),
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
    (Case(F16, {0: 1.0, 1: -1.0}, {0: 1.0, 1: 1.0}, 2.0**-40),
     {"zero: terms cancel, other bits truncated", "truncated positive C"}),
    (Case(HALF, TINY_A, TINY_A),
     {"subnormal A", "subnormal B", "truncated positive term", "zero: every term truncated to zero"}),
    (Case(HALF, {0: 2.0**-13}, {0: 2.0**-13}), {"zero: positive sum rounded"}),
    (Case(HALF, {0: 2.0**-13}, {0: -(2.0**-13)}), {"zero: negative sum rounded"}),
]  # fmt: skip


@pytest.mark.parametrize(("case", "wanted"), SPECIALS, ids=lambda value: None)
def test_special_cases(case: Case, wanted: set[str]) -> None:
    assert {name.partition(", ")[2] for name in reached(sample(case), "special cases")} == wanted


def test_every_special_case_has_a_step() -> None:
    _, cases = StepCoverage(PRESETS["tiny"]).coverage["tiny", "special cases"].axes
    assert {case for _, expected in SPECIALS for case in expected} == {*cases.labels}


TOP16, TOP32 = 65504.0, float(FORMATS["f32"].maximum)
ROUNDINGS = [
    (Case(HALF, {0: 1.0}, {0: 1.0}), {"exact, normal"}),
    (Case(HALF, {0: 2.0**-6}, {0: 2.0**-6}, 1.0), {"below a tie, normal"}),
    (Case(HALF, {0: 2.0**-6}, {0: 2.0**-5}, 1.0), {"tie, down to even, normal"}),
    (Case(HALF, {0: 2.0**-6}, {0: 2.0**-5}, 1 + 2.0**-10), {"tie, up to even, normal"}),
    (Case(HALF, {0: 1.5 * 2.0**-6}, {0: 2.0**-5}, 1.0), {"above a tie, normal"}),
    (Case(HALF, {0: 2.0**-6}, {0: 2.0**-5}, 2 - 2.0**-10),
     {"tie, up to even, normal", "carry from the fraction into the exponent"}),
    (Case(HALF, {0: 2.0**-13}, {0: 2.0**-12}, 2.0**-14 - 2.0**-24),
     {"tie, up to even, subnormal", "subnormal to normal by carry"}),
    (Case(HALF, {0: 2.0**-13}, {0: 2.0**-12}, 2.0**-23), {"tie, down to even, subnormal"}),
    (Case(HALF, {0: 2.0**-13}, {0: 2.0**-12}), {"tie, down to even, subnormal", "rounded to zero"}),
    (Case(HALF, {0: 2.0**-13}, {0: 2.0**-13}), {"below a tie, subnormal", "rounded to zero"}),
    (Case(HALF, {0: 2.0**-13}, {0: 1.5 * 2.0**-12}), {"above a tie, subnormal"}),
    (Case(HALF, {0: 2.0**-12}, {0: 2.0**-12}), {"exact, subnormal"}),
    (Case(HALF, {0: 8.0}, {0: 1.0}, TOP16), {"below a tie, normal", "rounded down to the largest finite number"}),
    (Case(HALF, {0: 16.0}, {0: 1.0}, TOP16), {"tie, up to even, normal", "overflow to Inf by rounding"}),
    (Case(HALF, {0: 32.0}, {0: 1.0}, TOP16), {"overflow to Inf of a sum of at least 2**16"}),
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
]  # fmt: skip


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
    actual = {event for case, expected in ROUNDINGS if case.text == text for event in expected or ()}
    assert {name.partition(", ")[2] for name in group.missing()} == actual


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
    assert reached(coverage, "largest exponent") == ({f"floats, F = 24 to {result}, {source}"} if source else set())


def test_reachable_distances_are_those_of_every_exponent() -> None:
    """Bins that count as reachable are exactly the bins that some product or accumulator reaches (tried with e2m1)."""
    config = CoreConfig(name="few", formats=("e2m1",), alignment_bits=40, fp8_alignment_bits=40, step_bytes=16)
    operations = tuple(operation for operation in operations_of(config) if operation.result == "f16")
    covergroup = alignment(operations[0].mode, operations)
    group = covergroup.empty("few")
    pairs = np.stack(np.meshgrid(*2 * [np.arange(16, dtype=np.uint8) << 2]), -1).reshape(-1, 2)
    c = np.arange(0, 0x7C00, 1 << 9, dtype=np.uint16)
    a = np.zeros((1, len(pairs), 16), np.uint8)
    a[0, :, :2] = pairs
    b = np.full((1, 2 * len(c), 16), 2 << 2, np.uint8)
    b[0, : len(c)] = 7 << 2
    i = parse("mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f16.e2m1.e2m1.f16")
    (step,) = steps_of(config, i, MatrixOperands(a, b.swapaxes(1, 2), np.zeros((1, len(pairs), 2 * len(c)), np.uint16)))
    steps = step.whole(np.broadcast_to(np.tile(c, 2), step.shape)).reshape(-1, step.words.total)
    reader = StepReader(config)
    control = reader.control(int(reader.control_words(steps)[0]))
    operands = reader.operands(steps, control)
    covergroup.count(group, FloatValues(operations[0], operands, control, np.zeros(len(steps), np.uint32)))
    assert 0 < group.reachable < group.bins
    for place in (0, 1, -1):
        np.testing.assert_array_equal(group.hits[place] > 0, ~group.unreachable[place], err_msg=str(place))


def test_an_accumulator_below_e_zero() -> None:
    """Distances are right if e_zero (-116 with F = 8) exceeds the exponent of the smallest accumulators (-126)."""
    config = CoreConfig(name="few", formats=("e2m1",), alignment_bits=8, fp8_alignment_bits=8, step_bytes=16)
    i = parse("mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e2m1.f32")
    zeros = np.zeros((1, 1, 16), np.uint8)
    (step,) = steps_of(config, i, MatrixOperands(zeros, zeros.swapaxes(1, 2), np.zeros((1, 1, 1), np.uint32)))
    for exponent, distance in ((-116, "distance 0"), (-117, "distance 1"), (-126, "beyond")):
        coverage = StepCoverage(config)
        coverage.sample(step.whole(np.full((1, 1, 1), exponent + 127 << 23)).reshape(1, -1), np.zeros(1, np.uint64))
        assert reached(coverage, "alignment of floats, F = 8") == {f"c, {distance}"}
