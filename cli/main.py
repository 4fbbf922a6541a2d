"""``sptc``: run the subcommand on the command line; exit status 0, 1 (mismatch), 2 (bad input) or 70 (defect)."""

import argparse
import errno
import io
import os
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout, suppress
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from pathlib import Path
from stat import S_ISREG
from typing import Any, NoReturn, TextIO, cast

from .. import __version__
from ..errors import Error, InstructionError
from ..infra.escapes import one_line
from ..infra.files import STANDARD_OUTPUT, mode_of, require_writable
from .examples import add_examples
from .options import flag
from .terminal import FittedOutput, SeparateReport

__all__ = ["command_parser", "main"]


class _Parser(argparse.ArgumentParser):
    """Argument parser that prints errors as one line, without the usage block."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {_in_one_line(message + _hint(message))}\n")

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        options, unknown = self.parse_known_args(args, namespace)
        if unknown:
            accepted = _options_of(self, args if args is not None else sys.argv[1:])
            near = get_close_matches(unknown[0].partition("=")[0], accepted, 1) if unknown[0].startswith("-") else []
            self.error(f"unrecognized arguments: {' '.join(unknown)}{f'; did you mean {near[0]}?' if near else ''}")
        return options


def _options_of(parser: argparse.ArgumentParser, words: Sequence[str]) -> list[str]:
    """Return the options of the subcommand that the command line names."""
    actions = parser._actions
    for action in actions:
        if isinstance(action, argparse._SubParsersAction):
            for place, word in enumerate(words):
                if word in action.choices:
                    return _options_of(action.choices[word], words[place + 1 :])
    return [name for action in actions for name in action.option_strings]


def _nearest(error: InstructionError) -> str:
    """Return a hint with the nearest instruction name if `error` reports an unknown instruction, else an empty text."""
    if not error.text:
        return ""
    from ..isa.names import nearest_name

    near = nearest_name(error.text)
    return f". The nearest instruction is {near}" if near else ""


def _hint(message: str) -> str:
    """Return a hint with the closest valid choice if `message` reports an invalid choice, else an empty string."""
    match = re.search(r"invalid choice: '(.*)' \(choose from (.*)\)$", message)
    if not match:
        return ""
    choices = [choice.strip("'") for choice in match.group(2).split(", ")]
    near = get_close_matches(match.group(1), choices, 1)
    return f"; did you mean {near[0]}?" if near else ""


#: Global option that shows the traceback of an unexpected error.
_DEBUG = "--debug"
#: Names of the options, of all commands, whose value is the path of a file to write.
_OUTPUTS = ("output", "plot", "svg", "csv", "junit", "report", "waves", "datapath", "sv_package", "record")
#: Paths that mean standard output, and the word that replaces each of them when output paths are compared.
_STANDARD_PATHS, _STANDARD = (STANDARD_OUTPUT, Path("/dev/stdout")), "-"
#: Error numbers (errno) that report that standard output cannot be written.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
#: Maximum length of a message in characters.
_LONGEST = 2_000
#: Commands whose first argument is an action, such as ``sptc gpu info``.
_WITH_ACTIONS = ("gpu", "kernel")
#: Key: title of a group of commands in the help text. Value: names of the modules of these commands.
_GROUPS = {
    "run and check": ("run", "campaign", "trace", "vectors", "pack", "coverage", "html_report"),
    "look up instructions": ("instructions", "explain", "timing"),
    "products and files": ("gemm", "identify", "compress", "compare", "scales"),
    "hardware: emit, draw, prove, measure": ("hardware", "prove", "area", "sweep", "energy"),
    "kernels and simulators": ("kernel", "native"),
    "GPU": ("gpu",),
    "this installation": ("doctor", "completion"),
}


class _Formatter(argparse.HelpFormatter):
    """Help formatter that lists the commands in groups; `titles` maps the first command of a group to its title."""

    def __init__(self, prog: str, *, titles: Mapping[str, str], **words: Any) -> None:
        super().__init__(prog, **words)
        self._titles = titles
        self._action_max_length = 4 + len("instructions")  # column width for the longest command name

    def _format_action(self, action: argparse.Action) -> str:
        text = super()._format_action(action)
        if isinstance(action, argparse._SubParsersAction):
            return text.partition("\n\n")[2]  # drop argparse's heading line COMMAND
        title = self._titles.get(action.dest)
        return f"\n  {title}:\n{text}" if title else text


def _can_be_passed(word: str) -> bool:
    try:
        return b"\0" not in os.fsencode(word)
    except UnicodeEncodeError:
        return False


def _in_one_line(message: object) -> str:
    text = str(message)
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}..."
    return one_line(text)


def command_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line with all commands."""
    parser = _Parser(
        prog="sptc",
        description="Bit-exact models of sparse tensor cores, checked against recordings of real GPUs.",
        epilog="`sptc COMMAND --help` describes the options of a command and ends with an example.",
    )
    parser.add_argument("--version", action="version", version=f"sptc {__version__}")
    parser.add_argument(_DEBUG, action="store_true", help="show the traceback of an unexpected error")
    commands = parser.add_subparsers(dest="command", required=True, title="commands", metavar="COMMAND")
    titles: dict[str, str] = {}
    for title, modules in _GROUPS.items():
        before = {*commands.choices}
        for module in modules:
            import_module(f".{module}", __package__).add_parser(commands)
        titles[next(name for name in commands.choices if name not in before)] = title
    commands.choices["completion"].set_defaults(parser=parser)
    for command in commands.choices.values():
        command.set_defaults(subparser=command)
    parser.formatter_class = partial(_Formatter, titles=titles)
    add_examples(parser)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line `arguments` (default: ``sys.argv[1:]``), without the program's name. Return the exit status.

    The exit status is 0 if all results agree, 1 for a mismatch, 2 for bad input or output that cannot be written, 70
    for a defect of this program, 130 if interrupted, and 141 if the reader of standard output closed the pipe.
    """
    if sys.stderr is None:  # standard error is closed: discard messages, which else go into the next opened file
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    if sys.stdout is None:  # standard output is closed: output would overwrite the next opened file (descriptor 1)
        print("sptc: standard output is closed", file=sys.stderr)
        return 2
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # print invalid characters of file names as escapes
    words = sys.argv[1:] if arguments is None else arguments
    named = [word for word in words if not word.startswith("-")]
    command = " ".join(["sptc", *named[: 2 if named and named[0] in _WITH_ACTIONS else 1]])
    try:
        try:
            return _run(words)
        finally:
            sys.stdout.flush()
    except InstructionError as error:
        if error.choices:
            _print_error(error.choices)
        return _failed(command, f"{error.args[0]}{_nearest(error)}")
    except Error as error:
        return _failed(command, error)
    except MemoryError as error:
        return _failed(command, f"there is not enough memory ({error})" if str(error) else "there is not enough memory")
    except BrokenPipeError:
        sys.stderr.close()
        _discard_output()
        return 141
    except OSError as error:
        if error.filename is not None or error.errno not in _FULL:
            return _defect(command, error, words)
        _discard_output()
        return _failed(command, f"standard output cannot be written ({error.strerror})")
    except KeyboardInterrupt:
        return _failed(command, "interrupted", 130)
    except Exception as error:
        return _defect(command, error, words)


def _run(words: Sequence[str]) -> int:
    parser = command_parser()
    if word := next((word for word in words if not _can_be_passed(word)), None):
        parser.error(f"{word!r}: an argument cannot contain a NUL or an unpaired surrogate")
    if not words:
        parser.print_help()
        return 0
    options = parser.parse_args(words)
    printed = cast("TextIO", SeparateReport(sys.stdout)) if _check_outputs(options) else sys.stdout
    if printed.isatty() and not getattr(options, "json", False):
        printed = cast("TextIO", FittedOutput(printed))
    with redirect_stdout(printed):
        return int(options.execute(options))


def _check_outputs(options: argparse.Namespace) -> bool:
    """Return whether an output file is written to standard output, so that the report must go to standard error.

    Raise an `Error`, before any work is done, if an output cannot be written, or options for output conflict.
    """
    is_json = getattr(options, "json", False)
    if is_json and getattr(options, "verbose", False):
        raise Error("--verbose cannot be combined with --json, which prints every result")
    outputs = {_STANDARD: "json"} if is_json else {}
    for name in _OUTPUTS:
        path = getattr(options, name, None)
        if not isinstance(path, Path):
            continue
        target = _STANDARD if path in _STANDARD_PATHS else os.path.realpath(path)
        if target == _STANDARD or not (mode := mode_of(path)) or S_ISREG(mode):
            if target in outputs:
                both = "both write to standard output" if target == _STANDARD else f"name the same file {path}"
                raise Error(f"{flag(outputs[target])} and {flag(name)} {both}")
            outputs[target] = name
        if name != "output":  # skip --output, which can name a folder instead of a file
            require_writable(path)
    if any(getattr(options, name, None) for name in ("plot", "svg")):
        from ..infra.figures import check_plotting

        check_plotting()
    return outputs.get(_STANDARD, "json") != "json"


def _failed(command: str, message: object, status: int = 2) -> int:
    _print_error(f"{command}: {_in_one_line(message)}")
    return status


def _print_error(text: str) -> None:
    with suppress(OSError):  # the exit status must not change if standard error cannot be written
        print(text, file=sys.stderr)


def _defect(command: str, error: Exception, words: Sequence[str]) -> int:
    """Report an unexpected error in one sentence, or with a traceback if ``--debug`` is given."""
    if _DEBUG in words:
        raise error
    message = f"a defect of sptc: {type(error).__name__}: {error}; `sptc {_DEBUG} ...` prints the traceback"
    return _failed(command, message, 70)


def _discard_output() -> None:
    """Redirect standard output to the null device, so that Python can flush standard output without error at exit."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
