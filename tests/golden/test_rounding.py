"""The rounding of an exact sum, by itself: also what no operands of a format lead to."""

import numpy as np
import pytest
from sptc.golden.rounding import round_sum
from sptc.isa.numerics import Rounding

#: Too small for each rounding, though not zero.
TINY = {Rounding.RZ_F32: 2.0**-150, Rounding.RZ_E8M13: 2.0**-140, Rounding.RNE_F16: 2.0**-25}


@pytest.mark.parametrize("rounding", TINY)
def test_what_rounds_to_zero_is_positive(rounding: Rounding) -> None:
    rounded = round_sum(np.array([TINY[rounding], -TINY[rounding], -0.0]), rounding)
    assert rounded.view(np.uint32).tolist() == [0, 0, 0]


@pytest.mark.parametrize("rounding", TINY)
def test_what_just_does_not(rounding: Rounding) -> None:
    twice = 2 * TINY[rounding]
    assert round_sum(np.array([twice, -twice]), rounding).tolist() == [twice, -twice]


def test_truncation_keeps_the_largest_number() -> None:
    largest = 2.0**128 - 2.0**104
    sums = np.array([2.0**128 - 2.0**75, -(2.0**128) + 2.0**75, 2.0**128])
    assert round_sum(sums, Rounding.RZ_F32).tolist() == [largest, -largest, np.inf]
    assert round_sum(sums, Rounding.RZ_E8M13).tolist() == [2.0**128 - 2.0**114, -(2.0**128) + 2.0**114, np.inf]
