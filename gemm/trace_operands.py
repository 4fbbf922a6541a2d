"""Operands of one output of a product, as a trace takes them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import Error, OperandError
from ..isa.formats import Format
from ..isa.instructions import Instruction
from ..isa.operands import MatrixOperands
from .matrices import as_array, as_factor, check_matrix, dense_codes, factors, sparse_codes

__all__ = ["output_operands"]

#: Types of accumulators, by the format.
_TYPES = {"f32": np.float32, "f16": np.float16, "s32": np.int32}


def output_operands(
    i: Instruction,
    matrices: tuple[Any, Any, Any],
    row: int,
    column: int,
    *,
    transpose_b: bool = False,
    prune: bool = False,
) -> MatrixOperands:
    """Return one row of A, one column of B and one element of C, padded along K to whole instructions.

    Parameters
    ----------
    i : Instruction
        The instruction, without block scales.
    matrices : tuple
        A (M x K), B (K x N) and C (M x N) or None, with numbers or codes as for :func:`sptc.gemm`.
    row, column : int
        Place of the output.
    transpose_b : bool
        B has the shape N x K.
    prune : bool
        Keep the largest magnitudes of a sparse A. Otherwise A must be sparse.

    Raises
    ------
    OperandError, InstructionError
        A matrix cannot be an operand, the output does not exist, or the instruction has block scales.
    """
    first, second, third = matrices
    a = as_factor("a", first)
    b = as_array("b", second).T if transpose_b else as_array("b", second)
    if isinstance(a, np.ndarray):
        check_matrix("a", a, "keep")
    check_matrix("b", b, "keep")
    for name, number, count in (("row", row, a.shape[0]), ("column", column, b.shape[1])):
        if not number < count:
            raise OperandError(f"{name} must be 0 to {count - 1}, as the matrices have it, not {number}")
    rows = slice(row, row + 1)
    one = a[rows] if isinstance(a, np.ndarray) else a
    try:
        stored = sparse_codes("a", one, i, prune=prune, nan="keep")
    except Error as error:
        raise OperandError(f"row {row} of a, taken alone: {error}") from None
    right = dense_codes("b", np.ascontiguousarray(b[:, column : column + 1]), i.b, "keep")
    operands = factors(stored, right, i)
    if not isinstance(a, np.ndarray):
        operands = operands.take(rows, slice(None))
    c = np.zeros((1, 1), _TYPES[i.c.name]) if third is None else _accumulator(third, i.c, (row, column))
    nibbles = None if operands.nibbles is None else operands.nibbles[None]
    return MatrixOperands(operands.a[None], operands.b[None], c.view(f"<u{c.itemsize}")[None], nibbles)


def _accumulator(value: Any, fmt: Format, place: tuple[int, int]) -> NDArray:
    """Return one element of C in the type of the accumulator, shape (1, 1)."""
    c, (row, column) = as_array("c", value), place
    check_matrix("c", c, "keep")
    if row >= c.shape[0] or column >= c.shape[1]:
        raise OperandError(f"c is {c.shape[0]} x {c.shape[1]} and has no element at row {row}, column {column}")
    if fmt.is_integer != np.issubdtype(c.dtype, np.integer):
        raise OperandError(f"c must hold {'integers' if fmt.is_integer else 'floats'}, not {c.dtype}")
    element = c[row : row + 1, column : column + 1]
    converted = element.astype(_TYPES[fmt.name])
    if fmt.is_integer and (converted != element).any():
        raise OperandError(f"c holds {element.item()} at row {row}, column {column}, beyond 32 bits")
    return converted
