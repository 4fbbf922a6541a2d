"""Neighbours of the right model of an instruction: models that are wrong in one parameter or rule.

The golden model computes a neighbour with one changed parameter of the numerics, or with operands that are changed as a
wrong decoder would change them. A neighbour that gives the right result for all operands is marked, with the reason.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..golden.matrix import multiply_by
from ..isa.formats import FORMATS, Format
from ..isa.instructions import Instruction
from ..isa.metadata import MUX_OF_ARCHITECTURE, indices, nibble
from ..isa.numerics import DATAPATHS, OPEN_RULES, Alignment, Method, Numerics, Rounding, numerics
from ..isa.operands import MatrixOperands
from .stimulus import Given

__all__ = ["Model", "neighbours_of", "right_model", "same_alignment", "same_floor", "same_steps"]


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model of one instruction: the right model, or a model that is wrong in one parameter or rule."""

    name: str  #: Name of the model, which states the difference from the right model, such as "F = 24"
    instruction: Instruction  #: Instruction that this model computes
    numerics: Numerics  #: Numerics parameters of this model
    mux: str  #: Kind of multiplexer that selects elements of B: ``mux4`` or ``mux3``
    #: Function that changes the operands before the multiplication; the default changes nothing.
    alter: Callable[[Given], MatrixOperands] = attrgetter("matrices")
    same: str = ""  #: Reason why this model gives the right result for all operands; empty if results may differ

    def multiply(self, operands: Given) -> NDArray:
        """Return the codes of D that the model computes, shape (cases, m, n)."""
        return multiply_by(self.instruction, self.numerics, self.mux, self.alter(operands))


def right_model(instruction: Instruction, arch: str) -> Model:
    """Return the right model of an instruction on an architecture, with unchanged parameters and rules.

    Raise an `InstructionError` if the architecture does not have the instruction.
    """
    return Model(
        name="the right model",
        instruction=instruction,
        numerics=numerics(instruction, arch),
        mux=MUX_OF_ARCHITECTURE[arch],
    )


def neighbours_of(instruction: Instruction, arch: str) -> tuple[Model, ...]:
    """Return all neighbours (wrong models) of an instruction, including those that give right results for all operands.

    Raise an `InstructionError` if the architecture does not have the instruction.
    """
    right = right_model(instruction, arch)
    arithmetic = _integer_neighbours(right) if instruction.a.is_integer else _float_neighbours(right, arch)
    return (*arithmetic, *_metadata_neighbours(right), *_scale_neighbours(right))


