"""``sptc gemm``: a whole matrix product by a way to sum, with its bits and its errors."""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from tqdm import tqdm

from .. import __version__
from ..api.backends import BACKENDS, backend
from ..errors import Error, FileError, OperandError
from ..gemm.epilogue import RESULTS
from ..gemm.folder import ProductFolder
from ..gemm.operands import Choices, ProductRequest, generate, prepare
from ..gemm.options import epilogue_of, format_of, read_way, way_of
from ..gemm.product import Errors, Problem, block_count, compute_block
from ..gemm.sums import check_result
from ..gemm.ways import CUTS, K_ORDERS, ORDERS, Way
from ..infra.pools import WorkError, cores, local_pool
from ..isa.formats import FORMATS
from ..tensors.checkpoints import Checkpoint
from ..tensors.quantise import NAN_POLICIES
from ..tensors.sparsify import PRODUCERS
from .arguments import architecture, integer, processes, split
from .factors import EPILOGUE_FILES, add_epilogue_options, add_matrices, epilogue_words, sources
from .gemm_plot import plot_errors
from .gemm_report import as_text, product_report
from .progress import progress_bar

__all__ = ["add_parser"]

_ROUNDED = ("f32", "f16", "bf16")
#: Words of a way by the names of their options, and what they are without one.
_WAY_WORDS = {field.name: field.default for field in fields(Way) if field.name not in ("instruction", "arch", "result")}
_ARCH = "sm_90"


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "gemm",
        help="multiply a sparse matrix with a dense one, by any way to sum, on any back end",
        description="Multiply A, structured-sparse, with B, by blocks and on all cores, as a kernel that sums in a "
        "known way along K; without any word of the way, through one instruction after the other. Bits are those of "
        "sptc.gemm in Python, which takes the same words. Report whether the back ends agree in every bit, the errors "
        "against float64, and what the hardware takes. With --output, an interrupted product is resumed by the same "
        "command.",
        epilog="Matrices hold numbers, which are rounded to the format, or codes: integers as wide as the format's "
        "container, and of tf32 float32, whose low bits are dropped. Numbers that are no integers of an integer "
        "format, and all under block scales, are divided by scales first; the epilogue is done to sums in their units. "
        "--c without --beta is what the first accumulator begins from. Errors are those of the whole expression, "
        "epilogue and last rounding included; where nothing is done to the sums they are in the units of A and B.",
    )
    _add_matrices(parser)
    _add_way(parser)
    add_epilogue_options(
        parser, "what is done to the sums, in f32, in this order: scales, alpha and beta C, bias, relu"
    )
    parser.add_argument(
        "--backend", nargs="+", choices=BACKENDS, default=["golden", "rtl"], help="what computes; all must agree"
    )
    parser.add_argument("--dense", action="store_true", help="also the error with A unpruned, on the dense instruction")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE.npy",
        help="write the product: f32, f16, s32 and s8 in numpy's type, bf16, e4m3 and e5m2 as codes (uint16, uint8)",
    )
    parser.add_argument("--plot", type=Path, metavar="FILE.svg", help="draw a histogram of the relative errors")
    parser.add_argument("--jobs", type=processes, metavar="N", help="processes (default: one a core)")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.set_defaults(execute=_execute)


def _add_matrices(parser: argparse.ArgumentParser) -> None:
    add_matrices(parser)
    parser.add_argument(
        "--random", nargs=3, type=integer(1), metavar=("M", "N", "K"), help="generate A (pruned) and B instead"
    )
    parser.add_argument("--seed", type=integer(0), default=0, metavar="N", help="of --random (default %(default)s)")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--prune", action="store_true", help="keep the largest magnitudes of A, drop the others")
    how.add_argument("--check", action="store_true", help="refuse an A that is not sparse (the default)")
    parser.add_argument("--producer", choices=PRODUCERS, default="pytorch", help="metadata of chunks with zeros")
    parser.add_argument("--nan", choices=NAN_POLICIES, default="error", help="what a NaN becomes (default %(default)s)")
    parser.add_argument("--rows", type=integer(1), metavar="N", help="only the first N rows of A")


