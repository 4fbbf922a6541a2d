"""Function ``sptc.gemm``: matrix products in Python by a given way of summation."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..api.backends import Backend, with_numerics
from ..api.backends import backend as backend_named
from ..errors import OperandError
from ..isa.numerics import Numerics
from ..tensors.compressed import Compressed
from .block_scales import BlockScales, block_scales_of, scaled_instructions
from .choice import in_factor_order
from .epilogue import broadcasts, result_dtype
from .group_scales import grouped_way
from .matrices import as_array, as_factor, converted, dense_codes, factors, sparse_codes
from .options import along_m, check_types, epilogue_of, exchanged, format_of, grouped, oriented, way_of
from .sums import check_result, product
from .ways import Way

__all__ = ["gemm"]


def gemm(
    a: Any,
    b: Any,
    c: Any = None,
    *,
    format: str | None = None,  # noqa: A002 - the word of the command line
    instruction: str | None = None,
    arch: str = "sm_90",
    backend: str | Backend = "golden",
    split_k: int | tuple[int, ...] = 1,
    order: str = "in order",
    k_order: str = "ascending",
    interleave: int = 0,
    promote: int = 0,
    tile: int = 1,
    cut: str = "rounded up",
    workspace: str = "",
    running: str = "",
    accumulate: str | None = None,
    result: str | None = None,
    rounding: str = "RNE",
    swapped: bool = False,
    way: Way | None = None,
    alpha: float = 1.0,
    beta: float | None = None,
    bias: Any = None,
    scale_a: Any = None,
    scale_b: Any = None,
    relu: bool = False,
    block_scale_a: Any = None,
    block_scale_b: Any = None,
    group_scale_a: Any = None,
    group_scale_b: Any = None,
    group_scaling: str = "",
    scale_order: str = "a then b",
    convert_a: str = "",
    convert_b: str = "",
    prune: bool = False,
    nan: str = "error",
    numerics: Numerics | None = None,
) -> NDArray:
    """Multiply a structured-sparse by a dense matrix, with the same bits as a kernel with a known way of summation.

    Parameters
    ----------
    a : array, tensor or Compressed, shape (..., M, K)
        Structured-sparse factor, as a dense array with zeros or compressed. Arrays of numpy and tensors of PyTorch hold
        codes or numbers, see :mod:`sptc.gemm.matrices`. With a dense instruction, any matrix is accepted.
    b : array or tensor, shape (..., K, N) or (K,)
        Dense factor. Leading axes are a batch and are broadcast.
    c : array or tensor, optional
        Accumulator of the first instruction of the first chain. With `beta`, addend of the epilogue instead.
    format : str, optional
        Format of both factors, or the formats of A and B with a comma between them, such as ``"e4m3,e5m2"`` (default:
        those of the instruction, or of the array types).
    instruction : str, optional
        Instruction in PTX syntax (default: the instruction that a library would use, see
        :func:`sptc.gemm.choice.instructions_for`).
    arch, backend : str
        Architecture whose numerics apply, and back end that computes; ``native`` is the fastest.
    split_k, order, k_order, interleave, promote, tile, cut, workspace, running, result, rounding, swapped, \
    group_scaling, scale_order, convert_a, convert_b
        Attributes of :class:`~sptc.gemm.ways.Way`. With `swapped`, `b` is the sparse factor. The default result is f32,
        or s32 for integers.
    accumulate : str, optional
        Accumulator type of the instruction to choose: f32, f16 or s32.
    way : Way, optional
        Way of summation that :func:`sptc.identify` found, instead of `instruction`, `arch` and attributes of a way.
    alpha, beta, bias, scale_a, scale_b, relu
        Attributes of :class:`~sptc.gemm.epilogue.Epilogue`. Arrays broadcast to (M, N); with a vector `b` their shape
        is (M,). The second-level scales of NVFP4 are `scale_a` and `scale_b`, or `alpha`.
    block_scale_a, block_scale_b : array or tensor, shape (..., M, blocks) and (..., N, blocks), optional
        Block scales along K: codes in ``float8_e8m0fnu`` or ``float8_e4m3fn`` of ``ml_dtypes`` or in uint8, or their
        values as floats. `a` and `b` are the elements without their scales. The number of scales decides the
        instruction: a sparse instruction has one scale per 64 or 32 elements along K, a dense instruction per 32 or 16.
        For a vector `b`, `block_scale_b` has shape (blocks,).
    group_scale_a, group_scale_b : array or tensor, shape (M, groups) and (groups, N), optional
        Group scales along K, applied to promoted partial sums, see :mod:`sptc.gemm.group_scales`. M and N may also be
        the numbers of blocks of 128 rows or columns, or 1 if all rows or columns share the scales. A group has 128
        elements if the number of groups fits K. By default, `promote` is the number of instructions of a group, and
        `group_scaling` is ``product, fused``. `scale_a` and `scale_b` of these shapes are group scales, too.
    prune : bool
        Prune the sparse factor to its largest magnitudes first, as ``sptc compress --prune`` does. A dense instruction
        is refused.
    nan : str
        Policy for a NaN in the factors: ``error`` (raise an error), ``keep`` or ``zero`` (replace the NaN by 0).
    numerics : Numerics, optional
        Other numerics of the instruction than those of `arch`, see :func:`sptc.numerics`; for ``golden``
        and ``native``.

    Returns
    -------
    ndarray, shape (..., M, N) or (..., M)
        Product in the numpy type of `result`; in the ``ml_dtypes`` type for bf16, e4m3 and e5m2.

    Raises
    ------
    Error
        A factor is not sparse (the message says where and how often), shapes do not match, there is a NaN, or a type
        matches no format.
    """
    texts = {"format": format, "instruction": instruction, "arch": arch, "accumulate": accumulate, "result": result}
    check_types(way, texts, {"swapped": swapped, "prune": prune, "relu": relu})
    sparse_b = way.swapped if way else swapped
    left, right = as_factor("a", a), as_factor("b", b, transposed=sparse_b)
    words = {
        "split_k": split_k, "order": order, "k_order": k_order, "interleave": interleave, "promote": promote,
        "tile": tile, "cut": cut, "workspace": workspace, "running": running, "swapped": swapped, "rounding": rounding,
        "group_scaling": group_scaling, "scale_order": scale_order, "convert_a": convert_a, "convert_b": convert_b,
    }  # fmt: skip
    if not (way or format or instruction) and not (format := format_of(left, right)):  # noqa: A001
        raise OperandError("the types of a and b do not imply a format: name a format or an instruction")
    scales, vector = block_scales_of(block_scale_a, block_scale_b), len(right.shape) == 1
    if isinstance(right, np.ndarray) and vector:
        right, scales = right[:, None], scales and scales.of_vector()
    shape = _broadcast(left, right)
    complete, k = way, left.shape[-1]
    if scales and format and not (way or instruction):
        formats = in_factor_order(format, swapped)
        instruction = str(scaled_instructions(scales, k, formats, arch, accumulate=accumulate)[0])
    way = way_of(way, words, fmt=format, instruction=instruction, arch=arch, accumulate=accumulate, result=result)
    dtype = result_dtype(way.result)
    check_result(way)
    start = None if c is None or beta is not None else as_array("c", c)
    epilogue = epilogue_of(
        alpha=alpha, beta=beta, c=None if beta is None else c, bias=bias, scale_a=scale_a, scale_b=scale_b, relu=relu
    )
    if vector:
        epilogue, start = epilogue.mapped(along_m), None if start is None else along_m(start)
    # A compressed B is stored as its transpose.
    size = left.shape[-2], right.shape[0 if isinstance(right, Compressed) else -1]
    groups, epilogue = grouped(way, epilogue, group_scale_a, group_scale_b, size, k, start)
    way = grouped_way(way, groups) if complete is None else way
    computes = with_numerics(backend_named(backend), numerics, way.parsed, way.arch)
    i, products = way.parsed, []
    groups = groups.turned() if groups and way.swapped else groups
    for one, other, block_scales in _each(left, right, scales, shape):
        sparse_one, dense_one, names = exchanged(
            way, converted(one, i.a, way.convert_a), converted(other, i.b, way.convert_b)
        )
        sparse = sparse_codes(names[0], sparse_one, i, prune=prune, nan=nan)
        dense = dense_codes(names[1], dense_one, i.b, nan)
        size = (dense.shape[1], len(sparse.codes)) if way.swapped else (len(sparse.codes), dense.shape[1])
        codes_of_scales = None if block_scales is None else block_scales.checked(i, size, sparse.k, swapped=way.swapped)
        operands = factors(sparse, dense, i, codes_of_scales, groups).interleaved(way)
        codes = product(way, operands, computes, *oriented(way, size, epilogue, start))
        products.append(np.ascontiguousarray(codes.T) if way.swapped else codes)
    whole = np.stack(products).reshape(*shape, *products[0].shape).view(dtype)
    return whole[..., 0] if vector else whole


def _broadcast(left: NDArray | Compressed, right: NDArray | Compressed) -> tuple[int, ...]:
    """Return the shape of the batch of matrix products."""
    shapes = [() if isinstance(array, Compressed) else array.shape[:-2] for array in (left, right)]
    for name, array in (("a", left), ("b", right)):
        if len(array.shape) < 2 or 0 in array.shape:
            raise OperandError(f"{name} must be a matrix or a batch of matrices, not of shape {array.shape}")
    try:
        return np.broadcast_shapes(*shapes)
    except (ValueError, RuntimeError):  # numpy raises a RuntimeError for more than 32 axes
        raise OperandError(f"the batch shapes {shapes[0]} of a and {shapes[1]} of b do not broadcast") from None


def _each(
    left: Any, right: Any, scales: BlockScales | None, shape: tuple[int, ...]
) -> Iterator[tuple[Any, Any, BlockScales | None]]:
    """For each matrix product of a batch, yield its left and its right matrix, and their block scales."""
    for name, array in (("a", scales.a), ("b", scales.b)) if scales else ():
        if array.ndim < 2 or not broadcasts(array[..., 0, 0], shape):
            raise OperandError(f"block_scale_{name} of shape {array.shape} does not fit a batch of shape {shape}")

    def of(array: Any, index: tuple[int, ...]) -> Any:
        if isinstance(array, Compressed):
            return array
        return np.broadcast_to(array, (*shape, *array.shape[-2:]))[index]

    for index in np.ndindex(shape):
        of_both = scales and replace(scales, a=of(scales.a, index), b=of(scales.b, index))
        yield of(left, index), of(right, index), of_both
