"""Arithmetic of integer instructions: an exact sum, which is clamped or wrapped to 32 bits once."""

import numpy as np
from numpy.typing import NDArray

from ..isa.formats import Format
from ..isa.instructions import Instruction
from ..isa.operands import MatrixOperands
from .select import kept_rows, undelivered

__all__ = ["clamp", "decode_integer", "integer_chain"]

#: Maximum number of 8-bit products per f32 sum. 256 * 255 * 255 < 2**24, so the sum is exact in any order.
_EXACT_F32_TERMS = 256


def integer_chain(instruction: Instruction, mux: str, operands: MatrixOperands) -> NDArray[np.uint32]:
    """Return D (uint32) of successive integer instructions that accumulate along K, for a batch of matrices.

    The K of the matrices is any multiple of the instruction's k; `mux` is the multiplexer type, ``mux4`` or ``mux3``.
    """
    assert instruction.k <= _EXACT_F32_TERMS
    granularity, rule = instruction.granularity, instruction.rule
    d = operands.c.view(np.int32)
    for step in operands.steps(instruction):
        a_part, b_part = decode_integer(step.a, instruction.a), decode_integer(step.b, instruction.b)
        if granularity:
            assert rule
            assert step.nibbles is not None
            missing = undelivered(step.nibbles, granularity, rule.name, mux)
            if missing is not None:
                a_part = np.where(missing, np.float32(0), a_part)
            a_part = _expand(a_part, kept_rows(step.nibbles, granularity), instruction.k)
        products = np.matmul(a_part, b_part)
        d = clamp(products.astype(np.int64) + d) if instruction.satfinite else products.astype(np.int32) + d
    return d.view(np.uint32)


def decode_integer(codes: NDArray, fmt: Format) -> NDArray[np.float32]:
    """Decode 4-bit or 8-bit integer codes to float32 numbers."""
    if fmt.bits == 8:
        return codes.view(np.int8 if fmt.signed else np.uint8).astype(np.float32)
    values = codes.astype(np.float32)
    return np.where(codes >> 3 & 1, values - 16, values) if fmt.signed else values


def _expand(stored: NDArray[np.float32], rows: NDArray[np.intp], k: int) -> NDArray[np.float32]:
    """Scatter the stored elements of A, shape (..., stored k), to k logical columns.

    `rows` has the column of each element. Elements of A with the same column are added, since all of them are
    multiplied by the same row of B.
    """
    rows_of_a = stored.size // stored.shape[-1]
    expanded = np.zeros(rows_of_a * k, np.float32)
    places = rows.reshape(rows_of_a, -1) + np.arange(0, expanded.size, k)[:, None]
    np.add.at(expanded, places.ravel(), stored.ravel())
    return expanded.reshape(*stored.shape[:-1], k)


def clamp(total: NDArray[np.int64]) -> NDArray[np.int32]:
    """Clamp exact sums to the range of s32."""
    return np.clip(total, -(2**31), 2**31 - 1).astype(np.int32)
