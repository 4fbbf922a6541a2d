"""Test vectors for any hardware that executes an instruction: random operands from a seed, with expected results.

The vectors are written as register files, arrays, $readmemh files, JSON, or SystemVerilog includes.
"""

import hashlib
import json
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np
from numpy.typing import NDArray

from .. import __version__
from ..errors import FileError, OperandError
from ..infra.files import STANDARD_OUTPUT, whole_file, write_whole
from ..infra.pools import cores
from .stimulus import drawn_distributions
from .testbench import bench_files
from .vector_levels import Arrays, Table, VectorRequest, Vectors, file_vectors, joined, register_vectors, top_vectors
from .vector_steps import numerics_text

__all__ = ["MANIFEST", "Folder", "content_digest", "hex_lines", "write_vectors"]

#: Maximum total size of test vectors in 32-bit words, for formats with a single file, which is built in memory.
_MOST_WORDS = {"npz": 1 << 28, "json": 1 << 24, "svh": 1 << 24}
#: The four hexadecimal digits of every 16-bit number, as text.
_DIGITS = np.frombuffer("".join(f"{number:04x}" for number in range(1 << 16)).encode(), "<u4")
_T = TypeVar("_T")


class Folder:
    """Output folder, in which all files appear together when the exit stack closes, or no file if an error occurs."""

    def __init__(self, path: Path, stack: ExitStack) -> None:
        self._path, self._stack = path, stack
        self._files: dict[str, BinaryIO] = {}
        self._digests: dict[str, Any] = defaultdict(hashlib.sha256)
        self._sizes: Counter[str] = Counter()

    @property
    def digests(self) -> dict[str, dict[str, Any]]:
        """SHA-256 and size of each file, by name and sorted by name."""
        digests = sorted(self._digests.items())
        return {name: {"sha256": digest.hexdigest(), "bytes": self._sizes[name]} for name, digest in digests}

    def write(self, name: str, data: "bytes | memoryview") -> None:
        """Append data to a file of the folder. The first call creates the file."""
        if name not in self._files:
            self._files[name] = self._stack.enter_context(whole_file(self._path / name))
        self._files[name].write(data)
        self._digests[name].update(data)
        self._sizes[name] += len(data)


