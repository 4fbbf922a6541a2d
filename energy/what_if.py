"""What a change of the design would save, of the same products: measured on streams that are changed accordingly."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ..errors import Error
from ..isa.formats import Format
from ..isa.instructions import Instruction
from ..isa.operands import MatrixOperands
from ..rtl.order import byte_order
from ..sim.engine.steps import step_words
from .measure import MappedUnit, Measured
from .operands import streamed

__all__ = ["what_ifs"]


def what_ifs(unit: MappedUnit, arch: str, operands: MatrixOperands, measured: Measured) -> Iterator[tuple[str, float]]:
    """Yield what could be done otherwise, and what a kept product takes then.

    Parameters
    ----------
    unit : MappedUnit
        As it is.
    arch, operands, measured : str, MatrixOperands, Measured
        What it was measured with, and what was found, without glitches.

    Raises
    ------
    Error
        Results would change.
    """
    i, config = measured.instruction, unit.config
    steps = streamed(config, i, arch, operands, unit.compute)
    activity, stages = unit.taken(i, steps)
    total = sum(stages.values())
    idle = unit.scale * unit.costs.clock_of_idle(activity) / unit.products(i)
    yield "the clock of registers that never change is gated", total - idle
    if not i.sparse:
        held = _isolated(unit, i, steps)
        yield "where one operand of a product is zero, the other is held", sum(unit.taken(i, held)[1].values())
    outputs = len(steps) // (len(operands.a) * _steps_of_chain(unit, i, operands))
    ordered = steps.reshape(len(operands.a), -1, outputs, steps.shape[1]).swapaxes(1, 2).reshape(steps.shape)
    yield "each output takes all of K before the next one", sum(unit.taken(i, ordered)[1].values())
    formats = tuple(dict.fromkeys([i.a.name, i.b.name]))
    if {*formats} != {*config.formats}:
        alone = unit.with_formats(formats)
        steps = streamed(alone.config, i, arch, operands, alone.compute)
        yield f"it has no formats but {' and '.join(formats)}", sum(alone.taken(i, steps)[1].values())


def _steps_of_chain(unit: MappedUnit, i: Instruction, operands: MatrixOperands) -> int:
    return operands.b.shape[1] // i.k * -(-i.stored_k // unit.products(i))


def _isolated(unit: MappedUnit, i: Instruction, steps: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return steps in which an operand that is multiplied by zero is that of the step before.

    Raises
    ------
    Error
        Results would change: an operand that is held is infinite or NaN.
    """
    words, config = step_words(unit.config), unit.config
    size = i.container_bits // 8
    in_bytes = np.ascontiguousarray(steps).view(np.uint8)
    a = in_bytes[:, 4 * words.a.start : 4 * words.a.stop]
    b = in_bytes[:, 4 * words.b.start : 4 * words.b.stop]
    places = np.arange(config.step_bytes)
    if config.sparse:
        order = byte_order(config, wide=i.container_bits >= 16, sparse=False)
        places = np.array([order.index(byte) for byte in range(config.step_bytes)])
    codes = [np.ascontiguousarray(of).view(f"<u{size}") for of in (a, b[:, places])]
    zero = [_is_zero(of, fmt, i.container_bits) for of, fmt in zip(codes, (i.a, i.b), strict=True)]
    held = np.array(in_bytes)
    for operand, (of, other) in enumerate(zip(codes, (zero[1] & ~zero[0], zero[0]), strict=True)):
        last = np.maximum.accumulate(np.where(other, 0, np.arange(len(of))[:, None]), axis=0)
        kept = np.ascontiguousarray(np.take_along_axis(of, last, axis=0)).view(np.uint8)
        first = 4 * (words.b if operand else words.a).start
        held[:, first + (places if operand else np.arange(config.step_bytes))] = kept
    changed = held.view(np.uint32)
    for before, after in zip(unit.compute(steps), unit.compute(changed), strict=True):
        if (before != after).any():
            raise Error(f"{i}: an operand that is infinite or NaN cannot be held")
    return changed


def _is_zero(codes: NDArray, fmt: Format, container_bits: int) -> NDArray[np.bool_]:
    """Return which codes are zero, of either sign."""
    sign = 0 if fmt.is_integer else 1 << container_bits - 1
    return (codes & ~codes.dtype.type(sign)) == 0
