"""Random matrices for an instruction, with any number of rows, columns and steps along K."""

from dataclasses import replace

import numpy as np
from sptc.isa.instructions import Instruction
from sptc.isa.operands import MatrixOperands
from sptc.operands.registers import CONTAINERS
from sptc.sim.benches.random_operands import random_codes, random_matrices


def matrices(
    i: Instruction, shape: tuple[int, int, int], kind: str, rng: np.random.Generator, steps: int = 1
) -> MatrixOperands:
    """Return operands of `shape[0]` products with any nibbles. D has shape `shape[1:]`; K is `steps` times `i.k`."""
    batch, m, n = shape
    whole = replace(i, m=m, n=n, k=steps * i.k)
    a, b, c = random_matrices(whole, kind, batch, rng)
    nibbles = rng.integers(0, 16, (batch, m, whole.chunks), dtype=np.uint8) if i.sparse else None
    spread = kind if kind in ("wide", "bits") else "mid"
    scales = [
        random_codes(i.scale_format, spread, (batch, lines, steps * i.scale_size), rng).astype(np.uint8)
        for lines in (m, n)
        if i.scale_format and i.scale_size
    ]
    container = CONTAINERS[i.container_bits]
    return MatrixOperands(a.astype(container), b.astype(container), c.astype(CONTAINERS[i.c.bits]), nibbles, *scales)
