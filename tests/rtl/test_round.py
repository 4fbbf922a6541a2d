"""The one rounding, against exact fractions: every result format, with the widths of the presets' units."""

from collections.abc import Callable
from fractions import Fraction
from math import floor

import numpy as np
import pytest
from numpy.typing import NDArray
from sptc.isa.numerics import zero_exponent_for
from sptc.rtl.cells.max_exponent import ALIGNED_EXPONENT_BITS
from sptc.rtl.config import PRESETS, CoreConfig
from sptc.rtl.round import ResultCode, RoundStage
from sptc.rtl.widths import Widths
from sptc.tests.rtl.registers import check_delayed

Random = np.random.Generator
#: Units by name: width of the sum, grid bits and integer bits.
WIDTHS = {"hopper": (39, 25, 5), "rtx-blackwell": (49, 35, 5), "f16": (33, 25, 5)}
CONFIGURATIONS = {**PRESETS, "f16": CoreConfig(name="f16", formats=("f16",))}
#: Fraction bits and exponents of the smallest normal and the largest number.
FLOATS = {ResultCode.F32: (23, -126, 127), ResultCode.E8M13: (13, -126, 127), ResultCode.F16: (10, -14, 15)}
INFINITY = {ResultCode.F32: 0x7F800000, ResultCode.E8M13: 0x7F800000, ResultCode.F16: 0x7C00}
NAN = {ResultCode.F32: 0x7FFFFFFF, ResultCode.E8M13: 0x7FFFFFFF, ResultCode.F16: 0x7FFF}
SIGN = {ResultCode.F32: 1 << 31, ResultCode.E8M13: 1 << 31, ResultCode.F16: 1 << 15}


def headroom(
    total_bits: int, grid_bits: int, exponent: NDArray[np.int64], result: ResultCode
) -> dict[str, NDArray[np.int64]]:
    """Return the places from the sign bit of a sum, worth two to `exponent` above its grid, to the smallest normal."""
    return {"headroom": np.asarray(total_bits - 1 - grid_bits + exponent - FLOATS[result][1])}


def two_to_the(exponent: int) -> Fraction:
    return Fraction(2) ** exponent


def code_of(value: Fraction, result: ResultCode) -> int:
    """Round a value and encode it, from the definitions; numpy packs what is exact by then."""
    fraction_bits, smallest, largest = FLOATS[result]
    magnitude = abs(value)
    sign = SIGN[result] if value < 0 else 0
    exponent = smallest
    if magnitude >= two_to_the(smallest):
        exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
        exponent -= magnitude < two_to_the(exponent)
    ulp = two_to_the(exponent - fraction_bits)
    # Python rounds fractions half to even.
    rounded = (round if result is ResultCode.F16 else floor)(magnitude / ulp) * ulp
    if rounded >= two_to_the(largest + 1):
        return sign | INFINITY[result]
    if not rounded:
        return 0
    exact = float(rounded)
    assert Fraction(exact) == rounded
    packed = np.float16(exact).view(np.uint16) if result is ResultCode.F16 else np.float32(exact).view(np.uint32)
    return sign | int(packed)


class Rounder:
    """A compiled :class:`RoundStage` with the widths of a unit."""

    def __init__(self, compiled: Callable, name: str) -> None:
        self.total_bits, self.grid_bits, self.integer_bits = WIDTHS[name]
        if (
            ResultCode.S32 not in Widths(CONFIGURATIONS[name]).results
        ):  # no headroom for integers: try them at the bottom
            self.integer_bits = 0
        bits = CONFIGURATIONS[name].alignment_bits
        self.floor = {code: zero_exponent_for(bits, half_result=code is ResultCode.F16) for code in FLOATS}
        if self.grid_bits > bits:  # groups reach lower, and give f32 alone
            self.floor[ResultCode.F32] = zero_exponent_for(self.grid_bits, grouped=True)
        self.evaluate = compiled(RoundStage(self.total_bits, self.integer_bits, set(ResultCode)))

    def headroom(self, exponent: int | NDArray[np.int64], result: ResultCode) -> dict[str, NDArray[np.int64]]:
        return headroom(self.total_bits, self.grid_bits, np.asarray(exponent), result)

    def check(self, result: ResultCode, totals: list[int], exponents: list[int]) -> None:
        limit = 1 << (self.total_bits - 1)
        rows = [(t, e) for t, e in zip(totals, exponents, strict=True) if -limit <= t < limit]
        assert rows
        total, exponent = np.array(rows).T
        got = self.evaluate(total=total, **self.headroom(exponent, result), result=result.value)["output"].tolist()
        for code, (t, e) in zip(got, rows, strict=True):
            wanted = code_of(t * two_to_the(e - self.grid_bits), result)
            assert code == wanted, f"{t} * 2**({e} - {self.grid_bits}): {code:#x}, not {wanted:#x}"


