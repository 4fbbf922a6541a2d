"""Search for instructions by some of their words."""

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache

from ..errors import InstructionError
from ..isa.instructions import every_instruction
from ..isa.tcgen05 import every_opcode, instructions_of
from .pack_files import Subject, subject_named

__all__ = ["has_words", "subject_of_words", "words_of"]


def words_of(text: str) -> Counter[str]:
    """Return the search words of an instruction: its qualifiers and, for those with ``::``, also their parts."""
    words = [word for word in re.split(r"[.\s()]+", text) if word]
    parts = [part for word in words if "::" in word for part in word.split("::")]
    return Counter([*words, *parts])


def has_words(name: str, wanted: Counter[str]) -> bool:
    """Return whether an instruction has all the words, as often as `wanted` counts them."""
    return wanted <= words_of(name)


@cache
def _every_name() -> dict[str, Counter[str]]:
    """Return the words of every instruction, by its name."""
    names = [str(i) for i in every_instruction()]
    names += [f"{opcode} ({i.shape_and_types})" for opcode in every_opcode() for i in instructions_of(opcode)]
    return {name: words_of(name) for name in names}


def _matching(text: str) -> Iterator[str]:
    wanted = Counter(word for word in re.split(r"[.\s()]+", text) if word)
    return (name for name, words in _every_name().items() if wanted <= words)


def subject_of_words(text: str) -> tuple[Subject | None, list[str]]:
    """Return the instruction that has the given words, or the names of all that have them.

    Parameters
    ----------
    text : str
        Complete name, as for :func:`~sptc.verify.pack_files.subject_named`, or some of its words in any order.

    Returns
    -------
    Subject or None
        The only instruction with these words; None if there are several.
    list of str
        Names of these several instructions.

    Raises
    ------
    InstructionError
        No instruction has the words, and the text is no name either.
    """
    try:
        return subject_named(text), []
    except InstructionError as error:
        whole = "." in text and len(text.split()) == 1  # for an almost correct name, the parser's error says more
        candidates = [] if whole or not text.strip() else list(_matching(text))
        if not candidates:
            raise error from None
    return (subject_named(candidates[0]), []) if len(candidates) == 1 else (None, candidates)
