"""Functions that compute integer and logic instructions; operands are arrays with the values of all threads.

Source: PTX ISA, "Integer Arithmetic Instructions" and "Logic and Shift Instructions".
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["COMBINATIONS", "PERMUTATIONS", "bit_mask", "divided", "dot_product", "extended", "extracted", "funnel",
           "high_product", "highest_bit", "inserted", "leading_zeros", "lookup", "permuted", "remainder",
           "reversed_bits", "selected", "shift_left", "shift_right", "sum_and_carry", "wide_product"]  # fmt: skip

Function = Callable[..., NDArray]
#: Functions that combine two values: for integer instructions, reductions, and ``setp`` with a Boolean operation.
COMBINATIONS: dict[str, np.ufunc] = {
    "add": np.add, "min": np.minimum, "max": np.maximum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip


def wide_product(a: NDArray, b: NDArray) -> NDArray:
    """Return integer products in a type twice as wide as the operands."""
    wide = np.dtype(f"{a.dtype.kind}{2 * a.dtype.itemsize}")
    return a.astype(wide) * b.astype(wide)


def high_product(a: NDArray, b: NDArray) -> NDArray:
    """Return the upper half of the bits of an integer product."""
    if a.dtype.itemsize < 8:
        product = wide_product(a, b)
        return (product >> product.dtype.type(8 * a.dtype.itemsize)).astype(a.dtype)
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    x, y = a.view(np.uint64), b.view(np.uint64)
    x0, x1, y0, y1 = x & low, x >> half, y & low, y >> half
    middle = x1 * y0 + (x0 * y0 >> half)
    high = x1 * y1 + (middle >> half) + ((middle & low) + x0 * y1 >> half)
    if a.dtype.kind == "i":
        high = high - np.where(a < 0, y, np.uint64(0)) - np.where(b < 0, x, np.uint64(0))
    return high.view(a.dtype)


def dot_product(a_type: str, b_type: str, high: bool | None) -> Function:
    """Return the function of ``dp4a`` or ``dp2a``: c plus the dot product of parts of a and bytes of b.

    The parts of a are bytes (``dp4a``) or 16-bit halves (``dp2a``). The types, ``u32`` or ``s32``, give the signedness
    of the parts. `high` tells whether ``dp2a`` takes the upper
    half of b; it is None for ``dp4a``.
    """
    count = 4 if high is None else 2
    a_parts, b_parts = (f"<{'i' if type_[0] == 's' else 'u'}{4 // n}" for type_, n in ((a_type, count), (b_type, 4)))

    def dot(a: NDArray, b: NDArray, c: NDArray) -> NDArray:
        a, b, c = (np.ascontiguousarray(values) for values in np.broadcast_arrays(a, b, c))
        x, y = (values.view(parts).reshape(a.size, -1) for values, parts in ((a, a_parts), (b, b_parts)))
        first = 2 if high else 0
        products = x.astype(np.int64) * y[:, first : first + count].astype(np.int64)
        return (products.sum(1) + c.astype(np.int64)).astype(c.dtype)

    return dot


def divided(a: NDArray, b: NDArray) -> NDArray:
    """Return a / b rounded toward zero. If b is zero, return all ones, as an H100 does."""
    safe = np.where(b == 0, b.dtype.type(1), b)
    quotient = a // safe
    if a.dtype.kind == "i":
        quotient = quotient + ((a % safe != 0) & ((a < 0) != (safe < 0)))
    return np.where(b == 0, ~np.zeros(1, a.dtype), quotient.astype(a.dtype))


def remainder(a: NDArray, b: NDArray) -> NDArray:
    """Return the remainder of a division, with the sign of the dividend.

    If the divisor is zero, return the dividend of 64 bits, or all ones for narrower types, as an H200 does.
    """
    undefined = a if a.dtype.itemsize == 8 else ~np.zeros(1, a.dtype)
    return np.where(b == 0, undefined, np.fmod(a, np.where(b == 0, b.dtype.type(1), b)))


# numpy's shifts by the full width give zero, or copies of the sign bit, as PTX requires


def shift_left(a: NDArray, count: NDArray[np.uint32]) -> NDArray:
    """Shift left. A shift count that is not below the operand's width gives zero."""
    return a << np.minimum(count, 8 * a.dtype.itemsize).astype(a.dtype)


def shift_right(a: NDArray, count: NDArray[np.uint32]) -> NDArray:
    """Shift right. A shift count that is not below the operand's width gives zero, or sign bits for signed types."""
    return a >> np.minimum(count, 8 * a.dtype.itemsize).astype(a.dtype)


def funnel(left: bool, clamp: bool) -> Function:
    """Return the function of ``shf``: one word of the shifted pair {high, low}. Counts wrap at 32 without `clamp`."""

    def shift(low: NDArray, high: NDArray, count: NDArray) -> NDArray:
        pair = low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)
        places = (np.minimum(count, 32) if clamp else count & np.uint32(31)).astype(np.uint64)
        return ((pair << places) >> np.uint64(32) if left else pair >> places).astype(np.uint32)

    return shift


def lookup(a: NDArray, b: NDArray, c: NDArray, table: NDArray) -> NDArray:
    """Return a bitwise function of three operands (``lop3``): each result bit is bit 4 a + 2 b + c of `table`."""
    number = int(table.flat[0])
    result = np.zeros(np.broadcast_shapes(a.shape, b.shape, c.shape), a.dtype)
    for entry in range(8):
        if number >> entry & 1:
            result = result | (a if entry & 4 else ~a) & (b if entry & 2 else ~b) & (c if entry & 1 else ~c)
    return result


