"""The trace of one output, step by step and term by term, as a record that prints and draws itself.

Golden model and hardware fill the same record: :mod:`sptc.verify.trace_golden` from arrays of the golden model,
:mod:`sptc.verify.trace_hardware` from signals of the hardware. Where a special value decides a step, neither trace has
the sum of the step: the bits that the hardware adds have no meaning there.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, is_dataclass
from math import isfinite, isnan
from typing import Any

from ..isa.formats import Format
from ..isa.instructions import Instruction

__all__ = ["Difference", "OutputTrace", "Product", "Step", "Term", "first_difference", "trace_as_dict"]


@dataclass(frozen=True, kw_only=True)
class Product:
    """One product: a stored element of A and the element of B that metadata selects.

    Attributes
    ----------
    element : int
        Index of the stored element in the row of A.
    chunk, nibble : int or None
        Chunk and nibble that select; None for a dense instruction.
    selected : str
        Row of B that the multiplexers deliver. For a tf32 combined of two, its halves, counted from the low half of
        row 0. ``none`` where they deliver nothing.
    a, b : int
        Codes of both factors in the formats of the instruction.
    value : float or int
        Exact product, without block scales; NaN and Inf under IEEE rules.
    """

    element: int
    chunk: int | None
    nibble: int | None
    selected: str
    a: int
    b: int
    value: float | int


@dataclass(frozen=True, kw_only=True)
class Term:
    """One term of the sum: a product, a scaled group of products, or the accumulator.

    Attributes
    ----------
    elements : tuple of int
        Stored elements of its products; empty for the accumulator.
    value : float or int
        Value, block scales included.
    exponent : int or None
        Exponent, not normalised; None if the term does not participate in the largest exponent.
    shift : int or None
        Right shift in the alignment. It is at most F + 2, where nothing is left of a product. None without an
        exponent.
    kept : int or None
        Value after the alignment, in units of the last bit kept.
    cut : float or None
        Value that alignment cut off, in the same units: less than one.
    """

    elements: tuple[int, ...]
    value: float | int
    exponent: int | None
    shift: int | None
    kept: int | None
    cut: float | None


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step: products that are summed together, with an accumulator.

    Attributes
    ----------
    c : int
        Code of the accumulator.
    products : tuple of Product
        Products in the order of the stored elements.
    terms : tuple of Term
        Terms in the same order, then the accumulator. For integers only the accumulator, as products are not aligned.
    e_max : int or None
        Largest exponent, or e_zero; None for integers and where a special value decides.
    alignment_bits : int or None
        Bits kept below `e_max` (F).
    total : int or None
        Exact sum of the kept values, in units of the last bit kept; None where a special value decides.
    rounding : str
        Name of the rounding.
    d : int
        Code of the result.
    """

    c: int
    products: tuple[Product, ...]
    terms: tuple[Term, ...]
    e_max: int | None
    alignment_bits: int | None
    total: int | None
    rounding: str
    d: int


@dataclass(frozen=True, kw_only=True)
class OutputTrace:
    """Trace of one output of one instruction.

    Attributes
    ----------
    instruction : Instruction
        Shape and types.
    arch : str
        Architecture whose numerics apply.
    model : str
        ``golden model`` or ``hardware``.
    steps : tuple of Step
        Steps in order.
    added : int or None
        Code of C if a separate addition adds it after the steps (emulated fp8 and 4-bit integers).
    d : int
        Code of the output.
    """

    instruction: Instruction
    arch: str
    model: str
    steps: tuple[Step, ...]
    added: int | None
    d: int

    def format_of(self, operand: str) -> Format:
        """Return the format of the factors, ``a`` or ``b``, or of C or D."""
        fmt: Format = getattr(self.instruction, operand)
        return fmt


@dataclass(frozen=True)
class Difference:
    """Field in which two traces differ.

    Attributes
    ----------
    place : tuple of (str or int)
        Path of field names and indices in the trace, for example ``("steps", 0, "terms", 3, "shift")``.
    one, other : object
        Values of the field in both traces.
    """

    place: tuple[str | int, ...]
    one: object
    other: object

    def __str__(self) -> str:
        words = [f"{word} {number}" for word, number in zip(self.place[::2], self.place[1::2], strict=False)]
        return ", ".join([*words, *map(str, self.place[2 * len(words) :])])


def first_difference(one: OutputTrace, other: OutputTrace) -> Difference | None:
    """Return the first field in which two traces differ, in the order of the datapath; None if they are equal."""
    return next(_differences(one.steps, other.steps, ("steps",)), None) or next(
        _differences((one.added, one.d), (other.added, other.d), ("last",)), None
    )


#: Fields of each record in the order of the datapath.
_ORDER = {
    Step: ("c", "products", "e_max", "alignment_bits", "terms", "total", "rounding", "d"),
    Product: ("element", "chunk", "nibble", "selected", "a", "b", "value"),
    Term: ("elements", "value", "exponent", "shift", "kept", "cut"),
}


def _differences(one: Any, other: Any, place: tuple[str | int, ...]) -> Iterator[Difference]:
    if isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):
        for number, pair in enumerate(zip(one, other, strict=True)):
            yield from _differences(*pair, (*place, number))
    elif is_dataclass(one) and type(one) is type(other):
        for name in _ORDER[type(one)]:
            yield from _differences(getattr(one, name), getattr(other, name), (*place, name))
    elif one != other and not (_is_nan(one) and _is_nan(other)):
        yield Difference(place, one, other)


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and isnan(value)


def trace_as_dict(trace: OutputTrace) -> dict[str, object]:
    """Return a trace as JSON data: codes as hexadecimal words, nibbles in binary, NaN and Inf as strings."""
    shown = {field.name: getattr(trace, field.name) for field in fields(trace)}
    shown |= {"instruction": str(trace.instruction), "steps": [_step_as_dict(trace, step) for step in trace.steps]}
    shown["added"] = None if trace.added is None else _code(trace.added, trace.instruction.c.bits)
    shown["d"] = _code(trace.d, trace.instruction.d.bits)
    return shown


def _step_as_dict(trace: OutputTrace, step: Step) -> dict[str, object]:
    found = asdict(step)
    bits = trace.instruction.d.bits
    found |= {"c": _code(step.c, bits), "d": _code(step.d, bits)}
    for product in found["products"]:
        for name in ("a", "b"):
            product[name] = f"0x{product[name]:x}"
        if product["nibble"] is not None:
            product["nibble"] = f"{product['nibble']:04b}"
        product["value"] = _number(product["value"])
    for term in found["terms"]:
        term["value"] = _number(term["value"])
    return found


def _code(code: int, bits: int) -> str:
    return f"0x{code:0{bits // 4}x}"


def _number(value: float | int) -> float | int | str:
    return value if isinstance(value, int) or isfinite(value) else repr(value)
