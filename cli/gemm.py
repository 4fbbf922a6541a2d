"""``sptc gemm``: multiply matrices with a chosen method of summation; report mismatches, errors and cycles."""

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from .. import __version__
from ..api.backends import BACKENDS, backend, with_numerics
from ..errors import Error, FileError, OperandError
from ..gemm.block_scales import block_scales_of, scaled_instructions
from ..gemm.choice import in_factor_order
from ..gemm.epilogue import RESULTS, SCALE_ORDERS
from ..gemm.folder import ProductFolder
from ..gemm.operands import ProductRequest, generate, prepare
from ..gemm.options import epilogue_of, format_of, read_way, way_of
from ..gemm.product import Errors, Problem, block_count, compute_block, plot_errors
from ..gemm.sources import read_factor
from ..gemm.sums import check_result
from ..gemm.tile_file import tile_instruction
from ..gemm.ways import CONVERSIONS, CUTS, GROUP_SCALINGS, INTERLEAVES, K_ORDERS, ORDERS, Way
from ..infra.counts import counted
from ..infra.files import is_stream, require_writable
from ..infra.pools import WorkError, cores, local_pool
from ..isa.architectures import require_target
from ..isa.numerics import numerics
from ..show.product import product_report, product_text
from ..tensors.checkpoints import Checkpoint
from ..tensors.compressed import Compressed
from .factors import (
    EPILOGUE_FILES,
    SCALE_FILES,
    add_format,
    add_matrices,
    add_scalings,
    add_transpose,
    architecture_of,
    epilogue_words,
    scale_words,
    sources,
)
from .options import NUMERICS, Commands, add, add_numerics, changed_numerics, integer, refuse, split, switch
from .progress import bar, progress_bar
from .terminal import print_result

__all__ = ["add_parser"]

_ROUNDED = ("f32", "f16", "bf16")
#: Key: field of a method of summation (`Way`) that has an option of the same name. Value: default of the field.
_WAY_WORDS = {field.name: field.default for field in fields(Way) if field.name not in ("instruction", "arch", "result")}
#: Upper bound of M, N and K of random matrices.
_MOST_RANDOM = 1 << 24
_ARCH = "sm_90"


def add_parser(commands: Commands) -> None:
    """Add the parser of ``sptc gemm`` to the command line."""
    parser = commands.add_parser(
        "gemm",
        help="multiply matrices with any summation order and back end",
        description="Multiply a structured-sparse A by B, block by block and on all cores, like a kernel with the "
        "chosen method of summation along K. By default, instructions are chained along K. The bits equal "
        "those of sptc.gemm in Python, which takes the same options. Report whether the back ends agree "
        "in every bit, the errors against float64, and the cycles of the hardware. With --output FILE.npy, "
        "the same command resumes an interrupted product.",
        epilog="Matrices hold numbers or codes. Numbers are rounded to the format. Codes are integers as wide as the "
        "format's container; codes of tf32 are float32, whose low bits are dropped. Numbers are divided by scales "
        "first if the format has block scales, or if the format is an integer format and the numbers are not integers. "
        "The epilogue then applies to sums in scaled units. --c without --beta sets the first accumulator. Errors "
        "include the epilogue and the last rounding. Without an epilogue, errors are in the units of A and B.",
    )
    _add_matrices(parser)
    _add_way(parser)
    add_numerics(parser)
    add_scalings(parser, "epilogue, in f32, in this order: scales, alpha and beta C, bias, ReLU")
    add(
        parser,
        "backend",
        nargs="+",
        choices=BACKENDS,
        default=[],
        help="back ends, which must all give the same bits (default: golden rtl, or golden with changed numerics)",
    )
    switch(parser, "--compare-dense", "also report the error of the product of the unpruned A, by dense instructions")
    add(
        parser,
        "output",
        metavar="FILE.npy",
        help="write the product as .npy (- is standard output); f32, f16, s32 and s8 as numpy types; bf16, e4m3 and "
        "e5m2 as codes (uint16, uint8)",
    )
    add(parser, "plot", help="draw a histogram of the relative errors (needs pip install 'sptc[area]')")
    add(parser, "jobs", "json")
    parser.set_defaults(execute=_execute)


