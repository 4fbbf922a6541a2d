"""Argument types that several subcommands share."""

import argparse
from collections.abc import Callable

from ..errors import shown
from ..isa.architectures import TARGETS

__all__ = ["architecture", "integer", "number", "processes", "seconds", "split"]

#: Upper bounds. Semaphores and numpy seeds take at most a C integer.
_MOST_PROCESSES, _LARGEST = 1024, (1 << 63) - 1
_DIGITS = 30
#: Upper bounds of K tiles in a slice and of slices, above those of any matrix.
_MOST_TILES, _MOST_SLICES = 1 << 24, 4096


def architecture(word: str) -> str:
    """Parse an architecture or an assembler target; return the architecture whose numerics it has."""
    if word not in TARGETS:
        raise argparse.ArgumentTypeError(f"{word!r} is no known architecture; expected {', '.join(TARGETS)}")
    return TARGETS[word].arch


def integer(least: int, most: int = _LARGEST) -> Callable[[str], int]:
    """Return an argument type for integers from `least` to `most`."""

    def read(word: str) -> int:
        # Python refuses to parse thousands of digits. A truncated number is still above any bound.
        value = int(word[:_DIGITS]) if word.removeprefix("-").isdecimal() else least - 1
        if value < least:
            raise argparse.ArgumentTypeError(f"must be an integer of {least} or more, not {shown(word)}")
        if value > most:
            raise argparse.ArgumentTypeError(f"must be an integer of at most {most}, not {shown(word)}")
        return value

    return read


#: Argument type: a number of processes.
processes = integer(1, _MOST_PROCESSES)


def number(word: str) -> float:
    """Parse a finite number."""
    try:
        value = float(word)
    except ValueError:
        value = float("nan")
    if not abs(value) < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number, not {shown(word)}")
    return value


def split(word: str) -> int | tuple[int, ...]:
    """Parse a number of slices, or a comma-separated list with the number of K tiles of each slice."""
    first, *others = (integer(1, _MOST_TILES)(part) for part in word.split(",", _MOST_SLICES))
    return (first, *others) if others else first


def seconds(word: str) -> float:
    """Parse a positive time in seconds."""
    try:
        value = float(word)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number above 0, not {word!r}")
    return value
