"""``sptc compress``: convert matrices to structured-sparse files in software formats, and back."""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import OperandError
from ..isa.formats import FORMATS
from ..isa.instructions import parse
from ..isa.metadata import GRANULARITIES, RULES, Granularity
from ..tensors.blocks import row_blocks
from ..tensors.checkpoints import Checkpoint, pack, read_compressed, write_compressed
from ..tensors.compressed import Compressed, broken, check_nibbles, short_chunks
from ..tensors.files import check_output, read_matrix, write_tensors
from ..tensors.quantise import NAN_POLICIES, RECIPES, quantise
from ..tensors.software_formats import SOFTWARE_FORMATS, PackingOptions
from ..tensors.sparsify import PRODUCERS, expand, sparsify
from .arguments import integer
from .progress import progress_bar

__all__ = ["add_parser"]

#: Producer whose metadata a format gets in chunks with few non-zeros, by the format; PyTorch for the others.
_PRODUCER_OF = {"cutlass3-sm90": "cutlass3", "cutlass3-sm100": "cutlass3", "bitmask": "bitmask"}

#: Aliases of formats.
_OTHER_NAMES = {"pytorch": "cutlass2"}


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "compress",
        help="convert a matrix to structured-sparse values and metadata, or back",
        description="Read a matrix from a .npy, .npz, .safetensors or .pt file and compress it to stored values and "
        "metadata. The matrix must already be sparse, unless --prune is given. --format quantises the stored values. "
        "--to chooses the software whose file format is written. With --from, read such a file instead of a dense "
        "matrix. With --expand, write the dense matrix. Without --output, only print the summary.",
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="matrix to read")
    parser.add_argument("--tensor", metavar="NAME", help="tensor to read, if the file holds several")
    parser.add_argument("--output", type=Path, metavar="FILE", help=".safetensors or .npz file to write")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    _add_input_options(parser)
    _add_output_options(parser)
    parser.set_defaults(execute=_execute)


def _add_input_options(parser: argparse.ArgumentParser) -> None:
    dense = parser.add_argument_group("compressing")
    dense.add_argument("--granularity", choices=GRANULARITIES, help="sparsity structure (default 2:4)")
    how = dense.add_mutually_exclusive_group()
    how.add_argument("--prune", action="store_true", help="keep the largest magnitudes, drop the others")
    how.add_argument("--check", action="store_true", help="refuse a matrix that is not sparse (the default)")
    dense.add_argument(
        "--producer",
        choices=PRODUCERS,
        help="software whose metadata to write for chunks with few non-zeros (default: that of --to, or pytorch)",
    )
    numbers = parser.add_argument_group("quantising the stored values")
    numbers.add_argument("--format", choices=FORMATS, help="number format to quantise to (default: no quantisation)")
    numbers.add_argument(
        "--recipe",
        choices=RECIPES,
        help="plain cast, or one scale per block of 32 or 16 stored values (default plain)",
    )
    numbers.add_argument(
        "--saturate",
        action=argparse.BooleanOptionalAction,
        help="an overflow becomes the largest number of the format (default), or else infinity or NaN",
    )
    numbers.add_argument("--nan", choices=NAN_POLICIES, help="conversion of a NaN (default error)")


def _add_output_options(parser: argparse.ArgumentParser) -> None:
    layout = parser.add_argument_group("software formats")
    names = (*SOFTWARE_FORMATS, *_OTHER_NAMES)
    others = ", ".join(f"{other} is {name}" for other, name in _OTHER_NAMES.items())
    layout.add_argument("--from", type=_format, choices=names, dest="source", help="FILE is compressed, in this format")
    what = layout.add_mutually_exclusive_group()
    what.add_argument("--to", type=_format, choices=names, help=f"format to write (default natural; {others})")
    what.add_argument("--expand", action="store_true", help="write the dense matrix, quantised values as float32")
    layout.add_argument(
        "--rule", choices=RULES, help="metadata rule to check (default: tf32 for 1:2, plain for others)"
    )
    layout.add_argument(
        "--instruction",
        metavar="PTX",
        help="format ptx: instruction whose registers are filled (default: the largest mma.sp)",
    )
    layout.add_argument("--selector", type=integer(0), metavar="N", help="format ptx: sparsity selector (default 0)")
    layout.add_argument(
        "--tile-k", type=integer(1), metavar="K", help="format cutlass3-sm90: K of a tile, in elements (default 128)"
    )


def _format(word: str) -> str:
    """Return the format of a name or alias."""
    return _OTHER_NAMES.get(word, word)


