"""Input checks and a cache of results, shared by all parsers of instruction text."""

import re
from collections.abc import Callable, Container, Mapping
from functools import lru_cache, wraps
from typing import Any, TypeVar

import numpy as np

from ..errors import InstructionError

__all__ = ["category", "dotted", "is_word_of", "parser"]

#: Maximum length of instruction text in characters, since error messages quote the text. Every instruction is much
#: shorter.
_LONGEST_TEXT = 400

Parsed = TypeVar("Parsed")


def parser(parse: Callable[[str], Parsed]) -> Callable[[str], Parsed]:
    """Wrap a parser with checks of its text and a cache. A 0-dimensional numpy array of a string is accepted as text.

    A call raises an `InstructionError` if the argument is not text, is too long, or has unprintable characters.
    """
    kept = lru_cache(maxsize=1024)(parse)

    @wraps(parse)
    def parsed(text: str) -> Parsed:
        plain: Any = text.item() if isinstance(text, np.ndarray) and not text.ndim else text
        if not isinstance(plain, str):
            raise InstructionError(f"an instruction must be a string, not {type(text).__name__}")
        if len(plain) > _LONGEST_TEXT:
            raise InstructionError(f"an instruction has at most {_LONGEST_TEXT} characters, not {len(plain)}")
        if not plain.strip().isprintable():
            raise InstructionError(f"an instruction is a line of printable characters, not {plain!r}")
        try:
            return kept(plain)
        except InstructionError as error:
            error.text = plain
            raise

    return parsed


def is_word_of(value: object, accepted: Container[str]) -> bool:
    """Return whether a value of any type is a string and one of the accepted words."""
    return isinstance(value, str) and value in accepted


def dotted(*words: str) -> str:
    """Join qualifiers by dots, except those that are empty."""
    return ".".join(filter(None, words))


def category(word: str, patterns: Mapping[str, str]) -> str:
    """Return the first category whose pattern matches a whole qualifier, or an empty string."""
    return next((name for name, pattern in patterns.items() if re.fullmatch(pattern, word)), "")
