"""``sptc vectors``: operands and results for other models of the same instructions."""

import argparse
from typing import Any

from ..errors import OperandError
from . import conformance, stimulus

__all__ = ["add_parser"]


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "vectors",
        help="write operands with results: seeded vectors, or conformance packs; judge what another model makes of one",
        description="Seeded vectors: operands of an instruction and the expected results, as registers, as the emitted "
        "hardware takes and gives them, or with a bench around it. Conformance packs: for one instruction on one "
        "architecture, few register files that tell the right model from its neighbours, those that are wrong in one "
        "thing.",
    )
    stimulus.add_options(parser)
    conformance.add_options(parser)
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> int:
    if options.instruction:
        return stimulus.execute(options)
    if option := stimulus.used(options):
        raise OperandError(f"{option} is for the vectors of an instruction, and none is named")
    return conformance.execute(options)
