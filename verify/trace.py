"""Trace of the computation of one output, step by step and term by term, as a record and as text.

Golden model and hardware fill the same record: :mod:`sptc.verify.trace_golden` from arrays of the golden model,
:mod:`sptc.verify.trace_hardware` from signals of the hardware. If NaN or Inf decides the result of a step, neither
trace has the sum of the step, because the sum of the hardware then has no meaning.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from html import escape
from itertools import chain, zip_longest
from math import isfinite
from typing import Any

import numpy as np

from ..isa.instructions import Instruction
from .replay import as_number

__all__ = [
    "Difference",
    "FileResult",
    "OutputTrace",
    "Product",
    "Step",
    "Term",
    "as_code",
    "as_decimal",
    "as_json",
    "file_verdict",
    "first_difference",
    "integer_step",
    "selected_halves",
    "special_term",
    "trace_as_dict",
    "trace_as_html",
    "trace_as_text",
]


@dataclass(frozen=True, kw_only=True)
class Product:
    """One product of a trace: a stored element of A times the element of B that metadata selects."""

    element: int  #: Index of the stored element in the row of A
    #: Index of the metadata chunk and its nibble, which selects the row of B; None for a dense instruction.
    chunk: int | None
    nibble: int | None
    #: Index of the row of B that the multiplexers select, or ``none`` if they select no row. If the 16-bit halves of a
    #: tf32 come from different rows: index of each half in the column of B, where half 0 is the low half of row 0.
    selected: str
    #: Codes of the elements of A and B in the formats of the instruction.
    a: int
    b: int
    value: float | int  #: Exact product without block scales; NaN and Inf follow IEEE rules


@dataclass(frozen=True, kw_only=True)
class Term:
    """One term of a traced sum: a product, a scaled group of products, or the accumulator."""

    elements: tuple[int, ...]  #: Indices of the stored elements of A in this term; empty for the accumulator
    value: float | int  #: Value of the term, including block scales
    exponent: int | None  #: Exponent of the term before normalisation; None if it is left out of `e_max`
    #: Number of bits by which alignment shifts the term right, at most F + 2: a shift of F + 2 removes all bits of a
    #: product. None if the term has no exponent.
    shift: int | None
    kept: int | None  #: Value of the term after alignment, in units of the lowest bit that alignment keeps
    cut: float | None  #: Truncated part of the term, below 1, in units of the lowest bit that alignment keeps


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step of a trace: the products that are summed together with the accumulator, their sum, and its rounding."""

    c: int  #: Code of the accumulator before the step
    products: tuple[Product, ...]  #: Products, in the order of the stored elements of A
    #: Alignment exponent: largest exponent of the terms, at least e_zero; None for integers or if NaN or Inf decides D.
    e_max: int | None
    alignment_bits: int | None  #: Number of bits kept below `e_max` (F)
    #: Terms in the order of the stored elements of A, then the accumulator. With integers, which are not aligned, the
    #: accumulator is the only term.
    terms: tuple[Term, ...]
    #: Exact sum of the aligned terms in units of the lowest bit that alignment keeps; None if NaN or Inf decides D.
    total: int | None
    rounding: str  #: Name of the rounding mode
    d: int  #: Code of the rounded result of the step


@dataclass(frozen=True, kw_only=True)
class OutputTrace:
    """Trace of one output of one instruction."""

    instruction: Instruction  #: Instruction with shape and types
    arch: str  #: Architecture whose numerics apply
    model: str  #: Source of the trace: ``golden model`` or ``hardware``
    steps: tuple[Step, ...]
    added: int | None  #: Code of C if C is added after all products (emulated fp8 and 4-bit integers)
    d: int  #: Code of the output (element of D)


@dataclass(frozen=True)
class FileResult:
    """Recorded result of an output, and the first step that may have caused a difference from the golden model."""

    d: int  #: Recorded code of the output
    #: Index of the first rounded sum whose error could explain the recorded code; None if the golden model gives it.
    first_step: int | None


