"""Directed steps with controls that no instruction gives: every rule with every format, every passed-on overflow."""

import numpy as np
from numpy.typing import NDArray

from ..rtl.config import CoreConfig
from ..rtl.metadata import RuleCode
from ..rtl.order import DENSE_NIBBLE, nibble_order
from ..rtl.round import ResultCode
from ..rtl.scale import ScaleCode
from ..rtl.step import control_layout
from ..sim.coverage.operands import Operation, operations_of
from ..sim.engine.steps import step_words

__all__ = ["directed_steps"]

#: Consecutive steps that share a control word.
_RUN = 16


def directed_steps(config: CoreConfig, rng: np.random.Generator, count: int) -> NDArray[np.uint32]:
    """Return steps for :meth:`sptc.sim.engine.engine.Engine.push`, with every operation of a datapath in turn.

    Operands, nibbles, scales and accumulators are random bits; B and nibbles have the order of a unit's inputs. Any
    rule occurs with any formats, also where no instruction combines them. One step in eight is dense. Half of the
    integer accumulators are values passed on by an earlier step: just beyond 32 bits, with the overflow bit, also where
    an instruction is a single step.

    Parameters
    ----------
    config : CoreConfig
        Datapath.
    rng : Generator
        Source of randomness.
    count : int
        Number of steps; a thousand for each operation reach every rule, nibble and chunk.

    Returns
    -------
    ndarray of uint32, shape (count, words)
    """
    words = step_words(config)
    steps = rng.integers(0, 1 << 32, (count, words.total), dtype=np.uint32)
    operations = operations_of(config)
    order = rng.permutation(len(operations))
    for run, first in enumerate(range(0, count, _RUN)):
        operation = operations[order[run % len(order)]]
        part = slice(first, first + _RUN)
        steps[part, words.control] = 0
        steps[part, words.control.start] = control = _control(operation, rng)
        steps[part, words.metadata] = _nibbles(operation, control, rng, len(steps[part]))
        if operation.integer:
            _pass_on(steps[part], operation, rng)
    return steps


def _control(operation: Operation, rng: np.random.Generator) -> int:
    elements = operation.config.elements
    rules = list(RuleCode.__members__)
    fields = {
        "a": elements.index(operation.a),
        "b": elements.index(operation.b),
        "result": ResultCode.__members__[operation.result.upper()],
        "saturate": int(rng.integers(2)),
        "sparse": int(rng.random() < 0.875),
        "rule": RuleCode.__members__[rules[int(rng.integers(len(rules)))]],
        "scale": ScaleCode.__members__[operation.scale.upper()],
    }
    return int(control_layout().const(fields).as_value().value)


def _nibbles(operation: Operation, control: int, rng: np.random.Generator, count: int) -> NDArray[np.uint32]:
    """Return metadata words in the order of a unit's inputs; dense steps have a fixed nibble."""
    chunks = operation.config.chunks
    nibbles = rng.integers(0, 16, (count, chunks), dtype=np.uint32)
    if control >> control_layout()["sparse"].offset & 1:
        nibbles = nibbles[:, nibble_order(operation.config, wide=operation.a.wide)]
    else:
        nibbles[:] = DENSE_NIBBLE
    words = np.zeros((count, -(-chunks // 8)), np.uint32)
    for chunk in range(chunks):
        words[:, chunk // 8] |= nibbles[:, chunk] << np.uint32(chunk % 8 * 4)
    return words


def _pass_on(steps: NDArray[np.uint32], operation: Operation, rng: np.random.Generator) -> None:
    """Replace half of the accumulators by values just beyond 32 bits, in place."""
    words = step_words(operation.config)
    size = len(steps)
    beyond = rng.integers(0, 1 << int(rng.integers(1, 17)), size)
    signed = operation.a.format.signed or operation.b.format.signed
    high = (rng.random(size) < 0.5) | (not signed)  # unsigned products never go below the range
    accumulators = np.where(high, (1 << 31) + beyond, (1 << 31) - 1 - beyond).astype(np.uint32)
    passed = rng.random(size) < 0.5
    steps[:, words.c.start] = np.where(passed, accumulators, steps[:, words.c.start])
    steps[:, words.control.start] |= passed.astype(np.uint32) << np.uint32(words.overflow_bit)
