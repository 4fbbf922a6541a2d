"""The judgement on results of a conformance pack: right, or equal to those of a neighbour."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import FileError
from ..infra.reading import opened, parse_json, read_text
from .archive import load
from .conformance import Pack
from .neighbours import neighbours_of
from .pack_files import given_of
from .replay import Mismatch

__all__ = ["Judgement", "judge", "read_results"]

_ARCHIVE = b"PK"
_WORD_BITS = 32


@dataclass(frozen=True)
class Judgement:
    """Comparison of results with the right model and its neighbours.

    Attributes
    ----------
    outputs, differing : int
        Outputs compared, and those that differ from D.
    first : Mismatch or None
        First differing output.
    beside : int
        Words of tensor memory that differ outside D.
    explained_by : tuple of str
        If outputs differ, the neighbours that reproduce every output.
    nearest : str
        Neighbour that reproduces the most outputs, if these are more than the right model reproduces; else empty.
    explained : int
        Outputs that `nearest` reproduces, or else the right model.
    """

    outputs: int
    differing: int
    first: Mismatch | None
    beside: int
    explained_by: tuple[str, ...]
    nearest: str
    explained: int

    @property
    def right(self) -> bool:
        """Whether all results are right."""
        return not self.differing and not self.beside


def judge(pack: Pack, results: NDArray[np.uint32]) -> Judgement:
    """Compare results with D and with the results of the neighbours.

    Parameters
    ----------
    pack : Pack
        Pack that was computed.
    results : ndarray of uint32, shape of D
        Registers; for ``tcgen05``, tensor memory.
    """
    file = pack.file
    assert file.d is not None
    found, wanted = file.matrix(results), file.matrix(file.d)
    wrong = found != wanted
    differing, first = int(wrong.sum()), None
    by_name = {}
    if differing:
        case, row, column = position = tuple(int(index) for index in np.argwhere(wrong)[0])
        first = Mismatch(case, row, column, int(found[position]), int(wanted[position]), "the right model")
        given = given_of(file)
        by_name = {
            neighbour.name: int(np.count_nonzero(neighbour.multiply(given) == found))
            for neighbour in neighbours_of(file.instruction, file.arch)
            if not neighbour.same
        }
    nearest = max(by_name, key=lambda name: by_name[name], default="")
    explained = wrong.size - differing
    if by_name.get(nearest, 0) <= explained:
        nearest = ""
    return Judgement(
        outputs=wrong.size,
        differing=differing,
        first=first,
        beside=int(np.count_nonzero(file.beside(results) != file.beside(file.d))),
        explained_by=tuple(name for name, count in by_name.items() if count == wrong.size),
        nearest=nearest,
        explained=by_name[nearest] if nearest else explained,
    )


def read_results(path: Path, shape: tuple[int, ...]) -> NDArray[np.uint32]:
    """Read results: key ``D`` of an ``.npz``, a JSON list of words, or hexadecimal words, one on each line.

    Parameters
    ----------
    path : Path
        The file.
    shape : tuple of int
        Shape of D in the pack. A list may be nested like it or flat; lines are in C order.

    Raises
    ------
    FileError
        The file has another format, or another number of words; one sentence.
    """
    with opened(path) as file:
        is_archive = file.read(len(_ARCHIVE)) == _ARCHIVE
    if is_archive:
        archive = load(path)
        archive.require(["D"])
        d = archive.arrays["D"]
        if d.dtype != np.uint32 or d.shape != shape:
            raise archive.refuse("D", f"a uint32 array of shape {shape}, as that of the pack")
        return d
    text = read_text(path, "is no .npz, no JSON and no hexadecimal words").strip()
    words = _listed(path, text) if text.startswith("[") else _lines(path, text)
    if words.shape not in (shape, (int(np.prod(shape)),)):
        raise FileError(f"{path} must hold {int(np.prod(shape))} words, as the pack has of shape {shape}, "
                        f"not {words.size} of shape {words.shape}")  # fmt: skip
    return words.reshape(shape)


def _listed(path: Path, text: str) -> NDArray[np.uint32]:
    refusal = f"{path} must be a JSON list of integers from 0 to {2**_WORD_BITS - 1}, flat or nested as D is"
    try:
        words = np.array(parse_json(text, str(path)))
    except (ValueError, OverflowError) as error:
        raise error if isinstance(error, FileError) else FileError(refusal) from None
    if words.dtype.kind not in "iu" or words.min(initial=0) < 0 or words.max(initial=0) >> _WORD_BITS:
        raise FileError(refusal)
    return words.astype(np.uint32)


def _lines(path: Path, text: str) -> NDArray[np.uint32]:
    words = []
    for number, line in enumerate(text.splitlines(), 1):
        digits = line.strip().removeprefix("0x").removeprefix("0X")
        if not 0 < len(digits) <= _WORD_BITS // 4 or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
            raise FileError(f"{path}: line {number} must be a hexadecimal word of 32 bits, not {line[:40]!r}")
        words.append(int(digits, 16))
    return np.array(words, np.uint32)
