"""Seeded random and adversarial operands for any instruction, as matrices of codes and as registers of warps.

The random distributions of float operands differ in the spread of exponents and in the special cases that they cause;
those of integer operands are ``uniform`` and ``extreme``. Metadata nibbles are legal under the rule of the instruction
or, on request, drawn from all sixteen nibbles.
"""

import numpy as np
from numpy.typing import NDArray

from ...isa.formats import Format, Specials
from ...isa.fragments import a_fragment, accumulator_fragment, b_fragment
from ...isa.instructions import Instruction
from ...isa.operands import HeldOperands, Immediates
from ...operands.registers import pack_nibbles, random_nibbles, to_registers

__all__ = [
    "FLOAT_DISTRIBUTIONS",
    "INTEGER_DISTRIBUTIONS",
    "cancel",
    "container",
    "distributions",
    "random_codes",
    "random_matrices",
    "random_metadata",
    "random_operands",
    "special_codes",
]

FLOAT_DISTRIBUTIONS = ("narrow", "mid", "wide", "ends", "tiny", "huge", "cancelling", "zeros", "special", "bits")
INTEGER_DISTRIBUTIONS = ("uniform", "extreme")

#: Largest absolute exponent in each random distribution; None for the whole exponent range of the format.
_SPREAD = {"narrow": 1, "mid": 4, "wide": None, "cancelling": 3, "zeros": None, "special": 3}


def distributions(instruction: Instruction) -> tuple[str, ...]:
    """Return the names of the random distributions from which the operands of an instruction can be drawn."""
    return INTEGER_DISTRIBUTIONS if instruction.a.is_integer else FLOAT_DISTRIBUTIONS


def _float_codes(
    fmt: Format, exponents: tuple[int, int], shape: tuple[int, ...], rng: np.random.Generator
) -> NDArray[np.int64]:
    """Draw float codes with uniform sign, fraction and biased exponent, all of them finite numbers."""
    low, high = (min(max(e, 0), fmt.maximum_exponent + fmt.bias) for e in exponents)
    field = rng.integers(low, high, shape, endpoint=True)
    drawn = rng.integers(0, 1 << fmt.signed + fmt.fraction_bits, shape)
    sign, fraction = drawn >> fmt.fraction_bits, drawn & (1 << fmt.fraction_bits) - 1
    if fmt.specials is Specials.NAN and fmt.fraction_bits:
        top = (1 << fmt.exponent_bits) - 1
        fraction = np.where((field == top) & (fraction == (1 << fmt.fraction_bits) - 1), 0, fraction)
    return (sign << fmt.exponent_bits | field) << fmt.fraction_bits | fraction


