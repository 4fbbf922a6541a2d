"""``sptc vectors``: write operands and expected results for other models of the same instructions."""

import argparse
from typing import Any

from ..errors import OperandError
from . import conformance, stimulus

__all__ = ["add_parser"]


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "vectors",
        help="write seeded vectors or conformance packs with expected results, or check another model's results",
        description="Write seeded vectors or conformance packs, or check the results that another model computed for a "
        "pack. Seeded vectors are random operands of an instruction with the expected results: as registers, or as "
        "inputs and outputs of the emitted hardware, with a testbench on request. A conformance pack is a register "
        "file of few cases for one instruction on one architecture. Its cases distinguish the right model from its "
        "neighbours, which are wrong in one point.",
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
