"""Conformance packs distinguish the right model from wrong models, and identify a wrong model by its results."""

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sptc.errors import FileError
from sptc.isa.fragments import accumulator_fragment
from sptc.isa.names import subject_named
from sptc.operands.registers import to_registers
from sptc.operands.tensor_memory import scatter_tensor
from sptc.tests.verify.register_files import contents
from sptc.verify import conformance
from sptc.verify.conformance import MOST_CASES, Pack, choose_pack, judge, read_pack, read_results, write_pack
from sptc.verify.neighbours import Model, neighbours_of, right_model
from sptc.verify.pack_files import given_of
from sptc.verify.register_file import RegisterFile
from sptc.verify.replay import replay
from sptc.verify.tensor_memory_file import TensorMemoryFile

#: Instructions of every method and family, with architectures. Every kind of wrong model (neighbour) occurs among them.
FUSED = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
SUBJECTS = [
    (FUSED, "sm_80"),
    ("mma.sp.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32", "sm_90"),
    ("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", "sm_90"),
    ("mma.sp.sync.aligned.m16n8k64.row.col.f32.e4m3.e5m2.f32", "sm_90"),
    ("mma.sp.sync.aligned.m16n8k64.row.col.f32.e4m3.e4m3.f32", "sm_89"),
    ("mma.sp.sync.aligned.m16n8k64.row.col.satfinite.s32.s8.u8.s32", "sm_90"),
    ("mma.sp.sync.aligned.m16n8k128.row.col.s32.u4.u4.s32", "sm_86"),
    ("mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X"
     ".f32.e3m2.e4m3.f32.ue8m0", "sm_120"),
    ("mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.kind::mxf4.block_scale.scale_vec::2X"
     ".f32.e2m1.e2m1.f32.ue8m0", "sm_120"),
    ("wgmma.mma_async.sp.sync.aligned.m64n16k64.f32.e4m3.e4m3", "sm_90"),
    ("wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.bf16.bf16", "sm_90"),
    ("tcgen05.mma.sp.cta_group::1.kind::f16 (m128n8k32.f16.f16.f16)", "sm_100"),
    ("tcgen05.mma.sp.cta_group::1.kind::mxf4nvf4.block_scale.scale_vec::4X (m128n8k128.f32.e2m1.e2m1.ue4m3)", "sm_100"),
]  # fmt: skip


def results_of(pack: Pack, model: Model) -> np.ndarray:
    file = pack.file
    codes = model.multiply(given_of(file))
    if isinstance(file, RegisterFile):
        return to_registers(codes, accumulator_fragment(file.instruction))
    assert isinstance(file, TensorMemoryFile)
    result = file.tmem.copy()
    scatter_tensor(result, file._place_of_d, codes)
    return result


@pytest.fixture(scope="module")
def fused() -> Pack:
    return choose_pack(subject_named(FUSED), "sm_90", 0)


@pytest.mark.quick_cases(5)
@pytest.mark.parametrize(("text", "arch"), SUBJECTS)
def test_every_neighbour_is_distinguished_and_named(text: str, arch: str, seed: int) -> None:
    pack = choose_pack(subject_named(text), arch, seed)
    i = pack.file.instruction
    assert pack.missed == {}
    assert pack.file.cases <= MOST_CASES
    assert judge(pack, pack.file.d).right
    applicable = {neighbour.name: neighbour for neighbour in neighbours_of(i, arch) if not neighbour.same}
    assert set(pack.told_apart) == applicable.keys()
    assert pack.same.keys() == {neighbour.name for neighbour in neighbours_of(i, arch)} - applicable.keys()
    for told in pack.neighbours:
        verdict = judge(pack, results_of(pack, applicable[told.name]))
        assert verdict.differing == sum(told.outputs) > 1
        assert sum(map(bool, told.outputs)) > 1
        assert told.name in verdict.explained_by
        assert {*verdict.explained_by} in ([set(names) for names in pack.alike if told.name in names] or [{told.name}])
        assert verdict.explained == verdict.outputs


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(("text", "arch"), [SUBJECTS[0], SUBJECTS[9], SUBJECTS[11]])
def test_a_pack_is_a_register_file(text: str, arch: str, tmp_path: Path) -> None:
    first, second = tmp_path / "first.npz", tmp_path / "second.npz"
    for path in (first, second):
        write_pack(path, choose_pack(subject_named(text), arch, 3))
    assert first.read_bytes() == second.read_bytes()
    other = choose_pack(subject_named(text), arch, 4)
    write_pack(second, other)
    assert first.read_bytes() != second.read_bytes()
    [outcome] = replay(second, backend="golden")
    assert (outcome.mismatches, outcome.tiles) == (0, other.file.cases)
    again = read_pack(second)
    for name in ("seed", "candidates", "neighbours", "same", "alike", "missed"):
        assert getattr(again, name) == getattr(other, name)


def test_one_wrong_bit_in_results_of_the_model_or_of_a_neighbour(fused: Pack) -> None:
    d = fused.file.d.copy()
    d[1, 9, 2] ^= 0x80000000
    verdict = judge(fused, d)
    row, column = (int(place[0]) for place in np.nonzero(fused.file.matrix(d)[1] != fused.file.matrix(fused.file.d)[1]))
    first = verdict.first
    assert (verdict.differing, first.case, first.row, first.column) == (1, 1, row, column)
    assert first.computed ^ first.expected == 0x80000000
    assert (verdict.explained_by, verdict.nearest, verdict.explained) == ((), "", verdict.outputs - 1)
    [neighbour] = [each for each in neighbours_of(fused.file.instruction, "sm_90") if each.name == "L = 8"]
    results = results_of(fused, neighbour)
    results[0, 0, 0] ^= 1
    verdict = judge(fused, results)
    assert (verdict.explained_by, verdict.nearest, verdict.explained) == ((), "L = 8", verdict.outputs - 1)


