"""Tiles around the least exponent: recorded, they tell it from its neighbours."""

from dataclasses import replace

import numpy as np
import pytest
from sptc.golden import matrix
from sptc.isa.instructions import Instruction, every_instruction
from sptc.isa.numerics import Numerics, numerics
from sptc.verify.candidates import least_matrices
from sptc.verify.register_file import read, shipped

Random = np.random.Generator
RECORDED = [path for path in shipped() if path.name.endswith(".least.npz")]
#: Types of A and D whose products reach below any floor.
REACHING = ("bf16", "f32"), ("tf32", "f32"), ("f16", "f16")


def _names(instruction: Instruction) -> tuple[str, str, str, str, bool]:
    return instruction.family, instruction.a.name, instruction.b.name, instruction.d.name, bool(instruction.sparse)


def test_recordings_tell_the_least_exponent(monkeypatch: pytest.MonkeyPatch) -> None:
    for by in (-1, 0, 1):

        def moved(instruction: Instruction, arch: str, by: int = by) -> Numerics:
            found = numerics(instruction, arch)
            return replace(found, zero_exponent=found.zero_exponent + by)

        monkeypatch.setattr(matrix, "numerics", moved)
        for path in RECORDED:
            file = read(path)
            assert file.d is not None
            reaches = (file.instruction.a.name, file.instruction.d.name) in REACHING
            assert (file.run("golden") == file.d).all() == (by == 0 or not reaches), (path.name, by)


def test_every_family_and_type_was_recorded() -> None:
    """Of wgmma with fp8 one pair of each result: its floor is below whatever a product reaches."""
    wanted = {
        _names(i)
        for i in every_instruction()
        if "sm_90" in i.architectures
        and not i.a.is_integer
        and not (i.family == "wgmma" and i.container_bits == 8 and (i.a.name, i.b.name) != ("e5m2", "e5m2"))
    }
    assert wanted <= {_names(read(path).instruction) for path in RECORDED}


def test_tiles_have_two_products_at_most(rng: Random) -> None:
    """Beside zeros of either sign, where metadata selects them."""
    for i in every_instruction("mma"):
        if not i.a.is_integer and i.scale_format is None:
            drawn = least_matrices(i, rng, 10)
            codes = drawn.a.astype(np.int64) >> i.low_bit(i.a) & ((1 << i.a.bits - 1) - 1)
            counts = np.count_nonzero(codes, axis=2)
            assert set(np.unique(counts)) == {0, 1, 2}, str(i)
