"""Coverage of special cases by result format: NaN, Inf, zeros, subnormals, and terms that truncation drops."""

import numpy as np
from numpy.typing import NDArray

from ...golden.decode import WIDE, decode
from ...golden.select import WHOLE_ELEMENT_NIBBLES
from ...isa.formats import FORMATS
from .arithmetic import Evaluation
from .groups import Axis, Group
from .operations import Operation
from .rounding import can_overflow

__all__ = ["CASES", "SpecialsCoverage"]

#: Cases by the kind of result that shows them: special, ordinary or zero.
_SPECIAL = (
    "NaN in A alone",
    "NaN in B alone",
    "NaN in C alone",
    "Inf in A times zero alone",
    "zero in A times Inf alone",
    "Inf - Inf between products alone",
    "Inf of a product and -Inf in C alone",
    "-Inf of a product and Inf in C alone",
    "Inf of a product",
    "-Inf of a product",
    "Inf in C",
    "-Inf in C",
)
_ORDINARY = (
    "NaN in an unselected B",
    "Inf in an unselected B",
    "Inf from a finite sum",
    "-Inf from a finite sum",
    "zero in A times a number",
    "zero in B times a number",
    "subnormal A",
    "subnormal B",
    "subnormal C",
    "product of 2 and more sets E",
    "product below 1 sets E",
    "subnormal result",
    "negative subnormal result",
    "smallest subnormal result",
    "negative smallest subnormal result",
    "truncated positive term",
    "truncated negative term",
    "truncated positive C",
    "truncated negative C",
)
_ZERO = (
    "zero: every term zero",
    "zero: every term -0",
    "zero: terms cancel",
    "zero: terms cancel, truncation dropped the rest",
    "zero: every term below the grid",
    "zero: positive sum rounded",
    "zero: negative sum rounded",
)
CASES = (*_SPECIAL, *_ORDINARY, *_ZERO)
_FRACTION_BITS = {"f32": 23, "e8m13": 13, "f16": 10}


class SpecialsCoverage:
    """Group ``special cases``: result format x case.

    A cause of NaN counts only where it is the only one, since any other would hide it; an Inf counts where nothing else
    is special. The other cases count in steps with an ordinary result. A stored zero is a number like any other: its
    product with Inf is NaN. Products are not normalised: a product of 2 or more, or (of a subnormal) below 1, counts
    where it sets E, because there normalisation would change the result.

    Parameters
    ----------
    configuration : str
        Name of the datapath.
    operations : sequence of Operation
        Float operations.
    """

    def __init__(self, configuration: str, operations: tuple[Operation, ...]) -> None:
        self._results = [*dict.fromkeys(operation.result for operation in operations)]
        self._group = Group(
            configuration,
            "special cases",
            "A step of this result format met the case; `alone` means that nothing else made the result NaN.",
            (Axis("result", tuple(self._results)), Axis("case", CASES)),
        )
        self.groups = (self._group,)
        for place, result in enumerate(self._results):
            of_result = [operation for operation in operations if operation.result == result]
            for reason, cases in _impossible(of_result).items():
                where = np.zeros(self._group.shape, np.bool_)
                where[place, [CASES.index(case) for case in cases]] = True
                self._group.declare_unreachable(where, reason)

    def sample(self, evaluation: Evaluation, sparse: bool) -> None:
        """Count evaluated steps, all sparse or all dense."""
        found = _ordinary(evaluation) | _zeros(evaluation)
        if evaluation.a.classes is not None or not np.isfinite(evaluation.c).all():
            found |= _specials(evaluation)
        if sparse:
            found |= _unselected(evaluation)
        place = self._results.index(evaluation.operation.result)
        for case, flags in found.items():
            self._group.hits[place, CASES.index(case)] += int(np.count_nonzero(flags))


