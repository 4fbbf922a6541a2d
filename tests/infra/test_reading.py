"""Every defect of an untrusted file is reported in one sentence, in bounded time and memory."""

import io
import os
import struct
import sys
import zipfile
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from sptc.cli import main
from sptc.errors import FileError
from sptc.infra.reading import opened, parse_json, read_array, read_arrays, read_bytes, read_json

HEADER = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"


def array_bytes(header: str = HEADER, data: bytes = bytes(24), version: tuple[int, int] = (1, 0)) -> bytes:
    text = header.encode("latin1")
    text += b" " * (-(10 + len(text) + 1) % 64) + b"\n"
    return b"\x93NUMPY" + bytes(version) + struct.pack("<H", len(text)) + text + data


#: Invalid contents of an .npy file by name, each with part of the expected message.
NO_ARRAYS = {
    "nothing": (b"", "EOF"),
    "garbage": (bytes(range(200)), "magic string"),
    "another version": (array_bytes(version=(9, 1)), "version 9.1"),
    "a header that does not tokenise": (array_bytes("{'descr': '<f4"), "."),
    "a header that nests deeply": (array_bytes("(" * 5000), "."),
    "a header that is long": (array_bytes(HEADER + " " * 20000), "."),
    "no header": (array_bytes("[]"), "."),
    "an unknown type": (array_bytes(HEADER.replace("<f4", "<q9")), "."),
    "a pickle": (array_bytes(HEADER.replace("<f4", "|O")), "Object arrays cannot be loaded"),
    "terabytes": (array_bytes(HEADER.replace("(2, 3)", f"({1 << 40}, 3)")), "."),
    "more bytes than addresses": (array_bytes(HEADER.replace("(2, 3)", f"({1 << 62}, {1 << 62})")), "."),
    "a negative shape": (array_bytes(HEADER.replace("(2, 3)", "(-2, -3)")), "shape"),
    "too few bytes": (array_bytes(data=bytes(23)), "."),
    "trailing bytes": (array_bytes(data=bytes(25)), "."),
    "70 axes": (array_bytes(HEADER.replace("(2, 3)", f"({'1, ' * 70})"), bytes(4)), "the array has 70 axes"),
    "a header of gigabytes": (b"\x93NUMPY\2\0" + b"\xff" * 4 + b" " * 99, "header has 4294967295 bytes"),
}


def read_all(path: Path) -> dict[str, np.ndarray]:
    with read_arrays(path, "is invalid") as archive:
        return {name: archive.read(name) for name in archive.names}


def whole(**options: object) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", **options) as archive:  # type: ignore[arg-type]
        archive.writestr("x.npy", array_bytes(data=bytes(range(24))))
    return file.getvalue()


def patched(offset: int, value: bytes) -> bytes:
    """Return a ZIP archive with `value` in both headers of its member, `offset` bytes after the version field."""
    data = bytearray(whole())
    for mark, start in ((b"PK\x03\x04", 4), (b"PK\x01\x02", 6)):
        place = data.index(mark) + start + offset
        data[place : place + len(value)] = value
    return bytes(data)


ARCHIVES = {
    "encrypted": patched(2, b"\x01"),
    "of an unknown version": patched(0, b"\xff"),
    "of an unknown method": patched(4, b"\x63"),
    "with another checksum": patched(10, b"\0\0\0\0"),
    "that claims more": patched(18, struct.pack("<I", 1 << 31)),
    "cut short": whole()[:-30],
    "text": b"hello",
    "with bytes after its end": whole() + b"x",
    "with bytes before its start": b"x" + whole(),
    "with a directory of gigabytes": whole()[:-10] + b"\xff\xff\xff\x7f" + whole()[-6:],
    "nothing": b"",
}


def test_no_array_and_no_archive(tmp_path: Path) -> None:
    for name, (content, words) in NO_ARRAYS.items():
        path = tmp_path / f"{name}.npy"
        path.write_bytes(content)
        with pytest.raises(FileError, match=rf"^{path} is invalid \(.*{words}.*\)$"):
            read_array(path, "is invalid")
        path = tmp_path / f"{name}.npz"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("x.npy", content)
        with pytest.raises(FileError, match=rf"^{path} is invalid \(.*\)$"):
            read_all(path)
    for name, content in ARCHIVES.items():
        path = tmp_path / f"{name}.npz"
        path.write_bytes(content)
        with pytest.raises(FileError, match=rf"^{path} is invalid \(.+\)$"):
            read_all(path)
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", array_bytes())
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("x.npy", array_bytes())
    with pytest.raises(FileError, match=r"^\S+ is invalid \(the archive contains 'x.npy' twice\)$"):
        read_all(path)


def test_a_long_reason(tmp_path: Path) -> None:
    """A long error message is cut, for example if it contains a member name as long as the rest of the archive."""
    data = bytearray(whole())
    data[26:28] = struct.pack("<H", len(data) - 30)
    path = tmp_path / "x.npz"
    path.write_bytes(data)
    with pytest.raises(FileError, match=r"is invalid \(File name in directory.*\.\.\.\)$") as raised:
        read_all(path)
    assert len(str(raised.value)) < len(str(path)) + 250


def test_text_with_codes_that_no_character_has(tmp_path: Path) -> None:
    """Strings with codes above 0x10FFFF are rejected: numpy accepts them, but later operations of Python fail."""
    for order in "<>":
        words = np.array([0x41, 0x10FFFF, 0xD800, 0x10FFFF], f"{order}u4")
        for last, readable in ((0x10FFFF, True), (0x110000, False), (0xFFFFFFFF, False)):
            words[-1] = last
            np.savez(tmp_path / "x.npz", x=words.view(f"{order}U4")[0], empty=np.zeros((0, 3), "U2"), none=np.array(""))
            if readable:
                assert read_all(tmp_path / "x.npz")["x"] == words.view(f"{order}U4")[0]
                continue
            with pytest.raises(FileError, match=r"is invalid \(the text of 'x.npy' has an invalid character code\)$"):
                read_all(tmp_path / "x.npz")


