"""``sptc presets`` and ``sptc verilog``: the datapaths by name, and their Verilog."""

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .. import __version__
from ..infra.files import write_whole
from ..rtl.config import PRESETS, CoreConfig

__all__ = ["add_parsers"]

_TOPS = ("unit", "row", "core", "warp", "wgmma", "tensor_memory")


def add_parsers(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add the subcommands."""
    presets = commands.add_parser("presets", help="list the datapaths by name", description="List the datapaths.")
    presets.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    presets.set_defaults(execute=_presets)
    verilog = commands.add_parser(
        "verilog", help="write a datapath as Verilog", description="Write a datapath as one file of Verilog."
    )
    verilog.add_argument("--preset", choices=PRESETS, required=True, help="which datapath")
    verilog.add_argument("--top", choices=_TOPS, default="core", help="what to write (default %(default)s)")
    verilog.add_argument("-o", "--output", type=Path, required=True, metavar="FILE.v", help="where to")
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


def _header(config: CoreConfig, top: str) -> str:
    lines = [f"sptc {__version__}: {top} of preset {config.name}"]
    lines += [f"  {name} = {value}" for name, value in asdict(config).items() if name != "name"]
    # Amaranth leaves widths and cases implicit where they are exact; Verilator would warn of each.
    lints = [f"verilator lint_off {rule}" for rule in ("ASCRANGE", "CASEINCOMPLETE", "WIDTHEXPAND", "WIDTHTRUNC")]
    return "".join(f"// {line}\n" for line in lines) + "".join(f"/* {lint} */\n" for lint in lints)


def _verilog(options: argparse.Namespace) -> int:
    from ..rtl.emit import emit

    config = PRESETS[options.preset]
    name = f"sptc_{config.name.replace('-', '_')}_{options.top}"
    text = _header(config, options.top) + emit(config, options.top, name)
    write_whole(options.output, text.encode())
    return 0
