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

from ..golden.matrix import multiply
from ..golden.select import kept_rows
from ..isa.instructions import Instruction, parse
from ..tensors.encode import decode_codes
from ..tensors.files import read_matrix
from .gemm_gpu import multiply_on_gpu

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
    """A product whose operands are prepared; see :mod:`sptc.sim.gemm_operands`.

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
    operands = _operands(problem.folder, rows, columns)
    results = {backend: _chained(problem, backend, operands) for backend in problem.backends}
    d = results[problem.backends[0]]
    mismatches, first = 0, None
    for backend, other in results.items():
        wrong = np.argwhere(other != d)
        mismatches += len(wrong)
        if len(wrong) and first is None:
            m, n = map(int, wrong[0])
            first = backend, row + m, column + n, int(other[m, n]), int(d[m, n])
    out = np.load(Path(problem.folder) / "d.npy", "r+")
    out[rows, columns] = d.view(out.dtype)
    out.flush()
    return Block(index, d.size, mismatches, first, _errors(problem, operands, d, rows, columns))


@dataclass(frozen=True, eq=False)
class _Operands:
    """Codes of a block: rows of A with their metadata, columns of B row by row, and the scales of both."""

    a: NDArray
    nibbles: NDArray[np.uint8] | None
    b: NDArray
    scale_a: NDArray[np.uint8] | None
    scale_b: NDArray[np.uint8] | None


def _operands(folder: str, rows: slice, columns: slice, dense: str = "") -> _Operands:
    def part(name: str, where: slice) -> NDArray | None:
        path = Path(folder) / f"{name}.npy"
        return np.asarray(_mapped(str(path))[where]) if path.exists() else None

    a, b = part(f"{dense}a", rows), part(f"{dense}b", columns)
    assert a is not None
    assert b is not None
    nibbles = None if dense else part("nibbles", rows)
    return _Operands(a, nibbles, b, part(f"{dense}a_scales", rows), part(f"{dense}b_scales", columns))


@lru_cache(maxsize=16)
def _mapped(path: str) -> NDArray:
    mapped: NDArray = np.load(path, "r")
    return mapped


def _chained(problem: Problem, backend: str, operands: _Operands, instruction: Instruction | None = None) -> NDArray:
    """Return the codes of a block, one instruction along K after the other."""
    whole = instruction or problem.parsed
    m, n = len(operands.a), len(operands.b)
    i = replace(whole, m=m, n=n)
    d = np.zeros((1, m, n), np.uint16 if i.d.bits == 16 else np.uint32)
    if backend == "golden":  # which follows K by itself
        parts = [
            None if part is None else part[None] for part in (operands.nibbles, operands.scale_a, operands.scale_b)
        ]
        return multiply(i, problem.arch, operands.a[None], operands.b.T[None], d, *parts)[0]
    for step in range(operands.b.shape[1] // i.k):
        given = [
            operands.a[None, :, step * i.stored_k : (step + 1) * i.stored_k],
            np.ascontiguousarray(operands.b[:, step * i.k : (step + 1) * i.k].T)[None],
            d,
            _step(operands.nibbles, step, i.chunks),
            _step(operands.scale_a, step, i.scale_size or 0),
            _step(operands.scale_b, step, i.scale_size or 0),
        ]
        d = _multiply(backend, i, whole, problem.arch, given)
    return d[0]


def _step(values: NDArray[np.uint8] | None, step: int, count: int) -> NDArray[np.uint8] | None:
    return None if values is None or not count else values[None, :, step * count : (step + 1) * count]


def _multiply(backend: str, i: Instruction, whole: Instruction, arch: str, given: list[Any]) -> NDArray:
    if backend == "cuda":
        return multiply_on_gpu(whole, arch, *given)
    from . import engine

    return engine.multiply(backend, i, arch, *given)


def _errors(problem: Problem, operands: _Operands, d: NDArray, rows: slice, columns: slice) -> dict[str, Errors]:
    i = problem.parsed
    values = decode_codes(d, i.d) * problem.scale
    a = _dense_values(i, operands)
    b = _values(operands.b, i.b, i, operands.scale_b, i.span)
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
        d = _chained(problem, "golden", _operands(problem.folder, rows, columns, "dense_"), dense)
        scale = float(_mapped(str(Path(problem.folder) / "dense_scale.npy")))
        found["dense"] = Errors.of(decode_codes(d, i.d) * scale, whole)
    return found


def _values(codes: NDArray, fmt: Any, i: Instruction, scales: NDArray[np.uint8] | None, span: int | None) -> NDArray:
    values = decode_codes(codes >> codes.dtype.type(i.low_bit(fmt) - fmt.ignored_low_bits), fmt)
    if scales is not None:
        assert span
        assert i.scale_format
        values = values * decode_codes(scales, i.scale_format).repeat(span, axis=1)
    return values


def _dense_values(i: Instruction, operands: _Operands) -> NDArray:
    """Return the values of A at their logical places."""
    assert operands.nibbles is not None
    assert i.granularity
    span = i.span and i.span // 2
    stored = _values(operands.a, i.a, i, operands.scale_a, span)
    dense = np.zeros((len(stored), 2 * stored.shape[1]))
    np.put_along_axis(dense, kept_rows(operands.nibbles, i.granularity), stored, axis=1)
    return dense
