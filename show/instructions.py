"""Tables of the modelled instructions by architecture, with the evidence for each."""

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby

from ..isa.architectures import same_numerics, target_named
from ..isa.evidence import Evidence, evidence
from ..isa.instructions import ARCHITECTURES, VARIANTS, Instruction, Variant, instructions_of
from ..isa.names import Subject, has_words
from ..isa.tcgen05 import Opcode, every_opcode
from ..isa.tcgen05 import instructions_of as instructions_of_opcode

__all__ = [
    "ARCHITECTURE_COLUMNS",
    "EVIDENCE_LEVELS",
    "instruction_rows",
    "instructions_as_dicts",
    "markdown_table",
    "one_as_dict",
    "one_row",
    "text_table",
]


@dataclass(frozen=True, kw_only=True)
class _Row:
    #: Texts of the first three cells in the table row: instruction, shapes and types.
    name: str
    shapes: str
    types: str
    #: Pairs of opcode (None unless ``tcgen05``) and instruction: all instructions of the table row, which have the same
    #: architectures and sparsity. A ``tcgen05`` instruction is listed with only one M and N, because the evidence does
    #: not depend on M and N.
    instructions: tuple[tuple[Opcode | None, Instruction], ...]
    spelled: tuple[str, ...]  #: Names of the instructions in PTX syntax

    @property
    def sparsity(self) -> str:
        """Sparsity structure of A such as ``2:4``, or ``dense``."""
        granularity = self.instructions[0][1].granularity
        return granularity.name if granularity else "dense"


#: Maximum number of characters per printed line.
_WIDTH = 100
#: Order of the architectures in tables: the architecture with recorded GPU results is first.
ARCHITECTURE_COLUMNS = ("sm_90", *(arch for arch in ARCHITECTURES if arch != "sm_90"))
#: Meaning of each level of evidence, one sentence per level.
EVIDENCE_LEVELS = [f"{level.value.capitalize()}: {level.meaning}." for level in Evidence]


def _spellings() -> Iterator[tuple[Opcode | None, Instruction, dict[str, object]]]:
    """Yield opcode, instruction and JSON entry of every instruction. A ``tcgen05`` entry lists all N of an opcode."""
    for row in VARIANTS:
        for i in instructions_of(row):
            yield None, i, {"instruction": str(i)}
    for opcode in every_opcode():
        for i in instructions_of_opcode(opcode):
            if i.n == opcode.columns[0]:
                added = i.shape_and_types.replace(f"n{i.n}k", "nNk")
                yield opcode, i, {"instruction": f"{opcode} ({added})", "n": list(opcode.columns)}


def _cells(instructions: Sequence[tuple[Opcode | None, Instruction]], absent: str) -> dict[str, str]:
    """Return as text the evidence for instructions, by architecture; `absent` if an architecture has none of them."""
    cells = {}
    for arch in ARCHITECTURES:
        counts = Counter(evidence(i, arch, opcode=opcode) for opcode, i in instructions if arch in i.architectures)
        levels = [level for level in Evidence if level in counts]
        counted = [f"{level.value} {counts[level]}" for level in levels]
        cells[arch] = ", ".join(counted) if len(levels) > 1 else levels[0].value if levels else absent
    return cells


def _levels(instructions: Sequence[tuple[Opcode | None, Instruction]], arch: str | None, absent: str) -> dict[str, str]:
    """Return the level of evidence of instructions by architecture; only for `arch` if `arch` is not None."""
    cells = _cells(instructions, absent)
    if arch is None:
        return cells
    cell = cells[same_numerics(arch)]
    return {arch: cell if target_named(arch).same_chip else Evidence.MODELLED.value}


def _types(pairs: Iterable[tuple[str, str]], accumulators: Iterable[str], scales: Iterable[tuple[int, str]]) -> str:
    pairs = list(pairs)
    a, b = ("/".join(dict.fromkeys(pair[side] for pair in pairs)) for side in (0, 1))
    operands = a if all(left == right for left, right in pairs) else f"{a} x {b}"
    return f"{operands} to {'/'.join(accumulators)}" + "".join(f", {size}X {name}" for size, name in scales)


def _row(row: Variant) -> _Row:
    name = ", ".join(f"`mma.{variant}`" if variant else "`mma`" for variant in row.sparse)
    shapes = ", ".join(row.shapes)
    if row.family == "wgmma":
        name = ", ".join(f"`wgmma.mma_async{'.' if variant else ''}{variant}`" for variant in row.sparse)
        shapes = f"m64nNk{row.shapes[0].split('k')[1]}, N {row.shapes[0][4:].split('k')[0]} to 256"
    instructions = tuple(instructions_of(row))
    return _Row(
        name=f"{name} `.kind::{row.kind}`" if row.kind else name,
        shapes=shapes,
        types=_types(row.pairs, [d for d, _ in row.accumulators], row.scales),
        instructions=tuple((None, i) for i in instructions),
        spelled=tuple(map(str, instructions)),
    )


def _shapes(opcodes: Sequence[Opcode]) -> str:
    """Return the shapes of the opcodes as text. The opcodes differ only in the number of CTAs or of block scales."""
    words = {}
    for opcode in opcodes:
        rows = ", ".join(f"m{m}nNk{opcode.k}" for m in opcode.rows)
        columns = f"{opcode.columns[0]} {'to' if len(opcode.columns) > 2 else 'or'} {opcode.columns[-1]}"
        words[opcode.cta_group] = f"{rows}, N {columns}{' with two CTAs' if opcode.cta_group == 2 else ''}"
    return "; ".join(words.values())


