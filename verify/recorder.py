"""Script that runs conformance packs on a GPU without this package, and comparison of GPU results with the model.

:mod:`sptc.gpu.recorder` is the file that runs on the GPU. A row of the file is an instruction with one sparsity
selector. The operands of a row are a conformance pack with few rows of A, so that one file holds all instructions of an
architecture.
"""

import base64
import hashlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import __version__
from ..errors import FileError, InstructionError
from ..gpu.ptx import kernel, target
from ..gpu.recorder import FORMAT, packed
from ..gpu.tensor_ptx import RANGE, ranges_of, tensor_kernel
from ..infra.reading import parse_json, read_text
from ..isa.architectures import TARGETS, require_target, same_numerics, target_named
from ..isa.names import Subject, resolve, subject_named
from ..isa.numerics import OPEN_RULES
from ..isa.tensor_memory import COLUMNS, LANES
from .archive import Replayable
from .conformance import Judgement, Pack, choose_pack, judge
from .pack_files import every_subject
from .register_file import RegisterFile
from .tensor_memory_file import TensorMemoryFile

__all__ = ["Row", "RowJudgement", "judge_record", "read_record", "rows_of", "rules_decided", "script", "subjects_of"]

#: Number of distinct rows of A for a ``tcgen05`` instruction; further rows of A repeat the distinct rows.
_ROWS = 16
_WARP_CTA = 128


@dataclass(frozen=True)
class Row:
    """Entry of a record of GPU results: one instruction with one sparsity selector."""

    subject: Subject
    sparsity_selector: int

    def choose(self, name: str, seed: int) -> Pack:
        """Return the conformance pack of this instruction and sparsity selector for a target."""
        rows = _ROWS if self.subject.opcode else None
        arch, selector = same_numerics(name), self.sparsity_selector
        return choose_pack(self.subject, arch, seed, rows=rows, sparsity_selector=selector)


def subjects_of(name: str) -> Iterator[Subject]:
    """Yield the instructions to record on a target: ``wgmma`` only with the smallest N, ``tcgen05`` with the largest M.

    Instructions of CTA pairs and with ``.ws`` differ from other instructions only in the placement of operands. For
    each of their opcodes, scale formats and result types, only the first combination of types of A and B is yielded.
    """
    seen: set[object] = set()
    for subject in every_subject(same_numerics(name)):
        i, opcode = subject.instruction, subject.opcode
        form: object = replace(i, n=0) if i.family == "wgmma" else subject
        if opcode and (opcode.cta_group == 2 or opcode.weight_stationary):
            form = opcode, i.d, i.scale_format, i.satfinite
        if form not in seen and target_named(name).has(i) and (opcode is None or i.m == opcode.rows[-1]):
            seen.add(form)
            yield subject


def rows_of(name: str, instructions: Sequence[str] = ()) -> list[Row]:
    """Return one entry to record for each sparsity selector of each instruction of a target, or of `instructions`.

    Raise an `InstructionError` if the target does not have an instruction, or is a family target, whose code runs on
    several chips.
    """
    if target_named(name).is_family:
        raise InstructionError(
            f"the target of a recording script must be one chip such as {name[:-1]}a, not the family {name}"
        )
    subjects = [*dict.fromkeys(resolve(text, name) for text in instructions)] or list(subjects_of(name))
    for subject in subjects:
        require_target(subject.instruction, name)
    rows = [Row(subject, number) for subject in subjects for number in range(subject.instruction.sparsity_selectors)]
    # For tcgen05, only the first two sparsity selectors are documented.
    return [row for row in rows if row.subject.opcode is None or row.sparsity_selector < 2]


