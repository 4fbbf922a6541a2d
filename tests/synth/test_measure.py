"""A small mapped unit has the golden model's results, and its energy depends on the operands."""

from functools import cache

import numpy as np
import pytest
from sptc.errors import Error
from sptc.isa.instructions import Instruction, parse
from sptc.sim.engine.steps import step_words
from sptc.synth.energy.mapping import mapped_row
from sptc.synth.energy.measure import Measured
from sptc.synth.energy.operands import CHAIN, cut, drawn, streamed
from sptc.synth.energy.stages import LOGIC, REGISTERS, stage_of
from sptc.tests.synth.power_library import LIBRARY
from sptc.tests.synth.small_unit import CONFIG, DENSE, SPARSE, unit

pytest.importorskip("pyosys")
CYCLES = 1000


@cache
def measured(instruction: Instruction = SPARSE, distribution: str = "normal", seed: int = 0, **built: bool) -> Measured:
    mapped = unit(**{"by_module": True, **built})
    operands = drawn(instruction, distribution, mapped.tiles(instruction, CYCLES), np.random.default_rng(seed))
    return mapped.measure(instruction, "sm_90", operands, distribution)


@pytest.mark.regression
def test_a_measurement_is_repeatable() -> None:
    assert measured() == measured.__wrapped__()  # `__wrapped__` measures again, without the cache of `measured`
    totals = [measured(seed=seed).total for seed in range(3)]
    assert max(totals) < 1.1 * min(totals)


@pytest.mark.regression
def test_energy_depends_on_operands_and_sparsity() -> None:
    zeros, half, normal = (measured(distribution=of) for of in ("zeros", "half", "normal"))
    assert zeros.total < half.total < normal.total
    assert zeros.stages["multiply"] == 0
    assert zeros.stages[REGISTERS] > 0
    assert normal.products == 16
    assert normal.cycles >= CYCLES
    sparse, dense = measured(), measured(DENSE)
    assert dense.stages["decode"] == 0 < sparse.stages["decode"]
    assert dense.total < sparse.total


@pytest.mark.regression
def test_other_instructions() -> None:
    for text, distribution in (
        ("wgmma.mma_async.sp.sync.aligned.m64n8k64.s32.s8.s8", "bits"),
        ("mma.sp.sync.aligned.m16n8k64.row.col.satfinite.s32.s8.s8.s32", "half"),
        ("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32", "bits"),
    ):
        measurement = measured(parse(text), distribution)
        assert measurement.cycles >= CYCLES, text
        assert measurement.total > measured(parse(text), "zeros").total, text


@pytest.mark.regression
def test_glitches_and_a_flat_netlist() -> None:
    settled, all_of_it = measured(), measured(glitches=True)
    assert all_of_it.cycles == settled.cycles
    assert all_of_it.stages["inputs"] == settled.stages["inputs"]
    assert all(all_of_it.stages[stage] >= taken for stage, taken in settled.stages.items())
    assert all_of_it.stages["multiply"] > 1.1 * settled.stages["multiply"]
    flat = measured(by_module=False)
    assert {stage for stage, taken in flat.stages.items() if taken} == {"inputs", LOGIC, REGISTERS}
    assert 0.7 < flat.total / measured().total < 1.3


@pytest.mark.regression
def test_wrong_results_are_rejected(rng: np.random.Generator) -> None:
    right = unit(by_module=True).compute

    def wrong(steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        d, overflow = right(steps)
        d[-1] += 1
        return d, overflow

    outputs = SPARSE.m // CONFIG.rows * SPARSE.n // CONFIG.columns
    for distribution in ("bits", "normal", "ones"):
        operands = drawn(SPARSE, distribution, 3, rng)
        steps = streamed(CONFIG, SPARSE, "sm_90", operands, right)
        assert steps.shape == (3 * CHAIN * outputs, step_words(CONFIG).total)
        with pytest.raises(Error, match="gives wrong results for mma"):
            streamed(CONFIG, SPARSE, "sm_90", operands, wrong)


def test_tiles_are_cut_once_each_with_all_of_k(rng: np.random.Generator) -> None:
    a, b = rng.integers(0, 256, (37, 48), np.uint8), rng.integers(0, 256, (96, 19), np.uint8)
    nibbles = rng.integers(0, 16, (37, 24), np.uint8)
    tiles = cut(SPARSE, a, b, nibbles, 100, rng)
    assert tiles.a.shape == (9, 16, 48)
    assert tiles.b.shape == (9, 96, 8)
    rows = {(tile[0].tobytes(), chosen[0].tobytes()) for tile, chosen in zip(tiles.a, tiles.nibbles, strict=True)}
    assert rows == {(a[row].tobytes(), nibbles[row].tobytes()) for row in (0, 16, 32)}
    assert {tile[:, 0].tobytes() for tile in tiles.b} == {b[:, column].tobytes() for column in (0, 8, 16)}
    assert len({(x.tobytes(), y.tobytes()) for x, y in zip(tiles.a, tiles.b, strict=True)}) == 9
    assert not next(tile for tile in tiles.b if tile[:, 0].tobytes() == b[:, 16].tobytes())[:, 3:].any()
    assert len(cut(SPARSE, a, b, nibbles, 4, rng).a) == 4


@pytest.mark.regression
def test_a_mapped_row_is_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    first = unit(by_module=True).netlist
    monkeypatch.setattr("sptc.synth.energy.mapping.run_yosys", None)
    assert mapped_row(CONFIG, LIBRARY, by_module=True) == first


def test_stages_of_cells() -> None:
    for cell, stage in (
        (r"$flatten\row.\unit.\multiply.\multiply0.\multiplier.$abc$1$blif$1$2", "multiply"),
        (r"$flatten\row.\unit.\multiply.\unpack_a3.$abc$1$blif$1$2", "unpack"),
        (r"$flatten\row.\unit.\multiply.\largest_of_products.$abc$1$blif$1$2", "align"),
        (r"$flatten\row.\unit.\round.\leading.$abc$1$blif$1$2", "round"),
        (r"$flatten\row.\decode.\metadata0.$abc$1$blif$1$2", "decode"),
        (r"$flatten\row.\unit.$abc$1$blif$1$2", LOGIC),
        ("$abc$1$blif$1$2", LOGIC),
    ):
        assert stage_of(cell) == stage, cell
