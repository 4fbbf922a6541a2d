"""Search for a way of summation: candidates are tried on a sample of outputs, then on all outputs."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial, reduce
from itertools import chain, combinations, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..api.backends import Backend
from ..errors import OperandError
from ..isa.formats import FORMATS
from ..isa.instructions import Instruction
from ..isa.metadata import Granularity
from ..tensors.compressed import Compressed, SparsityError
from ..tensors.encode import decode_codes
from ..tensors.sparsify import expand
from .block_scales import BlockScales
from .candidates import Expressions, any_order, candidates, streams
from .diagnosis import Identification, Miss, Output, diagnosis_of
from .epilogue import Epilogue
from .group_scales import GroupScales
from .matrices import Factors, Sparse, converted, dense_codes, exact_product, factors, sparse_codes, typed
from .setting import Problem, is_gross
from .sums import Chains, Place, added, blocks, slices, stored, sums
from .ways import Way

__all__ = ["Operands", "Search", "searched"]

#: Limits of the sample of outputs on which ways of summation are first tried: maximum number of multiplications for the
#: sample, and maximum numbers of its rows and of its columns.
_SAMPLE, _SAMPLE_ROWS, _SAMPLE_COLUMNS = 1 << 23, 64, 128
#: Numbers of rows and columns of a small part of the sample of outputs. Ways of summation are tried on this part first.
#: Minimum number of ways that are tried on the whole sample, so that a nearest way is known.
_GLANCE_ROWS, _GLANCE_COLUMNS, _WHOLLY = 8, 16, 32
#: Number of ways of summation with some wrong outputs that are compared on all outputs to find the nearest way; and
#: number of ways that are tried on the sample of outputs after a way that reproduces all outputs was found.
_RIVALS, _TRIED_BESIDE = 4, 400
#: Number of ways of summation that are tried before the search for kernel faults, if the errors of the result are
#: larger than rounding errors.
_BEFORE_FAULTS = 40
#: If a matrix product has at least this number of multiplications, only one way of summation with wrong outputs (the
#: nearest) is compared on all outputs.
_LARGE = 1 << 33
#: Number of outputs in a batch when all orders of adding the slices of K are tried.
_ORDERED_OUTPUTS = 2048


class Operands:
    """Factors of a matrix product. They are converted for an instruction when this instruction is first tried.

    `left` and `right` are A and B as given, and the instruction `first` decides which of the two factors is sparse.
    Raise an `OperandError` or `SparsityError` if the shapes do not match, or neither factor is as sparse as `first`
    needs.
    """

    def __init__(self, left: NDArray | Compressed, right: NDArray, first: Instruction, prune: bool, nan: str) -> None:
        for name, array in (("a", left), ("b", right)):
            if isinstance(array, np.ndarray) and array.ndim != 2:
                raise OperandError(f"{name} must be one matrix, not of shape {array.shape}")
        if left.shape[1] != len(right):
            raise OperandError(f"A has {left.shape[1]} columns and B {len(right)} rows: they have no common K")
        self._given: dict[str, Any] = {"a": left, "b": right}
        self._first, self._prune, self._nan = first, prune, nan
        self._sparse: dict[tuple[Granularity | None, str, str], Sparse] = {}
        self._dense: dict[tuple[str, str], NDArray] = {}
        self._factors: dict[tuple[str, str, str, int], Factors] = {}
        self._scales: BlockScales | None = None
        self._groups: GroupScales | None = None
        self.shape, self.k = (left.shape[0], right.shape[1]), len(right)
        self.swapped = False  #: Whether the structured-sparse factor is B, not A
        try:
            self._sparse_of(first, "")
        except SparsityError as error:
            self.swapped = True
            try:
                self._sparse_of(first, "")
            except SparsityError:
                raise error from None

    def scale(self, scales: BlockScales | None, groups: GroupScales | None) -> None:
        """Set the block scales and group scales of A and B for the search."""
        self._scales, self._groups = scales, groups.turned() if groups and self.swapped else groups

    def _sparse_of(self, i: Instruction, conversion: str) -> Sparse:
        name = i.granularity, i.a.name, conversion
        if name not in self._sparse:
            label = "b" if self.swapped else "a"
            value, prune = self._given[label], self._prune and not self.swapped
            if prune and not i.granularity and self._first.granularity:
                value, prune = self._pruned(), False
            value = converted(value, i.a, conversion)
            if isinstance(value, Compressed) and not i.granularity:
                value = expand(value)
            if self.swapped:
                value = value.T
            self._sparse[name] = sparse_codes(label, value, i, prune=prune, nan=self._nan)
        return self._sparse[name]

    def _pruned(self) -> NDArray:
        """Return the pruned A with zeros, in the sparse instructions' format, for kernels that multiply it dense."""
        sparse, granularity = self._sparse_of(self._first, ""), self._first.granularity
        assert sparse.nibbles is not None
        assert granularity
        return typed(expand(Compressed(sparse.codes, sparse.nibbles, granularity))[:, : self.k], self._first.a)

    def _dense_of(self, i: Instruction, conversion: str) -> NDArray:
        name = i.b.name, conversion
        if name not in self._dense:
            label = "a" if self.swapped else "b"
            codes = dense_codes(label, converted(self._given[label], i.b, conversion), i.b, self._nan)
            self._dense[name] = codes.T if self.swapped else codes
        return self._dense[name]

    def parts(
        self, i: Instruction, sparse: str = "", dense: str = ""
    ) -> tuple[Sparse, NDArray, tuple[NDArray[np.uint8], NDArray[np.uint8]] | None, GroupScales | None]:
        """Return both factors, converted to the formats of an instruction as a kernel converts them, and all scales."""
        scales = self._scales.checked(i, self.shape, self.k, swapped=self.swapped) if self._scales else None
        return self._sparse_of(i, sparse), self._dense_of(i, dense), scales, self._groups

    def of(self, way: Way) -> Factors:
        """Return the operands of the matrix product, converted for the instruction of a way of summation."""
        name = way.operands
        if name not in self._factors:
            i, conversions = way.parsed, (way.convert_a, way.convert_b)
            sparse, dense = conversions[::-1] if self.swapped else conversions
            left, right, scales, groups = self.parts(i, sparse, dense)
            self._factors[name] = factors(left, right, i, scales, groups).interleaved(way)
        return self._factors[name]