@pytest.fixture(scope="module", params=WIDTHS)
def rounder(request: pytest.FixtureRequest, compiled: Callable) -> Rounder:
    return Rounder(compiled, request.param)


@pytest.mark.parametrize("name", WIDTHS)
def test_the_widths_are_those_of_a_unit(name: str) -> None:
    widths = Widths(CONFIGURATIONS[name])
    assert (widths.total_bits, widths.grid_bits, widths.integer_bits) == WIDTHS[name]


def test_the_reference_knows_the_formats(rng: Random) -> None:
    """Held against numpy where numpy rounds the same way: f16 to nearest even, and values that are exact."""
    for value in (0.0, 1.0, -1.5, 65504.0, 65519.0, 65520.0, 2.0**-24, 2.0**-25, 1.5 * 2.0**-25, -(2.0**-14)):
        with np.errstate(over="ignore"):
            wanted = int((np.float16(value) + np.float16(0)).view(np.uint16))
        assert code_of(Fraction(value), ResultCode.F16) == wanted
    for code in rng.integers(1, 0x7F800000, 50).tolist():
        value = float(np.uint32(code).view(np.float32))
        assert code_of(Fraction(value), ResultCode.F32) == code
        assert code_of(Fraction(-value), ResultCode.E8M13) == (code | 1 << 31) & ~0x3FF
    assert code_of(Fraction(2) ** 128, ResultCode.F32) == 0x7F800000
    assert code_of(Fraction(2) ** 128 - 1, ResultCode.F32) == 0x7F7FFFFF
    assert code_of(Fraction(2) ** -150, ResultCode.F32) == 0


def directed(rounder: Rounder, result: ResultCode) -> tuple[list[int], list[int]]:
    """Return sums around every power of two, ties and carries among them, at the exponents that matter."""
    fraction_bits, smallest, largest = FLOATS[result]
    magnitudes = {0, 1, 2, 3}
    for top in range(rounder.total_bits):
        magnitudes |= {(1 << top) + delta for delta in (-1, 0, 1)}
        for low in range(max(0, top - fraction_bits - 3), max(0, top - fraction_bits) + 3):
            unit = 1 << low
            for fraction in (1 << top, (2 << top) - unit, (1 << top) + unit):
                # A tie with an even and an odd last bit, one more and one less than a tie, and all ones.
                magnitudes |= {fraction + delta for delta in (unit >> 1, (unit >> 1) - 1, (unit >> 1) + 1, -1, unit)}
    floor_exponent = rounder.floor[result]
    near = {floor_exponent, floor_exponent + 1, floor_exponent + 3, smallest - 1, smallest, largest - 7, largest, 290}
    exponents = sorted(e for e in near if e >= floor_exponent)
    rows = [((-1) ** (i + j) * m, e) for i, m in enumerate(sorted(magnitudes)) for j, e in enumerate(exponents)]
    return [row[0] for row in rows], [row[1] for row in rows]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("result", FLOATS)
