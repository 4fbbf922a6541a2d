"""Data classes for the search for a kernel's fault: operands and epilogue, simulated faults, and explanations."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..api.backends import Backend
from ..golden.select import kept_rows
from ..isa.formats import FORMATS, Format
from ..isa.instructions import Instruction
from ..isa.metadata import Granularity
from ..tensors.encode import decode_codes
from .epilogue import Epilogue
from .group_scales import GroupScales
from .matrices import FILLING, Factors, Sparse, converted, factors
from .sums import Chains, Finish, Place, product, stored, sums
from .ways import Way

__all__ = [
    "KINDS", "LEAST", "PROBE", "Explanation", "Fault", "Grid", "Problem", "Setting", "chosen", "evidence",
    "is_gross", "near",
]  # fmt: skip

#: Kinds of faults that a diagnosis can name.
KINDS = (
    "outputs in other places", "operand read from other places", "metadata", "slice of K", "accumulator", "scale", "C",
    "bias", "type", "rounding of operands", "rounding of the result", "special values",
)  # fmt: skip
#: Numbers of rows and of columns of the sample of outputs on which faults are tried.
PROBE = (6, 8)
#: Minimum number of wrong outputs that a fault must explain.
LEAST = 2


@dataclass(frozen=True, eq=False, kw_only=True)
class Setting:
    """Operands and epilogue of the product that a kernel computes: the caller's product, or the transpose of it."""

    a: NDArray  #: Codes of A, shape (M, stored K)
    nibbles: NDArray[np.uint8] | None  #: Metadata nibbles, shape (M, nibbles per row); None for a dense A
    k: int  #: Number of logical columns of A
    granularity: Granularity | None = None  #: Sparsity pattern of A; None for a dense A
    b: NDArray  #: Codes of B, shape (K, N)
    scales: tuple[NDArray[np.uint8], NDArray[np.uint8]] | None  #: Block scales, shapes (M, blocks) and (N, blocks)
    groups: GroupScales | None = None  #: Group scales of A and B; None for a matrix product without group scales
    epilogue: Epilogue
    computes: Backend  #: Back end that computes the sums of the matrix product
    finish: Finish | None = None  #: Function that converts results; None if the way of summation does it
    start: NDArray | None = None  #: Codes of the initial accumulator, shape (M, N) (default: zero)
    #: Whether the left operand is the caller's B. Even then, field `a` of `groups` and field `scale_a` of `epilogue`
    #: hold scales of the caller's A.
    swapped: bool = False
    is_cleared: bool = True  #: Whether the accumulator is cleared each time after it is added to f32 registers

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the matrix product, (M, N)."""
        return len(self.a), self.b.shape[1]

    @property
    def chunk(self) -> int:
        """Number of logical columns of A that a metadata nibble describes; 1 for a dense A."""
        return self.granularity.logical if self.nibbles is not None and self.granularity else 1

    @property
    def has_scales_along_k(self) -> bool:
        """Whether the operands have scales along K, which are block scales or group scales."""
        return self.scales is not None or self.groups is not None

    def factors(self, way: Way) -> Factors:
        """Return the operands for a way of summation. For a dense instruction, A is expanded with zeros."""
        i, a, nibbles = way.parsed, self.a, self.nibbles
        if nibbles is not None and i.granularity is None:
            a, nibbles = self.with_zeros(a), None
        convert_left, convert_right = (way.convert_b, way.convert_a) if way.swapped else (way.convert_a, way.convert_b)
        left, right = converted(a, i.a, convert_left), converted(self.b, i.b, convert_right)
        both = factors(Sparse(left, nibbles, self.k), right, i, self.scales, self.groups)
        return both.interleaved(way)

    def with_zeros(self, stored: NDArray) -> NDArray:
        """Return a sparse matrix with its zeros, expanded from its stored elements by the metadata."""
        if self.nibbles is None or self.granularity is None:
            return stored
        # The chunk of A that the last metadata nibble of a row describes may extend beyond K.
        a = np.zeros((len(stored), self.nibbles.shape[1] * self.chunk), stored.dtype)
        np.put_along_axis(a, kept_rows(self.nibbles, self.granularity), stored, 1)
        return a[:, : self.k]

    def take(self, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> "Setting":
        """Return the operands and epilogue of some rows and columns of the matrix product, with all of K."""
        return replace(
            self,
            a=self.a[rows],
            nibbles=None if self.nibbles is None else self.nibbles[rows],
            b=self.b[:, columns],
            scales=self.scales and (self.scales[0][rows], self.scales[1][columns]),
            groups=self.groups and self.groups.take(rows, columns),
            epilogue=self.epilogue.take(self.shape, rows, columns),
            start=None if self.start is None else self.start[rows][:, columns],
        )

    def codes(self, way: Way) -> NDArray:
        """Return the result codes of the whole matrix product, computed by a way of summation."""
        return product(
            way, self.factors(way), self.computes, self.epilogue, self.start, None, self.is_cleared, self.finish
        )

    def part(self, name: str) -> Any:
        """Return an operand, or an array inside an operand, by a name such as ``a``, ``scales.0`` or ``epilogue.c``."""
        field, _, inside = name.partition(".")
        value = getattr(self, field)
        return value[int(inside)] if field == "scales" and inside else getattr(value, inside) if inside else value

    def with_parts(self, parts: Mapping[str, Any]) -> "Setting":
        """Return operands and epilogue with some arrays replaced. The keys are names of arrays as in :meth:`part`."""
        setting = self
        for name, value in parts.items():
            field, _, inside = name.partition(".")
            if field == "scales" and inside:
                value = tuple(
                    value if str(axis) == inside else codes for axis, codes in enumerate(setting.scales or ())
                )
            elif inside:
                value = replace(getattr(setting, field), **{inside: value})
            setting = replace(setting, **{field: value})
        return setting

    def in_blocks(self, unit: int) -> "Setting":
        """Return the operands and epilogue with K padded with zeros to a multiple of `unit`."""
        missing = -self.k % unit
        if not missing:
            return self
        k, nibbles, stored = self.k + missing, self.nibbles, self.k + missing
        if nibbles is not None:
            stored = k // self.chunk * (self.a.shape[1] // nibbles.shape[1])
            nibbles = np.pad(nibbles, ((0, 0), (0, k // self.chunk - nibbles.shape[1])), constant_values=FILLING)
        return replace(
            self,
            a=np.pad(self.a, ((0, 0), (0, stored - self.a.shape[1]))),
            nibbles=nibbles,
            k=k,
            b=np.pad(self.b, ((0, missing), (0, 0))),
        )

    def with_blocks(self, unit: int, index: Mapping[str, NDArray[np.intp]]) -> "Setting":
        """Return the operands of a kernel that reads other blocks of `unit` columns along K than intended.

        `unit` is a multiple of the length of a chunk. `index` holds, for some of the operands ``a`` (stored elements),
        ``nibbles``, ``b``, ``scales`` and ``groups``, the number of the block that replaces each block; -1 for a block
        of zeros. Operands that are not in `index` are not changed.
        """
        whole = self.in_blocks(unit)
        changed: dict[str, object] = {}
        for name, where in index.items():
            if name == "scales":
                if whole.scales:
                    changed[name] = tuple(_blocks(part, whole.k, unit, where) for part in whole.scales)
            elif name == "groups":
                changed[name] = whole.groups and whole.groups.with_blocks(unit, where)
            elif name == "b":
                changed[name] = np.ascontiguousarray(_blocks(whole.b.T, whole.k, unit, where).T)
            elif (array := getattr(whole, name)) is not None:
                changed[name] = _blocks(array, whole.k, unit, where)
        count = {len(where) for where in index.values()}
        k = count.pop() * unit if {"a", "b"} <= index.keys() else whole.k
        return replace(whole, k=k, **changed)  # type: ignore[arg-type]


def _blocks(array: NDArray, k: int, unit: int, index: NDArray[np.intp]) -> NDArray:
    """Return an array in which block p of each row is the former block ``index[p]``, or zeros if ``index[p]`` is -1.

    A row covers `k` elements along K, a block covers `unit` of them.
    """
    count, width = k // unit, array.shape[1] * unit // k
    if not width or width * count != array.shape[1]:
        return array
    cut = array.reshape(len(array), count, width)
    taken = cut[:, index] * (index >= 0).astype(array.dtype)[:, None]
    return np.ascontiguousarray(taken.reshape(len(array), -1))


class Grid:
    """Compute some rows and columns of a product by any way of summation; cache results of chains of instructions."""

    def __init__(self, setting: Setting, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> None:
        self._place = Place(rows, columns, setting.shape)
        self.setting = setting.take(rows, columns)
        self._chains: dict[tuple[str, str, str, int], Chains] = {}

    def _sums(self, way: Way) -> NDArray:
        name, setting = way.operands, self.setting
        if name not in self._chains:
            factors = setting.factors(way)
            self._chains[name] = Chains(
                factors, way.arch, setting.computes, setting.start, self._place, setting.is_cleared
            )
        return sums(way, self._chains[name])

    def values(self, way: Way) -> NDArray:
        """Return the float32 or int32 results of the sampled outputs, before they are converted and stored."""
        return self.setting.epilogue.apply(self._sums(way), way.scale_order)

    def codes(self, way: Way) -> NDArray:
        """Return the result in the sampled rows and columns as codes, computed by a way of summation."""
        return stored(way, self.setting.epilogue, self._sums(way), self.setting.finish)


@dataclass(frozen=True, eq=False)
class Fault:
    """A fault that a kernel may have, with the product that such a kernel computes."""

    kind: str  #: Kind of fault, one of :data:`sptc.gemm.setting.KINDS`
    text: str  #: Text that names the fault and completes "explained by: "
    setting: Setting  #: Operands, epilogue and result conversion of a kernel that has the fault
    change_way: Callable[[Way], Way] | None = None  #: Function that applies the fault to a way of summation
    bits: float = 0.0  #: Information content in bits of the parameters that were fitted to the result


@dataclass(frozen=True, eq=False, kw_only=True)
class Problem:
    """A result that no way of summation reproduces, with the data that the search for its fault needs."""

    setting: Setting  #: Operands and epilogue, transposed if the kernel computes the transposed matrix product
    target: NDArray  #: Codes of the result, transposed if the kernel computes the transposed product
    ways: Sequence[Way]  #: Ways of summation that were tried, sorted by their number of wrong outputs
    instructions: Sequence[Instruction]
    #: Function that rounds the caller's numbers in other ways. It yields the operands and a text for each rounding.
    rounded: Callable[[], Iterator[tuple[str, Setting]]]
    more_ways: Callable[[], Iterator[Way]]  #: Function that yields ways of summation to try after those in `ways`


@dataclass(frozen=True, eq=False)
class Explanation:
    """The fault that comes nearest to explaining a result."""

    kind: str  #: Kind of the fault, one of :data:`KINDS`
    text: str
    way: Way  #: Order and roundings of the additions in a kernel that has the fault
    codes: NDArray  #: Result codes of the matrix product with the fault
    correct: NDArray  #: Result codes of the matrix product without the fault, by the same way of summation
    remaining: int  #: Number of outputs that the fault does not explain
    is_exact: bool  #: Whether the fault explains every bit, with few free parameters


def is_gross(problem: Problem) -> bool:
    """Return whether some outputs are further from the nearest way of summation than rounding errors can explain."""
    way = problem.ways[0]
    fmt = FORMATS[way.result]
    correct, values = (decode_codes(codes, fmt) for codes in (problem.setting.codes(way), problem.target))
    with np.errstate(invalid="ignore", over="ignore"):
        return bool((~near(correct, values, values)).sum() >= LEAST)


def chosen(differs: NDArray[np.bool_], rows: int, columns: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return rows and columns of a sample, evenly spread over the rows and columns in which most outputs differ."""

    def spread(counts: NDArray[np.int_], most: int) -> NDArray[np.intp]:
        likely = np.flatnonzero(counts >= max(1, counts.max() // 2))
        return likely[np.unique(np.linspace(0, len(likely) - 1, min(most, len(likely))).astype(np.intp))]

    down = spread(differs.sum(1), rows)
    return down, spread(differs[down].sum(0), columns)


def near(computed: NDArray[np.float64], values: NDArray[np.float64], every: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return a mask of computed numbers that are so near to given values that rounding can explain the difference."""
    finite = np.abs(every[np.isfinite(every)])
    typical = float(np.median(finite)) if finite.size else 0.0
    tolerance = np.maximum(np.abs(values) / 8, typical / 24)
    return (np.abs(computed - values) <= tolerance) | (computed == values) | (np.isnan(computed) & np.isnan(values))


def evidence(correct: NDArray, target: NDArray, fmt: Format) -> float:
    """Return evidence for a kernel fault, in bits: sum of log2(1 + distance of correct and given code) over outputs."""
    sign = 1 << fmt.bits - 1

    def ordinals(codes: NDArray) -> NDArray[np.int64]:  # integers whose order is that of the encoded numbers
        wide = codes.astype(np.int64)
        return np.where(wide & sign, wide - 2 * sign if fmt.is_integer else -(wide & sign - 1), wide)

    return float(np.log2(1 + np.abs(ordinals(correct) - ordinals(target))).sum())
