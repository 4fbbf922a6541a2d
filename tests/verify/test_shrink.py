"""Mismatches are reduced to few operands, tiles reveal wrong models, and models marked as equivalent are equivalent."""

from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from sptc.golden import matrix
from sptc.isa.instructions import ARCHITECTURES, Instruction, every_instruction, parse
from sptc.isa.numerics import Numerics, numerics
from sptc.isa.operands import MatrixOperands
from sptc.isa.tcgen05 import every_opcode, instructions_of
from sptc.operands.registers import unpack_nibbles
from sptc.sim.engine.engine import Engine
from sptc.sim.engine.steps import Steps
from sptc.verify.candidates import draw_candidates, least_matrices
from sptc.verify.neighbours import neighbours_of, right_model, same_alignment, same_floor, same_steps
from sptc.verify.pack_files import given_of
from sptc.verify.register_file import RegisterFile, read, shipped, write
from sptc.verify.shards import Plan, both
from sptc.verify.shrink import reproduce, shrink
from sptc.verify.stimulus import random_register_file

F16 = "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
ONE_STEP = "mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
S8 = "mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32"
WGMMA = "wgmma.mma_async.sp.sync.aligned.m64n8k64.f32.e4m3.e4m3"
SCALED = "mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0"

Push = Callable[[Engine, NDArray], NDArray]
RECORDED = [path for path in shipped() if path.name.endswith(".least.npz")]
#: Types of A and D for which products can have exponents below e_zero, the smallest alignment exponent.
REACHING = ("bf16", "f32"), ("tf32", "f32"), ("f16", "f16")
EVERY = chain(every_instruction(), *map(instructions_of, every_opcode()))
#: Every instruction with every architecture. Among instructions that differ only in N or in M above 64, one is kept.
FORMS = [*dict.fromkeys((replace(i, n=8, m=min(i.m, 64)), arch) for i in EVERY for arch in i.architectures)]


def matrices_of(file: RegisterFile) -> MatrixOperands:
    return given_of(replace(file, scale_d=True, imm_scale=(1, 1))).matrices


@pytest.mark.parametrize("text", [F16, S8, WGMMA, SCALED])
def test_operands_that_do_not_matter_are_cleared(text: str, rng: np.random.Generator) -> None:
    i = parse(text)
    arch = next(arch for arch in ("sm_90", "sm_120") if arch in i.architectures)
    file = random_register_file(i, arch, "bits" if not i.a.is_integer else "uniform", 1, rng, any_nibble=True)
    calls = 0

    def fails(candidate: RegisterFile) -> bool:
        """Return True if four chosen elements are nonzero and the nibble of row 3, chunk 1 equals that of `file`."""
        nonlocal calls
        calls += 1
        o = matrices_of(candidate)
        nibble = i.sparse and o.nibbles[0, 3, 1] != unpack_nibbles(file.e, i, 0)[0, 3, 1]
        return bool(o.a[0, 3, 1] and o.a[0, 3, 4] and o.b[0, 2, 5] and o.c[0, 3, 5] and not nibble)

    for name in ("a", "b", "c"):  # all codes are nonzero at the start
        if getattr(file, name) is not None:
            getattr(file, name)[...] |= 0x11111111
    small = shrink(file, 3, 5, fails)
    o = matrices_of(small)
    assert np.argwhere(o.a).tolist() == [[0, 3, 1], [0, 3, 4]]
    assert np.argwhere(o.b).tolist() == [[0, 2, 5]]
    assert np.argwhere(o.c).tolist() == [[0, 3, 5]]
    assert np.count_nonzero(small.b) == (1 if small.a is not None else 3)  # 3 if shared memory holds A and B
    if i.sparse:
        nibbles = o.nibbles[0]
        assert nibbles[3, 1] == unpack_nibbles(file.e, i, 0)[0, 3, 1]
        nibbles[3, 1] = 4
        assert (nibbles == 4).all()
    if i.scale_format:
        one = i.scale_format.bias << i.scale_format.fraction_bits
        assert (o.scale_a == one).all()
        assert (o.scale_b == one).all()
    assert calls < 200


def test_unused_bits_are_kept_if_they_matter(rng: np.random.Generator) -> None:
    file = random_register_file(parse(F16), "sm_90", "mid", 1, rng, sparsity_selector=0)
    file.e[0, 6] = 0x80  # unused with selector 0: lanes 2 and 3 of a quad hold the metadata for selector 1
    small = shrink(file, 0, 0, lambda candidate: bool(candidate.e[0, 6] & 0x80))
    assert small.e[0, 6] == 0x80
    assert not small.a.any()


def test_a_reproducer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, faulty_compute: Push) -> None:
    plan = Plan(seed=3, architectures=("sm_90",), instructions=(ONE_STEP,), tiles=8)
    shard = replace(plan.shard(0), distribution="mid")
    assert reproduce(shard) is None
    with monkeypatch.context() as fault:
        fault.setattr(Engine, "compute", faulty_compute)
        mismatch = reproduce(shard)
        write(tmp_path / "file.npz", mismatch.file)
        file = read(tmp_path / "file.npz")
        hardware, golden = both(file)
        assert (hardware != golden).sum() == 1
        where = mismatch.mismatch
        assert hardware[where.case, where.row, where.column] == where.computed
        assert golden[where.case, where.row, where.column] == where.expected == where.computed ^ 16
    assert file.cases == 1
    assert (file.metadata, file.arch) == ("silicon", "sm_90")
    assert (np.count_nonzero(file.a), np.count_nonzero(file.b), np.count_nonzero(file.c)) == (1, 0, 1)
    assert np.array_equal(file.d, file.run("golden"))
    assert np.array_equal(file.d, file.run("rtl"))


