"""The simulated hardware as a back end equals the golden model, in both simulators, and is compiled only once."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from sptc.api.backends import backend
from sptc.errors import BackendError
from sptc.golden.matrix import multiply
from sptc.infra.cache import cache_folder
from sptc.isa.instructions import ARCHITECTURES, Instruction, every_instruction, parse
from sptc.isa.operands import MatrixOperands, Product
from sptc.operands.registers import gather_warp
from sptc.rtl.config import PRESETS
from sptc.sim.benches.random_operands import distributions, random_operands
from sptc.sim.engine.compiled_row import row_constants
from sptc.sim.engine.driver import driver
from sptc.sim.engine.engine import Engine, engine, multiply_with
from sptc.sim.engine.fingerprint import fingerprint
from sptc.sim.engine.libraries import Libraries
from sptc.sim.engine.steps import step_count
from sptc.tests.sim.matrices import matrices

Random = np.random.Generator
TINY = PRESETS["tiny"]
F16 = "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
HALF = "mma.sp.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16"
DENSE = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
INTEGER = "mma.sp.sync.aligned.m16n8k64.row.col.satfinite.s32.s8.s8.s32"


def of_architecture(arch: str) -> list[Instruction]:
    return [i for i in every_instruction("mma") if arch in i.architectures]


def check(product: Product, d: NDArray, where: str) -> None:
    """Compare the result of a product with `d`, and the flags of each instruction along K with its metadata rule."""
    np.testing.assert_array_equal(product.d, d, err_msg=where)
    assert product.flags
    for step in product.flags:
        if rule := step.instruction.rule:
            np.testing.assert_array_equal(step.illegal, ~np.isin(step.nibbles, [*rule.legal]), err_msg=where)


@pytest.mark.regression
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_mma_equals_the_golden_model(rng: Random, arch: str) -> None:
    cases = [(i, kind) for i in of_architecture(arch) for kind in distributions(i)]
    assert len(cases) > 400
    for i, kind in cases:
        selector = int(rng.integers(i.sparsity_selectors))
        operands = gather_warp(i, random_operands(i, kind, 2, rng, sparsity_selector=selector, any_nibble=True))
        check(backend("rtl").multiply(i, arch, operands), multiply(i, arch, operands), f"{i}, {kind}, {arch}")


def test_every_mma_of_the_tiny_datapath_equals_the_golden_model(rng: Random) -> None:
    held = [i for i in of_architecture("sm_80") if TINY.holds(i)]
    assert len(held) > 20
    for i in held:
        kind = str(rng.choice(distributions(i)))
        operands = matrices(i, (2, 4, 6), kind, rng)
        result = engine(TINY).multiply(i, operands)
        np.testing.assert_array_equal(result.d, multiply(i, "sm_80", operands), err_msg=f"{i}, {kind}")
        np.testing.assert_array_equal(result.illegal, undefined(i, operands), err_msg=f"{i}, {kind}")


def undefined(i: Instruction, operands: MatrixOperands) -> NDArray[np.bool_]:
    """Return a mask of the chunks with an undefined nibble. The mask is empty for a dense instruction."""
    if not i.rule:
        return np.zeros((*operands.c.shape[:2], 0), np.bool_)
    return ~np.isin(operands.nibbles, [*i.rule.legal])


def test_many_tiles_and_any_shape(rng: Random, monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of any size are right, also if the outputs are computed in several blocks. Operands are not changed."""
    i = parse(F16)
    operands = matrices(i, (20, 24, 13), "wide", rng)
    monkeypatch.setattr("sptc.sim.engine.engine._BLOCK_OUTPUTS", 7 * 24 * 13)
    before = [operand.copy() for operand in (operands.a, operands.b, operands.c, operands.nibbles)]
    result = engine(TINY).multiply(i, operands)
    np.testing.assert_array_equal(result.d, multiply(i, "sm_80", operands))
    assert result.d.dtype == np.uint32
    np.testing.assert_array_equal(result.illegal, undefined(i, operands))
    for operand, copy in zip((operands.a, operands.b, operands.c, operands.nibbles), before, strict=True):
        np.testing.assert_array_equal(operand, copy)


