"""Archives of dense dot products that others recorded on GPUs of several generations.

Keys: ``sets``, a JSON table with the GPU, architecture, instruction and array names of each set; and the arrays of
codes it names: ``a``, ``b`` [dot product, element], ``c``, ``d`` [dot product].
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..api.backends import Backend
from ..api.backends import backend as backend_named
from ..errors import FileError
from ..infra.reading import parse_json
from ..isa.instructions import Instruction, parse, require_architecture
from ..isa.operands import MatrixOperands
from .archive import Archive

__all__ = ["DotProducts", "interpret", "shipped_dot_products"]

_FIELDS = ("gpu", "arch", "instruction", "a", "b", "c", "d")


@dataclass(frozen=True, eq=False, kw_only=True)
class DotProducts:
    """A set of dot products; each is one output of an instruction.

    Attributes
    ----------
    gpu : str
        GPU of the recording.
    arch : str
        Architecture.
    instruction : Instruction
        Dense instruction.
    a, b : ndarray, shape (cases, elements)
        Codes of the first elements; the others up to k of the instruction are zero.
    before, d : ndarray, shape (cases, 1, 1)
        Codes of the accumulators and of the recorded results.
    """

    gpu: str
    arch: str
    instruction: Instruction
    a: NDArray
    b: NDArray
    before: NDArray
    d: NDArray

    @property
    def name(self) -> str:
        """Name of the instruction."""
        return str(self.instruction)

    @property
    def a_from(self) -> None:
        """None: the result does not depend on the location of A."""

    @property
    def cases(self) -> int:
        """Number of dot products."""
        return len(self.d)

    def assuming(self, arch: str | None, metadata: str | None) -> "DotProducts":
        """Return the same set for another architecture; None keeps its own. There is no metadata policy."""
        return replace(self, arch=arch or self.arch)

    def take(self, cases: NDArray[np.intp] | slice) -> "DotProducts":
        """Return the same set with some of its dot products."""
        parts = {name: getattr(self, name)[cases] for name in ("a", "b", "before", "d")}
        return replace(self, **parts)

    def run(self, backend: str | Backend = "golden") -> NDArray:
        """Compute the results on a back end, shape (cases, 1, 1).

        Raises
        ------
        InstructionError, BackendError
            The architecture does not have the instruction, or the back end cannot compute it.
        """
        require_architecture(self.instruction, self.arch)
        a, b = (np.pad(x, ((0, 0), (0, self.instruction.k - x.shape[1]))) for x in (self.a, self.b))
        operands = MatrixOperands(a[:, None, :], b[:, :, None], self.before, None)
        return backend_named(backend).multiply(self.instruction, self.arch, operands).d

    def matrix(self, result: NDArray) -> NDArray:
        """Return the result unchanged: it consists of codes of D."""
        return result

    def beside(self, result: NDArray) -> NDArray[np.uint32]:
        """Return an empty array: there is nothing beside D."""
        return np.zeros((len(result), 0, 0, 0), np.uint32)


def interpret(archive: Archive) -> list[DotProducts]:
    """Return the sets of an archive.

    Raises
    ------
    FileError
        A key is missing, or arrays do not fit together. The message names it in one sentence.
    InstructionError
        An instruction does not parse.
    """
    table = parse_json(archive.string("sets", ""), f"{archive.path}:", "sets is no JSON")
    if not isinstance(table, list) or not table or not all(isinstance(row, dict) for row in table):
        raise FileError(f"{archive.path}: sets must be a list of tables")
    return [_set(archive, number, row) for number, row in enumerate(table)]


def _set(archive: Archive, number: int, row: dict[str, object]) -> DotProducts:
    place = f"{archive.path}: set {number}"
    for field in _FIELDS:
        if not isinstance(row.get(field), str):
            raise FileError(f"{place} has no {field}")
    named = {field: str(row[field]) for field in _FIELDS}
    archive.require([named[field] for field in "abcd"])
    i = parse(named["instruction"])
    if i.sparse or i.scale_size:
        raise FileError(f"{place}: {i} is not a dense instruction without block scales")
    operand = np.dtype(f"u{max(8, i.container_bits) // 8}")
    result = np.dtype(f"u{i.d.bits // 8}")
    arrays = {field: archive.arrays[named[field]] for field in "abcd"}
    for field, value in arrays.items():
        dtype, axes = (operand, 2) if field in "ab" else (result, 1)
        if value.dtype != dtype or value.ndim != axes:
            raise archive.refuse(named[field], f"{dtype} codes on {axes} axes for {field} of {i}")
    a, b, c, d = arrays.values()
    if not (a.shape == b.shape and a.shape[1] <= i.k and len(a) == len(c) == len(d) > 0):
        shapes = ", ".join(f"{field} {value.shape}" for field, value in arrays.items())
        raise FileError(f"{place}: the shapes of {i} do not fit together: {shapes}")
    before, result_d = c[:, None, None], d[:, None, None]
    return DotProducts(gpu=named["gpu"], arch=named["arch"], instruction=i, a=a, b=b, before=before, d=result_d)


def shipped_dot_products() -> Iterator[Path]:
    """Yield the archives that ship with the package."""
    with resources.as_file(resources.files("sptc") / "recordings" / "elsewhere") as folder:
        yield from sorted(folder.glob("*.npz"))
