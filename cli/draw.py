"""``sptc draw``: draw a datapath as a block diagram."""

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
        help="draw the block diagram of a unit, an array or a top",
        description="Draw a datapath as SVG. A unit is drawn with its stages, their widths, and the registers between "
        "them. The other drawings are the array of units, and the tops that execute mma, wgmma and tcgen05.mma. "
        "`sptc trace --datapath` draws a unit with the values of one step.",
    )
    add_datapath(parser)
    parser.add_argument("--top", choices=_TOPS, default="unit", help="module to draw (default %(default)s)")
    add_theme(parser)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE.svg", help="SVG file; - prints it")
    parser.set_defaults(execute=_execute)


def add_theme(parser: "argparse.ArgumentParser | argparse._ArgumentGroup") -> None:
    """Add the option that chooses the colours of a block diagram."""
    parser.add_argument(
        "--theme",
        choices=[theme.value for theme in Theme],
        default=Theme.AUTO.value,
        help="colours of a block diagram; auto follows the viewer's system (default %(default)s)",
    )


def _execute(options: argparse.Namespace) -> int:
    from ..show.datapath import datapath as draw

    picture = draw(datapath(options), options.top, Theme(options.theme))
    write_whole(options.output, picture.svg())
    return 0
