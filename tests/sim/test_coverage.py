"""Coverage of steps: selection, legality and results, and every operation beside the golden model."""

import numpy as np
import pytest
from sptc.isa.instructions import Instruction, every_instruction, parse
from sptc.isa.numerics import Method, numerics
from sptc.operands.registers import CONTAINERS
from sptc.rtl.config import PRESETS, CoreConfig
from sptc.rtl.step import control_layout, row_result_layout
from sptc.sim.benches.random_operands import distributions, random_codes
from sptc.sim.coverage.steps import StepCoverage
from sptc.sim.engine.steps import step_words

from .coverage_cases import ARCHITECTURES, F16, HALF, SPARSE, Case, reached, sample, words_of

Random = np.random.Generator


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


def native(config: CoreConfig, arch: str) -> list[Instruction]:
    """Return one instruction of one step for each set of formats, sparse by any rule and dense."""
    found: dict[tuple[object, ...], Instruction] = {}
    for i in every_instruction():
        one_step = i.stored_k * i.container_bits <= 8 * config.step_bytes
        held = arch in i.architectures and config.holds(i) and numerics(i, arch).method is not Method.EMULATED
        if held and one_step and (not i.a.is_integer or i.satfinite):
            found.setdefault((i.a, i.b, i.d, i.container_bits, i.sparse, i.scale_format, i.rule), i)
    return [*found.values()]


@pytest.mark.quick_cases(1)
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