def script(name: str, seed: int, rows: Sequence[Row], packs: Iterable[Pack]) -> str:
    """Return a Python script as text, which runs the test cases of instructions (`rows`) on a GPU of target `name`."""
    manifest: dict[str, Any] = {"target": name, "sptc": __version__, "seed": seed, "kernels": [], "rows": []}
    major, minor = divmod(int(target(name).strip("sm_a")), 10)
    manifest["capabilities"] = [f"{major}.{minor}"]
    arrays: dict[str, NDArray[Any]] = {}
    kernels: dict[str, int] = {}
    for number, (row, pack) in enumerate(zip(rows, packs, strict=True)):
        launch, text, operands = _launch(pack.file, name)
        assert pack.file.d is not None
        launch |= {
            "name": row.subject.name,
            "selector": row.sparsity_selector,
            "kernel": kernels.setdefault(text, len(kernels)),
            "operands": _digest(operands.values()),
            "sha256": _digest([_words(pack.file, pack.file.d)]),
        }
        manifest["rows"].append(launch)
        arrays |= {f"{number}.{operand}": array for operand, array in operands.items()}
    manifest["kernels"] = list(kernels)
    source = (Path(__file__).parents[1] / "gpu" / "recorder.py").read_text(encoding="utf-8")
    before, after = source.split('PACK = ""\n')
    return f'{before}PACK = "{packed(manifest, arrays)}"\n{after}'