def test_words_beside_d(seed: int) -> None:
    pack = choose_pack(subject_named(SUBJECTS[11][0]), "sm_100", seed)
    d = pack.file.d.copy()
    d[0, 5, 300] ^= 1
    d[0, 5, 0] ^= 0x10000  # above the 16 bits of an element of D
    verdict = judge(pack, d)
    assert (verdict.right, verdict.differing, verdict.beside) == (False, 0, 2)


def test_a_neighbour_that_is_the_right_model_is_not_counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def with_a_double(instruction: object, arch: str) -> tuple[Model, ...]:
        double = replace(right_model(instruction, arch), name="nothing changed")  # type: ignore[arg-type]
        return (*neighbours_of(instruction, arch), double)  # type: ignore[arg-type]

    monkeypatch.setattr(conformance, "neighbours_of", with_a_double)
    monkeypatch.setattr(conformance, "_ROUNDS", 8)
    pack = choose_pack(subject_named(FUSED), "sm_90", 0)
    assert "nothing changed" not in pack.told_apart
    assert pack.missed == {"nothing changed": f"not distinguished by {pack.candidates} candidate tiles"}
    assert pack.candidates > 1000
    write_pack(tmp_path / "pack.npz", pack)
    assert read_pack(tmp_path / "pack.npz").missed == pack.missed


Members = dict[str, np.ndarray]
#: Function that changes the arrays of a conformance pack, and part of the error message.
CHANGES: list[tuple[Callable[[Members], Members], str]] = [
    (lambda m: {key: m[key][:-1] for key in "ABCDE"}, "was changed"),
    (lambda m: {"A": with_first(m["A"], int(m["A"][0, 0, 0]) ^ 1 << 14)}, "D of the test cases of .* is not the"),
    (lambda m: {"D": with_first(m["D"], int(m["D"][0, 0, 0]) ^ 1)}, "D of the test cases of .* is not the"),
    (lambda m: {"conformance": np.array(str(m["conformance"]).replace("F = 24", "F = 23"))}, "was changed"),
    (lambda m: {"conformance": with_another_digest(str(m["conformance"]))}, "was changed"),
    (lambda m: {"A": m["A"][:, :, :-1]}, "a of mma.sp.* must be|a must be"),
    (lambda m: {"selector": np.array(7)}, "selector"),
    (lambda m: {"conformance": np.array("[]")}, "must contain the integers 'seed'"),
]


def with_first(array: np.ndarray, word: int) -> np.ndarray:
    changed = array.copy()
    changed[0, 0, 0] = word
    return changed


def with_another_digest(text: str) -> np.ndarray:
    return np.array(re.sub(r'(?<="sha256": ")\w+', hashlib.sha256(b"").hexdigest(), text))


def test_a_pack_that_was_changed(fused: Pack, tmp_path: Path) -> None:
    path = tmp_path / "pack.npz"
    write_pack(path, fused)
    members = contents(path)
    for number, (change, message) in enumerate(CHANGES):
        np.savez(path, **(members | change(members)))
        with pytest.raises(FileError, match=message):
            pytest.fail(f"change {number} is not detected: {read_pack(path)}")
    for missing in ("D", "conformance"):
        np.savez(path, **{key: array for key, array in members.items() if key != missing})
        with pytest.raises(FileError, match=f"lacks the key '{missing}'"):
            read_pack(path)


def test_formats_of_results(tmp_path: Path, rng: np.random.Generator) -> None:
    d = rng.integers(0, 1 << 32, (2, 32, 4), dtype=np.uint32)
    path = tmp_path / "results"
    with path.open("wb") as file:
        np.savez(file, D=d)
    forms = [None, str(d.tolist()), str(d.ravel().tolist())]
    forms.append(json.dumps([f"{word:08x}" for word in d.ravel()]))
    forms += ["\n".join(f"{word:08x}" for word in d.ravel()), "\n".join(f"0x{word:X}" for word in d.ravel()) + "\n"]
    for text in forms:
        if text is not None:
            path.write_text(text)
        assert (read_results(path, d.shape) == d).all()
    for text, message in (
        ("", "must hold 256 words"), ("12345678\n123456789", "line 2 must be a hexadecimal word"),
        ("0x0X12", "line 1 must be a hexadecimal word"), ("[1, 2]", "must hold 256 words"),
        ("[1, -2]", "must be a JSON list of integers"), ("[4294967296]", "must be a JSON list of integers"),
        ('["12", "x"]', "word 2 must be a hexadecimal word"), ("[[1, 2], [3]]", "must be a JSON list of integers"),
        ("[true]", "must be a JSON list of integers"), ("[1, 2", "is not JSON"), ("PK", "not a readable .npz"),
        ("\ud800", "is neither .npz nor JSON nor hexadecimal words"),
    ):  # fmt: skip
        path.write_text(text, errors="surrogatepass")
        with pytest.raises(FileError, match=message):
            read_results(path, (2, 32, 4))
    path = tmp_path / "results.npz"
    for name, value, message in (
        ("D", np.zeros((2, 32, 2), np.uint32), "D must be a uint32 array of shape"),
        ("D", np.zeros((2, 32, 4)), "D must be a uint32 array of shape"),
        ("E", np.zeros(1), "lacks the key 'D'"),
    ):
        np.savez(path, **{name: value})
        with pytest.raises(FileError, match=message):
            read_results(path, (2, 32, 4))
