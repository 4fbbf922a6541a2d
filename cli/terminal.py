"""Output of commands on a terminal: a verdict in colour, and tables that fit the width of the terminal."""

import json
import os
import shutil
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import groupby
from typing import Any, TextIO

__all__ = ["FittedOutput", "SeparateReport", "listed", "print_result", "print_verdict"]

_GREEN, _RED, _PLAIN = "\033[32m", "\033[31m", "\033[0m"
#: Number of spaces before the lines on which a row of a table continues.
_INDENT = 4
#: Maximum number of names that a sentence lists.
_MOST_NAMES = 3


def listed(names: Sequence[str]) -> str:
    """Return the first names of a list and the number of further names as text, e.g. ``"a, b, c and 2 more"``."""
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more:,} more" if more > 0 else "")


def print_verdict(text: str, good: bool) -> None:
    """Print the verdict of a command: the first line in green or red on a terminal, unless ``NO_COLOR`` is set."""
    first, *others = text.split("\n")
    if sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb":
        first = f"{_GREEN if good else _RED}{first}{_PLAIN}"
    print("\n".join([first, *others]))


def print_result(
    options: Namespace, values: object, text: object, *, good: bool | None = None, indent: int | None = 1
) -> int:
    """Print the result of a command and return its exit status.

    `values` and `text` are the result as JSON values and as text, or functions that return them; option `json` chooses
    one. `good` states whether a command that compares succeeded; the first line of the text is then its verdict.
    `indent` is the indent of the JSON text; None prints it as one line.
    """
    if options.json:
        print(json.dumps(values() if callable(values) else values, indent=indent, default=asdict))
    elif good is None:
        print(text() if callable(text) else text)
    else:
        print_verdict(str(text() if callable(text) else text), good)
    return int(good is False)


class SeparateReport:
    """Standard output of a command that writes a file to it: `buffer` takes the file; text goes to standard error.

    Text is lost if standard error cannot be written; the file and the exit status stay the same.
    """

    def __init__(self, stream: TextIO) -> None:
        self.buffer = stream.buffer

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stderr, name)

    def write(self, text: str) -> int:
        """Write a text to standard error."""
        with suppress(OSError):
            sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush standard error."""
        with suppress(OSError):
            sys.stderr.flush()


class FittedOutput:
    """Standard output on a terminal: tables in each written text are fitted to the width of the terminal.

    A row that is too long continues on indented lines. All rows of a table are cut at the same columns. The terminal
    itself wraps other lines, so that commands in messages can be copied.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write a text, with its tables fitted to the width of the terminal."""
        width = shutil.get_terminal_size().columns
        groups = groupby(text.split("\n"), key=lambda line: "  " in line.strip())
        lines = (line for is_table, rows in groups for line in (_fitted([*rows], width) if is_table else rows))
        return self._stream.write("\n".join(lines))


def _fitted(rows: list[str], width: int) -> Iterator[str]:
    """Yield the rows of a table; rows longer than `width` characters are cut between columns into several lines."""
    longest = max(map(len, rows))
    if longest <= width or len(rows) == 1:
        yield from rows
        return
    blank = [all(row[place : place + 1] in ("", " ") for row in rows) for place in range(longest)]
    starts = [place for place in range(1, longest) if blank[place - 1] and not blank[place]]
    ends = [place for place in range(1, longest) if blank[place] and not blank[place - 1]] + [longest]
    cuts, room = [0], width
    for start, end in zip(starts, ends[-len(starts) :], strict=True):
        if end - cuts[-1] > room:
            cuts.append(start)
            room = width - _INDENT
    for row in rows:
        parts = [row[first:last].rstrip() for first, last in zip(cuts, [*cuts[1:], None], strict=True)]
        yield parts[0]
        yield from (f"{'':{_INDENT}}{part}" for part in parts[1:] if part)
