"""Page of the numerics: how each architecture sums the products of its instructions."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from instruction_pages import Form, every_form
from page_text import table
from sptc.isa.evidence import Evidence
from sptc.isa.formats import FORMATS
from sptc.isa.numerics import Method, Numerics, Rounding, numerics
from sptc.show.instructions import ARCHITECTURE_COLUMNS

__all__ = ["numerics_page"]

_METHODS = {
    Method.FUSED: "L products and the accumulator are truncated F bits below the largest exponent, which is at least "
    "e_zero. Their exact sum is rounded once.",
    Method.GROUPED: "like *fused*, but every 16 products under the same block scales are summed exactly before "
    "their sum is truncated.",
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
    """Yield the page with a table for each architecture. Architectures with equal tables share a table."""
    rows: dict[str, dict[Numerics, list[Form]]] = {arch: defaultdict(list) for arch in ARCHITECTURE_COLUMNS}
    for form in every_form():
        for arch in form.instruction.architectures:
            rows[arch][numerics(form.instruction, arch)].append(form)
    sources = dict.fromkeys(row.source for arch in ARCHITECTURE_COLUMNS for row in rows[arch])
    marks = {source: "abcdefgh"[place] for place, source in enumerate(sources)}
    tables: dict[str, list[str]] = defaultdict(list)
    for arch, of_arch in rows.items():
        lines = (
            (_instructions(forms), _sum(row), f"{_levels(forms, arch)} ({marks[row.source]})")
            for row, forms in of_arch.items()
        )
        tables[table(["instructions and types", "sum", "evidence"], lines)].append(arch)
    methods = "\n".join(f"* **{method.value}**: {words}" for method, words in _METHODS.items())
    sections = "\n".join(f"## {' and '.join(archs)}\n\n{text}" for text, archs in tables.items())
    origins = "\n".join(f"* ({mark}): {source}." for source, mark in marks.items())
    meanings = "\n".join(f"* **{level.value}**: {level.meaning}." for level in Evidence)
    yield (
        "index.md",
        "# Numerics\n\nThe tables state how each architecture sums the products of an instruction. [How a result is "
        "formed](../../explanation/result.md) explains L, F and e_zero with an example. There are four methods:\n\n"
        f"{methods}\n\n{sections}\n## Sources of the parameters\n\n{origins}\n\n"
        f"## Evidence labels\n\n{meanings}\n",
    )


def _instructions(forms: Sequence[Form]) -> str:
    """Return the families of instructions with equal numerics, and the types of A and D; B has the types of A."""
    names: dict[str, list[Form]] = defaultdict(list)
    for form in forms:
        names[_family(form)].append(form)
    types: dict[str, list[str]] = defaultdict(list)
    for name, members in names.items():
        names_of = ({getattr(form.instruction, one).name for form in members} for one in "ad")
        a, d = ("/".join(name for name in FORMATS if name in names) for names in names_of)
        types[f"{a} to {d}"].append(name)
    return "; ".join(f"{', '.join(f'`{name}`' for name in ones)}: {text}" for text, ones in types.items())


def _levels(forms: Sequence[Form], arch: str) -> str:
    levels = {form.level(arch) for form in forms}
    return ", ".join(level.value for level in Evidence if level in levels)


def _family(form: Form) -> str:
    """Return the family of an instruction, with its PTX ``.kind`` if it has block scales."""
    i = form.instruction
    return f"{i.family} .kind::{i.kind}" if i.scale_format else i.family


def _sum(row: Numerics) -> str:
    """Return the method of summation and its parameters as text."""
    words = [f"{row.method.value}: L = {row.step}"]
    if row.method is not Method.INTEGER:
        words += [f"F = {row.alignment_bits}", f"e_zero = {row.zero_exponent}"]
    return "; ".join([", ".join(words), *filter(None, [_ROUNDINGS[row.rounding]])])
