"""The picture of the fixed-point window in the docstring of `sptc.rtl.widths` agrees with the code."""

import re

import pytest
from sptc.isa.formats import FORMATS
from sptc.rtl import widths as module
from sptc.rtl.config import PRESETS
from sptc.rtl.round import normalised_bits
from sptc.rtl.slots import kept_bits
from sptc.rtl.unpack import ACCUMULATOR_SIGNIFICAND_BITS
from sptc.rtl.widths import Widths

PICTURE = module.__doc__ or ""
HOPPER = PRESETS["hopper"]
#: Column of text in which the bits begin, in each line of a picture.
MARGIN = 26
SUM, NORMALISED = (len(line) - MARGIN for line in PICTURE.splitlines() if line.startswith("      bit"))
Spans = dict[str, tuple[int, int]]


def spans(row: str, bits: int) -> Spans:
    """Return the highest and the lowest bit that each letter of a picture's row marks. Equal letters are adjacent."""
    results = {}
    for run in re.finditer(r"(\S)\1*", row):
        assert run[1] not in results
        results[run[1]] = (bits - 1 - run.start(), bits - run.end())
    return results


def rows(heading: str, bits: int) -> dict[str, Spans]:
    """Return the rows of the picture below a heading, down to the next empty line."""
    lines = PICTURE[PICTURE.index(heading) :].partition("\n")[2].partition("\n\n")[0].splitlines()
    return {line[6:MARGIN].strip(): spans(line[MARGIN:], bits) for line in lines if line[6:9] != "bit"}


@pytest.mark.parametrize("heading", ["f16, bf16, tf32: F = 25", "e4m3, e5m2: F = 13"])
def test_positions_of_floats(heading: str) -> None:
    widths = Widths(HOPPER)
    assert widths.total_bits == SUM
    names, kept = heading.split(": F = ")
    drawn, f = rows(heading, SUM), int(kept)
    assert drawn["total"] == {
        "s": (SUM - 1, SUM - 1), "c": (SUM - 2, f + 2), "2": (f + 1, f + 1), "1": (f, f), "g": (f - 1, 0),
    }  # fmt: skip
    elements = [element for element in widths.floats if element.format.name in names.split(", ")]
    assert len(elements) == len(names.split(", "))
    for element in elements:
        assert kept_bits(HOPPER, element) == f
        for slot in widths.slots[: HOPPER.slots_of(element)]:
            point = slot.padding + slot.point(element, "a") + slot.point(element, "b")
            product = {"i": (point + 1, point), "f": (point - 1, slot.padding), "-": (slot.padding - 1, 0)}
            assert drawn["product of a slot"] == product
            assert point == f
            assert slot.float_bits >= f + 2
    lowest = f + 1 - ACCUMULATOR_SIGNIFICAND_BITS
    accumulator = {"i": (f, f), "f": (f - 1, max(lowest, 0))} | ({"-": (lowest - 1, 0)} if lowest > 0 else {})
    assert drawn["accumulator c"] == accumulator


def test_positions_of_integers_and_of_result_bits() -> None:
    low = Widths(HOPPER).integer_bits
    assert rows("s8, u8\n", SUM) == {"product, c": {"i": (SUM - 1, low), "-": (low - 1, 0)}}
    assert all(slot.padding - slot.integer_shift == low for slot in Widths(HOPPER).slots)
    # The fraction follows the leading one. For f16, G is the guard bit, and S are the sticky bits below it.
    drawn, top = rows("3333333333222222222211111111110000000000", NORMALISED), NORMALISED - 1
    single, half = (top - FORMATS[name].fraction_bits for name in ("f32", "f16"))
    one = {"1": (top, top)}
    assert drawn == {
        "f32": one | {"f": (top - 1, single), "d": (single - 1, 0)},
        "f16": one | {"f": (top - 1, half), "G": (half - 1, half - 1), "S": (half - 2, 0)},
    }


@pytest.mark.parametrize(("column", "preset"), [(1, "hopper"), (2, "blackwell")])
def test_the_table(column: int, preset: str) -> None:
    widths = Widths(PRESETS[preset])
    table = PICTURE.split("=========\n")[2].splitlines()[:-1]
    told = {words[0]: int(words[column]) for words in (re.split(r"\s{2,}", line) for line in table)}
    bits = normalised_bits(widths.total_bits)
    assert told == {
        **{name: getattr(widths, name) for name in ("total_bits", "grid_bits", "integer_bits", "term_bits")},
        "normalised_bits": bits,
        "last fraction bit of f32": bits - 1 - FORMATS["f32"].fraction_bits,
        "last fraction bit of f16": bits - 1 - FORMATS["f16"].fraction_bits,
        "guard": bits - 2 - FORMATS["f16"].fraction_bits,
    }
    assert preset != "hopper" or bits == NORMALISED


@pytest.mark.parametrize("bits", [SUM, NORMALISED])
def test_the_rulers_count_bits(bits: int) -> None:
    places = range(bits - 1, -1, -1)
    tens, ones = ("".join(str(place // unit % 10) for place in places) for unit in (10, 1))
    assert f"{' ' * MARGIN}{tens}\n      {'bit':20}{ones}\n" in PICTURE
