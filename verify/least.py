"""Directed tiles near e_zero and near zero, which decide the result of sums that almost vanish.

A row of A has two products, both powers of two: one near the least subnormal number of D, and one from above to below
the last bit that any alignment keeps. In every fifth tile both are zero. Accumulators are zeros of either sign,
subnormal numbers, or the least normal numbers. Where a format cannot form so small a product, the accumulators decide.
"""

import numpy as np

from ..isa.formats import Format
from ..isa.instructions import Instruction
from ..isa.operands import MatrixOperands
from .draft import Codes, Draft, exponents_of, power_code

__all__ = ["least_matrices"]

#: Exponents of the second product: distance of the first below the least subnormal number of D, and their number.
_BELOW, _EXPONENTS = 25, 32
#: Exponents of the first product, relative to the same number.
_FIRST = (-1, 0, 1)
#: Tiles cycle through each first product, no first product, and no product.
_TURNS = len(_FIRST) + 2


def least_matrices(instruction: Instruction, rng: np.random.Generator, cases: int) -> MatrixOperands:
    """Return tiles of a float instruction that tell its e_zero from neighbouring values.

    Parameters
    ----------
    instruction : Instruction
        Float instruction.
    rng : Generator
        Source of randomness.
    cases : int
        Number of tiles; twenty contain every pair of products.
    """
    i, draft = instruction, Draft(instruction, cases, rng)
    tiles, rows = np.arange(cases)[:, None], np.arange(i.m)
    turn = tiles // 2 % _TURNS
    least = exponents_of(i.d)[0]
    first = least + np.array([*_FIRST, 0, 0])[turn]
    second = least - _BELOW + (tiles * i.m + rows) % _EXPONENTS
    draft.a[:] = draft.signs(*draft.a.shape).astype(np.int64) << i.a.bits - 1
    draft.b[:] = draft.signs(*draft.b.shape).astype(np.int64) << i.b.bits - 1

    # All products of one chunk have the same B, whatever the nibble selects.
    chunks = i.chunks if i.sparse else i.stored_k
    held, passed = i.stored_k // chunks, i.k // chunks
    places = rng.permuted(np.tile(np.arange(chunks), (cases, 1)), axis=1)
    for number, (products, present) in enumerate(((first, turn < len(_FIRST)), (second, turn < _TURNS - 1))):
        of_b = products.min(axis=1, keepdims=True) // 2
        chunk = places[:, number, None]
        columns = (chunk * passed + np.arange(passed))[..., None]
        of_columns = _powers(draft, i.b, of_b[..., None], (cases, 1, i.n))
        np.put_along_axis(draft.b, columns, np.broadcast_to(of_columns, (cases, passed, i.n)), axis=1)
        of_rows = _powers(draft, i.a, np.broadcast_to(products - of_b, (cases, i.m)), (cases, i.m))
        draft.put(chunk * held + rng.integers(0, held, (cases, i.m)), np.where(present, of_rows, 0))
    draft.c[:] = _accumulators(draft)
    return draft.matrices()


def _powers(draft: Draft, fmt: Format, exponents: Codes, shape: tuple[int, ...]) -> Codes:
    """Return powers of two with random signs, clipped to the range of the format."""
    return power_code(fmt, np.clip(exponents, *exponents_of(fmt)), 0, draft.signs(*shape))


def _accumulators(draft: Draft) -> Codes:
    """Draw zeros, subnormal numbers with fractions at either end of their range, and the least normal number."""
    fmt, shape = draft.instruction.c, draft.c.shape
    one = 1 << fmt.fraction_bits
    bodies = np.where(
        draft.signs(*shape),
        draft.one_of([0, 0, 0, 1, 1, 2, 3, one - 1, one], *shape),
        draft.rng.integers(0, one >> draft.rng.integers(0, fmt.fraction_bits, shape)),
    )
    return bodies | draft.signs(*shape).astype(np.int64) << fmt.bits - 1
