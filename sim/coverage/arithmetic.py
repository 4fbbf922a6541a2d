"""The values inside a float step, as the golden model traces them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...golden.accumulator import decode_accumulator, encode_accumulator
from ...golden.decode import WIDE, Scales, Terms, decode, decode_scale
from ...golden.fused import fused_step
from ...golden.grouped import grouped_step
from ...golden.trace import Trace
from .operands import Operands
from .operations import Operation

__all__ = ["Evaluation", "evaluate"]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Evaluated steps of one float operation.

    Attributes
    ----------
    operation : Operation
        Operation of the steps.
    operands : Operands
        Operands of the steps.
    a, b : Terms, shape (slots, count)
        Decoded operands of each slot. Both have classes, or neither if every operand of every step is finite.
    c : ndarray of float32, shape (count,)
        Accumulators.
    scale_nan : ndarray of bool, shape (count,)
        Whether a block scale is NaN.
    trace : Trace, shape (terms, count) and (count,)
        Trace of the golden model.
    """

    operation: Operation
    operands: Operands
    a: Terms
    b: Terms
    c: NDArray[np.float32]
    scale_nan: NDArray[np.bool_]
    trace: Trace

    @property
    def codes(self) -> NDArray[np.uint32]:
        """Expected result codes."""
        return encode_accumulator(self.trace.result, _type_of(self.operation)).astype(np.uint32)


def evaluate(operation: Operation, operands: Operands) -> Evaluation:
    """Evaluate steps of one float operation.

    Operands are decoded to the wide precision, in which aligned terms are exact even if they are very small.
    """
    a, b = (
        decode(codes.T, element.format, WIDE, element.low_bit)
        for codes, element in ((operands.a, operation.a), (operands.b, operation.b))
    )
    if a.classes is not None or b.classes is not None:
        a, b = a.with_classes(), b.with_classes()
    c = decode_accumulator(operands.c.astype(_type_of(operation)))
    scales = _scales(operation, operands) if operation.scale != "none" else None
    traces: list[Trace] = []
    if operation.grouped:
        assert scales
        grouped_step(a, b, c, operation.accumulator, operation.numerics, scales, traces)
    else:
        b_given = Terms(b.values.copy(), b.exponents, b.classes)  # the step overwrites its values
        fused_step(a, b_given, c, operation.accumulator, operation.numerics, WIDE, scales, traces)
    scale_nan = scales.nan if scales else np.zeros(len(c), np.bool_)
    return Evaluation(operation, operands, a, b, c, scale_nan, *traces)


def _type_of(operation: Operation) -> np.dtype:
    return np.dtype(np.uint16 if operation.accumulator.name == "f16" else np.uint32)


def _scales(operation: Operation, operands: Operands) -> Scales:
    """Return the scales of each group; those of the whole step if products are not grouped."""
    columns = operation.terms if operation.grouped else 1
    (significand_a, exponent_a), (significand_b, exponent_b) = (
        decode_scale(codes[:, :columns].T, operation.scale_format) for codes in (operands.scale_a, operands.scale_b)
    )
    return Scales(significand_a * significand_b, (exponent_a + exponent_b).astype(np.int32))
