"""Coverage of operations, integers and block scales: directed steps reach the expected bins and no others."""

import numpy as np
import pytest
from sptc.isa.instructions import parse
from sptc.isa.operands import MatrixOperands
from sptc.rtl.config import PRESETS
from sptc.rtl.step import control_layout, row_result_layout
from sptc.sim.benches.blocks import native
from sptc.sim.benches.random_operands import distributions
from sptc.sim.coverage.steps import StepCoverage
from sptc.sim.engine.steps import step_words, steps_of

from .coverage_cases import ARCHITECTURES, F16, HALF, MXF8, NAN, NVF4, SPARSE, Case, built, reached, sample, words_of
from .matrices import matrices

SIZES = {8: 16, 4: 32}
MOST, LEAST = 2**31 - 1, -(2**31)
Elements = dict[int, int]
ONES = dict.fromkeys(range(64), 1.0)
GROUP0, GROUP1 = dict.fromkeys(range(16), 1.0), dict.fromkeys(range(16, 32), 1.0)


def test_selection() -> None:
    b = {8: 1.0, 9: 2.0, 10: 3.0, 11: 4.0}
    events = reached(sample(Case(SPARSE, {4: 1.0}, b, nibbles={2: 0b1101})), "selection of 16 bits")
    assert events == {"f16 x f16 (2:4), nibble 0b1101, slot 4"}
    assert not reached(sample(Case(SPARSE, {4: -0.0}, b, nibbles={2: 0b1101})), "selection of 16 bits")
    alike = dict.fromkeys(range(8, 12), 1.0)
    assert not reached(sample(Case(SPARSE, {4: 1.0}, alike, nibbles={2: 0b1101})), "selection of 16 bits")
    assert not reached(sample(Case(F16, {4: 1.0}, {4: 1.0})), "selection of 16 bits")


def test_operations_and_legality() -> None:
    """Coverage counts the operation of a step, and the nibble of every chunk that the instruction uses."""
    assert reached(sample(Case(SPARSE, {0: 1.0}, {0: 1.0})), "operations") == {"f16 x f16 to f32, sparse"}
    assert reached(sample(Case(HALF, {0: 1.0}, {0: 1.0})), "operations") == {"f16 x f16 to f16, dense"}
    events = reached(sample(Case(SPARSE, nibbles={0: 0b0001, 3: 0b1111})), "legality")
    nibbles = ("0b0001", "0b0100", "0b0100", "0b1111")
    assert events == {f"rule plain, nibble {nibble}, chunk {chunk}" for chunk, nibble in enumerate(nibbles)}
    assert not reached(sample(Case(F16)), "legality")


def test_a_flag_or_a_result_that_contradicts_the_rule() -> None:
    config, steps, results = built(Case(SPARSE, nibbles={1: 0b1111}))
    StepCoverage(config).sample(steps, results)
    offset = row_result_layout(config)["illegal"].offset
    for chunk, message in (
        (1, "the metadata rule plain does not define nibble 0b1111 of chunk 1"),
        (0, "the metadata rule plain defines nibble 0b0100 of chunk 0"),
        (7, "does not use"),
    ):
        with pytest.raises(AssertionError, match=message):
            StepCoverage(config).sample(steps, results ^ np.uint64(1 << offset + chunk))
    config, steps, results = built(Case(F16, {0: 1.0}, {0: 1.0}))
    coverage = StepCoverage(config)
    coverage.sample(steps, results + np.uint64(1))
    assert coverage.coverage["tiny", "results"].contradicted() == ["f32, different"]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_derived_results_equal_the_golden_model(rng: np.random.Generator, name: str) -> None:
    config, arch = PRESETS[name], ARCHITECTURES[name]
    instructions = [i for i in native(config, arch) if not i.a.is_integer or i.satfinite]
    assert len(instructions) > 5
    for i in instructions:
        coverage = StepCoverage(config)
        for kind in rng.permutation(distributions(i))[:4].tolist():
            coverage.sample(*words_of(config, i, arch, matrices(i, (1, 8, 4), kind, rng)))
        assert [(group.name, group.contradicted()) for group in coverage.coverage if group.contradictions] == []
        assert coverage.coverage[name, "results"].hits.sum() == 32 * min(4, len(distributions(i)))
        assert len(reached(coverage, "operations")) == 1


def test_exchange() -> None:
    """If 3:1 multiplexers exchange two slots, selection is counted for the slots in which the elements are stored."""
    b, nibbles = {row: float(row) for row in range(16)}, dict.fromkeys(range(4), 0b0001)
    coverage = sample(Case(SPARSE, {2: 1.0, 5: 1.0}, b, nibbles=nibbles, preset="rtx-blackwell"))
    chosen = "f16 x f16 (2:4), nibble 0b0001, slot"
    assert reached(coverage, "selection of 16 bits") == {f"{chosen} 2", f"{chosen} 5"}
    route = "16-bit units, rule plain, nibble 0b0001, slot"
    assert reached(coverage, "exchange") == {f"{route} 0 of the chunk", f"{route} 1 of the chunk"}
    # Slot 2 selects unit 1 of its chunk and is exchanged to slot 3. Slot 5 selects unit 0 and is exchanged to slot 4.
    assert {name.split(",")[0] for name in reached(coverage, "alignment of floats, F = 25")} == {"slot 3", "slot 4"}


