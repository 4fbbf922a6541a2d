"""What the C++ library knows of instructions, written as a header from the records of `isa`: no row stands twice.

``python -m sptc.native.tables`` writes the header anew; a test compares it with what lies there.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import InstructionError
from ..isa.architectures import TARGETS, Target
from ..isa.formats import FORMATS, Format
from ..isa.fragments import Fragment, a_fragment, accumulator_fragment, b_fragment, metadata_map, scale_map
from ..isa.instructions import ARCHITECTURES, Instruction, every_instruction, parse
from ..isa.memory import GENERATIONS, SWIZZLES, UNIT_BYTES, Swizzle
from ..isa.metadata import MUX_OF_ARCHITECTURE, RULES, reachable
from ..isa.numerics import BLOCK_GROUP, numerics
from ..isa.tcgen05 import every_opcode, instructions_of
from . import tensor_tables
from .initializers import Table, array, braces, linear_map, padded

__all__ = ["HEADER", "Form", "forms", "header"]

#: Where the header lies.
HEADER = Path(__file__).parent / "src" / "tables.h"
#: Bits of the largest coordinates: rows of A and D, columns of D and rows of B.
_ROW_BITS, _COLUMN_BITS = 8, 8

_PREAMBLE = """\
// Instructions, formats, numerics and places of operands: written from the records of isa/ by
// `python -m sptc.native.tables`, and not to be edited.
#ifndef SPTC_TABLES_H
#define SPTC_TABLES_H

#include "records.h"

namespace sptc {
"""
_END = """
}  // namespace sptc

