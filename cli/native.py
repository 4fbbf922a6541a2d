"""``sptc native``: write the sources of the C++ library."""

import argparse
from pathlib import Path

from ..native.vendor import write_files
from .options import Commands

__all__ = ["add_parser"]


def add_parser(commands: Commands) -> None:
    """Add the parser of ``sptc native`` to the command line."""
    parser = commands.add_parser(
        "native",
        help="write the sources of the C++ library libsptc",
        description="Write the sources of libsptc, a C++17 model of the same instructions with a C interface: sources, "
        "header, tables generated from this package, a makefile, files for CMake and pkg-config, and examples.",
    )
    parser.add_argument(
        "--prefix", type=Path, required=True, metavar="FOLDER", help="folder to write to, created if missing"
    )
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> int:
    count = write_files(options.prefix)
    print(f"{count} files in {options.prefix}; `make -C {options.prefix}` builds the library")
    return 0