class Search:
    """State of a search for a way of summation: operands, given result, and wrong outputs of each way tried."""

    def __init__(self, operands: Operands, target: NDArray, computes: Backend, arch: str, epilogue: Epilogue) -> None:
        self.operands, self.target = operands, target
        self._computes, self._arch, self._epilogue = computes, arch, epilogue
        #: Cached results of instruction chains for the sample of outputs, for a part of it, and for small products.
        self._kept: dict[tuple[int, str, str, str, int], Chains] = {}
        self._counts: dict[str, int] = {}
        rows, columns = target.shape
        count = min(columns, _SAMPLE_COLUMNS)
        self._columns = np.unique(np.linspace(0, columns - 1, count).astype(np.intp))
        count = max(1, min(rows, _SAMPLE_ROWS, _SAMPLE // (count * operands.k)))
        self._rows = np.unique(np.linspace(0, rows - 1, count).astype(np.intp))
        row_step, column_step = -(-len(self._rows) // _GLANCE_ROWS), -(-len(self._columns) // _GLANCE_COLUMNS)
        self._few = self._rows[::row_step], self._columns[::column_step]
        self.size = target.size * operands.k
        self.counts: dict[Way, int] = {}
        self.tried = 0

    def instructions(self, instruction: str) -> int:
        """Return the number of instructions along K of the matrix product."""
        if instruction not in self._counts:
            self._counts[instruction] = self.operands.of(Way(instruction=instruction, arch=self._arch)).count
        return self._counts[instruction]

    def chains(self, way: Way, rows: slice | NDArray, columns: slice | NDArray) -> Chains:
        """Return the object that computes some outputs; keep it for the sample of outputs and for small products."""
        size = self.target[rows][:, columns].size
        is_cached = isinstance(rows, np.ndarray) or size == self.target.size
        name = size, *way.operands
        if is_cached and name in self._kept:
            return self._kept[name]
        place = Place.of(rows, columns, self.target.shape)
        chains = Chains(self.operands.of(way).take(rows, columns), self._arch, self._computes, place=place)
        if is_cached:
            self._kept[name] = chains
        return chains

    def codes(self, way: Way, rows: slice | NDArray, columns: slice | NDArray) -> NDArray:
        """Return the codes of some outputs, computed by a way of summation."""
        epilogue = self._epilogue.take(self.target.shape, rows, columns)
        return stored(way, epilogue, sums(way, self.chains(way, rows, columns)))

    def sample(self, way: Way) -> int:
        """Return the number of sample outputs in which a way of summation differs from the given result.

        If most outputs of a small part of the sample differ, the number in this part is returned, and is not cached.
        """
        if way not in self.counts:
            self.tried += 1
            if self.tried > _WHOLLY:
                rows, columns = self._few
                far = self._differing(way, rows, columns)
                if 2 * far > len(rows) * len(columns):
                    return far
            self.counts[way] = self._differing(way, self._rows, self._columns)
        return self.counts[way]

    def _differing(self, way: Way, rows: NDArray, columns: NDArray) -> int:
        return int((self.codes(way, rows, columns) != self.target[rows][:, columns]).sum())

    def error(self, way: Way) -> float:
        """Return the median absolute error of the given result in the sampled outputs, against a float64 product."""
        exact = exact_product(self.operands.of(way).take(self._rows, self._columns))
        exact = self._epilogue.take(self.target.shape, self._rows, self._columns).exactly(exact)
        values = decode_codes(np.ascontiguousarray(self.target[self._rows][:, self._columns]), FORMATS[way.result])
        with np.errstate(invalid="ignore"):
            errors = np.abs(values - exact)
        finite = np.isfinite(errors)
        return float(np.median(errors[finite])) if finite.any() else 0.0

    def nearest_ways(self) -> list[Way]:
        """Return ways of summation by number of wrong sample outputs; unsorted if each way has 80 % or more wrong."""
        least, outputs = min(self.counts.values()), len(self._rows) * len(self._columns)
        return sorted(self.counts, key=self.counts.__getitem__) if least < 0.8 * outputs else [*self.counts]

    def parts(self, way: Way) -> Iterator[tuple[slice, slice]]:
        """Yield blocks of rows and columns that together cover all outputs."""
        return blocks(self.target.shape, way.chains(self.target.shape, self.operands.of(way).count))

    def equals(self, way: Way) -> bool:
        """Return whether a way of summation gives every output of the result."""
        return all(np.array_equal(self.codes(way, *part), self.target[part]) for part in self.parts(way))

    def miss(self, way: Way) -> Miss | None:
        """Compare every output of a way of summation with the given result; return None if all outputs are equal."""
        total, first = 0, None
        for rows, columns in self.parts(way):
            computed, expected = self.codes(way, rows, columns), self.target[rows, columns]
            differing = np.argwhere(computed != expected)
            total += len(differing)
            for row, column in differing[:1]:
                place = int(rows.start + row), int(columns.start + column)
                if first is None or place < first[:2]:
                    first = (*place, int(expected[row, column]), int(computed[row, column]))
        return Miss(way, total, *first, self._output(way, *first[:2])) if first else None

    def _output(self, way: Way, row: int, column: int) -> Output:
        """Return one output with its operands, which are transposed if the kernel computes the transposed product."""
        shape, all_factors = self.target.shape, self.operands.of(way)
        tiles, ways = way.of_tiles(shape, all_factors.count)
        dealing = way.stream_k
        tile_way = tiles[row // dealing.rows, column // dealing.columns] if dealing else 0
        place = slice(row, row + 1), slice(column, column + 1)
        return Output(ways[tile_way], all_factors.take(*place), self._epilogue.take(shape, *place))

    def is_possible(self, way: Way) -> bool:
        """Return whether every output can be obtained by adding its slices of K in some order."""

        def some(rows: slice | NDArray, columns: slice | NDArray) -> bool:
            expected = self.target[rows][:, columns]
            epilogue = self._epilogue.take(self.target.shape, rows, columns)
            parts = slices(way, self.chains(way, rows, columns))
            in_order = stored(way, epilogue, reduce(partial(added, way), parts))
            # Try all orders of addition only for outputs that the addition in order does not reproduce.
            places = np.argwhere(in_order != expected)
            for start in range(0, len(places), _ORDERED_OUTPUTS):
                where = tuple(places[start : start + _ORDERED_OUTPUTS].T)
                every = _every_sum(way, [part[where] for part in parts])
                codes = stored(way, epilogue.mapped(partial(_at, expected.shape, where)), every)
                if not ((codes == expected[where][:, None]) & ~np.isnan(every)).any(1).all():
                    return False
            return True

        samples = (self._few, (self._rows, self._columns))
        return all(some(*place) for place in samples) and all(some(*part) for part in self.parts(way))


def _at(shape: tuple[int, ...], where: tuple[NDArray, ...], array: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the entries of an epilogue array, such as C, that belong to given outputs, shape (outputs, 1)."""
    return np.broadcast_to(array, shape)[where][:, None]


def _every_sum(way: Way, parts: list[NDArray]) -> NDArray:
    """Return the distinct sums of `parts` over all orders of addition, shape (outputs, sums), padded with NaN.

    A set of slices has few distinct sums because of rounding. The distinct sums of each set are therefore listed once,
    for all orders of addition.
    """
    every = range(len(parts))
    sums: dict[tuple[int, ...], NDArray] = {(number,): parts[number][:, None] for number in every}
    for size in range(2, len(parts) + 1):
        larger = {}
        for chosen in combinations(every, size):
            without = {last: tuple(number for number in chosen if number != last) for last in chosen}
            added_last = [added(way, sums[rest], parts[last][:, None]) for last, rest in without.items()]
            larger[chosen] = _distinct(np.concatenate(added_last, 1))
        sums = larger
    return sums[tuple(every)]


def _distinct(values: NDArray) -> NDArray:
    """Return the distinct values of each row of an array, padded with NaN."""
    ordered = np.sort(values, axis=1)
    ordered[:, 1:][ordered[:, 1:] == ordered[:, :-1]] = np.nan
    ordered = np.sort(ordered, axis=1)
    return ordered[:, : max(1, int((~np.isnan(ordered)).sum(1).max()))]


def searched(
    search: Search,
    families: Sequence[Sequence[Instruction]],
    plain: Way,
    variants: Sequence[dict[str, Any]],
    problem: Callable[[], Problem],
    group: int = 0,
    workers: int | None = None,
) -> Identification:
    """Search for a way of summation that gives all bits. If there is none, return the nearest, and a kernel fault.

    For `families`, `plain`, `variants` and `group` see :func:`sptc.gemm.candidates.candidates`, for `workers`
    :func:`sptc.gemm.candidates.streams`; stream-K is not searched with group scales. `problem` returns the input of the
    search for a fault, with the ways tried so far. Raise an `OperandError` if no instruction forms chains that end
    with each scale group.
    """
    expressions = Expressions(search.instructions, search.target.shape)
    every = candidates(families, plain, expressions, variants, group)
    if not group:
        streamed = streams(families[0], replace(plain, **variants[0]), expressions, workers)
        every = chain(islice(every, 1), streamed, every) if workers else chain(every, streamed)
    outputs = search.target.size
    for number, way in enumerate(every):
        if number == _BEFORE_FAULTS and is_gross(problem()) and (diagnosis := diagnosis_of(problem())).explained:
            return Identification(False, None, outputs, _nearest(search)[0], tried=search.tried, diagnosis=diagnosis)
        if not search.sample(way) and search.equals(way):
            tried = search.tried
            for other in islice(every, _TRIED_BESIDE):
                search.sample(other)
            nearest, equal = _nearest(search, way)
            return Identification(True, way, outputs, nearest, equal, tried=tried, alike=expressions.alike(way))
    if group and not search.tried:
        raise OperandError(f"no instruction has partial sums that end where each scale group of {group} elements ends")
    tried, possible = search.tried, None
    if not (group or families[0][0].d.is_integer):
        for way in any_order([*chain(*families)], replace(plain, **variants[0]), expressions):
            tried += 1
            if search.is_possible(way):
                possible = way
                break
    nearest, diagnosis = _nearest(search)[0], diagnosis_of(problem())
    return Identification(False, None, outputs, nearest, possible=possible, tried=tried, diagnosis=diagnosis)


def _nearest(search: Search, exact: Way | None = None) -> tuple[Miss | None, tuple[Way, ...]]:
    """Compare ways of summation on all outputs. Return the nearest inexact way, and all exact ways except `exact`."""
    near = sorted((way for way in search.counts if way != exact), key=lambda way: search.counts[way])
    misses, equal = [], []
    most = _RIVALS if search.size < _LARGE else 1
    for way in near:
        miss = search.miss(way)
        if miss:
            misses.append(miss)
        else:
            equal.append(way)
        if len(misses) == most or len(misses) + len(equal) == 4 * most:
            break
    return min(misses, key=lambda miss: miss.differing, default=None), tuple(equal)
