"""Carry-save addition that reduces columns of bits to two words, with full and half adders only where needed."""

from amaranth.hdl import Cat, Const, Module, Signal, Value

__all__ = ["compress"]


def compress(m: Module, columns: list[list[Value]]) -> tuple[Value, Value]:
    """Build a Dadda tree, which reduces columns of any height to two words with one bit for each column.

    A column contains the bits of one weight, and the first column has the lowest weight. The sum of the two words is
    the sum of the columns, modulo ``2**len(columns)``.
    """
    # A full adder turns three bits of a column into two. One level of adders can therefore reduce the maximum height of
    # the columns from 3 bits to 2, from 4 to 3, from 6 to 4, from 9 to 6, from 13 to 9, ...
    heights = [2]
    while heights[-1] < max(len(column) for column in columns):
        heights.append(heights[-1] * 3 // 2)
    for height in reversed(heights):
        carries: list[Value] = []
        lower = []
        for column in columns:
            rest, carries_out = [*column, *carries], []
            while len(rest) > height:
                inputs, rest = rest[: min(3, len(rest) - height + 1)], rest[min(3, len(rest) - height + 1) :]
                bit, carry = _add(m, *inputs)
                rest.append(bit)
                carries_out.append(carry)
            lower.append(rest)
            carries = carries_out
        columns = lower
    words = [[*column, Const(0, 1), Const(0, 1)] for column in columns]
    return Cat(column[0] for column in words), Cat(column[1] for column in words)


def _add(m: Module, a: Value, b: Value, c: Value | None = None) -> tuple[Value, Value]:
    """Return the sum bit and the carry bit of two input bits (half adder) or three input bits (full adder)."""
    half = _named(m, a ^ b)
    if c is None:
        return half, _named(m, a & b)
    return _named(m, half ^ c), _named(m, (a & b) | (half & c))


def _named(m: Module, value: Value) -> Signal:
    signal = Signal()
    m.d.comb += signal.eq(value)
    return signal
