"""Coverage of integer steps: the ends of the range, and the extremes of operands, by pair of formats."""

import numpy as np
from numpy.typing import NDArray

from ...golden.integer import clamp, decode_integer
from ...isa.formats import Format
from .groups import Axis, Group
from .operands import Operands
from .operations import Operation

__all__ = ["IntegersCoverage"]

_MOST, _LEAST = 2**31 - 1, -(2**31)
_SUMS = (
    "in range",
    "clamped high",
    "clamped low",
    "wrapped high",
    "wrapped low",
    "the largest result exactly",
    "the smallest result exactly",
    "one above the largest result",
    "one below the smallest result",
)
_ACCUMULATORS = (
    "largest accumulator",
    "smallest accumulator",
    "passed on from above the range",
    "passed on from below the range",
    "passed on from above, back in range",
    "passed on from below, back in range",
)
_OPERANDS = (
    "smallest A",
    "largest A",
    "smallest B",
    "largest B",
    "smallest A times smallest B",
    "smallest A times largest B",
    "largest A times smallest B",
    "largest A times largest B",
    "largest sum of products",
    "smallest sum of products",
)


class IntegersCoverage:
    """Group ``integers``: pair of formats x event in a step.

    Sums: the exact sum of products and accumulator stays within 32 bits, is clamped (``.satfinite``, last step), or
    wraps; it equals a limit, or misses it by one. An accumulator beyond 32 bits comes with its overflow bit from an
    earlier step of the instruction; one that no step of the pair can pass on does not count. Operands: the ends of a
    format's range meet a nonzero factor, meet each other, or fill every slot.

    Parameters
    ----------
    configuration : str
        Name of the datapath.
    operations : sequence of Operation
        Integer operations.
    """

    def __init__(self, configuration: str, operations: tuple[Operation, ...]) -> None:
        self._operations = operations
        self._events = (*_SUMS, *_ACCUMULATORS, *_OPERANDS)
        self._group = Group(
            configuration,
            "integers",
            "A step of this pair did this.",
            (Axis("pair", tuple(operation.pair for operation in operations)), Axis("event", self._events)),
        )
        self.groups = (self._group,)
        for place, operation in enumerate(operations):
            if operation.a.format.signed or operation.b.format.signed:
                continue
            below = [event for event in self._events if "clamped low" in event or "wrapped low" in event]
            below += ["one below the smallest result", "passed on from below the range"]
            below += ["passed on from below, back in range", "passed on from above, back in range"]
            where = np.zeros(self._group.shape, np.bool_)
            where[place, [self._events.index(event) for event in below]] = True
            self._group.declare_unreachable(where, "No product is negative, so no sum is below its accumulator.")

    def sample(self, operation: Operation, operands: Operands, saturate: bool) -> tuple[NDArray, NDArray[np.bool_]]:
        """Count steps of one operation; return their expected results and overflow bits."""
        a, b = (
            decode_integer(np.ascontiguousarray(codes), fmt).astype(np.int32)
            for codes, fmt in ((operands.a, operation.a.format), (operands.b, operation.b.format))
        )
        c = operands.c.view(np.int32).astype(np.int64)
        before = c + np.where(operands.overflow, np.where(c < 0, 1 << 32, -(1 << 32)), 0)
        products = (a * b).sum(axis=1, dtype=np.int64)
        total = before + products
        beyond, below = total > _MOST, total < _LEAST
        signed = operation.a.format.signed or operation.b.format.signed
        possible = (before >= _LEAST) | signed
        passed_high, passed_low = before > _MOST, before < _LEAST
        in_range = ~beyond & ~below
        (a_low, a_high), (b_low, b_high) = _limits(operation.a.format), _limits(operation.b.format)
        largest, smallest = _extreme_products((a_low, a_high), (b_low, b_high))
        events = (
            in_range,
            beyond & saturate,
            below & saturate,
            beyond & ~np.bool_(saturate),
            below & ~np.bool_(saturate),
            total == _MOST,
            total == _LEAST,
            total == _MOST + 1,
            total == _LEAST - 1,
            before == _MOST,
            before == _LEAST,
            passed_high,
            passed_low,
            passed_high & in_range,
            passed_low & in_range,
            ((a == a_low) & (b != 0)).any(axis=1),
            ((a == a_high) & (b != 0)).any(axis=1),
            ((b == b_low) & (a != 0)).any(axis=1),
            ((b == b_high) & (a != 0)).any(axis=1),
            ((a == a_low) & (b == b_low)).any(axis=1),
            ((a == a_low) & (b == b_high)).any(axis=1),
            ((a == a_high) & (b == b_low)).any(axis=1),
            ((a == a_high) & (b == b_high)).any(axis=1),
            products == operation.slots * largest,
            products == operation.slots * smallest,
        )
        place = self._operations.index(operation)
        for number, happened in enumerate(events):
            self._group.hits[place, number] += int(np.count_nonzero(happened & possible))
        if saturate:
            return clamp(total).view(np.uint32), np.zeros(len(total), np.bool_)
        wrapped = (total & 0xFFFFFFFF).astype(np.uint32)
        return wrapped, (total < 0) != (wrapped >> np.uint32(31) == 1)


def _limits(fmt: Format) -> tuple[int, int]:
    return (-(1 << fmt.bits - 1), (1 << fmt.bits - 1) - 1) if fmt.signed else (0, (1 << fmt.bits) - 1)


def _extreme_products(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    products = [x * y for x in a for y in b]
    return max(products), min(products)
