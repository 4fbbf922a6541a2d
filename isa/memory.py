"""Shared-memory matrix descriptors of ``wgmma`` and the addresses they reach."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..errors import OperandError
from .instructions import Instruction

__all__ = ["UNIT_BYTES", "SharedDescriptor", "b_addresses", "decode_descriptor"]

#: Descriptors and swizzles move units of 16 bytes.
UNIT_BYTES = 16
_FIELD_MASK = (1 << 14) - 1
_DEFINED_BITS = _FIELD_MASK | _FIELD_MASK << 16 | _FIELD_MASK << 32 | 7 << 49 | 3 << 62


@dataclass(frozen=True)
class SharedDescriptor:
    """A decoded 64-bit matrix descriptor (PTX ISA, matrix descriptor format of ``wgmma``).

    Attributes
    ----------
    start, leading_offset, stride_offset : int
        Bytes.
    base_offset : int
        Position of the swizzle pattern, 0 when it starts on its natural boundary.
    swizzle : int
        0 none, 1 128 bytes, 2 64 bytes, 3 32 bytes.
    """

    start: int
    leading_offset: int
    stride_offset: int
    base_offset: int
    swizzle: int


def decode_descriptor(value: int) -> SharedDescriptor:
    """Split a descriptor into its fields.

    Raises
    ------
    OperandError
        If it is no 64-bit number or sets a reserved bit.
    """
    if not 0 <= value < 1 << 64:
        raise OperandError(f"a shared-memory descriptor must be a 64-bit number, not {value:#x}")
    if reserved := value & ~_DEFINED_BITS:
        raise OperandError(f"descriptor {value:#018x} sets the reserved bits {reserved:#x}")
    return SharedDescriptor(
        start=(value & _FIELD_MASK) * UNIT_BYTES,
        leading_offset=(value >> 16 & _FIELD_MASK) * UNIT_BYTES,
        stride_offset=(value >> 32 & _FIELD_MASK) * UNIT_BYTES,
        base_offset=value >> 49 & 7,
        swizzle=value >> 62,
    )


def b_addresses(descriptor: SharedDescriptor, instruction: Instruction) -> NDArray[np.intp]:
    """Return the byte address of every element of B, K-major without swizzle, shape (k, n).

    Raises
    ------
    OperandError
        If the descriptor asks for a swizzle or a base offset.

    Notes
    -----
    Eight rows of 16 bytes make a core matrix; the leading offset leads to the next 16 bytes of K, the stride offset
    to the next eight columns (PTX ISA canonical layouts; read out address by address on an H200).
    """
    if descriptor.swizzle or descriptor.base_offset:
        raise OperandError("a descriptor with a swizzle or a base offset is not supported; use swizzle mode 0")
    element_bytes = instruction.container_bits // 8
    byte = np.arange(instruction.k)[:, None] * element_bytes
    column = np.arange(instruction.n)
    return (
        descriptor.start
        + byte // UNIT_BYTES * descriptor.leading_offset
        + column // 8 * descriptor.stride_offset
        + column % 8 * UNIT_BYTES
        + byte % UNIT_BYTES
    )
