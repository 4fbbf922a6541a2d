"""What every parser of instruction text has in common: what is no text is refused, and results are kept."""

from collections.abc import Callable, Container
from functools import lru_cache, wraps
from typing import Any, TypeVar

import numpy as np

from ..errors import InstructionError

__all__ = ["is_word_of", "parser"]

#: No instruction is nearly as long; a message repeats the text.
_LONGEST_TEXT = 400

Parsed = TypeVar("Parsed")


def parser(parse: Callable[[str], Parsed]) -> Callable[[str], Parsed]:
    """Wrap a function of an instruction's text; a 0-d array of numpy with a string is text as well.

    Raises
    ------
    InstructionError
        When called, with what is neither.
    """
    kept = lru_cache(maxsize=1024)(parse)

    @wraps(parse)
    def parsed(text: str) -> Parsed:
        plain: Any = text.item() if isinstance(text, np.ndarray) and not text.ndim else text
        if not isinstance(plain, str):
            raise InstructionError(f"an instruction must be a string, not {type(text).__name__}.")
        if len(plain) > _LONGEST_TEXT:
            raise InstructionError(f"an instruction has at most {_LONGEST_TEXT} characters, not {len(plain)}.")
        if not plain.strip().isprintable():
            raise InstructionError(f"an instruction is a line of printable characters, not {plain!r}.")
        return kept(plain)

    return parsed


def is_word_of(value: object, accepted: Container[str]) -> bool:
    """Return whether a value is one of the accepted words; an array or a list is none."""
    return isinstance(value, str) and value in accepted
