"""Compute matrix products by a given way of summation, in blocks; compare them between back ends and with float64.

While a product is computed, a folder holds the operands as codes, the addends of the sums, the result, and a record of
the finished blocks. An interrupted product can therefore be resumed, and memory holds no more than one block. A block
is computed by :func:`sptc.gemm.sums.product`, as for :func:`sptc.gemm`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..api.backends import Backend, backend, with_numerics
from ..infra.figures import picture
from ..isa.formats import FORMATS
from ..isa.instructions import Instruction
from ..isa.numerics import numerics
from ..tensors.encode import decode_codes
from .epilogue import Epilogue
from .group_scales import GroupScales
from .matrices import Factors, exact_product, exact_values
from .options import oriented
from .sources import Source
from .sums import Place, product
from .ways import Way

__all__ = [
    "ARRAYS", "Block", "Errors", "Problem", "block_count", "compute_block", "dense_instruction",
    "instruction_count", "plot_errors", "save_added", "save_factors",
]  # fmt: skip

_OPERANDS = ("a", "b", "nibbles", "scale_a", "scale_b")
_ADDED, _GROUPS = ("c", "bias", "scale_a", "scale_b"), ("group_scale_a", "group_scale_b")
#: Names of array files of a matrix product: operands of the instruction, and of the dense instruction; addends of the
#: sums; the caller's matrices, if the files of the caller cannot be mapped; and the result.
ARRAYS = (
    *(f"{kind}{name}" for kind in ("", "dense_") for name in _OPERANDS), "dense_scale",
    *(f"epilogue_{name}" for name in _ADDED), "start", "given_a", "given_b", *_GROUPS, "d",
)  # fmt: skip
#: Number of rows, and number of columns, of a block of outputs.
BLOCK_ROWS, BLOCK_COLUMNS = 128, 512
#: Limits of the ranges in which relative errors are counted, as powers of ten: below 10**-12 to above 10**4.
DECADES = np.arange(-12, 5)
#: Key: kind of errors. Value: label in the histogram, which names the operands of the float64 reference product.
_REFERENCES = {
    "arithmetic": "operands as multiplied",
    "whole": "A and B as given",
    "dense": "A and B as given, A dense",
}


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A matrix product whose operands have been written to files; see :mod:`sptc.gemm.operands`."""

    folder: str  #: Folder with the operands of the matrix product
    way: Way
    shape: tuple[int, int, int]  #: Sizes M, N and K of the matrix product
    all_rows: int  #: Number of rows of the caller's A. M may be smaller: only the first M rows are multiplied.
    #: Files of the matrices as the caller gave them, without compression.
    a: Source
    b: Source
    scale: float  #: Scale factor of the sums: the product of the scale of A and the scale of B
    backends: tuple[str, ...]  #: Names of the back ends, whose results must agree. The first back end gives the result.
    dense: bool  #: Whether to multiply the unpruned A with the dense instruction too, to compare errors
    #: Factors of the epilogue: alpha and beta.
    alpha: float = 1.0
    beta: float = 1.0
    relu: bool = False
    group_length: int = 0  #: Number of elements along K that share a group scale; 0 without group scales
    block_scaled: bool = False  #: Whether `a` and `b` are elements without their block scales
    #: Numerics parameters that replace those of each instruction: arguments of `sptc.isa.numerics.Numerics.replace`.
    numerics: dict[str, Any] = field(default_factory=dict)

    @property
    def size(self) -> tuple[int, int]:
        """Numbers of rows and columns of the sums, which form the transposed product if the factors are exchanged."""
        m, n, _ = self.shape
        return (n, m) if self.way.swapped else (m, n)

    @property
    def all_size(self) -> tuple[int, int]:
        """Shape of the array of sums, for all rows of the caller's A; rows and columns exchanged if `swapped`."""
        n = self.shape[1]
        return (n, self.all_rows) if self.way.swapped else (self.all_rows, n)

    def added(self) -> tuple[Epilogue, NDArray | None]:
        """Return the epilogue of the matrix product, and the codes of the initial accumulator."""
        arrays = {name: self.array(f"epilogue_{name}") for name in _ADDED}
        epilogue = Epilogue(alpha=self.alpha, beta=self.beta, relu=self.relu, **arrays)
        return oriented(self.way, (self.all_rows, self.shape[1]), epilogue, self.array("start"))

    def array(self, name: str) -> NDArray | None:
        """Return a memory-mapped array from the folder of the matrix product; None if the array does not exist."""
        path = Path(self.folder) / f"{name}.npy"
        return _mapped(str(path)) if path.exists() else None

    def factors(self, i: Instruction, kind: str = "") -> Factors:
        """Return the operands of an instruction as numpy memory maps. `kind` is ``dense_`` for a dense instruction."""
        a, b, nibbles, scale_a, scale_b = (self.array(f"{kind}{name}") for name in _OPERANDS)
        assert a is not None
        assert b is not None
        return Factors(i, a, b, nibbles, scale_a, scale_b, self.groups())

    def groups(self) -> GroupScales | None:
        """Return the memory-mapped group scales; None for a matrix product without group scales."""
        a, b = (self.array(name) for name in _GROUPS)
        return None if a is None or b is None else GroupScales(a, b, self.group_length)

    def backend(self, name: str, i: Instruction) -> Backend:
        """Return a named back end for an instruction, with the numerics that were changed for this product, if any."""
        changed = numerics(i, self.way.arch).replace(**self.numerics) if self.numerics else None
        return with_numerics(backend(name), changed, i, self.way.arch)

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "Problem":
        """Return a matrix product from its JSON values, the inverse of :func:`dataclasses.asdict`."""
        sources = {name: Source(**record[name]) for name in ("a", "b")}
        tuples = {name: tuple(record[name]) for name in ("shape", "backends")}
        return cls(**{**record, **sources, **tuples, "way": Way.of_record(record["way"])})


