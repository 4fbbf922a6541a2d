"""The golden model equals ``mmasim``, which has no integer instructions, in 10,000 or more outputs per instruction."""

from collections import defaultdict
from types import ModuleType

import numpy as np
import pytest
from sptc.isa.instructions import Instruction, every_instruction
from sptc.isa.numerics import Method, numerics
from sptc.isa.tcgen05 import instructions_of, parse_opcode
from sptc.sim.benches.random_operands import FLOAT_DISTRIBUTIONS

OUTPUTS = 100_000
KINDS = [
    *("tf32", "f16", "f8f6f4"),
    *(f"{kind}.block_scale" for kind in ("mxf8f6f4", "mxf4")),
    *(f"mxf4nvf4.block_scale.{word}" for word in ("block32", "block16")),
]
TEXTS = [f"tcgen05.mma{sp}.cta_group::1.kind::{kind}" for sp in (".sp", "") for kind in KINDS]


def _rows() -> dict[tuple[str, str], list[Instruction]]:
    """Return the float instructions of each architecture except sm_90, which recordings cover.

    Keys are architectures with names of instructions without ``::ordered_metadata``.
    """
    rows = defaultdict(list)
    for instruction in every_instruction("mma"):
        for arch in instruction.architectures:
            row = numerics(instruction, arch)
            if arch != "sm_90" and row.method is not Method.INTEGER:
                rows[arch, str(instruction).replace("sp::ordered_metadata", "sp")].append(instruction)
    return dict(rows)


ROWS = _rows()
# The assembler turns fp8 `mma` without a kind into f16 instructions on sm_100. mmasim models only the hardware.
EMULATED = {row for row in ROWS if numerics(ROWS[row][0], row[0]).method is Method.EMULATED}
KNOWN_ROWS = {row: instructions for row, instructions in ROWS.items() if row not in EMULATED}


@pytest.fixture(scope="module")
def oracle() -> ModuleType:
    """Benchmark module that compares models with mmasim. The import takes long, so only this fixture imports it."""
    from sptc.benchmarks import oracle

    return oracle


@pytest.mark.quick_cases(24)
@pytest.mark.parametrize("row", KNOWN_ROWS, ids=" ".join)
def test_row(row: tuple[str, str], oracle: ModuleType, rng: np.random.Generator) -> None:
    arch, spellings = row[0], KNOWN_ROWS[row]
    model = oracle.oracle_of(spellings[0], arch)
    forms = [*((i, False) for i in spellings), *([(spellings[0], True)] if spellings[0].sparse else [])]
    tiles = -(-OUTPUTS // (len(FLOAT_DISTRIBUTIONS) * spellings[0].m * spellings[0].n))
    outputs = 0
    for number, distribution in enumerate(FLOAT_DISTRIBUTIONS):
        i, any_nibble = forms[number % len(forms)]
        outputs += oracle.compare(i, arch, model, distribution, rng, tiles=tiles, any_nibble=any_nibble)
    assert outputs >= OUTPUTS


def test_every_modelled_row_is_known_but_the_emulated_ones(oracle: ModuleType) -> None:
    from mmasim.nv_ptx.isa_mma import mma_block_scale_shape_and_type, mma_shape_and_type

    for (arch, text), (i, *_) in ROWS.items():
        table = mma_block_scale_shape_and_type if i.scale_format else mma_shape_and_type
        known = oracle.name_of(i) in table.get(oracle.NAMES[arch], ())
        assert known == ((arch, text) not in EMULATED), (arch, text)
    assert {arch for arch, _ in EMULATED} == {"sm_100"}
    assert {arch for arch, _ in KNOWN_ROWS} == {*oracle.NAMES} - {"sm_90"}


def _matrices(n: int) -> list[Instruction]:
    """Return an instruction of each type: tcgen05 with 128 rows and n columns, wgmma with 64 rows and 2 n columns."""
    wgmma = [i for i in every_instruction("wgmma") if i.n == 2 * n and not i.sparse and not i.a.is_integer]
    return [i for text in TEXTS for i in instructions_of(parse_opcode(text)) if (i.m, i.n) == (128, n)] + wgmma


QUICK, LONG = _matrices(8), _matrices(80)


@pytest.mark.quick_cases(32)
@pytest.mark.parametrize("i", [*QUICK, *(pytest.param(i, marks=pytest.mark.regression) for i in LONG)], ids=str)
def test_matrices(i: Instruction, oracle: ModuleType, rng: np.random.Generator) -> None:
    """One tile of each operand distribution equals mmasim's result, alternately with legal and with all nibbles."""
    (arch,) = i.architectures
    model, outputs = oracle.oracle_of(i, arch), 0
    for number, name in enumerate(FLOAT_DISTRIBUTIONS):
        outputs += oracle.compare(i, arch, model, name, rng, any_nibble=number % 2 == 1)
    assert outputs >= (100_000 if i in LONG else 10_000)


def test_every_float_instruction_is_compared() -> None:
    """Instructions of all types are compared with mmasim, such as the 25 pairs of types of A and B of kind f8f6f4."""
    for sparse in ("sp", ""):
        rows = [[i for i in every if i.sparse == sparse] for every in (QUICK, LONG)]
        assert [sum(i.kind == kind for i in rows[0]) for kind in ("tf32", "f16", "f8f6f4")] == [1, 3, 50]
        assert [sum(i.kind == kind for i in rows[1]) for kind in ("mxf8f6f4", "mxf4", "mxf4nvf4")] == [25, 1, 3]
    assert [sum(i.family == "wgmma" for i in every) for every in (QUICK, LONG)] == [1 + 2 + 1 + 4 * 2] * 2
    assert {i.d.name for i in QUICK} == {"f16", "f32"}


def test_a_planted_fault_is_seen(oracle: ModuleType, rng: np.random.Generator) -> None:
    """The comparison detects a mmasim model that keeps one alignment bit less."""
    (of_mma,) = KNOWN_ROWS["sm_80", "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"]
    for i in (of_mma, *[i for i in QUICK if i.a.name == "bf16" or (i.family, i.d.name) == ("wgmma", "f32")]):
        arch, tiles = i.architectures[0], 80 if i is of_mma else 1
        model = oracle.oracle_of(i, arch)
        oracle.compare(i, arch, model, "mid", rng, tiles=tiles)
        model.arithmetic_op.F -= 1
        with pytest.raises(AssertionError, match="outputs differ"):
            oracle.compare(i, arch, model, "mid", rng, tiles=tiles)
