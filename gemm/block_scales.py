"""Convert block scales given in Python to codes, and find the instructions that accept these block scales.

Block scales are codes, either in the ``ml_dtypes`` type of their format or as bytes in the instruction's scale format,
or floats that the instruction's scale format represents exactly. The caller passes matrix elements that are not
multiplied by their scales.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InstructionError, OperandError
from ..isa.architectures import same_numerics
from ..isa.formats import FORMATS
from ..isa.instructions import Instruction
from ..tensors.encode import decode_codes, encode
from .choice import instructions_for
from .matrices import as_array

__all__ = ["BlockScales", "block_scales_of", "scaled_instructions"]

#: Key: name of a type in ``ml_dtypes``. Value: name of the block-scale format that this type holds.
_FORMAT_OF = {"float8_e8m0fnu": "ue8m0", "float8_e4m3fn": "ue4m3"}


@dataclass(frozen=True, eq=False)
class BlockScales:
    """Block scales of both factors, A and B, of a matrix product."""

    #: Block scales as codes (uint8) or values (float64), shapes (..., M, blocks) and (..., N, blocks). A block consists
    #: of the elements along K that share a scale.
    a: NDArray
    b: NDArray
    format: str | None  #: Format of the scale codes; None if the scales are plain bytes or values

    def formats(self) -> tuple[str, ...]:
        """Return the formats that the block scales may have. Plain bytes may have any scale format."""
        if self.format:
            return (self.format,)
        names, arrays = _FORMAT_OF.values(), (self.a, self.b)
        return tuple(name for name in names if all(_encoded(array, name) is not None for array in arrays))

    def of_vector(self) -> "BlockScales":
        """Return the block scales for a vector B that is multiplied as a matrix of one column."""
        return replace(self, b=self.b[..., None, :])

    def checked(
        self, i: Instruction, shape: tuple[int, int], k: int, *, swapped: bool
    ) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """Return the codes of the block scales for the left and the right operand of an instruction.

        `shape` is M and N; with `swapped`, the left operand is B. Raise an `OperandError` if the instruction has no
        block scales, or if the scales do not have the format, the shape or the values that the instruction needs.
        """
        if i.span is None or i.scale_format is None:
            raise OperandError(f"{i} does not accept block scales")
        if self.format not in (None, i.scale_format.name):
            raise OperandError(f"{i} has block scales of {i.scale_format.name}, not {self.format}")
        blocks = -(-k // i.span)
        for name, scales, lines in (("a", self.a, shape[0]), ("b", self.b, shape[1])):
            if scales.shape != (lines, blocks):
                raise OperandError(
                    f"block_scale_{name} must be of shape ({lines}, {blocks}), one scale for {i.span} elements along "
                    f"K, not {scales.shape}"
                )
        a, b = (_encoded(scales, i.scale_format.name) for scales in (self.a, self.b))
        if a is None or b is None:
            name = "a" if a is None else "b"
            raise OperandError(f"block_scale_{name} holds values that {i.scale_format.name} cannot represent")
        return (b, a) if swapped else (a, b)


def _encoded(values: NDArray, fmt: str) -> NDArray[np.uint8] | None:
    """Return the codes of scales given as codes or as positive values; None if the format cannot represent a value."""
    if values.dtype == np.uint8:
        return values
    codes = encode(values, FORMATS[fmt], saturate=False).astype(np.uint8)
    return codes if (decode_codes(codes, FORMATS[fmt]) == values).all() else None


def block_scales_of(block_scale_a: Any, block_scale_b: Any) -> BlockScales | None:
    """Return the block scales that the caller gives for both factors; None if the caller gives none.

    Raise an `OperandError` if only one factor has scales, scales are neither codes nor floats, or the formats of the
    scales of A and B differ.
    """
    if block_scale_a is None and block_scale_b is None:
        return None
    if block_scale_a is None or block_scale_b is None:
        missing = "a" if block_scale_a is None else "b"
        raise OperandError(f"block_scale_{missing} is missing: give block scales of both factors or of neither")
    codes, formats = [], set()
    for name, value in (("block_scale_a", block_scale_a), ("block_scale_b", block_scale_b)):
        array = as_array(name, value)
        if array.dtype.kind == "f" and array.ndim and array.size:
            codes.append(array.astype(np.float64))
            continue
        raw = array.dtype == np.uint8 or (array.dtype.kind == "V" and array.dtype.itemsize == 1)
        if not (raw or array.dtype.name in _FORMAT_OF) or array.ndim < 1 or not array.size:
            types = ", ".join(_FORMAT_OF)
            raise OperandError(
                f"{name} must hold codes ({types} or uint8) or floats, not {array.dtype} of shape {array.shape}"
            )
        formats |= {_FORMAT_OF[array.dtype.name]} if array.dtype.name in _FORMAT_OF else set()
        codes.append(np.ascontiguousarray(array).view(np.uint8))
    if len(formats) > 1:
        raise OperandError(
            f"block_scale_a and block_scale_b must have the same format, not {' and '.join(sorted(formats))}"
        )
    return BlockScales(codes[0], codes[1], next(iter(formats), None))


def scaled_instructions(
    scales: BlockScales, k: int, fmt: str, arch: str, *, dense: bool = False, accumulate: str | None = None
) -> tuple[Instruction, ...]:
    """Return the instructions that accept the given block scales. A library would most likely use the first of them.

    The number of scales and K give the block length. All returned instructions have the sparsity structure of the first
    one. For the parameters `fmt`, `arch`, `dense` and `accumulate` see :func:`sptc.gemm.choice.instructions_for`. Raise
    an `InstructionError` or `OperandError` if there is no such instruction, format or architecture, or the format of
    the scales is ambiguous.
    """
    is_fp4, are_codes = fmt in ("e2m1", "e2m1,e2m1"), scales.a.dtype == scales.b.dtype == np.uint8
    if scales.format is None and is_fp4 and are_codes:
        raise OperandError(
            "block scales of e2m1 may be ue8m0 or ue4m3: pass them in an ml_dtypes type, or name an instruction"
        )
    arch, formats = same_numerics(arch), scales.formats() if is_fp4 else (scales.format or "ue8m0",)
    if not formats:
        raise OperandError("block scales must either all be ue8m0 values (powers of two) or all be ue4m3 values")
    every = [
        i for scale in formats for i in instructions_for(fmt, arch, dense=dense, accumulate=accumulate, scales=scale)
    ]
    matching = [i for i in every if i.span and -(-k // i.span) == scales.a.shape[-1]]
    if not scales.format:  # Prefer ue4m3 scales for short blocks (NVFP4), and ue8m0 scales for long blocks (MXFP4).
        matching.sort(
            key=lambda i: (i.scale_format and i.scale_format.name) != ("ue4m3" if i.scale_size == 4 else "ue8m0")
        )
    if not matching:
        spans = " or ".join(str(span) for span in sorted({i.span or 0 for i in every}))
        raise InstructionError(
            f"no instruction for {fmt} on {arch} has {scales.a.shape[-1]} block scales along a K of {k}: one "
            f"block scale covers {spans} elements"
        )
    return tuple(i for i in matching if i.granularity == matching[0].granularity)
