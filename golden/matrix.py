"""Compute matrix products with the golden model. Operands and results are matrices of codes."""

from collections.abc import Iterator
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from ..isa.formats import FORMATS
from ..isa.instructions import Instruction
from ..isa.metadata import MUX_OF_ARCHITECTURE
from ..isa.numerics import BLOCK_GROUP, Method, Numerics, numerics
from ..isa.operands import MatrixOperands
from .accumulator import decode_accumulator, encode_accumulator
from .decode import WIDE, Scales, decode, decode_scale, precision_for
from .emulated import emulated_instruction, even_and_odd_pairs, widen
from .fused import fused_step
from .grouped import grouped_step
from .integer import integer_chain
from .select import select
from .trace import Step, Trace

__all__ = ["multiply", "multiply_by", "traced"]

#: Number of elements of D computed at once: few enough that the products of one rounded sum fit into the L2 cache.
_BLOCK_OUTPUTS = 8192


def multiply(instruction: Instruction, arch: str, operands: MatrixOperands) -> NDArray:
    """Return D = A B + C with the bits that successive instructions along K compute. D has the type and shape of C.

    The k of the instruction must divide K. One instruction multiplies k columns of A by k rows of B; its result is the
    accumulator of the next instruction. The matrices may have any m and n. The numerics are those of `arch`. Any
    metadata is allowed: the model selects the elements that the hardware's multiplexers deliver.
    """
    return multiply_by(instruction, numerics(instruction, arch), MUX_OF_ARCHITECTURE[arch], operands)


def multiply_by(instruction: Instruction, parameters: Numerics, mux: str, operands: MatrixOperands) -> NDArray:
    """Return D = A B + C, bit for bit as a datapath with the given parameters computes it.

    Operands are those of :func:`multiply`. The values in `parameters` need not be those of an architecture, but the
    number F of alignment bits may be at most one larger than the largest F that :func:`~sptc.isa.numerics.numerics`
    returns for the instruction on any architecture. `mux` is the multiplexer type, ``mux4`` or ``mux3``.
    """
    result = np.empty_like(operands.c)
    batch, m, n = operands.c.shape
    tiles = max(1, _BLOCK_OUTPUTS // (m * n))
    rows = m if tiles > 1 else max(1, _BLOCK_OUTPUTS // n)
    for tile in range(0, batch, tiles):
        for row in range(0, m, rows):
            block = (slice(tile, tile + tiles), slice(row, row + rows))
            if parameters.method is Method.INTEGER:
                result[block] = integer_chain(instruction, mux, operands.take(*block))
            else:
                result[block] = _float_chain(instruction, parameters, mux, operands.take(*block))
    return result


def traced(
    instruction: Instruction, arch: str, operands: MatrixOperands, changed: Numerics | None = None
) -> tuple[NDArray, list[Step]]:
    """Return D, and each step (rounded sum of products) with a trace. Parameters are those of :func:`multiply`.

    `changed` are numerics to use in place of those of `arch`. The rows of a step are the rows of all matrices
    of the batch. Use small batches: every intermediate value is stored.
    """
    parameters, mux = changed or numerics(instruction, arch), MUX_OF_ARCHITECTURE[arch]
    traces: list[Trace] = []
    if parameters.method is Method.INTEGER:
        d = integer_chain(instruction, mux, operands)
    else:
        d = _float_chain(instruction, parameters, mux, operands, traces)
    a, b, rows = select(instruction, mux, operands)
    steps = [slots for steps in _steps(instruction, parameters, len(rows)) for slots in steps]
    trace_of_step = traces or repeat(None, len(steps))
    return d, [Step(slots, a[slots], b[rows[slots]], trace) for slots, trace in zip(steps, trace_of_step, strict=True)]


def _float_chain(
    instruction: Instruction,
    parameters: Numerics,
    mux: str,
    operands: MatrixOperands,
    traces: list[Trace] | None = None,
) -> NDArray:
    """Return D of float instructions that accumulate along K. If `traces` is given, append intermediate values."""
    a_codes, b_codes, rows = select(instruction, mux, operands)
    a_format, b_format = instruction.a, instruction.b
    if parameters.method is Method.EMULATED:
        a_codes, b_codes = widen(a_codes, a_format), widen(b_codes, b_format)
        a_format = b_format = FORMATS["f16"]
    precision = precision_for(a_format, b_format) if traces is None else WIDE
    a = decode(a_codes, a_format, precision, instruction.low_bit(a_format))
    b = decode(b_codes, b_format, precision, instruction.low_bit(b_format))
    if a.classes is not None or b.classes is not None:
        a, b = a.with_classes(), b.with_classes()

    d = decode_accumulator(operands.c.reshape(-1, operands.c.shape[-1]))
    for steps in _steps(instruction, parameters, len(rows)):
        if parameters.method is Method.EMULATED:
            terms = ((a.take(slots), b.take(rows[slots])) for slots in steps)
            d = emulated_instruction(terms, d, instruction.c, parameters, precision, traces)
            continue
        for slots in steps:
            a_step, b_step = a.take(slots), b.take(rows[slots])
            if parameters.method is Method.GROUPED:
                group_scales = _scales(instruction, operands, slots[::BLOCK_GROUP])
                d = grouped_step(a_step, b_step, d, instruction.c, parameters, group_scales, traces)
            else:
                scales = _scales(instruction, operands, slots[:1]) if instruction.scale_format else None
                d = fused_step(a_step, b_step, d, instruction.c, parameters, precision, scales, traces)
    return encode_accumulator(d, operands.c.dtype).reshape(operands.c.shape)


def _steps(instruction: Instruction, parameters: Numerics, stored_k: int) -> Iterator[list[NDArray[np.intp]]]:
    """Yield a list for each instruction along K: for each rounded sum, the indices of its stored elements of A."""
    length = instruction.stored_k if parameters.method is Method.INTEGER else parameters.step
    for first in range(0, stored_k, instruction.stored_k):
        slots = np.arange(first, first + instruction.stored_k)
        parts = even_and_odd_pairs(slots) if parameters.method is Method.EMULATED else (slots,)
        yield [step for part in parts for step in np.split(part, range(length, len(part), length))]


def _scales(instruction: Instruction, operands: MatrixOperands, slots: NDArray[np.intp]) -> Scales:
    """Return the product of the block scales of A and B for each stored element of A whose index is in `slots`.

    The result has the shape (len(slots), rows, n).
    """
    assert instruction.scale_format
    assert instruction.span
    assert operands.scale_a is not None
    assert operands.scale_b is not None
    spans = slots * (2 if instruction.sparse else 1) // instruction.span
    a_significand, a_exponent = decode_scale(operands.scale_a[..., spans], instruction.scale_format)
    b_significand, b_exponent = decode_scale(operands.scale_b[..., spans], instruction.scale_format)
    shape = (len(spans), -1, operands.c.shape[-1])
    significands = a_significand[:, :, None] * b_significand[:, None]
    exponents = (a_exponent[:, :, None] + b_exponent[:, None]).astype(np.int32)
    return Scales(np.moveaxis(significands, -1, 0).reshape(shape), np.moveaxis(exponents, -1, 0).reshape(shape))
