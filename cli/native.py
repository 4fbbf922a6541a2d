"""``sptc native``: the sources of the C++ library."""

import argparse
from pathlib import Path
from typing import Any

from ..native.vendor import write_files

__all__ = ["add_parser"]


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "native",
        help="write the sources of the C++ library libsptc, with examples",
        description="Write libsptc, the same instructions in C++17 behind a C interface: sources, header, the tables "
        "that are written from this package, a makefile, files for CMake and pkg-config, and examples.",
    )
    parser.add_argument("--prefix", type=Path, required=True, metavar="FOLDER", help="where to; made if there is none")
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> int:
    count = write_files(options.prefix)
    print(f"{count} files in {options.prefix}; `make -C {options.prefix}` builds the library")
    return 0
