"""Generator of C++ from a netlist without registers. Each C++ variable is a vector with one lane per dot product.

Hardware has no branches, so steps differ only in their data, and the vector instructions of a processor compute sixteen
of them at once. A word wider than 32 bits takes several variables, called limbs, the lowest first. Bits of the last
limb above the width of the word are zero.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .pipelines import in_order

__all__ = ["LANES", "OPTIMISATION", "PREPARED", "vectorised"]

#: Number of unit inputs (steps) computed together, equal to the number of vector lanes in ``drivers/vectors.h``.
LANES = 16
#: Yosys commands that reduce a flat design without registers to the cell types that :func:`vectorised` supports.
PREPARED = "opt -full\nwreduce\npmuxtree\nbmuxmap\nopt -full\nopt_clean -purge\n"
#: C++ compiler options. ``-Wno-psabi`` suppresses notes that vectors are passed differently on other processors.
OPTIMISATION = ("-O2", "-march=native", "-pthread", "-Wno-psabi")
_LIMB = 32
_HEADER = """\
// Generated: a function that computes one step in each lane of a vector.
#pragma GCC system_header
#include "vectors.h"

constexpr size_t in_limbs = {in_limbs}, out_limbs = {out_limbs};
inline void evaluate(const Steps *in, Steps *out) {{
{body}}}
"""

#: Bit of a netlist: a net number, or a constant.
Bit = int | str


def vectorised(module: Mapping[str, Any]) -> str:
    """Return the text of ``function.h`` for ``drivers/computed.h``: a C++ function from port `step` to port `result`.

    The module is from Yosys' JSON, after :data:`PREPARED`. Inputs other than `step` must have no influence; they are
    zero. Raise a `NotImplementedError` for a cell of a type that is not supported.
    """
    writer = _Writer()
    step = module["ports"]["step"]["bits"]
    writer.places |= {bit: ("in", place) for place, bit in enumerate(step)}
    writer.widths["in"] = len(step)
    for name, port in module["ports"].items():
        if port["direction"] == "input" and name != "step":
            writer.constants.update(port["bits"])
    for name in in_order(module["cells"]):
        writer.cell(module["cells"][name])
    results = writer.limbs(module["ports"]["result"]["bits"])
    writer.lines += (f"out[{place}] = {limb};" for place, limb in enumerate(results))
    return _HEADER.format(
        body="".join(f"    {line}\n" for line in writer.lines),
        in_limbs=_limbs(writer.widths["in"]),
        out_limbs=len(results),
    )


def _limbs(width: int) -> int:
    return -(-width // _LIMB)


def _mask(width: int) -> int:
    return (1 << width) - 1


class _Writer:
    """Writer of C++ lines, which records the C++ variable and the bit position of each bit of the netlist."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.places: dict[Bit, tuple[str, int]] = {}
        self.constants: set[Bit] = {"0", "x", "z"}
        self.widths: dict[str, int] = {}
        self._named: dict[str, str] = {}

    # Methods that return the operands of a netlist cell as C++ expressions.

    def limbs(self, bits: Sequence[Bit]) -> list[str]:
        """Return C++ expressions for a word of the netlist, split into limbs of 32 bits, lowest limb first."""
        return [self._limb(bits[first : first + _LIMB]) for first in range(0, len(bits), _LIMB)]

    def _limb(self, bits: Sequence[Bit]) -> str:
        """Return the C++ expression of one 32-bit limb, composed of runs of bits of other words."""
        constant = sum(1 << place for place, bit in enumerate(bits) if bit == "1")
        parts, place = [], 0
        while place < len(bits):
            bit = bits[place]
            if bit == "1" or bit in self.constants:
                place += 1
                continue
            repeated = next((n for n, other in enumerate(bits[place:]) if other != bit), len(bits) - place)
            length = repeated if repeated > 1 else self._run(bits, place)
            parts.append(self._part(bit, place, length, repeated > 1))
            place += length
        if constant or not parts:
            parts.append(f"all_of({constant:#x}u)")
        return self._name(" | ".join(parts)) if len(parts) > 1 else parts[0]

    def _run(self, bits: Sequence[Bit], place: int) -> int:
        """Return how many bits from index `place` on come from adjacent bits of a 32-bit limb of one source word."""
        word, first = self.places[bits[place]]
        length = 1
        while (
            place + length < len(bits)
            and (first + length) % _LIMB
            and self.places.get(bits[place + length]) == (word, first + length)
        ):
            length += 1
        return length

    def _part(self, bit: Bit, place: int, length: int, repeated: bool) -> str:
        """Return the C++ expression that moves a run of bits from a source limb to bit `place` of another limb."""
        word, first = self.places[bit]
        limb, first_in_limb = divmod(first, _LIMB)
        value = f"{word}[{limb}]" if word == "in" else f"{word}_{limb}"
        width = min(_LIMB, self.widths[word] - _LIMB * limb)
        if repeated:
            alone = value if width == 1 else f"({value} >> {first_in_limb} & 1u)"
            return self._name(f"-{alone} & {_mask(length) << place:#x}u")
        if first_in_limb:
            value = f"{value} >> {first_in_limb}"
        if first_in_limb + length < width and place + length < _LIMB:
            value = f"({value}) & {_mask(length):#x}u"
        if place:
            value = f"({value}) << {place}"
        return self._name(value)

    def _name(self, expression: str) -> str:
        """Return a C++ variable with the value of an expression; equal expressions share one variable."""
        if expression.isidentifier():
            return expression
        if expression not in self._named:
            self._named[expression] = name = f"t{len(self._named)}"
            self.lines.append(f"const Steps {name} = {expression};")
        return self._named[expression]

    def operand(self, cell: Any, port: str, width: int, signed: bool) -> list[str]:
        """Return the limbs of a cell's input, truncated or extended to `width` bits."""
        bits = [*cell["connections"][port]]
        bits = (bits + [bits[-1] if signed else "0"] * (width - len(bits)))[:width]
        return self.limbs(bits)

    # Methods that write C++ lines for the output of a netlist cell.

    def cell(self, cell: Any) -> None:
        """Write the C++ lines that compute the output of one cell of the netlist."""
        kind = cell["type"].removeprefix("$")
        width = len(cell["connections"]["Y"])
        signed = [
            int(cell["parameters"].get(f"{port}_SIGNED", "0"), 2) for port in ("A", "B") if port in cell["connections"]
        ]
        if kind in _BITWISE or kind in ("add", "sub", "mul", "neg"):
            operands = [self.operand(cell, port, width, all(signed)) for port in ("A", "B")[: len(signed)]]
            if kind in _BITWISE:
                limbs = [_BITWISE[kind](*limbs) for limbs in zip(*operands, strict=True)]
            elif kind == "mul":
                if width > _LIMB:
                    raise NotImplementedError(f"a multiplier must have at most {_LIMB} bits, not {width}")
                limbs = [f"{operands[0][0]} * {operands[1][0]}"]
            else:
                zero = [["Steps{}"] * _limbs(width)] if kind == "neg" else []
                limbs = self._sum(*zero, *operands, subtract=kind != "add")
        elif kind in _COMPARISONS:
            limbs = [f"bit({self._compared(cell, kind, all(signed))})"]
        elif kind in _REDUCTIONS:
            limbs = [self._reduced(cell, kind)]
        elif kind == "mux":
            where = self._name(f"-{self.limbs(cell['connections']['S'])[0]}")
            one, other = (self.operand(cell, port, width, False) for port in ("A", "B"))
            limbs = [f"chosen({a}, {b}, {where})" for a, b in zip(one, other, strict=True)]
        elif kind in ("shl", "shr"):
            limbs = self._shifted(cell, kind == "shl", width, bool(signed[0]))
        else:
            raise NotImplementedError(f"a cell of type {cell['type']} is not supported")
        self._define(cell["connections"]["Y"], limbs, normal=kind in _NORMAL)

    def _define(self, bits: Sequence[Bit], limbs: Sequence[str], normal: bool) -> None:
        word = f"w{len(self.widths)}"
        self.widths[word] = width = len(bits)
        for place, bit in enumerate(bits):
            self.places[bit] = (word, place)
        for limb in range(_limbs(width)):
            expression = limbs[limb] if limb < len(limbs) else "Steps{}"
            of_limb = min(_LIMB, width - _LIMB * limb)
            if not normal and of_limb < _LIMB:
                expression = f"({expression}) & {_mask(of_limb):#x}u"
            self.lines.append(f"const Steps {word}_{limb} = {expression};")

    def _sum(self, one: Sequence[str], other: Sequence[str], *, subtract: bool) -> list[str]:
        """Return the limbs of a sum or a difference of two words; carries and borrows are masks of all ones or zero."""
        limbs, carry = [], None
        for number, (a, b) in enumerate(zip(one, other, strict=True)):
            before = "" if carry is None else f" {'+' if subtract else '-'} {carry}"
            total = f"{a} {'-' if subtract else '+'} {b}{before}"
            if number + 1 < len(one):
                total = self._name(total)
                # Without an incoming carry or borrow, a sum carries out if total < a, and a difference borrows if a <
                # b. With an incoming carry or borrow, total == a or a == b also causes an outgoing one.
                against = f"{a} < {b}" if subtract else f"{total} < {a}"
                if carry is not None:
                    equal = f"{a} == {b}" if subtract else f"{total} == {a}"
                    against = f"({against}) | (Truth)((Steps)({equal}) & {carry})"
                carry = self._name(f"(Steps)({against})")
            limbs.append(total)
        return limbs

    def _compared(self, cell: Any, kind: str, signed: bool) -> str:
        """Return the comparison of two words as a mask of all ones or zero, computed from the lowest limb upwards."""
        width = max(len(cell["connections"][port]) for port in ("A", "B"))
        one, other = (self.operand(cell, port, width, signed) for port in ("A", "B"))
        if kind in ("eq", "ne"):
            pairs = [f"({a} {_COMPARISONS[kind]} {b})" for a, b in zip(one, other, strict=True)]
            return (" & " if kind == "eq" else " | ").join(pairs)
        if signed:
            # Inverted sign bits make signed numbers compare like unsigned numbers.
            sign = 1 << (width - 1) % _LIMB
            one, other = ([*limbs[:-1], self._name(f"{limbs[-1]} ^ {sign:#x}u")] for limbs in (one, other))
        less = _COMPARISONS[kind]
        result = f"{one[0]} {less} {other[0]}"
        for a, b in zip(one[1:], other[1:], strict=True):
            result = f"({a} {less[0]} {b}) | (({a} == {b}) & ({result}))"
        return result

    def _reduced(self, cell: Any, kind: str) -> str:
        def any_of(port: str) -> str:
            return f"(({' | '.join(self.limbs(cell['connections'][port]))}) != 0u)"

        if kind in ("logic_and", "logic_or"):
            return f"bit({any_of('A')} {'&' if kind == 'logic_and' else '|'} {any_of('B')})"
        if kind == "logic_not":
            return f"bit(~{any_of('A')})"
        bits = cell["connections"]["A"]
        if kind == "reduce_xor":
            value = self._name(" ^ ".join(self.limbs(bits)))
            for shift in (16, 8, 4, 2, 1):
                value = self._name(f"{value} ^ {value} >> {shift}")
            return f"{value} & 1u"
        if kind == "reduce_and":
            ones = self.limbs("1" * len(bits))
            return f"bit({' & '.join(f'({limb} == {one})' for limb, one in zip(self.limbs(bits), ones, strict=True))})"
        return f"bit({any_of('A')})"

    def _shifted(self, cell: Any, left: bool, width: int, signed: bool) -> list[str]:
        """Return the limbs of a word after a variable shift: first by whole limbs, then by less than one limb."""
        amount = cell["connections"]["B"]
        inner = max(width, len(cell["connections"]["A"]))
        limbs = self.operand(cell, "A", inner, signed)
        if left:
            limbs.reverse()
        step, bits = 1, amount[5:]
        while bits and step < len(limbs):
            where = self._name(f"-{self.limbs(bits[:1])[0]}")
            further = [*limbs[step:], *["Steps{}"] * step]
            limbs = [self._name(f"chosen({a}, {b}, {where})") for a, b in zip(limbs, further, strict=True)]
            step, bits = 2 * step, bits[1:]
        inside = self.limbs(amount[:5])[0]
        towards, away = ("<<", ">>") if left else (">>", "<<")
        shifted = []
        for limb, following in zip(limbs, [*limbs[1:], None], strict=True):
            value = f"{limb} {towards} {inside}"
            if following is not None:
                value = f"({value}) | ({following} {away} 1) {away} (31u - {inside})"
            shifted.append(value)
        if bits:  # if an upper bit of the shift amount is one, every bit is shifted out, and the result is zero
            within = f"(Steps)(({' | '.join(self.limbs(bits))}) == 0u)"
            shifted = [f"({value}) & {within}" for value in shifted]
        if left:
            shifted.reverse()
        return shifted


_BITWISE: dict[str, Callable[..., str]] = {
    "and": lambda a, b: f"{a} & {b}",
    "or": lambda a, b: f"{a} | {b}",
    "xor": lambda a, b: f"{a} ^ {b}",
    "xnor": lambda a, b: f"~({a} ^ {b})",
    "not": lambda a: f"~{a}",
    "pos": lambda a: a,
}
_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_REDUCTIONS = ("reduce_or", "reduce_bool", "reduce_and", "reduce_xor", "logic_not", "logic_and", "logic_or")
#: Types of cells whose results need no mask, since all bits above the width of the result are already zero.
_NORMAL = ("and", "or", "xor", "pos", "mux", *_COMPARISONS, *_REDUCTIONS)
