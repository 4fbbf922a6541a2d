"""Names of tensor-core instructions in machine code (SASS), and the PTX instructions that they implement.

Measured: each instruction of this package was assembled alone by ptxas and read back by nvdisasm, both of CUDA 13.5
(`tests/isa/sass.csv`). The SASS name of a ``tcgen05.mma`` contains neither shape, types nor sparsity, which are in the
instruction descriptor.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache

from ..errors import InstructionError
from .instructions import Instruction, every_instruction
from .numerics import Method, numerics
from .tcgen05 import Opcode, every_opcode
from .text import dotted, is_word_of

__all__ = ["SOURCE", "Implementation", "implementations", "sass_name", "sass_of", "sass_of_opcode"]

SOURCE = "measured: ptxas and nvdisasm of CUDA 13.5, on every instruction of this package"
_NAME = re.compile(r"(?<![\w.])(?:UTC[HIQO]MMA|[HIQO]G?MMA)(?:\.[A-Z0-9][A-Z0-9x_]*)*(?![\w.])")
_NOT_MODELLED = {"DMMA": "f64", "BMMA": "b1", "DGMMA": "f64", "BGMMA": "b1"}
#: Architectures that execute an ``mma`` with eight rows by a machine instruction with sixteen rows.
_SIXTEEN_ROWS = ("sm_100", "sm_120")
#: Architectures without machine instructions for 4-bit integers.
_EIGHT_BITS = ("sm_90", "sm_100", "sm_120")


@dataclass(frozen=True)
class Implementation:
    """PTX instruction that a machine instruction implements."""

    sass: str  #: SASS name of the machine instruction
    instruction: str  #: PTX text of the instruction; for ``tcgen05``, its opcode
    #: Number of machine instructions with this name that execute one PTX instruction.
    count: int
    architectures: tuple[str, ...]


def sass_of(i: Instruction, arch: str) -> tuple[str, int]:
    """Return the name of the SASS instruction that executes an ``mma`` or ``wgmma``, and how many of them it takes.

    An ``mma`` that the architecture emulates takes two machine instructions: f16 instructions for fp8, or 8-bit
    instructions for 4-bit integers. Further machine instructions, which are not counted, convert operands and add
    results. The architecture must have the PTX instruction.
    """
    if i.family == "wgmma":
        return dotted(f"{_letter(i)}GMMA", "SP" * bool(i.sparse), f"{i.m}x{i.n}x{i.k}", *_types(i)), 1
    m, k, letter, count, types = i.m, i.k, _letter(i), 1, _types(i)
    if numerics(i, arch).method is Method.EMULATED:
        letter, k, count, types = "H", k // 2, 2, [i.d.name.upper()]
    elif i.a.is_integer and i.a.bits == 4 and arch in _EIGHT_BITS:
        k, count, types = k // 2, 2, [f"{fmt.name[0].upper()}8" for fmt in (i.a, i.b)]
    if arch in _SIXTEEN_ROWS:
        m = 16
    flags = "SF" * bool(i.scale_size), "SP" * bool(i.sparse)
    return dotted(f"{letter}MMA", *flags, f"{m}{i.n}{k}", *types), count


def _letter(i: Instruction) -> str:
    if i.a.is_integer:
        return "I"
    return {4: "O", 8: "Q"}.get(i.container_bits, "H")


def _types(i: Instruction) -> list[str]:
    """Return types, saturation and block scales as qualifiers of the SASS name. Type f16 of A and B is omitted."""
    if i.a.is_integer:
        return [i.a.name.upper(), i.b.name.upper(), *(["SAT"] if i.satfinite else [])]
    words = [i.d.name.upper()]
    if i.container_bits <= 8:
        words += [i.a.name.upper(), i.b.name.upper()]
    elif i.a.name != "f16":
        words.append(i.a.name.upper())
    if i.scale_format:
        words.append("E8" if i.scale_format.name == "ue8m0" else i.scale_format.name.upper())
    return words + (["4X"] if i.scale_size == 4 else [])


def sass_of_opcode(opcode: Opcode) -> str:
    """Return the name of the machine instruction (SASS) of a ``tcgen05.mma``. The name omits ``.collector``."""
    letter = {"i8": "I", "f16": "H", "tf32": "H"}.get(opcode.kind, "O" if "mxf4" in opcode.kind else "Q")
    words = f"UTC{letter}MMA", "WS" * opcode.weight_stationary, "2CTA" * (opcode.cta_group == 2)
    return dotted(*words, "4X" * (opcode.scale_size == 4), "ASHIFT" * opcode.shifts_a)


@cache
def _table() -> dict[str, tuple[Implementation, ...]]:
    """Return the PTX instructions that each machine instruction implements. The keys are SASS names."""
    places: dict[tuple[str, str, int], list[str]] = {}
    for i in every_instruction():
        for arch in i.architectures:
            name, count = sass_of(i, arch)
            places.setdefault((name, str(i), count), []).append(arch)
    for opcode in every_opcode():
        places[sass_of_opcode(opcode), str(opcode), 1] = ["sm_100"]
    table: dict[str, list[Implementation]] = {}
    for (name, text, count), architectures in places.items():
        table.setdefault(name, []).append(Implementation(name, text, count, tuple(architectures)))
    return {name: tuple(sorted(every, key=lambda one: one.count)) for name, every in table.items()}


def sass_name(text: str) -> str | None:
    """Return the first SASS name of a tensor-core instruction in a text, such as a disassembly, or None.

    Raise an `InstructionError` if the text names an instruction whose types are not modelled.
    """
    if other := re.search(rf"(?<![\w.])({'|'.join(_NOT_MODELLED)})(?![a-z])", text):
        raise InstructionError(f"{other[1]} multiplies .{_NOT_MODELLED[other[1]]}, which is not modelled")
    match = _NAME.search(text)
    return match[0] if match else None


def implementations(name: str) -> Iterator[Implementation]:
    """Yield the PTX instructions that a SASS name implements. Qualifiers other than types may have any order.

    An incomplete name stands for all SASS names that have its qualifiers. Raise an `InstructionError` if no instruction
    has this name; the message has the nearest name.
    """
    table = _table()
    if is_word_of(name, table):
        yield from table[name]
        return
    mnemonic, *words = name.split(".")
    having = {other: other.split(".") for other in table if other.split(".")[0] == mnemonic}
    names = [other for other, others in having.items() if Counter(words) <= Counter(others[1:])]
    same = [other for other in names if Counter(having[other][1:]) == Counter(words)]
    if not names:
        near = get_close_matches(name, table, 1)
        hint = f"; the nearest name is {near[0]}" if near else ""
        raise InstructionError(f"{name} executes no modelled PTX instruction{hint}")
    for other in same or names:
        yield from table[other]
