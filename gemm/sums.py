"""Matrix products: a back end computes chains of instructions along K, and their results are added by IEEE rules.

Chains of equal length form the batch of one call of the back end, so that many short chains cost no more than one long
chain. Outputs are computed block by block, which bounds the memory besides operands and result.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..api.backends import Backend
from ..errors import OperandError, shown
from ..golden.accumulator import decode_accumulator
from ..isa.formats import FORMATS
from ..isa.operands import MatrixOperands
from ..operands.registers import CONTAINERS
from .epilogue import RESULTS, Epilogue, rounded_values, to_codes
from .group_scales import check_groups
from .matrices import Factors
from .ways import Way, combine

__all__ = [
    "Chains", "Finish", "Place", "added", "blocks", "check_result", "check_way", "product", "slices", "stored", "sums",
]  # fmt: skip

#: Maximum number of partial sums in memory, and maximum numbers of rows and columns of outputs computed at once.
_HELD, _ROWS, _COLUMNS = 1 << 24, 256, 512
#: Maximum size in bytes of the cached results of instruction chains, which several ways of summation can use.
_KEPT_BYTES = 1 << 28

#: Function that converts float32 or int32 sums to the result type that the :class:`Way` states, and returns codes.
Finish = Callable[[NDArray, Way], NDArray]
_Chain = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Place:
    """Row and column indices of the outputs to compute."""

    rows: NDArray[np.intp]
    columns: NDArray[np.intp]
    shape: tuple[int, int]  #: Shape of the whole matrix product, (M, N)

    @classmethod
    def of(cls, rows: slice | NDArray[np.intp], columns: slice | NDArray[np.intp], shape: tuple[int, int]) -> "Place":
        """Return the indices of the outputs in some rows and columns."""
        return cls(np.arange(shape[0])[rows], np.arange(shape[1])[columns], shape)


class Chains:
    """Computes chains of instructions, each of which adds to the result of the previous one, and caches the results.

    `c` holds the codes of the accumulator of the first chain of the first slice (default: zero), and `place` the rows
    and columns of the outputs in the product (default: the whole product). If `is_cleared` is set, the accumulator is
    cleared before each chain of a slice. Otherwise each chain continues the previous chain, as in a kernel that does
    not clear its accumulator.
    """

    def __init__(
        self,
        factors: Factors,
        arch: str,
        computes: Backend,
        c: NDArray | None = None,
        place: Place | None = None,
        is_cleared: bool = True,
    ) -> None:
        self.factors, self._arch, self._computes, self._c, self._is_cleared = factors, arch, computes, c, is_cleared
        self.place = place or Place.of(slice(None), slice(None), factors.shape)
        self._kept: dict[bytes, NDArray] = {}
        self._bytes = 0

    def take(self, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> "Chains":
        """Return a new object of this class, with an empty cache, that computes only the given rows and columns."""
        c = None if self._c is None else self._c[rows][:, columns]
        return Chains(self.factors.take(rows, columns), self._arch, self._computes, c, is_cleared=self._is_cleared)

    def results(self, chains: list[_Chain], first: bool = False) -> NDArray:
        """Return the results of instruction chains, shape (chains, M, N). If `first`, the first chain begins from C.

        A chain is an array of the indices of its instructions, see :meth:`~sptc.gemm.ways.Way.slices`.
        """
        if not self._is_cleared:
            chains = [np.concatenate(chains[: number + 1]) for number in range(len(chains))]
            if first and self._c is not None:
                raise OperandError("C cannot be added if each partial sum contains all earlier slices of K")
        names = [chain.tobytes() + bytes([first and number == 0]) for number, chain in enumerate(chains)]
        missing = [number for number, name in enumerate(names) if name not in self._kept]
        lengths = sorted({len(chains[number]) for number in missing})
        results: dict[bytes, NDArray] = {}
        for length in lengths:
            alike = [number for number in missing if len(chains[number]) == length]
            result = self._computed([chains[number] for number in alike], first and alike[0] == 0)
            results |= {names[number]: chain_result for number, chain_result in zip(alike, result, strict=True)}
        every = [results[name] if name in results else self._kept[name] for name in names]
        self._keep(results)
        return np.stack(every)

    def _keep(self, results: dict[bytes, NDArray]) -> None:
        size = sum(result.nbytes for result in results.values())
        if self._bytes + size > _KEPT_BYTES:
            self._kept.clear()
            self._bytes = 0
        if size <= _KEPT_BYTES:
            self._kept |= results
            self._bytes += size

    def _computed(self, chains: list[_Chain], first: bool) -> NDArray:
        factors, i = self.factors, self.factors.instruction
        rows, columns = factors.shape
        where = np.stack(chains)
        number, length = where.shape

        def chains_of(array: NDArray | None, width: int) -> Any:
            if array is None:
                return None
            taken = array.reshape(len(array), factors.count, width)[:, where.ravel()]
            return np.ascontiguousarray(taken.reshape(len(array), number, length * width).swapaxes(0, 1))

        c = np.zeros((number, rows, columns), CONTAINERS[i.d.bits])
        if first and self._c is not None:
            c[0] = self._c
        operands = MatrixOperands(
            chains_of(factors.a, i.stored_k),
            factors.b.reshape(factors.count, i.k, columns)[where.ravel()].reshape(number, length * i.k, columns),
            c,
            chains_of(factors.nibbles, i.chunks),
            chains_of(factors.scale_a, i.scale_size or 0),
            chains_of(factors.scale_b, i.scale_size or 0),
        )
        d = self._computes.multiply(i, self._arch, operands).d
        return d.view(np.int32) if i.d.is_integer else decode_accumulator(d)


def sums(way: Way, chains: Chains) -> NDArray:
    """Compute all outputs by a way of summation; return the sums before the epilogue, as float32 or int32."""
    if way.stream_k is None:
        parts = slices(way, chains)
        return combine(parts, way.order, partial(added, way)) if len(parts) > 1 else parts[0]
    result: NDArray | None = None
    for rows, columns, tile_way in _tiled(way, chains):
        block_sums = sums(tile_way, chains.take(rows, columns))
        result = np.empty(chains.factors.shape, block_sums.dtype) if result is None else result
        result[np.ix_(rows, columns)] = block_sums
    assert result is not None
    return result


def _tiled(way: Way, chains: Chains) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp], Way]]:
    """Yield groups of outputs that have the same slices of K: rows, columns and way of summation of each group."""
    place, dealing = chains.place, way.stream_k
    assert dealing
    numbers, ways = way.of_tiles(place.shape, chains.factors.count)
    distinct, alike = np.unique(numbers[place.rows // dealing.rows], axis=0, return_inverse=True)
    for which, row_ways in enumerate(distinct):
        rows, column_ways = np.flatnonzero(alike.ravel() == which), row_ways[place.columns // dealing.columns]
        for number in np.unique(column_ways):
            yield rows, np.flatnonzero(column_ways == number), ways[number]


def slices(way: Way, chains: Chains) -> list[NDArray]:
    """Return the sum of each slice (part) of K, in the type in which a kernel adds these sums. Not for stream-K."""
    parts, factors = [], chains.factors
    for number, slice_chains in enumerate(way.slices(factors.count)):
        results = chains.results(slice_chains, first=number == 0)
        if way.group_scaling:
            assert factors.groups
            parts.append(factors.groups.scaled_sum(results, slice_chains, factors.instruction.k, way.group_scaling))
        else:
            parts.append(reduce(_plus, results))
    if len(parts) > 1:
        for name in (way.workspace, way.running):
            parts = [rounded_values(part, name) for part in parts] if name else parts
    return parts


def stored(way: Way, epilogue: Epilogue, total: NDArray, finish: Finish | None = None) -> NDArray:
    """Apply the epilogue to float32 or int32 sums, and return the codes that are stored."""
    values = epilogue.apply(total, way.scale_order)
    return finish(values, way) if finish else to_codes(values, way.result, way.rounding)


def added(way: Way, one: NDArray, other: NDArray) -> NDArray:
    """Add two terms, each the sum over one or more slices of K. Round to the type of running sums, if there is one."""
    total = _plus(one, other)
    return rounded_values(total, way.running) if way.running else total


def _plus(one: NDArray, other: NDArray) -> NDArray:
    """Add float32 under IEEE rules (RNE), or int32 with wrap-around."""
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        total: NDArray = one + other
        return total


def check_way(way: Way, factors: Factors) -> None:
    """Check that a way of summation defines one result for the given operands, and that K is long enough for this way.

    For errors see :func:`check_result`, :meth:`~sptc.gemm.ways.Way.slices`, :func:`~sptc.gemm.ways.combine` and
    :func:`~sptc.gemm.group_scales.check_groups`.
    """
    check_result(way)
    count = len(way.slices(factors.count))
    if count > 1 or way.stream_k:
        combine([*range(count)], way.order, max)
    check_groups(way, factors.groups, factors.count)


def check_result(way: Way) -> None:
    """Raise an `OperandError` if the result type or another type of a way of summation does not fit its instruction."""
    integer = way.parsed.d.is_integer
    accepted = [name for name in RESULTS if name == "s8" or FORMATS[name].is_integer <= integer]
    if way.result not in accepted:
        raise OperandError(f"the result of {way.instruction} must be {' or '.join(accepted)}, not {shown(way.result)}")
    for name in ("convert_a", "convert_b"):
        if getattr(way, name) and way.parsed.a.name != "tf32":
            raise OperandError(f"{name} applies only to factors in tf32, not to the factors of {way.instruction}")
    for name in ("workspace", "running"):
        if getattr(way, name) not in ("", "f32", "f16", "bf16") or (integer and getattr(way, name)):
            value = shown(getattr(way, name))
            raise OperandError(f"{name} must be f32, f16 or bf16 for float sums, empty for integer sums, not {value}")


def blocks(shape: tuple[int, int], chains: int) -> Iterator[tuple[slice, slice]]:
    """Yield rows and columns of blocks of outputs, small enough that a block's results fit into memory."""
    columns = min(_COLUMNS, shape[1])
    rows = max(1, min(_ROWS, _HELD // (columns * chains)))
    for row in range(0, shape[0], rows):
        for column in range(0, shape[1], columns):
            yield slice(row, min(row + rows, shape[0])), slice(column, min(column + columns, shape[1]))


def product(
    way: Way,
    factors: Factors,
    computes: Backend,
    epilogue: Epilogue | None = None,
    start: NDArray | None = None,
    place: Place | None = None,
    is_cleared: bool = True,
    finish: Finish | None = None,
) -> NDArray:
    """Return the codes of a matrix product by a way of summation, for all or for some rows and columns.

    `start` holds the codes of the accumulator of the first chain (default: zero). `place` holds the rows and columns of
    the outputs in the product, which stream-K needs (default: the whole product). For `is_cleared` see :class:`Chains`.
    `finish` converts the results to codes (default: rounding by the way of summation). Raise an `OperandError` as
    :func:`check_way` does, and a `BackendError` if the back end cannot compute on this machine.
    """
    check_way(way, factors)
    shape, epilogue = factors.shape, epilogue or Epilogue()
    result = np.empty(shape, CONTAINERS[FORMATS[way.result].bits])
    place = place or Place.of(slice(None), slice(None), shape)
    for rows, columns in blocks(shape, way.chains(place.shape, factors.count)):
        c = None if start is None else start[rows, columns]
        part = Place(place.rows[rows], place.columns[columns], place.shape)
        chains = Chains(factors.take(rows, columns), way.arch, computes, c, part, is_cleared)
        result[rows, columns] = stored(way, epilogue.take(shape, rows, columns), sums(way, chains), finish)
    return result