@dataclass(frozen=True)
class Difference:
    """Field that differs between two traces of an output, with the value of the field in each trace."""

    #: Path of field names and indices in the trace, for example ``("steps", 0, "terms", 3, "shift")``.
    place: tuple[str | int, ...]
    #: Values of the differing field in the first and in the second trace.
    one: object
    other: object

    def __str__(self) -> str:
        words = [f"{word} {number}" for word, number in zip(self.place[::2], self.place[1::2], strict=False)]
        return ", ".join([*words, *map(str, self.place[2 * len(words) :])])


def integer_step(products: tuple[Product, ...], c: int, total: int, d: int, i: Instruction) -> Step:
    """Return the only step in the trace of an integer instruction; the sum of this step is exact, without alignment."""
    value = int(as_number(c, i.c))
    return Step(
        c=c,
        products=products,
        terms=(Term(elements=(), value=value, exponent=None, shift=None, kept=value, cut=None),),
        e_max=None,
        alignment_bits=None,
        total=total,
        rounding="clamp to s32" if i.satfinite else "wrap to s32",
        d=d,
    )


def special_term(elements: tuple[int, ...]) -> Term:
    """Return a term without exponent and alignment, for a sum whose result a NaN or Inf operand decides."""
    return Term(elements=elements, value=float("nan"), exponent=None, shift=None, kept=None, cut=None)


def selected_halves(low: int | None, high: int | None) -> str:
    """Return as text the row of B if both 16-bit halves of one element are selected, else the two selected halves."""
    if low is not None and high == low + 1 and low % 2 == 0:
        return str(low // 2)
    return " and ".join("none" if half is None else f"half {half}" for half in (low, high))


def first_difference(one: OutputTrace, other: OutputTrace) -> Difference | None:
    """Return the first field, in the order of the datapath, in which two traces differ; None if they are equal."""
    last = (one.added, one.d), (other.added, other.d)
    return next(chain(_differences(one.steps, other.steps, ("steps",)), _differences(*last, ("last",))), None)


def _differences(one: Any, other: Any, place: tuple[str | int, ...]) -> Iterator[Difference]:
    if isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):
        for number, pair in enumerate(zip(one, other, strict=True)):
            yield from _differences(*pair, (*place, number))
    elif is_dataclass(one) and type(one) is type(other):
        for name, value in vars(one).items():  # fields are declared in the order in which the datapath computes them
            yield from _differences(value, getattr(other, name), (*place, name))
    elif one != other and not (one != one and other != other):  # a NaN in both traces counts as equal
        yield Difference(place, one, other)


def trace_as_dict(trace: OutputTrace) -> dict[str, object]:
    """Return a trace as JSON data: codes as hexadecimal words, nibbles in binary, NaN and Inf as strings."""
    i = trace.instruction
    return {
        "instruction": str(i),
        "arch": trace.arch,
        "model": trace.model,
        "steps": [_step_as_dict(step, i.d.bits) for step in trace.steps],
        "added": None if trace.added is None else as_code(trace.added, i.c.bits),
        "d": as_code(trace.d, i.d.bits),
    }


def _step_as_dict(step: Step, bits: int) -> dict[str, object]:
    entry = asdict(step) | {"c": as_code(step.c, bits), "d": as_code(step.d, bits)}
    for product in entry["products"]:
        for name in ("a", "b"):
            product[name] = f"0x{product[name]:x}"
        if product["nibble"] is not None:
            product["nibble"] = f"{product['nibble']:04b}"
        product["value"] = as_json(product["value"])
    for term in entry["terms"]:
        term["value"] = as_json(term["value"])
    return entry


def as_json(value: float | int) -> float | int | str:
    """Return a number as a JSON value: NaN and Inf as strings."""
    return value if isinstance(value, int) or isfinite(value) else repr(value)


_HEADER = ("element", "nibble", "B row", "a", "b", "value", "exponent", "shift", "kept", "cut off")
_EQUAL = "="
_FIRST = " <- first difference"
_FILE = " <- the first step that can explain the D of the file"