def test_a_mismatch_that_needs_the_tile_before(monkeypatch: pytest.MonkeyPatch) -> None:
    compute = Engine.compute

    def leaking(engine: Engine, steps: Steps, previous: NDArray | None = None) -> NDArray:
        results = compute(engine, steps, previous)
        results[1:] ^= np.uint64(1)
        return results

    monkeypatch.setattr(Engine, "compute", leaking)
    mismatch = reproduce(Plan(seed=3, architectures=("sm_90",), instructions=(ONE_STEP,), tiles=5).shard(0))
    assert mismatch.file.cases == 2
    assert mismatch.mismatch.case == 1


def _names(instruction: Instruction) -> tuple[str, str, str, str, bool]:
    return instruction.family, instruction.a.name, instruction.b.name, instruction.d.name, bool(instruction.sparse)


def test_recordings_determine_e_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    for by in (-1, 0, 1):

        def moved(instruction: Instruction, arch: str, by: int = by) -> Numerics:
            result = numerics(instruction, arch)
            return replace(result, zero_exponent=result.zero_exponent + by)

        monkeypatch.setattr(matrix, "numerics", moved)
        for path in RECORDED:
            file = read(path)
            reaches = (file.instruction.a.name, file.instruction.d.name) in REACHING
            assert (file.run("golden") == file.d).all() == (by == 0 or not reaches), (path.name, by)
    # Exponents of fp8 products exceed e_zero. Therefore, e5m2 times e5m2 is the only wgmma with fp8 that was recorded.
    expected = {
        _names(i)
        for i in every_instruction()
        if "sm_90" in i.architectures
        and not i.a.is_integer
        and not (i.family == "wgmma" and i.container_bits == 8 and (i.a.name, i.b.name) != ("e5m2", "e5m2"))
    }
    assert expected <= {_names(read(path).instruction) for path in RECORDED}


def test_tiles_have_two_products_at_most(rng: np.random.Generator) -> None:
    for i in every_instruction("mma"):
        if not i.a.is_integer and i.scale_format is None:
            codes = least_matrices(i, rng, 10).a.astype(np.int64) >> i.low_bit(i.a) & ((1 << i.a.bits - 1) - 1)
            assert set(np.unique(np.count_nonzero(codes, axis=2))) == {0, 1, 2}, str(i)


@pytest.mark.quick_cases(40)
@pytest.mark.parametrize(("instruction", "arch"), FORMS, ids=lambda value: str(value))
def test_neighbours_that_cannot_differ_do_not(instruction: Instruction, arch: str, rng: np.random.Generator) -> None:
    right = right_model(instruction, arch)
    same = [neighbour for neighbour in neighbours_of(instruction, arch) if neighbour.same]
    for drawn in draw_candidates(instruction, right.numerics, rng, 2):
        expected = right.multiply(drawn)
        for neighbour in same:
            if drawn.elsewhere is not None or "selector" not in neighbour.name:
                assert (neighbour.multiply(drawn) == expected).all(), neighbour.name


def test_every_architecture_has_neighbours_with_unique_names() -> None:
    assert {arch for _, arch in FORMS} == set(ARCHITECTURES)
    for instruction, arch in FORMS:
        names = [neighbour.name for neighbour in neighbours_of(instruction, arch)]
        assert len(set(names)) == len(names) >= 5, (str(instruction), arch)


def test_limits_of_the_reasons() -> None:
    """Each reason why a neighbour of a model cannot differ applies only under the right conditions."""
    f16, bf16, short = (
        parse(f"mma.sp.sync.aligned.m16n8{rest}")
        for rest in ("k32.row.col.f32.f16.f16.f32", "k32.row.col.f32.bf16.bf16.f32", "k16.row.col.f32.f16.f16.f32")
    )
    p = numerics(f16, "sm_90")
    higher = replace(p, zero_exponent=p.zero_exponent + 1)
    assert "exponent of -126" in same_floor(f16, p, higher)
    assert same_floor(bf16, p, higher) == ""
    # The 25 bits below an exponent of -119 do not include all bits of a subnormal accumulator.
    assert same_floor(f16, replace(p, zero_exponent=-120), replace(p, zero_exponent=-119)) == ""
    half = replace(p, step=8)
    assert same_steps(f16, p, half) == ""
    assert "the 8 products" in same_steps(short, p, half)
    assert "the 16 products" in same_steps(f16, p, replace(p, step=32))
    assert same_alignment(f16, p, replace(p, alignment_bits=26)) == ""
    # The first bit of the largest f32 (2^127) and the last bit of the smallest (2^-149) are 276 bits apart. All bits of
    # f16 products are between them.
    assert same_alignment(f16, replace(p, alignment_bits=275), replace(p, alignment_bits=300)) == ""
    assert "2^-149" in same_alignment(f16, replace(p, alignment_bits=276), replace(p, alignment_bits=300))
