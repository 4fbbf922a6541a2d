"""Records of a wrong product and of its explanation, and the sample of outputs on which faults are tried."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..isa.formats import FORMATS
from ..isa.instructions import Instruction
from ..tensors.encode import decode_codes
from .setting import Fault, Grid, Setting
from .ways import Way

__all__ = ["KINDS", "LEAST", "PROBE", "Explanation", "Probe", "Problem", "chosen", "is_gross", "near", "numbers"]

#: Kinds of faults that a diagnosis can name.
KINDS = (
    "outputs in other places", "operand read from other places", "metadata", "slice of K", "accumulator", "scale", "C",
    "bias", "type", "rounding of operands", "rounding of the result", "special values",
)  # fmt: skip
#: Number of rows and columns of the sample of outputs on which faults are tried.
PROBE = (6, 8)
#: Minimum number of wrong outputs that a fault must explain.
LEAST = 2


@dataclass(frozen=True, eq=False, kw_only=True)
class Problem:
    """A result that no way of summation reproduces, with the data to search its fault."""

    setting: Setting  #: Operands and epilogue, in the orientation in which the product is computed
    wanted: NDArray  #: Codes of the result, in the orientation in which the product is computed
    ways: Sequence[Way]  #: Ways of summation that were tried, the nearest first
    instructions: Sequence[Instruction]
    #: Yields the operands with the caller's numbers rounded in another way, and a text for each rounding.
    rounded: Callable[[], Iterator[tuple[str, Setting]]]
    more_ways: Callable[[], Iterator[Way]]  #: Yields further ways of summation to try with a near fault


@dataclass(frozen=True, eq=False)
class Explanation:
    """The fault that comes nearest to explaining a result."""

    kind: str  #: Kind of the fault, one of :data:`KINDS`
    text: str
    way: Way  #: Way of summation of the product with the fault
    codes: NDArray  #: Result codes of the product with the fault
    correct: NDArray  #: Codes of the correct product by the same way of summation
    bits: float  #: Information content in bits of the free parameters of the fault
    is_exact: bool  #: Whether the fault explains every bit and has few free parameters

    def remaining(self, wanted: NDArray) -> int:
        """Return the number of outputs that the fault does not explain."""
        return int((self.codes != wanted).sum())


def is_gross(problem: Problem) -> bool:
    """Return whether some outputs are further from the nearest way of summation than rounding errors can explain."""
    way = problem.ways[0]
    fmt = FORMATS[way.result]
    correct, values = (decode_codes(codes, fmt) for codes in (problem.setting.codes(way), problem.wanted))
    with np.errstate(invalid="ignore", over="ignore"):
        return bool((~near(correct, values, values)).sum() >= LEAST)


class Probe:
    """A small sample of the outputs that differ from the correct product, on which faults are computed."""

    def __init__(self, problem: Problem, differs: NDArray[np.bool_]) -> None:
        self._problem, self._fmt = problem, FORMATS[problem.ways[0].result]
        self._rows, self._columns = chosen(differs, *PROBE)
        place = np.ix_(self._rows, self._columns)
        self.wanted, self.differs = problem.wanted[place], differs[place]
        self._all = decode_codes(problem.wanted, self._fmt)
        self._values = self._all[place]

    def grid(self, fault: Fault) -> Grid:
        """Return the sample of outputs as computed by a kernel with the fault."""
        return Grid(fault.setting, self._rows, self._columns)

    def distance(self, fault: Fault, way: Way) -> tuple[float, float]:
        """Return the fraction of sample outputs that a fault nearly reproduces, and the sum of its distances."""
        way = fault.change_way(way) if fault.change_way else way
        found = decode_codes(self.grid(fault).codes(way), self._fmt)
        close = near(found, self._values, self._all)[self.differs]
        far = np.abs(found - self._values)[self.differs]
        return float(close.mean()), float(np.where(np.isfinite(far), far, 0).sum())


def chosen(differs: NDArray[np.bool_], rows: int, columns: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return rows and columns of a sample, evenly spread over the rows and columns in which most outputs differ."""

    def spread(counts: NDArray[np.int_], most: int) -> NDArray[np.intp]:
        likely = np.flatnonzero(counts >= max(1, counts.max() // 2))
        return likely[np.unique(np.linspace(0, len(likely) - 1, min(most, len(likely))).astype(np.intp))]

    down = spread(differs.sum(1), rows)
    return down, spread(differs[down].sum(0), columns)


def near(found: NDArray[np.float64], values: NDArray[np.float64], every: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return a mask of numbers that are so near to given values that rounding can explain the difference."""
    finite = np.abs(every[np.isfinite(every)])
    typical = float(np.median(finite)) if finite.size else 0.0
    tolerance = np.maximum(np.abs(values) / 8, typical / 24)
    return (np.abs(found - values) <= tolerance) | (found == values) | (np.isnan(found) & np.isnan(values))


def numbers(setting: Setting, i: Instruction) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return A, expanded with zeros, and B as float64 numbers; both are multiplied by their block scales."""
    both = [setting.with_zeros(decode_codes(setting.a, i.a)), decode_codes(setting.b, i.b).T]
    if setting.scales and i.scale_format and i.span:
        for side, codes in enumerate(setting.scales):
            scales = decode_codes(codes, i.scale_format).repeat(i.span, 1)[:, : setting.k]
            both[side] = both[side] * np.pad(scales, ((0, 0), (0, setting.k - scales.shape[1])))
    return np.nan_to_num(both[0]), np.nan_to_num(both[1]).T
