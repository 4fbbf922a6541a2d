"""Alignment drops bits that are too far below the smallest alignment exponent (e_zero)."""

from collections.abc import Iterator

import numpy as np
import pytest
from sptc.api.backends import backend
from sptc.isa.instructions import Instruction, every_instruction
from sptc.isa.operands import MatrixOperands

#: Types of A and D whose products can be smaller than the smallest alignment exponent.
PAIRS = {("bf16", "f32"), ("tf32", "f32"), ("f16", "f16")}
#: For each type of D, exponents of the last bit that alignment keeps: the first if e_max is e_zero, the second if e_max
#: is the exponent of a subnormal accumulator. `_SHORTER` is for F = 24 alignment bits, `_LONGER` for F = 25.
_SHORTER = {"f32": (-156, -150), "f16": (-44, -38)}
_LONGER = {"f32": (-158, -151), "f16": (-46, -39)}
LAST = {**dict.fromkeys(("sm_80", "sm_89"), _SHORTER), **dict.fromkeys(("sm_90", "sm_100", "sm_120"), _LONGER)}
#: Exponent of half the smallest subnormal of f16, and of the smallest subnormal of f32.
_TIE, _LEAST = -25, -149
#: Nibble of a chunk whose first two elements are stored.
_FIRST = 0b0100
#: A test case: sign and exponent of each product, code of the accumulator, and expected code of D.
Directed = tuple[tuple[tuple[int, int], ...], int, int]


def directed(arch: str, d: str) -> Iterator[Directed]:
    """Yield cases with the smallest product that is kept and the largest that is lost, each with C = 0 and C > 0."""
    alone, beside = LAST[arch][d]
    if d == "f32":  # a kept negative term makes the truncated sum zero
        for last, c in ((alone, 0), (beside, 1)):
            whole = () if c else ((1, _LEAST),)
            yield (*whole, (-1, last)), c, 0
            yield (*whole, (-1, last - 1)), c, 1
    else:  # a kept term decides in which direction a tie is rounded
        yield ((1, _TIE), (1, alone)), 0, 1
        yield ((1, _TIE), (1, alone - 1)), 0, 0
        yield ((1, _TIE), (-1, beside)), 1, 1
        yield ((1, _TIE), (-1, beside - 1)), 1, 2
    yield (), 1 << {"f32": 31, "f16": 15}[d], 0  # a zero result is positive


def instructions(arch: str) -> list[Instruction]:
    """Return one instruction of each family, type and K, sparse and dense."""
    results = {
        (i.family, i.a.name, i.d.name, i.k, bool(i.sparse)): i
        for i in reversed(list(every_instruction()))
        if arch in i.architectures and (i.a.name, i.d.name) in PAIRS
    }
    return list(results.values())


def code(i: Instruction, value: float) -> int:
    """Return the code of a number in its container. bf16 and tf32 are the upper part of an f32."""
    if i.a.name == "f16":
        return int(np.float16(value).view(np.uint16))
    word = int(np.float32(value).view(np.uint32))
    return word >> 16 if i.a.name == "bf16" else word


def operands(i: Instruction, products: tuple[tuple[int, int], ...], c: int) -> MatrixOperands:
    """Return operands in which the first products of every output have the given signs and exponents."""
    a = np.zeros((1, i.m, i.stored_k), np.uint16 if i.container_bits == 16 else np.uint32)
    b = np.zeros((1, i.k, i.n), a.dtype)
    # Sparse 32-bit types store one of two elements.
    stride = 2 if i.sparse and i.container_bits == 32 else 1
    for place, (sign, exponent) in enumerate(products):
        upper, lower = exponent // 2, exponent - exponent // 2
        a[..., place], b[:, stride * place] = code(i, sign * 2.0**upper), code(i, 2.0**lower)
    nibbles = np.full((1, i.m, i.chunks), _FIRST, np.uint8) if i.sparse else None
    return MatrixOperands(a, b, np.full((1, i.m, i.n), c, np.uint16 if i.d.bits == 16 else np.uint32), nibbles)


@pytest.mark.parametrize("name", ["golden", "native", pytest.param("rtl", marks=pytest.mark.regression)])
@pytest.mark.parametrize("arch", LAST)
def test_what_is_lost_below_the_floor(arch: str, name: str) -> None:
    computes, checked = backend(name), 0
    for i in instructions(arch):
        for products, c, expected in directed(arch, i.d.name):
            d = computes.multiply(i, arch, operands(i, products, c)).d
            assert (d == expected).all(), (str(i), products, c, hex(int(d.flat[0])))
            checked += 1
    assert checked >= 5 * 9
