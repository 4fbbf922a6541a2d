"""The C++ compiler of this machine: which it is, and how it and other tools are run while something is built."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..errors import BackendError

__all__ = ["WARNINGS", "compile_shared", "compiler_stamp", "cxx_compiler", "progress", "run_tool"]

#: Of all C++ that this package brings.
WARNINGS = ("-Wall", "-Wextra", "-Werror")


def cxx_compiler() -> str:
    """Return the path of the C++ compiler: ``$CXX``, or the first known one on the ``PATH``.

    Raises
    ------
    BackendError
        There is none.
    """
    for name in (os.environ.get("CXX"), "g++", "c++", "clang++"):
        if name and (path := shutil.which(name)):
            return path
    raise BackendError("this needs a C++ compiler: install g++ (on Debian or Ubuntu, `apt install g++`)")


def compiler_stamp() -> tuple[str, int, int]:
    """Return what tells this compiler from another, and from itself before an update.

    Raises
    ------
    BackendError
        There is none.
    """
    compiler = cxx_compiler()
    stamp = Path(compiler).resolve().stat()
    return compiler, stamp.st_size, stamp.st_mtime_ns


def progress(message: str) -> None:
    """Show on a terminal, in place of what was shown before, what is being built; nothing if the message is empty."""
    if sys.stderr.isatty():
        print(f"\r\033[K{message}", end="", file=sys.stderr, flush=True)


def run_tool(
    command: list[str], folder: Path, tool: str, built: str, environment: dict[str, str] | None = None
) -> None:
    """Run a tool in a folder.

    Parameters
    ----------
    command : list of str
        Its words.
    folder : Path
        Where it runs.
    tool, built : str
        What it is called, and what is being built, in a message.
    environment : dict of str to str, optional
        Its environment; that of this process if none is given.

    Raises
    ------
    BackendError
        It fails; with the first line of what it says that speaks of an error.
    """
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = (
            [line for line in done.stderr.splitlines() if "rror" in line] or done.stderr.splitlines() or ["no message"]
        )
        raise BackendError(f"{tool} failed while building {built}: {lines[0].strip()}")


def compile_shared(sources: Mapping[str, str], library: Path, options: Sequence[str], built: str) -> None:
    """Compile C++ to a shared library.

    Parameters
    ----------
    sources : mapping of str to str
        Files of C++17 by their names; those that end in ``.cpp`` are compiled.
    library : Path
        Where the result goes, at once and whole; it is built in a scratch folder beside it.
    options : sequence of str
        Of the compiler.
    built : str
        What is being built, in a message.

    Raises
    ------
    BackendError
        There is no compiler, or it fails.
    """
    with tempfile.TemporaryDirectory(dir=library.parent) as scratch:
        folder = Path(scratch)
        for name, text in sources.items():
            (folder / name).write_text(text, encoding="utf-8")
        compiled = [name for name in sources if name.endswith(".cpp")]
        words = ["-std=c++17", *WARNINGS, *options, "-fPIC", "-shared", "-o", "library.so", *compiled]
        run_tool([cxx_compiler(), *words], folder, "the C++ compiler", built)
        (folder / "library.so").replace(library)
