"""An emulated instruction is computed as two instructions with wider elements, as the assembler does."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from sptc.errors import BackendError
from sptc.golden.matrix import multiply
from sptc.isa.instructions import Instruction, every_instruction, parse
from sptc.isa.operands import MatrixOperands
from sptc.sim.benches.random_operands import distributions
from sptc.sim.engine import emulation
from sptc.tests.sim.matrices import matrices

SHAPE = (3, 4, 5)
MMA = [i for i in every_instruction("mma") if "sm_90" in i.architectures]
FP8 = [i for i in MMA if i.a.name in ("e4m3", "e5m2") and not i.kind]
FOUR_BIT = [i for i in MMA if i.a.name in ("s4", "u4")]


def golden(arch: str, calls: list[Instruction]) -> Callable[..., NDArray]:
    """Return a stand-in for a datapath. It computes with the golden model, and appends each instruction to `calls`."""

    def compute(i: Instruction, operands: MatrixOperands) -> NDArray:
        calls.append(i)
        return multiply(i, arch, operands)

    return compute


@pytest.mark.parametrize("i", [*FP8, *FOUR_BIT], ids=str)
def test_two_instructions_of_wider_elements(rng: np.random.Generator, i: Instruction) -> None:
    wider = ["f16", "f16"] if i in FP8 else [fmt.name.replace("4", "8") for fmt in (i.a, i.b)]
    for kind in distributions(i):
        calls: list[Instruction] = []
        operands = matrices(i, SHAPE, kind, rng)
        with np.errstate(invalid="raise"):
            result = emulation.run(golden("sm_90", calls), i, operands)
        np.testing.assert_array_equal(result, multiply(i, "sm_90", operands), err_msg=kind)
        assert result.dtype == operands.c.dtype
        parts = [(part.a.name, part.b.name, part.k, part.d, part.satfinite) for part in calls]
        assert parts == 2 * [(*wider, i.k // 2, i.d, False)]


@pytest.mark.parametrize(
    "text",
    [
        "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e4m3.e5m2.f32",
        "mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0",
        "wgmma.mma_async.sp.sync.aligned.m64n8k64.f32.e4m3.e4m3",
    ],
)
def test_other_instructions_are_not_emulated(text: str) -> None:
    i = parse(text)
    empty = np.zeros((1, 1, 1), np.uint8)
    with pytest.raises(BackendError, match=r"^the RTL datapath does not support the formats of ") as caught:
        emulation.run(golden("sm_90", []), i, MatrixOperands(empty, empty, empty))
    assert str(i) in str(caught.value)
