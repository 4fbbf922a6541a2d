"""The largest exponent, and shifters that drop what falls off, against exact integers."""

from collections.abc import Callable
from fractions import Fraction
from math import floor

import numpy as np
import pytest
from amaranth.hdl import Shape, signed, unsigned
from sptc.rtl.cells.max_exponent import ALIGNED_EXPONENT_BITS, LEAST_EXPONENT, MaxExponent
from sptc.rtl.cells.raw import PRODUCT_EXPONENT_BITS
from sptc.rtl.cells.shifter import AlignmentShifter

Random = np.random.Generator
#: Of sums of biased exponents, and of those that biases, scales and the accumulator have entered.
SHAPES = {"products": unsigned(PRODUCT_EXPONENT_BITS), "all": signed(ALIGNED_EXPONENT_BITS)}


def test_no_exponent_is_below_every_real_one() -> None:
    """Of a product or an accumulator of f32 range, each with its bias, two block scales and e_zero of 40 bits."""
    least = -126 - 2 * 127
    assert -(1 << ALIGNED_EXPONENT_BITS - 1) == LEAST_EXPONENT < min(least, -108 - 40 - 2 * 127)


@pytest.mark.quick_cases(10)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("count", [*range(1, 10), 16, 17, 31, 32, 33, 40])
def test_the_largest_of_so_many(simulate: Callable, rng: Random, count: int, shape: Shape) -> None:
    """Wherever it stands, and whatever the spread of the others."""
    lowest = -(1 << shape.width - 1) if shape.signed else 0
    highest = lowest + (1 << shape.width) - 1
    middle = lowest + (1 << shape.width - 1)  # zero, or where the top bit begins
    spread = rng.integers(lowest, highest, (20, count), endpoint=True)
    close = rng.integers(middle - 4, middle + 4, (20, count), endpoint=True)
    lone = np.full((count, count), lowest)  # nothing counts but one exponent, at every place in turn
    np.fill_diagonal(lone, lowest + 1)
    lone_small = np.where(np.eye(count, dtype=bool), middle - 1, middle - 2)
    extremes = rng.choice([lowest, middle - 1, middle, highest], (20, count))
    equal = np.broadcast_to(np.array([[lowest], [middle - 1], [middle], [highest]]), (4, count))
    exponents = np.concatenate([spread, close, lone, lone_small, extremes, equal])
    got = simulate(MaxExponent(count, shape), exponents=exponents)
    np.testing.assert_array_equal(got["e_max"], exponents.max(axis=1))


#: Width, padding, bits of the distance, reach: products, accumulators and groups of the presets, and odd ones.
SHIFTERS = [
    *((22, 5, 9, 27), (22, 4, 7, 26), (16, 5, 7, 15), (16, 11, 7, 27), (22, 4, 9, 26)),
    *((24, padding, 10, None) for padding in (2, 12, 1, -6, -15)),
    *((19, 27, 10, None), (19, 0, 10, None), (5, -4, 10, None), (6, -3, 4, None), (1, 0, 1, None), (1, 31, 9, None)),
    *((16, 0, 5, 16), (16, 0, 4, 16), (12, 3, 6, 1), (12, 3, 6, 2), (12, 3, 3, 9), (12, 3, 10, 100)),
]


@pytest.mark.parametrize(("bits", "padding", "shift_amount_bits", "shifted_bits"), SHIFTERS)
def test_every_distance(
    simulate: Callable, rng: Random, bits: int, padding: int, shift_amount_bits: int, shifted_bits: int | None
) -> None:
    """To well beyond the width, as far as it can be said; at each the full, the least and some random numbers."""
    align = AlignmentShifter(bits, padding, shift_amount_bits, shifted_bits)
    assert align.output_bits == bits + padding
    assert align.shifted_bits == min(shifted_bits or align.output_bits, align.output_bits)
    near = np.arange(2 * align.output_bits + 70)
    far = np.concatenate([1 << np.arange(shift_amount_bits), (2 << np.arange(shift_amount_bits)) - 1])
    told = sorted({d for d in (*near.tolist(), *far.tolist()) if d < 1 << shift_amount_bits})
    tried = [(1 << bits) - 1, 1, 1 << (bits - 1), *rng.integers(0, 1 << bits, 2).tolist()]
    rows = [(magnitude, distance) for distance in told for magnitude in tried]
    got = simulate(align, magnitude=[row[0] for row in rows], shift_amount=[row[1] for row in rows])
    for (magnitude, distance), output in zip(rows, got["output"].tolist(), strict=True):
        padded = floor(Fraction(magnitude) * Fraction(2) ** padding)
        still = padded >> align.shifted_bits << align.shifted_bits  # bits beyond the reach stay where they are
        assert output == still + floor(Fraction(padded - still) / 2**distance), (magnitude, distance)
