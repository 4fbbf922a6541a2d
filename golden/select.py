"""Selection by metadata: the element of B that each stored element of A is multiplied by."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ..isa.instructions import Instruction
from ..isa.metadata import UNITS_PER_CHUNK, Granularity, indices, reachable
from ..isa.operands import MatrixOperands

__all__ = ["WHOLE_ELEMENT_NIBBLES", "kept_rows", "select", "undelivered"]

#: The two metadata nibbles that select a whole tf32 element: 16-bit units (0, 1) or (2, 3) of the chunk of B.
WHOLE_ELEMENT_NIBBLES = (0b0100, 0b1110)


def select(instruction: Instruction, mux: str, operands: MatrixOperands) -> tuple[NDArray, NDArray, NDArray[np.intp]]:
    """Return the stored elements of A, candidate elements of B, and the candidate that each stored element selects.

    K of the matrices is any multiple of the instruction's k; `mux` is the multiplexer type, ``mux4`` or ``mux3``. The
    results are: the codes of A, shape (stored K, batch * m, 1); the candidates, shape (batch * candidates, n); and the
    number of the candidate row that each stored element selects, shape (stored K, batch * m). The candidates are the
    rows of B. For some metadata, a row of zeros is added, or rows of tf32 elements spliced from two halves replace B.
    """
    a, b, nibbles = operands.a, operands.b, operands.nibbles
    granularity, rule = instruction.granularity, instruction.rule
    batch, k, n = b.shape
    if granularity is None:
        rows = np.broadcast_to(np.arange(k), (*a.shape[:2], k))
    else:
        assert rule
        assert nibbles is not None
        if granularity.stored == 1 and not np.isin(nibbles, WHOLE_ELEMENT_NIBBLES).all():
            b = _spliced_elements(b, mux)
            rows = 16 * np.arange(nibbles.shape[-1]) + nibbles
        else:
            rows = kept_rows(nibbles, granularity)
            missing = undelivered(nibbles, granularity, rule.name, mux)
            if missing is not None:
                b = np.concatenate([b, np.zeros_like(b[:, :1])], axis=1)
                rows = np.where(missing, k, rows)
    rows = rows + np.arange(0, batch * b.shape[1], b.shape[1])[:, None, None]
    a_codes = np.ascontiguousarray(a.reshape(-1, a.shape[-1]).T)[..., None]
    return a_codes, b.reshape(-1, n), np.ascontiguousarray(rows.reshape(-1, rows.shape[-1]).T)


def kept_rows(nibbles: NDArray[np.uint8], granularity: Granularity) -> NDArray[np.intp]:
    """Return the row of B that each stored element of A selects, shape (..., nibbles * stored elements per nibble).

    `nibbles` has the shape (..., nibbles). With granularity 1:2 (tf32), the result is valid only for the two nibbles
    that select a whole element.
    """
    chunk_start = np.arange(0, nibbles.shape[-1] * granularity.logical, granularity.logical)
    rows = _offsets(granularity).take(nibbles, axis=0)
    rows += chunk_start[:, None]
    return rows.reshape(*nibbles.shape[:-1], -1)


@lru_cache(maxsize=4)
def _offsets(granularity: Granularity) -> NDArray[np.intp]:
    """Return the rows of B that each of 16 nibbles selects, counted from the first row that the nibble can select."""
    if granularity.stored == 1:
        return np.array([[nibble >> 3] for nibble in range(16)])
    unit = granularity.logical // UNITS_PER_CHUNK
    return np.array(
        [[unit * index + offset for index in indices(nibble) for offset in range(unit)] for nibble in range(16)]
    )


def undelivered(nibbles: NDArray[np.uint8], granularity: Granularity, rule: str, mux: str) -> NDArray[np.bool_] | None:
    """Return a mask of stored elements of A that get no element of B from a multiplexer and are multiplied by zero.

    The nibbles have the shape (..., chunks), the mask (..., chunks * granularity.stored). Return None if every stored
    element gets an element of B, and for 1:2, where each half of an element has its own multiplexer. Rule and mux are
    as for :func:`sptc.isa.metadata.reachable`.
    """
    if granularity.stored == 1:
        return None
    missing = ~np.array([reachable(nibble, rule, mux) for nibble in range(16)])
    if not missing.any():
        return None
    per_element = missing.repeat(granularity.stored // 2, axis=1).take(nibbles, axis=0)
    return per_element.reshape(*nibbles.shape[:-1], -1) if per_element.any() else None


def _spliced_elements(b: NDArray[np.uint32], mux: str) -> NDArray[np.uint32]:
    """Return the tf32 element that each of the sixteen nibbles selects from each chunk (two elements) of a column of B.

    The hardware selects units of 16 bits: the low half of the selected element is unit i0 of the chunk, the high half
    is unit i1 (measured on an H200 for all sixteen nibbles). A half that a 3:1 multiplexer does not reach is zero. B
    has the shape (batch, k, n), the result (batch, k // 2 * 16, n), with row ``16 * chunk + nibble``.
    """
    batch, k, n = b.shape
    chunks = b.reshape(batch, k // 2, 2, n)
    halves = np.stack([chunks & 0xFFFF, chunks >> 16], 3).reshape(batch, k // 2, UNITS_PER_CHUNK, n)
    i0, i1 = indices(np.arange(16))
    low, high = np.array([reachable(nibble, "tf32", mux) for nibble in range(16)]).T
    spliced = halves[:, :, i0] * low[:, None] | (halves[:, :, i1] * high[:, None]) << np.uint32(16)
    return spliced.reshape(batch, -1, n)
