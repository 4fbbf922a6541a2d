"""Convert Python matrices to operands: codes, metadata and scales for one instruction.

Matrices are numpy arrays, PyTorch tensors or compressed matrices.

The type of an array decides whether it holds codes or numbers. Codes: integers as wide as the format's container, raw
bytes, and the format's own type (float16, the types of ``ml_dtypes``, int8; float32 for tf32, whose low bits the
hardware drops). Arrays of all other types hold numbers, which are rounded to the format, to nearest even.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InstructionError, OperandError
from ..golden.select import kept_rows
from ..isa.formats import Format, Specials
from ..isa.instructions import Instruction
from ..operands.registers import CONTAINERS
from ..tensors.blocks import Progress, check_word, in_float64, native
from ..tensors.compressed import Compressed, SparsityError, check_nibbles
from ..tensors.element_types import TYPE_OF, is_extension, named_dtype
from ..tensors.encode import container_type, decode_codes
from ..tensors.pytorch import array_of, compressed_of, is_semi_structured, is_tensor
from ..tensors.quantise import NAN_POLICIES, quantise
from ..tensors.sparsify import sparsify
from .group_scales import GroupScales
from .ways import Way

__all__ = [
    "FILLING", "Factors", "Sparse", "accumulator_codes", "as_array", "as_factor", "check_matrix", "converted",
    "dense_codes", "exact_product", "exact_values", "factors", "holds_codes", "in_containers", "loses_bits",
    "out_of_containers", "own_format", "sparse_codes", "typed",
]  # fmt: skip

#: Key: type of numpy or ``ml_dtypes``. Value: format of A or B in this type. A and B are never f32 or s32.
_FORMAT_OF = {name: fmt for fmt, name in TYPE_OF.items() if name not in ("float32", "int32")}
#: Metadata nibble for zeros that pad A beyond K; it is legal under every metadata rule and sparsity pattern.
FILLING = 0b0100


@dataclass(frozen=True, eq=False)
class Sparse:
    """The left operand of a matrix product as codes, with its metadata if it is sparse."""

    #: Codes of stored elements as uint8, uint16 or uint32, shape (M, stored K); a dense matrix stores all elements.
    codes: NDArray
    nibbles: NDArray[np.uint8] | None  #: Metadata nibbles, shape (M, nibbles per row); None for a dense matrix
    k: int  #: Number of logical columns, K


@dataclass(frozen=True, eq=False)
class Factors:
    """Both operands of a matrix product as codes, padded with zeros along K to a multiple of an instruction's K."""

    instruction: Instruction
    #: Codes of A and B in containers, shapes (M, stored K) and (K, N).
    a: NDArray
    b: NDArray
    nibbles: NDArray[np.uint8] | None  #: Metadata nibbles of A, shape (M, nibbles per row)
    #: Block scales of A and B, shapes (M, scales) and (N, scales).
    scale_a: NDArray[np.uint8] | None = None
    scale_b: NDArray[np.uint8] | None = None
    groups: GroupScales | None = None  #: Group scales of A and B; None for a matrix product without group scales

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the matrix product, (M, N)."""
        return len(self.a), self.b.shape[1]

    @property
    def count(self) -> int:
        """Number of instructions along K of the matrix product."""
        return len(self.b) // self.instruction.k

    def times_block_scales(
        self, a: NDArray[np.float64], b: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Multiply the elements of both factors, of shapes (M, K) and (K, N), by their block scales."""
        i = self.instruction
        if self.scale_a is None or self.scale_b is None or not i.scale_format or not i.span:
            return a, b
        left, right = (
            decode_codes(np.ascontiguousarray(scales), i.scale_format).repeat(i.span, axis=1)[:, : len(b)]
            for scales in (self.scale_a, self.scale_b)
        )
        return a * left, b * right.T

    def interleaved(self, way: Way) -> "Factors":
        """Return the operands, reordered along K for two instructions that take elements of A and B in turn.

        Two instructions take `way.interleave` bits in turn. The picture shows 32 bits, elements of 16 bits, and a K of
        16:

            element       |  0  1 |  2  3 |  4  5 |  6  7 |  ...  | 28 29 | 30 31 |
            instruction   |   0   |   1   |   0   |   1   |  ...  |   0   |   1   |

        Raise an `OperandError` if the instruction is sparse or has scales, or the number of instructions is odd.
        """
        i = self.instruction
        if not way.interleave:
            return self
        if i.sparse or i.scale_format or self.groups is not None:
            raise OperandError(f"interleave needs a dense instruction and no scales: it does not apply to {i}")
        way.check_interleave(self.count)
        elements, unit = np.arange(len(self.b)), way.interleave // i.a.container_bits
        order = elements.reshape(self.count // 2, -1, 2, unit).swapaxes(1, 2).ravel()
        return replace(self, a=self.a[:, order], b=self.b[order])

    def take(self, rows: slice | NDArray, columns: slice | NDArray) -> "Factors":
        """Return the operands that determine the given rows and columns of the matrix product."""

        def of(array: NDArray | None, where: slice | NDArray) -> NDArray | None:
            return None if array is None else array[where]

        return Factors(
            self.instruction, self.a[rows], self.b[:, columns], of(self.nibbles, rows), of(self.scale_a, rows),
            of(self.scale_b, columns), self.groups and self.groups.take(rows, columns),
        )  # fmt: skip


def as_array(name: str, value: Any) -> NDArray:
    """Return a numpy array in native byte order; copy a PyTorch tensor, which may be on a GPU, to a numpy array.

    Raise an `OperandError` if the value is neither an array nor a tensor.
    """
    if isinstance(value, np.ndarray):
        return native(value)
    if not is_tensor(value):
        raise OperandError(f"{name} must be an array of numpy or a tensor of PyTorch, not {type(value).__name__}")
    return array_of(name, value)


def as_factor(name: str, value: Any, *, transposed: bool = False) -> NDArray | Compressed:
    """Convert a factor to an array as :func:`as_array` does; return a compressed matrix unchanged.

    The factor may also be a ``torch.sparse.SparseSemiStructuredTensor``. With `transposed`, K is the first axis of the
    factor, and a tensor must be compressed along K. For errors see :func:`sptc.tensors.pytorch.compressed_of`.
    """
    if isinstance(value, Compressed):
        return value
    if not is_semi_structured(value):
        return as_array(name, value)
    compressed = compressed_of(name, value, transposed=transposed)
    return compressed.T if transposed and isinstance(compressed, np.ndarray) else compressed


def own_format(array: NDArray) -> str | None:
    """Return the element format that an array's type implies; None if the type implies no format."""
    return _FORMAT_OF.get(array.dtype.name)


def typed_codes(array: NDArray, name: str) -> NDArray:
    """Return uint8 arrays of fp8 codes as values of the ``ml_dtypes`` type; return any other array unchanged."""
    is_fp8 = name in TYPE_OF and TYPE_OF[name].startswith("float8")
    return array.view(named_dtype(TYPE_OF[name])) if is_fp8 and array.dtype == np.uint8 else array


def _codes(array: NDArray, fmt: Format) -> NDArray | None:
    """Return the codes that an array holds; None if the array holds numbers."""
    container = container_type(fmt)
    if own_format(array) == fmt.name:
        is_code = True
    elif fmt.is_integer:  # An array of signed integers holds numbers, an array of unsigned integers holds codes.
        is_code = array.dtype == np.uint8
    else:
        is_code = array.dtype.kind in "iuV" and not is_extension(array.dtype)
        is_code |= array.dtype == np.float32 and fmt.ignored_low_bits > 0
    if not is_code or array.dtype.itemsize != container.itemsize:
        return None
    codes = np.ascontiguousarray(array).view(container)
    return codes & codes.dtype.type((1 << fmt.container_bits) - 1)


def _without_nan(name: str, codes: NDArray, fmt: Format, nan: str) -> NDArray:
    """Apply the caller's policy for NaN to an array of codes."""
    if fmt.specials is Specials.NONE or nan == "keep":
        return codes
    magnitudes = codes & codes.dtype.type((1 << fmt.container_bits - 1) - 1)
    top = ((1 << fmt.exponent_bits) - 1) << fmt.fraction_bits
    largest = top if fmt.specials is Specials.IEEE else (top | (1 << fmt.fraction_bits) - 1) - 1
    missing = magnitudes > largest << fmt.ignored_low_bits
    return _replaced(name, codes, missing, nan)


def _replaced(name: str, array: NDArray, missing: NDArray[np.bool_], nan: str) -> NDArray:
    """Replace every NaN by 0 or raise an error, depending on the caller's policy for NaN."""
    if not missing.any():
        return array
    if nan == "error":
        row, column = (int(index) for index in np.argwhere(missing)[0])
        raise OperandError(f"{name} holds {int(missing.sum())} NaN, the first in row {row}, column {column}")
    return np.where(missing, array.dtype.type(0), array)


def _numbers(name: str, array: NDArray, fmt: Format, nan: str) -> NDArray:
    """Return an array of numbers after checks of its type and range."""
    if is_extension(array.dtype) or (array.dtype.kind == "f" and array.dtype.itemsize <= 8):
        array = _replaced(name, array, np.isnan(array), nan) if nan != "keep" else array
    elif array.dtype.kind not in "iu":
        raise OperandError(f"{name} must hold bit patterns or numbers of {fmt.name}, not values of type {array.dtype}")
    if fmt.is_integer:
        low, high = -(1 << fmt.bits - 1) if fmt.signed else 0, (1 << fmt.bits - fmt.signed) - 1
        wrong = ~((array >= low) & (array <= high)) | (np.trunc(array) != array)
        if wrong.any():
            row, column = (int(index) for index in np.argwhere(wrong)[0])
            raise OperandError(
                f"{name} must hold integers from {low} to {high}, the range of {fmt.name}, not {array[row, column]} in "
                f"row {row}, column {column}"
            )
        return array.astype(np.int32)
    return array.astype(np.float64) if array.dtype.kind in "iu" else array


def _rounded(numbers: NDArray, fmt: Format, nan: str) -> NDArray:
    if fmt.is_integer:
        return (numbers.astype(np.int64) & ((1 << fmt.bits) - 1)).astype(np.uint8)
    return quantise(numbers, fmt, nan=nan).codes


def check_matrix(name: str, array: NDArray, nan: str) -> None:
    """Check that an array is a matrix, and that the named policy for NaN exists."""
    if array.ndim != 2 or not array.size:
        raise OperandError(f"{name} must be a matrix with at least one element, not of shape {array.shape}")
    check_word("the policy for NaN", nan, NAN_POLICIES)


def converted(value: Any, fmt: Format, conversion: str) -> Any:
    """Return a factor with f32 numbers rounded to tf32, as some kernels do before the instruction.

    A factor is returned unchanged unless `fmt` is tf32 and the factor holds float32 or codes of 32 bits; `conversion`
    is one of :data:`~sptc.gemm.ways.CONVERSIONS`. Source: PTX ISA, ``cvt.rna.tf32.f32`` and ``cvt.rn.tf32.f32``. A NaN
    stays as it is.
    """
    if not conversion or fmt.name != "tf32":
        return value
    if isinstance(value, Compressed):
        return replace(value, stored=converted(value.stored, fmt, conversion))
    if (codes := _codes(value, fmt)) is None:
        return value
    ulp = np.uint32(1 << fmt.ignored_low_bits)
    half = ulp >> 1 if conversion == "cvt.rna" else (ulp >> 1) - 1 + (codes // ulp & 1)
    is_nan = codes & np.uint32(0x7FFFFFFF) > 0x7F800000
    return np.where(is_nan, codes, codes + half & ~(ulp - np.uint32(1))).view(value.dtype)


def loses_bits(array: NDArray, fmt: Format) -> bool:
    """Return whether a matrix of float32 or of 32-bit codes has nonzero bits that tf32 drops."""
    codes = _codes(array, fmt) if fmt.name == "tf32" else None
    if codes is None:
        return False
    return bool((codes & np.uint32((1 << fmt.ignored_low_bits) - 1) != 0).any())


def dense_codes(name: str, array: NDArray, fmt: Format, nan: str = "error") -> NDArray:
    """Return the codes of a matrix. Numbers are rounded to the format, codes are kept. Error messages call it `name`.

    `nan` is the policy for NaN, one of :data:`sptc.tensors.quantise.NAN_POLICIES`. Raise an `OperandError` if the shape
    or type is wrong, the policy refuses a NaN, or a number for an integer format is not an integer in its range.
    """
    check_matrix(name, array, nan)
    codes = _codes(array, fmt)
    if codes is not None:
        return _without_nan(name, codes, fmt, nan)
    return _rounded(_numbers(name, array, fmt, nan), fmt, nan)


def sparse_codes(
    name: str,
    value: NDArray | Compressed,
    i: Instruction,
    *,
    prune: bool = False,
    nan: str = "error",
    producer: str = "pytorch",
    progress: Progress | None = None,
) -> Sparse:
    """Return the codes of the left matrix of a product, and its metadata in the sparsity structure of an instruction.

    A dense instruction has no metadata. For the options see :func:`dense_codes` and
    :func:`sptc.tensors.sparsify.sparsify`, also for errors; raise an `OperandError` if the matrix is compressed for
    another sparsity structure, or is to be pruned for a dense instruction.
    """
    granularity = i.granularity
    if isinstance(value, Compressed):
        if granularity is None or value.granularity != granularity:
            expected = f"a matrix compressed to {granularity.name}" if granularity else "a dense matrix"
            raise OperandError(f"{i} needs {expected}, not a matrix compressed to {value.granularity.name}")
        assert i.rule
        check_nibbles(value, i.rule.name)
        return Sparse(dense_codes(name, value.stored, i.a, nan), value.nibbles, value.shape[1])
    if granularity is None:
        if prune:
            raise OperandError(f"prune needs a sparse instruction, but {i} is dense")
        return Sparse(dense_codes(name, value, i.a, nan), None, value.shape[1])
    check_matrix(name, value, nan)
    codes, k = _codes(value, i.a), value.shape[1]
    if codes is None:
        compared = _numbers(name, value, i.a, nan)
    else:
        codes = _without_nan(name, codes, i.a, nan)
        compared = _magnitudes(codes, i.a)
    missing = -k % granularity.logical
    if missing:
        compared = np.pad(compared, ((0, 0), (0, missing)))
    try:
        compressed = sparsify(compared, granularity, prune=prune, producer=producer, progress=progress)
    except SparsityError as error:
        raise error.with_hint("for a dense matrix, name a dense instruction") from None
    if codes is None:
        return Sparse(_rounded(compressed.stored, i.a, nan), compressed.nibbles, k)
    codes = np.pad(codes, ((0, 0), (0, missing))) if missing else codes
    stored = np.take_along_axis(codes, kept_rows(compressed.nibbles, granularity), 1)
    return Sparse(stored, compressed.nibbles, k)


def _magnitudes(codes: NDArray, fmt: Format) -> NDArray:
    """Return integers that sort like the magnitudes of the codes' values; the integer for a value of zero is 0."""
    if fmt.is_integer:
        numbers = codes.astype(np.int64)
        return np.abs(numbers - ((numbers >> fmt.bits - 1 & fmt.signed) << fmt.bits)).astype(np.int32)
    dropped = codes >> codes.dtype.type(fmt.ignored_low_bits)
    return (dropped & codes.dtype.type((1 << fmt.bits - 1) - 1)).astype(np.int32)


def factors(
    a: Sparse,
    b: NDArray,
    i: Instruction,
    scales: tuple[NDArray[np.uint8], NDArray[np.uint8]] | None = None,
    groups: GroupScales | None = None,
) -> Factors:
    """Return the operands of an instruction, padded with zeros along K to whole instructions.

    `b` holds codes, shape (K, N); `scales` are the block scales of the rows of A and of the columns of B, if the
    instruction has them. Raise an `OperandError` if K of the operands differs, and an `InstructionError` if block
    scales are missing.
    """
    if i.scale_size and scales is None:
        raise InstructionError(f"{i} needs block scales, but none are given")
    if a.k != len(b):
        raise OperandError(f"A has {a.k} columns and B {len(b)} rows: they have no common K")
    count = -(-a.k // i.k)
    container = CONTAINERS[max(8, i.container_bits)]

    def filled(codes: NDArray, width: int, fmt: Format) -> NDArray:
        whole = np.zeros((len(codes), width), container)
        whole[:, : codes.shape[1]] = in_containers(codes, i, fmt)
        return whole

    nibbles = None
    if a.nibbles is not None:
        nibbles = np.full((len(a.codes), count * i.chunks), FILLING, np.uint8)
        nibbles[:, : a.nibbles.shape[1]] = a.nibbles
    right = np.ascontiguousarray(filled(b.T, count * i.k, i.b).T)
    padded_scales = [
        np.pad(one, ((0, 0), (0, count * (i.scale_size or 0) - one.shape[1]))) for one in scales or ()
    ]  # Padding elements are zero, so their block scales do not affect the product.
    scale_a, scale_b = padded_scales or (None, None)
    return Factors(i, filled(a.codes, count * i.stored_k, i.a), right, nibbles, scale_a, scale_b, groups)


def holds_codes(array: NDArray, fmt: Format) -> bool:
    """Return whether an array holds codes of a format as integers or raw bytes."""
    return array.dtype.kind in "iuV" and not is_extension(array.dtype) and _codes(array[:0], fmt) is not None


def exact_values(array: NDArray, fmt: Format) -> NDArray[np.float64]:
    """Return the numbers of a matrix: its elements, or the values of its codes."""
    codes = _codes(array, fmt) if holds_codes(array, fmt) else None
    return in_float64(array) if codes is None else decode_codes(codes, fmt)


def exact_product(factors: Factors) -> NDArray[np.float64]:
    """Return the product of the operands in float64, with their block scales and group scales."""
    i = factors.instruction

    def values(codes: NDArray, fmt: Format) -> NDArray[np.float64]:
        return decode_codes(codes >> codes.dtype.type(i.low_bit(fmt) - fmt.ignored_low_bits), fmt)

    a, b = values(factors.a, i.a), values(factors.b, i.b)
    if factors.nibbles is not None:
        assert i.granularity
        stored, a = a, np.zeros((len(a), len(b)))
        np.put_along_axis(a, kept_rows(np.asarray(factors.nibbles), i.granularity), stored, axis=1)
    a, b = factors.times_block_scales(a, b)
    return a @ b if factors.groups is None else factors.groups.product(a, b)


def in_containers(codes: NDArray, i: Instruction, fmt: Format) -> NDArray:
    """Place codes of A or B in the element containers (8, 16 or 32 bits) of an instruction; other bits are zero."""
    return codes.astype(CONTAINERS[max(8, i.container_bits)]) << (i.low_bit(fmt) - fmt.ignored_low_bits)


def out_of_containers(codes: NDArray, i: Instruction, fmt: Format) -> NDArray:
    """Extract codes of A or B from the element containers of an instruction, the inverse of :func:`in_containers`."""
    return codes >> (i.low_bit(fmt) - fmt.ignored_low_bits) & codes.dtype.type((1 << fmt.container_bits) - 1)


def typed(codes: NDArray, fmt: Format) -> NDArray:
    """Return codes of a format as an array in the numpy or ``ml_dtypes`` type of this format.

    Raise a `FileError` if the type is a type of ``ml_dtypes``, and this package is not installed.
    """
    return np.ascontiguousarray(codes).view(named_dtype(TYPE_OF[fmt.name]))


def accumulator_codes(c: NDArray, i: Instruction) -> NDArray:
    """Return the codes of an accumulator from numbers or codes of its type; raise an `OperandError` for other types."""
    own, container = np.dtype(TYPE_OF[i.c.name]), CONTAINERS[i.c.bits]
    if c.dtype not in (own, container):
        raise OperandError(f"c must hold {i.c.name}, as {own} or as codes in {container}, not {c.dtype}")
    return np.ascontiguousarray(c).view(container)
