"""What the C++ library knows of instructions, written as a header from the records of `isa`: no row stands twice.

``python -m sptc.native.tables`` writes the header anew; a test compares it with what lies there.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import InstructionError
from ..isa.formats import FORMATS, Format
from ..isa.fragments import Fragment, a_fragment, accumulator_fragment, b_fragment, metadata_map, scale_map
from ..isa.instructions import ARCHITECTURES, Instruction, every_instruction, parse
from ..isa.memory import GENERATIONS, SWIZZLES, Swizzle
from ..isa.metadata import MUX_OF_ARCHITECTURE, RULES, reachable
from ..isa.numerics import BLOCK_GROUP, numerics
from ..isa.tcgen05 import every_opcode, instructions_of

__all__ = ["HEADER", "Form", "forms", "header", "linear_map"]

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
    """Instructions that differ in M and N alone: what one row of the table says.

    Attributes
    ----------
    instruction : Instruction
        The first of them.
    rows, columns : tuple of int
        Their M and N, ascending.
    """

    instruction: Instruction
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


def linear_map(values: NDArray[np.intp]) -> tuple[list[int], list[int]]:
    """Return what each bit of the row and of the column adds to a value.

    Parameters
    ----------
    values : ndarray of intp, shape (rows, columns)
        An index map.

    Raises
    ------
    AssertionError
        The map is no sum over the bits of its coordinates.
    """
    rows, columns = values.shape
    of_row = [int(values[1 << bit, 0]) for bit in range((rows - 1).bit_length())]
    of_column = [int(values[0, 1 << bit]) for bit in range((columns - 1).bit_length())]
    added = (
        [sum(stride for bit, stride in enumerate(of_row) if row >> bit & 1) for row in range(rows)],
        [sum(stride for bit, stride in enumerate(of_column) if column >> bit & 1) for column in range(columns)],
    )
    assert (np.add.outer(*added) + values[0, 0] == values).all(), "no sum over the bits of the coordinates"
    return of_row, of_column


class _Table:
    """Rows that others refer to by number; equal ones stand once."""

    def __init__(self, kind: str, name: str) -> None:
        self._kind, self._name = kind, name
        self._rows: dict[str, int] = {}

    def number(self, row: str) -> int:
        return self._rows.setdefault(row, len(self._rows))

    def __str__(self) -> str:
        rows = "".join(f"    {row},\n" for row in self._rows)
        return f"\nconstexpr {self._kind} {self._name}[] = {{\n{rows}}};\n"


def _braces(values: Iterable[object]) -> str:
    return "{" + ", ".join(map(str, values)) + "}"


def _places(threads: NDArray[np.intp], elements: NDArray[np.intp]) -> str:
    """Return a row of the table of places: what the bits of a row and of a column add to thread and element."""
    parts: list[int | str] = []
    for values in (threads, elements):
        assert values[0, 0] == 0
        of_row, of_column = linear_map(values)
        parts += [_braces(_padded(of_row, _ROW_BITS)), _braces(_padded(of_column, _COLUMN_BITS))]
    return _braces(parts)


def _padded(strides: Sequence[int], count: int) -> list[int]:
    return [*strides, *[0] * (count - len(strides))]


def _of_fragment(fragment: Fragment) -> str:
    per_thread = fragment.rows[0].size
    positions = fragment.positions
    return _places(positions // per_thread, positions % per_thread)


def _format_row(fmt: Format) -> str:
    return _braces([
        f'"{fmt.name}"', int(fmt.signed), fmt.exponent_bits, fmt.fraction_bits, fmt.bias,
        f"Specials::{fmt.specials.name}", int(fmt.subnormals), fmt.ignored_low_bits, fmt.bits,
    ])  # fmt: skip


class _Header:
    def __init__(self) -> None:
        self.numerics = _Table("Numerics", "NUMERICS")
        self.places = _Table("Places", "PLACES")
        self.columns = _Table("uint32_t", "MULTIPLES")
        self.formats = {name: number for number, name in enumerate(FORMATS)}

    def _numerics_of(self, i: Instruction, arch: str) -> int:
        if arch not in i.architectures:
            return -1
        p = numerics(i, arch)
        method, rounding = f"Method::{p.method.name}", f"Rounding::{p.rounding.name}"
        return self.numerics.number(_braces([method, p.step, p.alignment_bits, p.zero_exponent, rounding]))

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

    def _multiples(self, values: tuple[int, ...]) -> int:
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
        return _braces([
            f"Family::{i.family.upper()}", f"Sparsity::{sparse}", self._multiples(form.rows),
            self._multiples(form.columns), i.k, *(self.formats[fmt.name] for fmt in (i.a, i.b, i.c, i.d)),
            f'"{i.kind}"', int(i.satfinite), i.scale_size or 0, int(_says_scale_size(i)),
            self.formats[i.scale_format.name] if i.scale_format else -1, i.span or 0, i.container_bits,
            i.low_bit(i.a), i.low_bit(i.b), i.stored_k, i.chunks, granularity.stored if granularity else 0,
            [*RULES].index(i.rule.name) if i.rule else -1, selectors, lanes_a_selector,
            *lanes_a_thread_id, i.threads,
            _braces(self._places_of(widest)), _braces(self._numerics_of(i, arch) for arch in ARCHITECTURES),
        ])  # fmt: skip


def _rule_row(name: str) -> str:
    rule = RULES[name]
    muxes = dict.fromkeys(MUX_OF_ARCHITECTURE.values())
    missing = [
        _braces(sum(1 << slot for slot in range(2) if not reachable(nibble, name, mux)[slot]) for nibble in range(16))
        for mux in muxes
    ]
    legal = sum(1 << nibble for nibble in rule.legal)
    return _braces([f'"{name}"', f"0x{legal:04x}", _braces(missing), f'"{rule.meaning}"'])


def _swizzle_row(swizzle: Swizzle) -> str:
    return _braces([f'"{swizzle.name}"', swizzle.row_bytes, swizzle.atom_bytes, swizzle.pattern_rows])


def _generation_row(family: str) -> str:
    generation, names = GENERATIONS[family], [*SWIZZLES]
    codes = [generation.swizzles.get(code) for code in range(8)]
    numbers = _braces(-1 if name is None else names.index(name) for name in codes)
    fixed = (generation.fixed_bit, generation.fixed_bits, generation.fixed_value)
    return _braces([generation.swizzle_bit, numbers, *fixed])


def header() -> str:
    """Return the text of the header."""
    tables = _Header()
    rows = [tables.form(form) for form in forms()]
    muxes = [*dict.fromkeys(MUX_OF_ARCHITECTURE.values())]
    architectures = [_braces([f'"{arch}"', muxes.index(MUX_OF_ARCHITECTURE[arch])]) for arch in ARCHITECTURES]
    parts = [
        _PREAMBLE,
        f"\nconstexpr int BLOCK_GROUP = {BLOCK_GROUP};\n",
        _array("Format", "FORMATS", [_format_row(fmt) for fmt in FORMATS.values()]),
        _array("Architecture", "ARCHITECTURES", architectures),
        _array("Rule", "RULES", [_rule_row(name) for name in RULES]),
        _array("Swizzle", "SWIZZLES", [_swizzle_row(swizzle) for swizzle in SWIZZLES.values()]),
        _array("Generation", "GENERATIONS", [_generation_row(family) for family in ("wgmma", "tcgen05")]),
        str(tables.numerics),
        str(tables.places),
        str(tables.columns),
        _array("Form", "FORMS", rows),
        _END,
    ]
    return "".join(parts)


def _array(kind: str, name: str, rows: Sequence[str]) -> str:
    return f"\nconstexpr {kind} {name}[] = {{\n" + "".join(f"    {row},\n" for row in rows) + "};\n"


if __name__ == "__main__":
    HEADER.write_text(header(), encoding="utf-8")
