"""A product along K is one instruction after the other: what lies between two of them is what registers hold."""

from dataclasses import replace

import numpy as np
import pytest
from sptc.golden.matrix import multiply
from sptc.isa.instructions import ARCHITECTURES, Instruction, every_instruction
from sptc.isa.numerics import numerics
from sptc.sim.benches.random_operands import distributions
from sptc.tests.native.products import random_product


def _kinds(arch: str) -> dict[tuple[object, ...], Instruction]:
    """Return one instruction of each way to form a result and of each sparsity, with the shortest K that it has."""
    found: dict[tuple[object, ...], Instruction] = {}
    for i in sorted(every_instruction(), key=lambda i: i.k):
        if arch in i.architectures:
            row = numerics(i, arch)
            operands = i.family, i.sparse, i.a.name, i.container_bits, i.scale_size, i.satfinite
            found.setdefault((*operands, row.method, row.rounding), i)
    return found


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_chain_is_one_after_the_other(arch: str, rng: np.random.Generator) -> None:
    kinds = _kinds(arch)
    for i in kinds.values():
        distribution = str(rng.choice(distributions(i)))
        operands = random_product(i, distribution, rng, 5, 9)
        while operands.b.shape[1] == i.k:
            operands = random_product(i, distribution, rng, 5, 9)
        d = operands.c
        for step in operands.steps(i):
            d = multiply(i, arch, replace(step, c=d))
        np.testing.assert_array_equal(multiply(i, arch, operands), d, f"{i}, {distribution}")
    # Each dense kind has a sparse one of the same types.
    forms = {sparse: {key[2:] for key in kinds if bool(key[1]) == sparse} for sparse in (False, True)}
    assert forms[True]
    assert forms[False] >= forms[True]
