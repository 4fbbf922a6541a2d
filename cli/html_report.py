"""``sptc report``: write the results of a regression as one HTML page."""

import argparse
from pathlib import Path

from ..infra.counts import counted
from ..infra.files import require_writable, write_whole
from ..verify.report_files import read_findings
from ..verify.report_page import report_page
from .options import Commands, add

__all__ = ["add_parser"]


def add_parser(commands: Commands) -> None:
    """Add the parser of ``sptc report`` to the command line."""
    parser = commands.add_parser(
        "report",
        help="write the results of a regression as an HTML page",
        description="Write one self-contained HTML page with the results, coverage, faults, proofs and area of a "
        "regression. Files in the folder are recognised by content, not by name: JUnit XML, coverage, faults, and the "
        "--json output of `prove`, `area`, `campaign` and of benchmarks. Other files are skipped and listed. Exit "
        "status 0: the page was written, even if it reports failures.",
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="folder of results, e.g. build/regression/latest")
    add(parser, "output", required=True, metavar="FILE.html")
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> int:
    require_writable(options.output)
    findings = read_findings(options.folder)
    write_whole(options.output, report_page(findings))
    read, skipped = (counted(len(paths), "file") for paths in (findings.read, findings.passed_over))
    print(f"{options.output}: results of {read}; {skipped} skipped")
    return 0
