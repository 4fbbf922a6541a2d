"""``sptc trace``: print the computation of one output step by step."""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import OperandError
from ..infra.diagram import Theme
from ..infra.figures import check_plotting
from ..infra.files import write_whole
from ..verify.archive import Recorded
from ..verify.pack_files import file_of, require_placed, subject_named
from ..verify.stimulus import draw_tiles, drawn_distributions
from .options import add, flag, integer

__all__ = ["add_parser"]

#: Options of the random tile of an instruction.
_TILE_OPTIONS = ("arch", "distribution", "nibbles", "seed")


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "trace",
        help="print the computation of one output, from the golden model and from the signals of the hardware",
        description="Print the computation of one output of one instruction: elements selected by metadata, products, "
        "exponents, shift amounts, truncated bits, the sum, and its rounding. Print it from the golden model and from "
        "the signals of the hardware. If the file has D, compare its value with both, and mark the first step from "
        "which it could differ. The exit status is 1 if the three are not equal.",
    )
    parser.add_argument(
        "source", metavar="FILE.npz|INSTRUCTION", help="a register file, or an instruction to draw a random tile of"
    )
    parser.add_argument(
        "--case", type=integer(0), default=0, metavar="N", help="index of the tile (default %(default)s)"
    )
    parser.add_argument("--row", type=integer(0), default=0, metavar="N", help="row of D (default %(default)s)")
    parser.add_argument("--column", type=integer(0), default=0, metavar="N", help="column of D (default %(default)s)")
    drawing = parser.add_argument_group("random tile of an instruction")
    add(drawing, "arch", note=" (default: sm_90, or the first that has the instruction)")
    add(drawing, "distribution", "nibbles")
    add(drawing, "seed", note=" (default 0)")
    parser.add_argument("--golden-only", action="store_true", help="use the golden model only; build no simulation")
    add(parser, "svg", help="draw the bits of every term (extra: area)")
    parser.add_argument(
        "--datapath", type=Path, metavar="FILE.svg", help="draw the datapath with the values of one step"
    )
    parser.add_argument("--step", type=integer(1), metavar="N", help="step of --datapath, from 1 (default 1)")
    add(parser, "theme", "json")
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> int:
    from ..show.step import draw_step
    from ..verify.trace_output import trace

    if options.svg:
        check_plotting()
    if options.step and not options.datapath:
        raise OperandError("--step needs --datapath FILE.svg")
    file: Path | Recorded
    if options.source.endswith(".npz"):
        if superfluous := next((name for name in _TILE_OPTIONS if getattr(options, name) is not None), None):
            raise OperandError(f"{flag(superfluous)} draws a random tile and cannot be combined with FILE.npz")
        file = Path(options.source)
    else:
        file = _random_tile(options)
    traced = trace(file, options.case, options.row, options.column, hardware=not options.golden_only)
    if options.svg:
        write_whole(options.svg, traced.as_svg())
    if options.datapath:
        steps, number = len(traced.golden.steps), options.step or 1
        if number > steps:
            raise OperandError(f"--step {number}: the output has {steps} step{'s' * (steps > 1)}")
        picture = draw_step(traced, number - 1, Theme(options.theme))
        write_whole(options.datapath, picture.svg())
    print(json.dumps(traced.as_dict(), indent=1) if options.json else traced)
    return int(not traced.agrees)


def _random_tile(options: argparse.Namespace) -> Recorded:
    """Draw one random tile of an instruction."""
    subject = subject_named(options.source)
    i = subject.instruction
    arch = options.arch or ("sm_90" if "sm_90" in i.architectures else i.architectures[0])
    arch = require_placed(subject, arch)
    names, tiles = drawn_distributions(i, options.distribution), options.case + 1
    rng = np.random.default_rng(options.seed or 0)
    operands = draw_tiles(i, names, options.nibbles or "legal", tiles, rng)
    return file_of(subject, arch, operands, rng, int(rng.integers(i.sparsity_selectors)))
