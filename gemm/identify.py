"""``sptc.identify``: find the way of summation that gives every bit of a kernel's result."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..api.backends import Backend
from ..api.operands import is_integer
from ..errors import OperandError, shown
from ..isa.architectures import same_numerics
from ..isa.formats import FORMATS
from ..isa.instructions import Instruction
from ..operands.registers import CONTAINERS
from ..tensors.compressed import Compressed, SparsityError
from .block_scales import block_scales_of
from .candidates import Expressions, any_order, candidates, streams
from .choice import fastest
from .epilogue import RESULTS, Epilogue, result_dtype, to_codes
from .matrices import Factors, Sparse, as_array, as_factor, dense_codes, factors, sparse_codes
from .misses import Miss, Output
from .options import all_chosen, along_m, epilogue_of, oriented
from .possible import possible
from .sums import Chains, Place, blocks, check_result, sums
from .ways import Way

__all__ = ["Identification", "identify"]

#: Multiplications in the sample on which every candidate is tried, and its largest numbers of rows and columns.
_SAMPLE, _SAMPLE_ROWS, _SAMPLE_COLUMNS = 1 << 23, 64, 128
#: Rows and columns of the sample on which ways of stream-K are tried first.
_GLANCE_ROWS, _GLANCE_COLUMNS = 8, 16
#: Ways that are compared on all outputs to find the next best or the nearest, and further ways that are tried on the
#: sample for this.
_RIVALS, _TRIED_BESIDE = 4, 400
#: Fields of a miss in a record, besides its way.
_OF_MISS = ("differing", "row", "column", "wanted", "got")
#: Multiplications above which a product is large: only one rival is then compared on all outputs.
_LARGE = 1 << 33


@dataclass(frozen=True)
class Identification:
    """Result of a search."""

    exact: bool  #: Whether a way gives every bit
    way: Way | None  #: The first way that does
    #: Outputs that were compared with `way`, or with the nearest way if none is exact.
    compared: int
    #: The nearest way that differs from the result. If a way is exact, it shows how many outputs distinguish the two.
    #: None if no other way that was tried differs.
    nearest: Miss | None
    equal: tuple[Way, ...]  #: Ways with other sums that give the same bits for these operands
    #: If no way is exact: a way whose slices explain every output if each output may add them in its own order, as
    #: atomic additions do. Its results are not deterministic, so it is never exact.
    possible: Way | None
    tried: int  #: Number of ways that were tried

    def record(self) -> dict[str, Any]:
        """Return the result as JSON values, without the operands of the first output that differs."""
        near = self.nearest
        return {
            "exact": self.exact,
            "way": self.way and asdict(self.way),
            "compared": self.compared,
            "nearest": near and {name: getattr(near, name) for name in _OF_MISS} | {"way": asdict(near.way)},
            "equal": [asdict(way) for way in self.equal],
            "possible": self.possible and asdict(self.possible),
            "tried": self.tried,
        }

    def __str__(self) -> str:
        near = self.nearest
        if self.exact:
            lines = [f"exact: all {self.compared} outputs", f"  {self.way}"]
            if near:
                lines.append(f"next best, which {near.differing} outputs tell from it:\n  {near.way}")
            if self.equal:
                lines += ["the same bits here, from other sums:", *(f"  {way}" for way in self.equal)]
            elif not near:
                lines.append("no other way that was tried gives other bits")
            return "\n".join(lines)
        lines = [f"none of the {self.tried} ways that were tried gives all {self.compared} outputs"]
        if self.possible:
            lines.append(f"each output is one of those possible with slices in some order:\n  {self.possible}")
        if near:
            where = f"row {near.row}, column {near.column}: 0x{near.wanted:x} wanted, 0x{near.got:x} got"
            lines.append(f"nearest, {near.differing} outputs differ, the first in {where}\n  {near.way}")
        return "\n".join(lines)


class _Search:
    """State of a search: operands by instruction, the given result, and the differences of the ways tried."""

    def __init__(
        self,
        left: Sparse,
        right: NDArray,
        scales: tuple[NDArray[np.uint8], NDArray[np.uint8]] | None,
        wanted: NDArray,
        computes: Backend,
        arch: str,
        epilogue: Epilogue,
    ) -> None:
        self._left, self._right, self._scales, self.wanted = left, right, scales, wanted
        self._computes, self._arch, self._epilogue = computes, arch, epilogue
        self._factors: dict[str, Factors] = {}
        self._sampled: dict[str, Chains] = {}
        self._whole: dict[str, Chains] = {}
        rows, columns = wanted.shape
        count = min(columns, _SAMPLE_COLUMNS)
        self._columns = np.unique(np.linspace(0, columns - 1, count).astype(np.intp))
        count = max(1, min(rows, _SAMPLE_ROWS, _SAMPLE // (count * left.k)))
        self._rows = np.unique(np.linspace(0, rows - 1, count).astype(np.intp))
        self.size = wanted.size * left.k
        self.counts: dict[Way, int] = {}
        self.tried = 0

    def of(self, way: Way) -> Factors:
        """Return the operands of a way's instruction."""
        if way.instruction not in self._factors:
            self._factors[way.instruction] = factors(self._left, self._right, way.parsed, self._scales)
        return self._factors[way.instruction]

    def instructions(self, instruction: str) -> int:
        """Return the number of instructions along K."""
        return self.of(Way(instruction=instruction, arch=self._arch)).count

    def chains(self, way: Way, rows: slice | NDArray, columns: slice | NDArray) -> Chains:
        """Return the chains of some outputs. Those of the sample are cached, and those of a small product."""
        if isinstance(rows, np.ndarray):
            kept = self._sampled
        elif self.wanted[rows, columns].size == self.wanted.size:
            kept = self._whole
        else:
            return self._chains(way, rows, columns)
        if way.instruction not in kept:
            kept[way.instruction] = self._chains(way, rows, columns)
        return kept[way.instruction]

    def _chains(self, way: Way, rows: slice | NDArray, columns: slice | NDArray) -> Chains:
        place = Place.of(rows, columns, self.wanted.shape)
        return Chains(self.of(way).take(rows, columns), self._arch, self._computes, place=place)

    def codes(self, way: Way, rows: slice | NDArray, columns: slice | NDArray) -> NDArray:
        """Return the codes of some outputs by a way."""
        of_block = self._epilogue.take(self.wanted.shape, rows, columns)
        return to_codes(of_block.apply(sums(way, self.chains(way, rows, columns))), way.result, way.rounding)

    def sample(self, way: Way) -> int:
        """Count the outputs of the sample that differ by a way. A stream-K way that is far off is not recorded."""
        if way not in self.counts:
            self.tried += 1
            if way.stream_k and (far := self._glance(way)):
                return far
            found = self.codes(way, self._rows, self._columns)
            self.counts[way] = int((found != self.wanted[self._rows][:, self._columns]).sum())
        return self.counts[way]

    def _glance(self, way: Way) -> int:
        """Count the differing outputs in a small uncached part of the sample; return 0 unless more than half differ."""
        rows = self._rows[:: -(-len(self._rows) // _GLANCE_ROWS)]
        columns = self._columns[:: -(-len(self._columns) // _GLANCE_COLUMNS)]
        of_block = self._epilogue.take(self.wanted.shape, rows, columns)
        found = to_codes(of_block.apply(sums(way, self._chains(way, rows, columns))), way.result, way.rounding)
        far = int((found != self.wanted[rows][:, columns]).sum())
        return far if 2 * far > found.size else 0

    def parts(self, way: Way) -> Iterator[tuple[slice, slice]]:
        """Yield blocks that cover all outputs."""
        return blocks(self.wanted.shape, way.chains(self.wanted.shape, self.of(way).count))

    def equals(self, way: Way) -> bool:
        """Return whether a way gives every output."""
        return all(np.array_equal(self.codes(way, *part), self.wanted[part]) for part in self.parts(way))

    def miss(self, way: Way) -> Miss | None:
        """Compare every output of a way; None if all are equal."""
        total, first = 0, None
        for rows, columns in self.parts(way):
            found, wanted = self.codes(way, rows, columns), self.wanted[rows, columns]
            differing = np.argwhere(found != wanted)
            total += len(differing)
            for row, column in differing[:1]:
                place = int(rows.start + row), int(columns.start + column)
                if first is None or place < first[:2]:
                    first = (*place, int(wanted[row, column]), int(found[row, column]))
        return Miss(way, total, *first, self._output(way, *first[:2])) if first else None

    def _output(self, way: Way, row: int, column: int) -> Output:
        """Return one output with its operands, in the orientation in which it is computed."""
        shape, of_all = self.wanted.shape, self.of(way)
        tiles, ways = way.of_tiles(shape, of_all.count)
        dealing = way.stream_k
        of_tile = tiles[row // dealing.rows, column // dealing.columns] if dealing else 0
        place = slice(row, row + 1), slice(column, column + 1)
        return Output(ways[of_tile], of_all.take(*place), self._epilogue.take(shape, *place))

    def is_possible(self, way: Way) -> bool:
        """Return whether some order of adding the slices explains each output."""

        def some(rows: slice | NDArray, columns: slice | NDArray) -> bool:
            wanted = self.wanted[rows][:, columns]
            of_block = self._epilogue.take(self.wanted.shape, rows, columns)
            return possible(way, self.chains(way, rows, columns), of_block, wanted)

        return some(self._rows, self._columns) and all(some(*part) for part in self.parts(way))


def identify(
    a: Any,
    b: Any,
    y: Any,
    *,
    format: str | None = None,  # noqa: A002 - the word of the command line
    result: str,
    arch: str = "sm_90",
    instruction: str | None = None,
    backend: str | None = None,
    dense: bool = False,
    prune: bool = False,
    nan: str = "error",
    alpha: float = 1.0,
    beta: float | None = None,
    c: Any = None,
    bias: Any = None,
    scale_a: Any = None,
    scale_b: Any = None,
    relu: bool = False,
    block_scale_a: Any = None,
    block_scale_b: Any = None,
    workers: int | None = None,
) -> Identification:
    """Search for the way of summation that gives every bit of a result.

    Parameters
    ----------
    a : array, tensor or Compressed, shape (M, K)
        Structured-sparse factor, as for :func:`sptc.gemm`. If A is not sparse but B is, along K, the factors are
        exchanged.
    b : array or tensor, shape (K, N) or (K,)
        Dense factor.
    y : array or tensor, shape (M, N) or (M,)
        Result to explain: numbers of its type, or their codes.
    format : str, optional
        Format of both factors; not needed if `instruction` is given.
    result : str
        Type of `y`, a key of :data:`sptc.gemm.epilogue.RESULTS`.
    arch : str
        Architecture that computed `y`.
    instruction : str, optional
        The only instruction to try (default: all of the format that give different bits).
    backend : str, optional
        Back end that computes (default: libsptc, or the golden model if libsptc cannot be compiled).
    dense : bool
        Both factors are dense: try dense instructions.
    prune, nan
        As for :func:`sptc.gemm`.
    alpha, beta, c, bias, scale_a, scale_b, relu
        Epilogue of the kernel, see :class:`~sptc.gemm.epilogue.Epilogue`.
    block_scale_a, block_scale_b : array or tensor, shape (M, blocks) and (N, blocks), optional
        Block scales of the factors, as for :func:`sptc.gemm`.
    workers : int, optional
        Thread blocks of the launch of a stream-K kernel (default: the SM counts of GPUs of the architecture).

    Returns
    -------
    Identification
        The way and the number of outputs that distinguish it from the next best, or the nearest miss.

    Raises
    ------
    Error
        The input is invalid.
    """
    wanted = _result_codes(as_array("y", y), result)
    left, right = as_factor("a", a), as_array("b", b)
    scales, vector = block_scales_of(block_scale_a, block_scale_b), right.ndim == 1
    found = all_chosen(format, instruction, arch, dense, scales, left.shape[-1] if left.shape else 0)
    arch = same_numerics(arch)
    plain = Way(instruction=str(found[0]), arch=arch, result=result)
    check_result(plain)
    if vector:
        scales = scales and scales.of_vector()
        right, wanted = right[:, None], wanted[:, None] if wanted.ndim == 1 else wanted
    sparse, codes, swapped = _operands(left, right, found[0], prune, nan)
    shape = (codes.shape[1], len(sparse.codes)) if swapped else (len(sparse.codes), codes.shape[1])
    if wanted.shape != shape:
        raise OperandError(f"y of shape {wanted.shape} is not that of the product, {shape}")
    epilogue = epilogue_of(alpha=alpha, beta=beta, c=c, bias=bias, scale_a=scale_a, scale_b=scale_b, relu=relu)
    if vector:
        epilogue = epilogue.mapped(along_m)
    plain = replace(plain, swapped=swapped)
    epilogue, _ = oriented(plain, shape, epilogue, None)
    wanted = wanted.T if swapped else wanted
    of_blocks = None if scales is None else scales.checked(found[0], shape, sparse.k, swapped=swapped)
    computes = fastest(backend, arch)
    search = _Search(sparse, codes, of_blocks, np.ascontiguousarray(wanted), computes, arch, epilogue)
    if workers is not None and (not is_integer(workers) or workers < 1):
        raise OperandError(f"workers must be an integer of 1 or more, not {shown(workers)}")
    return _turned(_searched(search, found, plain, None if workers is None else int(workers)))


def _operands(
    left: NDArray | Compressed, right: NDArray, i: Instruction, prune: bool, nan: str
) -> tuple[Sparse, NDArray, bool]:
    """Return the sparse factor, the dense factor, and whether they are exchanged."""
    for name, array in (("a", left), ("b", right)):
        if isinstance(array, np.ndarray) and array.ndim != 2:
            raise OperandError(f"{name} must be one matrix, not of shape {array.shape}")
    if left.shape[1] != len(right):
        raise OperandError(f"A has {left.shape[1]} columns and B {len(right)} rows: they have no common K")
    try:
        return sparse_codes("a", left, i, prune=prune, nan=nan), dense_codes("b", right, i.b, nan), False
    except SparsityError as error:
        try:
            exchanged = sparse_codes("b", right.T, i, nan=nan)
        except SparsityError:
            raise error from None
    assert isinstance(left, np.ndarray)
    return exchanged, dense_codes("a", left, i.b, nan).T, True


def _result_codes(y: NDArray, result: str) -> NDArray:
    """Return the codes of a result."""
    own, container = result_dtype(result), CONTAINERS[FORMATS[result].bits]
    raw = y.dtype.kind in "iuV" and y.dtype.type.__module__ != "ml_dtypes" and y.dtype.itemsize == own.itemsize
    if not (y.dtype == own or raw) or y.ndim not in (1, 2) or not y.size:
        raise OperandError(
            f"y must be a matrix of {result}, as {RESULTS[result]} or codes in {container}, not {y.dtype} of shape "
            f"{y.shape}"
        )
    return np.ascontiguousarray(y).view(container)


def _searched(search: _Search, instructions: Sequence[Instruction], plain: Way, workers: int | None) -> Identification:
    """Try the candidates until one gives every output; then find the next best or the nearest way."""
    expressions, compared = Expressions(search.instructions, search.wanted.shape), search.wanted.size
    every, streamed = candidates(instructions, plain, expressions), streams(instructions, plain, expressions, workers)
    every = chain(islice(every, 1), streamed, every) if workers else chain(every, streamed)
    for way in every:
        if not search.sample(way) and search.equals(way):
            tried = search.tried
            for other in islice(every, _TRIED_BESIDE):
                search.sample(other)
            nearest, equal = _nearest(search, way)
            return Identification(True, way, compared, nearest, equal, None, tried)
    tried, found = search.tried, None
    if not instructions[0].d.is_integer:
        for way in any_order(instructions, plain, expressions):
            tried += 1
            if search.is_possible(way):
                found = way
                break
    return Identification(False, None, compared, _nearest(search, None)[0], (), found, tried)


def _nearest(search: _Search, found: Way | None) -> tuple[Miss | None, tuple[Way, ...]]:
    """Compare the best ways of the sample on all outputs; return the nearest that differs, and the equal ones."""
    near = sorted((way for way in search.counts if way != found), key=lambda way: search.counts[way])
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


def _turned(found: Identification) -> Identification:
    """Convert the result of a search on the transpose to the orientation of `y`."""
    near = found.nearest
    if near is None or not near.way.swapped:
        return found
    return replace(found, nearest=replace(near, row=near.column, column=near.row))