#endif
"""


@dataclass(frozen=True)
class Form:
    """Instructions that differ in M and N alone: one row of the table."""

    instruction: Instruction  #: First instruction of the form
    #: M and N of all its instructions, ascending.
    rows: tuple[int, ...]
    columns: tuple[int, ...]


def _every_instruction() -> Iterator[Instruction]:
    yield from every_instruction()
    for opcode in every_opcode():
        yield from instructions_of(opcode)


def forms() -> list[Form]:
    """Return every form: of ``mma``, whose shapes have places of their own, each shape is one."""
    found: dict[Instruction, tuple[Instruction, set[int], set[int]]] = {}
    for i in _every_instruction():
        key = i if i.family == "mma" else replace(i, m=0, n=0)
        _, rows, columns = found.setdefault(key, (i, set(), set()))
        rows.add(i.m)
        columns.add(i.n)
    return [Form(i, tuple(sorted(rows)), tuple(sorted(columns))) for i, rows, columns in found.values()]


def _says_scale_size(instruction: Instruction) -> bool:
    """Tell whether the number of block scales must be written, because the kind has several."""
    i = instruction
    if i.family == "tcgen05":
        return bool(i.scale_size) and all(o.scale_word for o in every_opcode() if o.kind == i.kind)
    try:
        return i.scale_size is not None and parse(str(i).replace(f".scale_vec::{i.scale_size}X", "")) != i
    except InstructionError:
        return True


def _places(threads: NDArray[np.intp], elements: NDArray[np.intp]) -> str:
    """Return a row of the table of places: what the bits of a row and of a column add to thread and element."""
    parts: list[int | str] = []
    for values in (threads, elements):
        assert values[0, 0] == 0
        of_row, of_column = linear_map(values)
        parts += [braces(padded(of_row, _ROW_BITS)), braces(padded(of_column, _COLUMN_BITS))]
    return braces(parts)


def _of_fragment(fragment: Fragment) -> str:
    per_thread = fragment.rows[0].size
    positions = fragment.positions
    return _places(positions // per_thread, positions % per_thread)


def _unit(instruction: Instruction, fmt: Format) -> int:
    """Return how many elements a unit of shared memory has."""
    return instruction.padded_unit(fmt) or 8 * UNIT_BYTES // fmt.container_bits


def _format_row(fmt: Format) -> str:
    return braces([
        f'"{fmt.name}"', int(fmt.signed), fmt.exponent_bits, fmt.fraction_bits, fmt.bias,
        f"Specials::{fmt.specials.name}_TOP", int(fmt.subnormals), fmt.ignored_low_bits, fmt.bits,
    ])  # fmt: skip


class _Header:
    def __init__(self) -> None:
        self.numerics = Table("Numerics", "NUMERICS")
        self.places = Table("Places", "PLACES")
        self.columns = Table("uint32_t", "MULTIPLES")
        self.formats = {name: number for number, name in enumerate(FORMATS)}

    def _numerics_of(self, i: Instruction, arch: str) -> int:
        if arch not in i.architectures:
            return -1
        p = numerics(i, arch)
        method, rounding = f"Method::{p.method.name}", f"Rounding::{p.rounding.name}"
        return self.numerics.number(braces([method, p.step, p.alignment_bits, p.zero_exponent, rounding]))

    def _places_of(self, i: Instruction) -> list[int]:
        """Return places of A, B, D, metadata, and scales of A and B; -1 for what is not in registers."""
        if i.family == "tcgen05":
            return [-1] * 6
        # A fragment of the widest N: what it says of a column does not depend on N.
        found = [_of_fragment(a_fragment(i)), _of_fragment(b_fragment(i)) if i.family == "mma" else ""]
        found.append(_of_fragment(accumulator_fragment(i)))
        if i.sparse:
            where = metadata_map(i, 0)
            found.append(_places(where.lanes, where.low_bits))
        else:
            found.append("")
        for operand in "ab":
            if i.scale_size:
                scales = scale_map(i, operand, 0, 0)
                found.append(_places(scales.lanes, scales.bytes))
            else:
                found.append("")
        return [self.places.number(row) if row else -1 for row in found]

    def multiples(self, values: Sequence[int]) -> int:
        """Return the number of a set of multiples of 8, as the bits of a mask."""
        assert all(value % 8 == 0 and value <= 256 for value in values)
        return self.columns.number(f"0x{sum(1 << value // 8 - 1 for value in values):08x}")

    def form(self, form: Form) -> str:
        i = form.instruction
        widest = replace(i, m=form.rows[-1], n=form.columns[-1])
        granularity = i.granularity
        selectors = i.sparsity_selectors
        lanes_a_selector = (
            int((metadata_map(widest, 1).lanes - metadata_map(widest, 0).lanes)[0, 0])
            if (selectors > 1 and i.family != "tcgen05")
            else 0
        )
        lanes_a_thread_id = [
            int((scale_map(widest, operand, 0, 1).lanes - scale_map(widest, operand, 0, 0).lanes)[0, 0])
            if i.scale_size and i.family == "mma"
            else 0
            for operand in "ab"
        ]
        sparse = {"": "DENSE", "sp": "SPARSE", "sp::ordered_metadata": "ORDERED"}[i.sparse]
        return braces([
            f"Family::{i.family.upper()}", f"Sparsity::{sparse}", self.multiples(form.rows),
            self.multiples(form.columns), i.k, *(self.formats[fmt.name] for fmt in (i.a, i.b, i.c, i.d)),
            f'"{i.kind}"', int(i.satfinite), i.scale_size or 0, int(_says_scale_size(i)),
            self.formats[i.scale_format.name] if i.scale_format else -1, i.span or 0, i.container_bits,
            i.low_bit(i.a), i.low_bit(i.b), _unit(i, i.a), _unit(i, i.b),
            i.stored_k, i.chunks, granularity.stored if granularity else 0,
            [*RULES].index(i.rule.name) if i.rule else -1, selectors, lanes_a_selector,
            *lanes_a_thread_id, i.threads,
            braces(self._places_of(widest)), braces(self._numerics_of(i, arch) for arch in ARCHITECTURES),
        ])  # fmt: skip


def _architecture_row(target: Target, mux: int) -> str:
    assert len(target.lacks) <= 1
    return braces([f'"{target.name}"', [*ARCHITECTURES].index(target.arch), mux, f'"{"".join(target.lacks)}"'])


def _rule_row(name: str) -> str:
    rule = RULES[name]
    muxes = dict.fromkeys(MUX_OF_ARCHITECTURE.values())
    missing = [
        braces(sum(1 << slot for slot in range(2) if not reachable(nibble, name, mux)[slot]) for nibble in range(16))
        for mux in muxes
    ]
    legal = sum(1 << nibble for nibble in rule.legal)
    return braces([f'"{name}"', f"0x{legal:04x}", braces(missing), f'"{rule.meaning}"'])


def _swizzle_row(swizzle: Swizzle) -> str:
    return braces([f'"{swizzle.name}"', swizzle.row_bytes, swizzle.atom_bytes, swizzle.pattern_rows])


def _generation_row(family: str) -> str:
    generation, names = GENERATIONS[family], [*SWIZZLES]
    codes = [generation.swizzles.get(code) for code in range(8)]
    numbers = braces(-1 if name is None else names.index(name) for name in codes)
    fixed = (generation.fixed_bit, generation.fixed_bits, generation.fixed_value)
    return braces([generation.swizzle_bit, numbers, *fixed])


def header() -> str:
    """Return the text of the header."""
    tables = _Header()
    rows = [tables.form(form) for form in forms()]
    tensor = tensor_tables.tables(tables.formats, tables.multiples)
    muxes = [*dict.fromkeys(MUX_OF_ARCHITECTURE.values())]
    architectures = [
        _architecture_row(target, muxes.index(MUX_OF_ARCHITECTURE[target.arch])) for target in TARGETS.values()
    ]
    parts = [
        _PREAMBLE,
        f"\nconstexpr int BLOCK_GROUP = {BLOCK_GROUP};\n",
        array("Format", "FORMATS", [_format_row(fmt) for fmt in FORMATS.values()]),
        array("Architecture", "ARCHITECTURES", architectures),
        array("Rule", "RULES", [_rule_row(name) for name in RULES]),
        array("Swizzle", "SWIZZLES", [_swizzle_row(swizzle) for swizzle in SWIZZLES.values()]),
        array("Generation", "GENERATIONS", [_generation_row(family) for family in ("wgmma", "tcgen05")]),
        str(tables.numerics),
        str(tables.places),
        str(tables.columns),
        array("Form", "FORMS", rows),
        tensor,
        _END,
    ]
    return "".join(parts)


if __name__ == "__main__":
    HEADER.write_text(header(), encoding="utf-8")
