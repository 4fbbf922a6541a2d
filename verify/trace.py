"""How one output came to be, step by step and term by term, as a record that prints and draws itself.

The golden model and the hardware each fill the same record: :mod:`sptc.verify.trace_golden` from the arrays of the
former, :mod:`sptc.verify.trace_hardware` from the signals of the latter. Where a special value decides a step, what its
sum would have been is left out of both: the hardware adds up bits that mean nothing.
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
    """A stored element of A and what meets it.

    Attributes
    ----------
    element : int
        Which stored element of the row of A.
    chunk, nibble : int or None
        Metadata that selects; None of a dense instruction.
    selected : str
        Row of B that the multiplexers deliver; of a tf32 put together of two, the halves, counted from the low one of
        row 0; ``none`` where they deliver nothing.
    a, b : int
        Codes that are multiplied, as the instruction has them, whatever they are widened to.
    value : float or int
        Exact product, without block scales; NaN and Inf as IEEE rules have them.
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
    """What is aligned and added: a product, a scaled group of them, or the accumulator.

    Attributes
    ----------
    elements : tuple of int
        Stored elements of its products; none of the accumulator.
    value : float or int
        What it is worth, block scales included.
    exponent : int or None
        Not normalised; None if it takes no part in the largest exponent.
    shift : int or None
        Places that it is shifted right, at most the F + 2 behind which nothing is left of a product; None without an
        exponent.
    kept : int or None
        What is added, in units of the last bit kept.
    cut : float or None
        What was cut off, in the same units: less than one.
    """

    elements: tuple[int, ...]
    value: float | int
    exponent: int | None
    shift: int | None
    kept: int | None
    cut: float | None


@dataclass(frozen=True, kw_only=True)
class Step:
    """Products that are summed at once, with an accumulator.

    Attributes
    ----------
    c : int
        Code of the accumulator.
    products : tuple of Product
        In the order of the stored elements.
    terms : tuple of Term
        In the same order, the accumulator last; of integers only it, since their products are added as they are.
    e_max : int or None
        Largest exponent, or e_zero; None of integers, and where a special value decides.
    alignment_bits : int or None
        Bits kept below it (F).
    total : int or None
        Exact sum of what was kept, in units of the last bit kept; None where a special value decides.
    rounding : str
        How the sum becomes the result.
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
    """One output of one instruction.

    Attributes
    ----------
    instruction : Instruction
        Shape and types.
    arch : str
        Whose numerics.
    model : str
        ``golden model`` or ``hardware``.
    steps : tuple of Step
        In their order.
    added : int or None
        Code of C where it is added behind the steps, by an instruction of its own (emulated fp8 and 4-bit integers).
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
        """Return the format of what is multiplied, ``a`` or ``b``, or of C or D."""
        fmt: Format = getattr(self.instruction, operand)
        return fmt


@dataclass(frozen=True)
class Difference:
    """Where two traces part.

    Attributes
    ----------
    place : tuple of (str or int)
        Fields and numbers from the trace on, as in ``("steps", 0, "terms", 3, "shift")``.
    one, other : object
        What stands there.
    """

    place: tuple[str | int, ...]
    one: object
    other: object

    def __str__(self) -> str:
        words = [f"{word} {number}" for word, number in zip(self.place[::2], self.place[1::2], strict=False)]
        return ", ".join([*words, *map(str, self.place[2 * len(words) :])])


def first_difference(one: OutputTrace, other: OutputTrace) -> Difference | None:
    """Return the first field in which two traces differ, in the order of the datapath; None if all are alike."""
    return next(_differences(one.steps, other.steps, ("steps",)), None) or next(
        _differences((one.added, one.d), (other.added, other.d), ("last",)), None
    )


#: Fields in the order in which data meets them.
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
    """Return a trace as JSON has it: codes as hexadecimal words, nibbles in binary, NaN and Inf as words."""
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
