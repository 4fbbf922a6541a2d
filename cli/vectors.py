"""``sptc vectors``: write random operands with expected results as test vectors for other testbenches."""

import argparse
from pathlib import Path
from typing import Any

from ..errors import FileError, OperandError
from ..infra.counts import counted
from ..isa.architectures import require_target
from ..isa.names import resolve
from ..rtl.config import PRESET_OF_ARCHITECTURE
from ..verify.pack_files import file_stem
from ..verify.register_file import RegisterFile, read
from ..verify.tensor_memory_file import TensorMemoryFile
from ..verify.vector_levels import BACKENDS, FORMATS, LEVELS, VectorRequest
from ..verify.vectors import MANIFEST, write_vectors
from . import pack
from .configuration import DATAPATH_OPTIONS, add_datapath, datapath
from .options import Commands, add, default_arch, refuse, switch
from .terminal import print_result

__all__ = ["add_parser"]

#: Options that `vectors --pack` and `vectors --check` reject. The default of these options is None, so that an option
#: on the command line is recognised.
_VECTOR_OPTIONS = ("tiles", "format", "level", "distribution", "nibbles", "backend", "bench")
#: Options that only `vectors --pack` and `vectors --check` have.
_ALIAS_OPTIONS = ("results", "jobs", "junit", "github")


def add_parser(commands: Commands) -> None:
    """Add the parser of ``sptc vectors`` to the command line."""
    parser = commands.add_parser(
        "vectors",
        help="write random operands with the expected results",
        description="Write random operands of instructions with the expected results: as registers, or as inputs and "
        "outputs of the emitted hardware, with a testbench on request.",
    )
    parser.add_argument(
        "instruction",
        nargs="*",
        default=[],
        metavar="INSTRUCTION",
        help="instruction in PTX syntax (tcgen05 with shape and types in brackets), whose operands are random, or "
        "register file FILE.npz, whose tiles are written; several arguments are written to subfolders of --output, "
        "named after the instruction or the file",
    )
    add(parser, "tiles", note=" (default 1)")
    parser.add_argument(
        "--format",
        choices=FORMATS,
        help="file format: NumPy arrays (npz, the default), $readmemh files, JSON, or SystemVerilog",
    )
    parser.add_argument(
        "--level",
        choices=LEVELS,
        help="content of the test vectors: registers and memory (the default), or the inputs and outputs of the "
        "Verilog module warp, row or unit",
    )
    add(parser, "distribution", "nibbles")
    add(
        parser,
        "backend",
        choices=BACKENDS,
        help="back end for the results if --level is registers: the golden model (the default), or libsptc, which "
        "gives the same bits several times as fast",
    )
    switch(parser, "--bench", "also write the Verilog of the top module and a testbench, tb.sv", default=None)
    add(
        parser,
        "arch",
        nargs="+",
        type=pack.architecture_or_all,
        help="architecture (default: sm_90, or the first architecture that has the instruction)",
    )
    add(parser, "output", metavar="FOLDER", help="folder to write to")
    add(parser, "seed", note=" (default 0)")
    add(parser, "json")
    add_datapath(parser)
    aliases = parser.add_argument_group(
        "former names of `sptc pack` and `sptc judge`", "The next release no longer accepts these options."
    )
    aliases.add_argument("--pack", nargs="+", metavar="INSTRUCTION", help="old name of `sptc pack INSTRUCTION`")
    aliases.add_argument(
        "--check", type=Path, metavar="PACK.npz", help="old name of `sptc judge PACK.npz RESULTS`; needs --results"
    )
    aliases.add_argument("--results", type=Path, metavar="RESULTS", help=f"results for --check: {pack.RESULTS}")
    add(aliases, "jobs", note="; only with --pack")
    add(aliases, "junit", "github", note="; only with --check")
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> int:
    if options.pack or options.check:
        return _execute_alias(options)
    if not options.instruction:
        raise OperandError("INSTRUCTION is required; conformance packs are written by `sptc pack`")
    refuse(options, _ALIAS_OPTIONS, "needs --pack or --check")
    if not options.output:
        raise OperandError("--output FOLDER is required")
    requests = {text: _request(text, options) for text in dict.fromkeys(options.instruction)}
    folders: list[Path] = [options.output]
    if len(requests) > 1:
        stems = [Path(text).stem if one.file else file_stem(one.subject.name) for text, one in requests.items()]
        if double := next((stem for stem in stems if stems.count(stem) > 1), None):
            raise FileError(f"two of the arguments would be written to the same subfolder {options.output / double}")
        folders = [options.output / stem for stem in stems]
    manifests = [write_vectors(request, place) for request, place in zip(requests.values(), folders, strict=True)]
    return print_result(options, {"manifests": manifests}, "\n".join(map(_summary, manifests, folders)))


