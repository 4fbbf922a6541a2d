"""Generate matrices (a probe) for a kernel: a few outputs of the product identify the kernel's way of summation."""

from dataclasses import dataclass
from itertools import combinations, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import OperandError
from ..infra.files import create_folder, whole_file
from ..isa.architectures import require_target
from ..isa.formats import FORMATS
from ..isa.instructions import Instruction
from ..tensors.sparsify import expand, sparsify
from .candidates import Expressions, candidates
from .choice import fastest, instructions_for
from .epilogue import to_codes
from .matrices import dense_codes, factors, sparse_codes
from .sums import Chains, check_result, sums
from .ways import Way

__all__ = ["Probe", "probe", "write_probe"]

#: Maximum number of ways of summation to compare; and numbers of rows and of columns of the outputs to compare.
_WAYS, _ROWS, _COLUMNS = 40, 8, 32
#: Distributions of the random factors: the range of exponents around zero, and whether the second half of K cancels the
#: first, so that mainly rounding errors remain.
_DRAWS = ((0, False), (4, False), (0, True), (2, True), (4, True))
_MOST_ELEMENTS = 1 << 25
#: Key: format whose elements are written as numbers. Value: numpy type of these numbers.
_TYPES = {"f16": "float16", "tf32": "float32", "s8": "int8"}


@dataclass(frozen=True, eq=False)
class Probe:
    """Two matrices whose product differs between ways of summation, and the number of distinct products."""

    #: Codes of the factors, shapes (M, K) and (K, N); A is structured-sparse.
    a: NDArray
    b: NDArray
    dtype: str  #: Numpy type of the factors, or an unsigned type of codes if numpy has no type for the format
    #: Number of ways of summation that were compared, and number of their distinct results.
    ways: int
    different: int
    #: Number of outputs that differ between the two ways of summation with the most similar distinct results.
    least: int
    outputs: int  #: Number of outputs of the matrix product on which the ways of summation were compared

    def __str__(self) -> str:
        return (
            f"{self.ways} ways of summation have {self.different} different results; the two most similar differ in "
            f"{self.least} of {self.outputs} outputs"
        )


def probe(
    shape: tuple[int, int, int],
    *,
    format: str,  # noqa: A002 - the word of the command line
    result: str,
    arch: str = "sm_90",
    seed: int = 0,
) -> Probe:
    """Choose random matrices A and B from several distributions; return those that distinguish most ways of summation.

    `shape` is M, N and K; for `format`, `result` and `arch` see :func:`sptc.identify`. Raise an `InstructionError` or
    `OperandError` if there is no such format, result or architecture, or the shape is too large.
    """
    rows, columns, k = shape
    if max(rows, columns) * k > _MOST_ELEMENTS:
        raise OperandError(f"a matrix must have at most {_MOST_ELEMENTS} elements, not {max(rows, columns) * k}")
    instructions = instructions_for(format, arch)
    arch = require_target(instructions[0], arch)
    plain = Way(instruction=str(instructions[0]), arch=arch, result=result)
    check_result(plain)
    dtype = _TYPES.get(format, "uint16" if FORMATS[format].bits == 16 else "uint8")
    rng, computes, probes = np.random.default_rng(seed), fastest(None, arch), []
    for spread, cancels in _DRAWS:
        a, b = _drawn(rng, shape, instructions[0], spread, cancels)
        sparse = sparse_codes("a", a, instructions[0])
        part = slice(0, _ROWS), slice(0, _COLUMNS)
        chains = {str(i): Chains(factors(sparse, b, i).take(*part), arch, computes) for i in instructions}
        counts = {name: one.factors.count for name, one in chains.items()}
        expressions = Expressions(counts.__getitem__, (_ROWS, _COLUMNS))
        ways = [*islice(candidates([instructions], plain, expressions), _WAYS)]
        codes = [to_codes(sums(way, chains[way.instruction]), result, way.rounding) for way in ways]
        apart = [int((one != other).sum()) for one, other in combinations(codes, 2)]
        different = len({of_way.tobytes() for of_way in codes})
        least = min((number for number in apart if number), default=0)
        probes.append(Probe(a, b, dtype, len(ways), different, least, codes[0].size))
    return max(probes, key=lambda one: (one.different, one.least))


def _drawn(
    rng: np.random.Generator, shape: tuple[int, int, int], i: Instruction, spread: int, cancels: bool
) -> tuple[NDArray, NDArray]:
    """Return the codes of a random structured-sparse matrix and of a random dense matrix."""
    rows, columns, k = shape
    assert i.granularity
    width = i.granularity.logical

    def numbers(size: tuple[int, int], signed: bool) -> NDArray[np.float64]:
        if i.a.is_integer:
            top = int(i.a.maximum)
            return rng.integers(-top * signed, top + 1, size).astype(np.float64)
        return rng.standard_normal(size) * 2.0 ** rng.integers(-spread, spread + 1, size)

    a, b = numbers((rows, k), i.a.signed), numbers((k, columns), i.b.signed)
    half = k // 2 // width
    if cancels and i.a.signed and half:
        order = (rng.permutation(half)[:, None] * width + np.arange(width)).ravel()
        second = slice(half * width, 2 * half * width)
        a[:, second], b[second] = -a[:, order], b[order]
    whole = np.pad(a, ((0, 0), (0, -k % width)))
    a = expand(sparsify(whole, i.granularity, prune=True))[:, :k]
    return dense_codes("a", a, i.a), dense_codes("b", b, i.b)


def write_probe(folder: Path, drawn: Probe) -> dict[str, Any]:
    """Write matrices A and B of a :class:`Probe` to ``a.npy`` and ``b.npy`` in a folder; return a JSON description.

    The elements are written as numbers if numpy has their type, else as codes. Raise a `FileError` if writing fails.
    """
    create_folder(folder)
    for name, codes in (("a", drawn.a), ("b", drawn.b)):
        with whole_file(folder / f"{name}.npy") as file:
            np.lib.format.write_array(file, codes.view(drawn.dtype), allow_pickle=False)
    said = {"a": str(folder / "a.npy"), "b": str(folder / "b.npy"), "dtype": drawn.dtype}
    return said | {name: getattr(drawn, name) for name in ("ways", "different", "least", "outputs")}
