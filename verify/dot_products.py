"""Archives of dot products that other projects recorded on GPUs of several generations.

Keys: ``sets``, a JSON table with the GPU, architecture, instruction and array names of each set; and the arrays of
codes that this table names: ``a``, ``b`` [dot product, element], ``c``, ``d`` [dot product], and if the instruction has
them ``nibbles`` [dot product, chunk], ``scale_a``, ``scale_b`` [dot product, block]. The instruction of ``tcgen05`` is
its opcode with shape and types in parentheses. If results are too weak as evidence, ``too_weak`` of the set states the
reason.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..api.backends import Backend
from ..api.backends import backend as backend_named
from ..errors import FileError
from ..infra.reading import parse_json
from ..isa.instructions import Instruction, require_architecture
from ..isa.names import subject_named
from ..isa.operands import MatrixOperands
from ..isa.tcgen05 import Opcode
from .archive import Archive, Recorded, load

__all__ = ["DotProducts", "read", "shipped_dot_products"]

_FIELDS = ("gpu", "arch", "instruction")


@dataclass(frozen=True, eq=False, kw_only=True)
class DotProducts(Recorded):
    """A set of recorded dot products; each dot product is one output of an instruction."""

    case_fields = ("d",)

    gpu: str  #: Name of the GPU that computed the dot products
    arch: str
    target: str = ""
    instruction: Instruction
    opcode: Opcode | None = None  #: Opcode of a ``tcgen05`` instruction; None for ``mma`` and ``wgmma``
    #: Operands of all dot products: rows of A, shape (cases, 1, elements); columns of B, shape (cases, elements, 1); C,
    #: shape (cases, 1, 1). If there are fewer elements than the instruction has along K, the missing elements are zero.
    operands: MatrixOperands
    d: NDArray  #: Codes of the recorded results, shape (cases, 1, 1)

    @property
    def before(self) -> NDArray:
        """Accumulators C of all dot products, before the instruction."""
        return self.operands.c

    def take(self, cases: NDArray[np.intp] | slice) -> "DotProducts":
        """Return the dot products at the indices `cases` as a separate object."""
        return replace(self, d=self.d[cases], operands=self.operands.take(cases))

    def run(self, backend: str | Backend = "golden") -> NDArray:
        """Compute the results of all dot products on a back end, shape (number of dot products, 1, 1)."""
        i, operands = self.instruction, self.operands
        require_architecture(i, self.arch)
        a = np.pad(operands.a, ((0, 0), (0, 0), (0, i.stored_k - operands.a.shape[2])))
        b = np.pad(operands.b, ((0, 0), (0, i.k - operands.b.shape[1]), (0, 0)))
        return backend_named(backend).multiply(i, self.arch, replace(operands, a=a, b=b)).d

    def matrix(self, result: NDArray) -> NDArray:
        """Return `result`, since the results of :meth:`run` are already codes of D."""
        return result


def read(path: str | Path) -> list[DotProducts]:
    """Return the sets of dot products in an ``.npz`` file, as listed under its key `sets`.

    Raise a `FileError` if the file cannot be read, a key is missing or arrays do not fit together, and an
    `InstructionError` if an instruction does not parse.
    """
    archive = load(path, ("sets",))
    archive.require(["sets"])
    table = parse_json(archive.string("sets", ""), f"{archive.path}:", "the key 'sets' is not JSON")
    if not isinstance(table, list) or not table or not all(isinstance(row, dict) for row in table):
        raise FileError(f"{archive.path}: the key 'sets' must be a JSON list of objects")
    archive = load(path, {key for row in table for key in row.values() if isinstance(key, str)})
    return [_set(archive, number, row) for number, row in enumerate(table)]


def _set(archive: Archive, number: int, row: dict[str, object]) -> DotProducts:
    place = f"{archive.path}: set {number}"
    for field in _FIELDS:
        if not isinstance(row.get(field), str):
            raise FileError(f"{place} must have a string for the key {field!r}")
    gpu, arch, text = (str(row[field]) for field in _FIELDS)
    subject = subject_named(text)
    opcode, i = subject.opcode, subject.instruction
    arrays = {}
    for field, columns in _columns(i).items():
        key = row.get(field)
        if not isinstance(key, str):
            raise FileError(f"{place} must have a string for the key {field!r}")
        archive.require([key])
        arrays[field] = value = archive.arrays[key]
        dtype = np.dtype(f"u{max(8, i.container_bits if field in 'ab' else i.d.bits if field in 'cd' else 8) // 8}")
        axes = 1 if columns is None else 2
        if value.dtype != dtype or value.ndim != axes:
            raise archive.refuse(key, f"an array of {dtype} codes with {axes} axes ({field} of {i})")
        shorter = not i.sparse and field in "ab" and value.shape[1] == arrays["a"].shape[1] < (columns or 0)
        fits = shorter or columns in (None, value.shape[-1])
        if not fits or not len(value) or len(value) != len(arrays["a"]):
            shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
            raise FileError(f"{place}: the array shapes for {i} do not fit together: {shapes}")
    operands: dict[str, Any] = {field: array.reshape(len(array), 1, -1) for field, array in arrays.items()}
    d, b = operands.pop("d"), operands.pop("b").swapaxes(1, 2)
    return DotProducts(gpu=gpu, arch=arch, instruction=i, opcode=opcode, operands=MatrixOperands(b=b, **operands), d=d)


def _columns(i: Instruction) -> dict[str, int | None]:
    """For each array of a set of dot products, return the maximum length of its second axis, or None for one axis."""
    columns: dict[str, int | None] = {"a": i.stored_k, "b": i.k, "c": None, "d": None}
    columns |= {"nibbles": i.chunks} if i.sparse else {}
    return columns | dict.fromkeys(("scale_a", "scale_b"), i.scale_size) if i.scale_size else columns


def shipped_dot_products() -> Iterator[Path]:
    """Yield the paths of the archives of dot products that ship with the package."""
    with resources.as_file(resources.files("sptc") / "recordings" / "elsewhere") as folder:
        yield from sorted(folder.glob("*.npz"))
