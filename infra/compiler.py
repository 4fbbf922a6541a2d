"""Find and run the C++ compiler of this machine, and run other build tools."""

import errno
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from ..errors import BackendError, shown

__all__ = ["WARNINGS", "compile_shared", "compiler_stamp", "cxx_compiler", "printed_by", "progress", "run_tool"]

#: Warning options for all C++ code of this package.
WARNINGS = ("-Wall", "-Wextra", "-Werror")
#: Two texts to search for in the output of a failed tool. An error message quotes the first line that contains the
#: first text or, if no line contains the first text, the first line that contains the second text.
_TELLING = (os.strerror(errno.ENOSPC), "rror")
#: List with the message that announced the first build of this process. The list is empty before that build, and is
#: used only if standard error is not a terminal.
_announced: list[str] = []


def cxx_compiler() -> list[str]:
    """Return the command of the C++ compiler: ``$CXX``, which may have arguments, else g++, c++ or clang++.

    Raise a `BackendError` if there is no compiler, or ``$CXX`` is not found.
    """
    if given := os.environ.get("CXX", "").strip():
        with suppress(ValueError):
            program, *arguments = [given] if shutil.which(given) else shlex.split(given)
            if path := shutil.which(program):
                return [path, *arguments]
        raise BackendError(f"CXX names {shown(given)}, which is not found: correct or unset this environment variable")
    for name in ("g++", "c++", "clang++"):
        if path := shutil.which(name):
            return [path]
    raise BackendError("no C++ compiler was found: install g++ (on Debian or Ubuntu, `apt install g++`)")


def compiler_stamp() -> tuple[str | int, ...]:
    """Return command, size and modification time of the C++ compiler, which change when the compiler is updated.

    If the compiler is an argument of another program, such as ccache, sizes and times of both programs are returned.
    """
    words = cxx_compiler()
    stamps = [Path(path).resolve().stat() for word in words if (path := shutil.which(word))]
    return shlex.join(words), *(value for stamp in stamps for value in (stamp.st_size, stamp.st_mtime_ns))


def progress(message: str) -> None:
    """Show the stage of a build on standard error.

    On a terminal, the message replaces the previous message, and an empty message clears the line. If standard error
    is not a terminal, one line is printed at the first build of this process.
    """
    if sys.stderr.isatty():
        print(f"\r\033[K{message}", end="", file=sys.stderr, flush=True)
    elif message and not _announced:
        _announced.append(message)
        build = message.partition(":")[0]
        print(f"sptc: {build}: a model is compiled at its first use and kept in the cache", file=sys.stderr, flush=True)


def run_tool(
    command: list[str], folder: Path, tool: str, built: str, environment: dict[str, str] | None = None
) -> None:
    """Run a command in a folder. Error messages name `tool` as the failing tool, and `built` as the file to be built.

    Raise a `BackendError` if the tool fails; the message has the first line of the tool's output that mentions a full
    disk or an error.
    """
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        printed = done.stderr.splitlines()
        lines = [line for word in _TELLING for line in printed if word in line] or printed or ["no message"]
        raise BackendError(f"{tool} failed while building {built}: {lines[0].strip()}")


@cache
def printed_by(variable: str, program: str, *words: str) -> str:
    """Return the text that a program prints for the given arguments, from a cache after the first call.

    The user has named the program in the environment variable `variable`. Raise a `BackendError` if the program does
    not run.
    """
    try:
        done = subprocess.run([program, *words], capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        raise BackendError(f"{variable} names {program}, which does not run: {error}") from None
    return done.stdout.strip()


def compile_shared(sources: Mapping[str, str], library: Path, options: Sequence[str], built: str) -> None:
    """Compile C++ files to a shared library. `sources` maps file names to texts; header files are only included.

    The library is built in a scratch folder, and moved to the path `library` when complete. `built` is the name of the
    library in error messages. Raise a `BackendError` if there is no compiler, or the compiler fails.
    """
    with tempfile.TemporaryDirectory(dir=library.parent) as scratch:
        folder = Path(scratch)
        for name, text in sources.items():
            (folder / name).write_text(text, encoding="utf-8")
        compiled = [name for name in sources if name.endswith(".cpp")]
        words = ["-std=c++17", *WARNINGS, *options, "-fPIC", "-shared", "-o", "library.so", *compiled]
        run_tool([*cxx_compiler(), *words], folder, "the C++ compiler", built)
        (folder / "library.so").replace(library)
