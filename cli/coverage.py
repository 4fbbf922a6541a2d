"""``sptc coverage``: merge coverage files and say what was reached, what is missing and what cannot be reached."""

import argparse
import json
from functools import reduce
from pathlib import Path
from typing import Any

from ..errors import FileError
from ..sim.coverage.code import CodeCoverage
from ..sim.coverage.groups import Coverage
from .arguments import integer

__all__ = ["add_parser"]


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "coverage",
        help="merge coverage files and list what is missing",
        description="Merge coverage files and print a line for each group of bins, the bins that cannot be reached "
        "with the reason, and the first bins that are missing; of files that Verilator wrote (coverage.dat) the lines "
        "and toggles. Functional bins alone decide the status. Status 0: everything reachable was reached; 1: "
        "something is missing, or a bin was reached that is declared unreachable.",
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="coverage files")
    parser.add_argument(
        "--missing", type=integer(0), default=10, metavar="N", help="name N missing bins a group (default %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.set_defaults(execute=_execute)


def _merge(merged: Coverage, path: Path) -> Coverage:
    read = Coverage.read(path)
    try:
        return merged.merge(read)
    except FileError as error:
        raise FileError(f"{path} does not merge with the files before it: {error}") from None


def _execute(options: argparse.Namespace) -> int:
    by_verilator = [path for path in options.files if CodeCoverage.is_one(path)]
    coverage = reduce(_merge, (path for path in options.files if path not in by_verilator), Coverage())
    code = reduce(CodeCoverage.merge, map(CodeCoverage.read, by_verilator), CodeCoverage({}))
    if not [*coverage] and not code.hits:
        raise FileError(f"{options.files[0]} holds no group of bins")
    limit = options.missing
    if options.json:
        print(json.dumps(coverage.report(limit) | {"code": code.report(limit)}, indent=1))
    else:
        print("\n\n".join(text for text in (coverage.table(limit) if [*coverage] else "", code.table(limit)) if text))
    return int(not coverage.complete)