def test_steps_of_no_instruction() -> None:
    """A step with an invalid pair of formats counts only for legality; with undefined codes, a step does not count."""
    config, steps, results = built(Case(SPARSE, preset="ampere"))
    control = step_words(config).control.start
    mixed = steps.copy()
    mixed[:, control] |= np.uint32(1 << 4)  # the format of B becomes bf16
    coverage = StepCoverage(config)
    coverage.sample(mixed, results)
    assert {group.name for group in coverage.coverage if group.hits.any()} == {"legality"}
    for code in (15, 7 << control_layout()["rule"].offset):
        unknown = steps.copy()
        unknown[:, control] |= np.uint32(code)
        coverage = StepCoverage(config)
        coverage.sample(unknown, results)
        assert not any(group.hits.any() for group in coverage.coverage)


def sample_integers(
    pair: str, a: Elements, b: Elements, c: int, clamped: bool = False, wrong: int = 0
) -> tuple[set[str], bool]:
    """Return the coverage events of a dense integer step, and whether coverage accepts the computed result.

    `c` is the exact accumulator. If it exceeds 32 bits, the previous step has set its overflow bit. Bits of `wrong` are
    flipped in the result.
    """
    name_a, name_b = pair.split()
    bits = int(name_a[1:])
    k = SIZES[bits]
    text = f"mma.sync.aligned.m16n8k{k}.row.col.{'satfinite.' * clamped}s32.{name_a}.{name_b}.s32"
    config = PRESETS["ampere"]
    codes = np.zeros((2, 1, 1, k), np.uint8)
    for row, elements in zip(codes, (a, b), strict=True):
        row[0, 0, [*elements]] = np.array([*elements.values()]) & (1 << bits) - 1
    operands = MatrixOperands(codes[0], codes[1].swapaxes(1, 2), np.zeros((1, 1, 1), np.uint32))
    (step,) = steps_of(config, parse(text), operands)
    overflow = int(not LEAST <= c <= MOST)
    previous = np.full((1, 1, 1), c & 0xFFFFFFFF | overflow << step.words.result_overflow, np.uint64)
    total = c + sum(value * b.get(slot, 0) for slot, value in a.items())
    d = max(LEAST, min(MOST, total)) & 0xFFFFFFFF if clamped else total & 0xFFFFFFFF
    left = not clamped and (total < 0) != (d >> 31 == 1)
    coverage = StepCoverage(config)
    coverage.sample(step.whole(previous).reshape(1, -1), np.array([(d | left << 32) ^ wrong], np.uint64))
    group = coverage.coverage["ampere", "integers"]
    assert not group.contradictions
    names = [name.split("), ") for name in group.names(group.hits > 0)]
    assert {label.split(" (")[0] for label, _ in names} <= {f"{name_a} x {name_b}"}
    return {event for _, event in names}, not coverage.coverage["ampere", "results"].contradictions


