"""Values of options that several subcommands read."""

import argparse
from collections.abc import Callable

from ..errors import shown
from ..isa.architectures import TARGETS

__all__ = ["architecture", "integer", "number", "processes", "seconds", "split"]

#: Beyond any machine; semaphores and seeds of numpy take no more than a C integer.
_MOST_PROCESSES, _LARGEST = 1024, (1 << 63) - 1
_DIGITS = 30
#: More than K of any matrix has.
_MOST_TILES, _MOST_SLICES = 1 << 24, 4096


def architecture(word: str) -> str:
    """Read an architecture or one of the assembler's targets; return whose numerics it has."""
    if word not in TARGETS:
        raise argparse.ArgumentTypeError(f"{word!r} is no known architecture; expected {', '.join(TARGETS)}")
    return TARGETS[word].arch


def integer(least: int, most: int = _LARGEST) -> Callable[[str], int]:
    """Return a reader of integers from `least` to `most`."""

    def read(word: str) -> int:
        # Python refuses to read thousands of digits; what is cut short here stays beyond any bound.
        value = int(word[:_DIGITS]) if word.removeprefix("-").isdecimal() else least - 1
        if value < least:
            raise argparse.ArgumentTypeError(f"must be an integer of {least} or more, not {shown(word)}")
        if value > most:
            raise argparse.ArgumentTypeError(f"must be an integer of at most {most}, not {shown(word)}")
        return value

    return read


#: Reads a number of processes.
processes = integer(1, _MOST_PROCESSES)


def number(word: str) -> float:
    """Read a finite number."""
    try:
        value = float(word)
    except ValueError:
        value = float("nan")
    if not abs(value) < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number, not {shown(word)}")
    return value


def split(word: str) -> int | tuple[int, ...]:
    """Read a number of slices, or how many tiles each of them takes, with commas between."""
    first, *others = (integer(1, _MOST_TILES)(part) for part in word.split(",", _MOST_SLICES))
    return (first, *others) if others else first


def seconds(word: str) -> float:
    """Read a time."""
    try:
        value = float(word)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number above 0, not {word!r}")
    return value
