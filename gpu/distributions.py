"""Random register and shared-memory operands for kernels that repeat an instruction."""

import numpy as np
from numpy.typing import NDArray

from ..isa.formats import Format, low_bit
from ..isa.fragments import a_fragment, b_fragment
from ..isa.instructions import Instruction
from .loops import Loop, given_words

__all__ = ["DISTRIBUTIONS", "numbers", "operands"]

DISTRIBUTIONS = ("zeros", "ones", "positive", "normal", "small", "half", "bits")
#: Factor by which random floats are scaled before they are rounded to integers.
_INTEGER_SCALE = 32
_WORD, _LANES = 32, 32


def numbers(fmt: Format, distribution: str, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.uint32]:
    """Draw random numbers from a distribution. Return their codes in the format `fmt`, rounded to nearest.

    The distributions are ``zeros``; ``ones``; ``normal``: variance 1; ``positive``: magnitudes of ``normal``;
    ``small``: ``normal`` times 2**-12 to 2**0; ``half``: ``normal``, with half of the numbers zero; and ``bits``:
    random bits, but 0 as the highest exponent bit of a float. For integer formats, all numbers but ``bits`` are
    multiplied by 32 before they are rounded.
    """
    if distribution == "bits":
        free = (1 << fmt.bits) - 1 if fmt.is_integer else (1 << fmt.bits) - 1 & ~(1 << fmt.bits - 2)
        return rng.integers(0, 1 << fmt.bits, shape, np.uint32) & np.uint32(free)
    values = rng.standard_normal(shape)
    if distribution in ("zeros", "ones"):
        values = np.full(shape, float(distribution == "ones"))
    elif distribution == "positive":
        values = np.abs(values)
    elif distribution == "small":
        values *= np.exp2(rng.integers(-12, 1, shape))
    elif distribution == "half":
        values *= rng.random(shape) < 0.5
    if fmt.is_integer:
        most = (1 << fmt.bits - 1) - 1
        return np.clip(np.rint(_INTEGER_SCALE * values), -most, most).astype(np.int64).astype(np.uint32) & np.uint32(
            (1 << fmt.bits) - 1
        )
    codes = np.arange(1 << fmt.bits - 1)
    exponents, fractions = codes >> fmt.fraction_bits, codes & (1 << fmt.fraction_bits) - 1
    significands = fractions + ((exponents > 0) << fmt.fraction_bits)
    magnitudes = np.ldexp(significands.astype(float), np.maximum(exponents, 1) - fmt.bias - fmt.fraction_bits)
    magnitudes = magnitudes[magnitudes <= fmt.maximum]
    indices = np.searchsorted((magnitudes[1:] + magnitudes[:-1]) / 2, np.abs(values))
    return (indices | (np.signbit(values).astype(np.int64) << fmt.bits - 1)).astype(np.uint32)


def operands(loop: Loop, of_a: str, of_b: str, metadata: str, rng: np.random.Generator) -> NDArray[np.uint32]:
    """Return random operands of a kernel as 32-bit words in the layout of :func:`~sptc.gpu.loops.given_words`.

    For ``mma``, every second A is the preceding A with inverted signs. A and B have distributions from
    :data:`DISTRIBUTIONS`. The metadata is ``"random"`` (defined nibbles only) or ``"fixed"``; it is ignored for dense
    instructions.
    """
    i, threads = loop.instruction, _LANES * loop.warps
    shared, registers = given_words(loop)
    words = np.zeros(shared + registers * threads, np.uint32)
    of_threads = words[shared:].reshape(registers, threads)
    a_registers = a_fragment(i).registers

    def drawn(fmt: Format, kind: str, *shape: int) -> NDArray[np.uint32]:
        return _packed(numbers(fmt, kind, (*shape, _WORD // i.container_bits), rng), fmt, i.container_bits)

    if i.family == "mma":
        # `each` is the number of registers of one set of operands A and B. Sets come in pairs: A of the second set
        # is the negated A of the first set.
        each = a_registers + b_fragment(i).registers
        for first in range(0, loop.operands * each, each):
            a, b = np.split(of_threads[first : first + each], [a_registers])
            is_opposite = first // each % 2
            a[:] = _opposite(of_threads[first - each :][:a_registers], i) if is_opposite else drawn(i.a, of_a, *a.shape)
            b[:] = drawn(i.b, of_b, *b.shape)
    else:
        a_words = i.m * i.stored_k * i.container_bits // _WORD if loop.a_from == "shared" else 0
        words[:a_words] = drawn(i.a, of_a, a_words)
        words[a_words:shared] = drawn(i.b, of_b, shared - a_words)
        if not a_words:
            of_threads[:a_registers] = drawn(i.a, of_a, a_registers, threads)
    if i.rule:
        legal = np.array(sorted(i.rule.legal), np.uint32)
        nibbles = rng.choice(legal if metadata == "random" else legal[:1], (threads, _WORD // 4))
        of_threads[-1] = nibbles @ (np.uint32(1) << np.arange(0, _WORD, 4, dtype=np.uint32))
    return words


def _packed(codes: NDArray[np.uint32], fmt: Format, container_bits: int) -> NDArray[np.uint32]:
    """Pack element codes into 32-bit words. The last axis of `codes` fills one word."""
    shifts = low_bit(fmt, container_bits) + np.arange(0, _WORD, container_bits, dtype=np.uint32)
    return np.bitwise_or.reduce(codes << shifts.astype(np.uint32), axis=-1)


def _opposite(words: NDArray[np.uint32], i: Instruction) -> NDArray[np.uint32]:
    """Return element words with the sign of every element inverted."""
    if i.a.is_integer:
        return (-words.view(np.int8)).view(np.uint32).reshape(words.shape)
    return words ^ np.uint32(sum(1 << place for place in range(i.container_bits - 1, _WORD, i.container_bits)))