def special_codes(fmt: Format, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw zero, subnormal, Inf and NaN codes, as far as the format has them, with random signs."""
    top = ((1 << fmt.exponent_bits) - 1) << fmt.fraction_bits
    subnormal = rng.integers(1, max(2, 1 << fmt.fraction_bits), shape)
    if fmt.fraction_bits:  # half of the subnormals and NaNs have only one fraction bit set
        subnormal = np.where(rng.random(shape) < 0.5, 1 << rng.integers(0, fmt.fraction_bits, shape), subnormal)
    choices = [np.zeros(shape, np.int64), subnormal]
    if fmt.specials is Specials.IEEE:
        choices += [np.full(shape, top), top | subnormal]
    elif fmt.specials is Specials.NAN:
        choices += [np.full(shape, top | ((1 << fmt.fraction_bits) - 1))]
    picked = np.choose(rng.integers(0, len(choices), shape), choices)
    return picked | (rng.integers(0, 2, shape) << (fmt.bits - 1) if fmt.signed else 0)


def random_codes(fmt: Format, distribution: str, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw random codes of a format from the named float or integer distribution."""
    if distribution in ("uniform", "bits"):
        return rng.integers(0, 1 << fmt.bits, shape)
    if distribution == "extreme":
        sign_bit = 1 << (fmt.bits - 1)
        return np.array([0, sign_bit, sign_bit - 1, (1 << fmt.bits) - 1, 1])[rng.integers(0, 5, shape)]
    top = fmt.maximum_exponent + fmt.bias
    if distribution in ("tiny", "huge", "ends"):
        low, high = (_float_codes(fmt, exponents, shape, rng) for exponents in ((0, 2), (top - 1, top)))
        share = {"tiny": 1.0, "huge": 0.0, "ends": 0.85}[distribution]
        codes = np.where(rng.random(shape) < share, low, high)
        # Insert some zeros among the elements: the exponent field of a zero must not raise the largest exponent. Only
        # sums of much smaller terms reveal hardware that counts the exponent of a zero.
        return np.where(rng.random(shape) < 0.05, 0, codes)
    spread = _SPREAD[distribution]
    exponents = (0, top) if spread is None else (fmt.bias - spread, fmt.bias + spread)
    codes = _float_codes(fmt, exponents, shape, rng)
    if distribution in ("zeros", "special"):
        exceptional = special_codes(fmt, shape, rng) if distribution == "special" else 0 * codes
        codes = np.where(rng.random(shape) < (0.7 if distribution == "zeros" else 0.1), exceptional, codes)
    return codes


def container(instruction: Instruction, fmt: Format, codes: NDArray[np.int64], rng: np.random.Generator) -> NDArray:
    """Place element codes in the 4, 8, 16 or 32 bits that store an element; bits outside the element are random."""
    low_bit = instruction.low_bit(fmt)
    noise = rng.integers(0, 1 << instruction.container_bits, codes.shape) & ~(((1 << fmt.bits) - 1) << low_bit)
    return codes << low_bit | noise


def _accumulator_codes(
    instruction: Instruction, distribution: str, shape: tuple[int, ...], rng: np.random.Generator
) -> NDArray[np.int64]:
    """Return random accumulators with exponents from far below to above the exponents of the products."""
    fmt, a, b = instruction.c, instruction.a, instruction.b
    smallest, largest = a.minimum_exponent + b.minimum_exponent, a.maximum_exponent + b.maximum_exponent
    ranges = {
        "wide": (smallest - 30, largest + 2),
        "ends": (smallest - 30, largest + 2),
        "tiny": (smallest - 30, smallest + 30),
        "huge": (largest - 30, largest),
    }
    if distribution not in ranges:
        return random_codes(fmt, distribution, shape, rng)
    low, high = ranges[distribution]
    codes = _float_codes(fmt, (low + fmt.bias, high + fmt.bias), shape, rng)
    return np.where(rng.random(shape) < 0.1, 0, codes)


def cancel(a: NDArray, b: NDArray, sign_bit: int) -> None:
    """Make neighbouring products cancel, in place: elements of A alternate in sign, and all rows of B are equal."""
    a[..., 1::2] = a[..., ::2] ^ a.dtype.type(1 << sign_bit)
    b[:, 1:] = b[:, :1]


def random_operands(
    instruction: Instruction,
    distribution: str,
    cases: int,
    rng: np.random.Generator,
    *,
    sparsity_selector: int = 0,
    any_nibble: bool = False,
) -> HeldOperands:
    """Return random operand registers for several executions of an ``mma`` instruction.

    The distribution is one of :func:`distributions`, and `cases` the number of executions. With `any_nibble`, metadata
    are drawn from all sixteen nibbles, not only from legal nibbles. Metadata registers that the instruction ignores
    have random bits.
    """
    a, b, c = random_matrices(instruction, distribution, cases, rng)
    arrays = {
        "a": to_registers(a, a_fragment(instruction)),
        "b": to_registers(b, b_fragment(instruction)),
        "c": to_registers(c, accumulator_fragment(instruction)),
    }
    e = random_metadata(instruction, sparsity_selector, any_nibble, cases, rng)
    if e is not None:
        arrays["e"] = e
    if instruction.scale_format is None or instruction.scale_size is None:
        return HeldOperands(arrays, Immediates(sparsity_selector))
    (scale_a, byte_a, thread_a), (scale_b, byte_b, thread_b) = (
        _random_scales(instruction.scale_format, instruction.scale_size, threads, distribution, cases, rng)
        for threads in (2, 4)
    )
    arrays |= {"scale_a": scale_a, "scale_b": scale_b}
    return HeldOperands(arrays, Immediates(sparsity_selector, (byte_a, thread_a, byte_b, thread_b)))


def random_matrices(
    instruction: Instruction, distribution: str, cases: int, rng: np.random.Generator
) -> tuple[NDArray, NDArray, NDArray]:
    """Draw random matrices A, B and C as bit patterns; the parameters are those of :func:`random_operands`."""
    a = random_codes(instruction.a, distribution, (cases, instruction.m, instruction.stored_k), rng)
    b = random_codes(instruction.b, distribution, (cases, instruction.k, instruction.n), rng)
    if distribution == "cancelling":
        cancel(a, b, instruction.a.bits - 1)
    c_shape = (cases, instruction.m, instruction.n)
    c = _accumulator_codes(instruction, distribution, c_shape, rng)
    if distribution == "cancelling":
        c = np.where(rng.random(c_shape) < 0.5, _accumulator_codes(instruction, "tiny", c_shape, rng), c)
    return container(instruction, instruction.a, a, rng), container(instruction, instruction.b, b, rng), c


def random_metadata(
    instruction: Instruction, sparsity_selector: int, any_nibble: bool, cases: int, rng: np.random.Generator
) -> NDArray[np.uint32] | None:
    """Return random metadata registers for `cases` executions of an instruction; None for a dense instruction."""
    if instruction.rule is None:
        return None
    others = rng.integers(0, 1 << 32, (cases, instruction.threads), dtype=np.uint32)
    nibbles = random_nibbles(instruction, cases, rng, any_nibble=any_nibble)
    return pack_nibbles(nibbles, instruction, sparsity_selector, others)


def _random_scales(
    fmt: Format, scale_size: int, threads: int, distribution: str, cases: int, rng: np.random.Generator
) -> tuple[NDArray[np.uint32], int, int]:
    """Return random block scale registers of A or B, shape (cases, 32), a byte id, and a thread id below `threads`."""
    byte_id = scale_size * int(rng.integers(0, 4 // scale_size))
    thread_id = int(rng.integers(0, threads))
    scale_distribution = distribution if distribution in ("wide", "special", "bits") else "mid"
    octets = random_codes(fmt, scale_distribution, (cases, 32, 4), rng)
    if distribution == "special":  # NaN scales are rare, since a NaN result hides all other effects
        octets = np.where(rng.random(octets.shape) < 0.9, random_codes(fmt, "mid", octets.shape, rng), octets)
    return np.ascontiguousarray(octets.astype(np.uint8)).view("<u4")[..., 0], byte_id, thread_id