def trace_as_text(title: str, golden: OutputTrace, hardware: OutputTrace | None, file: FileResult | None = None) -> str:
    """Return a trace as text: verdicts, and per golden model step a table that shows differing hardware values."""
    lines = [_verdict(golden, hardware), *file_verdict(golden, file), title]
    for heading, rows, ending in _tables(golden, hardware, file):
        widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
        lines += ["", heading]
        for row in rows:
            cells = [f"{cell:>{width}}" for cell, width in zip(row[:-1], widths, strict=False)]
            lines.append("  ".join([*cells, row[-1]]).rstrip())
        lines += ending
    return "\n".join(lines)


def trace_as_html(title: str, golden: OutputTrace, hardware: OutputTrace | None, file: FileResult | None = None) -> str:
    """Return a trace as HTML: a table for each rounded sum of the golden model, with differing hardware values."""
    verdicts = "<br>".join(escape(line) for line in (_verdict(golden, hardware), *file_verdict(golden, file)))
    parts = [f"<p><b>{escape(title)}</b><br>{verdicts}</p>"]
    for heading, (header, *rows), ending in _tables(golden, hardware, file):
        body = "".join(_html_row(row, "td") for row in rows)
        end = "<br>".join(map(escape, ending))
        parts.append(f"<p>{escape(heading)}</p><table>{_html_row(header, 'th')}{body}</table><p>{end}</p>")
    return "".join(parts)


def _html_row(cells: Sequence[str], tag: str) -> str:
    differs = tag == "td" and cells[-1] not in ("", _EQUAL)
    style = ' style="color:#b00020"' if differs else ""
    return f"<tr{style}>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"


def _verdict(golden: OutputTrace, hardware: OutputTrace | None) -> str:
    result = f"D is {_code(golden, golden.d)} by the golden model"
    if hardware is None:
        return result
    difference = first_difference(golden, hardware)
    if difference is None:
        return f"{result} and by the hardware, which agree in every field"
    parting = f"they first differ at {difference}: {difference.one}, {difference.other}"
    return f"{result}, {_code(hardware, hardware.d)} by the hardware; {parting}"


def file_verdict(golden: OutputTrace, file: FileResult | None) -> list[str]:
    """Return a sentence that compares the recorded result with the golden model; empty without a recorded result."""
    if file is None:
        return []
    if file.first_step is None:
        return ["the file holds the same D"]
    steps = len(golden.steps)
    place = f"in step {file.first_step + 1} of {steps} or later" if steps > 1 else "in the only step"
    return [f"the file holds another D, {_code(golden, file.d)}; the first difference arose {place}"]


def _tables(
    golden: OutputTrace, hardware: OutputTrace | None, file: FileResult | None
) -> Iterator[tuple[str, list[tuple[str, ...]], list[str]]]:
    """Yield heading, table rows and closing lines for each step (rounded sum) of a trace."""
    difference = first_difference(golden, hardware) if hardware else None
    pairs = list(zip_longest(golden.steps, hardware.steps if hardware else ()))
    for number, (step, other) in enumerate(pairs):
        if step is None:
            continue
        place = difference.place[2:] if difference and difference.place[:2] == ("steps", number) else ()
        heading = f"step {number + 1} of {len(golden.steps)}"
        if step.e_max is not None and step.alignment_bits is not None:
            heading += f": e_max {step.e_max}, F {step.alignment_bits}, the last bit kept is worth "
            heading += f"2^{step.e_max - step.alignment_bits}"
            heading += _hardware_field("e_max", step, other, place)
        if file and file.first_step == number:
            heading += _FILE
        yield heading, list(_rows(golden, step, other, place)), list(_ending(golden, step, other, place))
    if golden.added is not None:
        yield (
            "after the steps",
            [("C", "D", ""), (_code(golden, golden.added), _code(golden, golden.d), "")],
            ["C is added under IEEE rules; the sum is rounded to nearest even"],
        )


