"""Faults of the golden model."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import Change, fault


@fault("golden.decode.subnormals", "golden.decode")
def _(decode: Any, change: Change) -> None:
    """Subnormals have the exponent below that of the smallest normal number."""
    right = decode._fields

    def fields(fmt: Any) -> tuple[NDArray, NDArray, NDArray, NDArray]:
        sign, significand, exponent, classes = right(fmt)
        subnormal = fmt.subnormals & (significand < 1 << fmt.fraction_bits)
        return sign, significand, exponent - subnormal, classes

    change(decode, "_fields", fields)


@fault("golden.select.pairs", "golden.select")
def _(select: Any, change: Change) -> None:
    """Of two pairs the first elements come before the second ones."""
    right = select._offsets

    def offsets(granularity: Any) -> NDArray[np.intp]:
        found = right(granularity)
        return found[:, [0, 2, 1, 3]] if granularity.stored == 4 else found

    change(select, "_offsets", offsets)


@fault("golden.fused.accumulator", "golden.fused")
def _(fused: Any, change: Change) -> None:
    """The accumulator is truncated towards minus infinity, as a shift of two's complement would."""

    def align_accumulator(c: NDArray[np.float32], shift: NDArray[np.int32]) -> NDArray[np.float64]:
        return np.floor(c.astype(np.float64) * fused.power_of_two(shift, np.dtype(np.float64)))

    change(fused, "align_accumulator", align_accumulator)


@fault("golden.grouped.cancelled", "golden.grouped")
def _(grouped: Any, change: Change) -> None:
    """A group whose products cancel does not count in the largest exponent."""
    right = grouped.grouped_step

    def grouped_step(
        a: Any, b: Any, c: NDArray, accumulator: Any, numerics: Any, significands: NDArray, exponents: NDArray
    ) -> NDArray[np.float32]:
        products = (a.values * b.values).reshape(-1, grouped.BLOCK_GROUP, *c.shape)
        kept = np.where(products.sum(axis=1) == 0, numerics.zero_exponent, exponents)
        return right(a, b, c, accumulator, numerics, significands, kept)

    change(grouped, "grouped_step", grouped_step)


@fault("golden.integer.equal_indices", "golden.integer")
def _(integer: Any, change: Change) -> None:
    """Of two elements that select one column the last one counts, not their sum."""

    def expand(stored: NDArray[np.float32], rows: NDArray[np.intp], k: int) -> NDArray[np.float32]:
        flat = np.zeros((*stored.shape[:-1], k), np.float32)
        np.put_along_axis(flat, rows, stored, axis=-1)
        return flat

    change(integer, "expand", expand)


@fault("golden.emulated.pairs", "golden.emulated")
def _(emulated: Any, change: Change) -> None:
    """The two steps take even and odd bytes, not even and odd pairs."""

    def even_and_odd(slots: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        return slots[slots % 2 == 0], slots[slots % 2 == 1]

    change(emulated, "even_and_odd_pairs", even_and_odd)


@fault("golden.rounding.overflow", "golden.rounding")
def _(rounding: Any, change: Change) -> None:
    """Truncation of 2**128 and beyond gives the largest finite number."""
    right = rounding.toward_zero_f32

    def toward_zero_f32(exact: NDArray[np.float64]) -> NDArray[np.float32]:
        rounded = right(exact)
        return np.where(np.isinf(rounded), np.copysign(np.finfo(np.float32).max, rounded), rounded)

    change(rounding, "toward_zero_f32", toward_zero_f32)


@fault("golden.registers.scales", "golden.registers")
def _(registers: Any, change: Change) -> None:
    """Block scales are read from the first byte, whatever the byte id."""
    right = registers.unpack_scales

    def unpack_scales(data: NDArray, instruction: Any, operand: str, byte_id: int, thread_id: int) -> NDArray[np.uint8]:
        return right(data, instruction, operand, 0, thread_id)

    change(registers, "unpack_scales", unpack_scales)
