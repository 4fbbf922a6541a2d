"""Replay a register file on a back end and compare with the recorded result."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ..golden.registers import unpack
from ..isa.formats import Format
from ..isa.fragments import accumulator_fragment
from ..isa.instructions import Instruction
from ..isa.numerics import Evidence, evidence
from . import register_file

__all__ = ["Mismatch", "Outcome", "as_number", "replay"]


@dataclass(frozen=True)
class Mismatch:
    """One output that differs from a reference.

    Attributes
    ----------
    case, row, column : int
        Which output.
    computed, expected : int
        Codes: what the back end computed, and what the reference has.
    reference : str
        ``"recorded"`` or ``"golden model"``.
    """

    case: int
    row: int
    column: int
    computed: int
    expected: int
    reference: str


@dataclass(frozen=True)
class Outcome:
    """What replaying one register file showed.

    Attributes
    ----------
    path : Path
        The file.
    instruction : Instruction
        What ran.
    arch : str
        Architecture whose numerics were applied.
    evidence : Evidence
        What those rest on.
    tiles, outputs, mismatches : int
        Tiles computed; outputs compared, with the recording, the golden model or both (0 if with neither); outputs
        that differ from either.
    first : Mismatch or None
        The first difference; its case counts the tiles that ran.
    """

    path: Path
    instruction: Instruction
    arch: str
    evidence: Evidence
    tiles: int
    outputs: int
    mismatches: int
    first: Mismatch | None


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
) -> Outcome:
    """Compute a register file; compare with its D and, unless it is what computes, with the golden model.

    Parameters
    ----------
    path : Path
        The file.
    backend : str
        As in :func:`sptc.mma`.
    arch, metadata : str, optional
        Override what the file says.
    limit : int, optional
        At most so many tiles, drawn with `seed`.
    seed : int
        Seed of that draw.

    Raises
    ------
    FileError
        The file is no register file.
    InstructionError, OperandError, MetadataError, BackendError
        Its contents cannot be computed.
    """
    file = register_file.read(path)
    file = replace(file, arch=arch or file.arch, metadata=metadata or file.metadata)
    if limit is not None and limit < file.cases:
        drawn = np.random.default_rng(seed).choice(file.cases, limit, replace=False)
        file = file.take(np.sort(drawn))
    fragment = accumulator_fragment(file.instruction)
    computed = unpack(file.run(backend), fragment)
    references = {}
    if file.d is not None:
        references["recorded"] = unpack(file.d, fragment)
    if backend != "golden":
        references["golden model"] = unpack(file.run("golden"), fragment)
    differs = np.zeros(computed.shape, np.bool_)
    first = None
    for name, expected in references.items():
        wrong = computed != expected
        differs |= wrong
        if first is None and wrong.any():
            case, row, column = (int(index) for index in np.argwhere(wrong)[0])
            position = (case, row, column)
            first = Mismatch(case, row, column, int(computed[position]), int(expected[position]), name)
    return Outcome(
        path,
        file.instruction,
        file.arch,
        evidence(file.instruction, file.arch),
        file.cases,
        computed.size if references else 0,
        int(differs.sum()),
        first,
    )