#: Key: mode of ``prmt``. Value: selectors of the four bytes, as the nibbles of a word, for each value of the two low
#: bits of operand c.
PERMUTATIONS: dict[str, NDArray[np.uint32]] = {
    mode: np.array([int(word, 16) for word in words.split()], np.uint32)
    for mode, words in {
        "f4e": "3210 4321 5432 6543", "b4e": "5670 6701 7012 0123", "rc8": "0000 1111 2222 3333",
        "ecl": "3210 3211 3222 3333", "ecr": "0000 1110 2210 3210", "rc16": "1010 3232 1010 3232",
    }.items()
}  # fmt: skip


def permuted(a: NDArray, b: NDArray, select: NDArray) -> NDArray[np.uint32]:
    """Select four bytes of the pair {b, a}. If bit 3 of a selector is set, the byte becomes copies of its sign bit."""
    a, b, select = np.broadcast_arrays(a, b, select)
    octets = a.astype(np.uint64) | b.astype(np.uint64) << np.uint64(32)
    result = np.zeros(a.shape, np.uint64)
    for place in range(4):
        chosen = select >> np.uint32(4 * place) & np.uint32(15)
        octet = octets >> ((chosen & np.uint32(7)).astype(np.uint64) * np.uint64(8)) & np.uint64(255)
        sign = np.where(octet & np.uint64(128), np.uint64(255), np.uint64(0))
        result |= np.where(chosen & np.uint32(8), sign, octet) << np.uint64(8 * place)
    return result.astype(np.uint32)


def extracted(a: NDArray, start: NDArray, length: NDArray) -> NDArray:
    """Return a bit field, sign-extended in signed types. Bits beyond the register are sign bits (0 if unsigned)."""
    wide = np.dtype(f"{a.dtype.kind}8").type
    start, length = ((x & np.uint32(255)).astype(wide) for x in (start, length))
    field = a.astype(wide) >> start
    if a.dtype.kind == "i":
        up = wide(64) - np.minimum(length, wide(8 * a.dtype.itemsize))
        return (field << up >> up).astype(a.dtype)
    return (field & (wide(1) << length) - wide(1)).astype(a.dtype)


def inserted(field: NDArray, into: NDArray, start: NDArray, length: NDArray) -> NDArray:
    """Return `into` with the `length` bits from bit `start` upward replaced by the low bits of `field`."""
    one = np.uint64(1)
    start, length = ((x & np.uint32(255)).astype(np.uint64) for x in (start, length))
    mask = (one << length) - one << start
    return (into.astype(np.uint64) & ~mask | field.astype(np.uint64) << start & mask).astype(into.dtype)


def bit_mask(start: NDArray, length: NDArray, *, clamp: bool) -> NDArray[np.uint32]:
    """Return words with `length` ones from bit `start` upward (``bmsk``). Operands above 32 become 32, or wrap."""
    start, length = ((np.minimum(x, 32) if clamp else x & np.uint32(31)).astype(np.uint64) for x in (start, length))
    return ((np.uint64(1) << length) - np.uint64(1) << start).astype(np.uint32)


def extended(a: NDArray, length: NDArray[np.uint32], *, clamp: bool) -> NDArray:
    """Return the low `length` bits of 32-bit values, sign- or zero-extended by type (``szext``)."""
    length = np.minimum(length, 32) if clamp else length & np.uint32(31)
    return extracted(a, np.zeros(1, np.uint32), length)


def selected(a: NDArray, b: NDArray, predicate: NDArray) -> NDArray:
    """Return `a` for threads whose predicate is true, and `b` for all other threads."""
    return np.where(predicate, a, b)


def leading_zeros(a: NDArray) -> NDArray[np.uint32]:
    """Return the number of leading zero bits of each value."""
    bits = 8 * a.dtype.itemsize
    filled = a.astype(np.uint64)
    for step in (1, 2, 4, 8, 16, 32):
        filled |= filled >> np.uint64(step)
    return (np.uint32(bits) - np.bitwise_count(filled)).astype(np.uint32)


def highest_bit(a: NDArray, *, distance: bool) -> NDArray[np.uint32]:
    """Return the position of the highest bit that differs from the sign bit; all ones without such a bit (``bfind``).

    With `distance`, return the number of positions by which this bit can be shifted to the left.
    """
    zeros, bits = leading_zeros((np.where(a < 0, ~a, a)).view(f"<u{a.dtype.itemsize}")), 8 * a.dtype.itemsize
    place = zeros if distance else np.uint32(bits - 1) - zeros
    return np.where(zeros == bits, np.uint32(0xFFFFFFFF), place)


def sum_and_carry(a: NDArray, b: NDArray, carry: NDArray) -> tuple[NDArray, NDArray[np.bool_]]:
    """Return a + b + carry and the carry of unsigned operands."""
    more = carry.astype(a.dtype)
    return a + b + more, (a + b < a) | (a + b + more < more)


def reversed_bits(a: NDArray) -> NDArray:
    """Return each value with its bits in reverse order."""
    octets = np.ascontiguousarray(a).view(np.uint8)
    flipped = np.packbits(np.unpackbits(octets, bitorder="little"), bitorder="big")
    return np.ascontiguousarray(flipped.reshape(-1, a.dtype.itemsize)[:, ::-1]).view(a.dtype)[:, 0]
