"""``sptc draw``: draw a datapath as a block diagram."""

import argparse

from ..infra.diagram import Theme
from ..infra.files import write_whole
from .configuration import add_datapath, datapath
from .options import Commands, add

__all__ = ["add_parser"]

_TOPS = ("unit", "core", "warp", "warpgroup", "tcgen05")


def add_parser(commands: Commands) -> None:
    """Add the parser of ``sptc draw`` to the command line."""
    parser = commands.add_parser(
        "draw",
        help="draw the block diagram of a unit, an array or a top module",
        description="Draw a datapath as SVG. A unit is drawn with its stages, their widths, and the registers between "
        "them. The other drawings are the array of units, and the top modules that execute mma, wgmma and tcgen05.mma. "
        "`sptc trace --datapath` draws a unit with the values of one step.",
    )
    add_datapath(parser)
    add(parser, "top", choices=_TOPS, default="unit", note=" to draw (default %(default)s)")
    add(parser, "theme")
    add(parser, "output", required=True, metavar="FILE.svg")
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> int:
    from ..show.datapath import datapath as draw

    picture = draw(datapath(options), options.top, Theme(options.theme))
    write_whole(options.output, picture.svg())
    return 0
