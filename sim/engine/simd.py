"""A netlist without registers as C++ in which every variable holds a bit vector of each of several steps.

What one step does differs from another's in data alone, since hardware has no branches: so a processor's vector
instructions compute sixteen at once. Words wider than 32 bits are several variables, called limbs, lowest first; above
its width a word is zero.
"""

from collections.abc import Callable, Mapping, Sequence
from graphlib import TopologicalSorter
from typing import Any

__all__ = ["LANES", "OPTIMISATION", "PREPARED", "vectorised"]

#: Steps that are computed at once, as in ``drivers/vectors.h``.
LANES = 16
#: What Yosys is told before the netlist of a flat design without registers is asked for.
PREPARED = "opt -full\nwreduce\npmuxtree\nbmuxmap\nopt -full\nopt_clean -purge\n"
#: Of the C++ compiler. It need not say that vectors would be handed over otherwise by a processor with wider ones.
OPTIMISATION = ("-O2", "-march=native", "-pthread", "-Wno-psabi")
_LIMB = 32
_HEADER = """\
// Generated: a function of as many steps as a vector has lanes.
#pragma GCC system_header
#include "vectors.h"

constexpr size_t in_limbs = {in_limbs}, out_limbs = {out_limbs};
inline void evaluate(const Steps *in, Steps *out) {{
{body}}}
"""

#: A bit of a netlist: the number of what drives it, or a constant.
Bit = int | str


def vectorised(module: Mapping[str, Any], given: str, result: str) -> str:
    """Return ``function.h`` of ``drivers/computed.h``: an output as a function of an input.

    Parameters
    ----------
    module : mapping
        Of Yosys' JSON, after :data:`PREPARED`.
    given, result : str
        The input and the output. Other inputs are of no influence and zero.

    Raises
    ------
    NotImplementedError
        There is a cell of another kind.
    """
    writer = _Writer()
    for place, bit in enumerate(module["ports"][given]["bits"]):
        writer.places[bit] = ("in", place)
    writer.widths["in"] = len(module["ports"][given]["bits"])
    for other, port in module["ports"].items():
        if port["direction"] == "input" and other != given:
            writer.constants.update(port["bits"])
    for cell in _in_order(module["cells"]):
        writer.cell(cell)
    results = writer.limbs(module["ports"][result]["bits"])
    writer.lines += (f"out[{place}] = {limb};" for place, limb in enumerate(results))
    return _HEADER.format(
        body="".join(f"    {line}\n" for line in writer.lines),
        in_limbs=_limbs(writer.widths["in"]),
        out_limbs=len(results),
    )


def _in_order(cells: Mapping[str, Any]) -> list[Any]:
    """Return the cells, each behind all that it reads."""
    drivers = {bit: name for name, cell in cells.items() for bit in cell["connections"]["Y"]}
    graph = {
        name: {
            drivers[bit] for port, bits in cell["connections"].items() if port != "Y" for bit in bits if bit in drivers
        }
        for name, cell in cells.items()
    }
    return [cells[name] for name in TopologicalSorter(graph).static_order()]


