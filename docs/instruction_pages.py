"""Pages of the instructions: one for each operand layout, and an index with the name of every layout."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from page_text import ROOT, index, printed, table
from sptc.isa.evidence import Evidence, evidence
from sptc.isa.formats import FORMATS
from sptc.isa.instructions import Instruction, every_instruction
from sptc.isa.tcgen05 import Opcode, every_opcode, instructions_of
from sptc.show.instructions import ARCHITECTURE_COLUMNS

__all__ = ["Form", "every_form", "instruction_pages", "layouts", "levels", "page_of"]


@dataclass(frozen=True)
class Form:
    """An instruction, and its opcode if it is a `tcgen05` instruction."""

    instruction: Instruction
    opcode: Opcode | None = None

    def __str__(self) -> str:
        return f"{self.opcode} ({self.instruction.shape_and_types})" if self.opcode else str(self.instruction)

    @property
    def name(self) -> str:
        """First words of the instruction in PTX, without qualifiers, such as ``mma.sp``."""
        if self.opcode:
            return str(self.opcode).split(".cta_group")[0]
        words = {"mma": "mma", "wgmma": "wgmma.mma_async"}[self.instruction.family]
        return f"{words}.sp" if self.instruction.sparse else words

    @property
    def layout(self) -> str:
        """Name of the operand layout, and of its page."""
        i = self.instruction
        family = str(self.opcode).split(".kind")[0] if self.opcode else i.family
        sparsity = i.granularity.name if i.granularity else "dense"
        scales = f"-{i.scale_size}x" if i.scale_format else ""
        words = f"{family}-{sparsity}-{_shape(i)}-{i.container_bits}bit-d{i.d.bits}{scales}"
        return re.sub(r"[^A-Za-z0-9-]+", "-", words).lower()

    def level(self, arch: str) -> Evidence | None:
        """Return the evidence label on an architecture, None if the architecture does not have the instruction."""
        i = self.instruction
        return evidence(i, arch, opcode=self.opcode) if arch in i.architectures else None


def every_form() -> Iterator[Form]:
    """Yield every `mma` and `wgmma`, and every pair of a `tcgen05` instruction and an opcode that executes it."""
    yield from map(Form, every_instruction())
    yield from (Form(i, opcode) for opcode in every_opcode() for i in instructions_of(opcode))


def layouts() -> dict[str, list[Form]]:
    """Return the instructions by operand layout, those of `wgmma` and `tcgen05` only with the smallest N."""
    result: dict[str, list[Form]] = defaultdict(list)
    for form in every_form():
        i, opcode = form.instruction, form.opcode
        if i.family == "mma" or i.n == (opcode.columns[0] if opcode else 8):
            result[form.layout].append(form)
    return result


def levels(forms: Iterable[Form], arch: str) -> str:
    """Return the evidence labels of instructions on an architecture, with counts of instructions if labels differ."""
    counts = Counter(form.level(arch) for form in forms)
    counted = [(level.value, counts[level]) for level in Evidence if level in counts]
    return ", ".join(word if len(counted) == 1 else f"{word} {count}" for word, count in counted) or "-"


def instruction_pages(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield a page for each operand layout, with its map and a list of all instructions that have this layout."""
    every = layouts()
    drawn_by = max(
        path.stat().st_mtime
        for path in (*(ROOT / "show").glob("*.py"), *(ROOT / "isa").glob("*.py"), ROOT / "infra" / "figures.py")
    )
    for name, members in every.items():
        picture = folder / "instructions" / f"{name}.svg"
        if not picture.exists() or picture.stat().st_mtime < drawn_by:
            picture.parent.mkdir(parents=True, exist_ok=True)
            printed("explain", str(members[0]), "--svg", str(picture))
        yield f"{name}.md", page_of(name, members)
    names = sorted({name: members[0].name for name, members in every.items()}.items(), key=lambda item: _rank(item[1]))
    sections: dict[str, list[str]] = defaultdict(list)
    for layout, name in names:
        sections[name].append(layout)
    words = (
        "Each page shows an operand layout: a map with the lane, the register and the bits of every element, the "
        "instructions that have this layout, and their [evidence labels](../../explanation/evidence.md). For `wgmma` "
        "and `tcgen05`, the map shows the smallest N. A number after a label is the number of instructions "
        "with this label.\n\n"
    )
    words += "\n".join(f"## `{name}`\n\n{_section([every[one] for one in ones])}" for name, ones in sections.items())
    yield index("Instructions", words, (layout for layout, _ in names), hidden=True)


def _rank(name: str) -> tuple[int, bool]:
    """Return the sort key that orders the index by family, with sparse instructions before dense ones."""
    families = ("mma", "wgmma", "tcgen05")
    return families.index(name.split(".")[0]), not name.endswith(".sp")


def _shape(i: Instruction) -> str:
    """Return M, N and K as text, with the letter N instead of a number if several N have the same layout."""
    return f"m{i.m}n{i.n if i.family == 'mma' else 'N'}k{i.k}"


def _types(members: Sequence[Form], separator: str = "/") -> str:
    """Return the element types of A and D as text; B has the same set of types as A within a layout."""
    names_of = ({getattr(form.instruction, one).name for form in members} for one in "ad")
    a, d = (separator.join(name for name in FORMATS if name in names) for names in names_of)
    scales = dict.fromkeys(
        f", {i.scale_size}X {i.scale_format.name}" for form in members if (i := form.instruction).scale_format
    )
    return f"{a} to {d}{''.join(scales)}"


def _structure(form: Form) -> str:
    """Return the sparsity of A as text, with a remark if A is divided between two CTAs."""
    granularity = form.instruction.granularity
    pair = ", 2 CTAs" if form.opcode and form.opcode.cta_group == 2 else ""
    return (granularity.name if granularity else "dense") + pair


def _columns(members: Iterable[Form]) -> list[str]:
    """Return the architectures that have at least one of the instructions, in the order of the table columns."""
    return [arch for arch in ARCHITECTURE_COLUMNS if any(arch in form.instruction.architectures for form in members)]


def _section(groups: Sequence[Sequence[Form]]) -> str:
    """Return the table of all layouts of an instruction, with types, sparsity and evidence labels."""
    columns = _columns(form for members in groups for form in members)
    rows = (
        (
            f"[`{members[0].name}` {_shape(members[0].instruction)}]({members[0].layout}.md)",
            _types(members, ", "),
            _structure(members[0]),
            *(levels(members, arch) for arch in columns),
            f"`{members[0]}`" + (f" and {len(members) - 1} more" if members[1:] else ""),
        )
        for members in groups
    )
    return table(["instruction", "types", "A is", *columns, "in PTX"], rows)


def page_of(name: str, members: Sequence[Form]) -> str:
    """Return the page of an operand layout."""
    first, columns = members[0], _columns(members)
    i = first.instruction
    title = f"`{first.name}` {_shape(i)} {_types(members)}, {_structure(first)}"
    rows = ((f"`{form}`{{#{_anchor(str(form))}}}", *(levels([form], arch) for arch in columns)) for form in members)
    arch = next(arch for arch in columns if arch in i.architectures)
    return (
        f"# {title}\n\n"
        "{.map}\n"
        f"![Lanes, registers and bits of every operand of {first}]({name}.svg)\n\n"
        f"## Instructions\n\n{table(['instruction', *columns], rows)}\n"
        f"## Position of every bit\n\nOutput of `sptc explain` for the first instruction of the table:\n\n"
        f"```text\n{printed('explain', str(first), '--arch', arch)}```\n"
    )


def _anchor(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
