"""``sptc presets``, ``config``, ``ports`` and ``verilog``: datapath presets, derived figures, ports and Verilog."""

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .. import __version__
from ..infra.files import write_whole
from ..rtl.config import PRESETS, WARP_COLUMNS, WARP_ROWS, WARP_SEGMENT_BYTES, CoreConfig
from .configuration import add_datapath, datapath
from .options import add

__all__ = ["add_parsers"]

_TOPS = ("unit", "row", "core", "warp", "warpgroup", "warpgroups", "tcgen05")


def add_parsers(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add the subcommands."""
    presets = commands.add_parser("presets", help="list the presets", description="List the presets: named datapaths.")
    add(presets, "json")
    presets.set_defaults(execute=_presets)
    config = commands.add_parser(
        "config",
        help="print a datapath's configuration and derived figures",
        description="Print the configuration of a datapath and its derived figures: widths in bits, latencies in "
        "cycles, products per cycle.",
    )
    add_datapath(config)
    add(config, "json", note="; --config reads it")
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


def _presets(options: argparse.Namespace) -> int:
    if options.json:
        print(json.dumps({name: asdict(config) for name, config in PRESETS.items()}, indent=1))
        return 0
    print(f"{'preset':13}  {'units':>5}  {'step':>5}  {'F':>8}  mux   {'latency':>7}  formats")
    for name, config in PRESETS.items():
        alignments = [config.alignment_bits]
        if config.fp8_alignment_bits != config.alignment_bits:
            alignments.append(config.fp8_alignment_bits)
        if any(element.packed_float for element in config.elements):
            alignments.append(config.block_alignment_bits)
        print(
            f"{name:13}  {f'{config.rows}x{config.columns}':>5}  {f'{config.step_bytes} B':>5}  "
            f"{'/'.join(map(str, alignments)):>8}  {config.mux}  {config.latency:>7}  {' '.join(config.formats)}"
            f"{' with ' + ' '.join(config.scales) if config.scales else ''}"
        )
    return 0


def _config(options: argparse.Namespace) -> int:
    config = datapath(options)
    if options.json:
        print(json.dumps(asdict(config), indent=1))
        return 0
    from ..rtl.widths import Widths

    widths = Widths(config)
    rows = [(name, _shown(value)) for name, value in asdict(config).items()]
    rows += [(f"products of {element} a cycle", config.slots_of(element)) for element in config.elements]
    rows += [
        ("metadata nibbles a cycle", config.chunks if config.sparse else 0),
        ("latency of a unit, cycles", config.latency),
        ("bits of a product's significands", widths.significand_bits),
        ("bits of an aligned product", widths.term_bits),
        ("bits of the sum", widths.total_bits),
        ("results", ", ".join(sorted(code.name for code in widths.results))),
    ]
    if config.serves_warp:
        steps = 2 * WARP_SEGMENT_BYTES // config.step_bytes
        outputs = f"{WARP_ROWS} x {WARP_COLUMNS} outputs, {2 * WARP_SEGMENT_BYTES} bytes of A a row"
        rows += [
            (f"cycles of {outputs}", config.warp_interval(steps)),
            ("latency of these in a warp, cycles", config.warp_latency(steps)),
        ]
    width = max(len(name) for name, _ in rows)
    print("\n".join(f"{name:{width}}  {value}" for name, value in rows))
    return 0


def _shown(value: object) -> object:
    return (" ".join(value) or "none") if isinstance(value, tuple) else value


def _ports(options: argparse.Namespace) -> int:
    from ..rtl.ports import ports
    from ..rtl.systemverilog import lines_of_ports

    config = datapath(options)
    listed = ports(config, options.top)
    if options.json:
        print(json.dumps({"top": options.top, "ports": [asdict(port) for port in listed]}, indent=1))
    else:
        print("\n".join(lines_of_ports(listed)))
    return 0


def _header(config: CoreConfig, top: str) -> str:
    from ..rtl.ports import ports
    from ..rtl.systemverilog import lines_of_ports

    lines = [f"sptc {__version__}: {top} of {'preset ' if config.name in PRESETS else ''}{config.name}"]
    lines += [f"  {name} = {value}" for name, value in asdict(config).items() if name != "name"]
    lines += ["", *(line.rstrip() for line in lines_of_ports(ports(config, top)))]
    # Amaranth leaves exact widths and cases implicit. Verilator would warn of each of them.
    lints = [f"verilator lint_off {rule}" for rule in ("ASCRANGE", "CASEINCOMPLETE", "WIDTHEXPAND", "WIDTHTRUNC")]
    return "".join(f"// {line}".rstrip() + "\n" for line in lines) + "".join(f"/* {lint} */\n" for lint in lints)


def _verilog(options: argparse.Namespace) -> int:
    from ..rtl.emit import emit, module_name
    from ..rtl.systemverilog import package

    config = datapath(options)
    name = module_name(config, options.top)
    text = _header(config, options.top) + emit(config, options.top, name)
    if options.sv_package:
        write_whole(options.sv_package, package(config, options.top, name).encode())
    write_whole(options.output, text.encode())
    return 0