def _rows(
    trace: OutputTrace, step: Step, other: Step | None, place: tuple[str | int, ...]
) -> Iterator[tuple[str, ...]]:
    """Yield the table rows of one sum: aligned products, then sums of groups of products, then the accumulator."""
    yield (*_HEADER, "hardware" if other else "")
    is_single = len(step.terms) == len(step.products) + 1  # each product is aligned alone, not in groups
    products = zip_longest(step.products, other.products if other else ())
    terms = list(zip_longest(step.terms, other.terms if other else ()))
    for number, (product, other_product) in enumerate(products):
        if product is None:
            continue
        differing = _differing(product, other_product)
        is_first = place[:2] == ("products", number)
        cells = _product_cells(trace, product)
        aligned: tuple[str, ...] = ("",) * 4
        if is_single:
            term, other_term = terms[number]
            aligned = _term_cells(term)
            differing += _differing(term, other_term, without="value")
            is_first |= place[:2] == ("terms", number)
        yield (*cells, *aligned, _hardware_values(differing, is_first) if other else "")
    for number, (term, other_term) in enumerate(terms):
        if term is None or (is_single and term.elements):
            continue
        name = f"{term.elements[0]} to {term.elements[-1]}" if term.elements else "C"
        code = "" if term.elements else as_code(step.c, trace.instruction.c.bits)
        is_first = place[:2] == ("terms", number) or (not term.elements and place[:1] == ("c",))
        values = _hardware_values(_differing(term, other_term), is_first) if other else ""
        yield (name, "", "", code, "", as_decimal(term.value), *_term_cells(term), values)


def _ending(trace: OutputTrace, step: Step, other: Step | None, place: tuple[str | int, ...]) -> Iterator[str]:
    if step.total is None:
        yield "NaN or Inf decides the result, independently of the sum"
    elif step.e_max is None or step.alignment_bits is None:
        yield f"sum {step.total}{_hardware_field('total', step, other, place)}"
    else:
        unit = step.e_max - step.alignment_bits
        value = as_decimal(float(np.ldexp(float(step.total), unit)))
        yield f"sum {step.total} x 2^{unit} = {value}{_hardware_field('total', step, other, place)}"
    yield f"{step.rounding}: {_code(trace, step.d)}{_hardware_field('d', step, other, place)}"


def _hardware_field(name: str, step: Step, other: Step | None, place: tuple[str | int, ...]) -> str:
    if other is None or getattr(step, name) == getattr(other, name):
        return ""
    return "   hardware: " + _hardware_values([f"{name} {getattr(other, name)}"], place[:1] == (name,))


def _differing(one: Product | Term | None, other: Product | Term | None, without: str = "") -> list[str]:
    """Return the fields that differ between records of golden model and hardware, with the values of the hardware.

    Two NaNs are equal. The field `without` is left out.
    """
    pairs = zip(vars(one).items(), vars(other).values(), strict=True) if one and other else ()
    differing = {name: value for (name, own), value in pairs if own != value and repr(own) != repr(value)}
    return [f"{name} {value}" for name, value in differing.items() if name != without]


def _hardware_values(differing: list[str], is_first: bool) -> str:
    """Return the hardware values that differ as text, or "=" if none does; mark the first difference."""
    return ("; ".join(differing) or _EQUAL) + (_FIRST if is_first else "")


def _product_cells(trace: OutputTrace, product: Product) -> tuple[str, ...]:
    nibble = "" if product.nibble is None else f"{product.nibble:04b}"
    bits = trace.instruction.container_bits
    codes = (as_code(product.a, bits), as_code(product.b, bits))
    return (str(product.element), nibble, product.selected, *codes, as_decimal(product.value))


def _term_cells(term: Term) -> tuple[str, ...]:
    values = (term.exponent, term.shift, term.kept)
    cells = tuple("-" if value is None else str(value) for value in values)
    return (*cells, "-" if term.cut is None else as_decimal(term.cut))


def as_decimal(value: float | int) -> str:
    """Format a number in decimal; a non-integer has at most nine significant digits."""
    return str(value) if isinstance(value, int) else f"{value + 0.0:.9g}"  # + 0.0 removes the sign of -0


def as_code(code: int, bits: int) -> str:
    """Format an element or accumulator code as a hexadecimal number with as many digits as its width needs."""
    return f"0x{code:0{bits // 4}x}"


def _code(trace: OutputTrace, code: int) -> str:
    fmt = trace.instruction.d
    return f"{as_code(code, fmt.bits)} ({as_number(code, fmt)})"