@dataclass(frozen=True)
class Errors:
    """Errors of the results of a matrix product, relative to the product in float64."""

    #: Largest magnitude of the finite errors, and sum of their magnitudes.
    largest: float
    total: float
    #: Largest magnitude, and sum of magnitudes, of the elements of the float64 product.
    largest_reference: float
    total_reference: float
    #: Number of exact outputs, then numbers of outputs per power of ten of the relative error; see :data:`DECADES`.
    counts: tuple[int, ...]

    @classmethod
    def of(cls, values: NDArray[np.float64], reference: NDArray[np.float64]) -> "Errors":
        """Return the errors of results (`values`) relative to a float64 product (`reference`)."""
        finite = np.isfinite(values) & np.isfinite(reference)
        magnitude = np.abs(reference[finite])
        error = np.abs(values[finite] - reference[finite])
        with np.errstate(divide="ignore", invalid="ignore"):
            powers = np.log10(np.where(error == 0, 0, error / magnitude))
        decade = np.searchsorted(DECADES, np.maximum(powers, DECADES[0] - 1.0), side="right")
        counts = np.bincount(np.where(error == 0, 0, decade + 1), minlength=len(DECADES) + 2)
        return cls(
            float(error.max(initial=0)),
            float(error.sum()),
            float(magnitude.max(initial=0)),
            float(magnitude.sum()),
            tuple(counts.tolist()),
        )

    def __add__(self, other: "Errors") -> "Errors":
        return Errors(
            max(self.largest, other.largest),
            self.total + other.total,
            max(self.largest_reference, other.largest_reference),
            self.total_reference + other.total_reference,
            tuple(one + another for one, another in zip(self.counts, other.counts, strict=True)),
        )


