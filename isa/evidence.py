"""Evidence for the model of each instruction: its level, and the files with recordings or published results."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from typing import Any

import numpy as np

from ..errors import InstructionError, shown
from .architectures import require_target, target_named
from .instructions import Instruction, one_of
from .tcgen05 import Opcode, parse_shaped
from .text import is_word_of

__all__ = ["Evidence", "Form", "Source", "evidence", "form_of", "forms_of", "sources", "weakest"]


class Evidence(Enum):
    """Level of evidence that the model of an instruction is bit-exact, strongest first."""

    RECORDED = "recorded"
    MEASURED = "measured"
    RECORDED_ELSEWHERE = "recorded elsewhere"
    SPOT_CHECKED_ELSEWHERE = "spot-checked elsewhere"
    MODELLED = "modelled"

    @property
    def meaning(self) -> str:
        """One sentence on this level of evidence: with which GPU results, if any, the model was compared."""
        return _MEANINGS[self]


_MEANINGS = {
    Evidence.RECORDED: "the models reproduce every bit of register files of the instruction that were recorded on a "
    "GPU of the architecture",
    Evidence.MEASURED: "the models gave the same bits as a GPU of the architecture in a campaign of random tests, "
    "whose record ships with the package",
    Evidence.RECORDED_ELSEWHERE: "the models reproduce dense dot products of the instruction that others recorded on "
    "a GPU of the architecture",
    Evidence.SPOT_CHECKED_ELSEWHERE: "the models reproduce one to eight result words of the instruction that others "
    "recorded on a GPU of the architecture",
    Evidence.MODELLED: "the instruction follows published models of the dense instruction, and was not compared with "
    "a GPU",
}


@dataclass(frozen=True)
class Form:
    """Combination of instruction, architecture and location of A to which evidence refers."""

    #: PTX text of the instruction. For ``tcgen05``, the text is the opcode with K and types in brackets, since M and N
    #: only affect where operands are stored.
    instruction: str
    arch: str  #: Architecture of the GPU that executed the instruction
    #: Location of A: ``"shared"`` if A was read through a shared-memory descriptor, ``"registers"`` otherwise.
    a_from: str = "registers"


@dataclass(frozen=True)
class Source:
    """File of recordings or published results, with the level of evidence that it gives for an instruction's model."""

    level: Evidence  #: Level of evidence that the results in the file give for the instruction
    file: str  #: Path of the file of results, relative to ``recordings/``


def form_of(instruction: Instruction, arch: str, a_from: str | None, opcode: Opcode | None = None) -> Form:
    """Return instruction, architecture and location of A, the key for evidence. If `a_from` is None, A is in registers.

    Without `opcode`, the key of a ``tcgen05`` instruction stands for all its opcodes, and no file has evidence for this
    key.
    """
    text = str(instruction)
    if opcode:
        types = instruction.shape_and_types.replace(f"m{instruction.m}n{instruction.n}", "")
        scale = f"scale_vec::{opcode.scale_size}X" if opcode.scale_size else ""
        text = f"{replace(opcode, collector='', scale_word=scale)} ({types})"
    return Form(text, arch, a_from or "registers")


def forms_of(instruction: Instruction, arch: str, opcode: Opcode | None = None) -> tuple[Form, ...]:
    """Return the keys of an instruction's recorded evidence: one per location of A for ``wgmma``, else one."""
    places = ("registers", "shared") if instruction.family == "wgmma" else ("registers",)
    return tuple(form_of(instruction, arch, place, opcode) for place in places)


def sources(form: Form) -> tuple[Source, ...]:
    """Return the files of GPU results for an instruction on an architecture (maybe none), strongest evidence first."""
    return _sources().get(form, ())


def evidence(instruction: Instruction, arch: str, a_from: str | None = None, opcode: Opcode | None = None) -> Evidence:
    """Return the level of evidence for the model of an instruction on an architecture or PTX target.

    `a_from` is the location of A, ``"registers"`` or ``"shared"``, and `opcode` the opcode of a ``tcgen05``
    instruction. Without them, the level is the weakest of all locations and opcodes. Raise an `InstructionError` if the
    architecture does not have the instruction, or the instruction cannot read A from `a_from`.
    """
    forms = forms_of(instruction, require_target(instruction, arch), opcode)
    if a_from is not None:
        known = [form.a_from for form in forms]
        if not is_word_of(a_from, known):
            raise InstructionError(f"operand A of {instruction} is in {one_of(known)}, not in {shown(a_from)}")
        forms = tuple(form for form in forms if form.a_from == a_from)
    if not target_named(arch).same_chip:
        return Evidence.MODELLED
    return weakest(files[0].level if (files := sources(form)) else Evidence.MODELLED for form in forms)


def weakest(levels: Iterable[Evidence]) -> Evidence:
    """Return the weakest of several levels of evidence."""
    return max(levels, key=list(Evidence).index)


@lru_cache(maxsize=1)
def _sources() -> dict[Form, tuple[Source, ...]]:
    """Return the files of GPU results per instruction, architecture and location of A, strongest evidence first."""
    by_form: dict[Form, list[Source]] = {}
    for form, source in (*_recorded(), *_measured(), *_recorded_elsewhere()):
        if source not in by_form.setdefault(form, []):
            by_form[form].append(source)
    return {form: tuple(files) for form, files in by_form.items()}


def _folder() -> Any:
    from importlib import resources  # imported only here, because `import sptc` must be fast

    return resources.files("sptc") / "recordings"


def _recorded() -> Iterator[tuple[Form, Source]]:
    for arch, places in json.loads((_folder() / "manifest.json").read_text("utf-8")).items():
        for a_from, files in places.items():
            for file, instruction in files.items():
                yield Form(instruction, arch, a_from), Source(Evidence.RECORDED, file)


def _measured() -> Iterator[tuple[Form, Source]]:
    import gzip

    for path in sorted((_folder() / "campaigns").iterdir(), key=lambda path: path.name):
        if path.name.endswith(".json.gz"):
            record = json.loads(gzip.decompress(path.read_bytes()))
            for instruction, places in record["instructions"].items():
                for a_from, counts in places.items():
                    if counts["mismatches"] == 0 < counts["outputs"]:
                        source = Source(Evidence.MEASURED, f"campaigns/{path.name}")
                        yield Form(instruction, record["arch"], a_from), source


def _recorded_elsewhere() -> Iterator[tuple[Form, Source]]:
    for name, level in (
        ("elsewhere/dot_products.npz", Evidence.RECORDED_ELSEWHERE),
        ("elsewhere/words.npz", Evidence.SPOT_CHECKED_ELSEWHERE),
    ):
        with (_folder() / name).open("rb") as file, np.load(file) as archive:
            sets = json.loads(str(archive["sets"]))
        for row in sets:
            text, arch = row["instruction"], row["arch"]
            form = Form(text, arch)
            if text.startswith("tcgen05."):
                opcode, instruction = parse_shaped(text)
                form = form_of(instruction, arch, None, opcode)
            if "too_weak" not in row:
                yield form, Source(level, name)
