"""``sptc sweep``: area and throughput of a grid of configurations."""

import argparse
import json
from pathlib import Path
from typing import Any

from ..infra.pools import cores
from ..rtl.config import MUXES, PRESETS, CoreConfig
from .arguments import integer, processes
from .configuration import cuts, words
from .progress import progress_bar

__all__ = ["add_parser"]


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "sweep",
        help="list area and throughput of a grid of configurations",
        description="Synthesise the unit of every configuration of a grid, as `sptc area` does. List its area and its "
        "kept products per cycle. With a liberty file, also list kept products per nanosecond. The axes of the grid "
        "are the options with several values.",
    )
    parser.add_argument(
        "--formats",
        nargs="+",
        type=words,
        default=[PRESETS["hopper"].formats],
        metavar="LIST",
        help="sets of formats, each comma-separated, e.g. f16,bf16 (default: those of hopper)",
    )
    parser.add_argument(
        "--alignment",
        nargs="+",
        type=integer(0),
        default=[CoreConfig.alignment_bits],
        metavar="F",
        help=f"alignment bits: bits kept below 2**E (default {CoreConfig.alignment_bits})",
    )
    parser.add_argument(
        "--step-bytes",
        nargs="+",
        type=integer(1),
        default=[CoreConfig.step_bytes],
        metavar="N",
        help=f"bytes of stored A per unit and cycle; they set the products (default {CoreConfig.step_bytes})",
    )
    parser.add_argument(
        "--mux",
        nargs="+",
        choices=MUXES,
        default=[CoreConfig.mux],
        help=f"operand multiplexers (default {CoreConfig.mux})",
    )
    parser.add_argument(
        "--cuts",
        nargs="+",
        type=cuts,
        default=[CoreConfig.cuts],
        metavar="LIST",
        help="sets of cuts with a pipeline register, each comma-separated, or none "
        f"(default {','.join(CoreConfig.cuts)})",
    )
    parser.add_argument("--dense", action="store_true", help="synthesise units without sparsity")
    parser.add_argument("--liberty", type=Path, metavar="FILE", help="standard cell library to map to")
    parser.add_argument("--combinational", action="store_true", help="replace pipeline registers by wires")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--jobs", type=processes, default=cores(), metavar="N", help="processes (default: one per core)")
    where.add_argument(
        "--scheduler", metavar="ADDRESS", help="synthesise on the Dask cluster of this scheduler (extra: dask)"
    )
    parser.add_argument("--plot", type=Path, metavar="FILE.svg", help="draw area against throughput")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> int:
    from ..infra.figures import check_plotting
    from ..synth.liberty import Library
    from ..synth.recipe import Recipe
    from ..synth.sweep import Grid, sweep
    from ..synth.sweep_report import plot_sweep, sweep_as_dict, sweep_table

    if options.plot:
        check_plotting()
    library = Library.read(options.liberty) if options.liberty else None
    recipe = Recipe(library=library, combinational=options.combinational)
    grid = Grid(
        formats=tuple(dict.fromkeys(options.formats)),
        alignments=tuple(dict.fromkeys(options.alignment)),
        step_bytes=tuple(dict.fromkeys(options.step_bytes)),
        muxes=tuple(dict.fromkeys(options.mux)),
        cuts=tuple(dict.fromkeys(options.cuts)),
        sparse=not options.dense,
    )
    with progress_bar("point") as progress:
        found = sweep(grid, recipe, jobs=options.jobs, scheduler=options.scheduler, progress=progress)
    print(json.dumps(sweep_as_dict(found, recipe), indent=1) if options.json else sweep_table(found, recipe))
    if options.plot:
        plot_sweep(found, recipe, options.plot)
    return 0
