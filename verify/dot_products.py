"""Archives of dense dot products that others recorded on GPUs of several generations.

Keys: ``sets``, a JSON table with the GPU, architecture, instruction and array names of each set; and the arrays of
codes it names: ``a``, ``b`` [dot product, element], ``c``, ``d`` [dot product].
"""

from collections.abc import Iterator
from dataclasses import dataclass
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
from .archive import Archive, Recorded

__all__ = ["DotProducts", "interpret", "shipped_dot_products"]

_FIELDS = ("gpu", "arch", "instruction", "a", "b", "c", "d")


@dataclass(frozen=True, eq=False, kw_only=True)
class DotProducts(Recorded):
    """A set of dot products; each is one output of an instruction."""

    case_fields = ("d", "a", "b", "c")

    gpu: str  #: GPU of the recording
    arch: str
    instruction: Instruction  #: Dense instruction
    #: Codes of the first elements, shape (cases, elements); the others up to k of the instruction are zero.
    a: NDArray
    b: NDArray
    #: Codes of the accumulators and of the recorded results, shape (cases, 1, 1).
    c: NDArray
    d: NDArray

    @property
    def before(self) -> NDArray:
        """The accumulators before the instruction."""
        return self.c

    def run(self, backend: str | Backend = "golden") -> NDArray:
        """Compute the results on a back end, shape (cases, 1, 1)."""
        require_architecture(self.instruction, self.arch)
        a, b = (np.pad(x, ((0, 0), (0, self.instruction.k - x.shape[1]))) for x in (self.a, self.b))
        operands = MatrixOperands(a[:, None, :], b[:, :, None], self.c, None)
        return backend_named(backend).multiply(self.instruction, self.arch, operands).d

    def matrix(self, result: NDArray) -> NDArray:
        """Return the result unchanged: it consists of codes of D."""
        return result


def interpret(archive: Archive) -> list[DotProducts]:
    """Return the sets of an archive.

    Raises
    ------
    FileError, InstructionError
        A key is missing, or arrays do not fit together; or an instruction does not parse.
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
    c, d = (codes[:, None, None] for codes in (c, d))
    return DotProducts(gpu=named["gpu"], arch=named["arch"], instruction=i, a=a, b=b, c=c, d=d)


def shipped_dot_products() -> Iterator[Path]:
    """Yield the archives that ship with the package."""
    with resources.as_file(resources.files("sptc") / "recordings" / "elsewhere") as folder:
        yield from sorted(folder.glob("*.npz"))
