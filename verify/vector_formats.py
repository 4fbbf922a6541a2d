"""Writers of vectors: register files and arrays, $readmemh files, JSON, and SystemVerilog includes."""

import hashlib
import json
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..errors import OperandError
from ..infra.files import whole_file
from ..infra.pools import cores
from .vector_levels import Arrays, Table, Vectors, joined

__all__ = ["FORMATS", "Folder", "hex_lines", "write_format"]

FORMATS = ("npz", "hex", "json", "svh")
#: Most words of a format that is a single file and held in memory; text takes more memory than arrays.
_MOST_WORDS = {"npz": 1 << 28, "json": 1 << 24, "svh": 1 << 24}
#: The four hexadecimal digits of every 16-bit number, as they are written.
_DIGITS = np.frombuffer("".join(f"{number:04x}" for number in range(1 << 16)).encode(), "<u4")
_T = TypeVar("_T")


class Folder:
    """Output folder whose files appear together once all are written.

    Attributes
    ----------
    digests : dict of str to dict
        SHA-256 and size in bytes of each file, by name.
    """

    def __init__(self, path: Path, stack: ExitStack) -> None:
        self.digests: dict[str, dict[str, Any]] = {}
        self._path, self._stack = path, stack

    def open(self, name: str) -> "_Digested":
        """Open a file for writing."""
        file = _Digested(self._stack.enter_context(whole_file(self._path / name)))
        self._stack.callback(self._enter, name, file)
        return file

    def write(self, name: str, text: str) -> None:
        """Write a whole file."""
        self.open(name).write(text.encode())

    def _enter(self, name: str, file: "_Digested") -> None:
        self.digests[name] = {"sha256": file.digest.hexdigest(), "bytes": file.size}

    @classmethod
    @contextmanager
    def filled(cls, path: Path) -> Iterator["Folder"]:
        """Open a folder for writing; at the end all files are put in place, or none if an error occurred."""
        with ExitStack() as stack:
            yield cls(path, stack)


class _Digested:
    """A file with the digest of the data written to it."""

    def __init__(self, file: BinaryIO) -> None:
        self.digest, self.size = hashlib.sha256(), 0
        self._file = file

    def write(self, data: "bytes | memoryview") -> None:
        self._file.write(data)
        self.digest.update(data)
        self.size += len(data)


