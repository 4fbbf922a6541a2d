"""How instructions along K compute one wrong output: accumulator, products and result of each instruction."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from math import fsum, isfinite
from typing import Any

import numpy as np

from ..api.backends import backend
from ..gemm.diagnosis import Miss, Output
from ..gemm.sums import Chains, slices
from ..isa.formats import FORMATS
from ..isa.instructions import Instruction
from ..isa.operands import MatrixOperands
from ..operands.registers import CONTAINERS
from ..tensors.encode import decode_codes
from ..verify.replay import as_number
from ..verify.trace import Product, as_code, as_json
from ..verify.trace_golden import golden_traces

__all__ = ["Link", "OutputChain", "chain_of"]

#: Maximum number of instructions that are printed for one output.
_SHOWN = 8


@dataclass(frozen=True, kw_only=True)
class Link:
    """One of the instructions along K that compute an output, with its accumulator and its result."""

    #: Index of the slice of K (split K); and index, in the slice, of the sequence of instructions with one accumulator.
    slice: int
    chain: int
    instruction: int  #: Index of the instruction among all instructions along K
    #: Codes of the accumulator (`c`) and of the result (`d`) of the instruction.
    c: int
    products: float | int  #: Exact sum of the products of the instruction, rounded once to a float
    d: int
    wanted: bool  #: Whether the given matrix contains the instruction's result, after epilogue and rounding


@dataclass(frozen=True, kw_only=True)
class OutputChain:
    """Instructions that compute the first wrong output of a matrix, by the method of summation that fits best."""

    miss: Miss  #: First wrong output of a given matrix, and the best matching method of summation
    links: tuple[Link, ...]  #: Instructions that compute the output, in the order of the slices of K (split K)
    slices: tuple[float | int, ...]  #: Partial sums of the slices into which K is split
    exact: float | int  #: Exact sum of all products of the output

    @property
    def shown(self) -> tuple[Link, ...]:
        """Up to eight instructions to print, up to the last one that gives the wanted code, if any one does."""
        last = max((number for number, link in enumerate(self.links) if link.wanted), default=len(self.links) - 1)
        return self.links[max(0, last + 1 - _SHOWN) : last + 1]

    def as_dict(self) -> dict[str, Any]:
        """Return the instructions as JSON values, with codes as hexadecimal text and Inf and NaN as strings."""
        bits = self.miss.output.factors.instruction.d.bits
        return {
            "instructions": len(self.links),
            "shown": [
                asdict(link)
                | {"c": as_code(link.c, bits), "d": as_code(link.d, bits), "products": as_json(link.products)}
                for link in self.shown
            ],
            "slices": [as_json(value) for value in self.slices],
            "exact": as_json(self.exact),
        }

    def __str__(self) -> str:
        shown, i, way = self.shown, self.miss.output.factors.instruction, self.miss.output.way
        header = ("slice", "instruction", "accumulator", "products", "result")
        rows = [header]
        for link in shown:
            c, d = (f"{as_code(code, i.d.bits)} ({_number(as_number(code, i.d))})" for code in (link.c, link.d))
            rows.append((str(link.slice), str(link.instruction), c, _number(link.products), d))
        widths = [max(len(row[place]) for row in rows) for place in range(len(header))]
        total = len(self.links)
        if total == 1:
            part = "the only instruction of this output"
        elif shown[-1] is self.links[-1]:
            part = f"the last {len(shown)} of the {total} instructions of this output"
        else:
            part = f"{len(shown)} of the {total} instructions, up to the one that gives the value in y"
        lines = [f"nearest way of summation: {part}:"]
        marks = ["", *(" <- the value in y" if link.wanted else "" for link in shown)]
        for row, mark in zip(rows, marks, strict=True):
            lines.append("  " + "  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)) + mark)
        if len(self.slices) > 1:
            more = f", and {len(self.slices) - _SHOWN} more" if len(self.slices) > _SHOWN else ""
            results = ", ".join(_number(value) for value in self.slices[:_SHOWN])
            lines.append(f"  slices {results}{more}, in the order {way.order!r}")
        codes = self.miss.got, self.miss.wanted
        values = decode_codes(np.array(codes, np.uint32), FORMATS[way.result]).tolist()
        computed, stored = (f"0x{code:x} ({_number(value)})" for code, value in zip(codes, values, strict=True))
        after = "" if self.miss.output.epilogue.is_empty else ", before the epilogue"
        lines.append(
            f"  the nearest way of summation computes {computed}, y holds {stored}; "
            f"exact sum of all products {_number(self.exact)}{after}"
        )
        return "\n".join(lines)


def chain_of(miss: Miss) -> OutputChain:
    """Recompute the first wrong output of a given matrix with the golden model, instruction by instruction.

    `miss` has the output and the best matching method of summation, from :func:`sptc.identify`.
    """
    output = miss.output
    chains = Chains(output.factors, output.way.arch, backend("golden"))
    parts = tuple(part[0, 0].item() for part in slices(output.way, chains))
    links, products = [], []
    for link, values in _links(output, miss.wanted):
        links.append(link)
        products += values
    return OutputChain(miss=miss, links=tuple(links), slices=parts, exact=_sum(products))


def _links(output: Output, wanted: int) -> Iterator[tuple[Link, list[float | int]]]:
    """Yield every instruction that computes part of an output, with the values of its products."""
    factors, i = output.factors, output.factors.instruction
    zero = np.zeros((1, 1, 1), CONTAINERS[i.d.bits])
    nibbles, scale_a, scale_b = (
        None if x is None else x[None] for x in (factors.nibbles, factors.scale_a, factors.scale_b)
    )
    parts = list(MatrixOperands(factors.a[None], factors.b[None], zero, nibbles, scale_a, scale_b).steps(i))
    for number, chains_of_slice in enumerate(output.way.slices(factors.count)):
        for place, chain in enumerate(chains_of_slice):
            accumulator = zero
            for instruction in chain.tolist():
                operands = replace(parts[instruction], c=accumulator)
                [trace] = golden_traces(i, output.way.arch, operands)
                values = _scaled((product for step in trace.steps for product in step.products), i, operands)
                c = int(accumulator[0, 0, 0])
                accumulator = np.full((1, 1, 1), trace.d, accumulator.dtype)
                total = np.array([[as_number(trace.d, i.d)]], np.int32 if i.d.is_integer else np.float32)
                yield (
                    Link(
                        slice=number, chain=place, instruction=instruction, c=c, products=_sum(values), d=trace.d,
                        wanted=output.stored(total) == wanted,
                    ),
                    values,
                )  # fmt: skip


def _scaled(products: Iterable[Product], i: Instruction, operands: MatrixOperands) -> list[float | int]:
    """Return the products of a row of A and a column of B as numbers, each multiplied by its two block scales."""
    if not (i.scale_size and i.scale_format):
        return [product.value for product in products]
    factors = [1.0] * i.scale_size
    for scales in (operands.scale_a, operands.scale_b):
        assert scales is not None
        factors = [one * other for one, other in zip(factors, decode_codes(scales[0, 0], i.scale_format), strict=True)]
    block = i.stored_k // i.scale_size
    return [product.value * float(factors[product.element // block]) for product in products]


def _sum(values: list[float | int]) -> float | int:
    if all(isinstance(value, int) for value in values):
        return sum(values)
    return fsum(values) if all(map(isfinite, values)) else float(np.sum(values))


def _number(value: float | int) -> str:
    return str(value) if isinstance(value, int) else f"{value:.9g}"
