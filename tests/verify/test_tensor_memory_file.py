"""Register files of tcgen05.mma.sp: what is written comes back, and what is none is refused in one line."""

import re
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sptc
from sptc.isa.tensor_memory import accumulator_map, layout_for
from sptc.verify.register_file import read, write
from sptc.verify.tensor_memory_file import TensorMemoryFile

F16 = "tcgen05.mma.sp.cta_group::1.kind::f16"
PAIR = "tcgen05.mma.sp.cta_group::2.kind::f16.collector::a::use"
SCALED = "tcgen05.mma.sp.cta_group::1.kind::mxf4nvf4.block_scale.block16"
WS = "tcgen05.mma.ws.sp.cta_group::1.kind::i8"
IMAGES = ("tmem", "smem", "d")

Make = Callable[..., TensorMemoryFile]
Random = np.random.Generator


def contents(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as archive:
        return {key: archive[key] for key in archive.files}


def assert_same(one: TensorMemoryFile, other: TensorMemoryFile) -> None:
    assert type(one) is TensorMemoryFile
    for field in fields(TensorMemoryFile):
        mine, its = getattr(one, field.name), getattr(other, field.name)
        assert np.array_equal(mine, its) if field.name in IMAGES else mine == its, field.name


@pytest.mark.parametrize("text", [F16, PAIR, SCALED, WS])
@pytest.mark.parametrize("kind", [Path, str])
def test_read_returns_what_was_written(
    text: str, kind: Any, tensor_memory_file: Make, tmp_path: Path, rng: Random
) -> None:
    file = tensor_memory_file(text, rng)
    write(kind(tmp_path / "file.npz"), file)
    found = read(kind(tmp_path / "file.npz"))
    assert_same(found, file)
    assert found.cases == 3
    np.testing.assert_array_equal(found.run(), file.d)


def test_settings_come_back(tensor_memory_file: Make, tmp_path: Path, rng: Random) -> None:
    settings = {"arch": "sm_120", "metadata": "silicon", "enable_input_d": False, "scale_input_d": 7, "d": None}
    file = replace(tensor_memory_file(F16, rng), **settings)
    write(tmp_path / "file.npz", file)
    found = read(tmp_path / "file.npz")
    assert_same(found, file)
    assert {name: getattr(found, name) for name in settings} == settings


def test_lanes_that_keep_what_they_hold(tensor_memory_file: Make, tmp_path: Path, rng: Random) -> None:
    whole = tensor_memory_file(F16, rng)
    assert whole.d is not None
    file = replace(whole, disable_output_lane=(0xFFFFFFFF, 0, 1, 0))
    write(tmp_path / "file.npz", file)
    found = read(tmp_path / "file.npz")
    assert found.disable_output_lane == file.disable_output_lane
    kept = np.isin(np.arange(128), [*range(32), 64])
    np.testing.assert_array_equal(found.run(), np.where(kept[:, None], whole.tmem, whole.d))


@pytest.mark.parametrize("text", [F16, PAIR])
def test_the_documented_keys_suffice(text: str, tensor_memory_file: Make, tmp_path: Path, rng: Random) -> None:
    """A file made without this package: the keys of the contract, with the axis of the CTAs in front."""
    file = tensor_memory_file(text, rng)
    images = {"tmem": file.tmem, "smem": file.smem}
    if text == PAIR:
        images = {name: np.stack([image[:, 0], image[:, 1]]) for name, image in images.items()}
        assert images["tmem"].shape == (2, 3, 128, 512)
    np.savez(tmp_path / "file.npz", instruction=text, idesc=file.idesc, **file.addresses, **images)
    assert_same(read(tmp_path / "file.npz"), replace(file, d=None))


def test_what_is_written_needs_no_package(tensor_memory_file: Make, tmp_path: Path, rng: Random) -> None:
    write(tmp_path / "file.npz", tensor_memory_file(SCALED, rng))
    found = contents(tmp_path / "file.npz")
    assert found.keys() == {
        "instruction", "idesc", "d", "a", "b", "e", "scale_a", "scale_b", "tmem", "smem", "D",
        "enable_input_d", "scale_input_d", "arch", "metadata",
    }  # fmt: skip
    assert str(found["instruction"]) == SCALED
    assert [found[key].dtype for key in ("tmem", "smem", "D")] == [np.uint32, np.uint8, np.uint32]


@pytest.mark.parametrize("text", [F16, PAIR])
@pytest.mark.parametrize("cases", [slice(1, 4), np.array([4, 0, 0]), slice(0, 0)], ids=str)
def test_take(text: str, cases: Any, tensor_memory_file: Make, rng: Random) -> None:
    file = tensor_memory_file(text, rng, cases=5)
    taken = file.take(cases)
    assert taken.cases == len(np.arange(5)[cases])
    for name in IMAGES:
        np.testing.assert_array_equal(getattr(taken, name), getattr(file, name)[cases])
    assert_same(replace(taken, **{name: getattr(file, name) for name in IMAGES}), file)
    assert replace(file, d=None).take(cases).d is None


def test_run_is_tcgen05_mma(tensor_memory_file: Make, rng: Random) -> None:
    for text, changes in ((F16, {"enable_input_d": False}), (F16, {"scale_input_d": 1}), (SCALED, {}), (PAIR, {})):
        file = tensor_memory_file(text, rng)
        tmem = file.tmem.copy()
        tmem[..., 256:272] = 0x3C00
        file = replace(file, tmem=tmem, **changes)
        axis = 1 if text == PAIR else 0  # of the cases, behind that of the CTAs
        images = {"tmem": np.moveaxis(tmem, 0, axis), "smem": np.moveaxis(file.smem, 0, axis)}
        expected = sptc.tcgen05_mma(text, idesc=file.idesc, **images, **file.addresses, **changes)
        np.testing.assert_array_equal(file.run(), np.moveaxis(expected, axis, 0))


def test_the_policy_reaches_the_instruction(tensor_memory_file: Make, rng: Random) -> None:
    file = tensor_memory_file(F16, rng)
    file.tmem[1, 5, 8] = 0
    with pytest.raises(sptc.MetadataError, match=r"at batch 1, row 5, chunk 0 \(lane 5, column 8, bits 3:0\)"):
        file.run()
    assert file.assuming(None, "silicon").run().shape == file.tmem.shape
    assert file.assuming("sm_80", None).metadata == "strict"


@pytest.mark.parametrize("text", [F16, PAIR, WS])
def test_d_and_what_is_beside_it(text: str, tensor_memory_file: Make, rng: Random) -> None:
    """Together they are every bit of tensor memory, and no bit is in both."""
    file = tensor_memory_file(text, rng)
    i, ctas = file.instruction, file.opcode.cta_group
    codes, beside = file.matrix(file.tmem), file.beside(file.tmem)
    assert (codes.shape, beside.shape) == ((3, i.m, i.n), (3, ctas, 128, 512))
    where = accumulator_map(layout_for(file.opcode, i.m), i.n, i.d.bits, 256)
    parts = codes.reshape(3, ctas, -1, i.n)
    assert not (beside[:, :, where.lanes, where.columns] & np.uint32((1 << i.d.bits) - 1)).any()
    beside[:, :, where.lanes, where.columns] += parts
    np.testing.assert_array_equal(beside.reshape(file.tmem.shape), file.tmem)


# --- what is refused ---


def refusal(path: Path) -> str:
    """Return the message of the error that reading raises: one line that names the file."""
    with pytest.raises(sptc.Error) as caught:
        read(path)
    assert type(caught.value) is sptc.FileError
    message = str(caught.value)
    assert message.startswith(str(path))
    assert len(message.splitlines()) == 1
    return message.removeprefix(str(path))


@pytest.mark.parametrize("text", [F16, PAIR, SCALED])
def test_every_key_that_is_missing(text: str, tensor_memory_file: Make, tmp_path: Path, rng: Random) -> None:
    write(tmp_path / "file.npz", tensor_memory_file(text, rng))
    whole = contents(tmp_path / "file.npz")
    required = {"instruction", "idesc", "tmem", "smem", "d", "a", "b", "e"}
    required |= {"scale_a", "scale_b"} if text == SCALED else set()
    for key in required:
        others = {name: value for name, value in whole.items() if name != key}
        np.savez(tmp_path / "lacking.npz", **others)
        assert refusal(tmp_path / "lacking.npz") == f" lacks the key '{key}'; it holds {', '.join(sorted(others))}"
    optional = {"D", "enable_input_d", "scale_input_d", "arch", "metadata"}
    assert whole.keys() == required | optional
    np.savez(tmp_path / "least.npz", **{name: whole[name] for name in required})
    assert read(tmp_path / "least.npz").arch == "sm_100"


TMEM = r"tmem must be a uint32 array of shape \[case, 128, 512\], not "
OF_PAIR = r" must be a uint32 array of shape \[2, case, 128, 512\], not uint32 of shape "
INTEGER = r" must be a 0-d integer, not "
DEFECTS = {
    "instruction as bytes": (F16, "instruction", np.bytes_, r"instruction must be a 0-d string, not \|S"),
    "descriptor as text": (F16, "idesc", str, "idesc" + INTEGER + r"<U\d+ of shape \(\)$"),
    "descriptor of every case": (F16, "idesc", lambda i: [i] * 3, "idesc" + INTEGER + r"int64 of shape \(3,\)$"),
    "address as a float": (F16, "d", float, "d" + INTEGER + "float64"),
    "address of every case": (F16, "a", lambda a: [a] * 3, "a" + INTEGER + r".*int64 of shape \(3,\)$"),
    "address as a flag": (F16, "e", bool, "e" + INTEGER + "bool"),
    "scale as an array": (SCALED, "scale_b", lambda s: np.zeros((3, 32), np.uint32), "scale_b" + INTEGER + "uint32"),
    "tmem of another dtype": (F16, "tmem", lambda t: t.view(np.int32), TMEM + "int32"),
    "tmem of one case": (F16, "tmem", lambda t: t[0], TMEM + r"uint32 of shape \(128, 512\)$"),
    "tmem of fewer columns": (F16, "tmem", lambda t: t[..., :256], TMEM + r"uint32 of shape \(3, 128, 256\)$"),
    "tmem of a pair": (F16, "tmem", lambda t: np.stack([t] * 2), TMEM + r"uint32 of shape \(2, 3, 128, 512\)$"),
    "tmem of one CTA": (PAIR, "tmem", lambda t: t[0], "tmem" + OF_PAIR + r"\(3, 128, 512\)$"),
    "cases before CTAs": (PAIR, "tmem", lambda t: np.moveaxis(t, 0, 1), "tmem" + OF_PAIR + r"\(3, 2, 128, 512\)$"),
    "D of one CTA": (PAIR, "D", lambda d: d[:1], "D" + OF_PAIR + r"\(1, 3, 128, 512\)$"),
    "D of another dtype": (F16, "D", lambda d: d.view(np.float32), "D must be a uint32 array .*, not float32"),
    "D as a matrix": (F16, "D", lambda d: d[:, :, 256:272], r"D must be .*, not uint32 of shape \(3, 128, 16\)$"),
    "smem in words": (F16, "smem", lambda s: s.view(np.uint32), r"smem must be a uint8 .* \[case, byte\], not uint32"),
    "smem of one case": (F16, "smem", lambda s: s[0], r"smem must be .*, not uint8 of shape \(32768,\)$"),
    "smem of one CTA": (PAIR, "smem", lambda s: s[0], r"of shape \[2, case, byte\], not uint8 of shape \(3, 32768\)$"),
    "smem of fewer cases": (F16, "smem", lambda s: s[1:], r"disagree .* cases \(tmem 3, smem 2, D 3\)$"),
    "D of more cases": (PAIR, "D", lambda d: d.repeat(2, 1), r"disagree .* cases \(tmem 3, smem 3, D 6\)$"),
    "no cases": (F16, "tmem", lambda t: t[:0], "holds no cases$"),
    "enable of 2": (F16, "enable_input_d", lambda f: 2, r"enable_input_d must be 0 or 1, not int64 of shape \(\): 2$"),
    "enable as text": (F16, "enable_input_d", str, "enable_input_d must be 0 or 1, not <U"),
    "exponent as a float": (F16, "scale_input_d", float, "scale_input_d" + INTEGER + "float64"),
    "unknown policy": (F16, "metadata", lambda m: "lax", "metadata must be .*'silicon', not 'lax'$"),
    "policy as a number": (F16, "metadata", lambda m: 1, "metadata must be a 0-d string, not int64"),
    "architecture as a number": (F16, "arch", lambda a: 100, "arch must be a 0-d string, not int64"),
    "object array": (F16, "tmem", lambda t: np.array([None]), "not a readable .npz register file"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "key", "change", "words"), DEFECTS.values(), ids=DEFECTS.keys())
def test_a_planted_defect(
    text: str, key: str, change: Any, words: str, tensor_memory_file: Make, tmp_path: Path, rng: Random
) -> None:
    write(tmp_path / "file.npz", tensor_memory_file(text, rng))
    whole = contents(tmp_path / "file.npz")
    changed = change(whole[key] if whole[key].ndim else whole[key].item())
    np.savez(tmp_path / "defect.npz", **whole | {key: changed})
    message = refusal(tmp_path / "defect.npz")
    assert re.search(words, message), message


def test_an_instruction_that_does_not_parse(tensor_memory_file: Make, tmp_path: Path, rng: Random) -> None:
    write(tmp_path / "file.npz", tensor_memory_file(F16, rng))
    whole = contents(tmp_path / "file.npz")
    for text, words in (
        ("tcgen05.mma.kind::f16", r"'\.cta_group' is missing"),
        ("tcgen05.ld", "no known opcode"),
    ):
        np.savez(tmp_path / "other.npz", **whole | {"instruction": text})
        with pytest.raises(sptc.InstructionError, match=words):
            read(tmp_path / "other.npz")


def test_the_package_s_own_checks_come_when_it_runs(tensor_memory_file: Make, rng: Random) -> None:
    file = tensor_memory_file(F16, rng)
    for changes, words in (
        ({"arch": "sm_90"}, r"^sm_90 does not have tcgen05\.mma\.sp.*; sm_100 has it"),
        ({"arch": "sm_70"}, r"^'sm_70' is no known architecture"),
        ({"idesc": 0}, r"is of a dense instruction"),
        ({"smem": file.smem[:, :99]}, r"^descriptor a of .* reaches byte 99, but smem has 99 bytes$"),
        ({"addresses": file.addresses | {"scale_a": 1}}, r"has no block scales and takes no scale_a$"),
        ({"addresses": file.addresses | {"d": 509}}, r"^d at column 509 of tensor memory reaches column 524"),
        ({"scale_input_d": 16}, r"^scale_input_d of .* must be 0 to 15, not 16$"),
    ):
        with pytest.raises(sptc.Error, match=words):
            replace(file, **changes).run()
