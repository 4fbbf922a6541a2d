"""``tcgen05.mma``, dense and sparse, and dense ``wgmma`` against ``mmasim``: 10,240 outputs a row, or ten times that.

Their ways through registers and memory have tests of their own. ``mmasim`` has no integers; those of
:mod:`sptc.golden.integer` are exact sums.
"""

import numpy as np
import pytest
from mmasim.nv_ptx import WGMMA, TCGen05MMA, TCGen05MMABlockScale
from sptc.isa.instructions import Instruction, every_instruction
from sptc.isa.tcgen05 import instructions_of, parse_opcode
from sptc.sim.benches.random_operands import FLOAT_DISTRIBUTIONS

from .oracle import compare

KINDS = [
    *("tf32", "f16", "f8f6f4"),
    *(f"{kind}.block_scale" for kind in ("mxf8f6f4", "mxf4")),
    *(f"mxf4nvf4.block_scale.{word}" for word in ("block32", "block16")),
]
TEXTS = [f"tcgen05.mma{sp}.cta_group::1.kind::{kind}" for sp in (".sp", "") for kind in KINDS]


Oracle = TCGen05MMA | TCGen05MMABlockScale | WGMMA


def _rows(n: int) -> list[Instruction]:
    """Return one of each type: tcgen05 of 128 rows and n columns, wgmma of half the rows and twice the columns."""
    wgmma = [i for i in every_instruction("wgmma") if i.n == 2 * n and not i.sparse and not i.a.is_integer]
    return [i for text in TEXTS for i in instructions_of(parse_opcode(text)) if (i.m, i.n) == (128, n)] + wgmma


def _oracle(i: Instruction) -> Oracle:
    if i.family == "wgmma":
        return WGMMA("Hopper", f"{i.shape}.{i.d.name}.{i.a.name}.{i.b.name}")
    name = f"m{i.m}n{i.n}k{i.stored_k}.kind::{i.kind}"
    types = f"{i.d.name}.{i.a.name}.{i.b.name}"
    if i.scale_format and i.scale_size:
        block = i.stored_k // i.scale_size
        return TCGen05MMABlockScale("Blackwell", f"{name}.block{block}.{types}.{i.scale_format.name}")
    return TCGen05MMA("Blackwell", f"{name}.{types}")


def _row(i: Instruction, rng: np.random.Generator) -> int:
    """Compare a tile of every distribution, in turns with legal nibbles and with all sixteen."""
    oracle, (arch,) = _oracle(i), i.architectures
    forms = enumerate(FLOAT_DISTRIBUTIONS)
    return sum(compare(i, arch, oracle, name, rng, any_nibble=number % 2 == 1) for number, name in forms)


@pytest.mark.quick_cases(32)
@pytest.mark.parametrize("i", _rows(8), ids=str)
def test_row(i: Instruction, rng: np.random.Generator) -> None:
    assert _row(i, rng) >= 10_000


@pytest.mark.regression
@pytest.mark.parametrize("i", _rows(80), ids=str)
def test_row_at_length(i: Instruction, rng: np.random.Generator) -> None:
    assert _row(i, rng) >= 100_000


def test_every_float_instruction_is_a_row() -> None:
    """By types: one tf32, three of 16 bits, 25 pairs with two accumulators, 25 scaled pairs, four of packed e2m1."""
    for sparse in ("sp", ""):
        rows = [[i for i in _rows(n) if i.sparse == sparse] for n in (8, 80)]
        assert [sum(i.kind == kind for i in rows[0]) for kind in ("tf32", "f16", "f8f6f4")] == [1, 3, 50]
        assert [sum(i.kind == kind for i in rows[1]) for kind in ("mxf8f6f4", "mxf4", "mxf4nvf4")] == [25, 1, 3]
    assert [sum(i.family == "wgmma" for i in _rows(n)) for n in (8, 80)] == [1 + 2 + 1 + 4 * 2] * 2
    assert {i.d.name for i in _rows(8)} == {"f16", "f32"}


def test_a_planted_fault_is_seen(rng: np.random.Generator) -> None:
    """The comparison itself: an oracle that keeps one bit less must differ."""
    for i in (i for i in _rows(8) if i.a.name == "bf16" or (i.family, i.d.name) == ("wgmma", "f32")):
        oracle, (arch,) = _oracle(i), i.architectures
        compare(i, arch, oracle, "mid", rng)
        oracle.arithmetic_op.F -= 1
        with pytest.raises(AssertionError, match="outputs differ"):
            compare(i, arch, oracle, "mid", rng)
