"""Leading zeros, counted in both ways that they are elaborated."""

from collections.abc import Callable

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from sptc.rtl.cells.leading_zeros import LeadingZeros
from sptc.rtl.cells.platforms import OPERATORS

#: Every small width, powers of two and their neighbours, and those of units.
WIDTHS = (*range(1, 18), 26, 31, 32, 33, 34, 35, 39, 40, 50, 60)
MOST = max(WIDTHS)


class Counters(wiring.Component):
    """Counters of all widths, side by side, of the same word cut to theirs."""

    def __init__(self) -> None:
        super().__init__({"word": In(MOST), **{f"count{bits}": Out(range(bits + 1)) for bits in WIDTHS}})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for bits in WIDTHS:
            m.submodules[f"counter{bits}"] = counter = LeadingZeros(bits)
            m.d.comb += [counter.word.eq(self.word[:bits]), getattr(self, f"count{bits}").eq(counter.count)]
        return m


@pytest.mark.regression
@pytest.mark.parametrize("platform", [None, OPERATORS], ids=["structure", "simulation"])
def test_words_that_begin_anywhere(compiled: Callable, rng: np.random.Generator, platform: object) -> None:
    """With nothing below the first one, with nothing but ones, and with anything."""
    tops = 1 << np.arange(MOST)
    noise = rng.integers(0, 1 << MOST, (200, MOST)) & tops - 1
    words = np.concatenate([tops, 2 * tops - 1, (tops | noise).ravel(), np.arange(1, 1 << 12)])
    got = compiled(Counters(), platform)(word=words)
    for bits in WIDTHS:
        cut = words & (1 << bits) - 1
        wanted = np.array([bits - int(word).bit_length() for word in cut])
        np.testing.assert_array_equal(got[f"count{bits}"][cut != 0], wanted[cut != 0], err_msg=f"{bits} bits")
        assert {*wanted[cut != 0].tolist()} == {*range(bits)}
