"""Cells of many widths, in both ways that they are elaborated, against Python's integers.

Proofs, of which the quick tier repeats those that are soon done, are of the widths of the presets and of the structure.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from itertools import product
from math import floor

import numpy as np
import pytest
from amaranth.hdl import Const, Fragment, Module, Shape, Value, signed, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sptc.rtl.cells import compressor
from sptc.rtl.cells.adder import Adder
from sptc.rtl.cells.carry_save_tree import CarrySaveTree, sum_bits
from sptc.rtl.cells.leading_zeros import LeadingZeros
from sptc.rtl.cells.max_exponent import ALIGNED_EXPONENT_BITS, LEAST_EXPONENT, MaxExponent
from sptc.rtl.cells.multiplier import Multiplier
from sptc.rtl.cells.platforms import OPERATORS
from sptc.rtl.cells.raw import PRODUCT_EXPONENT_BITS
from sptc.rtl.cells.shifter import AlignmentShifter
from sptc.rtl.convert import to_rtlil
from sptc.sim.engine.compiled_component import CompiledComponent
from sptc.sim.engine.ports import integers, split
from sptc.tests.rtl.conftest import Results, columns, matrices

Random = np.random.Generator
PLATFORMS = {"structure": None, "simulation": OPERATORS}
#: Every small width, and around those of units, whole groups and powers of two.
WIDTHS = (*range(1, 18), 22, 26, 28, 29, 31, 32, 33, 34, 35, 39, 40, 43, 49, 50, 60)
MOST = max(WIDTHS)
#: Widths of multipliers of which every pair is tried, and those of units of the presets and more: even and odd.
SMALL, LARGE = tuple(range(1, 9)), (9, 11, 12, 13)
KINDS = {"signed": True, "unsigned": False}


class SideBySide(wiring.Component):
    """Cells of several widths, by name, of the same operands cut to theirs."""

    def __init__(self, cells: Mapping[str, wiring.Component]) -> None:
        self.cells, bits, results = cells, dict[str, int](), {}
        for name, cell in cells.items():
            for port, member in cell.signature.members.items():
                if member.flow is In:
                    bits[port] = max(bits.get(port, 0), Shape.cast(member.shape).width)
                else:
                    results[f"{name}_{port}"] = Out(member.shape)
        super().__init__({port: In(width) for port, width in bits.items()} | results)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for name, cell in self.cells.items():
            m.submodules[name] = cell
            for port, member in cell.signature.members.items():
                inner = getattr(cell, port)
                m.d.comb += (
                    inner.eq(getattr(self, port)) if member.flow is In else getattr(self, f"{name}_{port}").eq(inner)
                )
        return m


@pytest.fixture(scope="module", params=PLATFORMS.values(), ids=PLATFORMS)
def cells(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable:
    """Adders, counters of zeros and multipliers of all widths, compiled by Verilator since so much is tried."""
    adders = {f"adder{bits}": Adder(bits) for bits in WIDTHS}
    counters = {f"zeros{bits}": LeadingZeros(bits) for bits in WIDTHS}
    multipliers = {
        f"{kind}{bits}": Multiplier(bits, signed=sign) for kind, sign in KINDS.items() for bits in (*SMALL, *LARGE)
    }
    top = SideBySide(adders | counters | multipliers)
    made = CompiledComponent(top, tmp_path_factory.mktemp("cells") / "cells.so", platform=request.param)

    def run(**values: np.ndarray) -> Results:
        return matrices(integers(made.run(split(columns(top, values), made.inputs)), made.outputs))

    return run


def check_sums(cells: Callable, word0: np.ndarray, word1: np.ndarray, carry: np.ndarray) -> None:
    word0, word1 = (word & (1 << MOST) - 1 for word in (word0, word1))
    got = cells(word0=word0, word1=word1, carry=carry)
    for bits in WIDTHS:
        expected = word0 + word1 + carry & (1 << bits) - 1
        np.testing.assert_array_equal(got[f"adder{bits}_total"], expected, err_msg=f"{bits} bits")


@pytest.mark.regression
def test_a_carry_from_any_place_to_any_other(cells: Callable, rng: Random) -> None:
    """Made at one bit, or given below the lowest, passed by all up to another, and ended there by either value."""
    low, high = np.array([(low, high) for low in range(MOST) for high in range(low, MOST)]).T
    passing = (1 << high) - (1 << low)  # bits from low to below high
    noise = rng.integers(0, 1 << MOST, (3, len(low)))
    # Where the words are complements of each other a carry passes; at high they are equal.
    first = noise[0] & passing | noise[1] & ~passing & -(2 << high)
    second = ~noise[0] & passing | noise[2] & ~passing & -(2 << high)
    ends = rng.integers(0, 2, len(low)) << high
    begins = np.where(low > 0, 1 << np.maximum(low, 1) - 1, 0)
    for end in (ends, ends ^ 1 << high):
        check_sums(cells, first | begins | end, second | begins | end, (low == 0).astype(int))
        check_sums(cells, first | end, second | end, np.zeros_like(low))  # nothing to pass
    assert (first + second + (1 << low) >> high & 1).all()  # which is what is meant


@pytest.mark.regression
def test_all_that_three_bits_do_around_every_boundary(cells: Callable) -> None:
    """Every value of two words of three bits at every place, alone and between ones that pass a carry."""
    place, word0, word1, carry, around = (axis.ravel() for axis in np.indices((MOST - 2, 8, 8, 2, 2)))
    passing = np.where(around, (1 << MOST) - 1 & ~(7 << place), 0)
    check_sums(cells, word0 << place | passing, word1 << place, carry)
    check_sums(cells, word0 << place, word1 << place | passing, carry)


@pytest.mark.regression
def test_words_that_begin_anywhere(cells: Callable, rng: Random) -> None:
    """Zeros above words with nothing below the first one, with nothing but ones, and with anything."""
    tops = 1 << np.arange(MOST)
    noise = rng.integers(0, 1 << MOST, (200, MOST)) & tops - 1
    words = np.concatenate([tops, 2 * tops - 1, (tops | noise).ravel(), np.arange(1, 1 << 12)])
    got = cells(word=words)
    for bits in WIDTHS:
        cut = words & (1 << bits) - 1
        expected = np.array([bits - int(word).bit_length() for word in cut])[cut != 0]
        np.testing.assert_array_equal(got[f"zeros{bits}_count"][cut != 0], expected, err_msg=f"{bits} bits")


def check_products(cells: Callable, widths: Sequence[int], a: np.ndarray, b: np.ndarray) -> None:
    """Check pairs of operands in all widths that hold them, with a sign or without."""
    got = cells(a=a, b=b)
    for bits in widths:
        low, mask = -(1 << bits - 1), (1 << bits) - 1
        fits = (low <= a) & (a < -low) & (low <= b) & (b < -low)
        assert fits.any()
        for kind, expected in (("signed", a * b), ("unsigned", (a & mask) * (b & mask))):
            np.testing.assert_array_equal(got[f"{kind}{bits}_product"][fits], expected[fits], err_msg=f"{bits} bits")


@pytest.mark.regression
@pytest.mark.parametrize(("widths", "top"), [(SMALL, 1 << max(SMALL) - 1), (LARGE, 1 << min(LARGE) - 1)], ids=str)
def test_every_pair_of_few_bits(cells: Callable, widths: tuple[int, ...], top: int) -> None:
    numbers = np.arange(-top, top)
    check_products(cells, widths, numbers.repeat(2 * top), np.tile(numbers, 2 * top))


@pytest.mark.regression
def test_products_of_any_operands(cells: Callable, rng: Random) -> None:
    """Ends of the range, powers of two and their neighbours, runs of ones and alternations; any length and sign."""
    for bits in LARGE:
        powers = [1 << place for place in range(bits)]
        near = [number + delta for number in (*powers, 0x5555, 0x2AAA, 0x3333) for delta in (-1, 0, 1)]
        runs = [high - low for high, low in product(powers, repeat=2)]
        numbers = np.unique([*near, *runs]) & (1 << bits) - 1
        every = np.unique(np.where(numbers >> bits - 1, numbers - (1 << bits), numbers))
        check_products(cells, LARGE, every.repeat(len(every)), np.tile(every, len(every)))
        a, b = rng.integers(-(1 << bits - 1), 1 << bits - 1, (2, 20_000)) >> rng.integers(0, bits, (2, 20_000))
        check_products(cells, LARGE, a, b)


@pytest.mark.parametrize("bits", [5, 34])
def test_synthesis_keeps_what_lies_between_groups(bits: int) -> None:
    """An optimiser for area would make one chain of carries of them; what is only simulated has none."""
    text = to_rtlil(Adder(bits), "adder")
    kept = re.findall(r"^  attribute \\keep 1\n(?:  attribute .*\n)*  wire width 1 \\(\w+)$", text, re.M)
    groups = {name.rpartition("_")[2] for name in kept}
    assert len(groups) > (bits > 8)
    assert len(kept) == 3 * len(groups)  # what a group makes, whether it passes a carry, and the one behind it
    assert "keep" not in to_rtlil(Adder(bits), "adder", platform=OPERATORS)
    assert "cell $mul" not in to_rtlil(Multiplier(9, signed=True), "top")
    assert "cell $mul" in to_rtlil(Multiplier(9, signed=True), "top", platform=OPERATORS)


#: Widths of terms: those of units of the presets, odd mixtures, and equal ones.
TERMS = [
    *((28, 28, 22, 22, 14, 39), (28,) * 16 + (22,) * 16 + (39,), (13, 55, 55, 13, 49), (1, 2, 3, 4, 5, 6, 7, 8)),
    *((9, 1, 1, 9, 1), (60, 1), (1, 60, 30), (1,) * 7, (9,) * 16, (1,) * 33, (49,) * 40),
    *((28,) * count for count in (1, 2, 3, 4, 5, 6, 8, 9, 13, 17, 28, 32, 33, 40)),
]


@pytest.mark.quick_cases(12)
@pytest.mark.parametrize("more", [0, 1, 9])
@pytest.mark.parametrize("platform", PLATFORMS.values(), ids=PLATFORMS)
@pytest.mark.parametrize("term_bits", TERMS, ids=lambda bits: f"{len(bits)}-{'-'.join(map(str, bits[:6]))}")
def test_a_tree_of_any_terms(
    simulate: Callable, rng: Random, term_bits: tuple[int, ...], platform: object, more: int
) -> None:
    """In words as wide as the widest, where sums wrap, and in wider ones; all ends of the range, and increments.

    All with every increment, with none, and with some; one alone at every place.
    """
    mixed = [term_bits[place] for place in rng.permutation(len(term_bits))]
    count, total_bits = len(mixed), max(mixed) + more
    lows = [-(1 << bits - 1) for bits in mixed]
    highs = [-low - 1 for low in lows]
    rows = [lows, highs, [0] * count, [-1] * count]
    rows += [
        [value * (place == alone) for place, value in enumerate(end)] for end in rows[:2] for alone in range(count)
    ]
    for _ in range(16):
        rows.append([int(rng.integers(low, high, endpoint=True)) for low, high in zip(lows, highs, strict=True)])
        rows.append([int(rng.choice([low, high, 0, -1])) for low, high in zip(lows, highs, strict=True)])
    every = (1 << count) - 1
    pairs = [(row, ones) for row in rows for ones in (0, every, int.from_bytes(rng.bytes(8), "little") & every)]
    pairs += [(row, 1 << place) for row in rows[:4] for place in range(count)]
    terms = {f"term{place}": [row[place] for row, _ in pairs] for place in range(count)}
    made = CarrySaveTree(mixed, total_bits)
    got = simulate(made, platform, **terms, increments=[ones for _, ones in pairs])
    found = [sum(map(int, parts)) for parts in zip(got["word0"], got["word1"], got["carry"], strict=True)]
    mask = (1 << total_bits) - 1
    assert [total & mask for total in found] == [sum(row) + ones.bit_count() & mask for row, ones in pairs]
    # The last increment is left for whoever adds the words; what is only simulated has its sum in the first.
    assert set(got["carry"].tolist()) == ({0} if platform else {0, 1})
    assert not platform or not got["word1"].any()


@pytest.mark.parametrize("bits", [1, 2, 9, 28])
def test_the_width_of_a_sum_is_enough_and_no_bit_wider(bits: int) -> None:
    for count in range(1, 70):
        width, lowest = sum_bits(bits, count), -count * 2 ** (bits - 1)
        assert -(2 ** (width - 1)) <= lowest < -(2 ** (width - 2))


class Columns(wiring.Component):
    """Columns of bits that are driven (None) and of constants, brought to two words."""

    def __init__(self, columns: Sequence[Sequence[int | None]]) -> None:
        self.columns, width = columns, len(columns)
        self.driven_bits = sum(bit is None for column in columns for bit in column)
        super().__init__({"driven": In(self.driven_bits), "first": Out(width), "second": Out(width)})

    def elaborate(self, platform: object) -> Module:
        m, driven = Module(), iter(self.driven)
        built: list[list[Value]] = [
            [next(driven) if bit is None else Const(bit, 1) for bit in column] for column in self.columns
        ]
        before = [[*map(id, column)] for column in built]
        first, second = compressor.compress(m, built)
        assert len(first) == len(second) == len(self.columns)
        assert [[*map(id, column)] for column in built] == before
        m.d.comb += [self.first.eq(first), self.second.eq(second)]
        return m

    def total(self, driven: int) -> int:
        bits = iter([driven >> place & 1 for place in range(self.driven_bits)])
        columns = [sum(next(bits) if bit is None else bit for bit in column) for column in self.columns]
        return sum(total << weight for weight, total in enumerate(columns))


@settings(max_examples=60, deadline=None, print_blob=True)
@example(columns=[[None] * height for height in (12, 13, 13, 13, 13)], words=[0])  # 64 bits
@given(
    columns=st.lists(st.lists(st.sampled_from([None, None, None, 0, 1]), max_size=13), min_size=1, max_size=12).filter(
        lambda columns: any(None in column for column in columns)
    ),
    words=st.lists(st.integers(0, (1 << 156) - 1), min_size=1, max_size=24),
)
def test_columns_of_any_heights(simulate: Callable, columns: list[list[int | None]], words: list[int]) -> None:
    made, mask = Columns(columns), (1 << len(columns)) - 1
    alone = [1 << place for place in range(made.driven_bits)]
    words = [word & (1 << made.driven_bits) - 1 for word in (0, -1, *alone, *words)]
    got = simulate(made, driven=words)
    found = [int(first) + int(second) & mask for first, second in zip(got["first"], got["second"], strict=True)]
    assert found == [made.total(word) & mask for word in words]


@pytest.mark.parametrize("height", [2, 3, 4, 5, 6, 7, 9, 13, 17, 28])
def test_few_adders_and_few_in_a_row(monkeypatch: pytest.MonkeyPatch, height: int) -> None:
    """Of columns of equal heights: a full adder for every bit to lose, at most a half adder a column, least delay."""
    depth, kinds, width, add = dict[int, int](), list[int](), 12, compressor._add
    kept: list[Value] = []  # so that no other takes its address

    def counted(m: Module, *bits: Value) -> tuple[Value, Value]:
        kinds.append(len(bits))
        outputs = add(m, *bits)
        depth.update(dict.fromkeys(map(id, outputs), 1 + max(depth.get(id(bit), 0) for bit in bits)))
        kept.extend(outputs)
        return outputs

    monkeypatch.setattr(compressor, "_add", counted)
    Fragment.get(Columns([[None] * height] * width), None)
    rows, reached = 0, 2  # of full adders, each of which brings three bits to two
    while reached < height:
        rows, reached = rows + 1, reached * 3 // 2
    assert max(depth.values(), default=0) <= rows
    assert kinds.count(3) <= width * height - 2 * width + height  # carries beyond the top are lost too
    assert kinds.count(2) <= width


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
    highest, middle = lowest + (1 << shape.width) - 1, lowest + (1 << shape.width - 1)
    spread = rng.integers(lowest, highest, (20, count), endpoint=True)
    close = rng.integers(middle - 4, middle + 4, (20, count), endpoint=True)
    lone = [np.where(np.eye(count, dtype=bool), value, value - 1) for value in (lowest + 1, middle - 1)]
    extremes = rng.choice([lowest, middle - 1, middle, highest], (20, count))
    equal = np.repeat([[lowest], [middle - 1], [middle], [highest]], count, axis=1)
    exponents = np.concatenate([spread, close, *lone, extremes, equal])
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
    powers = 1 << np.arange(shift_amount_bits)
    distances = np.unique([*range(2 * align.output_bits + 70), *powers, *2 * powers - 1])
    tried = [(1 << bits) - 1, 1, 1 << (bits - 1), *rng.integers(0, 1 << bits, 2).tolist()]
    rows = [*product(tried, distances[distances < 1 << shift_amount_bits].tolist())]
    got = simulate(align, magnitude=[row[0] for row in rows], shift_amount=[row[1] for row in rows])
    for (magnitude, distance), output in zip(rows, got["output"].tolist(), strict=True):
        padded = floor(Fraction(magnitude) * Fraction(2) ** padding)
        still = padded >> align.shifted_bits << align.shifted_bits  # bits beyond the reach stay where they are
        assert output == still + floor(Fraction(padded - still) / 2**distance), (magnitude, distance)