@pytest.mark.parametrize("saturate", [True, False])
@pytest.mark.parametrize("sign", [1, -1])
def test_only_the_last_step_clamps(saturate: bool, sign: int) -> None:
    """A sum exceeds 32 bits after the first of two steps, but not after the second, so only the last step may clamp."""
    i = parse(f"mma.sync.aligned.m16n8k32.row.col.{'satfinite.' * saturate}s32.s8.s8.s32")
    a = np.full((1, 16, 32), 100, np.int8).view(np.uint8)
    b = np.full((1, 32, 8), sign * 100, np.int8)
    b[:, 16:] = -sign * 100
    b[:, 16:, 0] = sign * 100  # in column 0, the second step leaves the sum beyond 32 bits
    c = np.full((1, 16, 8), 2**31 - 1 if sign > 0 else -(2**31), np.int32).view(np.uint32)
    result = engine(TINY).multiply(i, MatrixOperands(a, b.view(np.uint8), c))
    assert step_count(TINY, i) == 2
    limit = c[0, 0, 0]
    beyond = limit if saturate else np.uint32((int(limit) + sign * 32 * 100 * 100) & 0xFFFFFFFF)
    assert (result.d[:, :, 1:] == limit).all()
    assert (result.d[:, :, 0] == beyond).all()


def test_a_product_has_the_flags_of_every_step(rng: Random) -> None:
    i = parse(F16)
    parts = [matrices(i, (2, 4, 3), "mid", rng) for _ in range(3)]
    a, nibbles = (np.concatenate([getattr(part, name) for part in parts], axis=2) for name in ("a", "nibbles"))
    operands = MatrixOperands(a, np.concatenate([part.b for part in parts], axis=1), parts[0].c, nibbles)
    product = multiply_with(engine(TINY).multiply, TINY, i, "sm_80", operands)
    np.testing.assert_array_equal(product.d, multiply(i, "sm_80", operands))
    assert product.flags
    for step, part in zip(product.flags, parts, strict=True):
        np.testing.assert_array_equal(step.illegal, undefined(i, part))
        np.testing.assert_array_equal(step.nibbles, part.nibbles)


@pytest.fixture(scope="module")
def model() -> Path:
    """Path of the compiled row of preset tiny, in the cache that all tests share."""
    engine(TINY)
    clocked = driver("row.cpp", row_constants(TINY), top="row")
    return cache_folder() / f"row-{fingerprint(TINY, clocked)}.so"


@pytest.fixture
def kept(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of a cache that contains the compiled row of preset tiny. Building another model raises an error."""
    folder = tmp_path / "kept"
    folder.mkdir()
    shutil.copy(model, folder)
    monkeypatch.setenv("SPTC_CACHE", str(folder))

    def refuse(*_: object) -> None:
        raise AssertionError("built again")

    monkeypatch.setattr(Libraries, "_build", refuse)
    return folder


def test_a_cached_model_is_used_again(kept: Path) -> None:
    (library,) = kept.glob("row-*.so")
    before = library.stat()
    Engine(TINY)
    assert [*kept.glob("*.so")] == [library]
    assert library.stat().st_mtime_ns == before.st_mtime_ns
    with pytest.raises(AssertionError, match="built again"):  # another configuration needs another build
        Engine(replace(TINY, cuts=("reduce",)))


def test_presets_with_one_datapath_share_a_model(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Presets with the same datapath share one library. In this test, a copy of tiny's library replaces each build."""
    built = []

    def build(of: Libraries, to: Path, control: int | None) -> None:
        assert control is None
        built.append(of._config.name)
        shutil.copy(model, to)

    monkeypatch.setenv("SPTC_CACHE", str(tmp_path))
    monkeypatch.setattr(Libraries, "_build", build)
    for name in ("blackwell", "rtx-blackwell", "hopper"):
        Engine(PRESETS[name])
    assert built == ["blackwell", "hopper"]


@pytest.mark.quick_cases(2)
@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize("text", [F16, HALF, DENSE, INTEGER])
def test_both_simulators_agree_on_tiny(rng: Random, text: str) -> None:
    i = parse(text)
    compiled, simulated = Engine(TINY), engine(TINY, "amaranth")
    for kind in (distributions(i)[0], distributions(i)[-1]):
        operands = matrices(i, (1, 4, 4), kind, rng)
        here, there = simulated.multiply(i, operands), compiled.multiply(i, operands)
        np.testing.assert_array_equal(here.d, there.d)
        np.testing.assert_array_equal(here.illegal, there.illegal)
        np.testing.assert_array_equal(here.illegal, undefined(i, operands))
        np.testing.assert_array_equal(here.d, multiply(i, "sm_80", operands))


@pytest.mark.usefixtures("kept")
def test_only_amaranths_simulator_writes_waves(rng: Random, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BackendError, match="pysim"), Engine(TINY).waves(tmp_path / "none.vcd"):
        pass
    simulated, i = engine(TINY, "amaranth"), parse(F16)
    with simulated.waves(Path("-")):
        simulated.multiply(i, matrices(i, (1, 1, 1), distributions(i)[0], rng))
    print("report")
    assert re.fullmatch(r"(?s)\$comment Generated by Amaranth .*\n#\d+\n(.*\n)?report\n", capsys.readouterr().out)