def _execute(options: argparse.Namespace) -> int:
    _check_words(options)
    if options.output:
        check_output(options.output)
    packing = _packing(options)
    said: dict[str, object] = {"file": str(options.file)}
    if options.source:
        granularity = GRANULARITIES[options.granularity] if options.granularity else None
        checkpoint = read_compressed(
            options.file, options.source, options.tensor, granularity, packing if _packing_given(options) else None
        )
    else:
        checkpoint = _compressed(options, said)
    check_nibbles(checkpoint.compressed, options.rule)
    said |= _summary(checkpoint)
    if options.output:
        said |= {"output": str(options.output), "written": "dense" if options.expand else options.to or "natural"}
        _write(options, checkpoint, packing)
    elif options.to:
        pack(checkpoint, options.to, packing)
    print(json.dumps(said, indent=1) if options.json else _as_text(said))
    return 0


def _check_words(options: argparse.Namespace) -> None:
    """Refuse options that would have no effect."""
    given = {
        "--prune": options.prune,
        "--check": options.check,
        "--producer": options.producer,
        "--format": options.format,
    }
    if options.source:
        for word in (word for word, value in given.items() if value):
            raise OperandError(f"{word} is for a dense matrix, not with --from")
    for word, value in (("--recipe", options.recipe), ("--nan", options.nan), ("--saturate", options.saturate)):
        if value is not None and not options.format:
            raise OperandError(f"{word} needs --format")
    formats = (options.source, options.to)
    for word, value, name in (
        ("--instruction", options.instruction, "ptx"),
        ("--selector", options.selector, "ptx"),
        ("--tile-k", options.tile_k, "cutlass3-sm90"),
    ):
        if value is not None and name not in formats:
            raise OperandError(f"{word} is for the format {name}")
    if options.expand and not options.output:
        raise OperandError("--expand needs --output")


def _packing_given(options: argparse.Namespace) -> bool:
    return any(value is not None for value in (options.instruction, options.selector, options.tile_k))


def _packing(options: argparse.Namespace) -> PackingOptions:
    return PackingOptions(
        instruction=parse(options.instruction) if options.instruction else None,
        sparsity_selector=options.selector or 0,
        tile_k=PackingOptions.tile_k if options.tile_k is None else options.tile_k,
    )


def _compressed(options: argparse.Namespace, said: dict[str, object]) -> Checkpoint:
    matrix = read_matrix(options.file, options.tensor)
    granularity: Granularity = GRANULARITIES[options.granularity or "2:4"]
    producer = options.producer or _PRODUCER_OF.get(options.to, "pytorch")
    with progress_bar("row") as progress:
        compressed = sparsify(matrix, granularity, prune=options.prune, producer=producer, progress=progress)
    said |= {"producer": producer, "nonzero": _nonzero(matrix)}
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
    return Checkpoint.of(compressed, quantised)


def _nonzero(matrix: NDArray) -> int:
    return sum(int((np.asarray(matrix[rows]) != 0).sum()) for rows in row_blocks(matrix.shape))


def _summary(checkpoint: Checkpoint) -> dict[str, object]:
    compressed, quantised = checkpoint.compressed, checkpoint.quantised
    rules = ("tf32",) if compressed.granularity.name == "1:2" else ("plain", "ordered", "tcgen05")
    lenient = broken(compressed, rules[0], strict=False)
    undefined = {rule: broken(compressed, rule) for rule in rules}
    counted = compressed if quantised is None else checkpoint.values()
    return {
        "rows": compressed.shape[0],
        "columns": compressed.shape[1],
        "granularity": compressed.granularity.name,
        "elements": quantised.format.name if quantised else compressed.stored.dtype.name,
        "stored": compressed.stored.size,
        "stored_nonzero": _nonzero(counted.stored),
        "chunks": compressed.nibbles.size,
        "short_chunks": short_chunks(counted),
        "zero_nibbles": undefined[rules[0]] - lenient,
        "undefined": undefined,
    }


def _as_text(said: dict[str, Any]) -> str:
    lines = [
        f"{said['file']}: {said['rows']} rows, {said['columns']} columns, {said['granularity']}, {said['elements']}",
        f"stored elements                 {said['stored']:>12}, {said['stored_nonzero']} of them not zero"
        + (f" (of {said['nonzero']} in the matrix)" if "nonzero" in said else ""),
        f"chunks                          {said['chunks']:>12}",
        f"chunks with fewer non-zeros     {said['short_chunks']:>12}",
        f"chunks with nothing, nibble 0x0 {said['zero_nibbles']:>12}",
    ]
    undefined = "".join(f"\n  {rule:29} {count:>12}" for rule, count in said["undefined"].items())
    lines.append(f"chunks with undefined nibbles, by rule{undefined}")
    if "output" in said:
        lines.append(f"written to {said['output']} ({said['written']})")
    return "\n".join(lines)


def _write(options: argparse.Namespace, checkpoint: Checkpoint, packing: PackingOptions) -> None:
    if not options.expand:
        write_compressed(options.output, options.tensor or "", checkpoint, options.to or "natural", packing)
        return
    values: Compressed = checkpoint.values()
    with progress_bar("row") as progress:
        dense = expand(values, options.rule, progress=progress)
    write_tensors(options.output, {options.tensor or "matrix": dense}, {})
