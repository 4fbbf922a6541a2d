"""``sptc timing``: print the cycles of instructions on a real GPU, and the resource that limits their rate."""

import argparse
from dataclasses import asdict
from functools import partial

from ..errors import InstructionError, OperandError
from ..isa.architectures import same_numerics
from ..isa.instructions import require_architecture
from ..isa.kernel_timing import Tile, dense_twin, product_timing
from ..isa.names import in_registers
from ..isa.timing import ARCHITECTURE
from ..show.timing import plot_rates, product_table, shape_note, timing_rows, timing_table
from .options import Commands, add, integer
from .terminal import print_result

__all__ = ["add_parser"]


def add_parser(commands: Commands) -> None:
    """Add the parser of ``sptc timing`` to the command line."""
    parser = commands.add_parser(
        "timing",
        help="print the cycles that instructions take on a GPU",
        description="Print the cycles of sparse and dense mma and wgmma on an H200, by a formula that reproduces the "
        "measurements. Cycles of emulated mma, of fp8 and 4-bit integers, were measured on an H100. The columns are: "
        "cycles from one instruction to the next, for mma on one of the four tensor cores of an SM and for wgmma on "
        "all four; latency in cycles; kept MACs per cycle of one tensor core; the resource that limits the interval; "
        "the evidence. For dense tcgen05, the formula reproduces measurements of a B200 by others. For sparse tcgen05, "
        "the formula is unconfirmed. Rates of mma on other architectures come from NVIDIA's white papers, which have "
        "no latencies.",
    )
    parser.add_argument(
        "instruction",
        nargs="*",
        default=[],
        metavar="INSTRUCTION",
        help="instruction in PTX syntax, in which shape and types may follow tcgen05 in brackets; some words of its "
        "name; or a name of SASS, e.g. HMMA.SP.16832.F32 (default: list every kind of instruction)",
    )
    add(
        parser,
        "arch",
        help="architecture or target of PTX (default: sm_90, or the first architecture that has INSTRUCTION)",
    )
    parser.add_argument(
        "--product",
        nargs=3,
        type=integer(1),
        metavar=("M", "N", "K"),
        help="estimate the cycles of a kernel that computes a product of this size with wgmma INSTRUCTION on all SMs "
        "of an H200, sparse and dense",
    )
    parser.add_argument(
        "--tile", type=_tile, metavar="ROWSxCOLUMNS", help="with --product: output tile of a CTA (default 128x256)"
    )
    parser.add_argument(
        "--result-bytes",
        type=integer(1),
        metavar="N",
        help="with --product: bytes per element of the result in memory (default: size of the accumulator type)",
    )
    add(parser, "json", help="print one JSON list of all instructions and nothing else")
    add(parser, "svg", help="draw the rate of wgmma, and its limits, for each N (needs pip install 'sptc[area]')")
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> int:
    if (options.tile or options.result_bytes) and not options.product:
        raise InstructionError("--tile and --result-bytes need --product")
    options.instruction = " ".join(options.instruction) or None
    if options.product:
        return _product(options)
    if options.svg and same_numerics(options.arch or ARCHITECTURE) != ARCHITECTURE:
        raise InstructionError(f"--svg draws only wgmma on {ARCHITECTURE}; leave out --arch {options.arch}")
    rows = [*timing_rows(options.instruction, options.arch)]
    if options.svg:
        plot_rates(options.svg)
    shown = [row for row in rows if row.is_listed or options.instruction]
    if (note := shape_note(options.instruction, rows)) and not options.json:
        print(note)
    return print_result(options, [row.as_dict() for row in rows], partial(timing_table, shown))


def _tile(text: str) -> Tile:
    rows, _, columns = text.partition("x")
    if not (rows.isdecimal() and columns.isdecimal()):
        raise argparse.ArgumentTypeError(f"the value must be ROWSxCOLUMNS such as 128x256, not {text!r}")
    try:
        return Tile(int(rows), int(columns))
    except OperandError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _product(options: argparse.Namespace) -> int:
    """Print the cycles of a matrix product. For a sparse instruction, also print dense cycles and the speed-up."""
    if options.instruction is None or options.svg:
        raise InstructionError("--product needs INSTRUCTION and cannot be combined with --svg")
    instruction = in_registers(options.instruction, options.arch or ARCHITECTURE)
    require_architecture(instruction, same_numerics(options.arch or ARCHITECTURE))
    instructions = [instruction, *([dense_twin(instruction)] if instruction.sparse else [])]
    timings = [product_timing(i, tuple(options.product), options.tile, options.result_bytes) for i in instructions]
    rows = [{"instruction": str(i)} | asdict(cycles) for i, cycles in zip(instructions, timings, strict=True)]
    return print_result(options, rows, product_table(instructions, timings))
