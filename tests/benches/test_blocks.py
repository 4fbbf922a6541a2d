"""Random blocks of steps reach what faults hide behind."""

from itertools import islice

import numpy as np
import pytest
from sptc.isa.formats import Format
from sptc.isa.instructions import Instruction
from sptc.rtl.config import PRESETS
from sptc.sim.benches import blocks
from sptc.sim.benches.blocks import ARCHITECTURE_OF_PRESET, native, random_blocks
from sptc.sim.benches.random_operands import distributions

PRESET = "rtx-blackwell"
CONFIG, ARCH = PRESETS[PRESET], ARCHITECTURE_OF_PRESET[PRESET]


def value(code: int, fmt: Format) -> float:
    """Return what a finite code is worth."""
    if fmt.is_integer:
        return code - (1 << fmt.bits) if fmt.signed and code >> fmt.bits - 1 else code
    exponent, fraction = code >> fmt.fraction_bits & (1 << fmt.exponent_bits) - 1, code & (1 << fmt.fraction_bits) - 1
    hidden = (exponent > 0) << fmt.fraction_bits
    return (
        (-1) ** (code >> fmt.bits - 1) * (hidden | fraction) * 2.0 ** (max(exponent, 1) - fmt.bias - fmt.fraction_bits)
    )


@pytest.mark.parametrize("instruction", native(CONFIG, ARCH)[::7], ids=str)
def test_the_largest_products(instruction: Instruction, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(blocks, "_LARGEST", 1.0)
    monkeypatch.setattr(blocks, "_LONE", 0.0)
    operands = blocks._matrices(instruction, distributions(instruction)[0], (8, 4), np.random.default_rng(seed))
    for fmt, codes in ((instruction.a, operands.a), (instruction.b, operands.b)):
        drawn = codes.ravel() >> instruction.low_bit(fmt) & (1 << fmt.bits) - 1
        most = int(np.bincount(drawn).argmax())
        assert (drawn == most).mean() > 0.8
        least = -(1 << fmt.bits - 1) if fmt.is_integer else -fmt.maximum
        assert value(most, fmt) in ({least, fmt.maximum} if fmt.signed else {fmt.maximum})


def test_some_blocks_are_of_the_largest_products(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    """One in twenty."""
    enlarged = 0

    def counted(*_: object) -> None:
        nonlocal enlarged
        enlarged += 1

    monkeypatch.setattr(blocks, "_enlarge", counted)
    assert len([*islice(random_blocks(CONFIG, ARCH, rng, 1, 1), 300)]) == 300
    assert enlarged >= 2
