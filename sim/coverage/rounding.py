"""Coverage of rounding: the cases that the rounding of a step met, by sign."""

import numpy as np
from numpy.typing import NDArray

from ...isa.formats import FORMATS
from .arithmetic import Evaluation
from .groups import Axis, Group
from .operations import Operation

__all__ = ["RoundingCoverage"]

_SIGNS = ("positive", "negative")
_TRUNCATED = (
    "exact, normal",
    "exact, subnormal",
    "truncated, normal",
    "truncated, subnormal",
    "truncated to zero",
    "truncated to the largest finite number",
    "overflow to Inf",
)
_TIES = ("exact", "below a tie", "tie, down to even", "tie, up to even", "above a tie")
_NEAREST = (
    *(f"{tie}, {kind}" for kind in ("normal", "subnormal") for tie in _TIES),
    "carry from the fraction into the exponent",
    "subnormal to normal by carry",
    "rounded to zero",
    "down to the largest finite number",
    "overflow to Inf by rounding",
    "overflow to Inf from 2**16 on",
)
_FRACTION_BITS = {"f32": 23, "e8m13": 13, "f16": 10}


class RoundingCoverage:
    """Groups ``rounding to f32``, ``to e8m13`` and ``to f16``: sign x event in the rounding of a step's exact sum.

    The sum is that of the truncated terms; it is nonzero, and the step has an ordinary result. Events of truncating
    formats: exact or truncated, with a normal or subnormal result; truncated to zero (+0 for either sign), or to the
    largest finite number; overflow, from 2**128 on. Events of f16: place of the sum between its two neighbours; carry
    of the fraction into the exponent (alone, or from the largest subnormal to the smallest normal number); either side
    of 65520.

    Parameters
    ----------
    configuration : str
        Name of the datapath.
    operations : sequence of Operation
        Float operations.
    """

    def __init__(self, configuration: str, operations: tuple[Operation, ...]) -> None:
        results = dict.fromkeys(operation.result for operation in operations)
        self._by_result = {
            result: _group(configuration, result, [o for o in operations if o.result == result]) for result in results
        }
        self.groups = tuple(self._by_result.values())

    def sample(self, evaluation: Evaluation) -> None:
        """Count evaluated steps."""
        result = evaluation.operation.result
        trace = evaluation.trace
        rows = trace.ordinary & (trace.total != 0)
        total = trace.total[rows]
        magnitude = np.abs(total)
        if result == "f16":
            events = _nearest(magnitude)
        else:
            events = _truncated(magnitude, np.abs(trace.result[rows].astype(np.float64)), result)
        negative = (total < 0).astype(np.intp)
        for place, happened in enumerate(events):
            self._by_result[result].count(negative, place, where=happened)


def _group(configuration: str, result: str, operations: list[Operation]) -> Group:
    events = _NEAREST if result == "f16" else _TRUNCATED
    group = Group(
        configuration,
        f"rounding to {result}",
        "The non-zero exact sum of a step with an ordinary result was rounded this way.",
        (Axis("sign", _SIGNS), Axis("event", events)),
    )

    def declare(reason: str, *names: str) -> None:
        group.declare_unreachable([name in names for name in events], reason)

    finest = min(operation.last_aligned_bit for operation in operations)
    fmt = FORMATS["f16" if result == "f16" else "f32"]
    last = fmt.minimum_exponent - _FRACTION_BITS[result]  # last bit of a subnormal number
    # Accumulators alone leave their own last bit below it, but no bit below the grid that they set.
    grid = max(fmt.minimum_exponent, operations[0].zero_exponent) - operations[0].alignment_bits
    finest = min(finest, max(fmt.minimum_exponent - fmt.fraction_bits, grid))
    if result == "f16":
        if finest > last - 2:
            declare("No sum has a bit a quarter as large as the smallest subnormal.",
                    "below a tie, subnormal", "above a tie, subnormal")  # fmt: skip
        if finest > last - 1:
            declare(
                "No sum has a bit half as large as the smallest subnormal.",
                "tie, down to even, subnormal", "tie, up to even, subnormal", "subnormal to normal by carry",
                "rounded to zero",
            )  # fmt: skip
    else:
        if finest >= last:
            declare("No sum has a bit below the smallest subnormal.", "truncated, subnormal", "truncated to zero")
        if not any(can_overflow(operation) for operation in operations):
            declare(
                "The terms cannot lift the largest accumulator, which fills its significand, by a single bit.",
                "truncated to the largest finite number", "overflow to Inf",
            )  # fmt: skip
    return group


def can_overflow(operation: Operation) -> bool:
    """Whether the terms of a truncating operation can raise the largest accumulator to 2**128."""
    # Aligned to 2**127, an accumulator keeps this number of bits below it. If all are ones, one more bit overflows.
    kept = min(operation.alignment_bits, FORMATS["f32"].fraction_bits)
    return operation.largest_sum >= FORMATS["f32"].maximum_exponent - kept


def _truncated(magnitude: NDArray, rounded: NDArray, result: str) -> list[NDArray[np.bool_]]:
    smallest_normal = 2.0 ** FORMATS["f32"].minimum_exponent
    overflow = np.isinf(rounded)
    exact, zero, normal = rounded == magnitude, rounded == 0, rounded >= smallest_normal
    largest = (2 - 2.0 ** -_FRACTION_BITS[result]) * 2.0 ** FORMATS["f32"].maximum_exponent
    return [
        exact & normal,
        exact & ~normal,
        ~exact & normal & ~overflow,
        ~exact & ~normal & ~zero,
        zero,
        ~exact & (rounded == largest),
        overflow,
    ]


def _nearest(magnitude: NDArray) -> list[NDArray[np.bool_]]:
    fmt = FORMATS["f16"]
    _, exponent = np.frexp(magnitude)
    binade = np.maximum(exponent - 1, fmt.minimum_exponent)
    scaled = np.ldexp(magnitude, fmt.fraction_bits - binade)  # in units of the last place; exact
    below = np.floor(scaled)
    rest, odd = scaled - below, below % 2 == 1
    ties = [rest == 0, (rest > 0) & (rest < 0.5), (rest == 0.5) & ~odd, (rest == 0.5) & odd, rest > 0.5]
    up = (rest > 0.5) | ((rest == 0.5) & odd)
    normal = magnitude >= 2.0**fmt.minimum_exponent
    beyond = magnitude >= 2.0 ** (fmt.maximum_exponent + 1)
    top = (magnitude > fmt.maximum) & ~beyond
    carry = up & (below == (2 << fmt.fraction_bits) - 1)
    return [
        *(tie & normal & ~beyond for tie in ties),
        *(tie & ~normal for tie in ties),
        carry & ~top,
        up & (below == (1 << fmt.fraction_bits) - 1) & ~normal,
        ~up & (below == 0),
        top & ~up,
        top & up,
        beyond,
    ]
