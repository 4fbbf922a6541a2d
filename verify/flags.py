"""Flags of undefined metadata: those that hardware raised, and those that the rule of each instruction requires."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..isa.operands import Product, StepFlags

__all__ = ["flags_and_rules"]


def flags_and_rules(products: Sequence[Product], cases: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return the raised flags and the required flags, each of shape (cases, rows, chunks).

    The last axis holds the chunks of all steps of a product. A back end without flags gives no chunks.

    Parameters
    ----------
    products : sequence of Product
        Products of consecutive tiles.
    cases : int
        Number of cases of the register file; each case may be several tiles.
        Cases of a register file that all tiles together are; each may be several tiles.
    """
    steps = [product.flags for product in products if product.flags]
    if not steps or not cases:
        return (np.zeros((cases, 0, 0), np.bool_),) * 2
    raised = np.concatenate([np.concatenate([step.illegal for step in flags], axis=-1) for flags in steps])
    demanded = np.concatenate([np.concatenate([_undefined(step) for step in flags], axis=-1) for flags in steps])
    rows = raised.shape[0] * raised.shape[1] // cases
    return raised.reshape(cases, rows, raised.shape[2]), demanded.reshape(cases, rows, raised.shape[2])


def _undefined(step: StepFlags) -> NDArray[np.bool_]:
    if step.instruction.rule is None or step.nibbles is None:
        return np.zeros_like(step.illegal)
    defined = np.zeros(16, np.bool_)
    defined[[*step.instruction.rule.legal]] = True
    return ~defined[step.nibbles]
