"""Random work for a compiled warpgroup: operands as an instruction is given them, and who waits for whom."""

import numpy as np
import sptc
from sptc.isa.instructions import Instruction
from sptc.isa.operands import HeldOperands
from sptc.sim.benches.random_operands import distributions
from sptc.verify.register_file import RegisterFile
from sptc.verify.stimulus import random_register_file

__all__ = ["drawn", "held", "stalls"]

Random = np.random.Generator


def drawn(instruction: Instruction, rng: Random, cases: int = 2) -> RegisterFile:
    """Random operands of any distribution, with any nibble and selector, A and B in any place and order."""
    kind, selector = str(rng.choice(distributions(instruction))), int(rng.integers(instruction.sparsity_selectors))
    return random_register_file(
        instruction, "sm_90", kind, cases, rng, sparsity_selector=selector, any_nibble=bool(rng.integers(2))
    )


def held(file: RegisterFile) -> HeldOperands:
    """The operands of a file as its back end gets them."""
    seen: list[HeldOperands] = []

    class Seeing:
        def make_ready(self, arch: str) -> None:
            pass

        def multiply(self, instruction, arch, operands):
            seen.append(operands.held)
            return operands.c

    with sptc.api.backends.answered_by(Seeing()):
        file.run("warpgroup")
    (one,) = seen
    return one


def stalls(rng: Random) -> np.ndarray:
    """Who offers and who takes in each cycle: nearly always or hardly ever, for some cycles each."""
    shares = rng.choice([0.1, 0.5, 0.9, 1.0], (60, 3))
    bits = rng.random((60, 17, 3)) < shares[:, None]
    return (bits.reshape(-1, 3) @ [1, 2, 4]).astype(np.uint8)
