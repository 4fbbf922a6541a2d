"""What the model of an instruction rests on, and in which file that can be looked up."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any

import numpy as np

from ..errors import InstructionError, shown
from .instructions import Instruction, one_of, require_architecture
from .text import is_word_of

__all__ = ["Evidence", "Form", "Source", "evidence", "form_of", "forms_of", "sources", "weakest"]


class Evidence(Enum):
    """What the model of an instruction rests on, best first."""

    RECORDED = "recorded"
    MEASURED = "measured"
    RECORDED_ELSEWHERE = "recorded elsewhere"
    MODELLED = "modelled"

    @property
    def meaning(self) -> str:
        """The label in one sentence."""
        return _MEANINGS[self]


_MEANINGS = {
    Evidence.RECORDED: "register files of this very form, recorded on that GPU, ship and are reproduced in every bit",
    Evidence.MEASURED: "a campaign, whose record ships, compared this form with that GPU in every bit",
    Evidence.RECORDED_ELSEWHERE: "dense dot products of it that others recorded on that architecture ship and are "
    "reproduced in every bit",
    Evidence.MODELLED: "published models of the dense instruction behind a multiplexer, compared with no GPU here",
}


@dataclass(frozen=True)
class Form:
    """What evidence is of.

    Attributes
    ----------
    instruction : str
        Its text.
    arch : str
        The architecture it ran on.
    a_from : str
        ``"shared"`` where a descriptor led to A, ``"registers"`` otherwise.
    """

    instruction: str
    arch: str
    a_from: str = "registers"


@dataclass(frozen=True)
class Source:
    """A file that evidence rests on.

    Attributes
    ----------
    level : Evidence
        What it shows.
    file : str
        Its path in the folder of recordings.
    """

    level: Evidence
    file: str


def form_of(instruction: Instruction, arch: str, a_from: str | None) -> Form:
    """Return a form; `a_from` is None where it makes no difference."""
    return Form(str(instruction), arch, a_from or "registers")


def forms_of(instruction: Instruction, arch: str) -> tuple[Form, ...]:
    """Return the forms of an instruction: of ``wgmma`` two, by where A is."""
    places = ("registers", "shared") if instruction.family == "wgmma" else ("registers",)
    return tuple(Form(str(instruction), arch, place) for place in places)


def sources(form: Form) -> tuple[Source, ...]:
    """Return every file that shows something of a form, the best first; none of what is modelled."""
    return _sources().get(form, ())


def evidence(instruction: Instruction, arch: str, a_from: str | None = None) -> Evidence:
    """Say what the model of an instruction rests on.

    Parameters
    ----------
    instruction : Instruction
        Any.
    arch : str
        Architecture.
    a_from : str, optional
        ``"registers"`` or ``"shared"``: of that form alone. Otherwise the weakest of all its forms counts.

    Raises
    ------
    InstructionError
        The architecture does not have the instruction, or the instruction no such form.
    """
    require_architecture(instruction, arch)
    forms = forms_of(instruction, arch)
    if a_from is not None:
        known = [form.a_from for form in forms]
        if not is_word_of(a_from, known):
            raise InstructionError(f"A of {instruction} is in {one_of(known)}, not in {shown(a_from)}")
        forms = tuple(form for form in forms if form.a_from == a_from)
    return weakest(found[0].level if (found := sources(form)) else Evidence.MODELLED for form in forms)


def weakest(levels: Iterable[Evidence]) -> Evidence:
    """Return the weakest of some levels."""
    return max(levels, key=list(Evidence).index)


@lru_cache(maxsize=1)
def _sources() -> dict[Form, tuple[Source, ...]]:
    """Return the files of every form of which there is one."""
    found: dict[Form, list[Source]] = {}
    for form, source in (*_recorded(), *_measured(), *_recorded_elsewhere()):
        if source not in found.setdefault(form, []):
            found[form].append(source)
    return {form: tuple(files) for form, files in found.items()}


def _folder() -> Any:
    from importlib import resources  # here, as gzip below, because `import sptc` needs neither

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
    name = "elsewhere/dot_products.npz"
    with (_folder() / name).open("rb") as file, np.load(file) as archive:
        sets = json.loads(str(archive["sets"]))
    for row in sets:
        yield Form(row["instruction"], row["arch"]), Source(Evidence.RECORDED_ELSEWHERE, name)
