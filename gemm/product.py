"""Whole matrix products through one instruction, by blocks: on any back end, held against each other and float64.

A is structured-sparse, rows x K; B is dense, K x columns. Each output is a chain along K: the result of one instruction
is the accumulator of the next, from zero. What K lacks to whole instructions is filled with stored zeros.

A product lies in a folder of its own while it is computed: the operands as codes, the result, and a record of what is
done, so that it can be taken up again and no more of it than a block is held in memory.
"""

from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..api.backends import backend
from ..golden.matrix import multiply
from ..golden.select import kept_rows
from ..isa.instructions import Instruction, parse
from ..isa.operands import MatrixOperands
from ..tensors.encode import decode_codes
from ..tensors.files import read_matrix

__all__ = ["Block", "Errors", "Problem", "Source", "block_count", "compute_block", "instruction_count"]

#: Outputs of a block, and what is multiplied at once.
BLOCK_ROWS, BLOCK_COLUMNS = 128, 512
#: Relative errors are counted by their power of ten, from less than 10**-12 to more than 10**4.
DECADES = np.arange(-12, 5)


@dataclass(frozen=True)
class Source:
    """A matrix in a file.

    Attributes
    ----------
    path : str
        The file.
    tensor : str or None
        Which of its tensors.
    transposed : bool
        The file holds the transpose.
    """

    path: str
    tensor: str | None = None
    transposed: bool = False

    def read(self) -> NDArray:
        """Return the matrix, mapped from the file where its format allows."""
        matrix = read_matrix(Path(self.path), self.tensor)
        return matrix.T if self.transposed else matrix


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A product whose operands are prepared; see :mod:`sptc.gemm.operands`.

    Attributes
    ----------
    folder : str
        Where they are.
    instruction : str
        Of family ``mma`` or ``wgmma``, sparse.
    arch : str
        Architecture whose numerics apply.
    rows, columns, k : int
        Shape of the product, K as given.
    a, b : Source
        What was asked to be multiplied.
    scale : float
        What one unit of the result is worth: the product of the scales of both matrices.
    backends : tuple of str
        What computes; the first gives the result, and all must agree.
    dense : bool
        Multiply the unpruned A with the dense instruction too, to compare the errors.
    """

    folder: str
    instruction: str
    arch: str
    rows: int
    columns: int
    k: int
    a: Source
    b: Source
    scale: float
    backends: tuple[str, ...]
    dense: bool

    @property
    def parsed(self) -> Instruction:
        """The instruction."""
        return parse(self.instruction)


@dataclass(frozen=True)
class Errors:
    """Differences of results from a product in float64.

    Attributes
    ----------
    largest, total : float
        Largest magnitude and sum of the magnitudes, of those that are finite.
    largest_reference, total_reference : float
        The same of the product itself.
    counts : tuple of int
        Outputs by the power of ten of the relative error, see :data:`DECADES`; exact ones first.
    """

    largest: float
    total: float
    largest_reference: float
    total_reference: float
    counts: tuple[int, ...]

    @classmethod
    def of(cls, values: NDArray[np.float64], reference: NDArray[np.float64]) -> "Errors":
        """Compare values with a product."""
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
    """What a block of outputs gave.

    Attributes
    ----------
    index : int
        Which.
    outputs : int
        How many.
    mismatches : int
        Outputs of other back ends that differ from the first one's.
    first : tuple or None
        Back end, row, column, its code and the first back end's, of the first of them.
    errors : dict of str to Errors
        ``arithmetic``: from the product of the operands as they were quantised and pruned; ``whole``: from that of the
        matrices as given; ``dense``: of the dense instruction, from the same.
    """

    index: int
    outputs: int
    mismatches: int
    first: tuple[str, int, int, int, int] | None
    errors: dict[str, Errors]

    def record(self) -> dict[str, Any]:
        """Return the block as JSON values."""
        return asdict(self)

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> "Block":
        """Return a block from what :meth:`record` gave."""
        errors = {
            name: Errors(**{**values, "counts": tuple(values["counts"])}) for name, values in record["errors"].items()
        }
        first = record["first"] and tuple(record["first"])
        return cls(record["index"], record["outputs"], record["mismatches"], first, errors)


def block_count(problem: Problem) -> int:
    """Return how many blocks the outputs have."""
    return -(-problem.rows // BLOCK_ROWS) * -(-problem.columns // BLOCK_COLUMNS)


def instruction_count(problem: Problem) -> int:
    """Return how many instructions the product takes, whole ones at the edges."""
    i = problem.parsed
    return -(-problem.rows // i.m) * -(-problem.columns // i.n) * -(-problem.k // i.k)


def compute_block(problem: Problem, index: int) -> Block:
    """Compute a block, write it into the result, and compare it.

    Parameters
    ----------
    problem : Problem
        Which product.
    index : int
        Which block, row by row.

    Raises
    ------
    BackendError
        A back end lacks something.
    """
    across = -(-problem.columns // BLOCK_COLUMNS)
    row, column = index // across * BLOCK_ROWS, index % across * BLOCK_COLUMNS
    rows = slice(row, min(row + BLOCK_ROWS, problem.rows))
    columns = slice(column, min(column + BLOCK_COLUMNS, problem.columns))
    operands = _operands(problem, rows, columns)
    results = {name: backend(name).multiply(problem.parsed, problem.arch, operands)[0] for name in problem.backends}
    d = results[problem.backends[0]]
    mismatches, first = 0, None
    for name, other in results.items():
        wrong = np.argwhere(other != d)
        mismatches += len(wrong)
        if len(wrong) and first is None:
            m, n = map(int, wrong[0])
            first = name, row + m, column + n, int(other[m, n]), int(d[m, n])
    out = np.load(Path(problem.folder) / "d.npy", "r+")
    out[rows, columns] = d.view(out.dtype)
    out.flush()
    return Block(index, d.size, mismatches, first, _errors(problem, operands, d, rows, columns))


def _operands(problem: Problem, rows: slice, columns: slice, dense: str = "") -> MatrixOperands:
    """Return the codes of a block, of one batch, and an accumulator of zeros."""

    def part(name: str, where: slice) -> NDArray | None:
        path = Path(problem.folder) / f"{name}.npy"
        return np.asarray(_mapped(str(path))[where])[None] if path.exists() else None

    a, b = part(f"{dense}a", rows), part(f"{dense}b", columns)
    assert a is not None
    assert b is not None
    c = np.zeros((1, a.shape[1], b.shape[1]), np.uint16 if problem.parsed.d.bits == 16 else np.uint32)
    nibbles = None if dense else part("nibbles", rows)
    return MatrixOperands(
        a, b.swapaxes(1, 2), c, nibbles, part(f"{dense}a_scales", rows), part(f"{dense}b_scales", columns)
    )


@lru_cache(maxsize=16)
def _mapped(path: str) -> NDArray:
    mapped: NDArray = np.load(path, "r")
    return mapped


def _errors(problem: Problem, operands: MatrixOperands, d: NDArray, rows: slice, columns: slice) -> dict[str, Errors]:
    i = problem.parsed
    values = decode_codes(d, i.d) * problem.scale
    a = _dense_values(i, operands)
    b = _values(operands.b[0].T, i.b, i, operands.scale_b, i.span)
    exact = (a @ b.T) * problem.scale
    given_a, given_b = (
        np.asarray(source.read()[part], np.float64)
        for source, part in ((problem.a, (rows, slice(None))), (problem.b, (slice(None), columns)))
    )
    with np.errstate(over="ignore", invalid="ignore"):
        whole = given_a @ given_b
    found = {"arithmetic": Errors.of(values, exact), "whole": Errors.of(values, whole)}
    if problem.dense:
        dense = replace(i, sparse="", k=i.stored_k)
        d = multiply(dense, problem.arch, _operands(problem, rows, columns, "dense_"))[0]
        scale = float(_mapped(str(Path(problem.folder) / "dense_scale.npy")))
        found["dense"] = Errors.of(decode_codes(d, i.d) * scale, whole)
    return found


def _values(codes: NDArray, fmt: Any, i: Instruction, scales: NDArray[np.uint8] | None, span: int | None) -> NDArray:
    values = decode_codes(codes >> codes.dtype.type(i.low_bit(fmt) - fmt.ignored_low_bits), fmt)
    if scales is not None:
        assert span
        assert i.scale_format
        values = values * decode_codes(scales[0], i.scale_format).repeat(span, axis=1)
    return values


def _dense_values(i: Instruction, operands: MatrixOperands) -> NDArray:
    """Return the values of A at their logical places."""
    assert operands.nibbles is not None
    assert i.granularity
    span = i.span and i.span // 2
    stored = _values(operands.a[0], i.a, i, operands.scale_a, span)
    dense = np.zeros((len(stored), 2 * stored.shape[1]))
    np.put_along_axis(dense, kept_rows(operands.nibbles[0], i.granularity), stored, axis=1)
    return dense
