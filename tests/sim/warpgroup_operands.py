"""Random work for a compiled warpgroup: operands as an instruction is given them, and who waits for whom."""

import numpy as np
from sptc.api.backends import backend
from sptc.api.recorder import Recorder
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
    recorder = Recorder(backend("golden"))
    file.run(recorder)
    (operands,) = recorder.operands
    assert operands.held
    return operands.held


def stalls(rng: Random) -> np.ndarray:
    """Who offers and who takes in each cycle: nearly always or hardly ever, for some cycles each."""
    shares = rng.choice([0.1, 0.5, 0.9, 1.0], (60, 3))
    bits = rng.random((60, 17, 3)) < shares[:, None]
    return (bits.reshape(-1, 3) @ [1, 2, 4]).astype(np.uint8)
