"""Replays of register files find all differences, report the right positions, and run as many tiles as allowed."""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sptc
from sptc.isa.evidence import Evidence
from sptc.isa.fragments import accumulator_fragment
from sptc.isa.instructions import parse
from sptc.isa.tensor_memory import accumulator_map, layout_for
from sptc.rtl.config import PRESET_OF_ARCHITECTURE
from sptc.tests.verify.register_files import PAIR, STATIONARY, TCGEN05, Random, tensor_memory_file
from sptc.verify.dot_products import read as read_sets
from sptc.verify.dot_products import shipped_dot_products
from sptc.verify.register_file import RegisterFile, write
from sptc.verify.replay import Mismatch, _replayed, replay
from sptc.verify.stimulus import random_register_file
from sptc.verify.tensor_memory_file import TensorMemoryFile

F32 = "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
F16 = "mma.sp.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16"
S32 = "mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32"
WGMMA = "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16"
SHIFTED = f"{TCGEN05}.ashift"
TCGEN05_SCALED = "tcgen05.mma.sp.cta_group::1.kind::mxf8f6f4.block_scale"


def recording(text: str, cases: int, rng: Random, *, any_nibble: bool = False) -> RegisterFile:
    instruction = parse(text)
    distribution = "uniform" if instruction.a.is_integer else "mid"
    file = random_register_file(instruction, "sm_90", distribution, cases, rng, any_nibble=any_nibble)
    return replace(file, d=file.run(), metadata="silicon" if any_nibble else "strict")


def flipped(file: Any, *places: tuple[int, ...]) -> Any:
    """Return a file in which bits of D are flipped: (case, thread, register, bit) or (case, CTA, lane, column, bit)."""
    d = file.d.copy()
    words = d if isinstance(file, RegisterFile) else d.reshape(file.cases, -1, 128, 512)
    for *place, bit in places:
        words[tuple(place)] ^= np.uint32(1 << bit)
    return replace(file, d=d)


def test_a_flipped_bit_is_found(tmp_path: Path, rng: Random) -> None:
    for text in (F32, F16, S32, WGMMA):
        file = recording(text, 3, rng)
        fragment, width = accumulator_fragment(file.instruction), file.instruction.d.bits
        place = thread, register, part = tuple(int(rng.integers(size)) for size in fragment.rows.shape)
        bit = int(rng.integers(width))
        write(tmp_path / "file.npz", flipped(file, (1, thread, register, part * width + bit)))
        (outcome,) = replay(tmp_path / "file.npz")
        first, case = outcome.first, f"{text}, thread {thread}, register {register}, bit {part * width + bit}"
        assert first is not None, case
        assert (outcome.instruction, outcome.tiles, outcome.mismatches) == (file.instruction, file.cases, 1), case
        assert (first.case, first.row, first.column) == (1, fragment.rows[place], fragment.columns[place]), case
        assert first.computed ^ first.expected == 1 << bit, case
        assert first.computed == int(file.d[1, thread, register]) >> part * width & (1 << width) - 1, case


def test_several_mismatches(tmp_path: Path, rng: Random) -> None:
    """An output with several wrong bits is one mismatch. The first mismatch has the lowest case, row and column."""
    places = ((2, 0, 0, 0), (1, 13, 3, 4), (1, 13, 3, 5), (1, 12, 3, 0), (1, 4, 2, 0))
    file = recording(F32, 4, rng)
    write(tmp_path / "file.npz", replace(file, d=None))
    (outcome,) = replay(tmp_path / "file.npz")
    assert (outcome.tiles, outcome.outputs, outcome.mismatches, outcome.first) == (4, 0, 0, None)
    write(tmp_path / "file.npz", flipped(file, *places))
    (outcome,) = replay(tmp_path / "file.npz")
    assert outcome.mismatches == 4
    assert (outcome.first.case, outcome.first.row, outcome.first.column) == (1, 9, 0)


#: Masks of the bits inverted in D as recorded, as computed by the back end, and by the golden model; then the expected
#: reference of the mismatch for a file with D and for a file without D.
DISAGREEMENTS = [
    (0, 0, 0, None, None), (1, 0, 0, "recorded", None), (0, 1, 0, "recorded", "golden model"),
    (0, 0, 1, "golden model", "golden model"), (1, 1, 0, "golden model", "golden model"),
    (1, 0, 1, "recorded", "golden model"), (1, 2, 4, "recorded", "golden model"),
]  # fmt: skip


