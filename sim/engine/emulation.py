"""Emulation of instructions that a datapath lacks, with the instruction sequences that the assembler emits.

On sm_90 and sm_100, fp8 ``mma`` is unpacked to f16: a first f16 instruction multiplies the even pairs of stored
elements and accumulates from zero, a second one adds the odd pairs; then C is added. 4-bit integer ``mma`` is executed
as two 8-bit instructions, one for even and one for odd elements (also on sm_120). Source: machine code of the CUDA 13.0
assembler; measured on an H200.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ...errors import BackendError
from ...isa.formats import FORMATS, Format
from ...isa.instructions import Instruction
from ...isa.operands import MatrixOperands

__all__ = ["run", "taken", "widen_fp8"]

#: Function that computes D of an instruction that the datapath supports.
Multiply = Callable[[Instruction, MatrixOperands], NDArray]

_NAN = {np.dtype(np.uint16): 0x7FFF, np.dtype(np.uint32): 0x7FFFFFFF}


def run(multiply: Multiply, instruction: Instruction, operands: MatrixOperands) -> NDArray:
    """Compute D of an emulated fp8 or 4-bit integer ``mma``; `multiply` computes a supported instruction.

    Raise a `BackendError` if there is no emulation of the instruction.
    """
    if instruction.family != "mma" or instruction.kind:
        raise BackendError(f"the RTL datapath does not support the formats of {instruction} and cannot emulate it")
    narrow, integer, c = (instruction.a, instruction.b), instruction.a.is_integer, operands.c
    wide = [FORMATS[fmt.name.replace("4", "8") if integer else "f16"] for fmt in narrow]
    part = replace(instruction, a=wide[0], b=wide[1], k=instruction.k // 2, satfinite=False)
    # For fp8, the first of two f16 instructions takes the even chunks along K, and the second takes the odd chunks. A
    # sparse chunk has two stored elements of A and four rows of B; a dense chunk has two elements of A and two rows of
    # B.
    lengths = (1, 1) if integer else (2, 4 if instruction.sparse else 2)
    d = np.zeros_like(c)
    for odd in (0, 1):
        a, b = (
            _widened(taken(codes, length, odd, axis), fmt)
            for codes, length, axis, fmt in zip((operands.a, operands.b), lengths, (2, 1), narrow, strict=True)
        )
        nibbles = operands.nibbles
        if nibbles is not None and not integer:
            nibbles = nibbles[..., odd::2]
        d = multiply(part, MatrixOperands(a, b, d, nibbles))
    if integer:
        total = c.view(np.int32).astype(np.int64) + d.view(np.int32)
        return (np.clip(total, -(2**31), 2**31 - 1) if instruction.satfinite else total).astype(np.uint32)
    floats = np.float16 if c.dtype == np.uint16 else np.float32
    with np.errstate(over="ignore", invalid="ignore"):
        sums = c.view(floats) + d.view(floats)
    return np.where(np.isnan(sums), c.dtype.type(_NAN[c.dtype]), sums.view(c.dtype))


def _widened(codes: NDArray[np.uint8], fmt: Format) -> NDArray:
    """Convert fp8 codes to f16 codes, or 4-bit integers to 8-bit integers, so that the datapath supports the format."""
    if not fmt.is_integer:
        return widen_fp8(codes, fmt.name)
    return (codes ^ 8) - np.uint8(8) if fmt.signed else codes


def widen_fp8(codes: NDArray[np.uint8], name: str) -> NDArray[np.uint16]:
    """Convert e4m3 or e5m2 codes to f16 codes; every conversion is exact."""
    if name == "e5m2":
        return codes.astype(np.uint16) << np.uint16(8)
    magnitude = codes.astype(np.uint16) & 0x7F
    # An e4m3 code, shifted left by 7, is an f16 code of 2**-8 times its value, since the exponent biases differ by 8.
    scaled = (magnitude << 7).view(np.float16) * np.float16(256)
    bits = np.where(magnitude == 0x7F, np.uint16(0x7FFF), scaled.view(np.uint16))
    sign = codes.astype(np.uint16) & 0x80
    return np.asarray(bits | sign << 8, np.uint16)


def taken(matrix: NDArray, run_length: int, odd: int, axis: int) -> NDArray:
    """Return alternate runs of `run_length` elements along an axis: runs 0, 2, 4 and so on, or 1, 3, 5 if `odd`."""
    index = np.arange(matrix.shape[axis]).reshape(-1, run_length)[odd::2].reshape(-1)
    return matrix.take(index, axis=axis)