def _tcgen05_rows() -> Iterator[_Row]:
    for (sparse, stationary, kind), group in groupby(
        every_opcode(), lambda opcode: (opcode.sparse, opcode.weight_stationary, opcode.kind)
    ):
        opcodes = list(group)
        every = [(opcode, i) for opcode in opcodes for i in instructions_of_opcode(opcode)]
        covered = [i for _, i in every]
        words = ".".join(["tcgen05.mma", *(["ws"] if stationary else []), *(["sp"] if sparse else [])])
        scales = dict.fromkeys((i.scale_size, i.scale_format.name) for i in covered if i.scale_size and i.scale_format)
        accumulators: dict[tuple[str, str], dict[str, None]] = {}
        for i in covered:
            accumulators.setdefault((i.a.name, i.b.name), {})[i.d.name] = None
        for names in dict.fromkeys(map(tuple, accumulators.values())):
            pairs = [pair for pair, results in accumulators.items() if tuple(results) == names]
            matching = [(opcode, i) for opcode, i in every if (i.a.name, i.b.name) in pairs]
            yield _Row(
                name=f"`{words}` `.kind::{kind}`",
                shapes=_shapes(opcodes),
                types=_types(pairs, names, scales),
                instructions=tuple((o, i) for o, i in matching if (i.m, i.n) == (o.rows[-1], o.columns[0])),
                spelled=tuple(f"{opcode} ({i.shape_and_types})" for opcode, i in matching),
            )


def one_row(subject: Subject) -> _Row:
    """Return a table row of a single instruction."""
    i, name = subject.instruction, str(subject.opcode or subject.instruction)
    scales = [(i.scale_size, i.scale_format.name)] if i.scale_size and i.scale_format else []
    return _Row(
        name=f"`{name}`",
        shapes=f"m{i.m}n{i.n}k{i.k}",
        types=_types([(i.a.name, i.b.name)], [i.d.name], scales),
        instructions=((subject.opcode, i),),
        spelled=(subject.name,),
    )


def one_as_dict(subject: Subject, arch: str | None) -> dict[str, object]:
    """Return a single instruction with its evidence as JSON values, as :func:`instructions_as_dicts` does."""
    return {"instruction": subject.name, "evidence": _levels([(subject.opcode, subject.instruction)], arch, "")}


def _matches(
    i: Instruction, names: Iterable[str], words: "Counter[str]", arch: str | None, sparse: bool | None
) -> bool:
    """Return whether an instruction matches all search words, the architecture and the sparsity."""
    if sparse is not None and bool(i.sparse) != sparse:
        return False
    return (arch is None or target_named(arch).has(i)) and any(has_words(name, words) for name in names)


def instructions_as_dicts(words: "Counter[str]", arch: str | None, sparse: bool | None) -> list[dict[str, object]]:
    """Return the instructions that :func:`instruction_rows` selects, each with its evidence, as JSON values.

    The evidence is that of `arch`, or of every architecture if `arch` is None.
    """
    return [
        entry | {"evidence": _levels([(opcode, i)], arch, "")}
        for opcode, i, entry in _spellings()
        if _matches(i, _names(opcode, str(entry["instruction"])), words, arch, sparse)
    ]


def _names(opcode: Opcode | None, entry: str) -> Iterator[str]:
    """Yield the names of all instructions of a JSON entry. An entry of ``tcgen05`` has one instruction for each N."""
    for n in opcode.columns if opcode else (None,):
        yield entry if n is None else entry.replace("nNk", f"n{n}k")


def instruction_rows(words: "Counter[str]", arch: str | None, sparse: bool | None) -> list[_Row]:
    """Return the table rows of instructions that match all search words; None accepts any architecture or sparsity."""
    return [row for row in _rows() if _matches(row.instructions[0][1], row.spelled, words, arch, sparse)]


def _rows() -> Iterator[_Row]:
    return chain(map(_row, VARIANTS), _tcgen05_rows())


def text_table(rows: Iterable[_Row], arch: str | None) -> str:
    """Return the table of instructions as text: instruction, shapes, types, architectures of each level of evidence."""
    lines = []
    for row in rows:
        levels: dict[str, list[str]] = {}
        for name, cell in _levels(row.instructions, arch, "").items():
            if cell:
                levels.setdefault(cell, []).append(name)
        evidence_of = "; ".join(f"{cell}: {' '.join(names)}" for cell, names in levels.items())
        lines.append(f"{row.name.replace('`', '')}, A is {row.sparsity}")
        for text in (row.shapes, row.types, evidence_of):
            lines += textwrap.wrap(text, _WIDTH, initial_indent="    ", subsequent_indent="      ")
    return "\n".join([*lines, "", *(line for text in EVIDENCE_LEVELS for line in textwrap.wrap(text, _WIDTH))])


def markdown_table(rows: Iterable[_Row] | None = None) -> str:
    """Return table rows (default: all) in Markdown, with one column per architecture."""
    lines = [
        f"| instruction | shapes | types | A is | {' | '.join(ARCHITECTURE_COLUMNS)} |",
        f"|{'---|' * (4 + len(ARCHITECTURE_COLUMNS))}",
    ]
    for row in _rows() if rows is None else rows:
        cells = _cells(row.instructions, "-")
        levels = " | ".join(cells[arch] for arch in ARCHITECTURE_COLUMNS)
        lines.append(f"| {row.name} | {row.shapes} | {row.types} | {row.sparsity} | {levels} |")
    return "\n".join([*lines, "", *EVIDENCE_LEVELS])
