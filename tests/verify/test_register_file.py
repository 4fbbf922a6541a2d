"""Register files: what is written comes back, and what is no register file is refused in one line that names it."""

import gc
import io
import re
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sptc
from sptc.isa.instructions import parse
from sptc.sim.benches.random_operands import random_operands
from sptc.verify.register_file import RegisterFile, read, shipped, write

SPARSE = "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
DENSE = "mma.sync.aligned.m8n8k16.row.col.satfinite.s32.s8.u8.s32"
SCALED = (
    "mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.kind::mxf4nvf4.block_scale.scale_vec::2X"
    ".f32.e2m1.e2m1.f32.ue8m0"
)
WGMMA = "wgmma.mma_async.sp.sync.aligned.m64n8k32.f16.f16.f16"
ARRAYS = ("a", "b", "c", "d", "e", "scale_a", "scale_b", "a_descriptor", "b_descriptor")
SETTINGS = ("instruction", "sparsity_selector", "arch", "metadata", "scale_ids", "scale_d", "imm_scale", "imm_trans")

Random = np.random.Generator


def random_file(text: str, rng: Random, cases: int = 3) -> RegisterFile:
    """Random tiles; D is as random, since a file may record anything."""
    instruction = parse(text)
    if text == WGMMA:
        shapes = {"a": (cases, 128, 4), "b": (cases, 128), "c": (cases, 128, 2), "d": (cases, 128, 2)}
        arrays = {name: rng.integers(0, 1 << 32, shape, dtype=np.uint32) for name, shape in shapes.items()}
        e = np.full((cases, 128), 0x44444444, np.uint32)
        descriptors = rng.integers(0, 1 << 63, cases, dtype=np.uint64)
        return RegisterFile(instruction=instruction, sparsity_selector=1, e=e, b_descriptor=descriptors, **arrays)
    sparsity_selector = instruction.sparsity_selectors - 1
    distribution = "uniform" if instruction.a.is_integer else "mid"
    drawn = random_operands(instruction, distribution, cases, rng, sparsity_selector=sparsity_selector)
    options: dict[str, Any] = {}
    if drawn.scale_a and drawn.scale_b:
        (data_a, *ids_a), (data_b, *ids_b) = drawn.scale_a, drawn.scale_b
        options = {"scale_a": data_a, "scale_b": data_b, "scale_ids": (*ids_a, *ids_b), "arch": "sm_120"}
    d = rng.integers(0, 1 << 32, drawn.c.shape, dtype=np.uint32)
    operands = {"a": drawn.a, "b": drawn.b, "c": drawn.c, "e": drawn.e}
    return RegisterFile(instruction=instruction, sparsity_selector=sparsity_selector, d=d, **operands, **options)


def assert_same(one: RegisterFile, other: RegisterFile) -> None:
    for name in SETTINGS:
        assert getattr(one, name) == getattr(other, name), name
    for name in ARRAYS:
        assert np.array_equal(getattr(one, name), getattr(other, name)), name


@pytest.mark.parametrize("text", [SPARSE, DENSE, SCALED, WGMMA])
@pytest.mark.parametrize("kind", [Path, str])
def test_read_returns_what_was_written(text: str, kind: Any, tmp_path: Path, rng: Random) -> None:
    file = random_file(text, rng)
    write(kind(tmp_path / "file.npz"), file)
    found = read(kind(tmp_path / "file.npz"))
    assert_same(found, file)
    assert found.cases == 3
    assert (found.e is None) == (text == DENSE)
    assert (found.scale_a is None) == (found.scale_b is None) == (text != SCALED)


def test_settings_come_back(tmp_path: Path, rng: Random) -> None:
    drawn = random_file(SPARSE, rng)
    operands = {name: getattr(drawn, name) for name in ("instruction", "a", "b", "c", "e")}
    file = RegisterFile(sparsity_selector=0, arch="sm_80", metadata="silicon", **operands)
    write(tmp_path / "file.npz", file)
    found = read(tmp_path / "file.npz")
    assert (found.sparsity_selector, found.arch, found.metadata, found.d) == (0, "sm_80", "silicon", None)
    assert_same(found, file)


def test_the_documented_keys_suffice(tmp_path: Path, rng: Random) -> None:
    """A file made without this package: the keys of the contract, nothing else."""
    file = random_file(SPARSE, rng)
    np.savez(tmp_path / "file.npz", instruction=SPARSE, selector=1, A=file.a, B=file.b, C=file.c, E=file.e)
    found = read(tmp_path / "file.npz")
    assert (found.arch, found.metadata, found.d) == ("sm_90", "strict", None)
    for name in ("a", "b", "c", "e"):
        assert np.array_equal(getattr(found, name), getattr(file, name))


