"""``sptc judge``: check the results that another model computed for a conformance pack."""

import argparse
from pathlib import Path

from ..show.conformance import judgement_as_dict
from ..verify.conformance import judge, read_pack, read_results
from .options import Commands, add
from .reports import Check, report
from .terminal import print_result

__all__ = ["RESULTS", "add_parser", "judge_results"]

#: Help text of the argument for the file of results.
RESULTS = "computed D in C order: .npz with key D, JSON list, or text with one 32-bit hexadecimal word per line"


def add_parser(commands: Commands) -> None:
    """Add the parser of ``sptc judge`` to the command line."""
    parser = commands.add_parser(
        "judge",
        help="check the results of another model for a conformance pack",
        description="Compare the results that another model computed for a conformance pack with the expected results. "
        "If they differ, print the first difference and the neighbours of the right model that give these results. "
        "Exit status 0: all results are right. 1: a result differs.",
    )
    parser.add_argument("pack", type=Path, metavar="PACK.npz", help="conformance pack that `sptc pack` wrote")
    parser.add_argument("results", type=Path, metavar="RESULTS", help=RESULTS)
    add(parser, "json", "junit", "github")
    parser.set_defaults(execute=lambda options: judge_results(options, options.pack))


def judge_results(options: argparse.Namespace, path: Path) -> int:
    """Compare results with the conformance pack at `path`, print the verdict and return the exit status."""
    pack = read_pack(path)
    assert pack.file.d is not None
    judgement = judge(pack, read_results(options.results, pack.file.d.shape))
    values = judgement_as_dict(pack, judgement)
    verdict = str(values["verdict"])
    status = print_result(options, values, verdict, good=judgement.right)
    report(options, [Check(pack.file.arch, pack.file.name, "" if judgement.right else verdict)])
    return status