def hex_lines(vectors: NDArray[np.uint32], bits: int) -> memoryview:
    """Return test vectors, shape (count, words), as lines of hexadecimal digits; `bits` is the width of each."""
    digits, halves = -(-bits // 4), -(-bits // 16)
    words = np.ascontiguousarray(vectors, "<u4").view("<u2")
    lines = np.full((len(vectors), 4 * halves + 1), ord("\n"), np.uint8)
    for half in range(halves):
        four_digits = np.ndarray(len(lines), "<u4", lines, 4 * (halves - 1 - half), lines.strides[:1])
        four_digits[:] = _DIGITS.take(words[:, half], mode="clip")
    return np.ascontiguousarray(lines[:, 4 * halves - digits :]).reshape(-1).data


def _write_hex(folder: Folder, vectors: Vectors, facts: dict[str, Any]) -> None:
    for table in vectors.tables:
        lines = [*_sentences(table, facts), *table.meaning]
        folder.write(f"{table.name}.hex", "".join(f"// {line}".rstrip() + "\n" for line in lines).encode())

    def lines_of(number: int) -> dict[str, memoryview]:
        block = vectors.block(number)
        return {table.name: hex_lines(block[table.name], table.bits) for table in vectors.tables}

    for block in _in_order(lines_of, vectors.blocks):
        for name, text in block.items():
            folder.write(f"{name}.hex", text)


def _in_order(compute: Callable[[int], _T], count: int) -> Iterator[_T]:
    """Yield ``compute(0)``, ``compute(1)``, ... in order; threads, one per core, compute a few values in advance."""
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
    title = f"{'expected' if table.expected else 'given'} {table.name} of {facts['instruction']} on {facts['arch']}"
    axes = " x ".join(f"{count} ({axis})" for count, axis in zip(table.shape, table.axes, strict=True))
    lines = [f"{title}, level {facts['level']}, seed {facts['seed']}", f"{axes}, {table.bits} bits a line"]
    return [*lines, facts["numerics"]]


def _all_arrays(vectors: Vectors) -> Arrays:
    blocks = list(_in_order(vectors.block, vectors.blocks))
    return {table.name: np.concatenate([block[table.name] for block in blocks]) for table in vectors.tables}


def _write_npz(folder: Folder, vectors: Vectors, facts: dict[str, Any]) -> None:
    if vectors.file:
        contents = joined(list(_in_order(vectors.file, vectors.blocks))).contents()
    else:
        contents = {"instruction": facts["instruction"], "arch": facts["arch"], **_all_arrays(vectors)}
    archive = BytesIO()
    np.savez_compressed(archive, allow_pickle=False, **contents)
    folder.write("vectors.npz", archive.getvalue())


def _write_json(folder: Folder, vectors: Vectors, facts: dict[str, Any]) -> None:
    arrays = _all_arrays(vectors)
    words = {table.name: _words(arrays[table.name], table) for table in vectors.tables}
    folder.write("vectors.json", (json.dumps({**facts, "words": words}, indent=1) + "\n").encode())


def _write_svh(folder: Folder, vectors: Vectors, facts: dict[str, Any]) -> None:
    lines = ["`ifndef SPTC_VECTORS_SVH", "`define SPTC_VECTORS_SVH", f"localparam int TILES = {facts['tiles']};"]
    arrays = _all_arrays(vectors)
    for table in vectors.tables:
        name = table.name.upper()
        lines += [f"// {line}".rstrip() for line in (*_sentences(table, facts), *table.meaning)]
        lines += [f"localparam int {name}_COUNT = {table.count};", f"localparam int {name}_BITS = {table.bits};"]
        literals = ",\n".join(f"  {table.bits}'h{word}" for word in _words(arrays[table.name], table))
        lines.append(f"localparam logic [{table.bits - 1}:0] {name} [{table.count}] = '{{\n{literals}\n}};")
    folder.write("vectors.svh", "\n".join([*lines, "`endif", ""]).encode())


def _words(array: NDArray[np.uint32], table: Table) -> list[str]:
    return hex_lines(array, table.bits).tobytes().decode().splitlines()


#: Key: file format. Value: function that computes and writes all test vectors. Its last argument describes them.
_WRITERS = {"npz": _write_npz, "hex": _write_hex, "json": _write_json, "svh": _write_svh}


#: Name of the manifest, which describes all other files of the folder.
MANIFEST = "manifest.json"


def write_vectors(request: VectorRequest, folder: Path) -> dict[str, Any]:
    """Write test vectors and their manifest to a folder, which is created if missing. Return the manifest.

    Files of the same names are replaced after all new files are written, the manifest last. The manifest has the
    request, shape and meaning of each table, SHA-256 and size of each file, and ``sha256``, the :func:`content_digest`
    of all other keys. Raise an `Error` if no such vectors exist, or they cannot be written.
    """
    if folder == STANDARD_OUTPUT:
        raise FileError("test vectors of several files cannot be written to standard output: name a folder")
    if request.file:
        vectors = file_vectors(request.file, request.backend)
    else:
        vectors = top_vectors(request, request.config) if request.config else register_vectors(request)
    facts, name = _facts(request, vectors), request.format
    most, words = _MOST_WORDS.get(name), sum(table.count * table.words for table in vectors.tables)
    if most is not None and words > most:
        raise OperandError(
            f"{words} words of 32 bits are too many for format {name}, which allows {most}; format hex has no limit"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            files = Folder(folder, stack)
            if request.bench:
                assert request.config
                for file, text in bench_files(request.config, request.level, vectors.tables, request.seed).items():
                    files.write(file, text.encode())
            _WRITERS[name](files, vectors, facts)
            (folder / MANIFEST).unlink(missing_ok=True)  # delete the old manifest, which does not match the new files
    except OSError as error:
        raise FileError(f"test vectors cannot be written to {folder} ({error.strerror or error})") from None
    manifest = {**facts, "files": files.digests}
    manifest["sha256"] = content_digest(manifest)
    write_whole(folder / MANIFEST, (json.dumps(manifest, indent=1) + "\n").encode())
    return manifest


def content_digest(manifest: dict[str, Any]) -> str:
    """Return the SHA-256 of a manifest without its key ``sha256``, as JSON with sorted keys and no spaces."""
    content = {key: value for key, value in manifest.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _facts(request: VectorRequest, vectors: Vectors) -> dict[str, Any]:
    subject = request.subject
    return {
        "sptc": __version__,
        "instruction": subject.name,
        "arch": request.arch,
        "numerics": numerics_text(request.config, subject.instruction, request.arch),
        "level": request.level,
        "configuration": request.config and asdict(request.config),
        "format": request.format,
        "tiles": request.tiles,
        "seed": request.seed,
        "distributions": [] if request.file else list(drawn_distributions(subject.instruction, request.distribution)),
        "nibbles": request.nibbles,
        "computed_by": request.backend,
        "immediates": vectors.immediates,
        "tables": [{**asdict(table), "count": table.count, "meaning": list(table.meaning)} for table in vectors.tables],
    }