def test_what_is_written_needs_no_package(tmp_path: Path, rng: Random) -> None:
    file = random_file(SCALED, rng)
    write(tmp_path / "file.npz", file)
    found = contents(tmp_path / "file.npz")
    wanted = {"instruction", "selector", "arch", "metadata", "A", "B", "C", "D", "E", "scale_a", "scale_b", "scale_ids"}
    assert found.keys() == wanted
    assert str(found["instruction"]) == SCALED
    assert found["scale_ids"].tolist() == list(file.scale_ids)
    assert all(found[key].dtype == np.uint32 for key in ("A", "B", "C", "D", "E", "scale_a", "scale_b"))


def test_a_dense_instruction_ignores_e(tmp_path: Path, rng: Random) -> None:
    write(tmp_path / "file.npz", random_file(DENSE, rng))
    np.savez(tmp_path / "with_e.npz", **contents(tmp_path / "file.npz"), E=np.zeros(5))
    assert read(tmp_path / "with_e.npz").e is None


@pytest.mark.parametrize("text", [SPARSE, DENSE, SCALED])
def test_run_is_mma(text: str, rng: Random) -> None:
    file = random_file(text, rng)
    byte_a, thread_a, byte_b, thread_b = file.scale_ids
    scales = {} if text != SCALED else {
        "scale_a": (file.scale_a, byte_a, thread_a),
        "scale_b": (file.scale_b, byte_b, thread_b),
    }  # fmt: skip
    expected = sptc.mma(text, file.a, file.b, file.c, file.e, file.sparsity_selector, arch=file.arch, **scales)
    assert np.array_equal(file.run(), expected)


@pytest.mark.parametrize("text", [SPARSE, DENSE, SCALED, WGMMA])
@pytest.mark.parametrize("cases", [slice(1, 4), np.array([4, 0, 0]), slice(0, 0)], ids=str)
def test_take(text: str, cases: Any, rng: Random) -> None:
    file = random_file(text, rng, cases=5)
    taken = file.take(cases)
    assert taken.cases == len(np.arange(5)[cases])
    for name in SETTINGS:
        assert getattr(taken, name) == getattr(file, name)
    for name in ARRAYS:
        whole, part = getattr(file, name), getattr(taken, name)
        assert (part is None) if whole is None else np.array_equal(part, whole[cases])
    assert file.cases == 5


def test_shipped_files_are_listed_in_order() -> None:
    paths = list(shipped())
    assert paths == sorted(paths)
    assert {path.suffix for path in paths} == {".npz"}
    assert all(path.is_file() for path in paths)


