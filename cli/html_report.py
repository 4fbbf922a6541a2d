"""``sptc report``: a regression as one page of HTML."""

import argparse
from pathlib import Path
from typing import Any

from ..infra.files import STANDARD_OUTPUT, require_writable, write_whole
from ..verify.report_files import read_findings
from ..verify.report_page import report_page

__all__ = ["add_parser"]


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "report",
        help="a page of HTML of what a regression left in a folder",
        description="Write one page of HTML, which needs nothing else: results, coverage, faults, proofs and area, of "
        "the files in a folder, whatever they are called: JUnit XML, coverage, what `prove`, `area` and `campaign` "
        "print with --json, what benchmarks print with --json, and faults. Other files are passed over and listed. "
        "Status 0: the page is written, whatever it says.",
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="as build/regression/latest of `make regression`")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE.html", help="where to; - prints it")
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> int:
    require_writable(options.output)
    found = read_findings(options.folder)
    write_whole(options.output, report_page(found))
    if options.output != STANDARD_OUTPUT:
        print(f"{options.output}: of {len(found.read)} files; {len(found.passed_over)} passed over")
    return 0
