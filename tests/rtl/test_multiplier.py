"""Multipliers: the product, in every pair of few bits, with and without signs; both ways to elaborate them."""

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from sptc.rtl.cells.multiplier import Multiplier
from sptc.rtl.cells.platforms import OPERATORS
from sptc.rtl.convert import to_rtlil

Random = np.random.Generator
#: Widths of which every pair is tried, and those of units of the presets and more: even and odd.
SMALL, LARGE = tuple(range(1, 9)), (9, 11, 12, 13)
MOST = max(LARGE)
KINDS = {"signed": True, "unsigned": False}


class Multipliers(wiring.Component):
    """Multipliers of some widths, side by side, of the same operands cut to theirs."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        self.multipliers = {
            f"{kind}{bits}": Multiplier(bits, signed=signed) for kind, signed in KINDS.items() for bits in widths
        }
        products = {name: Out(multiplier.product.shape()) for name, multiplier in self.multipliers.items()}
        super().__init__({"a": In(MOST), "b": In(MOST), **products})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for name, multiplier in self.multipliers.items():
            m.submodules[f"multiplier_{name}"] = multiplier
            m.d.comb += [
                multiplier.a.eq(self.a[: multiplier.bits]),
                multiplier.b.eq(self.b[: multiplier.bits]),
                getattr(self, name).eq(multiplier.product),
            ]
        return m


@pytest.fixture(
    scope="module",
    params=(None, pytest.param(OPERATORS, marks=pytest.mark.regression)),
    ids=["structure", "simulation"],
)
def multiplied(request: pytest.FixtureRequest, compiled: Callable) -> Callable[..., None]:
    """Check pairs of operands in all widths of a kind that hold them, with a sign or without."""
    built = cache(lambda widths: compiled(Multipliers(widths), request.param))

    def check(widths: tuple[int, ...], a: np.ndarray, b: np.ndarray) -> None:
        got = built(widths)(a=a, b=b)
        for bits in widths:
            low, high = -(1 << bits - 1), (1 << bits - 1) - 1
            fits = (low <= a) & (a <= high) & (low <= b) & (b <= high)
            assert fits.any()
            np.testing.assert_array_equal(got[f"signed{bits}"][fits], (a * b)[fits], err_msg=f"{bits} bits")
            # The same bits without a sign.
            bare = (a & (1 << bits) - 1) * (b & (1 << bits) - 1)
            np.testing.assert_array_equal(got[f"unsigned{bits}"][fits], bare[fits], err_msg=f"{bits} bits")

    return check


@pytest.mark.regression
@pytest.mark.parametrize(("widths", "top"), [(SMALL, 1 << max(SMALL) - 1), (LARGE, 1 << min(LARGE) - 1)], ids=str)
def test_every_pair_of_few_bits(multiplied: Callable, widths: tuple[int, ...], top: int) -> None:
    numbers = np.arange(-top, top)
    multiplied(widths, numbers.repeat(2 * top), np.tile(numbers, 2 * top))


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("bits", LARGE)
def test_extreme_operands(multiplied: Callable, bits: int) -> None:
    """Ends of the range, powers of two and their neighbours, runs of ones and alternations, each with each."""
    powers = [1 << place for place in range(bits - 1)]
    runs = [high - low for high in powers for low in powers]
    alternations = [0x555555 & (1 << bits - 1) - 1, 0x2AAAAA & (1 << bits - 1) - 1, 0x333333 & (1 << bits - 1) - 1]
    numbers = {0, -(1 << bits - 1), 1 - (1 << bits - 1), (1 << bits - 1) - 1}
    numbers |= {
        sign * (number + delta) for number in [*powers, *alternations] for sign in (1, -1) for delta in (-1, 0, 1)
    }
    numbers |= {*runs[:: max(1, len(runs) // 64)]}
    every = np.array(sorted(number for number in numbers if -(1 << bits - 1) <= number < 1 << bits - 1))
    multiplied(LARGE, every.repeat(len(every)), np.tile(every, len(every)))


def test_random_operands(multiplied: Callable, rng: Random) -> None:
    """Of every length and sign."""
    count = 100_000
    for bits in LARGE:
        a, b = rng.integers(-(1 << bits - 1), 1 << bits - 1, (2, count)) >> rng.integers(0, bits, (2, count))
        multiplied(LARGE, a, b)


def test_only_what_is_simulated_multiplies_by_one_operator() -> None:
    """Synthesis is given the rows."""
    assert "cell $mul" not in to_rtlil(Multiplier(9, signed=True), "top")
    assert "cell $mul" in to_rtlil(Multiplier(9, signed=True), "top", platform=OPERATORS)
