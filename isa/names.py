"""Find instructions by exact name, name with qualifiers left out, pasted PTX line, or search words."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher, get_close_matches
from functools import cache, lru_cache

from ..errors import InstructionError, shown
from .architectures import Target, target_named
from .instruction_descriptor import decode_instruction_descriptor
from .instructions import Instruction, every_instruction, parse
from .numerics import Numerics, numerics
from .pasted_line import PastedLine, completed, operand_roles, paste
from .tcgen05 import Opcode, every_opcode, instructions_of, parse_opcode, parse_shaped

__all__ = [
    "Subject",
    "completed_name",
    "described",
    "forms_named",
    "has_words",
    "in_registers",
    "nearest_name",
    "resolve",
    "subject_named",
    "subject_of_line",
]

#: Architecture that is preferred if several instructions have the same operands, operand placement and numerics.
_PREFERRED = "sm_90"
#: Maximum number of rows in a list of matching instructions.
_MOST_ROWS = 100
#: Pattern of an opcode without operands, with or without shape and types in brackets.
_OPCODE = re.compile(r"(?:mma|wgmma|tcgen05)\.[^\s,]+(?: \([^\s,]*\))?\s*;?$")
_WORD = re.compile(r"[^.\s();,]+")


@dataclass(frozen=True)
class Subject:
    """Instruction with its exact name. A ``tcgen05`` instruction also has its PTX opcode."""

    instruction: Instruction  #: Instruction, including its shape and types
    opcode: Opcode | None = None  #: PTX opcode of a ``tcgen05`` instruction

    @property
    def name(self) -> str:
        """Name of the instruction; for ``tcgen05``, the opcode with shape and types in brackets."""
        return f"{self.opcode} ({self.instruction.shape_and_types})" if self.opcode else str(self.instruction)


def subject_named(text: str) -> Subject:
    """Return the instruction with an exact name (:attr:`Subject.name`), or raise an `InstructionError`.

    A ``tcgen05`` opcode without shape and types stands for its instruction with the largest M and smallest N.
    """
    if not (isinstance(text, str) and text.strip().startswith("tcgen05.")):
        return Subject(parse(text))
    opcode, i = parse_shaped(text)
    return Subject(i, opcode)


def resolve(text: str, arch: str | None = None, *, family: str | None = None, product: bool = False) -> Subject:
    """Return the instruction that a name, a PTX line or search words identify.

    The first of these interpretations that fits the text applies: an exact name, as for :func:`subject_named`; a line
    of PTX with operands; a name without the qualifiers that every instruction has (``.sync.aligned``, ``.row.col``, and
    for ``tcgen05`` with its shape ``.cta_group::1``, or ``::2`` if only a CTA pair has the shape); or search words of
    the name in any order, where ``sparse`` and ``dense`` are words, too. If all matching instructions have the same
    operands, placement of operands and numerics, one of them is returned: preferably an instruction that sm_90 has,
    then an instruction without plain metadata, then the one with the fewest qualifiers.

    If `arch`, an architecture or target, has any of the matching instructions, all others are ignored; likewise if any
    is of `family`, ``mma``, ``wgmma`` or ``tcgen05``. With `product`, only the product matters, not the placement of
    operands: ``tcgen05`` instructions that differ only in ``.cta_group`` count as one, and those with ``.ws`` are
    ignored. Raise an `InstructionError` if no instruction has this name or these words, or if several different
    instructions have the words. Attribute `choices` of the error then lists these instructions.
    """
    try:
        return subject_named(text)
    except InstructionError as error:
        if not isinstance(text, str):
            raise
        return _resolved(text, arch, family, product, error)


def _without_fit(text: str) -> InstructionError:
    """Return the error for search words that match no instruction."""
    known = {word for _, words in _every_subject().values() for word in words}
    unknown = [word for word in _WORD.findall(text) if word not in known]
    near = get_close_matches(unknown[0], known, 1) if unknown else []
    what = f"the word {shown(unknown[0])}" if unknown else f"all the words {shown(text)}"
    error = InstructionError(f"no instruction has {what}{f'; did you mean {near[0]}?' if near else ''}")
    error.text = "" if near else text
    return error


def in_registers(text: str, arch: str | None = None) -> Instruction:
    """Return the ``mma`` or ``wgmma`` that a text identifies. Raise an `InstructionError` as :func:`resolve` does."""
    return parse(resolve(text, arch).name)  # `parse` raises an error for a tcgen05 instruction


def _resolved(text: str, arch: str | None, family: str | None, product: bool, error: InstructionError) -> Subject:
    """Return the instruction of a PTX line, incomplete name or search words. Raise `error` if none matches."""
    if line := paste(text):
        return subject_of_line(line)
    if _OPCODE.match(plain := text.strip()):
        name, added = completed_name(plain)
        if added:
            return subject_named(name)
        raise error
    fits = _fits(plain, None if arch is None else target_named(arch), family, product)
    if not fits:
        raise _without_fit(plain) if " " in plain and plain.isprintable() else error
    best = min(fits, key=_rank)
    if all(_alike(best, other) for other in fits):
        return best
    columns, rows = _rows(fits)
    ambiguous = InstructionError(
        f"{len(fits)} instructions have the words {shown(plain)}; they differ in {', '.join(columns)}: add words, "
        "or take a name from the list"
    )
    ambiguous.choices = "\n".join(_table(columns, rows))
    raise ambiguous


def completed_name(text: str) -> tuple[str, str]:
    """Complete a name with the qualifiers that all its family's instructions have. Return name and added qualifiers."""
    plain = text.strip()
    return completed(plain.removesuffix(";").rstrip()) if _OPCODE.match(plain) else (text, "")


