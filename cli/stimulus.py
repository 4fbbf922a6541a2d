"""Part of ``sptc vectors`` that writes seeded operands with expected results, for other testbenches."""

import argparse
import json
import re
from pathlib import Path
from typing import Any

from ..errors import OperandError
from ..rtl.config import PRESET_OF_ARCHITECTURE
from ..verify.pack_files import subject_named
from ..verify.stimulus import NIBBLES
from ..verify.vector_levels import LEVELS
from ..verify.vectors import BACKENDS, FORMATS, MANIFEST, VectorRequest, write_vectors
from .arguments import integer
from .configuration import add_datapath, datapath

__all__ = ["add_options", "execute", "used"]

#: Options of this part only. They have no default, so that a given option can be recognised.
_OWN = ("tiles", "format", "level", "distribution", "nibbles", "backend", "bench")
#: Options that :func:`~.configuration.datapath` reads.
_OF_DATAPATH = (
    "preset", "config", "formats", "scales", "step_bytes", "products", "alignment_bits", "mux", "rows", "columns",
    "cuts", "dense",
)  # fmt: skip
#: Default architecture, if it has the instruction.
_DEFAULT_ARCH = "sm_90"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of seeded vectors, to the parser that also has those of :mod:`.conformance`."""
    parser.add_argument(
        "instruction",
        nargs="*",
        metavar="INSTRUCTION",
        help="write seeded vectors of this instruction: in PTX syntax, for tcgen05 with shape and types in brackets; "
        "several instructions are written to subfolders of --output",
    )
    group = parser.add_argument_group("writing vectors")
    group.add_argument("--tiles", type=integer(1), metavar="N", help="number of random tiles (default 1)")
    group.add_argument(
        "--format",
        choices=FORMATS,
        help="register file or arrays (npz, the default), $readmemh files, JSON, or SystemVerilog",
    )
    group.add_argument(
        "--level",
        choices=LEVELS,
        help="interface of the vectors: registers and memory (the default), the streams of the emitted warp, or steps "
        "of the emitted row or unit",
    )
    group.add_argument(
        "--distribution", metavar="NAME", help="distribution of operands (default: all that apply, in turn)"
    )
    group.add_argument(
        "--nibbles", choices=tuple(NIBBLES), help="metadata: legal (the default), also 0x0 for zeros, or all sixteen"
    )
    group.add_argument(
        "--backend",
        choices=BACKENDS,
        help="back end for the results of level registers: the golden model (the default), or libsptc, which gives the "
        "same bits several times as fast",
    )
    group.add_argument(
        "--bench", action="store_true", default=None, help="also write the Verilog of the top and a testbench, tb.sv"
    )
    add_datapath(parser)


def used(options: argparse.Namespace) -> str:
    """Return the first option of this part that is given, or an empty string."""
    names = [name for name in (*_OWN, *_OF_DATAPATH) if getattr(options, name) not in (None, False)]
    return f"--{names[0].replace('_', '-')}" if names else ""


def execute(options: argparse.Namespace) -> int:
    """Write the vectors; return the exit status."""
    if options.pack or options.check or options.results:
        raise OperandError("vectors of an instruction are written without --pack, --check and --results")
    if options.junit or options.github or options.jobs:
        raise OperandError("--junit, --github and --jobs are for packs, not for the vectors of an instruction")
    if not options.output:
        raise OperandError("the vectors of an instruction take where to write: --output FOLDER")
    requests = [_request(text, options) for text in dict.fromkeys(options.instruction)]
    folder: Path = options.output
    folders = [folder] if len(requests) == 1 else [folder / _word(request) for request in requests]
    manifests = [write_vectors(request, place) for request, place in zip(requests, folders, strict=True)]
    if options.json:
        print(json.dumps({"manifests": manifests}, indent=1))
        return 0
    for manifest, place in zip(manifests, folders, strict=True):
        print(_said(manifest, place))
    return 0


def _request(text: str, options: argparse.Namespace) -> VectorRequest:
    own: dict[str, Any] = {name: getattr(options, name) for name in _OWN if getattr(options, name) is not None}
    architectures = subject_named(text).instruction.architectures
    arches = options.arch or [_DEFAULT_ARCH if _DEFAULT_ARCH in architectures else architectures[0]]
    if len(arches) != 1 or arches[0] == "all":
        raise OperandError("the vectors of an instruction are of one architecture: --arch takes one name")
    level = own.get("level", LEVELS[0])
    if level == LEVELS[0]:
        if asked := [name for name in _OF_DATAPATH if getattr(options, name) not in (None, False)]:
            raise OperandError(f"--{asked[0].replace('_', '-')} is for the levels {', '.join(LEVELS[1:])}")
        config = None
    else:
        options.default_preset = PRESET_OF_ARCHITECTURE[arches[0]]
        config = datapath(options)
    return VectorRequest(instruction=text, arch=arches[0], seed=options.seed, config=config, **{"tiles": 1, **own})


def _word(request: VectorRequest) -> str:
    """Return the folder name of an instruction."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", request.subject.name).strip("-")


def _said(manifest: dict[str, Any], folder: Path) -> str:
    size = sum(file["bytes"] for file in manifest["files"].values())
    tables = ", ".join(f"{table['name']} {table['count']} x {table['bits']} bits" for table in manifest["tables"])
    return (
        f"{folder}: {manifest['tiles']} tiles of {manifest['instruction']} on {manifest['arch']}, level "
        f"{manifest['level']}: {tables}; {len(manifest['files'])} files of {size} bytes and {MANIFEST}"
    )