def test_directed_sums(rounder: Rounder, result: ResultCode) -> None:
    rounder.check(result, *directed(rounder, result))


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("result", FLOATS)
def test_random_sums(rounder: Rounder, rng: Random, result: ResultCode) -> None:
    """Of every length, over the whole range and at both its ends."""
    count = 2000
    _, smallest, largest = FLOATS[result]
    lengths = rng.integers(1, rounder.total_bits - 1, count, endpoint=True)
    signs = rng.choice([-1, 1], count)
    totals = [int(s) * int(rng.integers(0, 1 << int(bits))) for s, bits in zip(signs, lengths, strict=True)]
    low = rounder.floor[result]
    whole = rng.integers(low, largest + 20, count)
    ends = rng.choice([low, smallest + 5, largest - 12], count) + rng.integers(0, 15, count)
    rounder.check(result, totals, np.where(rng.random(count) < 0.5, whole, ends).tolist())


@pytest.mark.parametrize("result", FLOATS)
def test_the_least_sums(rounder: Rounder, result: ResultCode) -> None:
    """Just above zero at the floor of the exponent, where a result is subnormal or truncated away."""
    low = rounder.floor[result]
    rounder.check(result, [*range(-600, 600)], [low] * 1200)
    headrooms = rounder.headroom(np.array([low, low, 290]), result)
    got = rounder.evaluate(total=[-1, 0, 0], **headrooms, result=result.value)
    assert got["output"].tolist() == [0, 0, 0]  # never -0
    assert not got["overflow"].any()


@pytest.mark.parametrize("result", FLOATS)
def test_special_results(rounder: Rounder, result: ResultCode) -> None:
    """A NaN hides everything; both infinities are one; one infinity hides the sum and has its own sign."""
    rows = [(n, p, m, t) for n in (0, 1) for p in (0, 1) for m in (0, 1) for t in (0, 5 << 20, -5 << 20, -1)]
    nan, positive, negative, total = np.array(rows).T
    for exponent in (rounder.floor[result], 0, 300):
        got = rounder.evaluate(
            total=total,
            **rounder.headroom(exponent, result),
            result=result.value,
            nan=nan,
            positive_inf=positive,
            negative_inf=negative,
            saturate=1,
        )["output"]
        for code, (n, p, m, t) in zip(got.tolist(), rows, strict=True):
            wanted = code_of(t * two_to_the(exponent - rounder.grid_bits), result)
            if p or m:
                wanted = INFINITY[result] | (SIGN[result] if m else 0)
            if n or (p and m):
                wanted = NAN[result]
            assert code == wanted


def integers(rounder: Rounder, rng: Random) -> NDArray[np.int64]:
    limit = 1 << (rounder.total_bits - 1 - rounder.integer_bits)
    middles = (-(1 << 32), -(1 << 31), 0, 1 << 31, 1 << 32, limit - 3, 3 - limit)
    edges = [middle + delta for middle in middles for delta in range(-3, 3)]
    lengths = rng.integers(1, limit.bit_length() - 1, 3000, endpoint=True)
    random = rng.choice([-1, 1], 3000) * rng.integers(0, 1 << lengths)
    values = np.concatenate([edges, random, rng.integers(-limit, limit, 1000)])
    return values[(values >= -limit) & (values < limit)]


@pytest.mark.parametrize("saturate", [False, True])
def test_integers_wrap_or_saturate(rounder: Rounder, rng: Random, saturate: bool) -> None:
    """Whatever the headroom and the special inputs say; a sum that wraps says so."""
    values = integers(rounder, rng)
    beyond = (values < -(1 << 31)) | (values >= 1 << 31)
    assert {-1, 1} == set(np.sign(values[beyond]).tolist())
    got = rounder.evaluate(
        total=(values << rounder.integer_bits) + rng.integers(0, 1 << rounder.integer_bits, len(values)),
        headroom=rng.integers(0, 1 << ALIGNED_EXPONENT_BITS, len(values)),
        result=ResultCode.S32.value,
        saturate=int(saturate),
        nan=rng.integers(0, 2, len(values)),
        positive_inf=rng.integers(0, 2, len(values)),
    )
    wanted = np.clip(values, -(1 << 31), (1 << 31) - 1) if saturate else values
    np.testing.assert_array_equal(got["output"], wanted & 0xFFFFFFFF)
    # With it the sign of the whole sum can be told, as long as that has no more than 33 bits.
    meaningful = (values >= -(1 << 32)) & (values < 1 << 32)
    np.testing.assert_array_equal(got["overflow"][meaningful], (beyond & (not saturate))[meaningful])


