"""Shards of a campaign have the right plan, operands, mismatches and coverage."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.typing import NDArray
from sptc.api.backends import backend
from sptc.errors import InstructionError
from sptc.isa.instructions import ARCHITECTURES, Instruction, every_instruction, parse
from sptc.isa.operands import MatrixOperands, Product
from sptc.rtl.config import PRESET_OF_ARCHITECTURE, PRESETS
from sptc.sim.benches.random_operands import distributions
from sptc.sim.coverage.steps import StepCoverage
from sptc.sim.engine.engine import Engine, engine_for
from sptc.sim.engine.tops import tops_of
from sptc.verify import shards as shards_of_campaigns
from sptc.verify.campaign import Record
from sptc.verify.shards import Plan, ShardResult, both, draw, empty_coverage, pair_of, run_shard, steps_beside
from sptc.verify.shrink import reproduce

F16 = "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
S8 = "mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32"
FP8 = "mma.sp.sync.aligned.m16n8k64.row.col.f32.e4m3.e4m3.f32"
WGMMA = "wgmma.mma_async.sp.sync.aligned.m64n8k64.f32.e4m3.e4m3"
SMALL = Plan(seed=7, architectures=("sm_90",), tiles=2)

Push = Callable[[Engine, NDArray], NDArray]


def test_a_lap_covers_all_combinations() -> None:
    plan = Plan(seed=1)
    expected = {
        (PRESET_OF_ARCHITECTURE[arch], pair_of(i), str(i), distribution)
        for i in every_instruction()
        for arch in i.architectures
        for distribution in (*distributions(i), "directed")
        if i.family == "mma" or i.n == 8
    }
    shards = [plan.shard(index) for index in range(plan.lap)]
    result = Counter((s.preset, s.pair, str(s.instruction), s.distribution) for s in shards)
    assert result.keys() == expected
    of_pairs = Counter((s.preset, s.pair) for s in shards)
    assert max(of_pairs.values()) == min(of_pairs.values())
    for pair in of_pairs:
        counts = [count for key, count in result.items() if key[:2] == pair]
        assert max(counts) - min(counts) <= 1
    assert {s.preset for s in shards[:5]} == {*PRESET_OF_ARCHITECTURE.values()}
    assert {(s.preset, s.pair) for s in shards[: len(of_pairs)]} == of_pairs.keys()
    assert {s.distribution for s in shards[: len(of_pairs)]} == {name for *_, name in expected}
    assert all(s.arch in s.instruction.architectures for s in shards)


def test_four_laps_cover_all_architectures_and_nibbles() -> None:
    plan = Plan(seed=1, instructions=(F16, S8))
    shards = [plan.shard(index) for index in range(4 * plan.lap)]
    actual = {(s.arch, s.instruction, s.distribution, s.any_nibble) for s in shards}
    for text, kinds in ((F16, (False, True)), (S8, (False,))):
        i = parse(text)
        for distribution in distributions(i):
            assert {(arch, i, distribution, kind) for arch in ARCHITECTURES for kind in kinds} <= actual
    assert not any(kind for *_, name, kind in actual if name == "directed")


def test_a_seed_and_an_index_decide_a_shard() -> None:
    for index in range(0, 60, 7):
        one, same = (draw(replace(SMALL, seed=5).shard(index)) for _ in range(2))
        assert all(np.array_equal(getattr(one, name), getattr(same, name)) for name in ("a", "b", "c", "e"))
        others = (draw(replace(SMALL, seed=6).shard(index)), draw(replace(SMALL.shard(index), index=index + 1)))
        assert not any(np.array_equal(one.a, other.a) for other in others)
    assert SMALL.shard(12345) == replace(SMALL).shard(12345)


def test_invalid_plans() -> None:
    for architectures, instructions, message in (
        (("sm_80",), (FP8,), "sm_80 does not have .*; sm_89, sm_90, sm_100, sm_120 have it"),
        (("sm_80", "sm_89"), (FP8,), "sm_80 has none of the instructions"),
        ((), ("wgmma.mma_async.sp.sync.aligned.m64n16k32.f32.f16.f16",), "n = 16; only wgmma with n = 8"),
    ):
        with pytest.raises(InstructionError, match=message):
            Plan(seed=0, architectures=architectures, instructions=instructions)


@pytest.mark.parametrize("text", [F16, S8, WGMMA, FP8])
def test_every_distribution_agrees(text: str) -> None:
    plan = Plan(seed=3, architectures=("sm_90",), instructions=(text,), tiles=2)
    for index in range(2 * plan.lap):
        shard = plan.shard(index)
        file = draw(shard)
        assert (file.cases, file.arch, file.metadata) == (2, "sm_90", "silicon")
        assert run_shard(shard, sample=False) == ShardResult(shard, 0, draw(shard).a_from)


@pytest.mark.parametrize("sample", [False, True])
def test_a_faulty_unit_is_counted(sample: bool, monkeypatch: pytest.MonkeyPatch, faulty_compute: Push) -> None:
    shard = replace(Plan(seed=3, architectures=("sm_90",), instructions=(F16,), tiles=8).shard(0), distribution="mid")
    monkeypatch.setattr(Engine, "compute", faulty_compute)
    hardware, golden = both(draw(shard))
    assert run_shard(shard, sample).mismatches == (hardware != golden).sum() > 0
    assert shard.outputs == hardware[..., : shard.instruction.n].size


def test_a_wrong_flag_is_counted(monkeypatch: pytest.MonkeyPatch, faulty_flags: Push) -> None:
    shard = replace(Plan(seed=3, architectures=("sm_90",), instructions=(F16,), tiles=4).shard(0), distribution="mid")
    assert run_shard(shard, sample=False).mismatches == 0
    monkeypatch.setattr(Engine, "compute", faulty_flags)
    assert run_shard(shard, sample=False).mismatches == 4  # one wrong flag per tile
    two_steps = Plan(seed=3, architectures=("sm_90",), instructions=(FP8,), tiles=4).shard(0)
    assert run_shard(two_steps, sample=False).mismatches == 2 * 4
    result = reproduce(shard)
    mismatch = result.mismatch
    assert (mismatch.row, mismatch.column, mismatch.computed, mismatch.expected) == (5, 3, 1, 0)
    assert mismatch.is_flag
    assert not any(operand.any() for operand in (result.file.a, result.file.b, result.file.c) if operand is not None)


def test_coverage_of_a_shard_is_its_own() -> None:
    shards = [Plan(seed=3, architectures=("sm_90",), instructions=(F16,), tiles=2).shard(index) for index in range(3)]
    empty = empty_coverage("hopper")
    assert not any(group.hits.any() for group in empty)
    results = [run_shard(shard, sample=True) for shard in shards]
    again = run_shard(shards[1], sample=True)
    for key, (places, hits) in (results[1].hits or {}).items():
        assert np.array_equal(again.hits[key][0], places)
        assert np.array_equal(again.hits[key][1], hits)
    record = Record(SMALL, None, sample=True)
    record.expect(empty)
    for shard, result in zip(shards, results, strict=True):
        record.add(ShardResult(replace(SMALL.shard(shard.index)), 0, hits=result.hits))
    whole = StepCoverage(PRESETS["hopper"])
    engine = engine_for("sm_90")
    with engine.observed(whole.sample):
        for shard in shards:
            draw(shard).run("rtl")
            engine.push(steps_beside(shard))
    for group in whole.coverage:
        assert np.array_equal(record.coverage[group.key].hits, group.hits)
    assert record.reached[0] == sum(group.reached for group in whole.coverage) > 0


@pytest.mark.parametrize("top", ["warp", "warpgroup", "tcgen05"])
def test_a_top_gets_only_instructions_that_it_executes(top: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Plan(seed=3, backends=(top,), tiles=1)
    shards = [plan.shard(index) for index in range(0, plan.lap, 7)]
    families = {"warp": {"mma"}, "warpgroup": {"mma", "wgmma"}, "tcgen05": {"tcgen05"}}[top]
    assert {shard.instruction.family for shard in shards} == families
    assert all(top in tops_of(shard.instruction, shard.arch) for shard in shards)
    file = draw(shards[0])
    assert (file.cases, file.name) == (1, shards[0].subject.name)
    assert (file.matrix(file.run("golden")) == file.matrix(file.run("native"))).all()

    def with_a_wrong_bit(i: Instruction, arch: str, operands: MatrixOperands) -> Product:
        product = backend("golden").multiply(i, arch, operands)
        product.d.flat[0] ^= 1
        return product

    wrong = SimpleNamespace(make_ready=lambda arch: None, multiply=with_a_wrong_bit)
    monkeypatch.setattr(shards_of_campaigns, "backend", lambda name: wrong)
    assert run_shard(shards[0], sample=False).mismatches == 1
    assert reproduce(shards[0]).file.cases == 1
    other = {"warp": WGMMA, "warpgroup": S8, "tcgen05": F16}[top]
    with pytest.raises(InstructionError, match=rf"^no instruction runs on all back ends \({top}\); chosen: "):
        Plan(seed=3, backends=(top,), instructions=(other,))


@pytest.mark.regression
@pytest.mark.parametrize("top", ["warp", "warpgroup", "tcgen05"])
def test_shards_on_tops(top: str, seed: int) -> None:
    """The results of each top-level module equal the golden model in some shards."""
    plan = Plan(seed=seed, backends=(top,), tiles=2, architectures=("sm_100" if top == "tcgen05" else "sm_90",))
    for index in range(4):
        assert run_shard(plan.shard(index), sample=False).mismatches == 0
