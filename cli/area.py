"""``sptc area``: gate count, area and delay of a datapath, for standard cells or an FPGA."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import Error
from ..infra.files import require_writable, write_whole
from ..infra.pools import cores
from ..rtl.config import CoreConfig
from .arguments import number, processes
from .configuration import add_datapath, datapath
from .progress import progress_bar

if TYPE_CHECKING:
    from ..synth.recipe import Recipe

__all__ = ["add_parser"]

_FPGAS = ("ice40", "ecp5", "xilinx")


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add the subcommand."""
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
    technology.add_argument("--liberty", type=Path, metavar="FILE", help="standard cell library to map to")
    technology.add_argument("--fpga", choices=_FPGAS, help="map to this FPGA family and count its cells")
    parser.add_argument(
        "--place",
        action="store_true",
        help="also place and route the unit between operand and result registers (needs --fpga ecp5)",
    )
    parser.add_argument(
        "--for-frequency",
        type=_frequency,
        metavar="MHZ",
        help="with --place: add pipeline registers one at a time, the most effective first, until the unit reaches "
        "this frequency; exit status 1 if it does not",
    )
    parser.add_argument("--report", type=Path, metavar="FILE.json", help="with --place: write the report of nextpnr")
    parser.add_argument("--unit-only", action="store_true", help="measure the unit alone: no dense twin, no array")
    parser.add_argument("--by-stage", dest="stage", action="store_true", help="also measure each stage of the unit")
    parser.add_argument(
        "--warpgroup", action="store_true", help="also measure the parts of a warpgroup: four arrays and their fetch"
    )
    parser.add_argument(
        "--by-format", dest="format", action="store_true", help="also measure what each format adds to the unit"
    )
    parser.add_argument(
        "--combinational",
        action="store_true",
        help="measure the unit with its pipeline registers replaced by wires, and no array",
    )
    parser.add_argument(
        "--full-adders", action="store_true", help="also map the unit with the library's full-adder cells"
    )
    parser.add_argument(
        "--plot", type=Path, metavar="FILE.svg", help="draw the area of the stages or of the array parts"
    )
    parser.add_argument(
        "--jobs", type=processes, default=cores(), metavar="N", help="processes (default: one per core)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> int:
    config = datapath(options)
    if options.full_adders and not options.liberty:
        raise Error("--full-adders needs the full adder of a library; add --liberty FILE")
    _check_placing(options)
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
        place=options.place,
    )
    if options.for_frequency is not None:
        return _for_frequency(options, config, recipe)
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
    if options.report:
        write_whole(options.report, json.dumps(found.unit.route, indent=1).encode())
    return 0


def _frequency(text: str) -> float:
    found = number(text)
    if found <= 0:
        raise argparse.ArgumentTypeError(f"must be more than 0, not {text}")
    return found


def _check_placing(options: argparse.Namespace) -> None:
    """Refuse options that cannot be combined with ``--place`` or that need it.

    Raises
    ------
    Error
        Two options contradict each other.
    """
    if not options.place:
        for name in ("for_frequency", "report"):
            if getattr(options, name) is not None:
                raise Error(f"--{name.replace('_', '-')} is of what is placed: add --place")
        return
    if options.fpga != "ecp5":
        raise Error("--place is of an ECP5: add --fpga ecp5")
    for name, flag in (("stage", "--by-stage"), ("format", "--by-format"), ("combinational", "--combinational")):
        if getattr(options, name):
            raise Error(f"{flag} does not go with --place, which is of a whole unit with its registers")
    for name in ("cuts", "plot"):
        if options.for_frequency is not None and getattr(options, name) is not None:
            raise Error(f"--{name} does not go with --for-frequency, which tries cuts and prints a table")
    if options.report:
        require_writable(options.report)


def _for_frequency(options: argparse.Namespace, config: CoreConfig, recipe: "Recipe") -> int:
    """Search for pipeline cuts that reach ``--for-frequency`` and print every choice tried."""
    from ..synth.frequency import choices_for
    from ..synth.report import about, columns, heading

    with progress_bar("netlist") as progress:
        choices = [*choices_for(config, recipe, options.for_frequency, options.jobs, progress)]
    best = max(choices, key=lambda choice: choice.megahertz)
    reached = best.megahertz >= options.for_frequency
    if options.json:
        found = [{"cuts": list(c.cuts), "mhz": c.megahertz, "cells": c.measurement.amounts} for c in choices]
        print(json.dumps({**about(recipe), "mhz_wanted": options.for_frequency, "choices": found}, indent=1))
    else:
        rows = [["cuts", "MHz", *recipe.amounts]]
        for choice in choices:
            amounts = (f"{amount:.0f}" for amount in choice.measurement.amounts.values())
            rows.append([",".join(choice.cuts) or "none", f"{choice.megahertz:.1f}", *amounts])
        said = "" if reached else f"; none that was tried reaches {options.for_frequency:g} MHz"
        best_words = f"--cuts {','.join(best.cuts) or 'none'}: {best.megahertz:.1f} MHz{said}"
        print("\n".join([*heading(recipe), "", *columns(rows), best_words]))
    if options.report:
        write_whole(options.report, json.dumps(best.measurement.route, indent=1).encode())
    return 0 if reached else 1
