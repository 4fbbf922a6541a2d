"""Carry-save columns: what is left adds up to the same, in two words, after few adders in a row."""

from collections.abc import Callable, Sequence

import pytest
from amaranth.hdl import Const, Fragment, Module, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sptc.rtl.cells import compressor as under_test
from sptc.rtl.cells.compressor import compress

#: What a column holds: bits that are driven (None), and constants.
Column = Sequence[int | None]


class Columns(wiring.Component):
    """Columns brought to two words; `driven` are the bits that are no constants, column after column."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self.columns = columns
        self.count = sum(bit is None for column in columns for bit in column)
        width = len(columns)
        super().__init__({"driven": In(self.count), "first": Out(width), "second": Out(width)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        driven = iter(self.driven)
        built: list[list[Value]] = [
            [next(driven) if bit is None else Const(bit, 1) for bit in column] for column in self.columns
        ]
        given = [list(column) for column in built]
        first, second = compress(m, built)
        assert [len(first), len(second)] == [len(self.columns)] * 2
        assert [list(map(id, column)) for column in built] == [list(map(id, column)) for column in given]
        m.d.comb += [self.first.eq(first), self.second.eq(second)]
        return m

    def total(self, driven: int) -> int:
        """Return what the columns add up to."""
        bits = iter([driven >> place & 1 for place in range(self.count)])
        return sum(
            sum(next(bits) if bit is None else bit for bit in column) << weight
            for weight, column in enumerate(self.columns)
        )


def check(simulate: Callable, columns: Sequence[Column], words: Sequence[int]) -> None:
    made = Columns(columns)
    mask = (1 << len(columns)) - 1
    words = [word & (1 << made.count) - 1 for word in words]
    got = simulate(made, driven=words) if made.count else simulate(made, count=len(words))
    left = [int(first) + int(second) & mask for first, second in zip(got["first"], got["second"], strict=True)]
    assert left == [made.total(word) & mask for word in words]


@settings(max_examples=60, deadline=None, print_blob=True)
@example(heights=[12, 13, 13, 13, 13], words=[0])  # 64 bits
@given(
    heights=st.lists(st.integers(0, 13), min_size=1, max_size=14).filter(any),
    words=st.lists(st.integers(0, (1 << 182) - 1), min_size=1, max_size=24),
)
def test_columns_of_any_heights(simulate: Callable, heights: list[int], words: list[int]) -> None:
    count = sum(heights)
    alone = [1 << place for place in range(count)]
    check(simulate, [[None] * height for height in heights], [0, (1 << count) - 1, *alone, *words])


@settings(max_examples=40, deadline=None, print_blob=True)
@given(
    columns=st.lists(st.lists(st.sampled_from([None, None, 0, 1]), max_size=9), min_size=1, max_size=10).filter(
        lambda columns: any(None in column for column in columns)
    ),
    words=st.lists(st.integers(0, (1 << 90) - 1), min_size=1, max_size=24),
)
def test_columns_with_constants(simulate: Callable, columns: list[Column], words: list[int]) -> None:
    check(simulate, columns, [0, -1, *words])


def full_adders_in_a_row(height: int) -> int:
    """Return how many rows of full adders bring columns of a height to two, each three bits to two."""
    rows, reached = 0, 2
    while reached < height:
        rows, reached = rows + 1, reached * 3 // 2
    return rows


@pytest.mark.parametrize("height", [2, 3, 4, 5, 6, 7, 9, 13, 17, 28])
def test_few_adders_and_few_in_a_row(monkeypatch: pytest.MonkeyPatch, height: int) -> None:
    """Of columns of equal heights: a full adder for every bit to lose, at most a half adder a column, least delay."""
    depth: dict[int, int] = {}
    kinds: list[int] = []
    width = 12
    add = under_test._add

    def counted(m: Module, *bits: Value) -> tuple[Value, Value]:
        kinds.append(len(bits))
        outputs = add(m, *bits)
        depth.update(dict.fromkeys(map(id, outputs), 1 + max(depth.get(id(bit), 0) for bit in bits)))
        kept.extend(outputs)
        return outputs

    kept: list[Value] = []  # so that no other takes its address
    monkeypatch.setattr(under_test, "_add", counted)
    Fragment.get(Columns([[None] * height] * width), None)
    assert max(depth.values(), default=0) <= full_adders_in_a_row(height)
    bits = width * height
    assert kinds.count(3) <= bits - 2 * width + height  # carries beyond the top are lost too
    assert kinds.count(2) <= width
