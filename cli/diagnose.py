"""``sptc diagnose``: find the fault that explains a wrong product of a kernel."""

import argparse

import numpy as np

from ..errors import OperandError
from ..gemm.diagnose import diagnose
from ..infra.files import write_whole
from .identify import add_search_options, search_arguments
from .options import Commands, add
from .terminal import print_result

__all__ = ["add_parser"]


def add_parser(commands: Commands) -> None:
    """Add the parser of ``sptc diagnose`` to the command line."""
    parser = commands.add_parser(
        "diagnose",
        help="find the fault that explains a wrong matrix product",
        description="Search for the method of summation that gives every bit of Y = A B. If none does, search for a "
        "fault: outputs in other places, operands read from other places or of another type, wrong "
        "metadata or scales, slices of K that are missing or added twice, accumulators that are not "
        "cleared or not kept, and results that are rounded otherwise. Print the verdict and a map of the "
        "outputs that differ. A fault explains a product only if it gives every bit. Exit status 0: the "
        "product is correct or explained. 1: it is not.",
    )
    add_search_options(parser)
    add(parser, "svg", help="draw the map of the outputs that differ (extra: area)")
    add(parser, "json")
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> int:
    from ..show.chain import chain_of
    from ..show.difference_map import DifferenceMap

    if not (options.a and options.b and options.y):
        raise OperandError("name the files of A, B and their product with --a, --b and --y")
    found = diagnose(**search_arguments(options))
    differing = found.differing if found.differing.ndim == 2 else np.atleast_2d(found.differing).T
    picture = DifferenceMap(differing)
    if options.svg:
        write_whole(options.svg, picture.svg(found.text))
    chain = None if found.explained or not found.nearest else chain_of(found.nearest)
    text = "\n".join(map(str, [found, *([picture] if differing.any() else []), *([chain] if chain else [])]))
    values = found.record() | {"chain": chain and chain.as_dict()}
    return print_result(options, values, text, good=found.explained)
