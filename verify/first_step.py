"""Find the first rounded sum in which a design with a given end result may differ from the golden model."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..golden.matrix import multiply_by
from ..isa.metadata import MUX_OF_ARCHITECTURE
from ..isa.numerics import Method, Numerics, numerics
from ..isa.operands import MatrixOperands
from .trace import OutputTrace

__all__ = ["first_possible_step"]

#: For the search for an accumulator from which the golden model computes the code `d`: number of accumulators in one
#: call of the model, and number of codes that are tried on each side of the accumulator at which the result passes `d`.
_POINTS, _WINDOW = 1024, 2048
_Tail = Callable[[NDArray[np.int64]], NDArray[np.int64]]


def first_possible_step(golden: OutputTrace, operands: MatrixOperands, d: int, changed: Numerics | None = None) -> int:
    """Return the index of the first step (rounded sum) that may be wrong in a design whose output has the code `d`.

    `golden` is the trace of the golden model, which has another result, and `operands` are one row and one column.
    `changed` are the numerics of the trace if they are not those of its architecture.

    A step is possible if the steps after it turn some accumulator into `d`. Except for bits that alignment truncates,
    the result increases with the accumulator. The search tries NaN, infinities, and all accumulators near the point
    where the result crosses `d`. The last step is always possible.
    """
    i, last = golden.instruction, len(golden.steps) - 1
    parameters = changed or numerics(i, golden.arch)
    if parameters.method is Method.EMULATED:
        return 0  # the search cannot handle emulated instructions, which add C after all products
    for index in range(last):
        tail = _tail(golden, operands, index, parameters)
        if _reaches(tail, d, i.d.bits):
            return index
    return last


def _tail(golden: OutputTrace, operands: MatrixOperands, index: int, parameters: Numerics) -> _Tail:
    """Return a function from the accumulator after step (cycle) `index` to the result after the last step, both codes.

    The operands of step `index` and of all earlier steps are set to zero: a product of zeros takes no part in a sum,
    and a step of such products leaves the accumulator unchanged.
    """
    i = golden.instruction
    done = np.array([product.element for step in golden.steps[: index + 1] for product in step.products])
    a, b = operands.a.copy(), operands.b.copy()
    a[..., done] = 0
    stored, logical = (i.granularity.stored, i.granularity.logical) if i.granularity else (1, 1)
    rows = np.unique(done // stored)[:, None] * logical + np.arange(logical)
    b[:, rows.ravel()] = 0

    def tail(codes: NDArray[np.int64]) -> NDArray[np.int64]:
        count = len(codes)
        scale_b = None if operands.scale_b is None else operands.scale_b.repeat(count, axis=1)
        c = codes.astype(operands.c.dtype).reshape(1, 1, count)
        wide = replace(operands, a=a, b=b.repeat(count, axis=2), c=c, scale_b=scale_b)
        return multiply_by(i, parameters, MUX_OF_ARCHITECTURE[golden.arch], wide).ravel().astype(np.int64)

    return tail


def _reaches(tail: _Tail, d: int, bits: int) -> bool:
    """Return whether the last steps of an instruction (`tail`) compute `d` from some accumulator code."""
    sign = 1 << bits - 1
    infinity = 0x7F800000 if bits == 32 else 0x7C00

    def converted(values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Convert codes of floats to ranks (integers in the order of the floats), or ranks back to codes."""
        return np.where((values < 0) | (values >= sign), sign - 1 - values, values)

    special = np.array([infinity, infinity | sign, infinity | infinity >> 1])
    if (tail(special) == d).any():
        return True
    if d & (sign - 1) > infinity:
        return False
    low, high = -infinity - 1, infinity
    goal = int(converted(np.array([d]))[0])
    while high - low > _POINTS:
        ranks = np.linspace(low, high, _POINTS).astype(np.int64)
        results = tail(converted(ranks))
        if (results == d).any():
            return True
        below = np.flatnonzero(converted(results) < goal)
        place = int(below[-1]) if len(below) else 0
        low, high = int(ranks[place]), int(ranks[min(place + 1, len(ranks) - 1)])
    window = np.arange(max(low - _WINDOW, -infinity - 1), min(high + _WINDOW, infinity) + 1)
    return bool((tail(converted(window)) == d).any())
