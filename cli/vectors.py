"""``sptc vectors``: operands and results for other models of the same instructions."""

import argparse
from typing import Any

from . import conformance

__all__ = ["add_parser"]


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "vectors",
        help="write conformance packs, and judge what another model makes of one",
        description="Conformance packs: for one instruction on one architecture, few register files that tell the "
        "right model from its neighbours, those that are wrong in one thing.",
    )
    conformance.add_options(parser)
    parser.set_defaults(execute=conformance.execute)