def _integer_neighbours(right: Model) -> Iterator[Model]:
    """Yield integer models that handle overflow of sums wrongly, and models with other float parameters."""
    i = right.instruction
    this, other = ("clamped", "wrapped") if i.satfinite else ("wrapped", "clamped")
    yield replace(right, name=f"sums {other}", instruction=replace(i, satfinite=not i.satfinite))
    reason = "" if i.satfinite else "wrapping after half of K, too, does not change a sum modulo 2^32"
    if i.satfinite and not (i.a.signed or i.b.signed):
        reason = "no product is negative, so that a sum that is clamped after half of K stays at the limit"
    yield replace(right, name=f"sums {this} halfway too", instruction=replace(i, k=i.k // 2), same=reason)
    exact = "integers are summed exactly: there is no alignment and no rounding"
    for name in ("another F", "another L", "another e_zero"):
        yield replace(right, name=name, same=exact)


def _float_neighbours(right: Model, arch: str) -> Iterator[Model]:
    """Yield wrong models of a float instruction: one changed parameter or rule, or fp8 emulation added or removed."""
    i, p = right.instruction, right.numerics
    changes: tuple[tuple[str, str, Iterable[Any], Callable[..., str]], ...] = (
        ("alignment_bits", "F = {}", (p.alignment_bits - 1, p.alignment_bits + 1), same_alignment),
        ("alignment", "terms rounded {.value} in the alignment", Alignment, same_alignment),
        ("step", "L = {}", (p.step // 2, p.step * 2), same_steps),
        ("zero_exponent", "e_zero = {}", (p.zero_exponent - 1, p.zero_exponent + 1), same_floor),
        ("rounding", "rounding {.value}", _ROUNDINGS[i.d.name], lambda *_: ""),
    )
    for field, name, values, why_same in changes:
        for value in values:
            if value != getattr(p, field):
                changed = replace(p, **{field: value})
                yield replace(right, name=name.format(value), numerics=changed, same=why_same(i, p, changed))
    for rule in OPEN_RULES.values():
        if rule.applies(i, p):
            changed = rule.change(i, p)
            same = same_floor(i, p, changed) if rule.field == "zero_exponent" else ""
            yield replace(right, name=rule.name, numerics=changed, same=same)
    yield from _method_neighbours(right, arch)


#: Key: type of the result. Value: rounding modes that the correct model or a wrong model (neighbour) can have.
_ROUNDINGS = {
    "f32": (Rounding.RZ_F32, Rounding.RNE_F32, Rounding.RZ_E8M13, Rounding.RNE_E8M13),
    "f16": (Rounding.RNE_F16, Rounding.RZ_F16),
}


def _method_neighbours(right: Model, arch: str) -> Iterator[Model]:
    """Yield a model with emulated fp8 if the architecture has native fp8, or with native fp8 if fp8 is emulated."""
    i, p, datapath = right.instruction, right.numerics, DATAPATHS[arch]
    if p.method is Method.EMULATED:
        bits = datapath.fp8_alignment_bits
        rounding = Rounding.RZ_E8M13 if bits < datapath.alignment_bits else p.rounding
        native = replace(p, method=Method.FUSED, step=datapath.step_bytes, alignment_bits=bits, rounding=rounding)
        yield replace(right, name="native fp8", numerics=native)
    elif not i.scale_format and {i.a.name, i.b.name} <= {"e4m3", "e5m2"}:
        emulated = replace(
            p,
            method=Method.EMULATED,
            step=datapath.step_bytes // 2,
            alignment_bits=datapath.alignment_bits,
            rounding=Rounding.RNE_F16 if i.d.name == "f16" else Rounding.RZ_F32,
        )
        yield replace(right, name="fp8 emulated by steps of f16", numerics=emulated)


_SWAPPED = np.array([nibble(*reversed(indices(value))) for value in range(16)], np.uint8)


def _metadata_neighbours(right: Model) -> Iterator[Model]:
    """Yield models that select wrong elements of B: wrong multiplexers, misplaced nibbles, or swapped indices."""
    i = right.instruction
    if not i.sparse:
        return
    other = {"mux4": "mux3", "mux3": "mux4"}[right.mux]
    yield replace(right, name=f"{other[-1]}:1 multiplexers", mux=other)

    def with_nibbles(change: Callable[[Any], NDArray]) -> Callable[[Given], MatrixOperands]:
        return lambda operands: replace(operands.matrices, nibbles=change(operands.matrices.nibbles))

    for name, shift in (("next", -1), ("previous", 1)):
        alter = with_nibbles(partial(np.roll, shift=shift, axis=-1))
        yield replace(right, name=f"metadata of the {name} chunk", alter=alter)
    reason = "" if i.sparsity_selectors > 1 else "the instruction has only one sparsity selector"
    yield replace(
        right,
        name="metadata of the next sparsity selector",
        alter=lambda operands: replace(operands.matrices, nibbles=operands.elsewhere),
        same=reason,
    )
    yield replace(right, name="the two indices of a nibble swapped", alter=with_nibbles(_SWAPPED.take))


def _scale_neighbours(right: Model) -> Iterator[Model]:
    """Yield models that ignore the block scales of A, of B or of both."""
    fmt = right.instruction.scale_format
    if fmt is None:
        return
    one = np.uint8(fmt.bias << fmt.fraction_bits)
    for name, ignored in (("A", ("scale_a",)), ("B", ("scale_b",)), ("A and B", ("scale_a", "scale_b"))):

        def without(operands: Given, ignored: tuple[str, ...] = ignored) -> MatrixOperands:
            ones = {key: np.full_like(getattr(operands.matrices, key), one) for key in ignored}
            return replace(operands.matrices, **ones)

        yield replace(right, name=f"scales of {name} ignored", alter=without)


@dataclass(frozen=True)
class _Exponents:
    """Bounds of the exponents of all finite nonzero terms of one kind, such as all products."""

    #: Smallest and largest exponent that a nonzero term can have when the alignment exponent of a sum is determined.
    least: int
    largest: int
    last: int  #: Exponent of the lowest bit that any term can have: the weight of this bit is ``2**last``


def _number_exponents(fmt: Format) -> _Exponents:
    return _Exponents(fmt.minimum_exponent, fmt.maximum_exponent, fmt.minimum_exponent - fmt.fraction_bits)


def _widened(fmt: Format) -> _Exponents:
    """Return the exponent bounds of a format's numbers after conversion to f16, which makes most subnormals normal."""
    exponents = _number_exponents(fmt)
    return replace(exponents, least=max(exponents.last, FORMATS["f16"].minimum_exponent))


def _term_exponents(instruction: Instruction, numerics: Numerics) -> _Exponents:
    """Return the bounds of the exponents of products, or of scaled sums of 16 products."""
    emulated = numerics.method is Method.EMULATED
    a, b = (_widened(fmt) if emulated else _number_exponents(fmt) for fmt in (instruction.a, instruction.b))
    least, largest, last = a.least + b.least, a.largest + b.largest, a.last + b.last
    if instruction.scale_format is None:
        return _Exponents(least, largest, last)
    scale = _number_exponents(instruction.scale_format)
    if numerics.method is Method.GROUPED:  # exponent of a group of products: sum of the exponents of its two scales
        return _Exponents(2 * scale.least, 2 * scale.largest, last + 2 * scale.last)
    return _Exponents(least + 2 * scale.least, largest + 2 * scale.largest, last + 2 * scale.last)


def same_steps(instruction: Instruction, one: Numerics, other: Numerics) -> str:
    """Return why two step lengths (products per rounded sum) give equal results; empty if results may differ."""
    # If fp8 is emulated, even and odd pairs of elements have separate sums, each of half of the stored elements.
    kept = instruction.stored_k // (2 if one.method is Method.EMULATED else 1)
    if min(one.step, other.step) < kept:
        return ""
    return f"the {kept} products of a sum fit into one step of either length"


def same_alignment(instruction: Instruction, one: Numerics, other: Numerics) -> str:
    """Return as text why neither of two numbers of alignment bits (F) truncates a bit; empty if a bit may be lost."""
    kinds = (_term_exponents(instruction, one), _number_exponents(instruction.c))
    grid = max(bounds.largest for bounds in kinds) - min(one.alignment_bits, other.alignment_bits)
    last = min(bounds.last for bounds in kinds)
    if grid > last:
        return ""
    return f"no term has a bit below 2^{last}, and alignment to the largest term keeps all bits down to 2^{grid}"


def same_floor(instruction: Instruction, one: Numerics, other: Numerics) -> str:
    """Return why two values of e_zero (lower limit of e_max) give equal results; empty if results may differ.

    e_zero matters only where all nonzero terms have smaller exponents, and alignment to e_zero truncates one of them.
    """
    floor = max(one.zero_exponent, other.zero_exponent)
    grid = floor - min(one.alignment_bits, other.alignment_bits)
    terms, accumulators = _term_exponents(instruction, one), _number_exponents(instruction.c)
    below = [bounds for bounds in (terms, accumulators) if bounds.least < floor]
    if not below:
        least = min(terms.least, accumulators.least)
        return f"every nonzero term has an exponent of {least} or more, so that no e_zero up to {floor} has an effect"
    last = min(bounds.last for bounds in below)
    if last < grid:
        return ""
    return f"terms with exponents below {floor} have no bit below 2^{last}, and all bits down to 2^{grid} are kept"