ALL_LOW, ALL_HIGH = dict.fromkeys(range(16), -128), dict.fromkeys(range(16), 127)
ABOVE, BELOW = "accumulator above the 32-bit range", "accumulator below the 32-bit range"
EVENTS = [
    ("s8 s8", {0: 5}, {0: 7}, 3, False, {"in range"}),
    ("s8 s8", {0: 5}, {0: 7}, MOST, False, {"wrapped high", "largest accumulator"}),
    ("s8 s8", {0: 5}, {0: -7}, LEAST, False, {"wrapped low", "smallest accumulator"}),
    ("s8 s8", {0: 5}, {0: 7}, MOST - 1, True, {"clamped high"}),
    ("s8 s8", {0: 5}, {0: -7}, LEAST + 1, True, {"clamped low"}),
    ("s8 s8", {0: 5}, {0: 7}, MOST - 35, False, {"in range", "sum equal to the largest result"}),
    ("s8 s8", {0: 5}, {0: -7}, LEAST + 35, False, {"in range", "sum equal to the smallest result"}),
    ("s8 s8", {0: 5}, {0: 7}, MOST - 34, True, {"clamped high", "sum one above the largest result"}),
    ("s8 s8", {0: 5}, {0: -7}, LEAST + 34, True, {"clamped low", "sum one below the smallest result"}),
    ("s8 s8", {0: -128}, {0: 1}, 0, False, {"in range", "smallest A"}),
    ("s8 s8", {0: 127}, {0: 1}, 0, False, {"in range", "largest A"}),
    ("s8 s8", {0: 1}, {0: -128}, 0, False, {"in range", "smallest B"}),
    ("s8 s8", {0: 1}, {0: 127}, 0, False, {"in range", "largest B"}),
    ("s8 s8", {0: -128}, {1: -128}, 0, False, {"in range"}),
    ("s8 s8", ALL_LOW, ALL_LOW, 0, False,
     {"in range", "smallest A", "smallest B", "smallest A times smallest B", "largest sum of products"}),
    ("s8 s8", ALL_LOW, ALL_HIGH, 0, False,
     {"in range", "smallest A", "largest B", "smallest A times largest B", "smallest sum of products"}),
    ("s8 s8", {0: 127}, {0: -128}, 0, False, {"in range", "largest A", "smallest B", "largest A times smallest B"}),
    ("s8 s8", {0: 127}, {0: 127}, 0, False, {"in range", "largest A", "largest B", "largest A times largest B"}),
    ("s4 u4", {31: -8}, {31: 15}, 0, False, {"in range", "smallest A", "largest B", "smallest A times largest B"}),
    ("s4 u4", {30: 7}, {30: 1}, 0, False, {"in range", "largest A"}),
    ("s4 s4", dict.fromkeys(range(32), -8), dict.fromkeys(range(32), -8), MOST - 2048, False,
     {"in range", "smallest A", "smallest B", "smallest A times smallest B", "largest sum of products",
      "sum equal to the largest result"}),
    ("s8 s8", {3: 1}, {3: 4}, MOST + 1, False, {"wrapped high", ABOVE}),
    ("s8 s8", {3: 1}, {3: 4}, MOST + 1, True, {"clamped high", ABOVE}),
    ("s8 s8", {3: 1}, {3: -4}, MOST + 1, False, {"in range", ABOVE, "accumulator above, sum in the range"}),
    ("s8 s8", {3: 1}, {3: -4}, LEAST - 1, False, {"wrapped low", BELOW}),
    ("s8 s8", {3: 1}, {3: 4}, LEAST - 1, True, {"in range", BELOW, "accumulator below, sum in the range"}),
    ("u8 u8", {3: 1}, {3: 4}, MOST + 1, False, {"wrapped high", ABOVE, "smallest A times smallest B"}),
    ("s4 s4", {3: 1}, {3: -4}, MOST + 1, False, {"in range", ABOVE, "accumulator above, sum in the range"}),
    ("u8 u8", {3: 1}, {3: 4}, LEAST - 1, False, set()),  # unsigned products cannot cause this accumulator
]  # fmt: skip


@pytest.mark.parametrize(("pair", "a", "b", "c", "clamped", "wanted"), EVENTS, ids=lambda value: None)
def test_events(pair: str, a: Elements, b: Elements, c: int, clamped: bool, wanted: set[str]) -> None:
    assert sample_integers(pair, a, b, c, clamped) == (wanted, True)


@pytest.mark.parametrize("wrong", [1, 1 << 31, 1 << 32])
def test_a_wrong_result_or_overflow_bit(wrong: int) -> None:
    assert sample_integers("s8 s8", {3: 1}, {3: 4}, 7)[1]
    assert not sample_integers("s8 s8", {3: 1}, {3: 4}, 7, wrong=wrong)[1]


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
    alone = "group 1, products cancel and alone set e_max above another term"
    assert kinds(sample(Case(NVF4, cancelling, ONES, 0.25))) == one | {"group 1, products cancel", alone}
    assert kinds(sample(Case(NVF4, cancelling, ONES, 1.5))) == one | {"group 1, products cancel"}
    assert kinds(sample(Case(NVF4, GROUP0, ONES, scale_b={2: 0x7F}))) == {"group 2, all products zero, scale NaN"}
    assert kinds(sample(Case(NVF4, GROUP0, ONES, scale_b={0: 0x7F}))) == set()


CODES = {0: "zero", 0x80: "zero with sign bit", 1: "subnormal", 0x87: "subnormal with sign bit", 8: "normal",
         0x7D: "normal", 0x7E: "largest", 0xFE: "normal with sign bit", 0x88: "normal with sign bit", 0x7F: "NaN",
         0xFF: "NaN with sign bit"}  # fmt: skip


@pytest.mark.parametrize("code", CODES)
def test_scales_of_groups(code: int) -> None:
    events = reached(sample(Case(NVF4, ONES, ONES, scale_b={2: code})), "ue4m3 scales of groups")
    others = {f"{side}, group {group}, normal" for side in "AB" for group in range(4)} - {"B, group 2, normal"}
    assert events == {f"B, group 2, {CODES[code]}"} | (set() if CODES[code].startswith("NaN") else others)


@pytest.mark.parametrize(
    ("code", "label"),
    [(0, "code 0 (2**-127)"), (1, "below 1"), (126, "below 1"), (127, "1"), (128, "above 1"), (253, "above 1"),
     (254, "largest"), (255, "NaN")],
)  # fmt: skip
def test_scales_of_a_step(code: int, label: str) -> None:
    coverage = sample(Case(MXF8, {0: 1.0}, {0: 1.0}, scale_a={0: code}))
    other = set() if label == "NaN" else {"B, whole step, 1"}
    assert reached(coverage, "ue8m0 scales of a step") == {f"A, whole step, {label}"} | other
    assert reached(coverage, "ue8m0 NaN over a whole step") == ({"some product"} if label == "NaN" else set())


def test_causes_of_nan_beside_a_scale() -> None:
    """A NaN scale counts as the cause of a NaN only if no other operand gives NaN, even if all products are zero."""
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