def _add_way(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how it is summed")
    what = group.add_mutually_exclusive_group()
    what.add_argument("--format", choices=FORMATS, help="format of A and B (default: that of their types, or f16)")
    what.add_argument("--instruction", metavar="TEXT", help="instruction (default: what a library would use)")
    group.add_argument(
        "--scales", choices=("ue8m0", "ue4m3"), help="block scales, by the MX or the NVFP4 recipe (sm_120)"
    )
    group.add_argument("--arch", type=architecture, metavar="ARCH", help=f"numerics (default {_ARCH})")
    group.add_argument("--accumulate", choices=("f32", "f16", "s32"), help="accumulator type of the instruction")
    group.add_argument(
        "--split-k", type=split, metavar="N", help="slices of K, or how many tiles each takes, as 3,2,2 (default 1)"
    )
    group.add_argument(
        "--order", choices=[order for order in ORDERS if order != "any"], help="in which slices are added"
    )
    group.add_argument("--k-order", choices=K_ORDERS, help="in which a slice takes its instructions")
    group.add_argument(
        "--promote", type=integer(0), metavar="N", help="instructions between additions to f32 registers"
    )
    group.add_argument(
        "--tile", type=integer(1), metavar="N", help="instructions of a K tile; slices are cut between them"
    )
    group.add_argument("--cut", choices=CUTS, help="how tiles are dealt to slices")
    group.add_argument("--workspace", choices=_ROUNDED, help="type of the result of a slice before it is added")
    group.add_argument("--running", choices=_ROUNDED, help="type of each sum of slices")
    group.add_argument("--swapped", action="store_true", help="B is the sparse factor: B^T A^T is computed")
    group.add_argument("--result", choices=RESULTS, help="type of the result (default f32, of integers s32)")
    group.add_argument("--rounding", choices=("RNE", "RZ"), help="to that type")
    group.add_argument("--way", type=Path, metavar="FILE.json", help="all of this, as `sptc identify --json` prints it")
    parser.set_defaults(**_WAY_WORDS)


def _execute(options: argparse.Namespace) -> int:
    options.backend = list(dict.fromkeys(options.backend))
    if bool(options.random) == bool(options.a or options.b) or (options.a is None) != (options.b is None):
        raise OperandError("give A and B with --a and --b, or the shape of random ones with --random")
    if options.output and options.output.suffix != ".npy":
        raise FileError(f"{options.output} must end in .npy")
    if options.beta is not None and not options.c:
        raise OperandError("--beta is a factor of C, which is missing")
    files = {name: _identity(path) for name in ("a", "b", *EPILOGUE_FILES) if (path := getattr(options, name))}
    way = _way(options)
    with _folder(options, _wanted(options, way, files)) as folder:
        problem = folder.problem or _prepared(options, way, folder)
        try:
            _compute(options, problem, folder)
        except KeyboardInterrupt:
            kept = f"; what is done is kept in {folder.path}" if options.output else ""
            print(f"sptc gemm: interrupted{kept}", file=sys.stderr)
            return 130
        report = product_report(problem, folder.done.values())
        if options.plot:
            plot_errors({name: Errors(**values) for name, values in report["errors"].items()}, options.plot)
        if options.output:
            folder.finish(options.output)
            report["output"] = str(options.output)
    print(json.dumps(report, indent=1) if options.json else as_text(report, way))
    return int(report["mismatches"] > 0)


def _way(options: argparse.Namespace) -> Way:
    """Return how it is summed."""
    way = read_way(options.way) if options.way else None
    if way and options.arch not in (None, way.arch):
        raise OperandError(f"the way is of {way.arch}, not {options.arch}")
    fmt = options.format
    if not (way or fmt or options.instruction):
        fmt = _format(options) or "f16"
    found = way_of(
        way,
        {name: getattr(options, name) for name in _WAY_WORDS},
        fmt=fmt,
        instruction=options.instruction,
        arch=options.arch or _ARCH,
        accumulate=options.accumulate,
        scales=options.scales,
        result=options.result,
    )
    check_result(found)
    return found


def _format(options: argparse.Namespace) -> str | None:
    """Return the format that the types of the matrices say."""
    if options.random:
        return None
    held = (source.read() for source in sources(options))
    left, right = (one.compressed if isinstance(one, Checkpoint) else one for one in held)
    return format_of(left, right)


@contextmanager
def _folder(options: argparse.Namespace, wanted: Mapping[str, Any]) -> Iterator[ProductFolder]:
    if options.output:
        with closing(ProductFolder(Path(f"{options.output}.partial"), wanted)) as folder:
            yield folder
    else:
        with tempfile.TemporaryDirectory() as scratch, closing(ProductFolder(Path(scratch), wanted)) as folder:
            yield folder


def _wanted(options: argparse.Namespace, way: Way, files: Mapping[str, str]) -> dict[str, Any]:
    """Return what decides the result, by the names of the options."""
    names = ("a_tensor", "b_tensor", "transpose_b", "random", "seed", "backend", "prune", "producer", "nan", "rows")
    wanted = {name: getattr(options, name) for name in (*names, "dense", "alpha", "beta", "relu")}
    # As JSON has it, in which a folder keeps it.
    summed: dict[str, Any] = json.loads(json.dumps(asdict(way)))
    return {"version": __version__, **summed, **dict.fromkeys(EPILOGUE_FILES), **files, **wanted}


def _identity(path: Path) -> str:
    """Name a file so that another one in its place is noticed."""
    try:
        state = path.stat()
    except OSError as error:
        raise FileError(f"{path} cannot be read ({error.strerror})") from None
    return f"{path.resolve()} of {state.st_size} bytes at {state.st_mtime_ns}"


def _prepared(options: argparse.Namespace, way: Way, folder: ProductFolder) -> Problem:
    words = epilogue_words(options)
    start = words["c"] if options.beta is None else None
    if start is not None:
        words["c"] = None
    if options.random:
        try:
            given = generate(folder.path, tuple(options.random), options.seed)
        except OSError as error:
            raise FileError(f"{folder.path} cannot hold the operands ({error.strerror})") from None
    else:
        given = sources(options)
    choices = Choices(options.prune or bool(options.random), options.producer, options.nan)
    request = ProductRequest(
        way, *given, choices, options.rows, tuple(options.backend), options.dense, epilogue_of(**words), start
    )
    with progress_bar("row") as progress:
        problem = prepare(folder.path, request, progress)
    folder.begin(problem)
    return problem


def _compute(options: argparse.Namespace, problem: Problem, folder: ProductFolder) -> None:
    count, waiting = block_count(problem), folder.blocks(block_count(problem))
    for name in problem.backends:  # once, before the workers need it
        backend(name).make_ready(problem.way.arch)
    tqdm.monitor_interval = 0  # its thread would be alive when workers are forked
    with (
        local_pool(options.jobs or cores()) as pool,
        tqdm(total=count, initial=len(folder.done), unit="block", leave=False, disable=None) as bar,
    ):
        while True:
            while pool.accepts and (index := next(waiting, None)) is not None:
                pool.submit(compute_block, problem, index)
            if not pool.busy:
                return
            try:
                for block in pool.collect():
                    folder.add(block)
            except WorkError as error:
                raise Error(f"a block {error.reason}") from error
            bar.update(len(folder.done) - bar.n)
