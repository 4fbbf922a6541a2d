"""The golden model against ``mmasim``: every modelled float row of ``mma`` and ``mma.sp``, 100,000 outputs a row."""

from collections import defaultdict

import numpy as np
import pytest
from mmasim.nv_ptx import MMA, MMABlockScale
from mmasim.nv_ptx.isa_mma import mma_block_scale_shape_and_type, mma_shape_and_type
from sptc.isa.instructions import Instruction, every_instruction
from sptc.isa.numerics import Method, numerics
from sptc.sim.benches.random_operands import FLOAT_DISTRIBUTIONS

from .oracle import compare

#: sm_86 has the numerics of sm_80; sm_90 is measured and needs no oracle.
ORACLE_ARCHITECTURES = {
    "sm_80": "Ampere",
    "sm_86": "Ampere",
    "sm_89": "Ada Lovelace",
    "sm_100": "Blackwell",
    "sm_120": "RTX Blackwell",
}
OUTPUTS = 100_000


def _rows() -> dict[tuple[str, str], list[Instruction]]:
    """Float rows that are not recorded here, by architecture and text; both spellings of a sparse one share one."""
    rows = defaultdict(list)
    for instruction in every_instruction("mma"):
        for arch in instruction.architectures:
            row = numerics(instruction, arch)
            if arch != "sm_90" and row.method is not Method.INTEGER:
                rows[arch, str(instruction).replace("sp::ordered_metadata", "sp")].append(instruction)
    return dict(rows)


def _oracle_name(instruction: Instruction) -> str:
    shape = f"m{instruction.m}n{instruction.n}k{instruction.stored_k}"
    types = f"{instruction.d.name}.{instruction.a.name}.{instruction.b.name}.{instruction.c.name}"
    if instruction.scale_format and instruction.scale_size:
        block = instruction.stored_k // instruction.scale_size
        return f"{shape}.kind::{instruction.kind}.block{block}.{types}.{instruction.scale_format.name}"
    return f"{shape}.kind::{instruction.kind}.{types}" if instruction.kind else f"{shape}.{types}"


def _is_known(arch: str, instruction: Instruction) -> bool:
    table = mma_block_scale_shape_and_type if instruction.scale_format else mma_shape_and_type
    return _oracle_name(instruction) in table.get(ORACLE_ARCHITECTURES[arch], ())


ROWS = _rows()
# fp8 without a kind on sm_100 is a sequence of f16 instructions that the assembler emits; mmasim models hardware alone.
KNOWN_ROWS = {row: instructions for row, instructions in ROWS.items() if _is_known(row[0], instructions[0])}


def _oracle(arch: str, i: Instruction) -> MMA | MMABlockScale:
    return (MMABlockScale if i.scale_format else MMA)(ORACLE_ARCHITECTURES[arch], _oracle_name(i))


@pytest.mark.quick_cases(24)
@pytest.mark.parametrize("row", KNOWN_ROWS, ids=" ".join)
def test_row(row: tuple[str, str], rng: np.random.Generator) -> None:
    """Every distribution and spelling; one spelling also with all sixteen nibbles."""
    arch, spellings = row[0], KNOWN_ROWS[row]
    oracle = _oracle(arch, spellings[0])
    forms = [*((i, False) for i in spellings), *([(spellings[0], True)] if spellings[0].sparse else [])]
    tiles = -(-OUTPUTS // (len(FLOAT_DISTRIBUTIONS) * spellings[0].m * spellings[0].n))
    outputs = 0
    for number, distribution in enumerate(FLOAT_DISTRIBUTIONS):
        i, any_nibble = forms[number % len(forms)]
        outputs += compare(i, arch, oracle, distribution, rng, tiles=tiles, any_nibble=any_nibble)
    assert outputs >= OUTPUTS


def test_every_modelled_row_is_known_but_the_emulated_ones() -> None:
    unknown = {row for row in ROWS if row not in KNOWN_ROWS}
    emulated = {row for row in ROWS if numerics(ROWS[row][0], row[0]).method is Method.EMULATED}
    assert unknown == emulated
    assert {arch for arch, _ in emulated} == {"sm_100"}
    assert {arch for arch, _ in KNOWN_ROWS} == set(ORACLE_ARCHITECTURES)


def test_a_planted_fault_is_seen(rng: np.random.Generator) -> None:
    """The comparison itself: another architecture's alignment must show in it."""
    (i,) = KNOWN_ROWS["sm_80", "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"]
    compare(i, "sm_80", _oracle("sm_80", i), "mid", rng, tiles=80)
    with pytest.raises(AssertionError, match="outputs differ"):
        compare(i, "sm_90", _oracle("sm_80", i), "mid", rng, tiles=80)