@pytest.mark.parametrize("kind", ["registers", "tensor memory", "beside D", "dot products"])
def test_recording_backend_and_model_are_compared(kind: str, rng: Random, monkeypatch: pytest.MonkeyPatch) -> None:
    """An output counts as one mismatch if back end, golden model and recorded D (if present) are not all equal."""
    file: Any
    if kind == "registers":
        file = recording(F32, 3, rng)
    elif kind in ("tensor memory", "beside D"):
        file = tensor_memory_file(TCGEN05, rng)
    else:
        path, _ = shipped_dot_products()
        file = read_sets(path)[0].take(slice(3))
    correct = file.run()
    place = {"registers": (2, 0, 0), "tensor memory": (2, 0, 256), "beside D": (2, 0, 17), "dot products": (2,)}[kind]

    def with_bits(bits: int) -> np.ndarray:
        changed = correct.copy()
        changed[place] ^= correct.dtype.type(bits)
        return changed

    for backend, (recorded, computed, golden, first, without) in itertools.product(("rtl", "native"), DISAGREEMENTS):
        results = with_bits(golden), with_bits(computed)
        monkeypatch.setattr(type(file), "run", lambda _, backend, results=results: results[backend != "golden"])
        every = [(with_bits(recorded), first), (None, without)]
        for d, reference in every[: 1 if kind == "dot products" else 2]:  # dot products always have a recorded D
            outcome = _replayed(Path("file.npz"), replace(file, d=d), backend)
            case = f"{kind}, {backend}, bits {recorded}, {computed}, {golden}, {'no ' * (d is None)}recording"
            assert outcome.mismatches == (reference is not None), case
            assert (outcome.first.reference if outcome.first else None) == reference, case
            if outcome.first:
                difference = computed ^ (recorded if reference == "recorded" else golden)
                assert outcome.first.computed ^ outcome.first.expected == difference, case
                assert outcome.first.case == 2, case
    elsewhere = correct.copy()
    elsewhere[(0, *place[1:])] ^= correct.dtype.type(1)
    monkeypatch.setattr(type(file), "run", lambda _, backend: elsewhere if backend == "golden" else correct)
    outcome = _replayed(Path("file.npz"), replace(file, d=with_bits(1)), "native")
    assert outcome.mismatches == 2
    assert (outcome.first.case, outcome.first.reference) == (2, "recorded")