@dataclass(frozen=True)
class Block:
    """Comparisons and errors of one computed block of outputs (some rows and columns of the product)."""

    index: int
    outputs: int  #: Number of outputs in this block of rows and columns
    mismatches: int  #: Number of outputs for which another back end gives other bits than the first back end
    #: First mismatch between back ends: name of the other back end, row, column, code of the other back end, and code
    #: of the first back end.
    first: tuple[str, int, int, int, int] | None
    #: ``arithmetic``: errors against the float64 product of the quantised and pruned operands. ``whole``: errors
    #: against the float64 product of the matrices as given. ``dense``: errors of the dense instruction against the
    #: float64 product of the matrices as given.
    errors: dict[str, Errors]

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> "Block":
        """Return a :class:`Block` from its JSON values, the inverse of :func:`dataclasses.asdict`."""
        errors = {
            name: Errors(**{**values, "counts": tuple(values["counts"])}) for name, values in record["errors"].items()
        }
        first = record["first"] and tuple(record["first"])
        return cls(record["index"], record["outputs"], record["mismatches"], first, errors)


def save_factors(folder: Path, factors: Factors, kind: str = "") -> None:
    """Write operands into a folder; `kind`, a prefix of the file names, is ``dense_`` for the dense instruction."""
    for name in _OPERANDS:
        if (array := getattr(factors, name)) is not None:
            np.save(folder / f"{kind}{name}.npy", array)
    if factors.groups:
        for name, array in zip(_GROUPS, (factors.groups.a, factors.groups.b), strict=True):
            np.save(folder / f"{name}.npy", array)


def save_added(folder: Path, epilogue: Epilogue, start: NDArray | None) -> None:
    """Write the arrays of the epilogue and the initial accumulator into a folder."""
    for name in _ADDED:
        if (array := getattr(epilogue, name)) is not None:
            np.save(folder / f"epilogue_{name}.npy", array)
    if start is not None:
        np.save(folder / "start.npy", start)


def dense_instruction(i: Instruction) -> Instruction:
    """Return the dense counterpart of a sparse instruction: equally many multiplications, and half the K."""
    return replace(i, sparse="", k=i.stored_k)


