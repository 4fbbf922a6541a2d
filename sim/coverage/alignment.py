"""Coverage of alignment: the shift amount of every term, and the source of the largest exponent, e_max."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from .arithmetic import Evaluation
from .groups import Axis, Group
from .operations import Operation

__all__ = ["AlignmentCoverage"]

_SOURCES = (
    "one term alone",
    "several terms",
    "the accumulator alone",
    "a term and the accumulator",
    "e_zero, above every term",
    "e_zero, every term zero",
)


class AlignmentCoverage:
    """Groups ``alignment`` (one for each alignment mode) and ``largest exponent``.

    ``alignment``: position of a term (product slot or group of 16 products, and the accumulator ``c``) x its shift
    amount ``e_max - x``, which the bins call distance. Distances run from 0 to the last one that keeps a bit of the
    largest significand; ``beyond`` are all others, where truncation leaves nothing. Only nonzero terms count, and only
    in steps with an ordinary result, as NaN and Inf hide the sum. A shift amount is unreachable if no two exponents of
    the formats, of the accumulator or e_zero have that distance.

    ``largest exponent``: the source of e_max.

    Parameters
    ----------
    configuration : str
        Name of the datapath.
    operations : sequence of Operation
        Float operations.
    """

    def __init__(self, configuration: str, operations: tuple[Operation, ...]) -> None:
        by_mode: dict[str, list[Operation]] = {}
        for operation in operations:
            by_mode.setdefault(operation.mode, []).append(operation)
        self._by_mode = {mode: _alignment(configuration, mode, found) for mode, found in by_mode.items()}
        self._modes = [*dict.fromkeys((operation.mode, operation.result) for operation in operations)]
        self._sources = _sources_of_e_max(configuration, self._modes, operations)
        self.groups = (*self._by_mode.values(), self._sources)

    def sample(self, evaluation: Evaluation) -> None:
        """Count evaluated steps."""
        operation, trace = evaluation.operation, evaluation.trace
        group = self._by_mode[operation.mode]
        positions, places = group.shape
        shift_amounts = np.minimum(trace.e_max - trace.exponents, places - 1)
        group.count(np.arange(operation.terms)[:, None], shift_amounts, where=trace.participates & trace.ordinary)
        c_shift_amounts = np.minimum(trace.e_max - trace.c_exponents, places - 1)
        group.count(positions - 1, c_shift_amounts, where=trace.c_participates & trace.ordinary)

        set_by = (trace.participates & (trace.exponents == trace.e_max)).sum(axis=0)
        by_c = trace.c_participates & (trace.c_exponents == trace.e_max)
        some = trace.participates.any(axis=0) | trace.c_participates
        source = np.select(
            [by_c & (set_by > 0), by_c, set_by > 1, set_by == 1, some], [3, 2, 1, 0, 4], len(_SOURCES) - 1
        )
        self._sources.count(self._modes.index((operation.mode, operation.result)), source, where=trace.ordinary)


def _alignment(configuration: str, mode: str, operations: list[Operation]) -> Group:
    terms = max(operation.terms for operation in operations)
    last = operations[0].alignment_bits + max(operation.headroom for operation in operations)
    term = "group" if operations[0].grouped else "slot"
    axes = (
        Axis("position", (*(f"{term} {place}" for place in range(terms)), "c")),
        Axis("distance", (*(f"distance {amount}" for amount in range(last + 1)), "beyond")),
    )
    group = Group(
        configuration,
        f"alignment of {mode}",
        "A non-zero term of a step with an ordinary result stood so many exponents below the largest.",
        axes,
    )
    for place in range(terms + 1):
        of_c = place == terms
        reached = np.zeros(last + 2, np.bool_)
        for operation in operations:
            if of_c or place < operation.terms:
                reached |= _shift_amounts(
                    operation.accumulator_exponents if of_c else operation.exponents,
                    () if of_c else operation.accumulator_exponents,
                    operation.exponents if of_c or operation.terms > 1 else (),
                    operation.zero_exponent,
                    last,
                )
        where = np.zeros(group.shape, np.bool_)
        where[place] = ~reached
        what = "the accumulator" if of_c else "a term of these formats"
        group.declare_unreachable(where, f"No exponent that can be the largest is so far above one of {what}.")
    return group


@lru_cache(maxsize=1024)
def _shift_amounts(
    own: Sequence[int], accumulators: Sequence[int], terms: Sequence[int], zero_exponent: int, last: int
) -> NDArray[np.bool_]:
    """Return which shift amounts a term can have; the last entry stands for all beyond `last`.

    Parameters
    ----------
    own : sequence of int
        Exponents of the term.
    accumulators, terms : sequence of int
        Possible exponents of the other terms.
    zero_exponent : int
        Least value of e_max.
    last : int
        Last shift amount with a bin of its own.
    """
    exponents = np.array(own)
    reached = np.zeros(last + 2, np.bool_)
    reached[0] = bool((exponents >= zero_exponent).any())
    for other in sorted({zero_exponent, *accumulators, *terms}):
        if other >= zero_exponent:
            shift_amounts = other - exponents[exponents <= other]
            reached[np.minimum(shift_amounts, last + 1)] = True
    return reached


def _sources_of_e_max(configuration: str, modes: list[tuple[str, str]], operations: tuple[Operation, ...]) -> Group:
    axes = (Axis("mode", tuple(f"{mode} to {result}" for mode, result in modes)), Axis("source", _SOURCES))
    group = Group(
        configuration,
        "largest exponent",
        "E came from this source in a step with an ordinary result.",
        axes,
    )
    for place, mode in enumerate(modes):
        of_mode = [operation for operation in operations if (operation.mode, operation.result) == mode]
        where = np.zeros(group.shape, np.bool_)
        if not any(_below_zero_exponent(operation) for operation in of_mode):
            where[place, _SOURCES.index("e_zero, above every term")] = True
            group.declare_unreachable(where, "No term and no accumulator has an exponent below e_zero.")
        where = np.zeros(group.shape, np.bool_)
        if all(operation.terms == 1 for operation in of_mode):
            where[place, _SOURCES.index("several terms")] = True
            group.declare_unreachable(where, "A step has a single term.")
    return group


def _below_zero_exponent(operation: Operation) -> bool:
    return min(operation.exponents[0], operation.accumulator_exponents[0]) < operation.zero_exponent
