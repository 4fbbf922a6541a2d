"""Directed tiles have legal metadata, and a few directed tiles reach coverage bins that random tiles miss."""

from dataclasses import replace

import numpy as np
import pytest
from sptc.isa.instructions import Instruction, every_instruction, parse
from sptc.isa.metadata import RULES
from sptc.isa.operands import MatrixOperands
from sptc.rtl.config import PRESETS, CoreConfig
from sptc.rtl.step import row_result_layout
from sptc.sim.coverage.operands import StepReader
from sptc.sim.coverage.steps import StepCoverage
from sptc.sim.engine.engine import Engine
from sptc.sim.engine.steps import step_words, steps_of
from sptc.verify.directed import directed_matrices
from sptc.verify.vector_steps import directed_steps

Random = np.random.Generator
#: A small datapath, which Amaranth's simulator builds in a second.
TINY = replace(PRESETS["tiny"], formats=("f16",))


def of_one_step(config: CoreConfig) -> list[Instruction]:
    found: dict[tuple[object, ...], Instruction] = {}
    for i in every_instruction():
        if config.holds(i) and i.stored_k * i.container_bits == 8 * config.step_bytes:
            found.setdefault((i.a, i.b, i.d, i.container_bits, bool(i.sparse), i.scale_size, i.satfinite), i)
    return [*found.values()]


def sampled(config: CoreConfig, steps: np.ndarray, coverage: StepCoverage) -> None:
    """Sample the coverage of steps whose results are assumed to be D = 0 and the flags of undefined nibbles."""
    reader = StepReader(config)
    words = reader.control_words(steps)
    for word in np.unique(words):
        control = reader.control(int(word))
        part = steps[words == word]
        results = np.zeros(len(part), np.uint64)
        if control.sparse:
            nibbles = reader.nibbles(part, config.elements[control.a].container_bits >= 16)
            legal = np.isin(np.arange(16), [*RULES[control.rule].legal])
            flags = (~legal[nibbles]).astype(np.uint64) << np.arange(nibbles.shape[1], dtype=np.uint64)
            results = flags.sum(axis=1) << np.uint64(row_result_layout(config)["illegal"].offset)
        coverage.sample(part, results)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("name", ["tiny", "rtx-blackwell", "hopper"])
def test_a_few_tiles_reach_almost_every_rounding(rng: Random, name: str) -> None:
    config = PRESETS[name]
    coverage = StepCoverage(config)
    floats = [i for i in of_one_step(config) if not i.a.is_integer]
    chosen = floats[:: -(-len(floats) // 12)]
    for i in chosen:
        drawn = directed_matrices(i, rng, (1200 if i.m < 64 else 288) // len(chosen))
        (step,) = steps_of(config, i, drawn)
        sampled(config, step.whole(drawn.c).reshape(-1, step.words.total), coverage)
    sampled(config, directed_steps(config, rng, 6000), coverage)
    for group in coverage.coverage:
        if group.name.startswith("results"):
            continue
        assert not group.contradictions, (group.name, group.contradicted())
        if group.name == "legality" or group.name.startswith("rounding"):
            assert group.reached >= 0.9 * group.reachable, (group.name, group.missing())


def test_metadata_is_legal(rng: Random) -> None:
    for i in of_one_step(PRESETS["rtx-blackwell"])[::4]:
        if i.rule:
            assert {*directed_matrices(i, rng, 9).nibbles.ravel().tolist()} <= i.rule.legal, str(i)


def test_unsigned_steps_overflow_only_upwards(rng: Random) -> None:
    config = CoreConfig(name="unsigned", formats=("u8", "u4"), step_bytes=16)
    steps = directed_steps(config, rng, 2000)
    words = step_words(config)
    overflow = steps[:, words.control.start] >> np.uint32(words.overflow_bit) & 1 == 1
    assert overflow.any()
    assert (steps[overflow, words.c.start] >> 31 == 1).all()


def test_an_engine_shows_every_batch(rng: Random) -> None:
    """A simulation engine reports every batch of steps only to the innermost observer."""
    engine = Engine(TINY, "amaranth")
    i = parse("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32")
    drawn = directed_matrices(i, rng, 1)
    operands = MatrixOperands(drawn.a[:, :2], drawn.b[:, :, :1], drawn.c[:, :2, :1], drawn.nibbles[:, :2])
    outer: list[np.ndarray] = []
    inner = StepCoverage(TINY)
    with engine.observed(lambda steps, results: outer.append(steps)):
        engine.multiply(i, operands)
        with engine.observed(inner.sample):
            steps = directed_steps(TINY, rng, 8)
            engine.push(steps)
        engine.push(steps[:3])
    engine.push(steps)
    assert [len(batch) for batch in outer] == [2, 2, 3]
    np.testing.assert_array_equal(outer[2], steps[:3])
    results = inner.coverage["tiny", "results"]
    assert (results.hits.sum(), results.contradictions) == (8, 0)
    steps = directed_steps(TINY, rng, 1)

    def fail(*_: object) -> None:
        raise RuntimeError("full")

    with pytest.raises(RuntimeError, match="full"), engine.observed(fail):
        engine.push(steps)
    engine.push(steps)
