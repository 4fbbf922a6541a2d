"""Covergroups of dot products in float formats: special values, rounding, and alignment."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .covergroups import Bin, Covergroup, Need, bins_axis
from .groups import Axis
from .operands import Operation, split
from .values import FloatValues

__all__ = ["alignment", "float_groups"]

Operations = Sequence[Operation]
Function = Callable[[Any], Any]


# Definition of the covergroup of special cases, such as NaN operands

_NAN_A = Need("No format of A has a NaN.", lambda o: o.has("a", "NaN"))
_NAN_B = Need("No format of B has a NaN.", lambda o: o.has("b", "NaN"))
_INF_A = Need("No format of A has an Inf.", lambda o: o.has("a", "Inf"))
_INF_B = Need("No format of B has an Inf.", lambda o: o.has("b", "Inf"))
_INF = Need("No format of A or B has an Inf.", lambda o: o.has("a", "Inf") or o.has("b", "Inf"))
_OVERFLOW = Need(
    "The sum of the products is too small to add one to the last bit of the largest accumulator.",
    lambda o: o.can_overflow,
)
_UNGROUPED = Need("Groups of products are aligned, not single products.", lambda o: not o.grouped)
_TERM_TRUNCATED = Need(
    "No term has bits below the last bit that alignment keeps.",
    lambda o: o.last_bits[0] < max(o.exponents[-1], o.accumulator.maximum_exponent) - o.alignment_bits,
)
_C_TRUNCATED = Need(
    "No accumulator has bits below the last bit that alignment keeps.",
    lambda o: o.last_bits[1] < o.exponents[-1] - o.alignment_bits,
)
_TRUNCATED_TO_ZERO = Need(
    "The smallest term and accumulator lose no bits when aligned to their own exponent or to e_zero.",
    lambda o: any(last < kept for last, kept in zip(o.last_bits, o.last_aligned_bits, strict=True)),
)
_TINY_SUM = Need(
    "Every nonzero sum is at least as large as the smallest subnormal.",
    lambda o: o.last_aligned_bits[0] < o.last_result_bit,
)


def _bin(values: Function, guard: Function, label: str, case: Function, *needs: Need) -> Bin:
    """Return a bin that counts the cycles in which its condition `case` and the common condition `guard` hold."""
    return Bin(label, lambda s: case(values(s)) & guard(s), needs)


#: Constructors of bins for causes of special results. `_alone` makes a bin that a step hits if the bin's cause is the
#: only cause of a NaN. `_infinite` makes a bin that a step hits if the bin's cause gives Inf and nothing gives NaN.
_alone = partial(_bin, lambda s: s.specials, lambda s: s.specials.alone)
_infinite = partial(_bin, lambda s: s.specials, lambda s: s.specials.no_nan)
#: Constructors of bins for steps without NaN and Inf: `_ordinary` for any rounded result, `_zero` for a result of zero.
_ordinary = partial(_bin, lambda s: s, lambda s: s.ordinary)
_zero = partial(_bin, lambda s: s, lambda s: s.ordinary & (s.trace.result == 0))
_rounding_bin = partial(_bin, lambda s: s.rounding, lambda s: True)

_CASES = (
    _alone("NaN only from NaN in A", lambda x: x.nan_a, _NAN_A),
    _alone("NaN only from NaN in B", lambda x: x.nan_b, _NAN_B),
    _alone("NaN only from NaN in C", lambda x: x.nan_c),
    _alone("NaN only from Inf in A times zero", lambda x: x.inf_zero, _INF_A),
    _alone("NaN only from zero in A times Inf", lambda x: x.zero_inf, _INF_B),
    _alone("NaN only from Inf - Inf of products", lambda x: x.difference & ~x.c_plus & ~x.c_minus, _INF),
    _alone("NaN only from Inf of a product and -Inf in C", lambda x: x.plus & x.c_minus & ~x.difference, _INF),
    _alone("NaN only from -Inf of a product and Inf in C", lambda x: x.minus & x.c_plus & ~x.difference, _INF),
    _infinite("Inf of a product", lambda x: x.plus & ~x.c_plus, _INF),
    _infinite("-Inf of a product", lambda x: x.minus & ~x.c_minus, _INF),
    _infinite("Inf in C", lambda x: x.c_plus & ~x.plus),
    _infinite("-Inf in C", lambda x: x.c_minus & ~x.minus),
    Bin("NaN in an unselected element of B", lambda s: s.unselected_b[0], (_NAN_B,)),
    Bin("Inf in an unselected element of B", lambda s: s.unselected_b[1], (_INF_B,)),
    _ordinary("Inf from a finite sum", lambda s: s.result_is_inf & ~s.result_negative, _OVERFLOW),
    _ordinary("-Inf from a finite sum", lambda s: s.result_is_inf & s.result_negative, _OVERFLOW),
    _ordinary("zero in A times a nonzero number", lambda s: (~s.numbers_a & s.numbers_b).any(axis=0)),
    _ordinary("zero in B times a nonzero number", lambda s: (s.numbers_a & ~s.numbers_b).any(axis=0)),
    _ordinary("subnormal A", lambda s: s.subnormal("a")),
    _ordinary("subnormal B", lambda s: s.subnormal("b")),
    _ordinary("subnormal C", lambda s: s.c_subnormal),
    _ordinary("product of 2 or more sets e_max", lambda s: (s.e_max_significands >= 2).any(axis=0), _UNGROUPED),
    _ordinary("product below 1 sets e_max", lambda s: (s.e_max_significands < 1).any(axis=0), _UNGROUPED),
    _ordinary("subnormal result", lambda s: s.result_subnormal & ~s.result_negative),
    _ordinary("negative subnormal result", lambda s: s.result_subnormal & s.result_negative),
    _ordinary("smallest subnormal result", lambda s: s.result_smallest & ~s.result_negative),
    _ordinary("negative smallest subnormal result", lambda s: s.result_smallest & s.result_negative),
    _ordinary("truncated positive term", lambda s: (s.truncated & (s.trace.aligned > 0)).any(axis=0), _TERM_TRUNCATED),
    _ordinary("truncated negative term", lambda s: (s.truncated & (s.trace.aligned < 0)).any(axis=0), _TERM_TRUNCATED),
    _ordinary("truncated positive C", lambda s: s.c_truncated & (s.c > 0), _C_TRUNCATED),
    _ordinary("truncated negative C", lambda s: s.c_truncated & (s.c < 0), _C_TRUNCATED),
    _zero("zero: every term zero", lambda s: ~s.nonzero),
    _zero("zero: every term -0", lambda s: ~s.nonzero & s.all_negative),
    _zero("zero: terms cancel", lambda s: (s.trace.total == 0) & s.keeps_bits & ~s.loses_bits),
    _zero(
        "zero: terms cancel, other bits truncated",
        lambda s: (s.trace.total == 0) & s.keeps_bits & s.loses_bits,
        _TERM_TRUNCATED,
    ),
    _zero(
        "zero: every term truncated to zero",
        lambda s: (s.trace.total == 0) & ~s.keeps_bits & s.loses_bits,
        _TRUNCATED_TO_ZERO,
    ),
    _zero("zero: positive sum rounded", lambda s: s.trace.total > 0, _TINY_SUM),
    _zero("zero: negative sum rounded", lambda s: s.trace.total < 0, _TINY_SUM),
)


def _special_cases(by_result: Mapping[str, Operations]) -> Covergroup:
    """Return the covergroup of special cases, such as NaN operands. Axes: result format, and special case.

    A zero that is stored in A is multiplied like any number: its product with Inf is NaN. Products are not normalised:
    a product whose significand is 2 or more, or below 1 (of a subnormal), counts where it sets the largest exponent
    e_max, since normalisation would change the result in this case.
    """
    results = tuple(by_result)
    return Covergroup(
        name="special cases",
        meaning="A step with this result format had this special case; `only` excludes other causes of NaN.",
        axes=(Axis("result", results), bins_axis("case", _CASES)),
        iff=lambda s: isinstance(s, FloatValues),
        sample=lambda s: (results.index(s.operation.result),),
        bins=_CASES,
        rows=[*by_result.values()],
    )


# Definition of the covergroups of rounding events

_QUARTER = Need("No sum has a bit that is worth a quarter of the smallest subnormal.", lambda o: o.last_sum_bit <= -2)
_HALF = Need("No sum has a bit that is worth half of the smallest subnormal.", lambda o: o.last_sum_bit <= -1)
_BELOW_SUBNORMAL = Need("No sum has a bit below the smallest subnormal.", lambda o: o.last_sum_bit < 0)


_TRUNCATED = (
    _rounding_bin("exact, normal", lambda r: r.exact & r.normal),
    _rounding_bin("exact, subnormal", lambda r: r.exact & r.subnormal),
    _rounding_bin("truncated, normal", lambda r: ~r.exact & r.normal),
    _rounding_bin("truncated, subnormal", lambda r: ~r.exact & r.subnormal & (r.rounded != 0), _BELOW_SUBNORMAL),
    _rounding_bin("truncated to zero", lambda r: r.rounded == 0, _BELOW_SUBNORMAL),
    _rounding_bin("truncated to the largest finite number", lambda r: ~r.exact & (r.rounded == r.largest), _OVERFLOW),
    _rounding_bin("overflow to Inf", lambda r: r.overflow, _OVERFLOW),
)
_NEAREST = (
    _rounding_bin("exact, normal", lambda r: (r.rest == 0) & r.normal),
    _rounding_bin("below a tie, normal", lambda r: (r.rest > 0) & (r.rest < 0.5) & r.normal),
    _rounding_bin("tie, down to even, normal", lambda r: (r.rest == 0.5) & ~r.odd & r.normal),
    _rounding_bin("tie, up to even, normal", lambda r: (r.rest == 0.5) & r.odd & r.normal),
    _rounding_bin("above a tie, normal", lambda r: (r.rest > 0.5) & r.normal),
    _rounding_bin("exact, subnormal", lambda r: (r.rest == 0) & r.subnormal),
    _rounding_bin("below a tie, subnormal", lambda r: (r.rest > 0) & (r.rest < 0.5) & r.subnormal, _QUARTER),
    _rounding_bin("tie, down to even, subnormal", lambda r: (r.rest == 0.5) & ~r.odd & r.subnormal, _HALF),
    _rounding_bin("tie, up to even, subnormal", lambda r: (r.rest == 0.5) & r.odd & r.subnormal, _HALF),
    _rounding_bin("above a tie, subnormal", lambda r: (r.rest > 0.5) & r.subnormal, _QUARTER),
    _rounding_bin("carry from the fraction into the exponent", lambda r: r.up & (r.below == 2 * r.hidden - 1) & ~r.top),
    _rounding_bin("subnormal to normal by carry", lambda r: r.up & (r.below == r.hidden - 1) & r.subnormal, _HALF),
    _rounding_bin("rounded to zero", lambda r: ~r.up & (r.below == 0), _HALF),
    _rounding_bin("rounded down to the largest finite number", lambda r: r.top & ~r.up),
    _rounding_bin("overflow to Inf by rounding", lambda r: r.top & r.up),
    _rounding_bin("overflow to Inf of a sum of at least 2**16", lambda r: r.overflow),
)


def _rounding(result: str, operations: Operations) -> Covergroup:
    """Return the covergroup of rounding, for nonzero sums of aligned terms. Axes: sign of the sum, and rounding event.

    A sum of either sign that is truncated to zero gives +0. Results f32 and e8m13, which are truncated, overflow from
    2**128 on; f16 from 65520 on, half a unit in the last place above the largest finite number.
    """
    bins = _NEAREST if result == "f16" else _TRUNCATED
    return Covergroup(
        name=f"rounding to {result}",
        meaning="The nonzero exact sum of a step without special values (NaN, Inf) was rounded in this way.",
        axes=(Axis("sign", ("positive", "negative")), bins_axis("event", bins)),
        iff=lambda s: isinstance(s, FloatValues) and s.operation.result == result,
        sample=lambda s: (s.rounding.negative,),
        bins=bins,
        rows=[operations],
    )


# Definition of the covergroups of alignment and of the largest exponent


def alignment(mode: str, operations: Operations) -> Covergroup:
    """Return the covergroup of one alignment mode. Axes: position of a term, and distance from the largest exponent.

    A term is a product or a group of 16 products; the last position is the accumulator. Distances run from 0 to the
    largest distance at which alignment can keep a bit of the term; ``beyond`` stands for all larger distances, at which
    the term is truncated to zero. Only nonzero terms count, and only in steps without special values, since NaN and Inf
    hide the sum. A distance is illegal if no two exponents of the formats, of the accumulator or e_zero are that far
    apart.
    """
    terms = max(operation.terms for operation in operations)
    last = operations[0].alignment_bits + max(operation.headroom for operation in operations)
    reachable = np.zeros((terms + 1, last + 2), np.bool_)
    for o in operations:
        # Count the distance of a term from the largest exponent of all terms of the sum. Another term can have this
        # exponent, because a dot-product unit that reads 16 bytes or more of A per cycle sums several terms.
        others = (o.zero_exponent, *o.exponents)
        reachable[: o.terms] |= _distances(o.exponents, (*others, *o.accumulator_exponents), last)
        reachable[terms] |= _distances(o.accumulator_exponents, others, last)
    term = "group" if operations[0].grouped else "slot"

    def sample(s: FloatValues) -> tuple[ArrayLike, ...]:
        exponents = np.concatenate([s.trace.exponents, s.trace.c_exponents[None]])
        positions = np.array([*range(s.operation.terms), terms])
        return positions[:, None], np.minimum(s.trace.e_max - exponents, last + 1)

    return Covergroup(
        name=f"alignment of {mode}",
        meaning="In a step without special values, the exponent of a nonzero term was this far below the largest.",
        axes=(
            Axis("position", (*(f"{term} {number}" for number in range(terms)), "c")),
            Axis("distance", (*(f"distance {amount}" for amount in range(last + 1)), "beyond")),
        ),
        iff=lambda s: isinstance(s, FloatValues) and s.operation.mode == mode,
        sample=sample,
        where=lambda s: np.concatenate([s.trace.participates, s.trace.c_participates[None]]) & s.ordinary,
        illegal={
            "The largest exponent cannot be this far above that of a term of these formats.": (
                lambda position, _: ~reachable & (position < terms)
            ),
            "The largest exponent cannot be this far above that of the accumulator.": (
                lambda position, _: ~reachable & (position == terms)
            ),
        },
    )


@lru_cache(maxsize=1024)
def _distances(exponents: range, others: tuple[int, ...], last: int) -> NDArray[np.bool_]:
    """Return the mask of distances by which alignment can shift a term; the last entry is for distances above `last`.

    `exponents` are those of the term, and `others` the lower bound e_zero of e_max and the exponents of other terms.
    """
    own, e_max = np.array(exponents), np.array(others)
    distances = (e_max[:, None] - own)[e_max >= others[0]]
    reachable = np.zeros(last + 2, np.bool_)
    reachable[np.minimum(distances[distances >= 0], last + 1)] = True
    reachable[0] |= exponents[-1] >= others[0]
    return reachable


_BELOW_E_ZERO = Need(
    "No term and no accumulator can have an exponent below e_zero.",
    lambda o: min(o.exponents[0], o.accumulator_exponents[0]) < o.zero_exponent,
)
_E_MAX_SOURCES = (
    Bin("one term alone", lambda s: (s.sets_e_max.sum(axis=0) == 1) & ~s.c_sets_e_max),
    Bin("several terms", lambda s: (s.sets_e_max.sum(axis=0) > 1) & ~s.c_sets_e_max),
    Bin("the accumulator alone", lambda s: ~s.sets_e_max.any(axis=0) & s.c_sets_e_max),
    Bin("a term and the accumulator", lambda s: s.sets_e_max.any(axis=0) & s.c_sets_e_max),
    Bin(
        "e_zero, above every term", lambda s: s.nonzero & ~s.sets_e_max.any(axis=0) & ~s.c_sets_e_max, (_BELOW_E_ZERO,)
    ),
    Bin("e_zero, every term zero", lambda s: ~s.nonzero),
)


def _largest_exponent(operations: Operations) -> Covergroup:
    """Return the covergroup of the largest exponent e_max. Axes: alignment mode with result format; what sets e_max."""
    by_mode = split(operations, lambda o: f"{o.mode} to {o.result}")
    modes = tuple(by_mode)
    return Covergroup(
        name="largest exponent",
        meaning="The largest exponent e_max came from this source in a step without special values (NaN, Inf).",
        axes=(Axis("mode", modes), bins_axis("source", _E_MAX_SOURCES)),
        iff=lambda s: isinstance(s, FloatValues),
        sample=lambda s: (modes.index(f"{s.operation.mode} to {s.operation.result}"),),
        bins=_E_MAX_SOURCES,
        where=lambda s: s.ordinary,
        rows=[*by_mode.values()],
    )


def float_groups(operations: Operations) -> Iterator[Covergroup]:
    """Yield all covergroups for dot products in a datapath's float formats."""
    by_result = split(operations, lambda o: o.result)
    yield from (alignment(mode, group) for mode, group in split(operations, lambda o: o.mode).items())
    yield _largest_exponent(operations)
    yield _special_cases(by_result)
    yield from (_rounding(result, group) for result, group in by_result.items())
