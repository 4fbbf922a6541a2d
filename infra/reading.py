"""Readers of untrusted files: plain files of bounded size, with a one-sentence error for every defect of a file.

The readers check these properties before use: the kind of the file, which may be an endless pipe or device; the size
that a header claims; the memory that an archive takes; the depth to which JSON nests. A pickle is never loaded.
"""

import errno
import json
import math
import os
import stat
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ..errors import FileError, shown

__all__ = [
    "ArrayFiles", "beyond_budget", "memory_budget", "memory_limit", "opened", "parse_json", "read_array", "read_arrays",
    "read_bytes", "read_json", "read_text", "reason_of",
]  # fmt: skip

#: Maximum size of a text file in bytes. The largest known Liberty files have a tenth of this size.
TEXT_BYTES = 1 << 29
#: Environment variable with the memory budget in GiB, and default budget. The budget limits the total size of two kinds
#: of arrays in a file: compressed arrays, and arrays of which the file gives only the shape. The arrays of ``.npy``
#: files do not count, since they are mapped into memory.
BUDGET, BUDGET_GIB = "SPTC_ARCHIVE_GIB", 1.0
#: A memory limit, in GiB, must be below this number.
_MOST_GIB = 1 << 20
_SUFFIX = ".npy"
#: Maximum number of characters of the reason in an error message, since messages of zipfile can contain parts of files.
_LONGEST_REASON = 200
#: Maximum size in bytes of the header of an ``.npy`` file, and maximum number of array axes that numpy 1 supports.
_HEADER_BYTES, _MOST_AXES = 1 << 16, 32
#: Maximum ratio of the size of an array to its compressed size. Deflate compresses by a factor of at most 1,032.
_MOST_EXPANSION = 1_100
#: Maximum size in bytes of the directory of a zip archive, which suffices for 100,000 members.
_DIRECTORY_BYTES = 1 << 23
#: Signature and size in bytes: of the end record of a zip archive, and of the end record in 64-bit format (zip64).
_END, _END_64 = (b"PK\5\6", 22), (b"PK\6\6", 56)
_LOCATOR_64 = (b"PK\6\7", 20)


@contextmanager
def opened(path: Path, refusal: str = "cannot be read") -> Iterator[BinaryIO]:
    """Open a plain file for reading.

    Raise a `FileError` if the file does not exist, cannot be read, or is a folder, a pipe or a device. `refusal` is the
    predicate of the error message; the reason follows in brackets.
    """
    try:
        # Without O_NONBLOCK, opening a pipe that has no writer would block for ever.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except OSError as error:
        raise FileError(f"{path} {refusal} ({error.strerror})") from None
    except ValueError as error:  # The path contains a character that is not allowed in a file name.
        raise FileError(f"{path} {refusal} ({error})") from None
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        reason = os.strerror(errno.EISDIR) if stat.S_ISDIR(mode) else "not a plain file"
        raise FileError(f"{path} {refusal} ({reason})")
    with os.fdopen(descriptor, "rb") as file:
        try:
            yield file
        except OSError as error:
            raise FileError(f"{path} {refusal} ({error.strerror or error})") from None


def read_bytes(path: Path, limit: int = TEXT_BYTES) -> bytes:
    """Return the bytes of a file. Raise the errors of :func:`opened`, or a `FileError` for more than `limit` bytes."""
    with opened(path) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise FileError(f"{path} cannot be read (it has more than {limit} bytes)")
    return data


def read_text(path: Path, refusal: str = "is not text") -> str:
    """Return the text of a UTF-8 file.

    Raise the errors of :func:`read_bytes`, or a `FileError` with the predicate `refusal` if the file is not UTF-8.
    """
    try:
        return read_bytes(path).decode()
    except UnicodeDecodeError:
        raise FileError(f"{path} {refusal}") from None


def read_json(path: Path) -> Any:
    """Return the value of a JSON file, with the errors of :func:`read_bytes` and :func:`parse_json`."""
    return parse_json(read_bytes(path), str(path))


def parse_json(text: str | bytes, source: str, refusal: str = "is not JSON") -> Any:
    """Return the value of JSON text. An error message has `source` as subject and `refusal` as predicate.

    Raise a `FileError` if the text is not JSON, nests too deeply, or has numbers of thousands of digits.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise FileError(f"{source} {refusal}") from None


@dataclass(frozen=True)
class _Layout:
    """Decoded header of an ``.npy`` file."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype
    offset: int

    @property
    def bytes(self) -> int:
        """Size of the whole ``.npy`` file in bytes."""
        return self.offset + math.prod(self.shape) * self.dtype.itemsize


def _layout(file: IO[bytes]) -> _Layout:
    """Read the header of an ``.npy`` file. Raise a `ValueError` for pickles and unsupported headers."""
    version = np.lib.format.read_magic(file)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in readers:
        raise ValueError(f"version {version[0]}.{version[1]} of the .npy format is not supported")
    start, length = file.tell(), file.read(2 * version[0])
    if int.from_bytes(length, "little") > _HEADER_BYTES:  # numpy itself does not limit the size of a header
        raise ValueError(f"the header has {int.from_bytes(length, 'little')} bytes, more than {_HEADER_BYTES}")
    file.seek(start)
    shape, fortran, dtype = readers[version](file)
    if len(shape) > _MOST_AXES:
        raise ValueError(f"the array has {len(shape)} axes, more than {_MOST_AXES}")
    if dtype.hasobject:
        raise ValueError("Object arrays cannot be loaded")
    if min(shape, default=0) < 0:
        raise ValueError(f"the shape {shape} has a negative size")
    return _Layout(shape, fortran, dtype, file.tell())


