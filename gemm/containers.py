"""Codes of elements, the containers of codes in an instruction, and element types of numpy and ``ml_dtypes``."""

import numpy as np
from numpy.typing import NDArray

from ..errors import OperandError
from ..isa.formats import Format
from ..isa.instructions import Instruction
from ..operands.registers import CONTAINERS
from ..tensors.element_types import named_dtype

__all__ = ["FORMAT_OF", "accumulator_codes", "in_containers", "out_of_containers", "typed"]

#: Element format by type of numpy or ``ml_dtypes``.
FORMAT_OF = {
    "float16": "f16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2",
    "float6_e3m2fn": "e3m2",
    "float6_e2m3fn": "e2m3",
    "float4_e2m1fn": "e2m1",
    "int8": "s8",
    "uint8": "u8",
    "int4": "s4",
    "uint4": "u4",
}
#: Type of numpy or ``ml_dtypes`` by element format, including formats of accumulators.
_TYPE_OF = {fmt: name for name, fmt in FORMAT_OF.items()} | {"f32": "float32", "tf32": "float32", "s32": "int32"}


def in_containers(codes: NDArray, i: Instruction, fmt: Format) -> NDArray:
    """Place codes of A or B in the containers of an instruction; the other bits of a container are zero."""
    return codes.astype(CONTAINERS[max(8, i.container_bits)]) << (i.low_bit(fmt) - fmt.ignored_low_bits)


def out_of_containers(codes: NDArray, i: Instruction, fmt: Format) -> NDArray:
    """Extract codes of A or B from the containers of an instruction, the inverse of :func:`in_containers`."""
    return codes >> (i.low_bit(fmt) - fmt.ignored_low_bits) & codes.dtype.type((1 << fmt.container_bits) - 1)


def typed(codes: NDArray, fmt: Format) -> NDArray:
    """Return codes as an array in the type of numpy or ``ml_dtypes`` of their format.

    Raise a `FileError` if the type is one of ``ml_dtypes``, which is not installed.
    """
    return np.ascontiguousarray(codes).view(named_dtype(_TYPE_OF[fmt.name]))


def accumulator_codes(c: NDArray, i: Instruction) -> NDArray:
    """Return the codes of an accumulator given as numbers or codes of its type; raise an `OperandError` for others."""
    own, container = np.dtype(_TYPE_OF[i.c.name]), CONTAINERS[i.c.bits]
    if c.dtype not in (own, container):
        raise OperandError(f"c must be {i.c.name}, {own} or codes in {container}, not {c.dtype}")
    return np.ascontiguousarray(c).view(container)