def _impossible(operations: list[Operation]) -> dict[str, list[str]]:
    """Return the cases that are impossible for all operations of one result format, by reason."""
    found: dict[str, list[str]] = {}

    def none(possible: bool, reason: str, *cases: str) -> None:
        if not possible:
            found.setdefault(reason, []).extend(cases)

    a_nan, b_nan, a_inf, b_inf = (
        any(o.has(operand, special) for o in operations) for special in ("NaN", "Inf") for operand in "ab"
    )
    none(a_nan, "No format of A has a NaN.", "NaN in A alone")
    none(b_nan, "No format of B has a NaN.", "NaN in B alone", "NaN in an unselected B")
    none(a_inf, "No format of A has an Inf.", "Inf in A times zero alone")
    none(b_inf, "No format of B has an Inf.", "zero in A times Inf alone", "Inf in an unselected B")
    of_product = ("Inf of a product", "-Inf of a product", *(case for case in _SPECIAL if "of a product and" in case))
    none(a_inf or b_inf, "No operand has an Inf.", *of_product, "Inf - Inf between products alone")
    none(any(o.terms > 1 for o in operations), "A step has one product.", "Inf - Inf between products alone")
    overflow = operations[0].result == "f16" or any(map(can_overflow, operations))
    none(
        overflow,
        "The terms cannot lift the largest accumulator, which fills its significand, by a single bit.",
        "Inf from a finite sum", "-Inf from a finite sum",
    )  # fmt: skip
    singles = [o for o in operations if not o.grouped]
    none(
        bool(singles), "Products are not aligned one by one.", "product of 2 and more sets E", "product below 1 sets E"
    )
    none(
        any(_term_can_lose(o) for o in operations),
        "No term reaches below the grid of the largest exponent.",
        "truncated positive term", "truncated negative term", "zero: terms cancel, truncation dropped the rest",
    )  # fmt: skip
    none(
        any(_c_can_lose(o) for o in operations),
        "No accumulator reaches below the grid of the largest exponent.",
        "truncated positive C", "truncated negative C",
    )  # fmt: skip
    none(
        any(_all_below_the_grid(o) for o in operations),
        "The smallest term is on the grid that it sets, or e_zero.",
        "zero: every term below the grid",
    )
    fmt = operations[0].accumulator
    none(
        min(o.last_aligned_bit for o in operations) < fmt.minimum_exponent - _FRACTION_BITS[operations[0].result],
        "Every sum that is not zero is at least as large as the smallest subnormal.",
        "zero: positive sum rounded", "zero: negative sum rounded",
    )  # fmt: skip
    return found


def _largest_exponent(operation: Operation) -> int:
    return max(operation.exponents[-1], operation.accumulator.maximum_exponent)


def _term_can_lose(operation: Operation) -> bool:
    return operation.last_bit < _largest_exponent(operation) - operation.alignment_bits


def _c_can_lose(operation: Operation) -> bool:
    fmt = operation.accumulator
    return fmt.minimum_exponent - fmt.fraction_bits < operation.exponents[-1] - operation.alignment_bits


def _all_below_the_grid(operation: Operation) -> bool:
    """Whether the smallest term alone, or the smallest accumulator alone, is truncated to zero."""
    fmt = operation.accumulator
    term_grid = max(operation.exponents[0], operation.zero_exponent) - operation.alignment_bits
    c_grid = max(fmt.minimum_exponent, operation.zero_exponent) - operation.alignment_bits
    return operation.last_bit < term_grid or fmt.minimum_exponent - fmt.fraction_bits < c_grid


def _specials(e: Evaluation) -> dict[str, NDArray[np.bool_]]:
    """Return the cases with a special result, each only where nothing else makes the result NaN."""
    a, b = e.a.with_classes().classes, e.b.with_classes().classes
    assert a is not None
    assert b is not None
    with np.errstate(invalid="ignore"):
        product = a * b
    a_nan, b_nan = np.isnan(a), np.isnan(b)
    a_zero, b_zero = a == 0, b == 0
    nan_a, nan_b, nan_c = a_nan.any(axis=0), b_nan.any(axis=0), np.isnan(e.c)
    inf_zero, zero_inf = (np.isinf(a) & b_zero).any(axis=0), (np.isinf(b) & a_zero).any(axis=0)
    plus, minus = np.isposinf(product).any(axis=0), np.isneginf(product).any(axis=0)
    c_plus, c_minus = np.isposinf(e.c), np.isneginf(e.c)
    difference = plus & minus
    c_difference = (plus & c_minus) | (minus & c_plus)
    causes = np.sum([nan_a, nan_b, nan_c, inf_zero, zero_inf, difference, c_difference & ~difference, e.scale_nan], 0)
    alone, fine = causes == 1, causes == 0
    return dict(
        zip(
            _SPECIAL,
            (
                nan_a & alone,
                nan_b & alone,
                nan_c & alone,
                inf_zero & alone,
                zero_inf & alone,
                difference & alone & ~c_plus & ~c_minus,
                plus & c_minus & alone & ~difference,
                minus & c_plus & alone & ~difference,
                plus & fine & ~c_plus,
                minus & fine & ~c_minus,
                c_plus & fine & ~plus,
                c_minus & fine & ~minus,
            ),
            strict=True,
        )
    )