def _add_matrices(parser: argparse.ArgumentParser) -> None:
    add_matrices(parser)
    add_transpose(parser)
    parser.add_argument(
        "--random",
        nargs=3,
        type=integer(1, _MOST_RANDOM),
        metavar=("M", "N", "K"),
        help="generate random matrices instead of reading files, and prune A if it is sparse",
    )
    add(parser, "seed", help="seed of the random numbers of --random (default 0)")
    add(parser.add_mutually_exclusive_group(), "prune", "check")
    add(parser, "producer", default="pytorch", note=" (default %(default)s)")
    add(parser, "nan", default="error", note=" (default %(default)s)")
    parser.add_argument("--rows", type=integer(1), metavar="N", help="multiply only the first N rows of A")


def _add_way(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("method of summation")
    operation = group.add_mutually_exclusive_group()
    add_format(operation, " (default: the formats of the data types of A and B, or f16)")
    add(operation, "instruction", note=" (default: the instruction that a library would use)")
    group.add_argument(
        "--scales",
        choices=("ue8m0", "ue4m3"),
        help="format of block scales: ue8m0 (MX recipe) or ue4m3 (NVFP4 recipe), for sm_100 and sm_120",
    )
    add(group, "arch", note=f" (default: that of the files of A and B, or {_ARCH})")
    group.add_argument("--accumulate", choices=("f32", "f16", "s32"), help="accumulator type of the instruction")
    group.add_argument(
        "--split-k",
        type=split,
        metavar="N",
        help="split K into N slices, which are summed separately, or into slices of e.g. 3,2,2 K tiles (default 1)",
    )
    group.add_argument(
        "--order",
        help=f"order in which the sums of slices of K are added: {', '.join(ORDERS[:-1])}, or a binary tree "
        "such as 'tree 1 0', which first adds the sums of slices whose indices differ only in bit 1",
    )
    group.add_argument("--k-order", choices=K_ORDERS, help="order in which instructions along K are executed")
    group.add_argument(
        "--interleave",
        type=int,
        choices=INTERLEAVES,
        help="two successive dense instructions alternately take this number of bits of A and of B along K",
    )
    group.add_argument(
        "--promote",
        type=integer(0),
        metavar="N",
        help="number of instructions after which a partial sum is added to f32 registers",
    )
    group.add_argument(
        "--tile",
        type=integer(1),
        metavar="N",
        help="number of instructions along K in a K tile; each slice of K consists of whole K tiles",
    )
    group.add_argument("--cut", choices=CUTS, help="assignment of K tiles (see --tile) to slices of K (see --split-k)")
    group.add_argument("--workspace", choices=_ROUNDED, help="round the sum of each slice (--split-k) to this type")
    group.add_argument("--running", choices=_ROUNDED, help="round the running sum to this type after each slice of K")
    switch(group, "--swapped", "make B the sparse factor: compute B^T A^T", default=None)
    group.add_argument("--result", choices=RESULTS, help="round D to this type (default f32; s32 for integers)")
    group.add_argument("--rounding", choices=("RNE", "RZ"), help="rounding mode of --result")
    group.add_argument(
        "--group-scaling",
        choices=GROUP_SCALINGS,
        help="order and rounding of the multiplications by --group-scale-a and --group-scale-b",
    )
    group.add_argument(
        "--scale-order", choices=SCALE_ORDERS, help="order of the multiplications by --scale-a and --scale-b"
    )
    for name in "ab":
        group.add_argument(
            f"--convert-{name}",
            choices=CONVERSIONS[1:],
            help=f"conversion of f32 numbers of {name.upper()} to tf32 before the multiplication",
        )
    group.add_argument(
        "--way",
        type=Path,
        metavar="FILE.json",
        help="read the method of summation from the output of `sptc identify --json`",
    )


def _execute(options: argparse.Namespace) -> int:
    if bool(options.random) == bool(options.a or options.b) or (options.a is None) != (options.b is None):
        raise OperandError("give the files of A and B with --a and --b, or the shape of random matrices with --random")
    if options.random:
        refuse(options, ("a_tensor", "b_tensor", "transpose_b", "check"), "cannot be combined with --random")
    else:
        refuse(options, ("seed",), "needs --random")
    options.seed = options.seed or 0
    streamed = options.output and is_stream(options.output)
    if options.output:
        if options.output.suffix != ".npy" and not streamed:
            raise FileError(f"{options.output} must end in .npy")
        require_writable(options.output)
    if options.beta is not None and not options.c:
        raise OperandError("--beta is the factor of C and needs --c")
    names = ("a", "b", *EPILOGUE_FILES, *SCALE_FILES)
    files = {name: _identity(path) for name in names if (path := getattr(options, name))}
    way = _way(options)
    if not way.parsed.sparse:
        refuse(options, ("check", "producer"), f"needs a sparse instruction, but {way.instruction} is dense")
    changes = changed_numerics(options, way.parsed, way.arch)
    options.backend = list(dict.fromkeys(options.backend or (["golden"] if changes else ["golden", "rtl"])))
    for name in options.backend if changes else ():
        with_numerics(backend(name), numerics(way.parsed, way.arch).replace(**changes), way.parsed, way.arch)
    # Partial results are stored next to the output file, so that the same command resumes the product.
    partial = "" if not options.output or streamed else f"{options.output}.partial"
    place: AbstractContextManager[str] = nullcontext(partial) if partial else tempfile.TemporaryDirectory()
    with place as path, closing(ProductFolder(Path(path), _identifying(options, way, files))) as folder:
        problem = folder.problem or _prepared(options, way, folder, changes)
        try:
            _compute(options, problem, folder)
        except KeyboardInterrupt:
            kept = f"; finished blocks are stored in {folder.path}" if partial else ""
            print(f"sptc gemm: interrupted{kept}", file=sys.stderr)
            return 130
        way = problem.way
        report = product_report(problem, folder.done.values())
        if options.plot:
            plot_errors({name: Errors(**values) for name, values in report["errors"].items()}, options.plot)
        if options.output:
            folder.finish(options.output)
            report["output"] = str(options.output)
    text = f"{_verdict(report)}\n{product_text(report, way)}"
    return print_result(options, report, text, good=not report["mismatches"])


def _verdict(report: Mapping[str, Any]) -> str:
    """Return one sentence on whether the outputs of the back ends are equal, and the first mismatch."""
    *others, last = report["backends"]
    outputs, names = counted(report["outputs"], "output"), f"{', '.join(others)} and {last}"
    if not others:
        return f"{outputs} of {last}"
    if not report["mismatches"]:
        return f"all {outputs} of {names} equal"
    place = "first mismatch: {}, row {}, column {}: 0x{:x}, not 0x{:x}".format(*report["first_mismatch"])
    return f"{report['mismatches']:,} of {outputs} of {names} differ\n{place}"


def _way(options: argparse.Namespace) -> Way:
    """Return the method of summation (`Way`) that the options describe."""
    way = read_way(options.way) if options.way else None
    if way:
        refuse(
            options, ("instruction", "accumulate", *_WAY_WORDS), "cannot be combined with --way, which determines it"
        )
    arch = architecture_of(options, way=way) or _ARCH
    if way:
        require_target(way.parsed, arch)
    fmt = options.format
    if not (way or fmt or options.instruction or options.random) and (tile := tile_instruction(options.a)):
        options.instruction = tile[0].name
    if not (way or fmt or options.instruction):
        fmt = (None if options.random else format_of(*_matrices(options))) or "f16"
    instruction = options.instruction
    if options.block_scale_a and options.block_scale_b and not (way or instruction):
        scales = block_scales_of(read_factor(options.block_scale_a), read_factor(options.block_scale_b))
        assert scales
        k = options.random[2] if options.random else _matrices(options)[0].shape[-1]
        formats = in_factor_order(fmt, bool(options.swapped))
        instruction = str(scaled_instructions(scales, k, formats, arch, accumulate=options.accumulate)[0])
    words = {name: value for name in _WAY_WORDS if (value := getattr(options, name, None)) is not None}
    complete = way_of(
        way,
        _WAY_WORDS | words,
        fmt=fmt,
        instruction=instruction,
        arch=arch,
        accumulate=options.accumulate,
        scales=options.scales,
        result=options.result,
    )
    check_result(complete)
    if not complete.has_slices:
        refuse(options, ("workspace", "running"), "rounds sums of several slices of K: add --split-k")
    return complete


def _matrices(options: argparse.Namespace) -> list[NDArray | Compressed]:
    contents = (source.read() for source in sources(options))
    return [one.compressed if isinstance(one, Checkpoint) else one for one in contents]


def _identifying(options: argparse.Namespace, way: Way, files: Mapping[str, str]) -> dict[str, Any]:
    """Return, by name, all options that affect the result. Only a matrix product with equal options can be resumed."""
    names = ("a_tensor", "b_tensor", "transpose_b", "random", "seed", "backend", "prune", "producer", "nan", "rows")
    values = {name: getattr(options, name) for name in (*names, *NUMERICS, "compare_dense", "alpha", "beta", "relu")}
    # Convert the method of summation to JSON and back, to compare it with the JSON in the folder of an unfinished
    # matrix product.
    stored_way: dict[str, Any] = json.loads(json.dumps(asdict(way)))
    return {"version": __version__, **stored_way, **dict.fromkeys((*EPILOGUE_FILES, *SCALE_FILES)), **files, **values}


def _identity(path: Path) -> str:
    """Return a text that identifies a file and changes when the file is replaced."""
    try:
        state = path.stat()
    except OSError as error:
        raise FileError(f"{path} cannot be read ({error.strerror})") from None
    return f"{path.resolve()} of {state.st_size} bytes at {state.st_mtime_ns}"


def _prepared(options: argparse.Namespace, way: Way, folder: ProductFolder, changes: dict[str, Any]) -> Problem:
    words = epilogue_words(options)
    start = words["c"] if options.beta is None else None
    if start is not None:
        words["c"] = None
    if options.random:
        try:
            matrices = generate(folder.path, tuple(options.random), options.seed)
        except OSError as error:
            raise FileError(f"the operands cannot be written to {folder.path} ({error.strerror})") from None
    else:
        matrices = sources(options)
    scales, prune = scale_words(options), options.prune or bool(options.random and way.parsed.sparse)
    request = ProductRequest(
        way, *matrices, prune, options.producer, options.nan, options.rows,
        tuple(options.backend), options.compare_dense,
        epilogue_of(**words), start,
        block_scales_of(scales["block_scale_a"], scales["block_scale_b"]),
        scales["group_scale_a"], scales["group_scale_b"], changes,
    )  # fmt: skip
    with progress_bar("row") as progress:
        problem = prepare(folder.path, request, progress)
    folder.begin(problem)
    return problem


def _compute(options: argparse.Namespace, problem: Problem, folder: ProductFolder) -> None:
    count = block_count(problem)
    for name in problem.backends:  # compile each back end once before the workers start
        backend(name).make_ready(problem.way.arch)
    with local_pool(options.jobs or cores()) as pool, bar("block", total=count, initial=len(folder.done)) as shown:
        try:
            for blocks in pool.run(compute_block, ((problem, index) for index in folder.blocks(count))):
                for block in blocks:
                    folder.add(block)
                shown.update(len(folder.done) - shown.n)
        except WorkError as error:
            raise Error(f"the computation of a block of the matrix product failed: it {error.reason}") from error
