"""``sptc area``: measure gate count, area and delay of a datapath, for standard cells or an FPGA."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import Error
from ..infra.files import write_whole
from ..infra.pools import cores
from ..rtl.config import CoreConfig
from .configuration import add_datapath, datapath, library_of, orders_of
from .options import Commands, add, flag, positive, switch
from .progress import progress_bar
from .terminal import print_result

if TYPE_CHECKING:
    from ..synth.recipe import Recipe

__all__ = ["add_parser"]

_FPGAS = ("ice40", "ecp5", "xilinx")


def add_parser(commands: Commands) -> None:
    """Add the parser of ``sptc area`` to the command line."""
    parser = commands.add_parser(
        "area",
        help="synthesise a datapath and report area and delay",
        description="Synthesise with Yosys and ABC: one unit of a datapath, the dense unit of the same size, and the "
        "logic around the units in the array and in the warp. Report gate equivalents. With --liberty, report area and "
        "the delay of the longest path without wires. With --fpga, report FPGA cells. Results are cached by the "
        "content of the netlist.",
    )
    add_datapath(parser, default="hopper")
    technology = parser.add_mutually_exclusive_group()
    add(technology, "liberty")
    add(parser, "dont_use")
    technology.add_argument("--fpga", choices=_FPGAS, help="map to this FPGA family and count the cells")
    switch(parser, "--place", "also place and route the unit between operand and result registers (needs --fpga ecp5)")
    parser.add_argument(
        "--for-frequency",
        type=positive,
        metavar="MHZ",
        help="with --place: add pipeline registers one at a time, the most effective first, until the unit reaches "
        "this frequency; exit status 1 if the unit does not reach it",
    )
    parser.add_argument("--report", type=Path, metavar="FILE.json", help="with --place: write the report of nextpnr")
    switch(parser, "--unit-only", "measure only the unit, neither the dense unit of the same size nor the array")
    switch(parser, "--by-stage", "also measure each stage of the unit", dest="stage")
    top = parser.add_mutually_exclusive_group()
    text = "also measure this top module, its arrays of units, operand fetch and control; wgmma stands for warpgroup"
    add(top, "top", choices=("warp", "warpgroup", "tcgen05"), help=text)
    top.add_argument(
        "--warpgroup", dest="top", action="store_const", const="warpgroup", help="short form of --top warpgroup"
    )
    switch(parser, "--by-format", "also measure the area that each format adds to the unit", dest="format")
    text = "replace the pipeline registers of the unit by wires; do not measure the array"
    add(parser, "combinational", help=text)
    switch(parser, "--least-area", "map to the cells of a library for the least area instead of the least delay")
    switch(parser, "--clock-gating", "gate the clocks of registers that have an enable by clock gates of the library")
    switch(parser, "--full-adders", "also map the unit with the library's full-adder cells")
    add(parser, "orders")
    add(parser, "plot", help="draw the area of the stages or parts of the datapath (needs pip install 'sptc[area]')")
    add(parser, "jobs", "json")
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> int:
    config = datapath(options)
    for name in ("full_adders", "least_area", "clock_gating"):
        if getattr(options, name) and not options.liberty:
            raise Error(f"--{name.replace('_', '-')} needs a cell library: add --liberty FILE")
    _check_placing(options)
    if options.combinational and (options.fpga or options.clock_gating):
        raise Error("--combinational cannot be combined with --fpga (use --cuts none) or --clock-gating")
    if options.top and (options.unit_only or options.combinational or options.fpga):
        raise Error("--top cannot be combined with --unit-only, --combinational or --fpga")
    from ..synth.area import CLOSER, survey
    from ..synth.plot import plot_survey
    from ..synth.recipe import Recipe
    from ..synth.report import as_dict, table

    recipe = Recipe(
        library=library_of(options),
        fpga=options.fpga,
        combinational=options.combinational,
        full_adders=options.full_adders,
        least_area=options.least_area,
        clock_gating=options.clock_gating,
        place=options.place,
        orders=orders_of(options),
    )
    if options.for_frequency is not None:
        return _for_frequency(options, config, recipe)
    with progress_bar("synthesis run", "sptc area") as progress:
        measured = survey(
            config,
            recipe,
            jobs=options.jobs or cores(),
            twin=not options.unit_only,
            array=not options.unit_only,
            closer=[name for name in CLOSER if getattr(options, name)],
            top=options.top or "",
            progress=progress,
        )
    print_result(options, as_dict(measured), table(measured))
    if options.plot:
        plot_survey(measured, options.plot)
    if options.report:
        write_whole(options.report, json.dumps(measured.unit.route, indent=1).encode())
    return 0


def _check_placing(options: argparse.Namespace) -> None:
    """Raise an `Error` for an option that needs ``--place`` but is given without it, or that excludes ``--place``."""
    if not options.place:
        for name in ("for_frequency", "report"):
            if getattr(options, name) is not None:
                raise Error(f"{flag(name)} needs --place")
        return
    if options.fpga != "ecp5":
        raise Error("--place supports only the ECP5 family: add --fpga ecp5")
    for name, spelling in (("stage", "--by-stage"), ("format", "--by-format"), ("combinational", "--combinational")):
        if getattr(options, name):
            raise Error(f"{spelling} cannot be combined with --place, which places a whole unit with its registers")
    for name in ("cuts", "plot"):
        if options.for_frequency is not None and getattr(options, name) is not None:
            raise Error(f"{flag(name)} cannot be combined with --for-frequency, which chooses the pipeline cuts")


def _for_frequency(options: argparse.Namespace, config: CoreConfig, recipe: "Recipe") -> int:
    """Search for pipeline registers with which a dot-product unit reaches ``--for-frequency``; print all attempts."""
    from ..synth.frequency import choices_as_dict, choices_for, choices_table, fastest

    target = options.for_frequency
    with progress_bar("synthesis run", "sptc area") as progress:
        choices = [*choices_for(config, recipe, target, options.jobs or cores(), progress)]
    print_result(options, choices_as_dict(choices, recipe, target), choices_table(choices, recipe, target))
    best = fastest(choices)
    if options.report:
        write_whole(options.report, json.dumps(best.measurement.route, indent=1).encode())
    return int(best.megahertz < target)