def contents(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as archive:
        return {key: archive[key] for key in archive.files}


def refusal(path: Path) -> str:
    """Return the message of the error that reading raises: one line that names the file."""
    with pytest.raises(sptc.Error) as caught:
        read(path)
    assert type(caught.value) is sptc.FileError
    message = str(caught.value)
    assert message.startswith(str(path))
    assert len(message.splitlines()) == 1
    return message.removeprefix(str(path))


@pytest.mark.parametrize("text", [SPARSE, SCALED, WGMMA])
def test_every_key_that_is_missing(text: str, tmp_path: Path, rng: Random) -> None:
    write(tmp_path / "file.npz", random_file(text, rng))
    whole = contents(tmp_path / "file.npz")
    required = {"instruction", "selector", "A", "B", "C", "E"}
    required |= {SCALED: {"scale_a", "scale_b", "scale_ids"}, WGMMA: {"b_descriptor"}}.get(text, set())
    for key in required:
        others = {name: value for name, value in whole.items() if name != key}
        np.savez(tmp_path / "lacking.npz", **others)
        assert refusal(tmp_path / "lacking.npz") == f" lacks the key '{key}'; it holds {', '.join(sorted(others))}"


UINT32_WANTED = r"must be a uint32 array with a leading case axis, not "
STRING_WANTED = r"must be a 0-d string, not "
INTEGER_WANTED = r"must be a 0-d integer, not "
DEFECTS = {
    "instruction as bytes": (SPARSE, "instruction", np.bytes_, "instruction " + STRING_WANTED + r"\|S"),
    "instruction as a list": (SPARSE, "instruction", lambda i: [i], STRING_WANTED + r"<U\d+ of shape \(1,\)"),
    "selector as text": (SPARSE, "selector", str, "selector " + INTEGER_WANTED + "<U1"),
    "selector as a float": (SPARSE, "selector", float, "selector " + INTEGER_WANTED + "float64"),
    "selector as a list": (SPARSE, "selector", lambda s: [s], INTEGER_WANTED + r"int64 of shape \(1,\)"),
    "A of another dtype": (SPARSE, "A", lambda a: a.astype(np.int64), "A " + UINT32_WANTED + "int64"),
    "B of another dtype": (SPARSE, "B", lambda b: b.view(np.float32), "B " + UINT32_WANTED + "float32"),
    "C of another dtype": (SPARSE, "C", lambda c: c.view(np.int32), "C " + UINT32_WANTED + "int32"),
    "D of another dtype": (SPARSE, "D", lambda d: d.view(np.float32), "D " + UINT32_WANTED + "float32"),
    "E of another dtype": (SPARSE, "E", lambda e: e.astype(np.uint16), "E " + UINT32_WANTED + "uint16"),
    "scale of another dtype": (SCALED, "scale_a", lambda s: s.view(np.uint8), "scale_a " + UINT32_WANTED + "uint8"),
    "A of rank 1": (SPARSE, "A", np.ravel, "A " + UINT32_WANTED + r"uint32 of shape \(384,\)"),
    "E of rank 1": (SPARSE, "E", lambda e: e[0], "E " + UINT32_WANTED + r"uint32 of shape \(32,\)"),
    "B of rank 0": (SPARSE, "B", lambda b: b[0, 0, 0], "B " + UINT32_WANTED + r"uint32 of shape \(\)"),
    "scale of rank 1": (SCALED, "scale_b", lambda s: s[0], "scale_b " + UINT32_WANTED + r"uint32 of shape \(32,\)"),
    "A with two case axes": (SPARSE, "A", lambda a: a[:, None], r"A .*\(3, 1, 32, 4\)"),
    "E with two case axes": (SPARSE, "E", lambda e: e[:, None], r"E .*\(3, 1, 32\)"),
    "A of fewer cases": (SPARSE, "A", lambda a: a[:2], r"disagree .* cases \(A 2, B 3, C 3, D 3, E 3\)"),
    "E of one case": (SPARSE, "E", lambda e: e[:1], r"disagree .* cases \(A 3, B 3, C 3, D 3, E 1\)"),
    "scale of more cases": (SCALED, "scale_b", lambda s: s.repeat(2, 0), r"disagree .*, scale_a 3, scale_b 6\)"),
    "smem of fewer cases": (WGMMA, "B", lambda b: b[1:], r"disagree .* cases \(A 3, B 2, C 3, D 3, E 3\)"),
    "no cases": (SPARSE, "A", lambda a: a[:0], "holds no cases"),
    "D of another shape": (SPARSE, "D", lambda d: d[..., :2], r"D .* \(3, 32, 2\), but C has \(3, 32, 4\)"),
    "unknown policy": (SPARSE, "metadata", lambda m: "lax", "metadata must be .*'silicon', not 'lax'"),
    "policy as a number": (SPARSE, "metadata", lambda m: 1, "metadata " + STRING_WANTED + "int64"),
    "architecture as a number": (SPARSE, "arch", lambda a: 90, "arch " + STRING_WANTED + "int64"),
    "three scale ids": (SCALED, "scale_ids", lambda i: i[:3], r"four integers, not int64 of shape \(3,\)"),
    "scale ids as floats": (SCALED, "scale_ids", lambda i: i + 0.5, "four integers, not float64"),
    "scale ids as text": (SCALED, "scale_ids", lambda i: "0 0 0 0", "four integers, not <U7"),
    "descriptor as a float": (WGMMA, "b_descriptor", lambda d: d + 0.5, "must be one integer or .*float64"),
    "two descriptors": (WGMMA, "b_descriptor", lambda d: d[:2], r"of 3 cases, not uint64 of shape \(2,\)"),
    "scale-d of 2": (WGMMA, "scale_d", lambda s: 2, "scale_d must be 0 or 1, not int64"),
    "one imm-scale": (WGMMA, "imm_scale", lambda s: s[:1], r"imm_scale must be two integers, .*\(1,\)"),
    "imm-trans as floats": (WGMMA, "imm_trans", lambda s: s + 0.5, "imm_trans must be two integers, not float64"),
    "object array": (SPARSE, "A", lambda a: np.array([None]), "not a readable .npz register file"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "key", "change", "words"), DEFECTS.values(), ids=DEFECTS.keys())
def test_a_planted_defect(text: str, key: str, change: Any, words: str, tmp_path: Path, rng: Random) -> None:
    write(tmp_path / "file.npz", random_file(text, rng))
    whole = contents(tmp_path / "file.npz")
    changed = change(whole[key] if whole[key].ndim else whole[key].item())
    np.savez(tmp_path / "defect.npz", **whole | {key: changed})
    message = refusal(tmp_path / "defect.npz")
    assert re.search(words, message), message


def test_an_unknown_key_on_two_lines(tmp_path: Path) -> None:
    np.savez(tmp_path / "file.npz", **{"two\nlines": 0})
    assert "lacks the key 'instruction'" in refusal(tmp_path / "file.npz")


def test_an_instruction_that_does_not_parse(tmp_path: Path, rng: Random) -> None:
    write(tmp_path / "file.npz", random_file(SPARSE, rng))
    np.savez(tmp_path / "other.npz", **contents(tmp_path / "file.npz") | {"instruction": "fma.rn.f32"})
    with pytest.raises(sptc.InstructionError, match=r"'fma' in 'fma\.rn\.f32' is no known opcode"):
        read(tmp_path / "other.npz")


def refusal_of_closed(path: Path) -> str:
    """Return the message, and see that the file was closed."""
    with warnings.catch_warnings(record=True) as left_open:
        warnings.simplefilter("always")
        message = refusal(path)
        gc.collect()
    assert not left_open, [str(warning.message) for warning in left_open]
    return message


NOT_FILES = {
    "missing": (lambda path: None, "does not exist"),
    "a directory": (Path.mkdir, "not a readable .npz"),
    "empty": (Path.touch, "not a readable .npz"),
    "text": (lambda path: path.write_text("A, B\n1, 2\n"), "not a readable .npz"),
    "a pickle": (lambda path: path.write_bytes(b"\x80\x04]\x94."), "not a readable .npz"),
    "a single array": (lambda path: path.write_bytes(single_array()), "single array, not an .npz register file"),
    "an archive of nothing": (lambda path: zipfile.ZipFile(path, "w").close(), "lacks the key 'instruction'"),
    "an archive of text": (
        lambda path: archive(path, "notes.txt", b"hello"),
        r"not a readable \.npz register file \('notes\.txt' is no array\)$",
    ),
    "no array inside": (lambda path: archive(path, "A.npy", b"hello"), r"not a readable \.npz register file \(EOF"),
    "a broken header": (lambda path: archive(path, "A.npy", header(b"{'descr': '<u4', 'shape': (3,")), "readable"),
    "an enormous array": (lambda path: archive(path, "A.npy", header(ENORMOUS)), "readable"),
}
ENORMOUS = b"{'descr': '<u4', 'fortran_order': False, 'shape': (99999999999999, 32, 4)}"


def single_array() -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.zeros(3))
    return stream.getvalue()


