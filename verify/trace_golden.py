"""The trace of an output from the golden model."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ..golden.accumulator import encode_accumulator
from ..golden.decode import WIDE, decode
from ..golden.integer import decode_integer
from ..golden.matrix import traced
from ..golden.select import kept_rows
from ..golden.trace import Step as GoldenStep
from ..golden.trace import Trace
from ..isa.formats import Format
from ..isa.instructions import Instruction
from ..isa.metadata import MUX_OF_ARCHITECTURE, indices, reachable
from ..isa.numerics import BLOCK_GROUP, Method, Numerics, numerics
from ..isa.operands import MatrixOperands
from .trace import OutputTrace, Product, Step, Term

__all__ = ["golden_traces"]


def golden_traces(instruction: Instruction, arch: str, operands: MatrixOperands) -> Iterator[OutputTrace]:
    """Yield the trace of every output, tile by tile and row by row.

    Parameters
    ----------
    instruction, arch : Instruction, str
        Instruction, and architecture whose numerics apply.
    operands : MatrixOperands
        Tiles with any number of rows and columns; K is that of one instruction.
    """
    codes, steps = traced(instruction, arch, operands)
    emulated = numerics(instruction, arch).method is Method.EMULATED
    values = [_products(step, instruction) for step in steps]
    shape = codes.reshape(-1, codes.shape[2]).shape
    for row, column in np.ndindex(shape):
        tile = divmod(row, codes.shape[1])
        c, d = int(operands.c[tile][column]), int(codes[tile][column])
        nibbles = None if operands.nibbles is None else operands.nibbles[tile]
        selected = _selected(instruction, arch, nibbles)
        at, found = (0 if emulated else c), []
        for step, of_step in zip(steps, values, strict=True):
            products = tuple(
                Product(
                    element=int(element),
                    **_metadata(instruction, nibbles, int(element)),
                    selected=selected[element],
                    a=int(step.a[place, row, 0]),
                    b=int(step.b[place, row, column]),
                    value=of_step[place, row, column].item(),
                )
                for place, element in enumerate(step.elements)
            )
            found.append(
                _integer_step(products, at, d, instruction)
                if step.trace is None
                else _float_step(products, at, instruction, numerics(instruction, arch), step.trace, (row, column))
            )
            at = found[-1].d
        yield OutputTrace(
            instruction=instruction,
            arch=arch,
            model="golden model",
            steps=tuple(found),
            added=c if emulated else None,
            d=d,
        )


def _metadata(i: Instruction, nibbles: NDArray[np.uint8] | None, element: int) -> dict[str, int | None]:
    if i.granularity is None or nibbles is None:
        return {"chunk": None, "nibble": None}
    chunk = element // i.granularity.stored
    return {"chunk": chunk, "nibble": int(nibbles[chunk])}


def _selected(i: Instruction, arch: str, nibbles: NDArray[np.uint8] | None) -> list[str]:
    """Return, for each stored element of a row, the row of B that it is multiplied with."""
    if i.granularity is None or i.rule is None or nibbles is None:
        return [str(k) for k in range(i.k)]
    mux = MUX_OF_ARCHITECTURE[arch]
    delivered = np.array([reachable(int(nibble), i.rule.name, mux) for nibble in nibbles])
    if i.granularity.stored > 1:
        kept = delivered.repeat(i.granularity.stored // 2, axis=1).ravel()
        rows = kept_rows(nibbles, i.granularity)
        return [str(k) if there else "none" for k, there in zip(rows.tolist(), kept.tolist(), strict=True)]
    return [_halves(*indices(int(nibble)), 4 * chunk, *delivered[chunk]) for chunk, nibble in enumerate(nibbles)]


def _halves(low: int, high: int, first: int, has_low: bool, has_high: bool) -> str:
    """Name the halves of tf32 that a stored tf32 is multiplied with, counted from the low half of row 0."""
    if has_low and has_high and high == low + 1 and low % 2 == 0:
        return str((first + low) // 2)
    return " and ".join(
        f"half {first + half}" if there else "none" for half, there in ((low, has_low), (high, has_high))
    )


def _products(step: GoldenStep, i: Instruction) -> NDArray:
    """Return the products of a step, shape (products, rows, n): exact values, NaN or Inf."""
    if i.a.is_integer:
        a, b = decode_integer(step.a, i.a), decode_integer(step.b, i.b)
        return a.astype(np.int64) * b.astype(np.int64)

    def values(codes: NDArray, fmt: Format) -> NDArray[np.float64]:
        terms = decode(codes, fmt, WIDE, i.low_bit(fmt))
        classes = terms.classes
        return terms.values if classes is None else np.where(np.isfinite(classes), terms.values, classes)

    with np.errstate(invalid="ignore"):
        return values(step.a, i.a) * values(step.b, i.b)


def _integer_step(products: tuple[Product, ...], c: int, d: int, i: Instruction) -> Step:
    """Return the only step of an integer instruction: the exact sum of its products."""
    accumulator = int(np.uint32(c).view(np.int32))
    return Step(
        c=c,
        products=products,
        terms=(Term(elements=(), value=accumulator, exponent=None, shift=None, kept=accumulator, cut=None),),
        e_max=None,
        alignment_bits=None,
        total=accumulator + sum(int(product.value) for product in products),
        rounding="clamp to s32" if i.satfinite else "wrap to s32",
        d=d,
    )


def _float_step(
    products: tuple[Product, ...], c: int, i: Instruction, parameters: Numerics, trace: Trace, place: tuple[int, int]
) -> Step:
    return Step(
        c=c,
        products=products,
        terms=tuple(_terms(products, parameters, trace, place)),
        **_sum(parameters, trace, place),
        rounding=parameters.rounding.value,
        d=int(encode_accumulator(trace.result[place].reshape(1), _container(i))[0]),
    )


def _container(i: Instruction) -> np.dtype:
    return np.dtype(np.uint16 if i.d.bits == 16 else np.uint32)


def _sum(parameters: Numerics, trace: Trace, place: tuple[int, int]) -> dict[str, int | None]:
    if not trace.ordinary[place]:
        return {"e_max": None, "alignment_bits": None, "total": None}
    e_max = int(trace.e_max[place])
    total = np.ldexp(trace.total[place], parameters.alignment_bits - e_max)
    return {"e_max": e_max, "alignment_bits": parameters.alignment_bits, "total": int(total)}


def _terms(products: tuple[Product, ...], parameters: Numerics, trace: Trace, place: tuple[int, int]) -> Iterator[Term]:
    """Yield the aligned terms: products, or groups of products, then the accumulator."""
    size = BLOCK_GROUP if parameters.method is Method.GROUPED else 1
    unit = int(trace.e_max[place]) - parameters.alignment_bits
    ordinary = bool(trace.ordinary[place])
    for number in range(len(products) // size):
        elements = tuple(product.element for product in products[size * number : size * (number + 1)])
        at = (number, *place)
        aligned, kept = float(trace.aligned[at]), float(trace.truncated[at])
        exponent = int(trace.exponents[at]) if trace.participates[at] else None
        yield _term(elements, aligned, kept, exponent, unit, parameters, ordinary)
    aligned, kept = float(trace.c_aligned[place]), float(trace.c_truncated[place])
    exponent = int(trace.c_exponents[place]) if trace.c_participates[place] else None
    yield _term((), aligned, kept, exponent, unit, parameters, ordinary)


def _term(
    elements: tuple[int, ...],
    aligned: float,
    kept: float,
    exponent: int | None,
    unit: int,
    parameters: Numerics,
    ordinary: bool,
) -> Term:
    if not ordinary:
        return Term(elements=elements, value=float("nan"), exponent=None, shift=None, kept=None, cut=None)
    bits = parameters.alignment_bits
    shift = None if exponent is None else min(unit + bits - exponent, bits + 2)
    return Term(
        elements=elements,
        value=float(np.ldexp(aligned, unit)),
        exponent=exponent,
        shift=shift,
        kept=int(kept),
        cut=aligned - kept,
    )
