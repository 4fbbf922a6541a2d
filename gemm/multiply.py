"""``sptc.gemm``: matrix products from Python, by a way to sum that the caller names."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..api.backends import backend as backend_named
from ..errors import OperandError
from ..golden.registers import CONTAINERS
from ..isa.architectures import require_target, same_numerics
from ..isa.formats import FORMATS
from ..isa.instructions import Instruction
from ..tensors.compressed import Compressed
from .choice import instructions_for
from .epilogue import Epilogue, check_shape, result_dtype
from .matrices import as_array, dense_codes, factors, own_format, sparse_codes
from .sums import check_result, product
from .ways import Way, instruction_named

__all__ = ["along_m", "chosen", "epilogue_of", "gemm"]

#: Words of a way that leave it one chain along K.
_PLAIN = (1, "in order", "ascending", 0, False)

#: Words of a way that leave it one chain along K.
_PLAIN = (1, "in order", "ascending", 0, False)


def gemm(
    a: Any,
    b: Any,
    c: Any = None,
    *,
    format: str | None = None,  # noqa: A002 - the word of the command line
    instruction: str | None = None,
    arch: str = "sm_90",
    backend: str = "golden",
    split_k: int | tuple[int, ...] = 1,
    order: str = "in order",
    k_order: str = "ascending",
    promote: int = 0,
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
    prune: bool = False,
    nan: str = "error",
) -> NDArray:
    """Multiply a structured-sparse matrix with a dense one, bit for bit as a kernel that sums in a known way.

    Parameters
    ----------
    a : array, tensor or Compressed, shape (..., M, K)
        Structured-sparse, given dense, or compressed. Arrays of numpy and tensors of PyTorch hold codes or numbers, see
        :mod:`sptc.gemm.matrices`. With a dense instruction any matrix.
    b : array or tensor, shape (..., K, N) or (K,)
        The dense factor. Leading axes are a batch, and broadcast.
    c : array or tensor, optional
        Accumulator from which the first chain begins, as of an instruction; or with `beta`, what is added at the end.
    format : str, optional
        Format of both factors; by default that of the instruction, or of the types of the arrays.
    instruction : str, optional
        What multiplies, as PTX spells it; by default what a library would use, see
        :func:`sptc.gemm.choice.instructions_for`.
    arch, backend : str
        Architecture whose numerics apply, and who computes; ``native`` is the fastest.
    split_k, order, k_order, promote, result, rounding, swapped
        As of :class:`~sptc.gemm.ways.Way`. With `swapped`, `b` is the sparse factor. The result is by default f32, of
        integers s32.
    accumulate : str, optional
        Accumulator type of the instruction that is chosen: f32, f16 or s32.
    way : Way, optional
        Instead of `instruction`, `arch` and the words of the way, as :func:`sptc.identify` found it.
    alpha, beta, bias, scale_a, scale_b, relu
        As of :class:`~sptc.gemm.epilogue.Epilogue`; arrays broadcast to (M, N), or with a vector are of shape (M,).
    prune : bool
        Prune the sparse factor to its largest magnitudes first, as ``sptc compress --prune`` does.
    nan : str
        What a NaN of the factors becomes: ``error``, ``keep`` or ``zero``.

    Returns
    -------
    ndarray, shape (..., M, N) or (..., M)
        Of the type of the result: of numpy, or of ``ml_dtypes`` for bf16, e4m3 and e5m2.

    Raises
    ------
    Error
        One sentence on what is wrong: a factor that is not sparse (where, and how often), shapes that do not meet, a
        NaN, a type that fits no format.
    """
    left = a if isinstance(a, Compressed) else as_array("a", a)
    right = b if isinstance(b, Compressed) else as_array("b", b)
    if way is None:
        fmt = format or (None if instruction else _format_of(left, right))
        i = chosen(fmt, instruction, arch, accumulate=accumulate)
        way = Way(
            instruction=str(i), arch=same_numerics(arch), split_k=split_k, order=order, k_order=k_order,
            promote=promote, swapped=swapped, result=result or ("s32" if i.d.is_integer else "f32"), rounding=rounding,
        )  # fmt: skip
    elif instruction or accumulate or (split_k, order, k_order, promote, swapped) != _PLAIN:
        raise OperandError("a way says how it is summed: give no other word for it")
    elif result and result != way.result:
        way = replace(way, result=result)
    dtype = result_dtype(way.result)
    check_result(way)
    vector = len(right.shape) == 1
    if isinstance(right, np.ndarray) and vector:
        right = right[:, None]
    shape = _broadcast(left, right)
    start = None if c is None or beta is not None else as_array("c", c)
    epilogue = epilogue_of(
        alpha=alpha, beta=beta, c=None if beta is None else c, bias=bias, scale_a=scale_a, scale_b=scale_b, relu=relu
    )
    if vector:
        epilogue, start = epilogue.mapped(along_m), None if start is None else along_m(start)
    computes, found = backend_named(backend), []
    for one, other in _each(left, right, shape):
        found.append(_one(one, other, way, computes, epilogue, start, prune, nan))
    whole = np.stack(found).reshape(*shape, *found[0].shape).view(dtype)
    return whole[..., 0] if vector else whole


def chosen(
    fmt: str | None, instruction: str | None, arch: str, *, dense: bool = False, accumulate: str | None = None
) -> Instruction:
    """Return the instruction that a caller asks for, by its text or by what it is for."""
    if instruction is None:
        assert fmt
        i = instructions_for(fmt, same_numerics(arch), dense=dense, accumulate=accumulate)[0]
        require_target(i, arch)
        return i
    i = instruction_named(instruction, same_numerics(arch))
    require_target(i, arch)
    if fmt and fmt not in (i.a.name, i.b.name):
        raise OperandError(f"{i} multiplies {i.a.name} with {i.b.name}, not {fmt}")
    if accumulate and accumulate != i.d.name:
        raise OperandError(f"{i} accumulates in {i.d.name}, not {accumulate}")
    if i.c is not i.d:
        raise OperandError(f"{i} makes {i.d.name} of an accumulator of {i.c.name}: it is no chain")
    return i


def epilogue_of(
    *,
    alpha: float = 1.0,
    beta: float | None = None,
    c: Any = None,
    bias: Any = None,
    scale_a: Any = None,
    scale_b: Any = None,
    relu: bool = False,
) -> Epilogue:
    """Return an epilogue of arrays or tensors of any floats.

    Raises
    ------
    OperandError
        An array holds no numbers, or `beta` has no C.
    """
    if beta is not None and c is None:
        raise OperandError("beta is a factor of c, which is missing")
    arrays = {
        name: None if value is None else _floats(name, value)
        for name, value in (("c", c), ("bias", bias), ("scale_a", scale_a), ("scale_b", scale_b))
    }
    return Epilogue(alpha=alpha, beta=1.0 if beta is None else beta, relu=relu, **arrays)


def along_m(addend: NDArray) -> NDArray:
    """Return what is added to a product with a vector, of which the only axis is along M."""
    return addend[:, None] if addend.ndim == 1 else addend


def _floats(name: str, value: Any) -> NDArray[np.float32]:
    array = np.asarray(value) if isinstance(value, (int, float, np.generic)) else as_array(name, value)
    if array.dtype.kind not in "fiu" and array.dtype.type.__module__ != "ml_dtypes":
        raise OperandError(f"{name} must hold numbers, not {array.dtype}")
    with np.errstate(over="ignore", invalid="ignore"):
        return array.astype(np.float32)


def _format_of(left: NDArray | Compressed, right: NDArray | Compressed) -> str:
    for array in (left, right):
        name = own_format(array.stored if isinstance(array, Compressed) else array)
        if name and name != "u8":  # which also holds codes of every narrow format
            return name
    raise OperandError("the types of a and b leave their format open: name a format or an instruction")


def _broadcast(left: NDArray | Compressed, right: NDArray | Compressed) -> tuple[int, ...]:
    """Return the shape of the batch."""
    shapes = [() if isinstance(array, Compressed) else array.shape[:-2] for array in (left, right)]
    for name, array in (("a", left), ("b", right)):
        if len(array.shape) < 2 or 0 in array.shape:
            raise OperandError(f"{name} must be a matrix, or a batch of them, not of shape {array.shape}")
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise OperandError(f"the batches of a {shapes[0]} and b {shapes[1]} do not broadcast") from None


def _each(left: Any, right: Any, shape: tuple[int, ...]) -> Iterator[tuple[Any, Any]]:
    """Yield the factors of every product of a batch."""

    def of(array: Any, index: tuple[int, ...]) -> Any:
        if isinstance(array, Compressed):
            return array
        return np.broadcast_to(array, (*shape, *array.shape[-2:]))[index]

    for index in np.ndindex(shape):
        yield of(left, index), of(right, index)


def _one(
    left: Any, right: Any, way: Way, computes: Any, epilogue: Epilogue, start: NDArray | None, prune: bool, nan: str
) -> NDArray:
    """Return the codes of one product."""
    i, names = way.parsed, ("a", "b")
    if way.swapped:
        left, right, names = _transposed(right), _transposed(left), ("b", "a")
    if isinstance(right, Compressed):
        raise OperandError(f"{names[1]} is the dense factor and cannot be compressed")
    sparse = sparse_codes(names[0], left, i, prune=prune, nan=nan)
    of_both = factors(sparse, dense_codes(names[1], right, i.b, nan), i)
    shape = of_both.shape[::-1] if way.swapped else of_both.shape
    epilogue.check(shape)
    if start is not None:
        check_shape("c", start, shape)
        start = np.broadcast_to(_accumulator(start, i), shape)
    if way.swapped:
        start = None if start is None else start.T
        epilogue = epilogue.turned(shape)
    codes = product(way, of_both, computes, epilogue, start)
    return np.ascontiguousarray(codes.T) if way.swapped else codes


def _transposed(factor: Any) -> Any:
    """Return the transpose of a dense factor; a compressed one is compressed along K, whichever it is."""
    return factor if isinstance(factor, Compressed) else factor.T


def _accumulator(c: NDArray, i: Instruction) -> NDArray:
    """Return the codes of an accumulator, which must be numbers or codes of the instruction's type."""
    container, fmt = CONTAINERS[i.c.bits], FORMATS[i.c.name]
    own = {"f32": np.float32, "f16": np.float16, "s32": np.int32}[fmt.name]
    if c.dtype not in (own, container):
        raise OperandError(f"c must be {fmt.name}, {np.dtype(own)} or codes in {container}, not {c.dtype}")
    return np.ascontiguousarray(c).view(container)
