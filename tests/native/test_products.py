"""The C++ library equals the golden model for all instructions, architectures and kernel builds, and any M, N, K."""

import ctypes
import platform
import sys
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from sptc.errors import BackendError
from sptc.golden.matrix import multiply as golden
from sptc.isa.formats import Format
from sptc.isa.instructions import Instruction, parse
from sptc.isa.numerics import numerics
from sptc.native.backend import multiply
from sptc.native.library import KERNELS
from sptc.native.tables import forms
from sptc.sim.benches.random_operands import distributions

from .products import available, random_product

FORMS = [form.instruction for form in forms()]
F16 = "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"


def cases() -> Iterator[tuple[Instruction, str]]:
    """Yield pairs of instruction and architecture. The library computes any other pair like one of these pairs."""
    results = {}
    for i in FORMS:
        for arch in i.architectures:
            alike = numerics(i, arch), i.a, i.b, i.d, i.k, i.kind, bool(i.sparse), i.rule, i.satfinite, i.scale_format
            results.setdefault(alike, (i, arch))
    yield from results.values()


def check(instruction: Instruction, arch: str, rng: np.random.Generator, most: int = 10, **choices: object) -> int:
    """Compare products of the C++ library and of the golden model. Return the number of compared outputs."""
    outputs = 0
    every = distributions(instruction)
    for distribution in rng.choice(every, min(most, len(every)), replace=False):
        m, n = int(rng.integers(1, 20)), int(rng.integers(1, 90))
        operands = random_product(instruction, distribution, rng, m, n)
        expected = golden(instruction, arch, operands)
        result = multiply(instruction, arch, operands, **choices)
        differing = np.argwhere(result != expected)
        assert not len(differing), (
            f"{instruction} on {arch}, {distribution}, {choices}: {len(differing)} of {expected.size} outputs differ, "
            f"the first at {differing[0]}: {result[tuple(differing[0])]:#x}, not {expected[tuple(differing[0])]:#x}"
        )
        outputs += expected.size
    return outputs


def test_every_way_to_compute(rng: np.random.Generator) -> None:
    assert sum(check(i, arch, rng, 5) for i, arch in cases()) > 500_000


@pytest.mark.parametrize("kernels", KERNELS)
def test_every_build(kernels: str, rng: np.random.Generator) -> None:
    """Each kernel build is right for each method and pair of formats. A build that cannot run here raises an error."""
    chosen = {(numerics(i, arch).method, i.a.name, i.b.name): (i, arch) for i, arch in cases()}
    if kernels not in available():
        with pytest.raises(BackendError, match="this processor runs no kernels"):
            check(parse(F16), "sm_90", rng, kernels=kernels)
        return
    for i, arch in chosen.values():
        check(i, arch, rng, kernels=kernels)


@pytest.mark.regression
@pytest.mark.parametrize("family", ["mma", "wgmma", "tcgen05"])
@pytest.mark.parametrize("kernels", available())
def test_every_form(family: str, kernels: str, rng: np.random.Generator) -> None:
    for i in FORMS:
        for arch in i.architectures if i.family == family else ():
            check(i, arch, rng, kernels=kernels)


def test_full_windows() -> None:
    """Sums of products with the largest significands, all of one sign, do not overflow the integers of the library."""
    rng = np.random.default_rng(0)
    for i, arch in cases():
        if i.a.is_integer:
            continue
        operands = random_product(i, "narrow", rng, 2, 9)
        one_sign = {}
        for name, fmt in (("a", i.a), ("b", i.b)):
            codes = getattr(operands, name)
            # The largest number below 2 has exponent 0 (the exponent field equals the bias) and all fraction bits set.
            largest = (fmt.bias << fmt.fraction_bits | (1 << fmt.fraction_bits) - 1) << i.low_bit(fmt)
            one_sign[name] = np.full_like(codes, largest)
        nibbles = None if operands.nibbles is None else np.full_like(operands.nibbles, 0b1110)
        c = np.full_like(operands.c, 0x7BFF if i.d.bits == 16 else 0x41FFFFFF)
        c[:, 1] = 0
        full = replace(operands, **one_sign, nibbles=nibbles, c=c)
        np.testing.assert_array_equal(multiply(i, arch, full), golden(i, arch, full), f"{i} on {arch}")


