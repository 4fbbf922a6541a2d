"""Conformance packs: for one instruction, a few cases that distinguish the right model from wrong models.

A pack is a register file (:mod:`sptc.verify.register_file`) whose D comes from the golden model. It has one more key,
``conformance``: JSON with the number of differing outputs of each neighbour (a wrong model) in each case; with the
neighbours that give the right result for all operands, and the reasons; and with groups of neighbours that give equal
results. The pack has only digests of the neighbours' results, because the golden model can compute these results from
the operands.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import Error, FileError
from ..infra.reading import opened, parse_json, read_text
from ..isa.names import Subject
from ..operands.tile_arrays import KEYS
from . import register_file
from .archive import Replayable, load
from .candidates import draw_candidates
from .neighbours import Model, neighbours_of, right_model
from .pack_files import file_of, given_of
from .replay import Mismatch, compare
from .stimulus import Given, joined

__all__ = [
    "MOST_CASES",
    "Apart",
    "Judgement",
    "Pack",
    "choose_pack",
    "judge",
    "read_pack",
    "read_results",
    "write_pack",
]

#: Maximum number of test cases in a conformance pack.
MOST_CASES = 256
#: Target numbers of test cases. First: number of test cases that distinguish a neighbour (wrong model) from the right
#: model, for each neighbour. Second: number of test cases that distinguish two neighbours, for each pair.
_CASES_FROM_RIGHT, _CASES_FROM_OTHERS = 3, 1
#: Size of one draw of candidate tiles from one distribution. First: number of outputs that the tiles of a draw should
#: have together. Second: maximum number of tiles of a draw.
_OUTPUTS, _TILES = 1024, 8
#: Number of columns (N) of a candidate tile. If the instruction has a larger N, several tiles form one test case.
_COLUMNS = 8
#: Maximum numbers of rounds that draw candidate tiles. First: rounds to distinguish neighbours (wrong models) from the
#: correct model. Second: rounds to distinguish neighbours also from each other.
_ROUNDS, _ROUNDS_FOR_OTHERS = 24, 2
_KEY = "conformance"


@dataclass(frozen=True)
class Apart:
    """Numbers of outputs that a neighbour (wrong model) computes wrongly, by case of a conformance pack."""

    name: str  #: Name of the neighbour (wrong model), such as "F = 24"
    outputs: tuple[int, ...]  #: Number of outputs that differ from the right model, for each test case
    digest: str  #: SHA-256 of all outputs that the wrong model computes for the test cases


@dataclass(frozen=True, eq=False, kw_only=True)
class Pack:
    """Conformance pack of one instruction: cases, and neighbours (wrong models) whose results differ in these cases."""

    file: Replayable  #: Operands of all test cases, and D of the correct model, as a register file (``.npz``)
    seed: int
    candidates: int  #: Number of candidate tiles from which the cases were chosen
    #: Neighbours (wrong models) whose results can differ from those of the right model, even if no test case of the
    #: conformance pack shows a difference.
    neighbours: tuple[Apart, ...]
    same: dict[str, str]  #: Neighbours (wrong models) that give the right result for all operands, each with the reason
    #: Groups of neighbours (wrong models) with equal results. The test cases do not distinguish them from each other.
    alike: tuple[tuple[str, ...], ...]

    @property
    def told_apart(self) -> tuple[str, ...]:
        """Names of the neighbours (wrong models) that differ from the right model in at least one output."""
        return tuple(neighbour.name for neighbour in self.neighbours if any(neighbour.outputs))

    @property
    def missed(self) -> dict[str, str]:
        """Neighbours (wrong models) that gave the right result for every tile tried, each with a message."""
        sentence = f"not distinguished by {self.candidates} candidate tiles"
        return {neighbour.name: sentence for neighbour in self.neighbours if not any(neighbour.outputs)}


def choose_pack(
    subject: Subject, arch: str, seed: int, *, rows: int | None = None, sparsity_selector: int | None = None
) -> Pack:
    """Generate many random tiles. Choose a few test cases that distinguish right and wrong models from each other.

    Equal arguments give equal packs. `rows` is the number of different rows of A, by default M; these rows are repeated
    up to M. The sparsity selector is random by default. Raise an `InstructionError` if the architecture lacks the
    instruction, and an `OperandError` if no public source states where all operands are stored.
    """
    i = subject.instruction
    narrow = replace(i, m=rows or i.m, n=_COLUMNS)
    right, neighbours = right_model(narrow, arch), neighbours_of(narrow, arch)
    models = [right, *(neighbour for neighbour in neighbours if not neighbour.same)]
    rng = np.random.default_rng([seed, *hashlib.sha256(f"{subject.name} {arch}".encode()).digest()])
    choice = _Choice(models)
    tiles = min(_TILES, max(1, _OUTPUTS // (narrow.m * _COLUMNS)))
    for number in range(_ROUNDS):
        if choice.tells_neighbours(from_others=number < _ROUNDS_FOR_OTHERS):
            break
        for candidates in draw_candidates(narrow, right.numerics, rng, tiles):
            choice.consider(candidates)
    assert choice.operands is not None
    operands = choice.operands.repeated(i.m).widened(i.n)
    drawn = int(rng.integers(i.sparsity_selectors))
    file = file_of(subject, arch, operands, rng, drawn if sparsity_selector is None else sparsity_selector)
    return _described(replace(file, d=file.run()), seed, choice.seen)


class _Choice:
    """Test cases that were chosen so far from all candidate tiles, with their operands."""

    def __init__(self, models: Sequence[Model]) -> None:
        self._models = models
        self._pairs = list(combinations(range(len(models)), 2))
        self._has_other_mux = np.array(
            [any(models[index].mux != models[0].mux for index in pair) for pair in self._pairs]
        )
        self._from_right = np.array([pair[0] == 0 for pair in self._pairs])
        self._required = np.where(self._from_right, _CASES_FROM_RIGHT, _CASES_FROM_OTHERS)
        self._outputs = np.zeros((len(self._pairs), 0), np.int64)
        self.operands: Given | None = None
        self.seen = 0

    def tells_neighbours(self, *, from_others: bool) -> bool:
        """Return whether wrong models differ from the right model (or also from each other) in enough test cases."""
        met = (self._outputs > 0).sum(axis=1) >= self._required
        return bool(self._outputs.shape[1]) and bool(met.all() if from_others else met[self._from_right].all())

    def consider(self, operands: Given) -> None:
        """Choose the test cases anew, from the cases chosen so far and a batch of newly drawn tiles.

        Cases of a batch with undefined nibbles count only for neighbours with another multiplexer. Cases of batches
        without undefined nibbles must distinguish all other neighbours.
        """
        results = [model.multiply(operands).reshape(operands.cases, -1) for model in self._models]
        outputs = np.array([np.count_nonzero(results[one] != results[two], axis=1) for one, two in self._pairs])
        rule, nibbles = self._models[0].instruction.rule, operands.matrices.nibbles
        if rule and nibbles is not None and not np.isin(nibbles, [*rule.legal]).all():
            outputs[~self._has_other_mux] = 0
        self.seen += operands.cases
        pool = operands if self.operands is None else joined([self.operands, operands])
        outputs = np.concatenate([self._outputs, outputs.reshape(len(self._pairs), -1)], axis=1)
        chosen = self._covering(outputs)
        self.operands, self._outputs = pool.take(chosen), outputs[:, chosen]

    def _covering(self, outputs: NDArray[np.int64]) -> NDArray[np.intp]:
        """Choose test cases greedily: repeatedly add the case that helps to distinguish the most pairs of models."""
        tells, chosen = outputs > 0, [int(outputs.sum(axis=0).argmax())]
        # If test cases help to distinguish equally many pairs of models, choose the one with more differing outputs.
        weights = np.minimum(outputs, 8) / (8 * (outputs.shape[1] + 1))
        while len(chosen) < MOST_CASES:
            met = tells[:, chosen].sum(axis=1)
            helped = (tells & (met < self._required)[:, None]).sum(axis=0)
            helped[chosen] = 0
            if not helped.any():
                break
            chosen.append(int((helped + weights.mean(axis=0)).argmax()))
        return np.array(chosen)


def _described(file: Replayable, seed: int, candidates: int) -> Pack:
    """Return the test cases in `file` as a conformance pack, with a comparison of D with the results of wrong models.

    Raise an `Error` if the file cannot be computed; if its D is not the result of the right model; or if it uses a
    placement or negation that packs do not have.
    """
    assert file.d is not None
    if (file.run() != file.d).any():  # run() raises an `Error` if the operands are invalid
        raise FileError(f"D of the test cases of {file.name} is not the result of the golden model for {file.arch}")
    operands, expected = given_of(file), file.matrix(file.d)
    if (right_model(file.instruction, file.arch).multiply(operands) != expected).any():
        raise FileError(
            f"a conformance pack of {file.name} must not use options that change the result, such as disabled lanes"
        )
    differences, same = [], {}
    groups: dict[str, list[str]] = {}
    for neighbour in neighbours_of(file.instruction, file.arch):
        if neighbour.same:
            same[neighbour.name] = neighbour.same
        else:
            results = neighbour.multiply(operands)
            outputs = np.count_nonzero((results != expected).reshape(file.cases, -1), axis=1)
            digest = hashlib.sha256(np.ascontiguousarray(results).tobytes()).hexdigest()
            differences.append(Apart(neighbour.name, tuple(outputs.tolist()), digest))
            if outputs.any():
                groups.setdefault(digest, []).append(neighbour.name)
    alike = tuple(tuple(names) for names in groups.values() if len(names) > 1)
    return Pack(file=file, seed=seed, candidates=candidates, neighbours=tuple(differences), same=same, alike=alike)


def write_pack(path: Path, pack: Pack) -> None:
    """Write a conformance pack; equal content gives equal bytes. Raise a `FileError` if the file cannot be written."""
    register_file.write(path, pack.file, **{_KEY: json.dumps(_manifest(pack))})


def _manifest(pack: Pack) -> dict[str, object]:
    return {
        "seed": pack.seed,
        "candidates": pack.candidates,
        "neighbours": [
            {"name": each.name, "outputs": list(each.outputs), "sha256": each.digest} for each in pack.neighbours
        ],
        "same": pack.same,
        "alike": [list(names) for names in pack.alike],
    }


def read_pack(path: Path) -> Pack:
    """Read a conformance pack, and recompute the results of its deliberately wrong models.

    Raise a `FileError` if the file is no register file or no pack, or has other operands, D or neighbours than when it
    was written; and an `InstructionError` if its instruction does not parse.
    """
    archive = load(path, {*KEYS, _KEY})
    archive.require([_KEY])
    file = register_file.interpret(archive)
    manifest = parse_json(archive.string(_KEY, ""), f"{path}:", f"the key {_KEY} is not JSON")
    manifest = manifest if isinstance(manifest, dict) else {}
    seed, candidates = manifest.get("seed"), manifest.get("candidates")
    if not isinstance(seed, int) or not isinstance(candidates, int):
        raise FileError(f"{path}: the key {_KEY} must contain the integers 'seed' and 'candidates'")
    if file.d is None:
        raise FileError(f"{path} lacks the key 'D'")
    try:
        pack = _described(file, seed, candidates)
    except Error as error:
        raise FileError(f"{path}: {error}") from None
    if _manifest(pack)["neighbours"] != manifest.get("neighbours"):
        raise FileError(
            f"{path} was changed or written by another version of sptc: its results of wrong models differ "
            "from those that this version computes"
        )
    return pack


_WORD_BITS = 32
_HEXADECIMAL_WORD = re.compile(rf"(0[xX])?[0-9a-fA-F]{{1,{_WORD_BITS // 4}}}")


@dataclass(frozen=True)
class Judgement:
    """Comparison of the results of a model under test with the right model and with its neighbours (wrong models)."""

    #: Number of compared outputs, and number of outputs that differ from D.
    outputs: int
    differing: int
    first: Mismatch | None  #: First output that differs from D; None if all are equal
    beside: int  #: Number of tensor memory words outside D in which the model under test and the right model differ
    explained_by: tuple[str, ...]  #: Neighbours (wrong models) that reproduce all outputs; empty if all outputs equal D
    #: Neighbour (wrong model) that reproduces the most outputs. Empty if the right model reproduces as many.
    nearest: str
    #: Number of outputs that the model `nearest` reproduces or, if `nearest` is empty, that the right model reproduces
    explained: int

    @property
    def right(self) -> bool:
        """Whether the model under test gives all results of the right model."""
        return not self.differing and not self.beside


def judge(pack: Pack, results: NDArray[np.uint32]) -> Judgement:
    """Compare results of a model under test (registers or tensor memory) with D and with results of wrong models."""
    file = pack.file
    assert file.d is not None
    computed, expected = file.matrix(results), file.matrix(file.d)
    differing, first = compare(computed, [("the right model", expected)])
    counts = {"": computed.size - differing}  # numbers of outputs that the correct model and each wrong model reproduce
    if differing:
        operands = given_of(file)
        counts |= {
            neighbour.name: int(np.count_nonzero(neighbour.multiply(operands) == computed))
            for neighbour in neighbours_of(file.instruction, file.arch)
            if not neighbour.same
        }
    nearest = max(counts, key=lambda name: counts[name])
    return Judgement(
        outputs=computed.size,
        differing=differing,
        first=first,
        beside=int(np.count_nonzero(file.beside(results) != file.beside(file.d))),
        explained_by=tuple(name for name, count in counts.items() if name and count == computed.size),
        nearest=nearest,
        explained=counts[nearest],
    )


def read_results(path: Path, shape: tuple[int, ...]) -> NDArray[np.uint32]:
    """Read results from a file: key ``D`` of an ``.npz``, a JSON list, or one hexadecimal word per line, in C order.

    A JSON list, flat or nested like D, has integers or strings with hexadecimal words. `shape` is the shape of D in the
    pack. Raise a `FileError` if the file has another format, or another number of words.
    """
    with opened(path) as file:
        is_archive = file.read(2) == b"PK"
    if is_archive:
        archive = load(path, ("D",))
        archive.require(["D"])
        d = archive.arrays["D"]
        if d.dtype != np.uint32 or d.shape != shape:
            raise archive.refuse("D", f"a uint32 array of shape {shape}, the shape of D in the conformance pack")
        return d
    text = read_text(path, "is neither .npz nor JSON nor hexadecimal words").strip()
    words = _listed(path, text) if text.startswith("[") else _hexadecimal(path, text.splitlines(), "line")
    if words.shape not in (shape, (int(np.prod(shape)),)):
        raise FileError(f"{path} must hold {int(np.prod(shape))} words of shape {shape}, the shape of D in the "
                        f"conformance pack, not {words.size} of shape {words.shape}")  # fmt: skip
    return words.reshape(shape)


def _listed(path: Path, text: str) -> NDArray[np.uint32]:
    refusal = (
        f"{path} must be a JSON list of integers from 0 to {2**_WORD_BITS - 1} or of hexadecimal strings, flat or "
        "nested as D is"
    )
    try:
        content = parse_json(text, str(path))
        words = np.array(content)
    except (ValueError, OverflowError) as error:
        raise error if isinstance(error, FileError) else FileError(refusal) from None
    if words.dtype.kind == "U" and words.tolist() == content:  # NumPy has not converted numbers to strings
        return _hexadecimal(path, words.ravel().tolist(), "word").reshape(words.shape)
    if words.dtype.kind not in "iu" or words.min(initial=0) < 0 or words.max(initial=0) >> _WORD_BITS:
        raise FileError(refusal)
    return words.astype(np.uint32)


def _hexadecimal(path: Path, texts: Sequence[str], name: str) -> NDArray[np.uint32]:
    """Convert hexadecimal texts to numbers; `name` is the noun for one text in error messages."""
    words = []
    for number, line in enumerate(texts, 1):
        if not _HEXADECIMAL_WORD.fullmatch(line.strip()):
            raise FileError(f"{path}: {name} {number} must be a hexadecimal word of 32 bits, not {line[:40]!r}")
        words.append(int(line, 16))
    return np.array(words, np.uint32)