@lru_cache(maxsize=256)
def _fits(text: str, target: Target | None, family: str | None, product: bool) -> tuple[Subject, ...]:
    """Return the instructions that have all search words of a text, in the order of :func:`_rank`.

    Of these, only the instructions of `family` and those that `target` has are returned, if there are any. With
    `product`, those with ``.ws`` are left out, and those that differ only in ``.cta_group`` count as one.
    """
    words = Counter(_WORD.findall(text))
    fits = [subject for subject, its_words in _every_subject().values() if words and words <= its_words]
    if product:
        plain = (one for one in reversed(fits) if not (one.opcode and one.opcode.weight_stationary))
        fits = list({one.instruction: one for one in plain}.values())
    if family:
        fits = [one for one in fits if one.instruction.family == family] or fits
    if target:
        fits = [one for one in fits if target.has(one.instruction)] or fits
    return tuple(sorted(fits, key=_rank))


def _rank(subject: Subject) -> tuple[bool, bool, int]:
    """Return a sort key: instructions of sm_90 come first, then those other than plain ``.sp``, then short names."""
    i = subject.instruction
    return _PREFERRED not in i.architectures, i.sparse == "sp", subject.name.partition(" ")[0].count(".")


def _alike(one: Subject, other: Subject) -> bool:
    """Return whether two instructions have the same operands, the same placement of operands and the same numerics."""
    first, second = one.instruction, other.instruction
    forms = [
        (replace(i, sparse=bool(i.sparse) * "sp", kind="", architectures=()), i.container_bits) for i in (first, second)
    ]
    shared = {*first.architectures} & {*second.architectures}
    return (
        forms[0] == forms[1]
        and one.opcode == other.opcode
        and bool(shared)
        and all(_law(first, arch) == _law(second, arch) for arch in shared)
    )


def _law(i: Instruction, arch: str) -> Numerics:
    return replace(numerics(i, arch), source="")


def subject_of_line(line: PastedLine) -> Subject:
    """Return the instruction of a PTX line. For ``tcgen05``, a constant instruction descriptor gives shape and types.

    Raise an `InstructionError` or an `OperandError` if the instruction or one of its operands is wrong, or the
    descriptor contradicts the shape in brackets.
    """
    subject = subject_named(line.name)
    roles = operand_roles(line, subject.instruction, subject.opcode)
    value = next((role.value for role in roles if role.role == "idesc"), None)
    if subject.opcode is None or value is None:
        return subject
    return Subject(described(subject.opcode, value, line.shape_and_types), subject.opcode)


def described(opcode: Opcode, value: int, shape_and_types: str = "") -> Instruction:
    """Return the instruction that an opcode and the value of an instruction descriptor define together.

    Raise an `OperandError` if the descriptor is wrong, and an `InstructionError` if the descriptor contradicts the
    given shape and types.
    """
    i = decode_instruction_descriptor(opcode, value).instruction
    if shape_and_types not in ("", i.shape_and_types):
        raise InstructionError(
            f"instruction descriptor {value:#010x} describes {i.shape_and_types}, not {shape_and_types}"
        )
    return i


def forms_named(text: str, arch: str | None = None) -> list[Subject]:
    """Return the instruction that a text identifies. For a ``tcgen05`` opcode without types, return one for each type.

    ``nN`` in the shape of a ``tcgen05`` instruction, as in the list of all instructions, stands for every N. The
    instruction with N = 128 is returned, since neither evidence nor numerics depend on N, and every opcode has this N.
    Raise an `InstructionError` as for :func:`resolve`.
    """
    if isinstance(text, str) and text.strip().startswith("tcgen05."):
        text = text.replace("nNk", "n128k")
    subject = resolve(text, arch, product=True)
    if subject.opcode is None or "(" in text or not text.strip().startswith("tcgen05."):
        return [subject]
    opcode = parse_opcode(text)
    shape = opcode.rows[-1], opcode.columns[0]
    return [Subject(i, opcode) for i in instructions_of(opcode) if (i.m, i.n) == shape]


