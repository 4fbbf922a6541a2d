"""Parser of PTX ``mma`` and ``wgmma`` instructions, and the class of a parsed instruction."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product

from ..errors import InstructionError, shown
from .formats import FORMATS, Format, low_bit
from .metadata import GRANULARITIES, RULES, Granularity, Rule, is_wide
from .text import category, dotted, is_word_of, parser
from .variants import ARCHITECTURES, VARIANTS, Variant

__all__ = [
    "ARCHITECTURES",
    "VARIANTS",
    "Instruction",
    "Variant",
    "every_instruction",
    "instructions_of",
    "lacking",
    "one_of",
    "parse",
    "require_architecture",
]


@dataclass(frozen=True, kw_only=True)
class Instruction:
    """Parsed and checked PTX instruction."""

    family: str  #: Instruction family: ``mma``, ``wgmma`` or ``tcgen05``
    sparse: str  #: ``.sp`` qualifier as written, or empty for a dense instruction
    #: Logical shape M, N and K. For tcgen05: the shape that all cooperating CTAs compute together.
    m: int
    n: int
    k: int
    #: Number formats of A, B, C and D. wgmma and tcgen05 accumulate into D, so their `c` equals `d`.
    a: Format
    b: Format
    c: Format
    d: Format
    kind: str  #: Name after ``.kind::`` in the PTX text, or empty without this qualifier
    satfinite: bool  #: Whether integer results are clamped instead of wrapped
    scale_size: int | None  #: Number of block scales per row of A and column of B, or None without block scales
    scale_format: Format | None  #: Number format of the block scales, or None without block scales
    architectures: tuple[str, ...]  #: Architectures that support the instruction

    @property
    def shape(self) -> str:
        """Shape qualifier of the instruction, for example ``m16n8k32``."""
        return f"m{self.m}n{self.n}k{self.k}"

    @property
    def container_bits(self) -> int:
        """Bits that an element of A or B occupies in the datapath, including unused bits: 4, 8, 16 or 32."""
        return 8 if self.kind in ("f8f6f4", "mxf8f6f4") else self.a.container_bits

    def low_bit(self, fmt: Format) -> int:
        """Return the lowest bit of an element of A or B in its container. See :func:`sptc.isa.formats.low_bit`."""
        return low_bit(fmt, self.container_bits)

    @property
    def wide(self) -> bool:
        """Whether metadata selects 16-bit parts of B, not 8-bit parts. See :func:`sptc.isa.metadata.is_wide`."""
        return is_wide(self.container_bits)

    def padded_unit(self, fmt: Format) -> int:
        """Return the number of elements of A or B in a padded unit of 16 bytes of shared memory, or 0 if not padded.

        Source: PTX ISA, packing formats of ``tcgen05``: types of fewer than 8 bits are padded unless two fill a byte.
        """
        return 16 if self.family == "tcgen05" and fmt.bits < 8 and "mxf4" not in self.kind else 0

    @property
    def granularity(self) -> Granularity | None:
        """Sparsity pattern of A, or None for a dense instruction."""
        if not self.sparse:
            return None
        return GRANULARITIES[{4: "4:8", 32: "1:2"}.get(self.container_bits, "2:4")]

    @property
    def rule(self) -> Rule | None:
        """Rule for legal metadata nibbles, or None for a dense instruction."""
        if not self.sparse:
            return None
        if self.a.name == "tf32":
            return RULES["tf32"]
        if self.family != "mma":
            return RULES[self.family]
        return RULES["ordered" if self.sparse == "sp::ordered_metadata" else "plain"]

    @property
    def stored_k(self) -> int:
        """Number of stored columns of A: K/2 for a sparse instruction, K for a dense one."""
        return self.k // 2 if self.sparse else self.k

    @property
    def chunks(self) -> int:
        """Number of metadata nibbles per row of A, or 0 for a dense instruction."""
        return self.k // self.granularity.logical if self.granularity else 0

    @property
    def chunk_bytes(self) -> int:
        """Bytes of stored A per metadata nibble: 4 for elements of 16 or 32 bits, else 2; 0 for a dense instruction."""
        return self.granularity.stored * self.container_bits // 8 if self.granularity else 0

    @property
    def sparsity_selectors(self) -> int:
        """Number n of valid sparsity selectors, which are 0 to n - 1.

        The metadata registers of a quad (four lanes) hold 32 nibbles for the two rows of A of the quad; the selector
        picks the lanes that are read. For tcgen05 with 8 chunks a row, PTX names four selectors, but public sources
        state only for the first two which columns of tensor memory are read.
        """
        return 16 // self.chunks if self.sparse else 1

    @property
    def threads(self) -> int:
        """Number of threads that hold the operands in registers: 32 for mma, 128 for wgmma, 0 for tcgen05."""
        return {"mma": 32, "wgmma": 128, "tcgen05": 0}[self.family]

    @property
    def span(self) -> int | None:
        """Number of logical columns along K that share one block scale, or None without block scaling."""
        return self.k // self.scale_size if self.scale_size else None

    @property
    def shape_and_types(self) -> str:
        """Shape and types, for example ``m128n8k32.f32.f16.f16``. For ``tcgen05`` they come from a descriptor."""
        scale_type = self.scale_format.name if self.scale_format else ""
        return dotted(self.shape, "satfinite" * self.satfinite, self.d.name, self.a.name, self.b.name, scale_type)

    def __str__(self) -> str:
        kind = f"kind::{self.kind}" if self.kind else ""
        scales = f"block_scale.scale_vec::{self.scale_size}X" if self.scale_size else ""
        if self.family == "tcgen05":
            # The PTX text of tcgen05 has neither shape nor types: they are in the instruction descriptor.
            return f"{dotted('tcgen05.mma', self.sparse, kind, scales)} ({self.shape_and_types})"
        is_mma = self.family == "mma"
        opcode = "mma" if is_mma else "wgmma.mma_async"
        words = opcode, self.sparse, "sync.aligned", self.shape, "row.col" * is_mma, kind, scales
        types = self.d.name, self.a.name, self.b.name, self.c.name * is_mma
        scale_type = self.scale_format.name if self.scale_format else ""
        return dotted(*words, "satfinite" * self.satfinite, *types, scale_type)


#: For each category of which an instruction has at most one qualifier, the pattern of its qualifiers.
_ONCE = {"sparse": "sp(::ordered_metadata)?", "shape": r"m\d+n\d+k\d+", "kind": "kind::.*",
         "scale_size": "scale_vec::.*"}  # fmt: skip
#: Qualifiers that the model does not support, although PTX has dense instructions with them.
_NOT_MODELLED = ("f64", "b1", "m8n8k4")
_QUALIFIERS = {
    "mma": ("sp", "sp::ordered_metadata", "sync", "aligned", "row", "col", "kind::…", "block_scale", "scale_vec::…",
            "satfinite"),
    "wgmma": ("mma_async", "sp", "sync", "aligned", "satfinite"),
}  # fmt: skip


@dataclass
class _Words:
    """Qualifiers of one instruction, sorted into categories such as shape and kind. Their order in PTX text is free."""

    text: str
    family: str
    flags: set[str] = field(default_factory=set)
    layouts: list[str] = field(default_factory=list)
    types: list[str] = field(default_factory=list)
    sparse: str = ""
    shape: str = ""
    kind: str = ""
    scale_size: str = ""

    @property
    def block_scale(self) -> bool:
        return "block_scale" in self.flags

    def take(self, name: str, value: str) -> None:
        if earlier := getattr(self, name):
            raise InstructionError(f"{self.text!r} has both '.{earlier}' and '.{value}'; only one of them is allowed")
        setattr(self, name, value)


def _sorted_words(text: str) -> _Words:
    """Sort the qualifiers of an instruction by category. Raise an error for an unknown opcode or qualifier."""
    family, *words = text.strip().removesuffix(";").rstrip().split(".")
    if family == "tcgen05":
        raise InstructionError(
            f"shape and types of {text!r} are in an instruction descriptor; call sptc.tcgen05_mma with this descriptor"
        )
    if family not in _QUALIFIERS:
        raise InstructionError(f"{family!r} in {text!r} is no known opcode; accepted are mma, wgmma and tcgen05")
    sorted_words = _Words(text, family)
    for word in words:
        if word in _NOT_MODELLED:
            raise InstructionError(
                f"'.{word}' in {text!r} is not modelled; mma and wgmma are modelled without .f64, .b1 and .m8n8k4"
            )
        if name := category(word, _ONCE):
            sorted_words.take(name, word)
        elif word in ("row", "col") and family == "mma":
            sorted_words.layouts.append(word)
        elif word in FORMATS:
            sorted_words.types.append(word)
        elif word in _QUALIFIERS[family]:
            if word in sorted_words.flags:
                raise InstructionError(f"'.{word}' appears twice in {text!r}; once is expected")
            sorted_words.flags.add(word)
        else:
            accepted = ", ".join(f".{qualifier}" for qualifier in _QUALIFIERS[family])
            types = ", ".join(f".{name}" for name in FORMATS)
            raise InstructionError(
                f"{'.' + word!r} in {text!r} is no part of {family}; accepted are the qualifiers {accepted}, "
                f"a shape such as .m16n8k32, and the types {types}"
            )
    return sorted_words


def _check_required(words: _Words) -> None:
    """Raise an error for the first missing qualifier among those that every instruction of the family requires."""
    family, text = words.family, words.text
    for word in ("mma_async", "sync", "aligned") if family == "wgmma" else ("sync", "aligned"):
        if word not in words.flags:
            raise InstructionError(f"'.{word}' is missing in {text!r}; {family} requires it")
    if family == "mma" and words.layouts != ["row", "col"]:
        written = f"'.{'.'.join(words.layouts)}'" if words.layouts else "no layout"
        raise InstructionError(f"{written} in {text!r} is not accepted; the layouts must be '.row.col'")
    if not words.shape:
        raise InstructionError(f"the shape is missing in {text!r}; expected one such as .m16n8k32")


def _check_block_scale(words: _Words, scaled: bool) -> None:
    """Raise an error if ``.block_scale`` is missing for a block-scaled kind, or is present for another kind."""
    if scaled and not words.block_scale:
        raise InstructionError(f"'.block_scale' is missing in {words.text!r}; '.{words.kind}' requires it")
    if (words.block_scale or words.scale_size) and not scaled:
        kinds = one_of(list(dict.fromkeys(f"'.kind::{row.kind}'" for row in VARIANTS if row.scales)))
        raise InstructionError(
            f"'.{'block_scale' if words.block_scale else words.scale_size}' in {words.text!r} is not accepted; "
            f"it belongs to {kinds}"
        )


def _operand_types(words: _Words) -> tuple[str, str, str, str, str]:
    """Return the types of A, B, C, D and the block scales. The scale type is empty without block scaling."""
    family, block_scale = words.family, words.block_scale
    counts = {"mma": 5 if block_scale else 4, "wgmma": 3}
    if len(words.types) != counts[family]:
        order = "dtype, atype, btype" + (", ctype" if family == "mma" else "") + (", stype" if block_scale else "")
        raise InstructionError(
            f"{words.text!r} has {len(words.types)} types ({' '.join(words.types) or 'none'}); {family} "
            f"{'with .block_scale ' if block_scale else ''}takes {counts[family]}: {order}"
        )
    d, a, b, *tail = words.types
    return a, b, tail[0] if family == "mma" else d, d, tail[1] if block_scale else ""


def _narrowed(
    rows: Sequence[Variant], text: str, part: str, value: object, accepted: Callable[[Variant], Sequence[object]]
) -> Sequence[Variant]:
    """Return the syntax variants that accept a qualifier. Raise an error if none accepts the qualifier."""
    if narrowed := [row for row in rows if value in accepted(row)]:
        return narrowed
    choices = list(dict.fromkeys(_spell(choice) for row in rows for choice in accepted(row)))
    raise InstructionError(f"{_spell(value)} in {text!r} is not accepted as {part}; expected {one_of(choices)}")


@parser
def parse(text: str) -> Instruction:
    """Parse the opcode and qualifiers of a PTX instruction. A missing ``.scale_vec`` gets its default value.

    For example ``mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32``. Types are in the order D, A,
    B, C, scale; the order of other qualifiers is free, as in the assembler. Raise an `InstructionError` if the text is
    not a supported instruction; the message names the wrong part and what is accepted there.
    """
    words = _sorted_words(text)
    _check_required(words)
    rows: Sequence[Variant] = [row for row in VARIANTS if row.family == words.family]
    rows = _narrowed(rows, text, "kind", words.kind, lambda row: [f"kind::{row.kind}" if row.kind else ""])
    _check_block_scale(words, scaled=bool(rows[0].scales))
    a, b, c, d, stype = _operand_types(words)
    rows = _narrowed(rows, text, "sparsity variant", words.sparse, lambda row: row.sparse)
    rows = _narrowed(rows, text, "atype", a, lambda row: [pair[0] for pair in row.pairs])
    rows = _narrowed(rows, text, "btype", b, lambda row: [pair[1] for pair in row.pairs if pair[0] == a])
    rows = _narrowed(rows, text, "shape", words.shape, lambda row: row.shapes)
    rows = _narrowed(rows, text, "dtype", d, lambda row: [pair[0] for pair in row.accumulators])
    (row,) = _narrowed(rows, text, "ctype", c, lambda row: [pair[1] for pair in row.accumulators if pair[0] == d])

    if "satfinite" in words.flags and not row.satfinite:
        raise InstructionError(f"'.satfinite' in {text!r} is not accepted; it belongs to the integer types")
    scale_size = _scale_size(row, words.scale_size, stype, text)
    scale = (scale_size, stype) if scale_size else None
    return _build(row, words.sparse, words.shape, (a, b), (d, c), scale, "satfinite" in words.flags)


def _build(
    row: Variant,
    sparse: str,
    shape: str,
    pair: tuple[str, str],
    accumulator: tuple[str, str],
    scale: tuple[int, str] | None,
    satfinite: bool,
) -> Instruction:
    m, n, k = (int(number) for number in re.findall(r"\d+", shape))
    return Instruction(
        family=row.family,
        sparse=sparse,
        m=m,
        n=n,
        k=k,
        a=FORMATS[pair[0]],
        b=FORMATS[pair[1]],
        c=FORMATS[accumulator[1]],
        d=FORMATS[accumulator[0]],
        kind=row.kind,
        satfinite=satfinite,
        scale_size=scale[0] if scale else None,
        scale_format=FORMATS[scale[1]] if scale else None,
        architectures=row.architectures,
    )


def _spell(value: object) -> str:
    return f"'.{value}'" if value else "nothing"


def one_of(choices: Sequence[str]) -> str:
    """Return accepted choices as text for a message: ``x, y or z``."""
    return choices[0] if len(choices) == 1 else f"{', '.join(choices[:-1])} or {choices[-1]}"


def _scale_size(row: Variant, word: str, stype: str, text: str) -> int | None:
    """Check ``.scale_vec`` and the scale type against one syntax variant of PTX. Return the number of block scales."""
    if not row.scales:
        return None
    kind = f"'.kind::{row.kind}'"
    if not word and row.default_scale_size is None:
        sizes = one_of([f"'.scale_vec::{size}X'" for size in sorted({size for size, _ in row.scales})])
        raise InstructionError(f"'.scale_vec' is missing in {text!r}; {kind} requires {sizes}")
    for size, name in row.scales:
        if name == stype and (word == f"scale_vec::{size}X" or (not word and size == row.default_scale_size)):
            return size
    combinations = one_of([f"'.scale_vec::{size}X' with '.{name}'" for size, name in row.scales])
    written = f"'.{word}' with '.{stype}'" if word else f"'.{stype}'"
    raise InstructionError(f"{written} in {text!r} is not accepted; {kind} takes {combinations}")


def instructions_of(row: Variant) -> Iterator[Instruction]:
    """Yield every instruction of one row of the syntax table :data:`VARIANTS`, with and without ``.satfinite``."""
    choices = product(
        row.sparse,
        row.shapes,
        row.pairs,
        row.accumulators,
        row.scales or (None,),
        (False, True) if row.satfinite else (False,),
    )
    return (_build(row, *choice) for choice in choices)


def every_instruction(family: str | None = None) -> Iterator[Instruction]:
    """Yield every modelled ``mma`` and ``wgmma`` instruction, or only those of one family."""
    for row in VARIANTS:
        if family in (None, row.family):
            yield from instructions_of(row)


def require_architecture(instruction: Instruction, arch: str) -> None:
    """Raise an `InstructionError` unless `arch` supports `instruction`. The message names architectures that do."""
    if not is_word_of(arch, ARCHITECTURES):
        raise InstructionError(
            f"{shown(arch)} is no known architecture; expected {one_of([*map(repr, ARCHITECTURES)])}"
        )
    if arch not in instruction.architectures:
        raise lacking(arch, instruction, instruction.architectures)


def lacking(name: str, instruction: Instruction, having: Sequence[str]) -> InstructionError:
    """Return the error for an instruction that a target does not support. The message names targets that support it."""
    verb = "has" if len(having) == 1 else "have"
    return InstructionError(f"{name} does not have {instruction}; {', '.join(having)} {verb} it")