def block_count(problem: Problem) -> int:
    """Return the number of blocks into which the outputs are divided."""
    rows, columns = problem.size
    return -(-rows // BLOCK_ROWS) * -(-columns // BLOCK_COLUMNS)


def instruction_count(problem: Problem) -> int:
    """Return the number of instructions of the matrix product. Instructions that cross its edges count, too."""
    i, (rows, columns) = problem.way.parsed, problem.size
    return -(-rows // i.m) * -(-columns // i.n) * -(-problem.shape[2] // i.k)


def compute_block(problem: Problem, index: int) -> Block:
    """Compute a block of outputs, write it into the result file, and return comparisons of back ends and errors.

    Blocks are numbered row by row. Raise a `BackendError` if a back end cannot compute on this machine.
    """
    way = problem.way
    all_rows, all_columns = problem.size
    across = -(-all_columns // BLOCK_COLUMNS)
    row, column = index // across * BLOCK_ROWS, index % across * BLOCK_COLUMNS
    rows, columns = slice(row, min(row + BLOCK_ROWS, all_rows)), slice(column, min(column + BLOCK_COLUMNS, all_columns))
    factors = problem.factors(way.parsed).take(rows, columns)
    epilogue, start = problem.added()
    epilogue = epilogue.take(problem.all_size, rows, columns)
    start = None if start is None else start[rows, columns]
    place = Place.of(rows, columns, problem.all_size)
    results = {
        name: product(way, factors, problem.backend(name, way.parsed), epilogue, start, place)
        for name in problem.backends
    }
    d = results[problem.backends[0]]
    mismatches, first = 0, None
    for name, other in results.items():
        wrong = np.argwhere(other != d)
        mismatches += len(wrong)
        if len(wrong) and first is None:
            m, n = map(int, wrong[0])
            where = (column + n, row + m) if way.swapped else (row + m, column + n)
            first = name, *where, int(other[m, n]), int(d[m, n])
    out = np.load(Path(problem.folder) / "d.npy", "r+")
    whole = out.reshape(problem.shape[:2])
    (whole.T if way.swapped else whole)[rows, columns] = d.view(out.dtype)
    out.flush()
    return Block(index, d.size, mismatches, first, _errors(problem, factors, d, (rows, columns), epilogue, start))


@lru_cache(maxsize=32)
def _mapped(path: str) -> NDArray:
    mapped: NDArray = np.load(path, "r")
    return mapped


def _errors(
    problem: Problem, factors: Factors, d: NDArray, part: tuple[slice, slice], epilogue: Epilogue, start: NDArray | None
) -> dict[str, Errors]:
    """Return the errors of a block of results against the same product and epilogue in float64."""
    way, i = problem.way, problem.way.parsed
    is_sum = epilogue.is_empty and start is None
    begun = 0 if start is None else decode_codes(np.ascontiguousarray(start), i.c)

    def of(codes: NDArray, sums: NDArray[np.float64], scale: float) -> Errors:
        unit = scale if is_sum else 1.0
        return Errors.of(decode_codes(codes, FORMATS[way.result]) * unit, epilogue.exactly(sums + begun) * unit)

    with np.errstate(over="ignore", invalid="ignore"):
        whole = _given(problem, factors, *part)
        exact = exact_product(factors)
        errors = {"arithmetic": of(d, exact, problem.scale), "whole": of(d, whole / problem.scale, problem.scale)}
        if problem.dense:
            scale = problem.array("dense_scale")
            assert scale is not None
            # A dense instruction has half the K of the sparse instruction. The dense kernel gets twice as many
            # instructions per K tile and per accumulation chain, so both kernels divide K at the same elements.
            dense_way = replace(way, tile=2 * way.tile, promote=2 * way.promote)
            of_dense = problem.factors(dense_instruction(i), "dense_").take(*part)
            golden = problem.backend("golden", of_dense.instruction)
            d = product(dense_way, of_dense, golden, epilogue, start, Place.of(*part, problem.all_size))
            errors["dense"] = of(d, whole / float(scale), float(scale))
    return errors


def _given(problem: Problem, factors: Factors, rows: slice, columns: slice) -> NDArray[np.float64]:
    """Return a block of the float64 product of the matrices as the caller gave them."""
    i, (a, b) = problem.way.parsed, (source.read() for source in (problem.a, problem.b))
    assert isinstance(a, np.ndarray)
    assert isinstance(b, np.ndarray)
    b = b[:, None] if b.ndim == 1 else b
    left, right = (b.T, a.T) if problem.way.swapped else (a, b)
    exact = exact_values(left[rows], i.a), exact_values(right[:, columns], i.b)
    if problem.block_scaled:
        exact = factors.times_block_scales(*exact)
    return exact[0] @ exact[1] if factors.groups is None else factors.groups.product(*exact)


def plot_errors(errors: Mapping[str, Errors], path: Path) -> None:
    """Draw a histogram of relative errors as an SVG file: the share of outputs in each power of ten.

    The keys of `errors` are those of :attr:`~sptc.gemm.product.Block.errors`. Raise a `BackendError` if matplotlib is
    not installed, and a `FileError` if the file cannot be written.
    """
    places = np.arange(len(DECADES) + 2)
    labels = ["exact", "less", *map(str, DECADES)]
    width = 0.8 / len(errors)
    with picture(path, 9, 4) as axes:
        for number, (name, reference) in enumerate(errors.items()):
            shares = 100 * np.array(reference.counts) / max(1, sum(reference.counts))
            axes.bar(places + (number - (len(errors) - 1) / 2) * width, shares, width, label=_REFERENCES[name])
        axes.set_xticks(places, labels)
        axes.set_xlabel("relative error, at least 10 to the power of")
        axes.set_ylabel("outputs [%]")
        axes.legend(title="against float64, of", frameon=False)
