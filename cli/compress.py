"""``sptc compress``: convert matrices to structured-sparse files in the formats of software libraries, and back."""

import argparse
from pathlib import Path

from ..errors import OperandError
from ..isa.metadata import GRANULARITIES, RULES, Granularity
from ..isa.names import in_registers
from ..tensors.checkpoints import Checkpoint, pack, read_compressed, write_compressed
from ..tensors.compressed import check_nibbles
from ..tensors.files import check_output, read_matrix, write_tensors
from ..tensors.quantise import RECIPES, quantise
from ..tensors.software_formats import SOFTWARE_FORMATS, PackingOptions
from ..tensors.sparsify import expand, sparsify
from ..tensors.summary import checkpoint_summary, nonzero, summary_text
from .options import Commands, add, flag, integer, switch
from .progress import progress_bar
from .terminal import print_result

__all__ = ["add_parser"]

#: Key: file format. Value: default of ``--producer``, the library whose metadata nibbles are written for chunks with
#: fewer non-zeros than stored elements. For all other formats, the default is ``pytorch``.
_PRODUCERS = {"cutlass3-sm90": "cutlass3", "cutlass3-sm100": "cutlass3", "bitmask": "bitmask"}

#: Key: alias of a file format. Value: name of this file format.
_ALIASES = {"pytorch": "cutlass2"}

#: Key: option of one file format. Value: name of this file format.
_OPTION_OF = {"instruction": "ptx", "selector": "ptx", "tile_k": "cutlass3-sm90"}


def add_parser(commands: Commands) -> None:
    """Add the parser of ``sptc compress`` to the command line."""
    parser = commands.add_parser(
        "compress",
        help="convert a matrix to sparse values and metadata, or back",
        description="Read a matrix from a .npy, .npz, .safetensors or .pt file and compress it to stored values and "
        "metadata. The matrix must already be sparse, unless --prune is given. --format quantises the stored values. "
        "--to chooses the file format, by the software that reads it. With --from, read a compressed matrix instead of "
        "a dense one. With --expand, write the dense matrix. Without --output, only print the summary.",
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="matrix to read")
    add(parser, "tensor")
    add(parser, "output", help=".safetensors or .npz file to write; - writes .npz to standard output")
    add(parser, "json")
    _add_input_options(parser)
    _add_output_options(parser)
    parser.set_defaults(execute=_execute)


def _add_input_options(parser: argparse.ArgumentParser) -> None:
    dense = parser.add_argument_group("compressing")
    dense.add_argument("--granularity", choices=GRANULARITIES, help="sparsity structure (default 2:4)")
    add(dense.add_mutually_exclusive_group(), "prune", "check")
    add(dense, "producer", note=" (default: the software of the --to format, else pytorch)")
    numbers = parser.add_argument_group("quantisation of the stored values")
    add(numbers, "format", help="number format to quantise to (default: no quantisation)")
    numbers.add_argument(
        "--recipe",
        choices=RECIPES,
        help="scales of quantised values. plain (default): one for a matrix of integers, none for floats; mx, nvfp4, "
        "group: one per block of 32, 16 or 64 stored values; channel: one per row",
    )
    numbers.add_argument(
        "--saturate",
        action=argparse.BooleanOptionalAction,
        help="store numbers that overflow as the largest number of the format (default), else as infinity or NaN",
    )
    add(numbers, "nan", note=" (default error)")


def _add_output_options(parser: argparse.ArgumentParser) -> None:
    layout = parser.add_argument_group("software formats")
    names = (*SOFTWARE_FORMATS, *_ALIASES)
    others = ", ".join(f"{other} is {name}" for other, name in _ALIASES.items())
    layout.add_argument(
        "--from", type=_format, choices=names, dest="source", help="file format of FILE, if FILE is a compressed matrix"
    )
    target = layout.add_mutually_exclusive_group()
    target.add_argument("--to", type=_format, choices=names, help=f"file format to write (default natural; {others})")
    switch(target, "--expand", "write the dense matrix, quantised values as float32")
    layout.add_argument(
        "--rule",
        choices=RULES,
        help="rule that says which metadata nibbles are valid (default: tf32 for 1:2 sparsity, else plain)",
    )
    add(
        layout,
        "instruction",
        help="with format ptx: instruction whose registers hold the matrix (default: the largest mma.sp)",
    )
    add(layout, "selector", help="with format ptx: sparsity selector (default 0)")
    layout.add_argument(
        "--tile-k",
        type=integer(1),
        metavar="K",
        help="with format cutlass3-sm90: K of a tile, in elements (default 128)",
    )
    layout.add_argument(
        "--scale-layout",
        choices=("rows", "128x4"),
        help="order of block scales: by rows, or in blocks of 128 x 4 (default: 128x4 for cutlass3-sm100, else rows)",
    )