def test_the_hardware_computes_tiles_of_several_blocks(rng: Random, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sptc.sim.engine.engine._BLOCK_OUTPUTS", 3 * 128)
    for tiles in (3, 4, 8):
        file = recording(F32, tiles, rng)
        np.testing.assert_array_equal(file.run("rtl"), file.d, f"{tiles} tiles")


def test_a_limit_draws_distinct_tiles(tmp_path: Path, rng: Random) -> None:
    """A replay with a limit runs distinct tiles. Tile i has 2**i wrong outputs, so the total shows which tiles ran."""
    file, marked = recording(F32, 7, rng), tmp_path / "marked.npz"
    registers = [(thread, register) for thread in range(32) for register in range(4)]
    write(marked, flipped(file, *[(case, *place, 0) for case in range(7) for place in registers[: 1 << case]]))
    for limit in range(1, 7):
        drawn = []
        for seed in range(8):
            (outcome,) = replay(marked, limit=limit, seed=seed)
            assert [outcome] == list(replay(marked, limit=limit, seed=seed))
            assert (outcome.tiles, outcome.outputs) == (limit, limit * 128)
            assert outcome.mismatches.bit_count() == limit
            assert outcome.first.case == 0
            drawn.append(outcome.mismatches)
        assert len(set(drawn)) > 1
        assert replay(marked, limit=limit)[0].mismatches == drawn[0]
    assert replay(marked, limit=7, seed=3) == replay(marked, limit=100) == replay(marked)
    assert replay(marked)[0].mismatches == 127


def test_another_architecture_or_policy(tmp_path: Path, rng: Random) -> None:
    write(tmp_path / "file.npz", recording(F32, 50, rng))
    (outcome,) = replay(tmp_path / "file.npz", arch="sm_80")
    assert (outcome.arch, outcome.evidence) == ("sm_80", Evidence.MODELLED)
    assert 0 < outcome.mismatches < outcome.outputs
    file = recording(F32, 4, rng, any_nibble=True)
    write(tmp_path / "silicon.npz", file)
    write(tmp_path / "strict.npz", replace(file, metadata="strict"))
    assert replay(tmp_path / "silicon.npz")[0].mismatches == 0
    assert replay(tmp_path / "strict.npz", metadata="silicon")[0].mismatches == 0
    for name, policy in (("silicon", "strict"), ("silicon", "software"), ("strict", None)):
        with pytest.raises(sptc.MetadataError, match="breaks the ordered rule"):
            replay(tmp_path / f"{name}.npz", metadata=policy)


def test_tensor_memory_agrees(tmp_path: Path, rng: Random, monkeypatch: pytest.MonkeyPatch) -> None:
    # Without block scales, the datapath of hopper has the numerics of sm_100, and other tests build it anyway.
    monkeypatch.setitem(PRESET_OF_ARCHITECTURE, "sm_100", "hopper")
    for text in (TCGEN05, PAIR, TCGEN05_SCALED, STATIONARY, SHIFTED):
        file = tensor_memory_file(text, rng, cases=2)
        write(tmp_path / "file.npz", file)
        (outcome,) = replay(tmp_path / "file.npz", backend="native" if text == TCGEN05_SCALED else "rtl")
        i = file.instruction
        assert outcome.name == f"{text} (m{i.m}n{i.n}k{i.k}.{i.shape_and_types.partition('.')[2]})"
        assert (outcome.instruction, outcome.arch, outcome.evidence) == (i, "sm_100", Evidence.MODELLED), text
        assert (outcome.tiles, outcome.outputs) == (2, 2 * i.m * i.n), text
        assert (outcome.mismatches, outcome.first) == (0, None), text


def test_a_flipped_bit_of_d_in_tensor_memory(tmp_path: Path, rng: Random) -> None:
    f16, f32 = ({"d": name} for name in ("f16", "f32"))
    for text, attributes in ((TCGEN05, f16), (TCGEN05, f32), (PAIR, f32), (STATIONARY, {"m": 32})):
        file = tensor_memory_file(text, rng, **attributes)
        i = file.instruction
        where = accumulator_map(layout_for(file.opcode, i.m), i.n, i.d.bits, 256)
        row, column, bit = (int(rng.integers(size)) for size in (i.m, i.n, i.d.bits))
        cta, local = divmod(row, len(where.lanes))
        place = where.lanes[local, column], where.columns[local, column]
        write(tmp_path / "file.npz", flipped(file, (1, cta, *place, bit), (0, 0, 0, 0, 0)))
        (outcome,) = replay(tmp_path / "file.npz")
        first = outcome.first
        assert first is not None, text
        assert outcome.mismatches == 2, text
        actual = (first.case, first.row, first.column, first.cta, first.reference)
        assert actual == (1, row, column, None, "recorded"), text
        assert first.computed ^ first.expected == 1 << bit, text


def test_a_change_beside_d_is_found(tmp_path: Path, rng: Random) -> None:
    for text, place in (
        (TCGEN05, (1, 0, 5, 17, 3)),  # a column far from D
        (TCGEN05, (1, 0, 127, 256 + 16, 31)),  # the first column after D
        (TCGEN05, (1, 0, 5, 256 + 2, 16)),  # the unused half of a word that holds an f16 of D
        (PAIR, (1, 1, 5, 511, 0)),
        (SHIFTED, (1, 0, 5, 64 + 7, 9)),  # a column of A, which the instruction shifts by one lane
    ):
        file = tensor_memory_file(text, rng, d="f16")
        write(tmp_path / "file.npz", flipped(file, place))
        (outcome,) = replay(tmp_path / "file.npz")
        case, cta, lane, column, bit = place
        assert (outcome.tiles, outcome.outputs, outcome.mismatches) == (3, 3 * file.instruction.m * 16, 1), place
        mask = 0xFFFF0000 if 256 <= column < 272 else 0xFFFFFFFF
        shift = int(text == SHIFTED)
        before = int(file.tmem.reshape(3, -1, 128, 512)[case, cta, lane + shift, column]) & mask
        assert outcome.first == Mismatch(case, lane, column, before, before ^ 1 << bit, "recorded", cta), place


def test_an_instruction_that_changes_more_than_d(tmp_path: Path, rng: Random, monkeypatch: pytest.MonkeyPatch) -> None:
    run = TensorMemoryFile.run

    def spilling(file: TensorMemoryFile, backend: str = "golden") -> np.ndarray:
        result = run(file, backend)
        result[0, 3, 255] += np.uint32(1)
        return result

    file = tensor_memory_file(TCGEN05, rng)
    before = int(file.tmem[0, 3, 255])
    monkeypatch.setattr(TensorMemoryFile, "run", spilling)
    for d in (spilling(file), None):
        write(tmp_path / "file.npz", replace(file, d=d))
        (outcome,) = replay(tmp_path / "file.npz")
        assert outcome.mismatches == 1
        assert outcome.first == Mismatch(0, 3, 255, (before + 1) % 2**32, before, "before the instruction", 0)
