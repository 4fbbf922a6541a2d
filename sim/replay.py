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
    """One output that differs from the recording.

    Attributes
    ----------
    case, row, column : int
        Which output.
    computed, recorded : int
        Codes.
    """

    case: int
    row: int
    column: int
    computed: int
    recorded: int


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
        Tiles computed, outputs compared (0 without a recorded D), outputs that differ.
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
    """Compute a register file and compare with its D.

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
    d = file.run(backend)
    outputs, differing, first = 0, 0, None
    if file.d is not None:
        fragment = accumulator_fragment(file.instruction)
        computed, recorded = unpack(d, fragment), unpack(file.d, fragment)
        where = np.argwhere(computed != recorded)
        outputs, differing = computed.size, len(where)
        if differing:
            case, row, column = (int(index) for index in where[0])
            position = (case, row, column)
            first = Mismatch(case, row, column, int(computed[position]), int(recorded[position]))
    rests_on = evidence(file.instruction, file.arch)
    return Outcome(path, file.instruction, file.arch, rests_on, file.cases, outputs, differing, first)
