"""``sptc draw``: datapaths as block diagrams."""

import argparse
from pathlib import Path
from typing import Any

from ..infra.diagram import Theme
from ..infra.files import write_whole
from .configuration import add_datapath, datapath

__all__ = ["add_parser", "add_theme"]

_TOPS = ("unit", "core", "warp", "warpgroup", "tcgen05")


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "draw",
        help="draw a datapath: its stages, widths and registers, the array, or a top",
        description="Draw a datapath as SVG: a unit with its stages, their widths, and the registers between them; the "
        "array of units; or what executes mma, wgmma and tcgen05.mma. `sptc trace --datapath` draws a unit with "
        "the values of a step.",
    )
    add_datapath(parser)
    parser.add_argument("--top", choices=_TOPS, default="unit", help="what to draw (default %(default)s)")
    add_theme(parser)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE.svg", help="where to; - prints it")
    parser.set_defaults(execute=_execute)


def add_theme(parser: "argparse.ArgumentParser | argparse._ArgumentGroup") -> None:
    """Add the option that says which colours a block diagram has."""
    parser.add_argument(
        "--theme",
        choices=[theme.value for theme in Theme],
        default=Theme.AUTO.value,
        help="colours of a block diagram; auto has those of the reader's system (default %(default)s)",
    )


def _execute(options: argparse.Namespace) -> int:
    from ..show.datapath import datapath as draw

    picture = draw(datapath(options), options.top, Theme(options.theme))
    write_whole(options.output, picture.svg())
    return 0