def test_the_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory limit applies to the sum of all arrays that are read from a file, not to arrays that are not read."""
    path = tmp_path / "x.npz"
    np.savez(path, a=np.zeros(6000, np.uint8), b=np.zeros(6000, np.uint8))
    monkeypatch.setenv("SPTC_ARCHIVE_GIB", str(7000 / 2**30))
    with read_arrays(path, "is invalid") as archive:
        assert archive.read("a").size == 6000
    with pytest.raises(FileError, match=r"arrays take more than .* GiB: set SPTC_ARCHIVE_GIB to another limit"):
        read_all(path)
    monkeypatch.setenv("SPTC_ARCHIVE_GIB", "0.001")
    assert read_all(path).keys() == {"a", "b"}
    for word in ("0", "-1", "nan", "inf", "x"):
        monkeypatch.setenv("SPTC_ARCHIVE_GIB", word)
        with pytest.raises(
            FileError, match=r"^SPTC_ARCHIVE_GIB must be a number of GiB above 0 and below 1,048,576, not"
        ):
            read_all(path)


def claiming(path: Path, name: str, size: int) -> None:
    """Replace the uncompressed size that the directory of an archive states for a member."""
    data = bytearray(path.read_bytes())
    place = data.rindex(name.encode()) - 46
    assert data[place : place + 4] == b"PK\1\2"
    data[place + 24 : place + 28] = struct.pack("<I", size)
    path.write_bytes(data)


def test_members_that_expand(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez_compressed(path, a=np.zeros(1 << 22, np.uint8), b=np.array(1))
    assert read_all(path)["a"].size == 1 << 22  # the compression ratio is possible for deflate
    claiming(path, "a.npy", 1 << 29)
    with read_arrays(path, "is invalid") as archive:
        assert archive.read("b") == 1
    with pytest.raises(FileError, match=r"'a.npy' is more than 1100 times its compressed size\)$"):
        read_all(path)
    claiming(path, "a.npy", (1 << 32) - 2)
    with np.load(next(iter(sorted((Path(__file__).parents[2] / "recordings").glob("mma*.npz"))))) as arrays:
        np.savez_compressed(path, **arrays, irrelevant=np.zeros(9))
    claiming(path, "irrelevant.npy", (1 << 32) - 2)
    for arguments in (["run", "--backend", "golden"], ["gemm", "--b", str(path), "--a"]):
        assert main([*arguments, str(path)]) == (0 if arguments[0] == "run" else 2)


def test_arrays_and_archives_that_are_whole(tmp_path: Path, rng: np.random.Generator) -> None:
    arrays = {"a": rng.integers(0, 9, (3, 4)), "b/c": np.zeros((0, 5), np.float16), "": np.array("text")}
    path = tmp_path / "x.npz"
    for save in (np.savez, np.savez_compressed):
        save(path, **arrays)
        result = read_all(path)
        assert result.keys() == arrays.keys()
        for name, array in arrays.items():
            np.testing.assert_array_equal(result[name], array)
    path.write_bytes(whole(compression=zipfile.ZIP_LZMA))
    assert read_all(path)["x"].shape == (2, 3)
    for shape, order in product(((), (0,), (3, 0), (4, 5)), "CF"):
        array = np.asarray(rng.integers(0, 99, shape), order=order)  # type: ignore[call-overload]
        np.save(tmp_path / "x.npy", array)
        result = read_array(tmp_path / "x.npy", "is invalid")
        np.testing.assert_array_equal(result, array)
        assert result.dtype == array.dtype
        assert not result.size or not result.flags.writeable, (shape, order)


def test_no_json(request: pytest.FixtureRequest) -> None:
    """Texts that are not JSON are rejected, as are integers with more digits than Python's default limit."""
    request.addfinalizer(partial(sys.set_int_max_str_digits, sys.get_int_max_str_digits()))
    sys.set_int_max_str_digits(sys.int_info.default_max_str_digits)
    texts: list[str | bytes] = ["", "{", "[" * 100_000, "9" * 100_000, '"\\ud8"', b"\xff", "nul"]
    for text in texts:
        with pytest.raises(FileError, match=r"^x is not JSON$"):
            pytest.fail(f"{text[:20]!r} is read as {parse_json(text, 'x')!r}")


def test_what_is_no_plain_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, reason in (
        (tmp_path / "pipe", "not a plain file"),
        (Path("/dev/zero"), "not a plain file"),
        (tmp_path, "Is a directory"),
        (tmp_path / "none", "No such file or directory"),
        (Path("a\0b"), "embedded null byte"),
    ):
        with pytest.raises(FileError, match=rf"cannot be read \({reason}\)$"), opened(path):
            pass
        with pytest.raises(FileError):
            read_json(path)
    for command in (["run"], ["coverage"], ["area", "--config"], ["area", "--liberty"]):
        assert main([*command, str(tmp_path / "pipe")]) == 2


def test_a_file_that_is_too_long(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(bytes(100))
    assert read_bytes(path, 100) == bytes(100)
    with pytest.raises(FileError, match=r"cannot be read \(it has more than 99 bytes\)$"):
        read_bytes(path, 99)


def test_names_that_are_no_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a\nb.npz", "\x1b[31mred.npz", "lone\udc80.npz", "tab\t.npz"):
        assert main(["run", str(tmp_path / name)]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1, name
        assert error[:-1].isprintable(), name
