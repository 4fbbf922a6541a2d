"""Layout of an instruction as text: grids of lanes and registers, formulas, numerics."""

import re
import textwrap
from collections.abc import Sequence
from typing import Any

from ..isa.architectures import same_numerics
from ..isa.evidence import evidence
from ..isa.fragments import WARP_LANES
from ..isa.instructions import Instruction
from ..isa.names import Subject
from ..isa.numerics import Method, numerics
from ..isa.placement import Memory, OperandPlacement, Placements
from ..rtl.config import PRESET_OF_ARCHITECTURE, PRESETS
from .layout_choice import Choice, by_word

__all__ = ["layout_as_text", "name_of", "numerics_as_dict", "span"]

_WIDTH = 118
_QUAD = 4
#: Maximum number of registers that are printed in full; a formula describes all other registers.
_LISTED = 4
_METHODS = {
    Method.FUSED: "L products and the accumulator are truncated F bits below the largest exponent, summed exactly and "
    "rounded once",
    Method.GROUPED: "groups of 16 products are summed exactly and scaled, then aligned, summed and rounded once",
    Method.EMULATED: "even pairs of slots, as f16, are summed from zero, then odd pairs; an IEEE addition adds C",
    Method.INTEGER: "products and accumulator are summed exactly, and the sum is clamped or wrapped once",
}


def name_of(place: OperandPlacement) -> str:
    """Return the name of an operand for a heading."""
    if place.operand in ("c", "d"):
        return "C and D"
    if place.operand == "a":
        return "A, stored" if place.indices[1] == "stored" else "A"
    return {"b": "B", "scale_a": "scales of A", "scale_b": "scales of B"}.get(place.operand, place.operand)


def span(first: int, last: int, high_first: bool = False) -> str:
    """Format a range of integers as ``3`` or ``0:3``; ranges of bits have the highest bit first."""
    if first == last:
        return str(first)
    return f"{last}:{first}" if high_first else f"{first}:{last}"