@pytest.mark.parametrize(
    "results",
    [
        {ResultCode.F32},
        {ResultCode.F16},
        {ResultCode.F32, ResultCode.F16},
        {ResultCode.E8M13, ResultCode.F16},
        {ResultCode.S32},
    ],
    ids=lambda results: "+".join(sorted(code.name for code in results)),
)
def test_fewer_results(simulate: Callable, rng: Random, results: set[ResultCode]) -> None:
    """A rounding that builds only some results builds the same ones."""
    total_bits, grid_bits, integer_bits = WIDTHS["hopper"]
    made = RoundStage(total_bits, integer_bits, results)
    for result in results:
        totals = rng.integers(-(1 << 32), 1 << 32, 200) >> rng.integers(0, 32, 200)
        exponents = rng.integers(-21, 16, 200)
        if result is ResultCode.S32:
            got = simulate(made, total=totals << integer_bits, result=result.value)
            np.testing.assert_array_equal(got["output"], totals & 0xFFFFFFFF)
            continue
        headrooms = headroom(total_bits, grid_bits, exponents, result)
        got = simulate(made, total=totals, **headrooms, result=result.value)["output"].tolist()
        for code, t, e in zip(got, totals.tolist(), exponents.tolist(), strict=True):
            assert code == code_of(t * two_to_the(e - grid_bits), result)


@pytest.mark.parametrize(
    "cuts", [("reduce",), ("count",), ("normalise",), ("reduce", "count", "normalise")], ids="+".join
)
@pytest.mark.parametrize("results", [set(ResultCode), {ResultCode.S32}], ids=len)
def test_behind_registers(rng: Random, results: set[ResultCode], cuts: tuple[str, ...]) -> None:
    """Every result and its overflow, with the special values that go with it."""
    total_bits, _, integer_bits = WIDTHS["hopper"]
    rounders = [RoundStage(total_bits, integer_bits, results, registers) for registers in (cuts, ())]
    check_delayed(*rounders, len(cuts), rng)


def other(word: str, alignment_bits: int, step_bytes: int) -> tuple[int, int]:
    made = CoreConfig(
        name="other",
        formats=(word,),
        step_bytes=step_bytes,
        alignment_bits=alignment_bits,
        fp8_alignment_bits=min(25, alignment_bits),
    )
    return Widths(made).total_bits, alignment_bits


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    ("total_bits", "alignment_bits"),
    [
        *(other("tf32", *sizes) for sizes in ((25, 32), (24, 16), (20, 16), (40, 4))),
        *(other("f16", *sizes) for sizes in ((25, 16), (30, 32), (20, 64))),
        other("e2m1", 8, 4),
        (32, 24),  # as wide as a power of two
        (64, 40),
    ],
)
def test_the_least_sums_of_other_datapaths(
    simulate: Callable, rng: Random, total_bits: int, alignment_bits: int
) -> None:
    """There may be few bits above the grid, or many below the last one of a result."""
    made = RoundStage(total_bits, 0, {ResultCode.F32, ResultCode.F16})
    bits = min(25, total_bits - 2)
    for result in (ResultCode.F32, ResultCode.F16):
        low = zero_exponent_for(alignment_bits, half_result=result is ResultCode.F16)
        random = rng.integers(-(1 << bits), 1 << bits, 100) >> rng.integers(0, bits, 100)
        totals = np.concatenate([np.arange(-20, 20), random])
        for exponent in (low, low + 1, low + 5):
            headrooms = headroom(total_bits, alignment_bits, np.array(exponent), result)
            got = simulate(made, total=totals, **headrooms, result=result.value)["output"].tolist()
            scale = two_to_the(exponent - alignment_bits)
            assert got == [code_of(total * scale, result) for total in totals.tolist()]
