"""Page of the numerics: how each architecture sums the products of an instruction."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from instruction_pages import every_subject
from page_text import table
from sptc.isa.evidence import Evidence, evidence
from sptc.isa.formats import FORMATS
from sptc.isa.instructions import Instruction
from sptc.isa.names import Subject
from sptc.isa.numerics import Method, Numerics, Rounding, numerics
from sptc.show.instructions import ARCHITECTURE_COLUMNS

__all__ = ["numerics_page"]

_METHODS = {
    Method.FUSED: "L products and the accumulator are truncated F bits below the largest exponent, which is at least "
    "e_zero. The exact sum of the truncated terms is rounded once.",
    Method.GROUPED: "as in *fused*, but every 16 products under the same block scales are summed exactly before "
    "the sum of the 16 products is truncated.",
    Method.EMULATED: "fp8 elements are converted to f16. A *fused* step with a zero accumulator sums the products of "
    "the even pairs of elements, a second step adds those of the odd pairs, and an IEEE addition adds the accumulator.",
    Method.INTEGER: "products and accumulator are summed exactly, and the sum is clamped or wrapped to s32 once.",
}
_ROUNDINGS = {
    Rounding.RZ_F32: "truncated to f32",
    Rounding.RZ_E8M13: "truncated to 13 fraction bits, stored as f32",
    Rounding.RNE_F16: "rounded to the nearest f16, ties to even",
    Rounding.EXACT: "",
}


def numerics_page(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the page of numerics, with a table for each architecture. Architectures with equal tables share a table."""
    rows: dict[str, dict[Numerics, list[Subject]]] = {arch: defaultdict(list) for arch in ARCHITECTURE_COLUMNS}
    for subject in every_subject():
        for arch in subject.instruction.architectures:
            rows[arch][numerics(subject.instruction, arch)].append(subject)
    sources = dict.fromkeys(row.source for arch in ARCHITECTURE_COLUMNS for row in rows[arch])
    marks = {source: "abcdefgh"[place] for place, source in enumerate(sources)}
    tables: dict[str, list[str]] = defaultdict(list)
    for arch, subjects_by_numerics in rows.items():
        lines = (
            (_instructions(subjects), _sum(row), f"{_levels(subjects, arch)} ({marks[row.source]})")
            for row, subjects in subjects_by_numerics.items()
        )
        tables[table(["instructions and types", "sum", "evidence"], lines)].append(arch)
    methods = "\n".join(f"* **{method.value}**: {words}" for method, words in _METHODS.items())
    sections = "\n".join(f"## {' and '.join(archs)}\n\n{text}" for text, archs in tables.items())
    origins = "\n".join(f"* ({mark}): {source}." for source, mark in marks.items())
    meanings = "\n".join(f"* **{level.value}**: {level.meaning}." for level in Evidence)
    yield (
        "index.md",
        "# Numerics\n\nThe tables state how each architecture sums the products of an instruction. [How a result is "
        "formed](../../explanation/result.md) explains L, F and e_zero. Products are summed by one of four methods:\n\n"
        f"{methods}\n\n{sections}\n## Sources of the parameters\n\n{origins}\n\n"
        f"## Evidence labels\n\n{meanings}\n",
    )


def _instructions(subjects: Sequence[Subject]) -> str:
    """Return the families of instructions with equal numerics, with the PTX ``.kind`` of block-scaled families.

    The types of A and D follow each family of instructions; B has the types of A.
    """
    names: dict[str, list[Instruction]] = defaultdict(list)
    for subject in subjects:
        i = subject.instruction
        names[f"{i.family} .kind::{i.kind}" if i.scale_format else i.family].append(i)
    types: dict[str, list[str]] = defaultdict(list)
    for name, members in names.items():
        names_of = ({getattr(i, one).name for i in members} for one in "ad")
        a, d = ("/".join(name for name in FORMATS if name in names) for names in names_of)
        types[f"{a} to {d}"].append(name)
    return "; ".join(f"{', '.join(f'`{name}`' for name in ones)}: {text}" for text, ones in types.items())


def _levels(subjects: Sequence[Subject], arch: str) -> str:
    levels = {evidence(one.instruction, arch, opcode=one.opcode) for one in subjects}
    return ", ".join(level.value for level in Evidence if level in levels)


def _sum(row: Numerics) -> str:
    """Return the method of summation of some numerics, and its parameters, as text."""
    words = [f"{row.method.value}: L = {row.step}"]
    if row.method is not Method.INTEGER:
        words += [f"F = {row.alignment_bits}", f"e_zero = {row.zero_exponent}"]
    return "; ".join([", ".join(words), *filter(None, [_ROUNDINGS[row.rounding]])])