@contextmanager
def _refused(path: Path, refusal: str) -> Iterator[None]:
    """Turn every error in the context into a `FileError`: zip, zlib, tokenize and numpy raise many types of errors."""
    try:
        yield
    except FileError:
        raise
    except OSError as error:
        raise FileError(f"{path} cannot be read ({error.strerror or error})") from None
    except Exception as error:
        raise FileError(f"{path} {refusal} ({reason_of(error)})") from None


def reason_of(error: Exception) -> str:
    """Return the first sentence of an error as one line of at most about 200 characters."""
    reason = " ".join(str(error).split()).split(". ")[0] or type(error).__name__
    return reason if len(reason) <= _LONGEST_REASON else f"{reason[:_LONGEST_REASON]}..."


def memory_limit(variable: str, default: float) -> float:
    """Return a limit in GiB from an environment variable. Raise a `FileError` if it is not a number of GiB."""
    word = os.environ.get(variable, "")
    with suppress(ValueError):
        if 0 < (gib := float(word or default)) < _MOST_GIB:
            return gib
    raise FileError(f"{variable} must be a number of GiB above 0 and below {_MOST_GIB:,}, not {word[:40]!r}")


def memory_budget() -> int:
    """Return the memory budget for the arrays of one file, in bytes."""
    return int(memory_limit(BUDGET, BUDGET_GIB) * (1 << 30))


def beyond_budget() -> str:
    """Return the error message for arrays that are larger than the memory budget."""
    return f"the arrays take more than {memory_budget() / (1 << 30):g} GiB: set {BUDGET} to another limit in GiB"


class ArrayFiles:
    """Arrays of an open ``.npz`` archive. An array is read only if its size agrees with its header.

    The arrays that are read take at most 1 GiB in total, or the limit in the environment variable :data:`BUDGET`.
    Arrays that are not read do not count. `names` are the names of the arrays.
    """

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive, self._left = archive, memory_budget()
        members = archive.infolist()
        seen: set[str] = set()
        for member in members:
            if not member.filename.endswith(_SUFFIX):
                raise ValueError(f"the member {shown(member.filename)} is not an array")
            if member.filename in seen:
                raise ValueError(f"the archive contains {shown(member.filename)} twice")
            seen.add(member.filename)
        if members and all(member.header_offset for member in members):
            raise ValueError("the archive has bytes before its first member")
        self.names = tuple(member.filename.removesuffix(_SUFFIX) for member in members)

    def read(self, name: str) -> NDArray:
        """Return the array that has a given name in the archive."""
        member = self._archive.getinfo(name + _SUFFIX)
        if member.file_size > _MOST_EXPANSION * max(member.compress_size, 1):
            raise ValueError(f"{shown(member.filename)} is more than {_MOST_EXPANSION} times its compressed size")
        if member.file_size > self._left:
            raise ValueError(beyond_budget())
        self._left -= member.file_size
        with self._archive.open(member) as file:
            if _layout(file).bytes != member.file_size:
                raise ValueError(f"the size of {shown(member.filename)} differs from the size in its header")
            file.seek(0)
            array: NDArray = np.lib.format.read_array(file, allow_pickle=False)
        if array.dtype.kind == "U" and _codes(array).max(initial=0) > sys.maxunicode:
            raise ValueError(f"the text of {shown(member.filename)} has an invalid character code")
        return array


def _codes(array: NDArray) -> NDArray[np.uint32]:
    """Return the codes of all characters of a text array, four bytes each."""
    return np.ravel(array).view(np.dtype(np.uint32).newbyteorder(array.dtype.byteorder))


@contextmanager
def read_arrays(path: Path, refusal: str, unreadable: str = "cannot be read") -> Iterator[ArrayFiles]:
    """Open an ``.npz`` archive for reading its arrays.

    Raise the errors of :func:`opened`. Also raise a `FileError`, when the file is opened or an array is read, if the
    file is not an ``.npz``, is damaged, or has arrays whose size differs from their headers or exceeds the budget of
    :class:`ArrayFiles`. `refusal` is the predicate of the message if the file is not an ``.npz``, and `unreadable` if
    the file cannot be opened; the reason follows in brackets.
    """
    with opened(path, unreadable) as file, _refused(path, refusal):
        _check_end(file)
        with zipfile.ZipFile(file) as archive:
            yield ArrayFiles(archive)


def _check_end(file: BinaryIO) -> None:
    """Check that a file ends with the end record of a zip archive, and that the archive directory is not too large."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - sum(length for _, length in (_END_64, _LOCATOR_64, _END))))
    tail = file.read()
    end = tail[-_END[1] :]
    if not end.startswith(_END[0]):
        file.seek(0)
        is_archive = zipfile.is_zipfile(file)
        raise ValueError("bytes follow the end of the archive" if is_archive else "the file is not a zip archive")
    directory = int.from_bytes(end[12:16], "little")
    if tail[-_END[1] - _LOCATOR_64[1] :].startswith(_LOCATOR_64[0]):
        directory = int.from_bytes(tail[40:48], "little") if tail.startswith(_END_64[0]) else size
    if directory > _DIRECTORY_BYTES:
        raise ValueError(f"the archive directory has {directory} bytes, more than {_DIRECTORY_BYTES}")
    file.seek(0)


def read_array(path: Path, refusal: str) -> NDArray:
    """Map the array of an ``.npy`` file into memory, read-only. Raise the errors of :func:`read_arrays`."""
    with opened(path) as file, _refused(path, refusal):
        layout = _layout(file)
        size = os.fstat(file.fileno()).st_size
        if layout.bytes != size:
            raise ValueError(f"the file has {size} bytes, but its header describes {layout.bytes} bytes")
        if not math.prod(layout.shape):
            return np.empty(layout.shape, layout.dtype)
        return np.memmap(file, layout.dtype, "r", layout.offset, layout.shape, "F" if layout.fortran else "C")
