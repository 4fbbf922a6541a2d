"""``sptc sweep``: list area and throughput of dot-product units for a grid of datapath configurations."""

import argparse
from itertools import product

from ..infra.pools import cores
from ..rtl.config import PRESETS, CoreConfig
from .configuration import library_of, orders_of
from .options import Commands, add, refuse, switch
from .progress import progress_bar
from .terminal import print_result

__all__ = ["add_parser"]


def add_parser(commands: Commands) -> None:
    """Add the parser of ``sptc sweep`` to the command line."""
    parser = commands.add_parser(
        "sweep",
        help="list area and throughput of a grid of configurations",
        description="Synthesise the unit of every configuration of a grid, as `sptc area` does. List the area and the "
        "kept products per cycle of each unit. With a liberty file, also list kept products per nanosecond. The axes "
        "of the grid are the options with several values.",
    )
    add(parser, "formats", nargs="+", default=[PRESETS["hopper"].formats], note=" (default: formats of preset hopper)")
    for name, value in (
        ("alignment", CoreConfig.alignment_bits),
        ("step_bytes", CoreConfig.step_bytes),
        ("mux", CoreConfig.mux),
        ("cuts", CoreConfig.cuts),
    ):
        text = ",".join(value) if isinstance(value, tuple) else value
        add(parser, name, nargs="+", default=[value], note=f" (default {text})")
    kinds = parser.add_mutually_exclusive_group()
    switch(kinds, "--dense", "measure only units without sparsity, for a dense A")
    switch(kinds, "--compare-dense", "measure each unit also without sparsity")
    add(parser, "liberty", "dont_use", "combinational", "orders")
    add(parser.add_mutually_exclusive_group(), "jobs", "scheduler")
    add(parser, "plot", help="draw area against throughput (needs pip install 'sptc[area]')")
    add(parser, "json")
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> int:
    from ..synth.recipe import Recipe
    from ..synth.sweep import Place, point_at, sweep
    from ..synth.sweep_report import plot_sweep, sweep_as_dict, sweep_table

    recipe = Recipe(library=library_of(options), combinational=options.combinational, orders=orders_of(options))
    axes = (options.formats, options.alignment, options.step_bytes, options.mux, options.cuts)
    kinds = (True, False) if options.compare_dense else (not options.dense,)
    places = [Place(*values) for values in product(*map(dict.fromkeys, axes), kinds)]
    configs = [point_at(place).config for place in places]
    if all(config and "alignment_bits" not in config.used_fields for config in configs):
        refuse(options, ("alignment",), "has no effect, because no format is a float")
    with progress_bar("point", "sptc sweep") as progress:
        points = sweep(places, recipe, jobs=options.jobs or cores(), scheduler=options.scheduler, progress=progress)
    print_result(options, sweep_as_dict(points, recipe), sweep_table(points, recipe))
    if options.plot:
        plot_sweep(points, recipe, options.plot)
    return 0
