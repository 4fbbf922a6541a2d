"""Invalid register files are rejected with a one-line message that names the file, and are closed."""

import gc
import io
import re
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sptc
from sptc.tests.verify import register_files as samples
from sptc.tests.verify.register_files import MX, NVFP4, PAIR, SPARSE, TCGEN05, WGMMA, Random
from sptc.verify.register_file import read, write

#: Keys that a register file must have, by instruction.
OF_MMA, OF_TCGEN05 = "instruction selector A B C E", "instruction idesc tmem smem d a b e"
REQUIRED = {
    SPARSE: OF_MMA, NVFP4: f"{OF_MMA} scale_a scale_b scale_ids", WGMMA: f"{OF_MMA} b_descriptor",
    TCGEN05: OF_TCGEN05, PAIR: OF_TCGEN05, MX: f"{OF_TCGEN05} scale_a scale_b",
}  # fmt: skip


@pytest.mark.parametrize("text", REQUIRED)
def test_every_missing_key(text: str, tmp_path: Path, rng: Random) -> None:
    write(tmp_path / "file.npz", samples.file_of(text, rng))
    whole, required = samples.contents(tmp_path / "file.npz"), REQUIRED[text].split()
    for key in required:
        others = {name: value for name, value in whole.items() if name != key}
        np.savez(tmp_path / "lacking.npz", **others)
        message = f" lacks the key '{key}'; present: {', '.join(sorted(others))}"
        assert samples.refusal(tmp_path / "lacking.npz") == message
    written = {*required, "D", "arch", "metadata"}
    if text.startswith("tcgen05"):
        written |= {"enable_input_d", "scale_input_d"}
        np.savez(tmp_path / "least.npz", **{name: whole[name] for name in required})
        assert read(tmp_path / "least.npz").arch == "sm_100"
    assert text == WGMMA or whole.keys() == written


UNREADABLE = r"not a readable \.npz register file"
STRING_WANTED = r"must be a 0-d string, not "
TMEM = r"tmem must be a uint32 array of shape \[case, 128, 512\], not "
OF_PAIR = r" must be a uint32 array of shape \[2, case, 128, 512\], not uint32 of shape "
#: Defect of an archive: instruction, key, function that changes the value of the key, and part of the error message.
Defect = tuple[str, str, Callable[[Any], Any], str]
DEFECTS: list[Defect] = [
    *((text, key, change, f"{key} must be a uint32 array with a first axis of test cases, not {words}")
      for text, key in (*((SPARSE, name) for name in "ABCDE"), (NVFP4, "scale_a"), (NVFP4, "scale_b"))
      for change, words in ((lambda x: x.view(np.int32), "int32"), (lambda x: x[0].ravel(), r"uint32 of shape \(\d"),
                            (lambda x: x.ravel()[0], r"uint32 of shape \(\)"))),
    *((text, key, change, f"{key} must be a 0-d integer, not {words}")
      for text, key in ((SPARSE, "selector"), *((TCGEN05, name) for name in ("idesc", "d", "a", "e", "scale_input_d")),
                        (MX, "scale_b"))
      for change, words in ((float, "float64"), (str, r"<U\d+"), (bool, "bool"),
                            (lambda x: [x] * 3, r"int64 of shape \(3,\)"))),
    *((text, key, lambda x: 90, f"{key} {STRING_WANTED}int64")
      for text in (SPARSE, TCGEN05) for key in ("instruction", "arch", "metadata")),
    *((text, "metadata", lambda m: "lax", "metadata must be .*'silicon', not 'lax'$") for text in (SPARSE, TCGEN05)),
    (SPARSE, "instruction", np.bytes_, "instruction " + STRING_WANTED + r"\|S"),
    (SPARSE, "instruction", lambda i: [i], STRING_WANTED + r"<U\d+ of shape \(1,\)"),
    (SPARSE, "A", lambda a: a[:, None], r"A .*\(3, 1, 32, 4\)"),
    (SPARSE, "E", lambda e: e[:, None], r"E .*\(3, 1, 32\)"),
    (SPARSE, "A", lambda a: a[:2], r"different numbers of test cases \(A 2, B 3, C 3, D 3, E 3\)"),
    (NVFP4, "scale_b", lambda s: s.repeat(2, 0), r"different .*, scale_a 3, scale_b 6\)"),
    (WGMMA, "B", lambda b: b[1:], r"different numbers of test cases \(A 3, B 2, C 3, D 3, E 3\)"),
    (SPARSE, "A", lambda a: a[:0], "holds no test case"),
    (SPARSE, "D", lambda d: d[..., :2], r"D .* \(3, 32, 2\), but C has \(3, 32, 4\)"),
    (NVFP4, "scale_ids", lambda i: i[:3], r"four integers, not int64 of shape \(3,\)"),
    (NVFP4, "scale_ids", lambda i: i + 0.5, "four integers, not float64"),
    (WGMMA, "b_descriptor", lambda d: d + 0.5, "must be a single integer, or .*float64"),
    (WGMMA, "b_descriptor", lambda d: d[:2], r"for each case\), not uint64 of shape \(2,\)"),
    (WGMMA, "scale_d", lambda s: 2, "scale_d must be 0 or 1, not int64"),
    (WGMMA, "imm_scale", lambda s: s[:1], r"imm_scale must be two integers, .*\(1,\)"),
    (WGMMA, "imm_trans", lambda s: s + 0.5, "imm_trans must be two integers, not float64"),
    (SPARSE, "A", lambda a: np.array([None]), UNREADABLE),
    (TCGEN05, "tmem", lambda t: t.view(np.int32), TMEM + "int32"),
    (TCGEN05, "tmem", lambda t: t[0], TMEM + r"uint32 of shape \(128, 512\)$"),
    (TCGEN05, "tmem", lambda t: t[..., :256], TMEM + r"uint32 of shape \(3, 128, 256\)$"),
    (TCGEN05, "tmem", lambda t: np.stack([t] * 2), TMEM + r"uint32 of shape \(2, 3, 128, 512\)$"),
    (PAIR, "tmem", lambda t: t[0], "tmem" + OF_PAIR + r"\(3, 128, 512\)$"),
    (PAIR, "tmem", lambda t: np.moveaxis(t, 0, 1), "tmem" + OF_PAIR + r"\(3, 2, 128, 512\)$"),
    (PAIR, "D", lambda d: d[:1], "D" + OF_PAIR + r"\(1, 3, 128, 512\)$"),
    (TCGEN05, "D", lambda d: d.view(np.float32), "D must be a uint32 array .*, not float32"),
    (TCGEN05, "smem", lambda s: s.view(np.uint32), r"smem must be a uint8 .* \[case, byte\], not uint32"),
    (TCGEN05, "smem", lambda s: s[0], r"smem must be .*, not uint8 of shape \(32768,\)$"),
    (PAIR, "smem", lambda s: s[0], r"of shape \[2, case, byte\], not uint8 of shape \(3, 32768\)$"),
    (TCGEN05, "smem", lambda s: s[1:], r"different numbers of test cases \(tmem 3, smem 2, D 3\)$"),
    (PAIR, "D", lambda d: d.repeat(2, 1), r"different numbers of test cases \(tmem 3, smem 3, D 6\)$"),
    (TCGEN05, "tmem", lambda t: t[:0], "holds no test case: its arrays are empty$"),
    (TCGEN05, "enable_input_d", lambda f: 2, r"enable_input_d must be 0 or 1, not int64 of shape \(\) with value 2$"),
    (TCGEN05, "enable_input_d", str, "enable_input_d must be 0 or 1, not <U"),
]  # fmt: skip


