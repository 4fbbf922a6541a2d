"""What every parser of instruction text has in common: what is no text is refused, and results are kept.

And how a message shows a value that came instead of the one that was wanted.
"""

import reprlib
from collections.abc import Callable, Container
from functools import lru_cache, wraps
from typing import Any, TypeVar

import numpy as np

from ..errors import InstructionError

__all__ = ["is_word_of", "parser", "shown"]

#: No instruction is nearly as long; a message repeats the text.
_LONGEST_TEXT = 400
_LONGEST_VALUE = 100
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = _LONGEST_VALUE // 2

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


def shown(value: object) -> str:
    """Return a value, whatever it is, as a message shows it: in one short line."""
    try:
        text = _SHORT.repr(value)
    except Exception:  # of an object that cannot show itself, or an integer of too many digits
        return f"a value of type {type(value).__name__}"
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_VALUE else f"{line[:_LONGEST_VALUE]}..."
