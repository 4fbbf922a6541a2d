"""Replay of recordings on a back end, and comparison of D with the recorded D and the D of the golden model."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..api.backends import backend as backend_named
from ..api.recorder import Recorder
from ..errors import MetadataError
from ..isa.evidence import Evidence
from ..isa.formats import Format
from ..isa.instructions import Instruction
from ..isa.operands import Product, StepFlags
from . import dot_products, register_file
from .archive import Recorded, load

__all__ = ["Mismatch", "Outcome", "as_number", "compare", "flags_and_rules", "replay"]


@dataclass(frozen=True)
class Mismatch:
    """A difference between computed and expected value: of an output, of memory outside D, or of a metadata flag."""

    #: Position: tile, row and column of an output; or tile, lane and column of a word of tensor memory outside D.
    case: int
    row: int
    column: int
    #: Code from the back end, and code from the reference. A word of tensor memory has zeros in place of bits of D.
    computed: int
    expected: int
    #: Reference from which the computed code differs: the ``"recorded"`` D; the ``"golden model"``; ``"before the
    #: instruction"``, for a changed word outside D; or the ``"metadata rule"``, for a flag.
    reference: str
    cta: int | None = None  #: Index of the CTA whose tensor memory differs outside D; None for an output
    is_flag: bool = False  #: Whether a flag of undefined metadata differs; `column` is then the index of its chunk


@dataclass(frozen=True)
class Outcome:
    """Result of replaying one register file (``.npz`` of operands and results) or one set of recorded dot products."""

    path: Path
    name: str  #: Name of the instruction
    instruction: Instruction  #: Instruction with shape and types
    arch: str  #: Architecture or PTX target whose numerics were applied
    a_from: str | None  #: Location of A, ``"registers"`` or ``"shared"``; None if the location does not affect D
    evidence: Evidence  #: Level of evidence for the model of the instruction
    #: Number of computed tiles. Number of outputs that are compared with the recording or the golden model. Number of
    #: differences in outputs, in words of tensor memory outside D, and in flags.
    tiles: int
    outputs: int
    mismatches: int
    flags: int  #: Number of flags of undefined metadata (one per chunk) that were compared with the metadata rule
    first: Mismatch | None  #: First wrong output, word or flag; its field `case` is the index of the tile
    #: Clock cycles that a simulated top-level module takes for all tiles, as in :class:`~sptc.isa.operands.Product`.
    #: None if the back end does not simulate a top-level module.
    cycles: int | None = None


def as_number(code: int, fmt: Format) -> float | int:
    """Return the value of an f16, f32 or s32 accumulator code."""
    if fmt.name == "f16":
        return float(np.uint16(code).view(np.float16))
    return float(np.uint32(code).view(np.float32)) if fmt.name == "f32" else int(np.uint32(code).view(np.int32))


def replay(
    path: Path,
    *,
    backend: str = "golden",
    arch: str | None = None,
    metadata: str | None = None,
    limit: int | None = None,
    seed: int = 0,
) -> list[Outcome]:
    """Compute the cases (executions) of a recording; compare D with the recorded D and with the golden model.

    A register file has one outcome, an archive of dot products one for each set. `arch` and `metadata` replace the
    values in the file. At most `limit` tiles of a register file, or dot products of a set, are computed; they are drawn
    with the seed. Raise a `FileError` if the file is neither a register file nor an archive of dot products, and
    another `Error` if its content cannot be computed.
    """
    archive = load(path)
    is_dot_products = "sets" in archive.names
    files: Sequence[Recorded] = dot_products.read(path) if is_dot_products else [register_file.interpret(archive)]
    outcomes = []
    for file in files:
        recorded = file.assuming(arch, metadata)
        cases = np.arange(recorded.cases)
        if limit is not None and limit < recorded.cases:
            cases = np.sort(np.random.default_rng(seed).choice(recorded.cases, limit, replace=False))
            recorded = recorded.take(cases)
        try:
            outcomes.append(_replayed(path, recorded, backend))
        except MetadataError as error:
            raise error.at((int(cases[error.batch[0]]),), "case") from None
    return outcomes


def _replayed(path: Path, file: Recorded, backend: str) -> Outcome:
    recorder = Recorder(backend_named(backend))
    result = file.run(recorder)
    references = {} if file.d is None else {"recorded": file.d}
    if backend != "golden":
        references["golden model"] = file.run("golden")
    computed = file.matrix(result)
    differing, first = compare(computed, ((name, file.matrix(d)) for name, d in references.items()))
    references_beside = references | {"before the instruction": file.before}
    changed, first_beside = compare(
        file.beside(result), ((name, file.beside(reference)) for name, reference in references_beside.items())
    )
    raised, required = flags_and_rules(recorder.products, file.cases)
    flagged, first_flag = compare(raised, [("metadata rule", required)])
    if first_flag:
        first_flag = replace(first_flag, is_flag=True)
    cycles = [product.cycles for product in recorder.products if product.cycles is not None]
    return Outcome(
        path,
        file.name,
        file.instruction,
        file.target or file.arch,
        file.a_from,
        file.evidence,
        file.cases,
        computed.size if references else 0,
        differing + changed + flagged,
        raised.size,
        first or first_beside or first_flag,
        sum(cycles) if cycles else None,
    )


def compare(computed: NDArray, references: Iterable[tuple[str, NDArray]]) -> tuple[int, Mismatch | None]:
    """Return the number of elements that differ from at least one of the references, and the first difference.

    All arrays have the shape (cases, rows, columns), or (cases, CTAs, lanes, columns) for words outside D.
    """
    differs, first = np.zeros(computed.shape, np.bool_), None
    for name, expected in references:
        wrong = computed != expected
        differs |= wrong
        if first is None and wrong.any():
            case, *cta, row, column = position = tuple(int(index) for index in np.argwhere(wrong)[0])
            codes = int(computed[position]), int(expected[position])
            first = Mismatch(case, row, column, *codes, name, cta[0] if cta else None)
    return int(differs.sum()), first


def flags_and_rules(products: Sequence[Product], cases: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return two arrays of flags of undefined metadata nibbles: flags that were raised, and flags that rules require.

    The last axis holds the chunks of all steps of a product; it has length 0 if the back end raises no flags. Each case
    of the register file may consist of several tiles.
    """
    steps = [product.flags for product in products if product.flags]
    if not steps or not cases:
        return (np.zeros((cases, 0, 0), np.bool_),) * 2
    raised = np.concatenate([np.concatenate([step.illegal for step in flags], axis=-1) for flags in steps])
    required = np.concatenate([np.concatenate([_undefined(step) for step in flags], axis=-1) for flags in steps])
    shape = (cases, raised.shape[0] * raised.shape[1] // cases, raised.shape[2])
    return raised.reshape(shape), required.reshape(shape)


def _undefined(step: StepFlags) -> NDArray[np.bool_]:
    if step.instruction.rule is None or step.nibbles is None:
        return np.zeros_like(step.illegal)
    return ~np.isin(step.nibbles, list(step.instruction.rule.legal))
