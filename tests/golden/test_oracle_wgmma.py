"""Dense ``wgmma`` against that of ``mmasim``: every float type and result, over 100,000 outputs each.

Matrices alone: that registers and descriptors lead to them was measured.
"""

import numpy as np
import pytest
import torch
from mmasim.nv_ptx import WGMMA
from numpy.typing import NDArray
from sptc.golden.matrix import multiply
from sptc.golden.registers import CONTAINERS
from sptc.isa.formats import Format
from sptc.isa.instructions import Instruction, every_instruction
from sptc.isa.operands import MatrixOperands
from sptc.sim.benches.random_operands import FLOAT_DISTRIBUTIONS, random_codes

N = 32
ROWS = [i for i in every_instruction("wgmma") if not i.sparse and i.n == N and not i.a.is_integer]
TORCH_TYPES = {
    "f32": torch.float32,
    "tf32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
}
OUTPUTS = 100_000


def _tensor(codes: NDArray, fmt: Format) -> torch.Tensor:
    dtype = TORCH_TYPES[fmt.name]
    signed = codes.view(f"i{dtype.itemsize}" if dtype.itemsize > 1 else "u1")
    return torch.from_numpy(signed).view(dtype)


def _oracle(i: Instruction) -> WGMMA:
    return WGMMA("Hopper", f"{i.shape}.{i.d.name}.{i.a.name}.{i.b.name}")


def _compare(i: Instruction, oracle: WGMMA, distribution: str, tiles: int, rng: np.random.Generator) -> int:
    """Compute some tiles both ways; return the number of outputs that were compared."""
    a, b, c = (
        (random_codes(fmt, distribution, shape, rng) << fmt.ignored_low_bits).astype(CONTAINERS[fmt.container_bits])
        for fmt, shape in ((i.a, (tiles, i.m, i.k)), (i.b, (tiles, i.k, i.n)), (i.c, (tiles, i.m, i.n)))
    )
    columns = np.ascontiguousarray(b.swapaxes(1, 2))
    d = oracle.dpa(_tensor(a, i.a)[:, :, None], _tensor(columns, i.b)[:, None], _tensor(c, i.c))
    half = i.d.name == "f16"
    codes = d.view(torch.int16 if half else torch.int32).numpy().view(np.uint16 if half else np.uint32)
    wanted = np.where(d.isnan().numpy(), np.uint32(0x7FFF if half else 0x7FFFFFFF), codes)
    np.testing.assert_array_equal(multiply(i, "sm_90", MatrixOperands(a, b, c)), wanted, err_msg=distribution)
    return int(wanted.size)


@pytest.mark.parametrize("i", ROWS, ids=str)
def test_row(i: Instruction, rng: np.random.Generator) -> None:
    oracle = _oracle(i)
    tiles = -(-OUTPUTS // (i.m * i.n * len(FLOAT_DISTRIBUTIONS)))
    assert sum(_compare(i, oracle, name, tiles, rng) for name in FLOAT_DISTRIBUTIONS) >= OUTPUTS


def test_every_float_type_is_a_row() -> None:
    assert len(ROWS) == 1 + 2 + 1 + 4 * 2


def test_a_planted_fault_is_seen(rng: np.random.Generator) -> None:
    """An oracle that keeps a bit less; results of f16 are too short to show it in a few tiles."""
    for i in (row for row in ROWS if row.d.name == "f32"):
        oracle = _oracle(i)
        oracle.arithmetic_op.F -= 1
        with pytest.raises(AssertionError):
            _compare(i, oracle, "mid", 4, rng)
