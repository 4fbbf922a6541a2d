"""Dense ``wgmma`` against that of ``mmasim``: every float type and result, over 100,000 outputs each.

Matrices alone: that registers and descriptors lead to them was measured.
"""

import numpy as np
import pytest
from mmasim.nv_ptx import WGMMA
from sptc.golden.matrix import multiply
from sptc.golden.registers import CONTAINERS
from sptc.isa.instructions import Instruction, every_instruction
from sptc.isa.operands import MatrixOperands
from sptc.sim.benches.random_operands import FLOAT_DISTRIBUTIONS, random_codes

from .torch_codes import result_codes, tensor

N = 32
ROWS = [i for i in every_instruction("wgmma") if not i.sparse and i.n == N and not i.a.is_integer]
OUTPUTS = 100_000


def _oracle(i: Instruction) -> WGMMA:
    return WGMMA("Hopper", f"{i.shape}.{i.d.name}.{i.a.name}.{i.b.name}")


def _compare(i: Instruction, oracle: WGMMA, distribution: str, tiles: int, rng: np.random.Generator) -> int:
    """Compute some tiles both ways; return the number of outputs that were compared."""
    a, b, c = (
        (random_codes(fmt, distribution, shape, rng) << fmt.ignored_low_bits).astype(CONTAINERS[fmt.container_bits])
        for fmt, shape in ((i.a, (tiles, i.m, i.k)), (i.b, (tiles, i.k, i.n)), (i.c, (tiles, i.m, i.n)))
    )
    columns = np.ascontiguousarray(b.swapaxes(1, 2))
    d = oracle.dpa(tensor(a, i.a.name)[:, :, None], tensor(columns, i.b.name)[:, None], tensor(c, i.c.name))
    got = multiply(i, "sm_90", MatrixOperands(a, b, c))
    np.testing.assert_array_equal(got, result_codes(d), err_msg=distribution)
    return got.size


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