def _execute_alias(options: argparse.Namespace) -> int:
    """Execute `sptc pack` or `sptc judge` for the old name `vectors --pack` or `vectors --check`."""
    former = "--pack" if options.pack else "--check"
    excluded = ["instruction", *_VECTOR_OPTIONS, *DATAPATH_OPTIONS]
    excluded += ["check", "results", "junit", "github"] if options.pack else ["output", "arch", "jobs", "seed"]
    refuse(options, excluded, f"cannot be combined with {former}")
    if options.pack:
        if not options.output:
            raise OperandError("--pack needs --output FOLDER, or --output FILE.npz for a single conformance pack")
        options.seed = options.seed or 0
        return pack.write_packs(options, options.pack)
    if not options.results:
        raise OperandError("--check needs --results FILE")
    return pack.judge_results(options, options.check)


def _request(text: str, options: argparse.Namespace) -> VectorRequest:
    """Return the request for the test vectors of one instruction."""
    choices: dict[str, Any] = {name: getattr(options, name) for name in _VECTOR_OPTIONS}
    choices = {name: value for name, value in choices.items() if value is not None}
    if text.endswith(".npz"):
        return _request_of_file(text, options, choices)
    subject = resolve(text, options.arch[0] if options.arch and pack.ALL not in options.arch else None)
    arches = options.arch or [default_arch(subject.instruction)]
    if len(arches) != 1 or arches[0] == pack.ALL:
        raise OperandError(f"--arch must name one architecture for test vectors, not {' '.join(arches)}")
    arch = require_target(subject.instruction, arches[0], subject.opcode)
    config = None
    if choices.get("level", LEVELS[0]) != LEVELS[0]:
        options.default_preset = PRESET_OF_ARCHITECTURE[arch]
        config = datapath(options)
    else:
        refuse(options, DATAPATH_OPTIONS, f"needs --level {', '.join(LEVELS[1:-1])} or {LEVELS[-1]}")
    return VectorRequest(
        instruction=subject.name, arch=arch, seed=options.seed or 0, config=config, **{"tiles": 1, **choices}
    )


def _request_of_file(path: str, options: argparse.Namespace, choices: dict[str, Any]) -> VectorRequest:
    names = ("tiles", "distribution", "nibbles", "arch", "bench", "seed", *DATAPATH_OPTIONS)
    refuse(options, names, "applies only to random tiles and cannot be combined with FILE.npz")
    file = read(path)
    assert isinstance(file, RegisterFile | TensorMemoryFile)
    return VectorRequest(instruction=file.name, arch=file.arch, tiles=file.cases, file=file, **choices)


def _summary(manifest: dict[str, Any], folder: Path) -> str:
    size = sum(file["bytes"] for file in manifest["files"].values())
    tables = ", ".join(f"{table['name']} {table['count']} x {table['bits']} bits" for table in manifest["tables"])
    return (
        f"{folder}: {counted(manifest['tiles'], 'tile')} of {manifest['instruction']} on {manifest['arch']}, level "
        f"{manifest['level']}: {tables}; {counted(len(manifest['files']), 'file')} of {size} bytes and {MANIFEST}; "
        f"{manifest['numerics']}"
    )