def _format(word: str) -> str:
    return _ALIASES.get(word, word)


def _execute(options: argparse.Namespace) -> int:
    _check_options(options)
    if options.output:
        check_output(options.output)
    packing = _packing(options)
    summary: dict[str, object] = {"file": str(options.file)}
    if options.source:
        granularity = GRANULARITIES[options.granularity] if options.granularity else None
        checkpoint = read_compressed(
            options.file,
            options.source,
            options.tensor,
            granularity,
            packing,
            _required(options, packing),
        )
    else:
        checkpoint = _compressed(options, summary)
    check_nibbles(checkpoint.compressed, options.rule)
    summary |= checkpoint_summary(checkpoint)
    if options.output:
        summary |= {"output": str(options.output), "written": "dense" if options.expand else options.to or "natural"}
        _write(options, checkpoint, packing)
    elif options.to:
        pack(checkpoint, options.to, packing)
    return print_result(options, summary, summary_text(summary))


def _check_options(options: argparse.Namespace) -> None:
    """Raise an `OperandError` for options that would have no effect."""
    for name in ("prune", "check", "producer", "format"):
        if options.source and getattr(options, name):
            raise OperandError(f"{flag(name)} cannot be combined with --from, which reads a compressed matrix")
    formats = (options.source, options.to)
    for name, is_useful, others in (
        ("recipe", options.format, "--format"),
        ("nan", options.format, "--format"),
        ("saturate", options.format, "--format"),
        ("scale_layout", options.output or options.to, "--output or --to"),
        *((name, fmt in formats, f"--from {fmt} or --to {fmt}") for name, fmt in _OPTION_OF.items()),
    ):
        if getattr(options, name) is not None and not is_useful:
            raise OperandError(f"{flag(name)} needs {others}")
    if options.expand and not options.output:
        raise OperandError("--expand needs --output")


def _required(options: argparse.Namespace, packing: PackingOptions) -> dict[str, str]:
    """Return the options that state how FILE was stored, as texts by name, without options that describe the output."""
    values = {"instruction": packing.instruction, "selector": options.selector, "tile_k": options.tile_k}
    return {key: str(value) for key, value in values.items() if value is not None and options.to != _OPTION_OF[key]}


def _packing(options: argparse.Namespace) -> PackingOptions:
    return PackingOptions(
        instruction=in_registers(options.instruction) if options.instruction else None,
        sparsity_selector=options.selector or 0,
        tile_k=PackingOptions.tile_k if options.tile_k is None else options.tile_k,
        scale_layout=options.scale_layout,
    )


def _compressed(options: argparse.Namespace, summary: dict[str, object]) -> Checkpoint:
    matrix = read_matrix(options.file, options.tensor)
    granularity: Granularity = GRANULARITIES[options.granularity or "2:4"]
    producer = options.producer or _PRODUCERS.get(options.to, "pytorch")
    with progress_bar("row") as progress:
        compressed = sparsify(matrix, granularity, prune=options.prune, producer=producer, progress=progress)
    summary |= {"producer": producer, "nonzero": nonzero(matrix)}
    if not options.format:
        return Checkpoint(compressed)
    with progress_bar("row") as progress:
        quantised = quantise(
            compressed.stored,
            options.format,
            recipe=options.recipe or "plain",
            saturate=options.saturate is not False,
            nan=options.nan or "error",
            progress=progress,
        )
    checkpoint = Checkpoint.of(compressed, quantised)
    return checkpoint.recompressed(producer) if options.to == "marlin_24" else checkpoint


def _write(options: argparse.Namespace, checkpoint: Checkpoint, packing: PackingOptions) -> None:
    if not options.expand:
        write_compressed(options.output, options.tensor or "", checkpoint, options.to or "natural", packing)
        return
    with progress_bar("row") as progress:
        dense = expand(checkpoint.values(), options.rule, progress=progress)
    write_tensors(options.output, {options.tensor or "matrix": dense}, {})
