"""Traces as text: tables for a terminal and for a notebook."""

from collections.abc import Iterator, Sequence
from html import escape
from itertools import zip_longest

import numpy as np

from .replay import as_number
from .trace import OutputTrace, Product, Step, Term, first_difference

__all__ = ["as_code", "as_decimal", "trace_as_html", "trace_as_text"]

_HEADER = ("element", "nibble", "B row", "a", "b", "value", "exponent", "shift", "kept", "cut off")
_EQUAL = "="
_FIRST = " <- first difference"


def trace_as_text(title: str, golden: OutputTrace, hardware: OutputTrace | None) -> str:
    """Return a table for each step, with the values of the hardware where they differ.

    Parameters
    ----------
    title : str
        Title of the text.
    golden : OutputTrace
        Trace of the golden model.
    hardware : OutputTrace or None
        Trace of the hardware.
    """
    lines = [title, _verdict(golden, hardware)]
    for heading, rows, ending in _tables(golden, hardware):
        widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
        lines += ["", heading]
        for row in rows:
            cells = [f"{cell:>{width}}" for cell, width in zip(row[:-1], widths, strict=False)]
            lines.append("  ".join([*cells, row[-1]]).rstrip())
        lines += ending
    return "\n".join(lines)


def trace_as_html(title: str, golden: OutputTrace, hardware: OutputTrace | None) -> str:
    """Return the same tables as HTML; parameters as for :func:`trace_as_text`."""
    parts = [f"<p><b>{escape(title)}</b><br>{escape(_verdict(golden, hardware))}</p>"]
    for heading, (header, *rows), ending in _tables(golden, hardware):
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
    parted = first_difference(golden, hardware)
    if parted is None:
        return f"{result} and by the hardware, which agree in every field"
    return (
        f"{result}, {_code(hardware, hardware.d)} by the hardware; they part at {parted}: {parted.one}, {parted.other}"
    )


def _tables(
    golden: OutputTrace, hardware: OutputTrace | None
) -> Iterator[tuple[str, list[tuple[str, ...]], list[str]]]:
    """Yield heading, table rows and closing lines of each step."""
    parted = first_difference(golden, hardware) if hardware else None
    pairs = list(zip_longest(golden.steps, hardware.steps if hardware else ()))
    for number, (step, other) in enumerate(pairs):
        if step is None:
            continue
        place = parted.place[2:] if parted and parted.place[:2] == ("steps", number) else ()
        heading = f"step {number + 1} of {len(golden.steps)}"
        if step.e_max is not None and step.alignment_bits is not None:
            heading += f": e_max {step.e_max}, F {step.alignment_bits}, the last bit kept is worth "
            heading += f"2^{step.e_max - step.alignment_bits}"
            heading += _of_step("e_max", step, other, place)
        yield heading, list(_rows(golden, step, other, place)), list(_ending(golden, step, other, place))
    if golden.added is not None:
        yield (
            "behind the steps",
            [("C", "D", ""), (_code(golden, golden.added), _code(golden, golden.d), "")],
            ["added under IEEE rules, rounded to nearest even"],
        )


def _rows(
    trace: OutputTrace, step: Step, other: Step | None, place: tuple[str | int, ...]
) -> Iterator[tuple[str, ...]]:
    """Yield the table rows of a step: products with their alignment, then groups, then the accumulator."""
    yield (*_HEADER, "hardware" if other else "")
    single = len(step.terms) == len(step.products) + 1
    products = zip_longest(step.products, other.products if other else ())
    terms = list(zip_longest(step.terms, other.terms if other else ()))
    for number, (product, its) in enumerate(products):
        if product is None:
            continue
        differing = _fields(product, its)
        is_first = place[:2] == ("products", number)
        cells = _product_cells(trace, product)
        aligned: tuple[str, ...] = ("",) * 4
        if single:
            term, its_term = terms[number]
            aligned = _term_cells(term)
            differing |= {name: pair for name, pair in _fields(term, its_term).items() if name != "value"}
            is_first |= place[:2] == ("terms", number)
        yield (*cells, *aligned, _beside(differing, is_first) if other else "")
    for number, (term, its_term) in enumerate(terms):
        if term is None or (single and term.elements):
            continue
        name = f"{term.elements[0]} to {term.elements[-1]}" if term.elements else "C"
        code = "" if term.elements else as_code(step.c, trace.instruction.c.bits)
        is_first = place[:2] == ("terms", number) or (not term.elements and place[:1] == ("c",))
        beside = _beside(_fields(term, its_term), is_first) if other else ""
        yield (name, "", "", code, "", as_decimal(term.value), *_term_cells(term), beside)


def _ending(trace: OutputTrace, step: Step, other: Step | None, place: tuple[str | int, ...]) -> Iterator[str]:
    if step.total is None:
        yield "a special value decides the result, whatever the sum"
    elif step.e_max is None or step.alignment_bits is None:
        yield f"sum {step.total}{_of_step('total', step, other, place)}"
    else:
        unit = step.e_max - step.alignment_bits
        value = as_decimal(float(np.ldexp(float(step.total), unit)))
        yield f"sum {step.total} x 2^{unit} = {value}{_of_step('total', step, other, place)}"
    yield f"{step.rounding}: {_code(trace, step.d)}{_of_step('d', step, other, place)}"


def _of_step(name: str, step: Step, other: Step | None, place: tuple[str | int, ...]) -> str:
    one, its = getattr(step, name), getattr(other, name, None)
    return "" if other is None or one == its else "   hardware: " + _beside({name: (one, its)}, place[:1] == (name,))


def _fields(one: Product | Term | None, other: Product | Term | None) -> dict[str, tuple[object, object]]:
    """Return the fields in which two records differ, with both values."""
    if one is None or other is None:
        return {}
    pairs = {name: (value, getattr(other, name)) for name, value in vars(one).items()}
    return {name: pair for name, pair in pairs.items() if repr(pair[0]) != repr(pair[1])}


def _beside(differing: dict[str, tuple[object, object]], is_first: bool) -> str:
    """Return the values of the hardware that differ."""
    said = "; ".join(f"{name} {its}" for name, (one, its) in differing.items() if one != its)
    return (said or _EQUAL) + (_FIRST if is_first else "")


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
    """Format a code in hexadecimal, with the digits of its width."""
    return f"0x{code:0{bits // 4}x}"


def _code(trace: OutputTrace, code: int) -> str:
    fmt = trace.instruction.d
    return f"{as_code(code, fmt.bits)} ({as_number(code, fmt)})"
