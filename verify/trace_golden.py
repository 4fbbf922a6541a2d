"""Trace of an output of the golden model, from arrays of the model's intermediate values."""

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
from ..operands.registers import CONTAINERS
from .replay import as_number
from .trace import OutputTrace, Product, Step, Term, integer_step, selected_halves, special_term

__all__ = ["golden_traces"]


def golden_traces(
    instruction: Instruction, arch: str, operands: MatrixOperands, changed: Numerics | None = None
) -> Iterator[OutputTrace]:
    """Yield the trace of every output by tile, row and column; `changed` replaces the numerics of the architecture.

    Tiles have any number of rows and columns; K of the operands is that of one instruction.
    """
    codes, steps = traced(instruction, arch, operands, changed)
    parameters = changed or numerics(instruction, arch)
    emulated = parameters.method is Method.EMULATED
    values = [_products(step, instruction) for step in steps]
    shape = codes.reshape(-1, codes.shape[2]).shape
    for row, column in np.ndindex(shape):
        tile = divmod(row, codes.shape[1])
        c, d = int(operands.c[tile][column]), int(codes[tile][column])
        nibbles = None if operands.nibbles is None else operands.nibbles[tile]
        selected = _selected(instruction, arch, nibbles)
        accumulator, records = (0 if emulated else c), []
        for step, step_values in zip(steps, values, strict=True):
            products = tuple(
                Product(
                    element=int(element),
                    **_metadata(instruction, nibbles, int(element)),
                    selected=selected[element],
                    a=int(step.a[place, row, 0]),
                    b=int(step.b[place, row, column]),
                    value=step_values[place, row, column].item(),
                )
                for place, element in enumerate(step.elements)
            )
            if step.trace is None:
                total = int(as_number(accumulator, instruction.c)) + sum(int(product.value) for product in products)
                records.append(integer_step(products, accumulator, total, d, instruction))
            else:
                records.append(_float_step(products, accumulator, instruction, parameters, step.trace, (row, column)))
            accumulator = records[-1].d
        added = c if emulated else None
        yield OutputTrace(
            instruction=instruction, arch=arch, model="golden model", steps=tuple(records), added=added, d=d
        )


def _metadata(i: Instruction, nibbles: NDArray[np.uint8] | None, element: int) -> dict[str, int | None]:
    if i.granularity is None or nibbles is None:
        return {"chunk": None, "nibble": None}
    chunk = element // i.granularity.stored
    return {"chunk": chunk, "nibble": int(nibbles[chunk])}


def _selected(i: Instruction, arch: str, nibbles: NDArray[np.uint8] | None) -> list[str]:
    """Return, as text, the row of B by which each stored element of a row of A is multiplied."""
    if i.granularity is None or i.rule is None or nibbles is None:
        return [str(k) for k in range(i.k)]
    mux = MUX_OF_ARCHITECTURE[arch]
    delivered = np.array([reachable(int(nibble), i.rule.name, mux) for nibble in nibbles])
    if i.granularity.stored > 1:
        kept = delivered.repeat(i.granularity.stored // 2, axis=1).ravel()
        rows = kept_rows(nibbles, i.granularity)
        return [str(k) if is_kept else "none" for k, is_kept in zip(rows.tolist(), kept.tolist(), strict=True)]
    halves = [
        [4 * chunk + half if is_delivered else None for half, is_delivered in zip(indices(nibble), slots, strict=True)]
        for chunk, (nibble, slots) in enumerate(zip(nibbles.tolist(), delivered, strict=True))
    ]
    return [selected_halves(*pair) for pair in halves]


def _products(step: GoldenStep, i: Instruction) -> NDArray:
    """Return the exact products that one sum (step) adds, NaN and Inf included, shape (products, rows, n)."""
    if i.a.is_integer:
        a, b = decode_integer(step.a, i.a), decode_integer(step.b, i.b)
        return a.astype(np.int64) * b.astype(np.int64)

    def values(codes: NDArray, fmt: Format) -> NDArray[np.float64]:
        terms = decode(codes, fmt, WIDE, i.low_bit(fmt))
        classes = terms.classes
        return terms.values if classes is None else np.where(np.isfinite(classes), terms.values, classes)

    with np.errstate(invalid="ignore"):
        return values(step.a, i.a) * values(step.b, i.b)


def _float_step(
    products: tuple[Product, ...], c: int, i: Instruction, parameters: Numerics, trace: Trace, place: tuple[int, int]
) -> Step:
    e_max, bits, ordinary = int(trace.e_max[place]), parameters.alignment_bits, bool(trace.ordinary[place])
    return Step(
        c=c,
        products=products,
        terms=tuple(_terms(products, parameters, trace, place)),
        e_max=e_max if ordinary else None,
        alignment_bits=bits if ordinary else None,
        total=int(np.ldexp(trace.total[place], bits - e_max)) if ordinary else None,
        rounding=parameters.rounding.value,
        d=int(encode_accumulator(trace.result[place].reshape(1), CONTAINERS[i.d.bits])[0]),
    )


def _terms(products: tuple[Product, ...], parameters: Numerics, trace: Trace, place: tuple[int, int]) -> Iterator[Term]:
    """Yield the aligned terms of one sum: products or groups of 16 products, then the accumulator."""
    size = BLOCK_GROUP if parameters.method is Method.GROUPED else 1
    names = [
        tuple(product.element for product in products[first : first + size]) for first in range(0, len(products), size)
    ]
    pairs = (
        (trace.aligned, trace.c_aligned),
        (trace.truncated, trace.c_truncated),
        (trace.exponents, trace.c_exponents),
        (trace.participates, trace.c_participates),
    )
    values = [[*terms[:, place[0], place[1]], accumulators[place]] for terms, accumulators in pairs]
    e_max, bits = int(trace.e_max[place]), parameters.alignment_bits
    for elements, aligned, kept, exponent, participates in zip([*names, ()], *values, strict=True):
        if not trace.ordinary[place]:
            yield special_term(elements)
            continue
        yield Term(
            elements=elements,
            value=float(np.ldexp(float(aligned), e_max - bits)),
            exponent=int(exponent) if participates else None,
            shift=min(e_max - int(exponent), bits + 2) if participates else None,
            kept=int(kept),
            cut=float(aligned) - float(kept),
        )
