"""Convert matrices in files to the operands of an instruction: codes, metadata and scales.

Matrices are converted as by :func:`sptc.gemm`, see :mod:`sptc.gemm.matrices`. In addition, numbers are scaled: by block
scales if the instruction has them, and by one scale per matrix if the format is an integer format and the numbers are
not integers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import Error, FileError, OperandError
from ..isa.formats import Format
from ..isa.instructions import Instruction
from ..isa.operands import MatrixOperands
from ..tensors.blocks import Progress, row_blocks
from ..tensors.checkpoints import Checkpoint
from ..tensors.compressed import Compressed
from ..tensors.element_types import is_extension
from ..tensors.quantise import quantise
from ..tensors.sparsify import expand, sparsify
from .block_scales import BlockScales
from .epilogue import Epilogue
from .group_scales import grouped_way
from .matrices import (
    Factors,
    as_array,
    as_factor,
    check_matrix,
    converted,
    dense_codes,
    exact_values,
    factors,
    holds_codes,
    sparse_codes,
)
from .options import along_m, exchanged, grouped, oriented
from .product import Problem, dense_instruction, save_added, save_factors
from .sources import Source
from .sums import check_way
from .ways import Way

__all__ = ["ProductRequest", "generate", "output_operands", "prepare"]

#: Key: format of block scales. Value: quantisation recipe for the operands.
_RECIPES = {"ue8m0": "mx", "ue4m3": "nvfp4"}
#: Key: type of results and accumulators. Value: numpy type. Results of all other types are written as uint8 codes.
_TYPES = {"f32": np.float32, "f16": np.float16, "s32": np.int32, "s8": np.int8, "bf16": np.uint16}
#: Suffixes of the files whose tensors can be memory-mapped.
_MAPPED = (".npy", ".safetensors")


@dataclass(frozen=True, eq=False)
class ProductRequest:
    """Two matrices to multiply, and the options of their multiplication."""

    way: Way
    #: File locations of matrix A, and of matrix or vector B.
    a: Source
    b: Source
    prune: bool = False  #: Whether A is pruned to its largest magnitudes; otherwise A must already be sparse
    producer: str = "pytorch"  #: Library whose metadata is written where A has fewer non-zeros than stored values
    nan: str = "error"  #: Policy for NaN elements, one of :data:`sptc.tensors.quantise.NAN_POLICIES`
    rows: int | None = None  #: Number of rows of A to use, starting at the first row; None for all rows
    #: Options of the matrix product; see the fields of :class:`~sptc.gemm.product.Problem`.
    backends: tuple[str, ...] = ("golden",)
    dense: bool = False
    epilogue: Epilogue = field(default_factory=Epilogue)  #: Epilogue of the matrix product, for all rows of A
    #: Initial accumulator of the sums, for all rows of A: numbers or codes of the instruction's accumulator type.
    start: NDArray | None = None
    #: Block scales of A and B. With block scales, the matrices hold codes or values of elements before scaling.
    block_scales: BlockScales | None = None
    #: Group scales of A and of B, f32.
    group_scale_a: NDArray | None = None
    group_scale_b: NDArray | None = None
    #: Numerics parameters that replace those of each instruction, as in :class:`~sptc.gemm.product.Problem`.
    numerics: Mapping[str, Any] = field(default_factory=dict)


def generate(folder: Path, shape: tuple[int, int, int], seed: int) -> tuple[Source, Source]:
    """Write two matrices of normally distributed random numbers to files, and return their file locations.

    `folder` exists; `shape` is the number of rows of A, the number of columns of B, and K.
    """
    rows, columns, k = shape
    rng, sources = np.random.default_rng(seed), []
    for name, size in (("generated_a", (rows, k)), ("generated_b", (k, columns))):
        path = folder / f"{name}.npy"
        out = np.lib.format.open_memmap(path, "w+", np.float32, size)
        for part in row_blocks(size):
            out[part] = rng.standard_normal(out[part].shape, np.float32)
        out.flush()
        sources.append(Source(str(path)))
    return sources[0], sources[1]


def prepare(folder: Path, request: ProductRequest, progress: Progress | None = None) -> Problem:
    """Write the operands of a matrix product into an existing folder; `progress` is called after each block of rows.

    Raise an `OperandError` or `SparsityError` if the shapes do not match, A is not sparse, or an element cannot be
    quantised, and a `FileError` if a matrix cannot be read, or the operands cannot be written.
    """
    way, i = request.way, request.way.parsed
    given_a, given_b = request.a.read(), request.b.read()
    vector = isinstance(given_b, np.ndarray) and given_b.ndim == 1
    if isinstance(given_b, np.ndarray) and vector:
        given_b = given_b.reshape(-1, 1)
    for name, one in (("a", given_a), ("b", given_b)):
        if isinstance(one, np.ndarray):
            check_matrix(name, one, request.nan)
    all_rows = len(given_a if isinstance(given_a, np.ndarray) else given_a.compressed.stored)
    left, right, names = exchanged(way, _first(given_a, request.rows), given_b)
    conversions = [way.convert_a if name == "a" else way.convert_b for name in names]
    k, epilogue, start, blocks = len(right), request.epilogue, request.start, request.block_scales
    if vector:
        epilogue, start = epilogue.mapped(along_m), None if start is None else along_m(start)
        blocks = blocks and blocks.of_vector()
    m, n = left.shape[0] if isinstance(left, np.ndarray) else len(left.compressed.stored), right.shape[1]
    m, n = (n, m) if way.swapped else (m, n)
    given_scales = blocks.checked(i, (m, n), k, swapped=way.swapped) if blocks else None
    groups, epilogue = grouped(way, epilogue, request.group_scale_a, request.group_scale_b, (all_rows, n), k, start)
    way = grouped_way(way, groups)
    if groups:
        groups = groups.take(slice(m), slice(n))
        groups = groups.turned() if way.swapped else groups
    left, right = converted(left, i.a, conversions[0]), converted(right, i.b, conversions[1])
    sums, scale = _operands(left, right, names, i, request, progress, given_scales)
    sums = replace(sums, groups=groups).interleaved(way)
    check_way(way, sums)
    oriented(way, (all_rows, n), epilogue, start)  # oriented() raises an error for C, bias or scales of wrong shapes
    try:
        save_factors(folder, sums)
        if request.dense:
            _save_dense(folder, left, right, names, request)
        save_added(folder, epilogue, start)
        a = _given(folder / "given_a.npy", request.a, given_a, i.b if way.swapped else i.a)
        b = _given(folder / "given_b.npy", request.b, given_b, i.a if way.swapped else i.b)
        size = (m,) if vector else (m, n)
        np.lib.format.open_memmap(folder / "d.npy", "w+", _TYPES.get(way.result, np.uint8), size).flush()
    except OSError as error:
        raise FileError(f"the operands cannot be written to {folder} ({error.strerror})") from None
    return Problem(
        folder=str(folder), way=way, shape=(m, n, k), all_rows=all_rows, a=a, b=b, scale=scale,
        backends=request.backends, dense=request.dense, alpha=epilogue.alpha, beta=epilogue.beta, relu=epilogue.relu,
        group_length=groups.length if groups else 0, block_scaled=blocks is not None, numerics=dict(request.numerics),
    )  # fmt: skip


def _first(factor: NDArray | Checkpoint, rows: int | None) -> NDArray | Checkpoint:
    if isinstance(factor, np.ndarray):
        return factor[:rows]
    compressed, quantised = factor.compressed, factor.quantised
    compressed = replace(compressed, stored=compressed.stored[:rows], nibbles=compressed.nibbles[:rows])
    if quantised is not None:
        scales = None if quantised.scales is None else quantised.scales[:rows]
        quantised = replace(quantised, codes=quantised.codes[:rows], scales=scales)
    return Checkpoint(compressed, quantised)


def _given(path: Path, source: Source, factor: NDArray | Checkpoint, fmt: Format) -> Source:
    """Return the file of a matrix. First write a new file if the file of the matrix cannot be memory-mapped."""
    if isinstance(factor, np.ndarray):
        if Path(source.path).suffix in _MAPPED:
            return source
        transposed = False
    else:
        values, transposed = factor.values(), path.stem == "given_b"
        if holds_codes(values.stored, fmt):
            values = replace(values, stored=exact_values(values.stored, fmt))
        factor = expand(values)
    # .npy files cannot hold types of ml_dtypes. float32 represents all values of these types.
    np.save(path, factor.astype(np.float32) if is_extension(factor.dtype) else factor)
    return Source(str(path), None, transposed)


def _operands(
    left: NDArray | Checkpoint,
    right: NDArray,
    names: tuple[str, str],
    i: Instruction,
    request: ProductRequest,
    progress: Progress | None,
    given_scales: tuple[NDArray[np.uint8], NDArray[np.uint8]] | None = None,
) -> tuple[Factors, float]:
    """Return the operands of an instruction, and the scale factor of the whole product.

    With `given_scales`, the matrices hold unscaled elements for these block scales. Without `given_scales`, numbers are
    quantised if they need scales.
    """
    sparse: NDArray | Compressed
    scale, scale_b = 1.0, 1.0
    scales, scales_b = given_scales or (None, None)
    if isinstance(left, np.ndarray):
        sparse = left
    elif given_scales:
        sparse = left.compressed
    else:
        sparse, scale, scales = _stored(left, i)
    k = sparse.shape[1]
    if scales is None and _takes_scales(sparse if isinstance(sparse, np.ndarray) else sparse.stored, i.a, i):
        if isinstance(sparse, np.ndarray) and i.granularity:
            numbers = _numbers(sparse, i.a)
            if missing := -k % i.granularity.logical:
                numbers = np.pad(numbers, ((0, 0), (0, missing)))
            sparse = sparsify(numbers, i.granularity, prune=request.prune, producer=request.producer, progress=progress)
        stored = sparse if isinstance(sparse, np.ndarray) else sparse.stored
        # One scale covers `i.span` logical elements along K. A sparse A stores half of these elements.
        block = i.span and i.span * i.stored_k // i.k
        codes, own, scales = _quantised(stored, i.a, i, request.nan, block, progress)
        scale *= own
        sparse = codes if isinstance(sparse, np.ndarray) else replace(sparse, stored=codes)
    if scales_b is None and _takes_scales(right, i.b, i):
        codes, scale_b, scales_b = _quantised(right.T, i.b, i, request.nan, i.span, progress)
        right = codes.T
    left_codes = sparse_codes(
        names[0], sparse, i, prune=request.prune, nan=request.nan, producer=request.producer, progress=progress
    )
    block_scales = None if scales is None or scales_b is None else (scales, scales_b)
    dense_factors = factors(replace(left_codes, k=k), dense_codes(names[1], right, i.b, request.nan), i, block_scales)
    return dense_factors, scale * scale_b


def _save_dense(
    folder: Path, left: NDArray | Checkpoint, right: NDArray, names: tuple[str, str], request: ProductRequest
) -> None:
    i = request.way.parsed
    if not isinstance(left, np.ndarray):
        raise OperandError(f"{names[0]} is compressed, so no dense product can be computed for a comparison")
    if not i.sparse:
        raise OperandError(f"{i} is already dense: a comparison with the dense product needs a sparse instruction")
    dense_factors, scale = _operands(left, right, names, dense_instruction(i), replace(request, prune=False), None)
    save_factors(folder, dense_factors, "dense_")
    np.save(folder / "dense_scale.npy", np.float64(scale))


def _stored(left: Checkpoint, i: Instruction) -> tuple[Compressed, float, NDArray[np.uint8] | None]:
    """Return a compressed matrix, its scale and block scales; dequantise it if the instruction has other formats."""
    quantised, block = left.quantised, i.span and i.span * i.stored_k // i.k
    if quantised is None:
        return left.compressed, 1.0, None
    if quantised.format is i.a and quantised.scale_format is i.scale_format and quantised.block == block:
        return left.compressed, quantised.tensor_scale or 1.0, quantised.scales
    return left.values(), 1.0, None


def _takes_scales(array: NDArray, fmt: Format, i: Instruction) -> bool:
    """Return whether an array needs quantising: for block scales, or if an integer format cannot hold its elements."""
    if i.scale_size:
        return True
    if not fmt.is_integer or array.dtype.kind in "iu" or array.ndim != 2:
        return False
    low, high = -(1 << fmt.bits - 1) if fmt.signed else 0, (1 << fmt.bits - fmt.signed) - 1
    for rows in row_blocks(array.shape):
        part = np.asarray(array[rows])
        if not ((part >= low) & (part <= high) & (np.rint(part) == part)).all():
            return True
    return False


def _quantised(
    values: NDArray, fmt: Format, i: Instruction, nan: str, block: int | None, progress: Progress | None
) -> tuple[NDArray, float, NDArray[np.uint8] | None]:
    """Return the codes of quantised numbers, the scale of the matrix, and block scales."""
    recipe = _RECIPES[i.scale_format.name] if i.scale_format else "plain"
    quantised = quantise(_numbers(values, fmt), fmt, recipe=recipe, nan=nan, block=block, progress=progress)
    return quantised.codes, quantised.tensor_scale or 1.0, quantised.scales


def _numbers(array: NDArray, fmt: Format) -> NDArray:
    """Return the values of an array of codes; return an array of numbers unchanged."""
    return exact_values(array, fmt) if holds_codes(array, fmt) else array


def output_operands(
    i: Instruction,
    matrices: tuple[Any, Any, Any],
    row: int,
    column: int,
    *,
    transpose_b: bool = False,
    prune: bool = False,
) -> MatrixOperands:
    """Return one row of A, one column of B and one element of C, padded along K to whole instructions.

    The instruction has no block scales. `matrices` are A (M x K), B (K x N; N x K with `transpose_b`; or a vector of K
    elements) and C (M x N; for a vector B also a vector of M elements) or None, with numbers or codes as for
    :func:`sptc.gemm`. With `prune`, a sparse A keeps its largest magnitudes; otherwise A must be sparse. Raise an
    `OperandError` or `InstructionError` if a matrix cannot be an operand, the output does not exist, or the instruction
    has block scales.
    """
    first, second, third = matrices
    a, b = as_factor("a", first), as_array("b", second)
    c = None if third is None else as_array("c", third)
    if b.ndim == 1:
        b, c = b[:, None], c[:, None] if c is not None and c.ndim == 1 else c
    elif transpose_b:
        b = b.T
    if isinstance(a, np.ndarray):
        check_matrix("a", a, "keep")
    check_matrix("b", b, "keep")
    for name, number, count in (("row", row, a.shape[0]), ("column", column, b.shape[1])):
        if not number < count:
            raise OperandError(f"{name} must be 0 to {count - 1} in this matrix product, not {number}")
    rows = slice(row, row + 1)
    one = a[rows] if isinstance(a, np.ndarray) else a
    try:
        stored = sparse_codes("a", one, i, prune=prune, nan="keep")
    except Error as error:
        raise OperandError(f"row {row} of a, read as a matrix with one row, is invalid: {error}") from None
    right = dense_codes("b", np.ascontiguousarray(b[:, column : column + 1]), i.b, "keep")
    operands = factors(stored, right, i)
    if not isinstance(a, np.ndarray):
        operands = operands.take(rows, slice(None))
    c = np.zeros((1, 1), _TYPES[i.c.name]) if c is None else _accumulator(c, i.c, (row, column))
    nibbles = None if operands.nibbles is None else operands.nibbles[None]
    return MatrixOperands(operands.a[None], operands.b[None], c.view(f"<u{c.itemsize}")[None], nibbles)


def _accumulator(c: NDArray, fmt: Format, place: tuple[int, int]) -> NDArray:
    """Return one element of C in the type of the accumulator, shape (1, 1)."""
    row, column = place
    check_matrix("c", c, "keep")
    if row >= c.shape[0] or column >= c.shape[1]:
        raise OperandError(f"c is {c.shape[0]} x {c.shape[1]} and has no element at row {row}, column {column}")
    if fmt.is_integer != np.issubdtype(c.dtype, np.integer):
        raise OperandError(f"c must hold {'integers' if fmt.is_integer else 'floats'}, not {c.dtype}")
    element = c[row : row + 1, column : column + 1]
    converted = element.astype(_TYPES[fmt.name])
    if fmt.is_integer and (converted != element).any():
        raise OperandError(f"c holds {element.item()} at row {row}, column {column}, which exceeds 32 bits")
    return converted