def hex_lines(vectors: NDArray[np.uint32], bits: int) -> memoryview:
    """Return vectors, shape (count, words), as hexadecimal lines with the digits that the bits take."""
    digits, halves = -(-bits // 4), -(-bits // 16)
    words = np.ascontiguousarray(vectors, "<u4").view("<u2")
    lines = np.full((len(vectors), 4 * halves + 1), ord("\n"), np.uint8)
    for half in range(halves):
        four_digits = np.ndarray(len(lines), "<u4", lines, 4 * (halves - 1 - half), lines.strides[:1])
        four_digits[:] = _DIGITS.take(words[:, half], mode="clip")
    return np.ascontiguousarray(lines[:, 4 * halves - digits :]).reshape(-1).data


def write_format(name: str, folder: Folder, vectors: Vectors, facts: dict[str, Any]) -> None:
    """Write vectors in one format.

    Parameters
    ----------
    name : str
        One of :data:`FORMATS`.
    folder : Folder
        Output folder.
    vectors : Vectors
        Vectors; their blocks are computed here.
    facts : dict
        Description of the vectors, for the header of a file.

    Raises
    ------
    OperandError
        The vectors have too many words for the format.
    """
    most, words = _MOST_WORDS.get(name), sum(table.count * table.words for table in vectors.tables)
    if most is not None and words > most:
        raise OperandError(f"{words} words are too many for {name}, which takes {most}; hex takes any number")
    _WRITERS[name](folder, vectors, facts)


def _write_hex(folder: Folder, vectors: Vectors, facts: dict[str, Any]) -> None:
    files = {}
    for table in vectors.tables:
        files[table.name] = folder.open(f"{table.name}.hex")
        lines = [*_sentences(table, facts), *table.meaning]
        files[table.name].write("".join(f"// {line}".rstrip() + "\n" for line in lines).encode())

    def lines_of(number: int) -> dict[str, memoryview]:
        block = vectors.block(number)
        return {table.name: hex_lines(block[table.name], table.bits) for table in vectors.tables}

    for block in _in_order(lines_of, vectors.blocks):
        for name, text in block.items():
            files[name].write(text)


def _in_order(compute: Callable[[int], _T], count: int) -> Iterator[_T]:
    """Yield ``compute(0)``, ``compute(1)``, ... in order, computed by one thread per core, a few ahead."""
    with ThreadPoolExecutor(cores()) as pool:
        ahead = deque(pool.submit(compute, number) for number in range(min(count, cores() + 1)))
        try:
            for number in range(len(ahead), count + len(ahead)):
                yield ahead.popleft().result()
                if number < count:
                    ahead.append(pool.submit(compute, number))
        finally:
            for future in ahead:
                future.cancel()


def _sentences(table: Table, facts: dict[str, Any]) -> list[str]:
    what = f"{'expected' if table.expected else 'given'} {table.name} of {facts['instruction']} on {facts['arch']}"
    axes = " x ".join(f"{count} ({axis})" for count, axis in zip(table.shape, table.axes, strict=True))
    return [f"{what}, level {facts['level']}, seed {facts['seed']}", f"{axes}, {table.bits} bits a line"]


def _whole(vectors: Vectors) -> Arrays:
    blocks = list(_in_order(vectors.block, vectors.blocks))
    return {table.name: np.concatenate([block[table.name] for block in blocks]) for table in vectors.tables}


def _write_npz(folder: Folder, vectors: Vectors, facts: dict[str, Any]) -> None:
    if vectors.file:
        contents = joined(list(_in_order(vectors.file, vectors.blocks))).contents()
    else:
        contents = {"instruction": facts["instruction"], "arch": facts["arch"], **_whole(vectors)}
    archive = BytesIO()
    np.savez_compressed(archive, allow_pickle=False, **contents)
    folder.open("vectors.npz").write(archive.getvalue())


def _write_json(folder: Folder, vectors: Vectors, facts: dict[str, Any]) -> None:
    words = {table.name: _words(array, table) for table, array in _with_arrays(vectors)}
    folder.write("vectors.json", json.dumps({**facts, "words": words}, indent=1) + "\n")


def _write_svh(folder: Folder, vectors: Vectors, facts: dict[str, Any]) -> None:
    lines = ["`ifndef SPTC_VECTORS_SVH", "`define SPTC_VECTORS_SVH", f"localparam int TILES = {facts['tiles']};"]
    for table, array in _with_arrays(vectors):
        name = table.name.upper()
        lines += [f"// {line}".rstrip() for line in (*_sentences(table, facts), *table.meaning)]
        lines += [f"localparam int {name}_COUNT = {table.count};", f"localparam int {name}_BITS = {table.bits};"]
        literals = ",\n".join(f"  {table.bits}'h{word}" for word in _words(array, table))
        lines.append(f"localparam logic [{table.bits - 1}:0] {name} [{table.count}] = '{{\n{literals}\n}};")
    folder.write("vectors.svh", "\n".join([*lines, "`endif", ""]))


def _with_arrays(vectors: Vectors) -> Iterator[tuple[Table, NDArray[np.uint32]]]:
    arrays = _whole(vectors)
    return ((table, arrays[table.name]) for table in vectors.tables)


def _words(array: NDArray[np.uint32], table: Table) -> list[str]:
    return hex_lines(array, table.bits).tobytes().decode().splitlines()


_WRITERS = {"npz": _write_npz, "hex": _write_hex, "json": _write_json, "svh": _write_svh}