def archive(path: Path, name: str, data: bytes) -> None:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(name, data)


def header(text: bytes) -> bytes:
    """The start of an .npy file."""
    return b"\x93NUMPY\x01\x00" + (128).to_bytes(2, "little") + text.ljust(127) + b"\n"


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize(("make", "words"), NOT_FILES.values(), ids=NOT_FILES.keys())
def test_what_is_no_register_file(make: Any, words: str, tmp_path: Path) -> None:
    path = tmp_path / "file.npz"
    make(path)
    message = refusal_of_closed(path)
    assert re.search(words, message), message


@pytest.mark.parametrize("share", [0.001, 0.1, 0.5, 0.9, 0.999])
def test_a_truncated_file(share: float, tmp_path: Path, rng: Random) -> None:
    write(tmp_path / "file.npz", random_file(SPARSE, rng))
    octets = (tmp_path / "file.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(octets[: int(share * len(octets))])
    assert "not a readable .npz register file" in refusal_of_closed(tmp_path / "cut.npz")


DAMAGES = {
    "checksum": (b"PK\x01\x02", 16, 0xFF),
    "encryption flag": (b"PK\x01\x02", 8, 0x01),
    "compression method": (b"PK\x01\x02", 10, 0x05),
    "version": (b"PK\x01\x02", 6, 0xFF),
    "compressed data": (b"instruction.npy", 40, 0xFF),
}


@pytest.mark.parametrize(("landmark", "offset", "bits"), DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_file(landmark: bytes, offset: int, bits: int, tmp_path: Path, rng: Random) -> None:
    """A byte of the archive's directory, or of its compressed data, is another."""
    write(tmp_path / "file.npz", random_file(SPARSE, rng))
    octets = bytearray((tmp_path / "file.npz").read_bytes())
    octets[octets.index(landmark) + offset] ^= bits
    (tmp_path / "damaged.npz").write_bytes(octets)
    assert "not a readable .npz register file" in refusal_of_closed(tmp_path / "damaged.npz")


def test_a_name_that_no_file_can_have() -> None:
    with pytest.raises(sptc.FileError, match=r"^x+ does not exist$"):
        read("x" * 300)
