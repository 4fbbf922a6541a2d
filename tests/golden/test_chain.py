"""A product along K is one instruction after the other: what lies between two of them is what registers hold."""

from dataclasses import replace

import numpy as np
import pytest
from sptc.golden.matrix import multiply
from sptc.isa.instructions import Instruction, every_instruction
from sptc.isa.numerics import numerics
from sptc.sim.benches.random_operands import distributions
from sptc.tests.native.products import random_product

#: One of each way to form a result, for every architecture that has it.
CHAINS = {
    (arch, numerics(i, arch).method.value, numerics(i, arch).rounding.value, i.a.name): (i, arch)
    for i in every_instruction("mma")
    for arch in i.architectures
}


@pytest.mark.parametrize(("instruction", "arch"), CHAINS.values(), ids=["-".join(key) for key in CHAINS])
def test_a_chain_is_one_after_the_other(instruction: Instruction, arch: str, rng: np.random.Generator) -> None:
    for distribution in distributions(instruction):
        operands = random_product(instruction, distribution, rng, 5, 9)
        d = operands.c
        for step in operands.steps(instruction):
            d = multiply(instruction, arch, replace(step, c=d))
        np.testing.assert_array_equal(multiply(instruction, arch, operands), d, distribution)
