"""The zero-column mask of ``tcgen05.mma.ws``: its bits, how far it may shift, and the columns that it makes zero."""

import re

import numpy as np
import pytest
from sptc.errors import OperandError
from sptc.isa.column_mask import decode_column_mask, largest_shift
from sptc.isa.instruction_descriptor import MAX_SHIFTS

#: Bits of the manual's table: four start counts and first spans, the flag, spans of zeros and of columns, the shift.
DEFINED = {*range(36), 39, *range(40, 62)}

#: Examples of the manual by M: start counts, first spans, and sub-masks as printed, lowest column last. The skip span
#: is 2 and the use span 3, so that masks repeat after seven columns.
PRINTED = {
    128: ((0,), (0,), ["11100001110000"]),
    64: ((0, 0), (1, 0), ["11100001110000111", "000011100001110000"]),
    32: ((0, 1, 2, 1), (1, 1, 0, 0), ["00001110000111", "0000111000011", "111000011100", "1110000111000"]),
}


@pytest.mark.parametrize("m", PRINTED)
def test_the_masks_that_the_manual_prints(m: int) -> None:
    starts, first_spans, masks = PRINTED[m]
    value = 1 << 39 | 2 << 40 | 3 << 48
    for part, (start, first) in enumerate(zip(starts, first_spans, strict=True)):
        value |= start << 8 * part | first << 32 + part
    expected: list[bool] = []
    for mask in masks:
        lowest_first = [bit == "1" for bit in reversed(mask)]
        expected += (lowest_first[:7] * 19)[: 128 // len(masks)]
        assert lowest_first[7:] == lowest_first[: len(mask) - 7]
    assert decode_column_mask(value, m, 128, 0, "it").zero.tolist() == expected


@pytest.mark.parametrize(("m", "most"), [(32, 16), (64, 32), (128, 32)])
def test_how_far_columns_may_be_shifted(m: int, most: int) -> None:
    """By what the instruction descriptor allows, and never by more than M allows."""
    assert largest_shift(m) == most
    for max_shift in MAX_SHIFTS:
        for shift in range(64):
            if shift <= min(most, max_shift):
                assert decode_column_mask(shift << 56, m, 128, max_shift, "it").shift == shift
                continue
            limit = f"the instruction descriptor allows {max_shift}" if max_shift <= most else f"M = {m} allows {most}"
            with pytest.raises(OperandError, match=f"^zero_column_mask of it shifts by {shift} columns, but {limit}$"):
                decode_column_mask(shift << 56, m, 128, max_shift, "it")


def test_reserved_bits() -> None:
    for bit in range(64):
        if bit in DEFINED:
            decode_column_mask(1 << bit, 128, 64, 32, "it")
        else:
            with pytest.raises(OperandError, match=rf"sets the reserved bits {1 << bit:#x}$"):
                decode_column_mask(1 << bit, 128, 64, 32, "it")
    for value in (-1, 1 << 64):
        with pytest.raises(OperandError, match=rf"must be a 64-bit number, not {re.escape(str(value))}$"):
            decode_column_mask(value, 128, 64, 0, "it")


@pytest.mark.parametrize("m", [32, 64, 128])
def test_zeros_follow_columns_in_turn(m: int, rng: np.random.Generator) -> None:
    """Each part of N has a sub-mask of its own, which starts inside its first span, of columns or of zeros."""
    parts = 128 // m
    for _ in range(40):
        n = int(rng.choice([64, 128, 256]))
        used, skipped = (int(span) for span in rng.integers(0, rng.choice([3, 20, 256]), 2))
        starts = [int(start) for start in rng.integers(0, rng.choice([4, 256]), 4)]
        zeros_first = [int(first) for first in rng.integers(0, 2, 4)]
        value = skipped << 40 | used << 48
        for part, (start, first) in enumerate(zip(starts, zeros_first, strict=True)):
            value |= start << 8 * part | first << 32 + part
        expected = []
        for start, first in zip(starts[:parts], zeros_first[:parts], strict=True):
            spans = [[False] * (used + 1), [True] * (skipped + 1)]
            pattern = (spans[first] + spans[1 - first]) * (2 * n)
            expected += pattern[min(start, len(spans[first]) - 1) :][: n // parts]
        assert decode_column_mask(value | 1 << 39, m, n, 0, "it").zero.tolist() == expected, hex(value)
        assert not decode_column_mask(value, m, n, 0, "it").zero.any()
