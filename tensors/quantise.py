"""Quantise numbers to codes: casts with round to nearest even, and block-scaled and integer recipes."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..errors import OperandError, shown
from ..isa.formats import FORMATS, Format
from .blocks import Progress, check_flag, check_matrix, check_word, in_float64, place, row_blocks
from .encode import container_type, decode_codes, encode

__all__ = ["NAN_POLICIES", "RECIPES", "Quantised", "Recipe", "quantise"]

NAN_POLICIES = ("error", "keep", "zero")


@dataclass(frozen=True)
class Recipe:
    """Quantisation recipe: how the scales of a matrix are chosen before its elements are converted."""

    elements: tuple[str, ...] = ()  #: Element formats that the recipe supports, or empty if it supports all
    block: int | None = None  #: Number of consecutive elements of a row that share a scale.
    scale: str | None = None  #: Number format of the block scales.


RECIPES = {
    # Elements are rounded to floats (IEEE 754, round to nearest even). For integers, all elements are first divided by
    # one scale: the largest magnitude / the largest code.
    "plain": Recipe(),
    # Scale of a block: 2**(floor(log2(largest magnitude)) - largest exponent of the format). Source: OCP Microscaling
    # Formats v1.0, 6.3.
    "mx": Recipe(("e4m3", "e5m2", "e3m2", "e2m3", "e2m1"), 32, "ue8m0"),
    # Scale of a block: largest magnitude / 6 / tensor scale; the tensor scale is the largest magnitude of the matrix /
    # (6 * 448). Source: NVIDIA Transformer Engine and TensorRT Model Optimizer.
    "nvfp4": Recipe(("e2m1",), 16, "ue4m3"),
    # Symmetric integers of compressed-tensors. A scale is for a group of 128 elements (64 stored values of 2:4) or
    # for a channel. The scale is the largest magnitude divided by 7.5 for s4, and by 127.5 for s8.
    "group": Recipe(("s8", "s4"), 64, "f16"),
    "channel": Recipe(("s8", "s4"), None, "f16"),
}


@dataclass(frozen=True, eq=False)
class Quantised:
    """A quantised matrix: codes of its elements, and scales."""

    #: Codes of the elements, each in the low bits of a uint8, uint16 or uint32, shape (rows, columns). Codes of tf32
    #: are float32 codes whose low 13 bits are zero.
    codes: NDArray
    format: Format  #: Number format of the elements
    #: Codes of the block scales as uint8, or uint16 for f16, shape (rows, blocks).
    scales: NDArray | None = None
    scale_format: Format | None = None
    block: int | None = None  #: Number of elements that share a scale. The last block of a row may be shorter.
    tensor_scale: float | None = None  #: Scale of the whole matrix, a float32 value

    def dequantise(self, dtype: type = np.float32) -> NDArray:
        """Return the dequantised values of the matrix, computed in float64 and rounded to `dtype`, a type of floats.

        Raise an `OperandError` if `dtype` is another type, or no type.
        """
        try:
            name = np.dtype(dtype).name
        except (TypeError, ValueError, SyntaxError):
            name = ""
        if "float" not in name:
            raise OperandError(f"dtype must be a type of floats, such as numpy.float32, not {shown(dtype)}")
        values: NDArray = np.empty(self.codes.shape, dtype)
        for rows in row_blocks(self.codes.shape):
            exact = decode_codes(self.codes[rows], self.format)
            if self.scales is not None:
                assert self.block
                assert self.scale_format
                scales = decode_codes(self.scales[rows], self.scale_format)
                exact *= scales.repeat(self.block, axis=1)[:, : exact.shape[1]]
            if self.tensor_scale is not None:
                exact *= self.tensor_scale
            with np.errstate(over="ignore", under="ignore"):
                values[rows] = exact
        return values


def quantise(
    values: NDArray,
    fmt: Format | str,
    *,
    recipe: str = "plain",
    saturate: bool = True,
    nan: str = "error",
    block: int | None = None,
    progress: Progress | None = None,
) -> Quantised:
    """Quantise a matrix: return codes of its elements in a number format, and the scales that the recipe determines.

    Parameters
    ----------
    values : ndarray, shape (rows, columns)
        Floats or integers, as :func:`sptc.tensors.sparsify.sparsify` takes them.
    fmt : Format or str
        Format of the elements, or its PTX name.
    recipe : str
        Key of :data:`RECIPES`, where the scale of each recipe is stated: ``plain`` (a cast; one scale for integers),
        ``mx`` (OCP Microscaling Formats v1.0, 6.3), ``nvfp4`` (NVIDIA Transformer Engine), ``group`` or ``channel``
        (integers of compressed-tensors). For a sparse instruction, the blocks of ``mx`` and ``nvfp4`` consist of
        *stored* elements: 32 stored elements are 64 logical columns (PTX ISA 9.7.14.3).
    saturate : bool
        True: an overflow, including infinity, becomes the largest finite number, and a negative value becomes 0 in an
        unsigned format. False: an overflow becomes the infinity of the format, or its NaN if it has no infinity; it is
        an error if the format has neither. Block-scaled recipes always saturate.
    nan : str
        Conversion of a NaN. ``error``: raise an error. ``keep``: the format's positive quiet NaN, or an error if it has
        none. ``zero``: zero. In a block-scaled recipe infinities count as NaN, and ``keep`` makes the scale of the
        block NaN.
    block : int, optional
        Number of elements per scale (default: block size of the recipe).
    progress : Progress, optional
        Called after every block of rows.

    Returns
    -------
    Quantised

    Raises
    ------
    OperandError
        A name is unknown, the recipe does not support the format, or the policy for overflow or NaN refuses a value;
        the message then gives its row and column.

    Notes
    -----
    A value is rounded once, from float64. A scale of the whole matrix (``nvfp4``; integers by ``plain``) is a float32
    number. Quotients are computed in float64. A block of zeros has the smallest scale, 2**-127 or 0.
    """
    if not isinstance(fmt, Format):
        check_word("the format", fmt, FORMATS)
        fmt = FORMATS[fmt]
    check_word("the recipe", recipe, RECIPES)
    check_flag("saturate", saturate)
    chosen = RECIPES[recipe]
    if chosen.elements and fmt.name not in chosen.elements:
        raise OperandError(f"the quantisation recipe {recipe} supports {', '.join(chosen.elements)}, not {fmt.name}")
    if chosen.scale and not saturate:
        raise OperandError(f"the quantisation recipe {recipe} always saturates; saturation cannot be turned off")
    check_word("the policy for NaN", nan, NAN_POLICIES)
    if block is not None:
        if not chosen.block or not isinstance(block, (int, np.integer)) or block < 1:
            raise OperandError(f"the quantisation recipe {recipe} does not accept the block size {shown(block)}")
        chosen = replace(chosen, block=block)
    check_matrix(values)
    if chosen.scale:
        return _scaled(values, fmt, chosen, nan, progress)
    scale = _tensor_scale(_largest(values, nan, finite=False), fmt.maximum) if fmt.is_integer else None
    codes = np.empty(values.shape, container_type(fmt))
    for rows in row_blocks(values.shape, progress):
        exact = _block_of(values, rows, nan, finite=False)
        codes[rows] = encode(exact if scale is None else exact / scale, fmt, saturate=saturate, first_row=rows.start)
    return Quantised(codes, fmt, tensor_scale=scale)


def _block_of(values: NDArray, rows: slice, nan: str, *, finite: bool) -> NDArray[np.float64]:
    """Return rows in float64 after applying the NaN policy; with `finite`, the policy also applies to infinities."""
    exact = in_float64(values[rows])
    bad = ~np.isfinite(exact) if finite else np.isnan(exact)
    if nan != "keep" and bad.any():
        if nan == "error":
            row, column = place(bad, rows)
            raise OperandError(f"{exact[bad][0]} cannot be quantised: row {row}, column {column}")
        exact[bad] = 0
    return exact


def _largest(values: NDArray, nan: str, *, finite: bool) -> float:
    """Return the largest finite magnitude of a matrix."""
    largest = 0.0
    for rows in row_blocks(values.shape):
        magnitudes = np.abs(_block_of(values, rows, nan, finite=finite))
        largest = max(largest, float(magnitudes.max(initial=0, where=np.isfinite(magnitudes))))
    return largest


def _tensor_scale(largest: float, divisor: float) -> float:
    """Return the scale of a whole matrix as a float32 value, or 1 for a matrix of zeros."""
    if not largest:
        return 1.0
    with np.errstate(over="ignore", under="ignore"):
        scale = float(np.float32(largest / divisor))
    if not 0 < scale < np.inf:
        raise OperandError(f"the scale of a matrix with largest magnitude {largest:g} exceeds the range of float32")
    return scale


def _scaled(values: NDArray, fmt: Format, recipe: Recipe, nan: str, progress: Progress | None) -> Quantised:
    assert recipe.scale
    (rows, columns), scale_format = values.shape, FORMATS[recipe.scale]
    block = recipe.block or columns
    blocks = -(-columns // block)
    # The scales of `mx` are ue8m0, those of `nvfp4` ue4m3, and those of the integer recipes f16.
    divisor = {"ue8m0": 2.0**fmt.maximum_exponent, "ue4m3": fmt.maximum}.get(recipe.scale, fmt.maximum + 0.5)
    tensor_scale = None
    if recipe.scale == "ue4m3":
        tensor_scale = _tensor_scale(_largest(values, nan, finite=True), fmt.maximum * scale_format.maximum)
    matrix_scale = 1.0 if tensor_scale is None else tensor_scale
    rounding = "RZ" if recipe.scale == "ue8m0" else "RNE"
    not_a_number = (1 << scale_format.bits) - 1
    codes = np.empty(values.shape, np.uint8)
    scales = np.empty((rows, blocks), container_type(scale_format))
    for part in row_blocks(values.shape, progress):
        exact = _block_of(values, part, nan, finite=True)
        padded = np.pad(exact, ((0, 0), (0, blocks * block - columns))).reshape(len(exact), blocks, -1)
        bad = ~np.isfinite(padded).all(-1)
        padded[bad] = 0
        largest = np.abs(padded).max(-1)
        block_scales = encode(largest / divisor / matrix_scale, scale_format, saturate=True, rounding=rounding)
        factor = decode_codes(block_scales, scale_format) * matrix_scale
        # A block whose scale is rounded to zero can only represent zeros.
        zero = factor == 0
        quotient = np.where(zero, 0, padded.transpose(2, 0, 1)) / np.where(zero, 1, factor)
        codes[part] = encode(quotient.transpose(1, 2, 0).reshape(len(exact), -1)[:, :columns], fmt, saturate=True)
        scales[part] = np.where(bad, not_a_number, block_scales)
    return Quantised(codes, fmt, scales, scale_format, block, tensor_scale)
