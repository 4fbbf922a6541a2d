"""``sptc coverage``: merge coverage files and report bins that were hit, are missing or are unreachable."""

import argparse
from collections.abc import Mapping
from functools import reduce
from pathlib import Path

from ..errors import FileError
from ..infra.counts import counted
from ..sim.coverage.code import CodeCoverage
from ..sim.coverage.groups import Coverage
from .options import Commands, add, integer
from .terminal import print_result

__all__ = ["add_parser"]


def add_parser(commands: Commands) -> None:
    """Add the parser of ``sptc coverage`` to the command line."""
    parser = commands.add_parser(
        "coverage",
        help="merge coverage files and list bins without hits",
        description="Merge coverage files. Print one line per group of bins, each unreachable bin with its reason, and "
        "the first bins without hits. For files of Verilator (coverage.dat), print line and toggle coverage. Only "
        "functional bins decide the exit status. Exit status 0: all reachable bins were hit. 1: a bin is missing, or a "
        "bin was hit that is declared unreachable.",
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="coverage files")
    parser.add_argument(
        "--missing",
        type=integer(0),
        default=10,
        metavar="N",
        help="list at most N bins without hits per covergroup (default %(default)s)",
    )
    add(parser, "json")
    parser.set_defaults(execute=_execute)


def _merge(merged: Coverage, path: Path) -> Coverage:
    coverage = Coverage.read(path)
    try:
        return merged.merge(coverage)
    except FileError as error:
        raise FileError(f"{path} cannot be merged with the files before it: {error}") from None


def _execute(options: argparse.Namespace) -> int:
    by_verilator = [path for path in options.files if CodeCoverage.is_one(path)]
    coverage = reduce(_merge, (path for path in options.files if path not in by_verilator), Coverage())
    code = reduce(CodeCoverage.merge, map(CodeCoverage.read, by_verilator), CodeCoverage({}))
    if not [*coverage] and not code.hits:
        raise FileError(f"{options.files[0]} holds no coverage bins")
    limit = options.missing
    bins = f"{_verdict(coverage.report(0))}\n{coverage.table(limit)}" if [*coverage] else ""
    text = "\n\n".join(part for part in (bins, code.table(limit)) if part)
    return print_result(options, coverage.report(limit) | {"code": code.report(limit)}, text, good=coverage.complete)


def _verdict(counts: Mapping[str, int]) -> str:
    """Return one sentence on missing bins, and on bins that were hit although the bins are declared unreachable."""
    missing, bins = counts["reachable"] - counts["reached"], counted(counts["reachable"], "reachable bin")
    hit = f"{missing:,} of {bins} missing" if missing else f"all {bins} were hit"
    return hit + (f"; {counts['contradicted']:,} hit although declared unreachable" if counts["contradicted"] else "")