def _words_of(text: str) -> Counter[str]:
    """Return the search words of an instruction name: its qualifiers, and also the parts of qualifiers with ``::``."""
    words = _WORD.findall(text)
    return Counter([*words, *(part for word in words if "::" in word for part in word.split("::"))])


def has_words(name: str, words: Counter[str]) -> bool:
    """Return whether an instruction name contains all search words, each at least as many times as in `words`."""
    return words <= _words_of(name)


@cache
def _every_subject() -> dict[str, tuple[Subject, Counter[str]]]:
    """Return every modelled instruction and its search words. The keys are instruction names."""
    subjects = [Subject(i) for i in every_instruction()]
    subjects += [Subject(i, opcode) for opcode in every_opcode() for i in instructions_of(opcode)]
    return {
        one.name: (one, _words_of(f"{one.name} {'sparse' if one.instruction.sparse else 'dense'}")) for one in subjects
    }


def nearest_name(text: str) -> str | None:
    """Return the instruction name nearest to a text, or None if no name has more than half of the words of the text."""
    words = _words_of(text)
    common = {name: (words & others).total() for name, (_, others) in _every_subject().items()}
    far = {name: words.total() + _every_subject()[name][1].total() - 2 * count for name, count in common.items()}
    least = min(far.values())
    near = [name for name, count in common.items() if far[name] == least and 2 * count > words.total()]
    nearest = max(near, key=lambda name: SequenceMatcher(None, text, name).ratio(), default=None)
    return nearest if nearest is None or "(" in text else nearest.partition(" (")[0]


def _qualifiers(subject: Subject) -> dict[str, str]:
    """Return the properties of an instruction, such as M and kind, as table cells. The keys are column headings."""
    i, opcode = subject.instruction, subject.opcode
    return {
        "family": i.family,
        "sparsity": {"sp": "plain", "": "dense"}.get(i.sparse, "ordered") if i.family == "mma" else i.sparse or "dense",
        "CTAs": str(opcode.cta_group) if opcode else "1",
        "ws": "ws" if opcode and opcode.weight_stationary else "-",
        "M": str(i.m),
        "N": str(i.n),
        "K": str(i.k),
        "kind": i.kind or "-",
        "D": i.d.name,
        "A": i.a.name,
        "B": i.b.name,
        "C": i.c.name,
        "scales": f"{i.scale_size}X {i.scale_format.name}" if i.scale_format else "-",
        "satfinite": "yes" if i.satfinite else "no",
    }


def _rows(subjects: Sequence[Subject]) -> tuple[list[str], list[tuple[list[str], str]]]:
    """Return the headings of the columns in which instructions differ, and the cells and name of each instruction.

    Instructions that differ only in N share one row, with the range of N, and with ``n*`` in the name.
    """
    cells = [(_qualifiers(one), one) for one in subjects]
    columns = [name for name in cells[0][0] if len({row[name] for row, _ in cells}) > 1]
    for name, same in (("C", "D"), ("B", "A")):
        if name in columns and all(row[name] == row[same] for row, _ in cells):
            columns.remove(name)
    merged: dict[object, list[Subject]] = {}
    for _, one in cells:
        merged.setdefault((replace(one.instruction, n=0), one.opcode), []).append(one)
    rows = []
    for group in merged.values():
        row, name, values = _qualifiers(group[0]), group[0].name, [one.instruction.n for one in group]
        if len(group) > 1:
            row["N"] = f"{min(values)}..{max(values)}"
            name = re.sub(r"(m\d+n)\d+(k\d+)", r"\1*\2", name)
        rows.append(([row[column] for column in columns], name))
    return columns, rows


def _table(columns: Sequence[str], rows: Sequence[tuple[Sequence[str], str]]) -> Iterator[str]:
    """Yield the lines of a numbered list of instructions, with a column for each qualifier that differs among them."""
    lines = [(*columns, "instruction"), *((*cells, name) for cells, name in rows[:_MOST_ROWS])]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    number_width = len(str(len(lines)))
    for number, line in enumerate(lines):
        cells = "  ".join(f"{cell:{width}}" for cell, width in zip(line, widths, strict=True))
        yield f"{number or '':>{number_width}}  {cells}".rstrip()
    if len(rows) > _MOST_ROWS:
        yield f"and {len(rows) - _MOST_ROWS} more, which `sptc instructions` lists by words"
