"""Values of options that several subcommands read."""

import argparse
from collections.abc import Callable

from ..isa.architectures import TARGETS

__all__ = ["architecture", "integer", "seconds"]


def architecture(word: str) -> str:
    """Read an architecture or one of the assembler's targets; return whose numerics it has."""
    if word not in TARGETS:
        raise argparse.ArgumentTypeError(f"{word!r} is no known architecture; expected {', '.join(TARGETS)}")
    return TARGETS[word].arch


def integer(least: int) -> Callable[[str], int]:
    """Return a reader of integers that are not below `least`."""

    def read(word: str) -> int:
        if not word.removeprefix("-").isdecimal() or int(word) < least:
            raise argparse.ArgumentTypeError(f"must be an integer of {least} or more, not {word!r}")
        return int(word)

    return read


def seconds(word: str) -> float:
    """Read a time."""
    try:
        value = float(word)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number above 0, not {word!r}")
    return value
