"""Addition in groups: as Python adds, wherever a carry begins and ends; both ways to elaborate it."""

import re
from collections.abc import Callable

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from sptc.rtl.cells.adder import Adder
from sptc.rtl.cells.platforms import OPERATORS
from sptc.rtl.convert import to_rtlil

Random = np.random.Generator
PLATFORMS = (None, pytest.param(OPERATORS, marks=pytest.mark.regression))
MOST = 60
#: Every small width, and around those of units and whole groups.
WIDTHS = (*range(1, 18), 22, 28, 29, 35, 39, 43, 49, MOST)


class Adders(wiring.Component):
    """Adders of all widths, side by side, of the same words cut to theirs."""

    def __init__(self) -> None:
        totals = {f"total{bits}": Out(bits) for bits in WIDTHS}
        super().__init__({"word0": In(MOST), "word1": In(MOST), "carry": In(1), **totals})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for bits in WIDTHS:
            m.submodules[f"adder{bits}"] = adder = Adder(bits)
            m.d.comb += [
                adder.word0.eq(self.word0),
                adder.word1.eq(self.word1),
                adder.carry.eq(self.carry),
                getattr(self, f"total{bits}").eq(adder.total),
            ]
        return m


@pytest.fixture(scope="module", params=PLATFORMS, ids=["structure", "simulation"])
def added(request: pytest.FixtureRequest, compiled: Callable) -> Callable[..., None]:
    """Check rows of words and carries in all widths."""
    evaluate = compiled(Adders(), request.param)

    def check(word0: np.ndarray, word1: np.ndarray, carry: np.ndarray) -> None:
        word0, word1 = (word & (1 << MOST) - 1 for word in (word0, word1))
        got = evaluate(word0=word0, word1=word1, carry=carry)
        for bits in WIDTHS:
            wanted = word0 + word1 + carry & (1 << bits) - 1
            np.testing.assert_array_equal(got[f"total{bits}"], wanted, err_msg=f"{bits} bits")

    return check


@pytest.mark.quick_cases(1)
def test_a_carry_from_any_place_to_any_other(added: Callable, rng: Random) -> None:
    """Made at one bit, or given below the lowest, passed by all up to another, and ended there by either value."""
    places = [(low, high) for low in range(MOST) for high in range(low, MOST)]
    low, high = np.array(places).T
    passing = (1 << high) - (1 << low)  # bits from low to below high
    noise = rng.integers(0, 1 << MOST, (3, len(places)))
    # Where the words are complements of each other a carry passes; at high they are equal.
    first = noise[0] & passing | noise[1] & ~passing & -(2 << high)
    second = ~noise[0] & passing | noise[2] & ~passing & -(2 << high)
    ends = rng.integers(0, 2, len(places)) << high
    begins = np.where(low > 0, 1 << np.maximum(low, 1) - 1, 0)
    for end in (ends, ends ^ 1 << high):
        added(first | begins | end, second | begins | end, (low == 0).astype(int))
        added(first | end, second | end, np.zeros_like(low))  # nothing to pass
    assert (first + second + (1 << low) >> high & 1).all()  # which is what is meant


def test_all_that_three_bits_do_around_every_boundary(added: Callable) -> None:
    """Every value of two words of three bits at every place, alone and between ones that pass a carry."""
    place, word0, word1, carry, around = (axis.ravel() for axis in np.indices((MOST - 2, 8, 8, 2, 2)))
    passing = np.where(around, (1 << MOST) - 1 & ~(7 << place), 0)
    added(word0 << place | passing, word1 << place, carry)
    added(word0 << place, word1 << place | passing, carry)


@pytest.mark.parametrize("bits", [5, 34])
def test_synthesis_keeps_what_lies_between_groups(bits: int) -> None:
    """An optimiser for area would make one chain of carries of them; what is only simulated has none."""
    text = to_rtlil(Adder(bits), "adder")
    kept = re.findall(r"^  attribute \\keep 1\n(?:  attribute .*\n)*  wire width 1 \\(\w+)$", text, re.M)
    groups = {name.rpartition("_")[2] for name in kept}
    assert len(groups) > (bits > 8)
    assert len(kept) == 3 * len(groups)  # what a group makes, whether it passes a carry, and the one behind it
    assert "keep" not in to_rtlil(Adder(bits), "adder", platform=OPERATORS)
