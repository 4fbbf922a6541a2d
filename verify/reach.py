"""Bounds on exponents and bits of terms, from the formats of an instruction: why a parameter may not matter."""

from dataclasses import dataclass, replace

from ..isa.formats import FORMATS, Format
from ..isa.instructions import Instruction
from ..isa.numerics import Method, Numerics

__all__ = ["same_alignment", "same_floor", "same_steps"]


@dataclass(frozen=True)
class _Exponents:
    """Bounds on the exponents of one kind of finite nonzero term.

    Attributes
    ----------
    least, largest : int
        Bounds of the exponents that enter the maximum.
    last : int
        Every bit of every term is worth at least ``2**last``.
    """

    least: int
    largest: int
    last: int


def _of_numbers(fmt: Format) -> _Exponents:
    return _Exponents(fmt.minimum_exponent, fmt.maximum_exponent, fmt.minimum_exponent - fmt.fraction_bits)


def _widened(fmt: Format) -> _Exponents:
    """Return the bounds of a format's numbers in f16, where most of its subnormal numbers become normal."""
    of_format = _of_numbers(fmt)
    return replace(of_format, least=max(of_format.last, FORMATS["f16"].minimum_exponent))


def _of_terms(instruction: Instruction, numerics: Numerics) -> _Exponents:
    """Return the bounds of products, or of scaled groups of products."""
    emulated = numerics.method is Method.EMULATED
    a, b = (_widened(fmt) if emulated else _of_numbers(fmt) for fmt in (instruction.a, instruction.b))
    least, largest, last = a.least + b.least, a.largest + b.largest, a.last + b.last
    if instruction.scale_format is None:
        return _Exponents(least, largest, last)
    scale = _of_numbers(instruction.scale_format)
    if numerics.method is Method.GROUPED:  # the exponent of a group is that of its scales
        return _Exponents(2 * scale.least, 2 * scale.largest, last + 2 * scale.last)
    return _Exponents(least + 2 * scale.least, largest + 2 * scale.largest, last + 2 * scale.last)


def same_steps(instruction: Instruction, one: Numerics, other: Numerics) -> str:
    """Return why two step lengths cut K in the same way; empty if they do not."""
    # The emulation cuts even and odd pairs separately, each half of the stored elements.
    kept = instruction.stored_k // (2 if one.method is Method.EMULATED else 1)
    if min(one.step, other.step) < kept:
        return ""
    return f"the {kept} products that are summed in a row are one step of either length"


def same_alignment(instruction: Instruction, one: Numerics, other: Numerics) -> str:
    """Return why alignment with neither of two F drops a bit; empty if it may."""
    sorts = (_of_terms(instruction, one), _of_numbers(instruction.c))
    grid = max(sort.largest for sort in sorts) - min(one.alignment_bits, other.alignment_bits)
    last = min(sort.last for sort in sorts)
    if grid > last:
        return ""
    return f"no term has a bit below 2^{last}, and even beside the largest all down to 2^{grid} are kept"


def same_floor(instruction: Instruction, one: Numerics, other: Numerics) -> str:
    """Return why no result depends on which of two values e_zero has; empty if one may.

    e_zero matters only where all nonzero terms have smaller exponents and one of them has a bit that it drops.
    """
    floor = max(one.zero_exponent, other.zero_exponent)
    grid = floor - min(one.alignment_bits, other.alignment_bits)
    terms, accumulators = _of_terms(instruction, one), _of_numbers(instruction.c)
    below = [sort for sort in (terms, accumulators) if sort.least < floor]
    if not below:
        least = min(terms.least, accumulators.least)
        return f"every term that is not zero has an exponent of {least} or more, and no floor up to {floor} is above it"
    last = min(sort.last for sort in below)
    if last < grid:
        return ""
    return f"terms of exponents below {floor} have no bit below 2^{last}, and all down to 2^{grid} are kept"
