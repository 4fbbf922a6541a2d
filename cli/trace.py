"""``sptc trace``: print the computation of one output step by step."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..errors import OperandError
from ..gemm.sources import read_factor
from ..infra.counts import counted
from ..infra.diagram import Theme
from ..infra.files import write_whole
from ..isa.architectures import require_target
from ..isa.names import resolve
from ..verify.archive import Recorded
from ..verify.pack_files import file_of, require_placed
from ..verify.register_file import read
from ..verify.replay import as_number
from ..verify.stimulus import draw_tiles, drawn_distributions
from ..verify.trace import as_code, as_decimal
from .factors import add_matrices, add_transpose, architecture_of
from .options import Commands, add, add_numerics, default_arch, integer, refuse, replaced_numerics, switch
from .terminal import print_result

if TYPE_CHECKING:
    from ..verify.trace_output import TracedOutput

__all__ = ["add_parser"]

#: Options that apply only if the operands are a random tile.
_DRAWN_OPTIONS = ("distribution", "nibbles", "seed")
_TILE_OPTIONS = ("arch", *_DRAWN_OPTIONS)
#: Options that apply only to the matrix product of two given matrices.
_PRODUCT_OPTIONS = ("a_tensor", "b_tensor", "transpose_b", "prune")
#: Maximum number of outputs of all random tiles that a command generates: the traced tile and all tiles before it.
_MOST_OUTPUTS = 1 << 24


def add_parser(commands: Commands) -> None:
    """Add the parser of ``sptc trace`` to the command line."""
    parser = commands.add_parser(
        "trace",
        help="print the computation of one output, step by step",
        description="Print the computation of one output of one instruction: elements selected by metadata, products, "
        "exponents, shift amounts, truncated bits, the sum, and its rounding. Print these values from the golden model "
        "and from the signals of the hardware. If the file has D, compare D with both results, and mark the first step "
        "from which D could differ. The exit status is 1 if golden model, hardware and file are not equal.",
    )
    parser.add_argument(
        "source",
        metavar="FILE.npz|INSTRUCTION",
        help="file of operands (.npz), or instruction that multiplies a random tile or the matrices of --a and --b",
    )
    parser.add_argument(
        "--case",
        type=integer(0),
        metavar="N",
        help="index of the tile (default 0); with --a, index of the instruction along K (default: all instructions)",
    )
    parser.add_argument("--row", type=integer(0), default=0, metavar="N", help="row of D (default %(default)s)")
    parser.add_argument("--column", type=integer(0), default=0, metavar="N", help="column of D (default %(default)s)")
    add(parser, "arch", note=" (default: that of the files of A and B, sm_90, or the first that has the instruction)")
    product = parser.add_argument_group("product of two matrices")
    add_matrices(product)
    product.add_argument("--c", type=Path, metavar="FILE", help="C, M x N (default: zero)")
    add_transpose(product)
    add(product, "prune")
    drawing = parser.add_argument_group("random tile of an instruction")
    add(drawing, "distribution", "nibbles")
    add(drawing, "seed", note=" (default 0)")
    add_numerics(parser)
    switch(
        parser,
        "--golden-only",
        "use only the golden model, without a simulation of the hardware (implied by options that change the numerics)",
    )
    add(parser, "svg", help="draw the bits of every term (needs pip install 'sptc[area]')")
    parser.add_argument(
        "--datapath", type=Path, metavar="FILE.svg", help="draw the datapath with its values in one step (cycle)"
    )
    parser.add_argument("--step", type=integer(1), metavar="N", help="step (cycle) that --datapath draws (default 1)")
    add(parser, "theme", "json")
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> int:
    from ..verify.trace_output import trace

    if not options.datapath:
        refuse(options, ("step", "theme"), "needs --datapath FILE.svg")
    if options.a or options.b or options.c:
        return _trace_product(options)
    refuse(options, _PRODUCT_OPTIONS, "needs --a and --b")
    if options.source.endswith(".npz"):
        refuse(options, _TILE_OPTIONS, "draws a random tile and cannot be combined with FILE.npz")
        file: Recorded = read(options.source)
    else:
        file = _random_tile(options)
    changed = replaced_numerics(options, file.instruction, file.arch)
    hardware = not (options.golden_only or changed)
    traced = trace(file, options.case or 0, options.row, options.column, hardware=hardware, numerics=changed)
    _draw(options, traced)
    return print_result(options, traced.as_dict, traced, good=traced.agrees)


def _draw(options: argparse.Namespace, traced: "TracedOutput") -> None:
    """Write the pictures that ``--svg`` and ``--datapath`` request."""
    from ..show.step import draw_step

    if options.svg:
        write_whole(options.svg, traced.as_svg())
    if options.datapath:
        steps, number = len(traced.golden.steps), options.step or 1
        if number > steps:
            raise OperandError(f"--step {number}: the trace has {counted(steps, 'step')}")
        picture = draw_step(traced, number - 1, Theme(options.theme))
        write_whole(options.datapath, picture.svg())


def _trace_product(options: argparse.Namespace) -> int:
    """Trace one output of the product of two given matrices, instruction by instruction along K."""
    from ..gemm.operands import output_operands
    from ..verify.trace_output import trace_chain

    refuse(options, _DRAWN_OPTIONS, "draws a random tile and cannot be combined with --a and --b")
    if not (options.a and options.b):
        raise OperandError("name the files of A and B with --a and --b")
    named = architecture_of(options)
    subject = resolve(options.source, named)
    i = subject.instruction
    arch = require_target(i, named or default_arch(i), subject.opcode)
    a = read_factor(options.a, options.a_tensor, "--a-tensor")
    b = read_factor(options.b, options.b_tensor, "--b-tensor")
    c = None if options.c is None else read_factor(options.c)
    operands = output_operands(
        i, (a, b, c), options.row, options.column, transpose_b=options.transpose_b, prune=options.prune
    )
    changed = replaced_numerics(options, i, arch)
    count = operands.b.shape[1] // i.k
    if options.case is not None and options.case >= count:
        raise OperandError(
            f"--case {options.case}: the matrix product takes only {counted(count, 'instruction')} along K"
        )
    if (options.svg or options.datapath) and options.case is None and count > 1:
        raise OperandError(f"--svg and --datapath draw one of the {count} instructions along K: choose it with --case")
    hardware = not (options.golden_only or changed)
    chain = list(trace_chain(i, arch, operands, options.row, options.column, hardware=hardware, numerics=changed))
    shown = chain if options.case is None else [chain[options.case]]
    if options.svg or options.datapath:
        _draw(options, shown[0])
    d = chain[-1].golden.d
    code, value = as_code(d, i.d.bits), as_decimal(as_number(d, i.d))
    text = f"row {options.row}, column {options.column} of the product is {code} = {value}"
    if differing := [number for number, one in enumerate(chain) if not one.agrees]:
        text += f"; golden model and hardware differ from instruction {differing[0]} of {count} on, counted from 0"
    elif hardware:
        text += f"; golden model and hardware are equal in {counted(count, 'instruction')}"
    values = {"instructions": [one.as_dict() for one in shown], "d": code}
    return print_result(options, values, "\n\n".join([text, *map(str, shown)]), good=not differing)


def _random_tile(options: argparse.Namespace) -> Recorded:
    subject = resolve(options.source, options.arch)
    i = subject.instruction
    arch = require_placed(subject, options.arch or default_arch(i))
    names, tiles = drawn_distributions(i, options.distribution), (options.case or 0) + 1
    if tiles > (most := _MOST_OUTPUTS // (i.m * i.n)):
        raise OperandError(
            f"--case must be below {most} for random tiles of {i}, not {options.case}; --seed gives other tiles"
        )
    rng = np.random.default_rng(options.seed or 0)
    operands = draw_tiles(i, names, options.nibbles or "legal", tiles, rng)
    return file_of(subject, arch, operands, rng, int(rng.integers(i.sparsity_selectors)))