def _ordinary(e: Evaluation) -> dict[str, NDArray[np.bool_]]:
    """Return the cases where the result is the rounded sum, except those of unselected operands."""
    operation, trace = e.operation, e.trace
    operands_a, operands_b = np.abs(e.a.values), np.abs(e.b.values)
    a_numbers, b_numbers = operands_a > 0, operands_b > 0
    subnormal_a = a_numbers & b_numbers & (operands_a < 2.0**operation.a.format.minimum_exponent)
    subnormal_b = a_numbers & b_numbers & (operands_b < 2.0**operation.b.format.minimum_exponent)
    codes = e.codes
    if operation.accumulator.name == "f16":
        codes = (codes & np.uint32(0x8000)) << np.uint32(16) | codes & np.uint32(0x7FFF)
    magnitude, negative = codes & np.uint32(0x7FFFFFFF), codes >> np.uint32(31) == 1
    inf = np.uint32(0x7C00 if operation.accumulator.name == "f16" else 0x7F800000)
    hidden = np.uint32(1 << operation.accumulator.fraction_bits)
    smallest_code = 1 << operation.accumulator.fraction_bits - _FRACTION_BITS[operation.result]
    small, smallest = (magnitude > 0) & (magnitude < hidden), magnitude == smallest_code
    truncated, c_truncated = trace.aligned != trace.truncated, trace.c_aligned != trace.c_truncated
    found = {
        "Inf from a finite sum": (magnitude == inf) & ~negative,
        "-Inf from a finite sum": (magnitude == inf) & negative,
        "zero in A times a number": (~a_numbers & b_numbers).any(axis=0),
        "zero in B times a number": (a_numbers & ~b_numbers).any(axis=0),
        "subnormal A": subnormal_a.any(axis=0),
        "subnormal B": subnormal_b.any(axis=0),
        "subnormal C": trace.c_participates & (np.abs(e.c) < 2.0**operation.accumulator.minimum_exponent),
        "subnormal result": small & ~negative,
        "negative subnormal result": small & negative,
        "smallest subnormal result": smallest & ~negative,
        "negative smallest subnormal result": smallest & negative,
        "truncated positive term": (truncated & (trace.aligned > 0)).any(axis=0),
        "truncated negative term": (truncated & (trace.aligned < 0)).any(axis=0),
        "truncated positive C": c_truncated & (e.c > 0),
        "truncated negative C": c_truncated & (e.c < 0),
    }
    if not operation.grouped:
        sets_e_max = trace.participates & (trace.exponents == trace.e_max)
        # The aligned value of a term that is not shifted is its significand times 2**F; all shifted ones are below 2.
        significand = np.abs(trace.aligned) * 2.0**-operation.alignment_bits
        found["product of 2 and more sets E"] = (significand >= 2).any(axis=0)
        found["product below 1 sets E"] = (sets_e_max & (significand < 1)).any(axis=0)
    return {case: flags & trace.ordinary for case, flags in found.items()}


def _zeros(e: Evaluation) -> dict[str, NDArray[np.bool_]]:
    """Return the cases with a zero result, by its cause."""
    trace = e.trace
    zero = trace.ordinary & (trace.result == 0)
    if not zero.any():
        return {}
    empty = ~trace.participates.any(axis=0) & ~trace.c_participates
    kept = (trace.truncated != 0).any(axis=0) | (trace.c_truncated != 0)
    dropped = (trace.aligned != trace.truncated).any(axis=0) | (trace.c_aligned != trace.c_truncated)
    cancelled = zero & (trace.total == 0)
    return {
        "zero: every term zero": zero & empty,
        "zero: every term -0": zero & empty & _all_negative(e),
        "zero: terms cancel": cancelled & kept & ~dropped,
        "zero: terms cancel, truncation dropped the rest": cancelled & kept & dropped,
        "zero: every term below the grid": cancelled & ~kept & dropped,
        "zero: positive sum rounded": zero & (trace.total > 0),
        "zero: negative sum rounded": zero & (trace.total < 0),
    }


def _all_negative(e: Evaluation) -> NDArray[np.bool_]:
    """Return where every product and the accumulator are negative by their sign bits."""
    operation = e.operation
    a_sign, b_sign = (
        codes >> (element.low_bit + element.format.bits - 1) & 1
        for codes, element in ((e.operands.a, operation.a), (e.operands.b, operation.b))
    )
    return (a_sign != b_sign).all(axis=1) & np.signbit(e.c)


def _unselected(e: Evaluation) -> dict[str, NDArray[np.bool_]]:
    """Return where B has a special value but the result is ordinary, as metadata does not select that value."""
    element = e.operation.b
    if not (e.operation.has("b", "NaN")):
        return {}
    classes = decode(e.operands.all_b, element.format, WIDE, element.low_bit).classes
    if classes is None:
        return {}
    ordinary = e.trace.ordinary
    if element.container_bits == FORMATS["tf32"].container_bits:  # other nibbles combine halves of two elements
        ordinary = ordinary & np.isin(e.operands.nibbles, WHOLE_ELEMENT_NIBBLES).all(axis=1)
    return {
        "NaN in an unselected B": ordinary & np.isnan(classes).any(axis=1),
        "Inf in an unselected B": ordinary & np.isinf(classes).any(axis=1),
    }
