"""Pages of the instructions: one page for each operand layout, and an index with the name of every layout."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from page_text import ROOT, index, printed, table
from sptc.isa.evidence import Evidence, evidence
from sptc.isa.formats import FORMATS
from sptc.isa.instructions import Instruction, every_instruction
from sptc.isa.names import Subject
from sptc.isa.tcgen05 import every_opcode, instructions_of
from sptc.show.instructions import ARCHITECTURE_COLUMNS

__all__ = ["every_subject", "instruction_pages", "layouts", "levels", "page_of"]


def every_subject() -> Iterator[Subject]:
    """Yield every `mma` and `wgmma`, and every pair of a `tcgen05` instruction and an opcode that executes it."""
    yield from map(Subject, every_instruction())
    yield from (Subject(i, opcode) for opcode in every_opcode() for i in instructions_of(opcode))


def family_name(subject: Subject) -> str:
    """Return the first words of an instruction in PTX, without qualifiers, such as ``mma.sp``."""
    if subject.opcode:
        return str(subject.opcode).split(".cta_group")[0]
    words = {"mma": "mma", "wgmma": "wgmma.mma_async"}[subject.instruction.family]
    return f"{words}.sp" if subject.instruction.sparse else words


def layout_name(subject: Subject) -> str:
    """Return the name of the operand layout of an instruction, which is also the name of its page."""
    i = subject.instruction
    family = str(subject.opcode).split(".kind")[0] if subject.opcode else i.family
    sparsity = i.granularity.name if i.granularity else "dense"
    scales = f"-{i.scale_size}x" if i.scale_format else ""
    words = f"{family}-{sparsity}-{_shape(i)}-{i.container_bits}bit-d{i.d.bits}{scales}"
    return re.sub(r"[^A-Za-z0-9-]+", "-", words).lower()


def layouts() -> dict[str, list[Subject]]:
    """Return the instructions by operand layout. `wgmma` and `tcgen05` are included only with the smallest N."""
    result: dict[str, list[Subject]] = defaultdict(list)
    for subject in every_subject():
        i, opcode = subject.instruction, subject.opcode
        if i.family == "mma" or i.n == (opcode.columns[0] if opcode else 8):
            result[layout_name(subject)].append(subject)
    return result


def levels(subjects: Iterable[Subject], arch: str) -> str:
    """Return the evidence labels of instructions on an architecture, with counts of instructions if labels differ."""
    counts = Counter(
        evidence(one.instruction, arch, opcode=one.opcode) for one in subjects if arch in one.instruction.architectures
    )
    counted = [(level.value, counts[level]) for level in Evidence if level in counts]
    return ", ".join(word if len(counted) == 1 else f"{word} {count}" for word, count in counted) or "-"


def instruction_pages(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield a page for each operand layout, with a drawing of the layout and a list of the instructions with it."""
    every = layouts()
    drawn_by = max(
        path.stat().st_mtime
        for path in (*(ROOT / "show").glob("*.py"), *(ROOT / "isa").glob("*.py"), ROOT / "infra" / "figures.py")
    )
    for name, members in every.items():
        picture = folder / "instructions" / f"{name}.svg"
        if not picture.exists() or picture.stat().st_mtime < drawn_by:
            picture.parent.mkdir(parents=True, exist_ok=True)
            printed("explain", members[0].name, "--svg", str(picture))
        yield f"{name}.md", page_of(name, members)
    names = sorted(
        {name: family_name(members[0]) for name, members in every.items()}.items(), key=lambda item: _rank(item[1])
    )
    sections: dict[str, list[str]] = defaultdict(list)
    for layout, name in names:
        sections[name].append(layout)
    words = (
        "Each page shows an operand layout: a drawing with lane, register and bits of every element, the "
        "instructions that have this layout, and their [evidence labels](../../explanation/evidence.md). For `wgmma` "
        "and `tcgen05`, the drawing shows the smallest N. A number after a label is the number of instructions "
        "with this label.\n\n"
    )
    words += "\n".join(f"## `{name}`\n\n{_section([every[one] for one in ones])}" for name, ones in sections.items())
    yield index("Instructions", words, (layout for layout, _ in names), hidden=True)


def _rank(name: str) -> tuple[int, bool]:
    """Return the sort key that orders the index by family, with sparse instructions before dense instructions."""
    families = ("mma", "wgmma", "tcgen05")
    return families.index(name.split(".")[0]), not name.endswith(".sp")


def _shape(i: Instruction) -> str:
    """Return M, N and K as text, with the letter N instead of a number if instructions of several N share a layout."""
    return f"m{i.m}n{i.n if i.family == 'mma' else 'N'}k{i.k}"


def _types(members: Sequence[Subject], separator: str = "/") -> str:
    """Return the element types of A and D as text. Within a layout, B has the same set of types as A."""
    names_of = ({getattr(subject.instruction, one).name for subject in members} for one in "ad")
    a, d = (separator.join(name for name in FORMATS if name in names) for names in names_of)
    scales = dict.fromkeys(
        f", {i.scale_size}X {i.scale_format.name}" for subject in members if (i := subject.instruction).scale_format
    )
    return f"{a} to {d}{''.join(scales)}"


def _structure(subject: Subject) -> str:
    """Return the sparsity of A as text, with a remark if A is divided between two CTAs."""
    granularity = subject.instruction.granularity
    pair = ", 2 CTAs" if subject.opcode and subject.opcode.cta_group == 2 else ""
    return (granularity.name if granularity else "dense") + pair


def _columns(members: Sequence[Subject]) -> list[str]:
    """Return the architectures with at least one of the given instructions, in the order of the table columns."""
    return [arch for arch in ARCHITECTURE_COLUMNS if any(arch in one.instruction.architectures for one in members)]


def _section(groups: Sequence[Sequence[Subject]]) -> str:
    """Return the table of all operand layouts of an instruction, with types, sparsity and evidence labels."""
    columns = _columns([one for members in groups for one in members])
    rows = (
        (
            f"[`{family_name(members[0])}` {_shape(members[0].instruction)}]({layout_name(members[0])}.md)",
            _types(members, ", "),
            _structure(members[0]),
            *(levels(members, arch) for arch in columns),
            f"`{members[0].name}`" + (f" and {len(members) - 1} more" if members[1:] else ""),
        )
        for members in groups
    )
    return table(["instruction", "types", "A is", *columns, "in PTX"], rows)


def page_of(name: str, members: Sequence[Subject]) -> str:
    """Return the page of an operand layout."""
    first, columns = members[0], _columns(members)
    i = first.instruction
    title = f"`{family_name(first)}` {_shape(i)} {_types(members)}, {_structure(first)}"
    rows = ((f"`{one.name}`{{#{_anchor(one.name)}}}", *(levels([one], arch) for arch in columns)) for one in members)
    arch = next(arch for arch in columns if arch in i.architectures)
    return (
        f"# {title}\n\n"
        "{.map}\n"
        f"![Lanes, registers and bits of every operand of {first.name}]({name}.svg)\n\n"
        f"## Instructions\n\n{table(['instruction', *columns], rows)}\n"
        f"## Position of every bit\n\nOutput of `sptc explain` for the first instruction of the table:\n\n"
        f"```text\n{printed('explain', first.name, '--arch', arch)}```\n"
    )


def _anchor(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
