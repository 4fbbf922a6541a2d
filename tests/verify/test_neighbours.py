"""Neighbours of a model: what is said to make no difference makes none, and what may make one does."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
from sptc.isa.instructions import ARCHITECTURES, Instruction, every_instruction, parse
from sptc.isa.numerics import numerics
from sptc.isa.tcgen05 import every_opcode, instructions_of
from sptc.verify.candidates import draw_candidates
from sptc.verify.neighbours import neighbours_of, right_model, same_alignment, same_floor, same_steps


def forms() -> Iterator[tuple[Instruction, str]]:
    """Yield each instruction of other operands once, with each architecture that has it; n is 8."""
    seen = set()
    for i in chain(every_instruction(), *map(instructions_of, every_opcode())):
        for arch in i.architectures:
            form = replace(i, n=8, m=min(i.m, 64))
            if (form, arch) not in seen:
                seen.add((form, arch))
                yield form, arch


FORMS = list(forms())


@pytest.mark.quick_cases(40)
@pytest.mark.parametrize(("instruction", "arch"), FORMS, ids=lambda value: str(value))
def test_what_cannot_differ_does_not(instruction: Instruction, arch: str, rng: np.random.Generator) -> None:
    right = right_model(instruction, arch)
    same = [neighbour for neighbour in neighbours_of(instruction, arch) if neighbour.same]
    for drawn in draw_candidates(instruction, right.numerics, rng, 2):
        wanted = right.multiply(drawn.given)
        for neighbour in same:
            if drawn.given.elsewhere is not None or "selector" not in neighbour.name:
                assert (neighbour.multiply(drawn.given) == wanted).all(), neighbour.name


def test_every_architecture_is_asked_and_names_are_unique() -> None:
    assert {arch for _, arch in FORMS} == set(ARCHITECTURES)
    for instruction, arch in FORMS:
        names = [neighbour.name for neighbour in neighbours_of(instruction, arch)]
        assert len(set(names)) == len(names) >= 5, (str(instruction), arch)


def test_reasons_end_where_the_formats_reach() -> None:
    """Each argument holds for one instruction and not for another."""
    f16, bf16, short = (
        parse(f"mma.sp.sync.aligned.m16n8{rest}")
        for rest in ("k32.row.col.f32.f16.f16.f32", "k32.row.col.f32.bf16.bf16.f32", "k16.row.col.f32.f16.f16.f32")
    )
    p = numerics(f16, "sm_90")
    higher = replace(p, zero_exponent=p.zero_exponent + 1)
    assert "exponent of -126" in same_floor(f16, p, higher)
    assert same_floor(bf16, p, higher) == ""
    # Of a subnormal accumulator 25 bits below an exponent of -119 are not all.
    assert same_floor(f16, replace(p, zero_exponent=-120), replace(p, zero_exponent=-119)) == ""
    half = replace(p, step=8)
    assert same_steps(f16, p, half) == ""
    assert "the 8 products" in same_steps(short, p, half)
    assert "the 16 products" in same_steps(f16, p, replace(p, step=32))
    assert same_alignment(f16, p, replace(p, alignment_bits=26)) == ""
    # From the largest f32 down to the last bit of the least one, or of a product of f16, it is 276 bits.
    assert same_alignment(f16, replace(p, alignment_bits=275), replace(p, alignment_bits=300)) == ""
    assert "2^-149" in same_alignment(f16, replace(p, alignment_bits=276), replace(p, alignment_bits=300))