def test_every_defect_is_named(tmp_path: Path, rng: Random) -> None:
    wholes = {}
    for text in (SPARSE, NVFP4, WGMMA, TCGEN05, PAIR, MX):
        write(tmp_path / "file.npz", samples.file_of(text, rng))
        wholes[text] = samples.contents(tmp_path / "file.npz")
    for text, key, change, words in DEFECTS:
        value = wholes[text][key]
        np.savez(tmp_path / "defect.npz", **wholes[text] | {key: change(value if value.ndim else value.item())})
        message = samples.refusal(tmp_path / "defect.npz")
        assert re.search(words, message), (words, message)


def test_instructions_that_do_not_parse(tmp_path: Path, rng: Random) -> None:
    for text, other, words in (
        (SPARSE, "fma.rn.f32", r"'fma' in 'fma\.rn\.f32' is no known opcode"),
        (TCGEN05, "tcgen05.ld", "no known opcode"),
    ):
        write(tmp_path / "file.npz", samples.file_of(text, rng))
        np.savez(tmp_path / "other.npz", **samples.contents(tmp_path / "file.npz") | {"instruction": other})
        with pytest.raises(sptc.InstructionError, match=words):
            read(tmp_path / "other.npz")


def single_array() -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.zeros(3))
    return stream.getvalue()


def archive(path: Path, name: str, data: bytes) -> None:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(name, data)


#: Function that makes an invalid file from a valid one, and part of the error message.
NOT_FILES: list[tuple[Callable[[Path, bytes], object], str]] = [
    (lambda path, _: None, "does not exist"),
    (lambda path, _: path.mkdir(), UNREADABLE),
    (lambda path, _: path.write_text("A, B\n1, 2\n"), UNREADABLE),
    (lambda path, _: path.write_bytes(single_array()), r"single array, not a register file \(.npz\)"),
    (lambda path, _: zipfile.ZipFile(path, "w").close(), "lacks the key 'instruction'"),
    (lambda path, _: np.savez(path, **{"two\nlines": 0}), "lacks the key 'instruction'"),
    (lambda path, _: archive(path, "notes.txt", b"hello"), UNREADABLE + r" .the member 'notes.txt' is not an array.$"),
    (lambda path, whole: path.write_bytes(whole[: len(whole) // 2]), UNREADABLE),
]


def test_files_that_are_no_register_files(tmp_path: Path, rng: Random) -> None:
    with pytest.raises(sptc.FileError, match=r"^x+ cannot be read \(File name too long\)$"):
        read("x" * 300)
    write(tmp_path / "file.npz", samples.random_file(SPARSE, rng))
    whole = (tmp_path / "file.npz").read_bytes()
    with warnings.catch_warnings(record=True) as left_open:
        warnings.simplefilter("always")
        for number, (make, words) in enumerate(NOT_FILES):
            make(path := tmp_path / f"{number}.npz", whole)
            message = samples.refusal(path)
            assert re.search(words, message), (number, words, message)
        gc.collect()
    assert not left_open, [str(warning.message) for warning in left_open]
