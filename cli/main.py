"""``sptc``: dispatch to the subcommands, with exit statuses 0, 1 (mismatch) and 2 (bad input)."""

import argparse
import io
import os
import re
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from typing import NoReturn

from .. import __version__
from ..errors import Error
from . import (
    area,
    campaign,
    completion,
    compress,
    coverage,
    draw,
    energy,
    explain,
    fusesoc,
    gemm,
    gpu,
    hardware,
    html_report,
    identify,
    instructions,
    judge,
    kernel,
    native,
    pack,
    prove,
    run,
    sweep,
    timing,
    trace,
    vectors,
)
from .examples import add_examples

__all__ = ["command_parser", "main"]


class _Parser(argparse.ArgumentParser):
    """Argument parser that prints errors as one line, without the usage block."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {_in_one_line(message + _hint(message))}\n")


def _hint(message: str) -> str:
    """Return a hint with the closest choice if `message` reports an invalid one, else an empty string."""
    match = re.search(r"invalid choice: '(.*)' \(choose from (.*)\)$", message)
    if not match:
        return ""
    choices = [choice.strip("'") for choice in match.group(2).split(", ")]
    near = get_close_matches(match.group(1), choices, 1)
    return f"; did you mean {near[0]}?" if near else ""


#: Characters after which a message is truncated.
_LONGEST = 2_000


def _can_be_passed(word: str) -> bool:
    try:
        return b"\0" not in os.fsencode(word)
    except UnicodeEncodeError:
        return False


def _in_one_line(message: object) -> str:
    """Return a message as one line of limited length, with control characters and lone surrogates escaped."""
    text = str(message)
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}..."
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def command_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line with all commands."""
    parser = _Parser(
        prog="sptc", description="Bit-exact models of sparse tensor cores, checked against recordings of real GPUs."
    )
    parser.add_argument("--version", action="version", version=f"sptc {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run.add_parser(commands)
    campaign.add_parser(commands)
    instructions.add_parser(commands)
    explain.add_parser(commands)
    hardware.add_parsers(commands)
    draw.add_parser(commands)
    energy.add_parser(commands)
    fusesoc.add_parser(commands)
    coverage.add_parser(commands)
    html_report.add_parser(commands)
    prove.add_parser(commands)
    area.add_parser(commands)
    sweep.add_parser(commands)
    compress.add_parser(commands)
    gemm.add_parser(commands)
    identify.add_parser(commands)
    kernel.add_parser(commands)
    gpu.add_parser(commands)
    native.add_parser(commands)
    timing.add_parser(commands)
    trace.add_parser(commands)
    vectors.add_parser(commands)
    pack.add_parser(commands)
    judge.add_parser(commands)
    completion.add_parser(commands, parser)
    add_examples(parser)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    arguments : sequence of str, optional
        Words after the program's name (default: ``sys.argv[1:]``).

    Returns
    -------
    int
        Exit status: 0 all results agree, 1 a mismatch, 2 bad input, 130 interrupted.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # file names may hold bytes that are not text
    parser = command_parser()
    if word := next((word for word in arguments or () if not _can_be_passed(word)), None):
        parser.error(f"{word!r}: an argument cannot hold a NUL or a surrogate that stands for no byte")
    if not (sys.argv[1:] if arguments is None else arguments):
        parser.print_help()
        return 0
    options = parser.parse_args(arguments)
    try:
        return int(options.execute(options))
    except Error as error:
        print(f"sptc {options.command}: {_in_one_line(error)}", file=sys.stderr)
        return 2
    except MemoryError as error:
        amount = f" ({_in_one_line(error)})" if str(error) else ""
        print(f"sptc {options.command}: there is not enough memory{amount}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        sys.stderr.close()
        return 1
    except KeyboardInterrupt:
        print(f"sptc {options.command}: interrupted", file=sys.stderr)
        return 130