def _limbs(width: int) -> int:
    return -(-width // _LIMB)


def _mask(width: int) -> int:
    return (1 << width) - 1


class _Writer:
    """What has been written, and where every bit is."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.places: dict[Bit, tuple[str, int]] = {}
        self.constants: set[Bit] = {"0", "x", "z"}
        self.widths: dict[str, int] = {}
        self._named: dict[str, str] = {}

    # Operands.

    def limbs(self, bits: Sequence[Bit]) -> list[str]:
        """Return the limbs of a word."""
        return [self._limb(bits[first : first + _LIMB]) for first in range(0, len(bits), _LIMB)]

    def _limb(self, bits: Sequence[Bit]) -> str:
        """Return a limb: runs of bits of other words, each in its place."""
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
        """Return how many bits from a place on lie beside each other in a limb, too."""
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
        """Return bits of a limb moved to a place of another."""
        word, first = self.places[bit]
        limb, first_in_limb = divmod(first, _LIMB)
        value = self._limb_of(word, limb)
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

    @staticmethod
    def _limb_of(word: str, limb: int) -> str:
        return f"{word}[{limb}]" if word == "in" else f"{word}_{limb}"

    def _name(self, expression: str) -> str:
        """Return a variable for an expression: the same for the same."""
        if expression.isidentifier():
            return expression
        if expression not in self._named:
            self._named[expression] = name = f"t{len(self._named)}"
            self.lines.append(f"const Steps {name} = {expression};")
        return self._named[expression]

    def operand(self, cell: Any, port: str, width: int, signed: bool) -> list[str]:
        """Return the limbs of an operand, cut or extended to a width."""
        bits = [*cell["connections"][port]]
        bits = (bits + [bits[-1] if signed else "0"] * (width - len(bits)))[:width]
        return self.limbs(bits)

    # Cells.

    def cell(self, cell: Any) -> None:
        """Write a cell."""
        kind = cell["type"].removeprefix("$")
        width = len(cell["connections"]["Y"])
        signed = [_parameter(cell, f"{port}_SIGNED") for port in ("A", "B") if port in cell["connections"]]
        if kind in _BITWISE or kind in _SUMS or kind in ("mul", "neg"):
            operands = [self.operand(cell, port, width, all(signed)) for port in ("A", "B")[: len(signed)]]
            if kind in _BITWISE:
                limbs = [_BITWISE[kind](*limbs) for limbs in zip(*operands, strict=True)]
            elif kind == "mul":
                if width > _LIMB:
                    raise NotImplementedError(f"a product of {width} bits")
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
            limbs = self._shifted(cell, kind == "shl", width, signed[0])
        else:
            raise NotImplementedError(f"a cell of type {cell['type']}")
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
        """Return a sum or a difference; a carry is all ones."""
        limbs, carry = [], None
        for number, (a, b) in enumerate(zip(one, other, strict=True)):
            before = "" if carry is None else f" {'+' if subtract else '-'} {carry}"
            total = f"{a} {'-' if subtract else '+'} {b}{before}"
            if number + 1 < len(one):
                total = self._name(total)
                # With a carry in, equality with an operand is one, too.
                against = f"{a} < {b}" if subtract else f"{total} < {a}"
                if carry is not None:
                    equal = f"{a} == {b}" if subtract else f"{total} == {a}"
                    against = f"({against}) | (Truth)((Steps)({equal}) & {carry})"
                carry = self._name(f"(Steps)({against})")
            limbs.append(total)
        return limbs

    def _compared(self, cell: Any, kind: str, signed: bool) -> str:
        """Return a comparison, as all ones or zero: limb by limb, from the lowest."""
        width = max(len(cell["connections"][port]) for port in ("A", "B"))
        one, other = (self.operand(cell, port, width, signed) for port in ("A", "B"))
        if kind in ("eq", "ne"):
            pairs = [f"({a} {'==' if kind == 'eq' else '!='} {b})" for a, b in zip(one, other, strict=True)]
            return (" & " if kind == "eq" else " | ").join(pairs)
        if signed:
            # Signs exchanged, the order is that of numbers without.
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
        """Return a shift by a variable amount: by limbs, a bit of the amount at a time, then within them."""
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
        if bits:  # beyond everything
            within = f"(Steps)(({' | '.join(self.limbs(bits))}) == 0u)"
            shifted = [f"({value}) & {within}" for value in shifted]
        if left:
            shifted.reverse()
        return shifted


def _parameter(cell: Any, name: str) -> bool:
    return bool(int(cell["parameters"].get(name, "0"), 2))


_BITWISE: dict[str, Callable[..., str]] = {
    "and": lambda a, b: f"{a} & {b}",
    "or": lambda a, b: f"{a} | {b}",
    "xor": lambda a, b: f"{a} ^ {b}",
    "xnor": lambda a, b: f"~({a} ^ {b})",
    "not": lambda a: f"~{a}",
    "pos": lambda a: a,
}
_SUMS = ("add", "sub")
_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_REDUCTIONS = ("reduce_or", "reduce_bool", "reduce_and", "reduce_xor", "logic_not", "logic_and", "logic_or")
#: Whose results are zero above their width by themselves.
_NORMAL = ("and", "or", "xor", "pos", "mux", *_COMPARISONS, *_REDUCTIONS)
