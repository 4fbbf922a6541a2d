"""Random matrices for an instruction, with any number of rows, columns and steps along K."""

import numpy as np
from sptc.isa.instructions import Instruction
from sptc.isa.operands import MatrixOperands
from sptc.operands.registers import CONTAINERS
from sptc.sim.benches.random_operands import random_codes


def matrices(
    i: Instruction, shape: tuple[int, int, int], kind: str, rng: np.random.Generator, steps: int = 1
) -> MatrixOperands:
    """Return operands of `shape[0]` products with any nibbles. D has shape `shape[1:]`, and K `steps` instructions."""
    (batch, m, n), container = shape, CONTAINERS[i.container_bits]
    a = random_codes(i.a, kind, (batch, m, steps * i.stored_k), rng) << i.low_bit(i.a)
    b = random_codes(i.b, kind, (batch, steps * i.k, n), rng) << i.low_bit(i.b)
    c = random_codes(i.c, kind, shape, rng).astype(CONTAINERS[i.c.bits])
    nibbles = rng.integers(0, 16, (batch, m, steps * i.chunks), dtype=np.uint8) if i.sparse else None
    scales = [
        random_codes(i.scale_format, "mid", (batch, lines, steps * i.scale_size), rng).astype(np.uint8)
        for lines in (m, n)
        if i.scale_format and i.scale_size
    ]
    return MatrixOperands(a.astype(container), b.astype(container), c, nibbles, *scales)
