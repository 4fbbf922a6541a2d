"""Replay recordings on a back end and compare with the recorded result."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..api.backends import backend as backend_named
from ..api.recorder import Recorder
from ..isa.evidence import Evidence, evidence
from ..isa.formats import Format
from ..isa.instructions import Instruction
from . import dot_products, register_file
from .archive import Recorded, load
from .flags import flags_and_rules

__all__ = ["Mismatch", "Outcome", "as_number", "replay"]


@dataclass(frozen=True)
class Mismatch:
    """One output that differs from a reference, one word of tensor memory beside D, or one flag of the hardware.

    Attributes
    ----------
    case, row, column : int
        Which output; of a word beside D, its case, lane and column.
    computed, expected : int
        Codes: what the back end computed, and what the reference has. Of a word beside D, the bits of D are 0.
    reference : str
        ``"recorded"`` or ``"golden model"``; ``"before the instruction"`` for a word beside D that was changed;
        ``"metadata rule"`` for a flag.
    cta : int or None
        CTA whose tensor memory holds a word beside D; None for an output.
    is_flag : bool
        It is no output but the flag of undefined metadata of a chunk, which is the column.
    """

    case: int
    row: int
    column: int
    computed: int
    expected: int
    reference: str
    cta: int | None = None
    is_flag: bool = False


@dataclass(frozen=True)
class Outcome:
    """What replaying one register file, or one set of dot products, showed.

    Attributes
    ----------
    path : Path
        The file.
    name : str
        What ran, in words.
    instruction : Instruction
        Its shape and types.
    arch : str
        Architecture whose numerics were applied.
    a_from : str or None
        Where A is, as its file says.
    evidence : Evidence
        What the model of this form rests on.
    tiles, outputs, mismatches : int
        Tiles computed; outputs compared, with the recording, the golden model or both (0 if with neither); outputs
        that differ from either, words of tensor memory beside D that do or that the instruction changed, and flags.
    flags : int
        Flags of undefined metadata that hardware raised or not and that were compared with the rule, one a chunk.
    first : Mismatch or None
        The first difference; its case counts the tiles that ran.
    cycles : int or None
        Clock cycles of all tiles on a simulated top, as :class:`~sptc.isa.operands.Product` counts them; None from
        another back end.
    """

    path: Path
    name: str
    instruction: Instruction
    arch: str
    a_from: str | None
    evidence: Evidence
    tiles: int
    outputs: int
    mismatches: int
    flags: int
    first: Mismatch | None
    cycles: int | None = None


def as_number(code: int, fmt: Format) -> float | int:
    """Return an accumulator code of f16, f32 or s32 as a number."""
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
    """Compute what an archive holds; compare with its D and, unless it is what computes, with the golden model.

    Parameters
    ----------
    path : Path
        A register file, or sets of dot products.
    backend : str
        As in :func:`sptc.mma`.
    arch, metadata : str, optional
        Override what the file says.
    limit : int, optional
        At most so many tiles, of each set so many dot products, drawn with `seed`.
    seed : int
        Seed of that draw.

    Returns
    -------
    list of Outcome
        One for a register file, one for each set.

    Raises
    ------
    FileError
        The file is neither.
    InstructionError, OperandError, MetadataError, BackendError
        Its contents cannot be computed.
    """
    archive = load(path)
    held: Sequence[Recorded] = (
        dot_products.interpret(archive) if "sets" in archive.arrays else [register_file.interpret(archive)]
    )
    outcomes = []
    for each in held:
        file = each.assuming(arch, metadata)
        if limit is not None and limit < file.cases:
            drawn = np.random.default_rng(seed).choice(file.cases, limit, replace=False)
            file = file.take(np.sort(drawn))
        outcomes.append(_replayed(path, file, backend))
    return outcomes


def _replayed(path: Path, file: Recorded, backend: str) -> Outcome:
    recorder = Recorder(backend_named(backend))
    result = file.run(recorder)
    references = {} if file.d is None else {"recorded": file.d}
    if backend != "golden":
        references["golden model"] = file.run("golden")
    computed = file.matrix(result)
    differing, first = _compare(computed, ((name, file.matrix(d)) for name, d in references.items()))
    references_beside = references | {"before the instruction": file.before}
    changed, first_beside = _compare(
        file.beside(result), ((name, file.beside(reference)) for name, reference in references_beside.items())
    )
    raised, demanded = flags_and_rules(recorder.products, file.cases)
    flagged, first_flag = _compare(raised, [("metadata rule", demanded)])
    if first_flag:
        first_flag = replace(first_flag, is_flag=True)
    return Outcome(
        path,
        file.name,
        file.instruction,
        file.arch,
        file.a_from,
        evidence(file.instruction, file.arch, file.a_from),
        file.cases,
        computed.size if references else 0,
        differing + changed + flagged,
        raised.size,
        first or first_beside or first_flag,
        _sum_of_counts(product.cycles for product in recorder.products),
    )


def _sum_of_counts(counts: Iterable[int | None]) -> int | None:
    """Return the sum of counts, None where there are none."""
    present = [count for count in counts if count is not None]
    return sum(present) if present else None


def _compare(found: NDArray, references: Iterable[tuple[str, NDArray]]) -> tuple[int, Mismatch | None]:
    """Return how many elements differ from any of the references, and the first that differs from the first of those.

    Parameters
    ----------
    found : ndarray, shape (cases, rows, columns) or (cases, CTAs, lanes, columns)
        Outputs, or words of tensor memory beside them.
    references : iterable of (str, ndarray)
        Name and contents of each, of the same shape.
    """
    differs, first = np.zeros(found.shape, np.bool_), None
    for name, expected in references:
        wrong = found != expected
        differs |= wrong
        if first is None and wrong.any():
            case, *cta, row, column = position = tuple(int(index) for index in np.argwhere(wrong)[0])
            codes = int(found[position]), int(expected[position])
            first = Mismatch(case, row, column, *codes, name, cta[0] if cta else None)
    return int(differs.sum()), first
