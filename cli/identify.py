"""``sptc identify``: which way to sum gives every bit of a product that somebody else computed."""

import argparse
import json
from pathlib import Path
from typing import Any

from ..errors import OperandError
from ..gemm.epilogue import RESULTS
from ..gemm.identify import identify
from ..gemm.probe import probe, write_probe
from ..gemm.sources import read_factor
from ..isa.formats import FORMATS
from ..tensors.quantise import NAN_POLICIES
from .arguments import architecture, integer
from .factors import READABLE, add_epilogue_options, epilogue_words

__all__ = ["add_parser"]

#: Rows, columns and K of a probe.
_SHAPE = (128, 128, 4096)


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "identify",
        help="which way to sum gives every bit of a product that somebody else computed",
        description="Search the ways to sum along K (instructions, slices of K and the order in which they are added, "
        "stream-K, promotion of partial sums, rounding of the result) until one gives every bit of Y = A B, and say "
        "how many outputs tell it from the next best; or how near the nearest comes, with the last instructions of the "
        "first output that differs. Matrices hold numbers or codes (uint8, uint16). With --probe, write matrices to "
        "feed to a kernel, on which the ways differ most. Exit status 0 if a way gives every bit, 1 if none does.",
    )
    parser.add_argument("--a", type=Path, metavar="FILE", help=f"A, M x K, structured-sparse: {READABLE}")
    parser.add_argument("--b", type=Path, metavar="FILE", help="B, K x N, or a vector")
    parser.add_argument("--y", type=Path, metavar="FILE", help="what was computed of them, M x N, or a vector")
    for name in "aby":
        parser.add_argument(f"--{name}-tensor", metavar="NAME", help="which tensor of that file, if there are several")
    parser.add_argument("--format", choices=FORMATS, help="format of A and B")
    parser.add_argument("--result", choices=RESULTS, required=True, help="type of Y")
    parser.add_argument(
        "--arch", type=architecture, metavar="ARCH", default="sm_90", help="where it was computed (default %(default)s)"
    )
    parser.add_argument(
        "--instruction", metavar="TEXT", help="the only instruction to try (default: all of the format)"
    )
    parser.add_argument("--dense", action="store_true", help="A is dense, and so are the instructions")
    parser.add_argument("--prune", action="store_true", help="A is pruned to its largest magnitudes first")
    parser.add_argument("--nan", choices=NAN_POLICIES, default="error", help="what a NaN becomes (default %(default)s)")
    parser.add_argument(
        "--workers",
        type=integer(1),
        metavar="N",
        help="thread blocks of a kernel with stream-K, where known (default: multiprocessors of GPUs of --arch)",
    )
    for name, shape in (("a", "M"), ("b", "N")):
        parser.add_argument(
            f"--block-scale-{name}",
            type=Path,
            metavar="FILE",
            help=f"block scales of {name.upper()}, {shape} x blocks along K: ue8m0 or ue4m3, or codes (uint8)",
        )
    add_epilogue_options(parser, "what the kernel did to the sums")
    ask = parser.add_argument_group("asking a kernel")
    ask.add_argument("--probe", type=Path, metavar="FOLDER", help="write a.npy and b.npy there, and stop")
    ask.add_argument(
        "--shape", nargs=3, type=integer(1, 1 << 20), metavar=("M", "N", "K"), help="of --probe (default 128 128 4096)"
    )
    ask.add_argument("--seed", type=integer(0), metavar="N", help="of --probe (default 0)")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> int:
    from .identify_chain import chain_of

    if options.probe:
        return _probe(options)
    if options.shape or options.seed is not None:
        raise OperandError("--shape and --seed need --probe")
    if not (options.a and options.b and options.y):
        raise OperandError("give A, B and what was computed of them with --a, --b and --y, or ask for a --probe")
    words = ("format", "result", "arch", "instruction", "dense", "prune", "nan", "workers")
    known: dict[str, Any] = {name: getattr(options, name) for name in words} | epilogue_words(options)
    for name in "aby":
        option = f"--{name}-tensor"
        known[name] = read_factor(getattr(options, name), getattr(options, f"{name}_tensor"), option)
        scales = getattr(options, f"block_scale_{name}", None)
        known |= {f"block_scale_{name}": read_factor(scales)} if scales else {}
    found = identify(**known)
    chain = None if found.exact or not found.nearest else chain_of(found.nearest)
    if options.json:
        print(json.dumps(found.record() | {"chain": chain and chain.as_dict()}, indent=1))
    else:
        print(found if chain is None else f"{found}\n{chain}")
    return int(not found.exact)


def _probe(options: argparse.Namespace) -> int:
    if options.a or options.b or options.y:
        raise OperandError("--probe draws A and B, and takes no --a, --b and --y")
    if not options.format:
        raise OperandError("--probe needs --format")
    shape = tuple(options.shape or _SHAPE)
    drawn = probe(shape, format=options.format, result=options.result, arch=options.arch, seed=options.seed or 0)
    said = write_probe(options.probe, drawn)
    print(json.dumps(said, indent=1) if options.json else drawn)
    return 0
