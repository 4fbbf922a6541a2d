"""Energy that design changes would save, from simulations of the same products with modified operand streams."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ...isa.formats import Format, low_bit
from ...isa.instructions import Instruction
from ...isa.operands import MatrixOperands
from ...rtl.config import ConfigError
from ...rtl.order import byte_order
from ...sim.engine.steps import step_count, step_words
from .measure import MappedUnit
from .operands import streamed

__all__ = ["what_ifs"]

_BYTE = 8


def what_ifs(
    unit: MappedUnit, i: Instruction, arch: str, operands: MatrixOperands
) -> Iterator[tuple[str, float | None]]:
    """Yield design changes, each with its energy per product of a stored element of A (None: change not possible).

    The arguments are the unchanged unit and the arguments of the measurement of this unit.
    """
    config = unit.config
    steps = streamed(config, i, arch, operands, unit.compute)
    activity, stages = unit.taken(i, steps)
    total = sum(stages.values())
    idle = unit.scale * unit.costs.clock_of_idle(activity) / unit.products(i)
    yield "the clocks of registers that never change are gated", total - idle
    if not i.sparse and i.container_bits >= _BYTE:
        isolated = _isolated(unit, i, steps)
        taken = None if isolated is None else sum(unit.taken(i, isolated)[1].values())
        yield "an operand that is multiplied by zero keeps its previous value", taken
    of_output = operands.b.shape[1] // i.k * step_count(config, i)
    outputs = len(steps) // (len(operands.a) * of_output)
    ordered = steps.reshape(len(operands.a), -1, outputs, steps.shape[1]).swapaxes(1, 2).reshape(steps.shape)
    yield "the unit computes all of K for an output before the next output", sum(unit.taken(i, ordered)[1].values())
    formats = tuple(dict.fromkeys([i.a.name, i.b.name]))
    if {*formats} != {*config.formats}:
        try:
            alone = unit.with_formats(formats)
        except ConfigError:  # no valid configuration has only the formats of the instruction
            yield f"the unit supports only {' and '.join(formats)}", None
            return
        steps = streamed(alone.config, i, arch, operands, alone.compute)
        yield f"the unit supports only {' and '.join(formats)}", sum(alone.taken(i, steps)[1].values())


def _isolated(unit: MappedUnit, i: Instruction, steps: NDArray[np.uint32]) -> NDArray[np.uint32] | None:
    """Return inputs of a dot-product unit in which an operand keeps its previous value while it is multiplied by zero.

    Return None if results would change because a kept operand is infinite or NaN.
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
    codes = [np.ascontiguousarray(part).view(f"<u{size}") for part in (a, b[:, places])]
    zero = [_is_zero(part, fmt, i.container_bits) for part, fmt in zip(codes, (i.a, i.b), strict=True)]
    kept_bytes = np.array(in_bytes)
    for operand, (part, other) in enumerate(zip(codes, (zero[1] & ~zero[0], zero[0]), strict=True)):
        last = np.maximum.accumulate(np.where(other, 0, np.arange(len(part))[:, None]), axis=0)
        kept = np.ascontiguousarray(np.take_along_axis(part, last, axis=0)).view(np.uint8)
        first = 4 * (words.b if operand else words.a).start
        kept_bytes[:, first + (places if operand else np.arange(config.step_bytes))] = kept
    changed = kept_bytes.view(np.uint32)
    results = zip(unit.compute(steps), unit.compute(changed), strict=True)
    return changed if all((before == after).all() for before, after in results) else None


def _is_zero(codes: NDArray, fmt: Format, container_bits: int) -> NDArray[np.bool_]:
    """Return an array of bools that are true for element codes of +0 and -0."""
    sign = 0 if fmt.is_integer else 1 << low_bit(fmt, container_bits) + fmt.bits - 1
    return (codes & ~codes.dtype.type(sign)) == 0
