"""Random blocks of steps reach what faults hide behind."""

from itertools import islice

import numpy as np
import pytest
from sptc.isa.formats import Format, Specials
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
    monkeypatch.setattr(blocks, "_NEARLY_SPECIAL", 0.0)
    operands = blocks._matrices(instruction, distributions(instruction)[0], (8, 4), np.random.default_rng(seed))
    for fmt, codes in ((instruction.a, operands.a), (instruction.b, operands.b)):
        drawn = codes.ravel() >> instruction.low_bit(fmt) & (1 << fmt.bits) - 1
        most = int(np.bincount(drawn).argmax())
        assert (drawn == most).mean() > 0.8
        least = -(1 << fmt.bits - 1) if fmt.is_integer else -fmt.maximum
        assert value(most, fmt) in ({least, fmt.maximum} if fmt.signed else {fmt.maximum})


@pytest.mark.parametrize(("recipe", "least"), [("_enlarge", 2), ("_bring_near", 20)])
def test_some_blocks_are_made_so(
    recipe: str, least: int, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    """Of 300, one in twenty of the largest products, of floats one in five of what is nearly special."""
    made = 0

    def counted(*_: object) -> None:
        nonlocal made
        made += 1

    monkeypatch.setattr(blocks, recipe, counted)
    assert len([*islice(random_blocks(CONFIG, ARCH, rng, 1, 1), 300)]) == 300
    assert made >= least


FLOATS = {i.a: i for i in native(CONFIG, ARCH) if not i.a.is_integer}


@pytest.mark.parametrize("instruction", FLOATS.values(), ids=[fmt.name for fmt in FLOATS])
def test_elements_a_bit_away_from_a_special_one(instruction: Instruction, seed: int) -> None:
    fmt = instruction.a
    codes = np.zeros((1, 64, 64), np.uint32)
    blocks._bring_near(codes, fmt, instruction.low_bit(fmt), np.random.default_rng(seed))
    drawn = codes[codes != 0].astype(np.int64) >> instruction.low_bit(fmt)
    whole = fmt.exponent_bits + fmt.fraction_bits
    assert (drawn >> whole <= fmt.signed).all()
    looked_at = fmt.exponent_bits if fmt.specials is not Specials.NAN else whole
    missing = (1 << looked_at) - 1 ^ (drawn & (1 << whole) - 1) >> whole - looked_at
    assert set(missing.tolist()) == {1 << bit for bit in range(looked_at)}
    assert 0.4 < len(drawn) / codes.size < 0.6
