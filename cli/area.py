"""``sptc area``: what a datapath takes in gates, on a chip or in an FPGA."""

import argparse
import json
from pathlib import Path
from typing import Any

from ..errors import Error
from ..infra.pools import cores
from .arguments import processes
from .configuration import add_datapath, datapath
from .progress import progress_bar

__all__ = ["add_parser"]

_FPGAS = ("ice40", "ecp5", "xilinx")


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "area",
        help="synthesise a datapath and report area and delay",
        description="Synthesise one unit of a datapath, its dense twin, and what is around the units of its array and "
        "warp, with Yosys and ABC, and report what they take: gate equivalents; with a liberty file its area, and the "
        "delay of the longest path without wires; or cells of an FPGA. What was measured is kept, by content.",
    )
    add_datapath(parser, default="hopper")
    technology = parser.add_mutually_exclusive_group()
    technology.add_argument("--liberty", type=Path, metavar="FILE", help="standard cells to map to")
    technology.add_argument("--fpga", choices=_FPGAS, help="count the cells of an FPGA instead")
    parser.add_argument("--unit-only", action="store_true", help="neither the dense twin of the unit nor an array")
    parser.add_argument("--by-stage", dest="stage", action="store_true", help="also each stage of the unit, by itself")
    parser.add_argument(
        "--warpgroup", action="store_true", help="also the parts of a warpgroup, four such arrays and what feeds them"
    )
    parser.add_argument("--by-format", dest="format", action="store_true", help="also what each format adds to it")
    parser.add_argument(
        "--combinational",
        action="store_true",
        help="the unit with pipeline registers taken for wires, and no array",
    )
    parser.add_argument("--full-adders", action="store_true", help="also the unit with the library's full-adder cells")
    parser.add_argument("--plot", type=Path, metavar="FILE.svg", help="draw the stages, or the parts of the array")
    parser.add_argument("--jobs", type=processes, default=cores(), metavar="N", help="processes (default: one a core)")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> int:
    config = datapath(options)
    if options.full_adders and not options.liberty:
        raise Error("--full-adders needs the full adder of a library; add --liberty FILE")
    if options.warpgroup and (options.unit_only or options.combinational or options.fpga):
        raise Error("--warpgroup is measured with the array, without --unit-only, --combinational and --fpga")
    from ..infra.figures import check_plotting
    from ..synth.area import CLOSER, survey
    from ..synth.liberty import Library
    from ..synth.plot import plot_survey
    from ..synth.recipe import Recipe
    from ..synth.report import as_dict, table

    if options.plot:
        check_plotting()
    recipe = Recipe(
        library=Library.read(options.liberty) if options.liberty else None,
        fpga=options.fpga,
        combinational=options.combinational,
        full_adders=options.full_adders,
    )
    with progress_bar("netlist") as progress:
        found = survey(
            config,
            recipe,
            jobs=options.jobs,
            twin=not options.unit_only,
            array=not options.unit_only,
            closer=[name for name in CLOSER if getattr(options, name)],
            progress=progress,
        )
    print(json.dumps(as_dict(found), indent=1) if options.json else table(found))
    if options.plot:
        plot_survey(found, options.plot)
    return 0