def _digest(arrays: Iterable[NDArray[Any]]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _launch(file: Replayable, name: str) -> tuple[dict[str, Any], str, dict[str, NDArray[Any]]]:
    """Return launch parameters, kernel text and memory contents with which a GPU multiplies the operands in `file`."""
    if isinstance(file, TensorMemoryFile):
        return _tensor_launch(file, name)
    assert isinstance(file, RegisterFile)
    i, descriptors, shared = file.instruction, [0, 0], 0
    if i.family == "wgmma":
        descriptors = [0 if x is None else int(x[0]) for x in (file.a_descriptor, file.b_descriptor)]
        shared = 4 * file.b.shape[1]
    threads = file.cases * i.threads
    launch = {
        "ctas": -(-threads // _WARP_CTA),
        "cta_threads": _WARP_CTA,
        "threads": threads,
        "shared": shared,
        "descriptors": descriptors,
        "words": file.c.size,
    }
    return launch, kernel(i, name, file.immediates), file.operands


def _tensor_launch(file: TensorMemoryFile, name: str) -> tuple[dict[str, Any], str, dict[str, NDArray[Any]]]:
    n, ctas = file.instruction.n, file.cases * file.opcode.cta_group
    d_ranges, others = ranges_of(file.addresses, n)
    smem = file.smem.reshape(ctas, -1)
    tmem = file.tmem.reshape(ctas, LANES, COLUMNS)
    operands = {"a": _ranges(tmem, [*d_ranges, *others]), "b": np.ascontiguousarray(smem).view(np.uint32)}
    launch = {
        "ctas": ctas,
        "cta_threads": LANES,
        "threads": ctas * LANES,
        "shared": smem.shape[1],
        "descriptors": [file.addresses["a"], file.addresses["b"]],
        "words": ctas * len(d_ranges) * LANES * RANGE,
    }
    places = {key: place for key, place in file.addresses.items() if key not in ("a", "b")}
    return launch, tensor_kernel(file.opcode, target(name), file.idesc, places, n), operands


def _ranges(tmem: NDArray[np.uint32], first: list[int]) -> NDArray[np.uint32]:
    """Return a range of columns of tensor memory for each start column in `first`, shape (CTA, range, lane, column)."""
    return np.stack([tmem[..., column : column + RANGE] for column in first], axis=1)


def _words(file: Replayable, result: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return an instruction's result words in the order in which the recording kernel writes them."""
    if isinstance(file, TensorMemoryFile):
        d_ranges, _ = ranges_of(file.addresses, file.instruction.n)
        result = _ranges(result.reshape(-1, LANES, COLUMNS), d_ranges)
    return result.ravel()


def _result(file: Replayable, words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return the result of an instruction from the words that the kernel wrote: the inverse of :func:`_words`."""
    assert file.d is not None
    if not isinstance(file, TensorMemoryFile):
        return words.reshape(file.d.shape)
    result = file.tmem.reshape(-1, LANES, COLUMNS).copy()
    d_ranges, _ = ranges_of(file.addresses, file.instruction.n)
    for column, columns in zip(d_ranges, np.moveaxis(words.reshape(len(result), -1, LANES, RANGE), 1, 0), strict=True):
        result[..., column : column + RANGE] = columns
    return result.reshape(file.d.shape)


@dataclass(frozen=True)
class RowJudgement:
    """Comparison of GPU results with the model, for one instruction with one sparsity selector."""

    row: Row
    pack: Pack
    error: str  #: Reason why the GPU did not run the instruction; empty if the GPU ran it
    as_modelled: bool
    #: Comparison with wrong models (neighbours); None if the GPU agrees with the model, or if results are missing.
    judgement: Judgement | None

    @property
    def explained_by(self) -> tuple[str, ...]:
        """Names of the neighbours (wrong models) that reproduce all results of this instruction and selector."""
        return self.judgement.explained_by if self.judgement else ()


def read_record(path: Path) -> dict[str, Any]:
    """Read a record of GPU results, which :mod:`sptc.gpu.recorder` writes; raise a `FileError` for any other file."""
    record = parse_json(read_text(path, "is no text"), f"{path}:", "is no JSON")
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise FileError(f"{path} is no record of GPU results; the script from `sptc gpu pack` writes such records")
    kinds = {"target": str, "seed": int, "sptc": str, "gpu": dict, "rows": list}
    for key, kind in kinds.items():
        if not isinstance(record.get(key), kind):
            raise FileError(f"{path}: the field {key!r} is missing or has the wrong type")
    if not record["rows"] or not all(
        isinstance(row, dict) and isinstance(row.get("name"), str) and isinstance(row.get("selector"), int)
        for row in record["rows"]
    ):
        raise FileError(f"{path}: the list 'rows' is empty, or one of its entries lacks 'name' or 'selector'")
    if record["target"] not in TARGETS:
        raise FileError(f"{path}: the PTX target {record['target']!r} is unknown")
    if record["seed"] < 0:
        raise FileError(f"{path}: the seed must be 0 or more, not {record['seed']}")
    return record


def judge_record(
    path: Path, record: dict[str, Any], choose: Callable[[str, int, list[Row]], Iterable[Pack]]
) -> Iterator[RowJudgement]:
    """Yield the comparison of GPU results with the model, for each recorded instruction and sparsity selector.

    `record` is a result of :func:`read_record`, read from the file `path`. `choose` returns the conformance packs of
    rows for a target and a seed; it may use several processes. Raise a `FileError` if the operands of a row are not
    those of this version, or its results are damaged.
    """
    try:
        rows = [Row(subject_named(row["name"]), row["selector"]) for row in record["rows"]]
        for row in rows:
            if row not in rows_of(record["target"], [row.subject.name]):
                raise InstructionError(f"{row.subject.name} has no sparsity selector {row.sparsity_selector}")
    except InstructionError as error:
        raise FileError(f"{path}: {error}") from None
    for row, entry, pack in zip(rows, record["rows"], choose(record["target"], record["seed"], rows), strict=True):
        yield _judged(path, row, entry, pack, record["target"])


def _judged(path: Path, row: Row, entry: dict[str, Any], pack: Pack, name: str) -> RowJudgement:
    file = pack.file
    assert file.d is not None
    if entry.get("operands") != _digest(_launch(file, name)[2].values()):
        raise FileError(f"{path}: the operands of {row.subject.name} come from another version of sptc")
    if "error" in entry:
        return RowJudgement(row, pack, str(entry["error"]), False, None)
    expected = _words(file, file.d)
    if "d" not in entry:
        return RowJudgement(row, pack, "", entry.get("sha256") == _digest([expected]), None)
    try:
        words = np.frombuffer(zlib.decompress(base64.b64decode(entry["d"], validate=True)), np.uint32)
    except (ValueError, zlib.error, TypeError):
        words = np.zeros(0, np.uint32)
    if _digest([words]) != entry.get("sha256") or words.size != expected.size:
        raise FileError(f"{path}: the recorded results of {row.subject.name} are damaged")
    if (words == expected).all():
        return RowJudgement(row, pack, "", True, None)
    return RowJudgement(row, pack, "", False, judge(pack, _result(file, words)))


def rules_decided(judged: Sequence[RowJudgement]) -> dict[str, dict[str, int]]:
    """Return, for each unconfirmed rule of the numerics, how many recorded instructions support or contradict it.

    The evidence is the number of rows that agree with the modelled rule, with the alternative rule, and with neither.
    """
    decided = {}
    for key, rule in OPEN_RULES.items():
        telling = [row for row in judged if rule.name in row.pack.told_apart and not row.error]
        if telling:
            alternative = sum(rule.name in row.explained_by for row in telling)
            built = sum(row.as_modelled for row in telling)
            decided[key] = {"built": built, "alternative": alternative, "neither": len(telling) - built - alternative}
    return decided
