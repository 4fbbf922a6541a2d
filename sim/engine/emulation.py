"""Instructions that PTX has on an architecture but the datapath lacks: the sequences that the assembler emits for them.

On sm_90 and sm_100, fp8 ``mma`` is unpacked to f16. It runs as two f16 instructions that accumulate from zero, over the
even and the odd pairs of kept slots; then C is added. 4-bit integer ``mma`` runs as two 8-bit ones over even and odd
elements (also on sm_120). Source: machine code of the CUDA 13.0 assembler; measured on an H200.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ...errors import BackendError
from ...isa.formats import FORMATS
from ...isa.instructions import Instruction
from ...isa.operands import MatrixOperands

__all__ = ["run", "taken", "widen_fp8"]

#: Computes D of one instruction.
Multiply = Callable[[Instruction, MatrixOperands], NDArray]

_NAN = {np.dtype(np.uint16): 0x7FFF, np.dtype(np.uint32): 0x7FFFFFFF}


def run(multiply: Multiply, instruction: Instruction, operands: MatrixOperands) -> NDArray:
    """Compute D of an emulated instruction, fp8 or 4-bit integer ``mma``; `multiply` runs one that the datapath has.

    Raises
    ------
    BackendError
        There is no emulation of the instruction.
    """
    if instruction.family != "mma" or instruction.kind:
        raise BackendError(f"this datapath does not hold the formats of {instruction}")
    return (_four_bit if instruction.a.is_integer else _fp8)(multiply, instruction, operands)


def widen_fp8(codes: NDArray[np.uint8], name: str) -> NDArray[np.uint16]:
    """Convert e4m3 or e5m2 to f16; every value is exact."""
    if name == "e5m2":
        return codes.astype(np.uint16) << np.uint16(8)
    magnitude = codes.astype(np.uint16) & 0x7F
    # Read as f16, the shifted code is 2**-8 times too small: the biases differ by 8.
    scaled = (magnitude << 7).view(np.float16) * np.float16(256)
    bits = np.where(magnitude == 0x7F, np.uint16(0x7FFF), scaled.view(np.uint16))
    sign = codes.astype(np.uint16) & 0x80
    return np.asarray(bits | sign << 8, np.uint16)


def _fp8(multiply: Multiply, instruction: Instruction, operands: MatrixOperands) -> NDArray:
    a, b, c, nibbles = operands.a, operands.b, operands.c, operands.nibbles
    part = replace(instruction, a=FORMATS["f16"], b=FORMATS["f16"], k=instruction.k // 2)
    # Two stored slots and, sparse, four rows of B make a chunk; dense, two of each make a pair.
    rows_of_pair = 4 if instruction.sparse else 2
    d = np.zeros_like(c)
    for odd in (0, 1):
        a_part = widen_fp8(taken(a, 2, odd, axis=2), instruction.a.name)
        b_part = widen_fp8(taken(b, rows_of_pair, odd, axis=1), instruction.b.name)
        of_part = MatrixOperands(a_part, b_part, d, None if nibbles is None else nibbles[..., odd::2])
        d = multiply(part, of_part)
    floats = np.float16 if c.dtype == np.uint16 else np.float32
    with np.errstate(over="ignore", invalid="ignore"):
        total = c.view(floats) + d.view(floats)
    return np.where(np.isnan(total), c.dtype.type(_NAN[c.dtype]), total.view(c.dtype))


def taken(matrix: NDArray, run_length: int, odd: int, axis: int) -> NDArray:
    """Return every other run of `run_length` neighbours along an axis, from the first or, if `odd`, from the second."""
    index = np.arange(matrix.shape[axis]).reshape(-1, run_length)[odd::2].reshape(-1)
    return matrix.take(index, axis=axis)


def _four_bit(multiply: Multiply, instruction: Instruction, operands: MatrixOperands) -> NDArray:
    a, b, c, nibbles = operands.a, operands.b, operands.c, operands.nibbles
    names = {"s4": "s8", "u4": "u8"}
    part = replace(
        instruction,
        a=FORMATS[names[instruction.a.name]],
        b=FORMATS[names[instruction.b.name]],
        k=instruction.k // 2,
        satfinite=False,
    )
    d = np.zeros_like(c)
    for odd in (0, 1):
        a_part = _widen_four_bit(taken(a, 1, odd, axis=2), instruction.a.signed)
        b_part = _widen_four_bit(taken(b, 1, odd, axis=1), instruction.b.signed)
        d = multiply(part, MatrixOperands(a_part, b_part, d, nibbles))
    total = c.view(np.int32).astype(np.int64) + d.view(np.int32)
    if instruction.satfinite:
        total = np.clip(total, -(2**31), 2**31 - 1)
    return total.astype(np.uint32)


def _widen_four_bit(codes: NDArray[np.uint8], signed: bool) -> NDArray[np.uint8]:
    return (codes ^ 8) - np.uint8(8) if signed else codes
