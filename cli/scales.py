"""``sptc scales``: convert block scales between row-major order and blocks of 128 rows x 4 scales."""

import argparse
from pathlib import Path

from ..errors import OperandError
from ..tensors.files import check_output, open_tensors, write_tensors
from ..tensors.scales import SCALE_LAYOUTS, from_scale_blocks
from .options import Commands, add, integer
from .terminal import print_result

__all__ = ["add_parser"]


def add_parser(commands: Commands) -> None:
    """Add the parser of ``sptc scales`` to the command line."""
    parser = commands.add_parser(
        "scales",
        help="convert block scales between row order and 128 x 4 blocks",
        description="Read block scales, one byte each, and write them in another layout: row by row, or in the blocks "
        "of 128 rows x 4 scales that CUTLASS and cuBLASLt read on sm_100 and sm_120. In a block, scale k of row m is "
        "at offset 16 * (m mod 32) + 4 * floor(m / 32) + k; blocks are row-major and padded with zeros. A row of "
        "B's scales belongs to a column of B. `sptc compress --scale-layout` does the same in a compressed matrix.",
    )
    parser.add_argument("file", type=Path, metavar="FILE", help=".npy, .npz, .safetensors or .pt file to read")
    add(parser, "tensor")
    parser.add_argument(
        "--to", choices=("rows", "128x4"), required=True, help="layout to write; FILE must have the other layout"
    )
    parser.add_argument(
        "--shape",
        type=integer(1, 1 << 32),
        nargs=2,
        metavar=("ROWS", "SCALES"),
        help="number of rows, and number of scales in each row, without padding (for --to rows)",
    )
    add(parser, "output", help=".safetensors or .npz file to write; - writes .npz to standard output")
    add(parser, "json")
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> int:
    if (options.to == "rows") != (options.shape is not None):
        raise OperandError("--to rows needs --shape; --to 128x4 cannot be combined with --shape")
    if options.output:
        check_output(options.output)
    file = open_tensors(options.file)
    name = file.only("--tensor") if options.tensor is None else options.tensor
    scales = file.get(name)
    written = from_scale_blocks(scales, *options.shape) if options.shape else SCALE_LAYOUTS["128x4"].pack(scales)
    shape = options.shape or scales.shape
    if options.output:
        write_tensors(options.output, {name or "scales": written}, {"scale_layout": options.to})
    summary = {"file": str(options.file), "rows": shape[0], "scales": shape[1], "bytes": written.size, "to": options.to}
    text = f"{options.file}: {shape[0]} rows of {shape[1]} scales, {written.size} bytes "
    text += SCALE_LAYOUTS[options.to].meaning + (f", written to {options.output}" if options.output else "")
    return print_result(options, summary, text)
