"""Libraries for a constant control word have the same results, and are used only where they save time."""

from pathlib import Path

import numpy as np
import pytest
from sptc.infra.cache import cache_folder
from sptc.isa.instructions import parse
from sptc.rtl.config import PRESETS
from sptc.rtl.step import row_result_layout
from sptc.sim.engine import libraries
from sptc.sim.engine.compiled_row import CompiledRow, RowModel
from sptc.sim.engine.libraries import Libraries, can_be_specialised
from sptc.sim.engine.row_interface import row_interface
from sptc.sim.engine.steps import Steps, control_word, step_words
from sptc.tests.sim.test_simd import any_steps

TINY = PRESETS["tiny"]
WORDS = step_words(TINY)
SUBJECTS = [
    "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32",
    "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f16.f16.f16.f16",
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    "mma.sp.sync.aligned.m16n8k64.row.col.satfinite.s32.s8.s8.s32",
]
CLOCKED, COMPUTED = {"clocked.cpp": ""}, {"computed.cpp": ""}
needs_yosys = pytest.mark.skipif(not can_be_specialised(), reason="Yosys is not installed")


def general_model(row: CompiledRow) -> RowModel:
    return row._models[row._libraries.of_every_instruction()]


def steps_of(text: str, count: int, rng: np.random.Generator) -> np.ndarray:
    return any_steps(TINY, control_word(TINY, parse(text), last=True), count, rng)


@needs_yosys
@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("text", SUBJECTS)
def test_the_same_results(text: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = np.zeros((2, 13, WORDS.total), np.uint32)
    columns[..., WORDS.b] = rng.integers(0, 1 << 32, columns[..., WORDS.b].shape)
    rows = steps_of(text, 422, rng).reshape(2, 211, -1)
    for words in (rows[..., WORDS.a], columns[..., WORDS.b]):
        words &= np.uint32(0xBFFFBFFF)  # f16 below 2, so that few sums are Inf or NaN
    steps = Steps(rows, columns, WORDS)
    previous = rng.integers(0, 1 << 33, steps.shape, np.uint64)
    monkeypatch.setattr(libraries, "WORTH", 1)
    special = CompiledRow(TINY)
    result = special.run(steps, previous)
    assert len(special._models) == 2
    mask = np.uint64((1 << row_result_layout(TINY).size) - 1)
    np.testing.assert_array_equal(result & mask, general_model(special).run(steps, previous) & mask)
    whole = Steps.of_words(steps.whole(previous).reshape(-1, WORDS.total), WORDS)
    np.testing.assert_array_equal(result.ravel() & mask, general_model(special).run(whole).ravel() & mask)
    assert len(np.unique(result)) > 500


@pytest.mark.regression
@needs_yosys
def test_other_control_words_use_the_general_row(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps with different control words use the general library, even if only one bit of one step differs."""
    monkeypatch.setattr(libraries, "WORTH", 1)
    row = CompiledRow(TINY)
    one, other = (steps_of(text, 200, rng) for text in SUBJECTS[:2])

    def model_for(steps: np.ndarray) -> RowModel:
        return row._model_for(Steps.of_words(steps, WORDS))

    assert model_for(one) is not model_for(other)
    assert model_for(np.concatenate([one, other])) is general_model(row)
    low, width = row_interface(TINY).step["control"]
    for bit in range(width):
        changed = one.copy()
        changed[100, low // 32] ^= np.uint32(1 << low % 32 + bit)
        assert model_for(changed) is general_model(row)
    assert model_for(one[:0]) is general_model(row)


@needs_yosys
def test_another_recipe_gives_another_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file name of a specialised library depends on the recipe; the file name of the general library does not."""
    monkeypatch.setenv("SPTC_CACHE", str(tmp_path))
    monkeypatch.setattr(libraries, "WORTH", 1)
    monkeypatch.setattr(Libraries, "_build", lambda self, path, control: path.write_bytes(b""))
    results = []
    for text in ("one", "other"):
        monkeypatch.setattr(libraries, "recipe", lambda text=text: text)
        result = Libraries(TINY, "row", CLOCKED, COMPUTED)
        results.append((result.of_every_instruction(), result.of({5: 1})))
    assert results[0][0] == results[1][0]
    assert results[0][1] != results[1][1]


def test_few_steps_use_the_general_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPTC_CACHE", str(tmp_path))
    monkeypatch.setattr(libraries, "WORTH", 100)
    monkeypatch.setattr(libraries, "can_be_specialised", lambda: True)
    monkeypatch.setattr(libraries, "recipe", lambda: "recipe")
    monkeypatch.setattr(Libraries, "_build", lambda self, path, control: path.write_bytes(b""))
    result = Libraries(TINY, "row", CLOCKED, COMPUTED)
    general = result.of_every_instruction()
    assert [result.of({5: 60}), result.of({7: 60}), result.of({5: 30, 7: 30})] == [general] * 3
    special = result.of({5: 60})
    assert special.name.endswith("-5.so")
    assert special.parent == general.parent
    assert [path.name for path in cache_folder().glob("*-*-*.so")] == [special.name]
    assert Libraries(TINY, "row", CLOCKED, COMPUTED).of({5: 1}) == special
    monkeypatch.setattr(libraries, "can_be_specialised", lambda: False)
    assert Libraries(TINY, "row", CLOCKED, COMPUTED).of({9: 1000}) == general