def numerics_as_dict(subject: Subject, arch: str) -> dict[str, object]:
    """Return as JSON data the numerics of an instruction on an architecture that has the instruction."""
    i, same = subject.instruction, same_numerics(arch)
    parameters = numerics(i, same)
    holds = PRESETS[PRESET_OF_ARCHITECTURE[same]].holds(i)
    integer = parameters.method is Method.INTEGER
    return {
        "arch": arch,
        "method": parameters.method.value,
        "native": holds and parameters.method is not Method.EMULATED,
        "products_per_addition": parameters.step,
        "additions": -(-i.stored_k // parameters.step),
        "alignment_bits": None if integer else parameters.alignment_bits,
        "zero_exponent": None if integer else parameters.zero_exponent,
        "rounding": parameters.rounding.value,
        "evidence": evidence(i, arch, opcode=subject.opcode).value,
        "source": parameters.source,
    }


def layout_as_text(
    subject: Subject, found: Placements, selector: int, numbers: dict[str, object], choice: Choice
) -> str:
    """Return the layout of the elements in `choice` as text; `numbers` is a result of :func:`numerics_as_dict`."""
    i = subject.instruction
    lines = [subject.name, *_heading(i, selector)]
    if any(place.memory is Memory.REGISTERS for place in found.operands):
        warps = " of the warps w = 0 to 3" if i.threads > WARP_LANES else ""
        lines += ["", f"T is a lane{warps}, g = lane >> 2, t = lane & 3, R or r a register, j an element of it"]
    for place in found.operands:
        lines += ["", *_operand(place, i, selector, choice)]
    for operand, reason in found.unknown.items():
        lines += ["", *_wrapped(f"{operand}: {reason}", "")]
    return "\n".join([*lines, "", *_numerics(i, numbers)])


def _wrapped(text: str, indent: str = "  ") -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  ", break_long_words=False)


def _heading(i: Instruction, selector: int) -> list[str]:
    stored = f", {i.m} x {i.stored_k} stored" if i.sparse else ""
    lines = [
        f"A {i.m} x {i.k} of {i.a.name}{stored}; B {i.k} x {i.n} of {i.b.name}; C and D {i.m} x {i.n} of {i.d.name}",
        f"on {', '.join(i.architectures)}",
    ]
    if i.granularity and i.rule:
        size, rule = i.granularity, i.rule
        legal = " ".join(f"{value:#06b}" for value in sorted(rule.legal))
        lines += [
            f"A is {size.name} sparse: a chunk has {size.logical} k, of which {size.stored} "
            f"{'are' if size.stored > 1 else 'is'} stored; one metadata nibble per chunk, {i.chunks} chunks per row",
            f"stored column s is slot s % {size.stored} of chunk s//{size.stored}, whose k are "
            f"{size.logical}*(s//{size.stored}) + 0 to {size.logical - 1}"
            if size.stored > 1
            else f"stored column s is chunk s, whose k are {size.logical}*s + 0 to {size.logical - 1}",
            *_wrapped(f"rule {rule.name} ({rule.source}), defined nibbles: {legal}", ""),
            f"valid selectors f: {' '.join(map(str, range(i.sparsity_selectors)))}; shown is f = {selector}",
        ]
    if i.scale_size and i.scale_format:
        lines.append(f"{i.scale_size} block scales of {i.scale_format.name} per row of A and per column of B")
    return lines


def _operand(place: OperandPlacement, i: Instruction, selector: int, choice: Choice) -> list[str]:
    shape = " x ".join(map(str, place.shape))
    where = "tensor memory of a CTA" if place.memory is Memory.TENSOR else place.memory.value
    lines = [f"{name_of(place)}: {shape}, {place.bits} bits each, in {where}"]
    if (place.value_low_bit, place.value_bits) != (0, place.bits):
        high = place.value_low_bit + place.value_bits - 1
        lines[0] += f" (the value is in bits {high}:{place.value_low_bit}; all other bits are ignored)"
    for name, formula in place.formulas.items():
        selector_text = f", f = {selector}" if re.search(r"\bf\b", formula) else ""
        lines.append(f"  {name} = {formula}{selector_text}")
    for note in place.notes:
        lines += _wrapped(note)
    if not choice.everything:
        return [
            *lines,
            f"  {','.join(place.indices)}:",
            *(line for text in choice.lines(place) for line in _wrapped(text)),
        ]
    if place.memory is not Memory.REGISTERS:
        return lines + _corners(place)
    return lines + (_one_register(place) if set(place.formulas) & {"lane"} else _by_register(place))


def _corners(place: OperandPlacement) -> list[str]:
    """Format the positions of the first and the last elements of the matrix."""
    last = place.shape[0] - 1, place.shape[1] - 1
    spots = dict.fromkeys([(0, 0), (0, min(1, last[1])), (min(1, last[0]), 0), (min(8, last[0]), 0), last])
    cells = []
    for at in spots:
        low = int(place.low_bits[at])
        lane = f"lane {place.lanes[at]} " if place.memory is Memory.TENSOR else ""
        bits = f" bits {span(low, low + place.bits - 1, high_first=True)}"
        if place.memory is Memory.SHARED and place.bits % 8 == 0:
            bits = ""
        cells.append(f"{at[0]},{at[1]} = {lane}{place.memory.word} {place.words[at]}{bits}")
    return [f"  {','.join(place.indices)}:", *(f"  {line}" for line in _grid(cells, 3))]


def _by_register(place: OperandPlacement) -> list[str]:
    """Format the elements that each lane holds as blocks of text side by side, one block per register."""
    words = by_word(place, place.lanes < WARP_LANES)
    registers = sorted({register for _, register in words})
    per_register = len(words[0, 0])
    bits = ", ".join(
        f"j = {j} in bits {span(place.bits * j, place.bits * (j + 1) - 1, high_first=True)}"
        for j in (range(per_register) if per_register <= _QUAD else (0, 1, per_register - 1))
    )
    lines = [f"  {per_register} in a register: {bits}" if per_register > 1 else "  1 in a register"]
    if place.lanes.max() >= WARP_LANES:
        more = f", the first {_LISTED} of {len(registers)} registers" if len(registers) > _LISTED else ""
        lines.append(f"  of warp 0{more}:")
    blocks = []
    for register in registers[:_LISTED]:
        cells = []
        for lane in range(WARP_LANES):
            entries = words[lane, register]
            ends = [span(entries[0][axis], entries[-1][axis]) for axis in (1, 2)]
            cells.append(f"T{lane:<2} {','.join(ends)}")
        blocks.append([f"R{register}: {','.join(place.indices)}", *_grid(cells)])
    return lines + _side_by_side(blocks)


def _one_register(place: OperandPlacement) -> list[str]:
    """Format metadata or block scales: for each lane, bit ranges, each with its row and its range along K."""
    words = by_word(place, place.lanes < WARP_LANES)
    cells = []
    for lane in sorted({lane for lane, _ in words}):
        parts: dict[int, list[tuple[int, int]]] = {}
        for low_bit, row, column in words[lane, 0]:
            parts.setdefault(row, []).append((low_bit, column))
        texts = [
            f"{span(entries[0][0], entries[-1][0] + place.bits - 1, high_first=True)} = "
            f"{row},{span(entries[0][1], entries[-1][1])}"
            for row, entries in parts.items()
        ]
        cells.append(f"T{lane:<2} {'  '.join(texts)}")
    which = " of warp 0" if place.lanes.max() >= WARP_LANES else ""
    heading = f"  lanes{which}, bits = {','.join(place.indices)}:"
    columns = max(1, len({lane % _QUAD for lane, _ in words}))
    return [heading, *(f"  {line}" for line in _grid(cells, columns))]


def _grid(cells: Sequence[str], columns: int = _QUAD) -> list[str]:
    width = max(map(len, cells))
    return [
        "  ".join(cell.ljust(width) for cell in cells[start : start + columns]).rstrip()
        for start in range(0, len(cells), columns)
    ]


def _side_by_side(blocks: Sequence[Sequence[str]]) -> list[str]:
    """Place blocks of text of equal height side by side, as many as fit in a line."""
    width = max(len(line) for block in blocks for line in block)
    fit = max(1, (_WIDTH + 3) // (width + 5))
    return [
        "  " + "  |  ".join(part.ljust(width) for part in parts).rstrip()
        for start in range(0, len(blocks), fit)
        for parts in zip(*blocks[start : start + fit], strict=True)
    ]


def _numerics(i: Instruction, numbers: dict[str, Any]) -> list[str]:
    arch = numbers["arch"]
    how = "native" if numbers["native"] else "emulated"
    words = dict.fromkeys((how, numbers["method"], numbers["evidence"]))
    same = same_numerics(arch)
    lines = [f"Numerics on {arch}{f', those of {same}' if same != arch else ''}: {', '.join(words)}"]
    text = _METHODS[Method(numbers["method"])]
    if not numbers["native"] and numbers["method"] == Method.INTEGER.value:
        text = f"emulated by two 8-bit instructions, for even and for odd elements; {text}"
    lines += _wrapped(text)
    step = numbers["products_per_addition"]
    values = [f"L = {step} products per addition ({numbers['additions']} x {min(step, i.stored_k)} for K = {i.k})"]
    if numbers["alignment_bits"] is not None:
        values += [f"F = {numbers['alignment_bits']}", f"e_zero = {numbers['zero_exponent']}"]
    lines.append(f"  {', '.join(values)}, rounding {numbers['rounding']}")
    lines += _wrapped(f"source: {numbers['source']}")
    others = [f"{other} {evidence(i, other).value}" for other in i.architectures if other != same]
    if others:
        lines.append(f"  others (--arch): {', '.join(others)}")
    return lines