@pytest.mark.parametrize("kernels", available())
@pytest.mark.parametrize("largest", [-126, -100, 125, 127])
def test_exponents_at_the_limits_of_f32(largest: int, kernels: str, rng: np.random.Generator) -> None:
    """Products and accumulators have exponents near a limit, where the library computes some steps in f64."""
    for i, arch in cases():
        if min(i.a.exponent_bits, i.b.exponent_bits) < 8:
            continue
        operands = random_product(i, "zeros", rng, 7, 70)

        def near(fmt: Format, exponent: int, codes: NDArray) -> NDArray:
            field = rng.integers(-1, 2, codes.shape) + exponent + fmt.bias
            return codes.astype(np.int64) & ~(2 * fmt.bias + 1 << fmt.fraction_bits) | field << fmt.fraction_bits

        a = near(i.a, largest // 2, operands.a >> i.low_bit(i.a)) << i.low_bit(i.a)
        b = near(i.b, largest - largest // 2, operands.b >> i.low_bit(i.b)) << i.low_bit(i.b)
        c = near(i.c, max(min(largest + int(rng.integers(-30, 31)), 126), -126), operands.c)
        arrays = {"a": a, "b": b, "c": np.where(rng.random(c.shape) < 0.5, operands.c, c)}
        limits = {name: array.astype(getattr(operands, name).dtype) for name, array in arrays.items()}
        edge = replace(operands, **limits)
        np.testing.assert_array_equal(multiply(i, arch, edge, kernels=kernels), golden(i, arch, edge), f"{i} on {arch}")


@pytest.mark.skipif(platform.machine() != "x86_64" or sys.platform != "linux", reason="sets the MXCSR register of x86")
@pytest.mark.parametrize("kernels", available())
def test_threads_that_flush_subnormals(kernels: str, rng: np.random.Generator) -> None:
    """Results do not change if the calling thread replaces subnormal numbers by zero."""
    i = parse("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32")
    operands = random_product(i, "zeros", rng, 16, 40)
    subnormal = rng.integers(1, 1 << i.a.fraction_bits, operands.a.shape).astype(operands.a.dtype)
    huge = np.full_like(operands.b, (i.b.bias + 100) << i.b.fraction_bits)
    tiny = rng.integers(1, 1 << i.c.fraction_bits, operands.c.shape).astype(operands.c.dtype)
    cases = [replace(operands, a=subnormal, b=huge), replace(operands, c=tiny)]
    expected = [golden(i, "sm_90", case) for case in cases]
    assert all(one.any() for one in expected)
    environment, flushing = (ctypes.create_string_buffer(32) for _ in range(2))
    functions = ctypes.CDLL(None)
    functions.fegetenv(environment)
    # Set bits 6 and 15 of MXCSR, the last word of a fenv_t, so that subnormal operands and results become zero.
    mxcsr = int.from_bytes(environment.raw[28:], "little") | 0x8040
    flushing.raw = environment.raw[:28] + mxcsr.to_bytes(4, "little")
    functions.fesetenv(flushing)
    try:
        results = [multiply(i, "sm_90", case, kernels=kernels) for case in cases]
    finally:
        functions.fesetenv(environment)
    np.testing.assert_array_equal(results, expected)


def test_threads_and_empty_products(rng: np.random.Generator) -> None:
    instruction = parse(F16)
    operands = random_product(instruction, "mid", rng, 700, 300)
    one = multiply(instruction, "sm_90", operands)
    for threads in (2, 5):
        np.testing.assert_array_equal(multiply(instruction, "sm_90", operands, threads=threads), one)
    empty = replace(operands, b=operands.b[:, :, :0], c=operands.c[:, :, :0])
    assert multiply(instruction, "sm_90", empty).shape == (2, 700, 0)


def test_long_chains(rng: np.random.Generator) -> None:
    for i, arch in {(numerics(i, arch).method, i.d.name): (i, arch) for i, arch in cases()}.values():
        operands = random_product(i, "narrow", rng, 3, 17)
        for _ in range(3):
            joined = {
                name: np.concatenate([getattr(operands, name)] * 2, axis=axis)
                for name, axis in (("a", 2), ("b", 1), ("nibbles", 2), ("scale_a", 2), ("scale_b", 2))
                if getattr(operands, name) is not None
            }
            operands = replace(operands, **joined)
        np.testing.assert_array_equal(multiply(i, arch, operands), golden(i, arch, operands))
