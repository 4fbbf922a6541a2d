"""``sptc gemm``: a whole sparse matrix product through one instruction, with its bits and its errors."""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

from tqdm import tqdm

from .. import __version__
from ..api.backends import BACKENDS, backend
from ..errors import Error, FileError, InstructionError, OperandError
from ..gemm.folder import ProductFolder
from ..gemm.operands import Choices, ProductRequest, generate, prepare
from ..gemm.product import (
    Block,
    Errors,
    Problem,
    Source,
    block_count,
    compute_block,
    instruction_count,
)
from ..infra.pools import WorkError, cores, local_pool
from ..isa.formats import FORMATS
from ..isa.instructions import Instruction, every_instruction, parse, require_architecture
from ..isa.numerics import Method, numerics
from ..rtl.config import PRESET_OF_ARCHITECTURE, PRESETS
from ..tensors.quantise import NAN_POLICIES
from ..tensors.sparsify import PRODUCERS
from ..verify.timing import unit_steps
from .arguments import architecture, integer, processes
from .gemm_plot import plot_errors
from .progress import progress_bar

__all__ = ["add_parser"]


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "gemm",
        help="multiply a sparse matrix with a dense one on any back end",
        description="Multiply A, structured-sparse, with B through one mma.sp or wgmma.sp instruction after the other "
        "along K, by blocks and on all cores. Report whether the back ends agree in every bit, the errors against "
        "float64, and what the hardware takes. With --output, an interrupted product is resumed by the same command.",
    )
    parser.add_argument("--a", type=Path, metavar="FILE", help="A, rows x K: a .npy, .npz or .safetensors file")
    parser.add_argument("--a-tensor", metavar="NAME", help="which tensor of that file")
    parser.add_argument("--b", type=Path, metavar="FILE", help="B, K x columns")
    parser.add_argument("--b-tensor", metavar="NAME", help="which tensor of that file")
    parser.add_argument("--transpose-b", action="store_true", help="the file holds B as columns x K")
    parser.add_argument(
        "--random", nargs=3, type=integer(1), metavar=("M", "N", "K"), help="generate A (pruned) and B instead"
    )
    parser.add_argument("--seed", type=integer(0), default=0, metavar="N", help="of --random (default %(default)s)")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--format", choices=FORMATS, default="f16", help="format of A and B (default %(default)s)")
    parser.add_argument(
        "--scales", choices=("ue8m0", "ue4m3"), help="block scales: quantise by the MX or the NVFP4 recipe (sm_120)"
    )
    what.add_argument("--instruction", metavar="TEXT", help="instruction, as PTX spells it")
    parser.add_argument(
        "--arch", type=architecture, metavar="ARCH", default="sm_90", help="numerics (default %(default)s)"
    )
    parser.add_argument(
        "--backend", nargs="+", choices=BACKENDS, default=["golden", "rtl"], help="what computes; all must agree"
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--prune", action="store_true", help="keep the largest magnitudes of A, drop the others")
    how.add_argument("--check", action="store_true", help="refuse an A that is not sparse (the default)")
    parser.add_argument("--producer", choices=PRODUCERS, default="pytorch", help="metadata of chunks with zeros")
    parser.add_argument("--nan", choices=NAN_POLICIES, default="error", help="what a NaN becomes (default %(default)s)")
    parser.add_argument("--rows", type=integer(1), metavar="N", help="only the first N rows of A")
    parser.add_argument("--dense", action="store_true", help="also the error with A unpruned, on the dense instruction")
    parser.add_argument("--output", type=Path, metavar="FILE.npy", help="write the product")
    parser.add_argument("--plot", type=Path, metavar="FILE.svg", help="draw a histogram of the relative errors")
    parser.add_argument("--jobs", type=processes, metavar="N", help="processes (default: one a core)")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> int:
    instruction = _instruction(options)
    options.backend = list(dict.fromkeys(options.backend))
    if bool(options.random) == bool(options.a or options.b) or (options.a is None) != (options.b is None):
        raise OperandError("give A and B with --a and --b, or the shape of random ones with --random")
    if options.output and options.output.suffix != ".npy":
        raise FileError(f"{options.output} must end in .npy")
    with _folder(options, instruction) as folder:
        problem = folder.problem or _prepared(options, instruction, folder)
        try:
            _compute(options, problem, folder)
        except KeyboardInterrupt:
            kept = f"; what is done is kept in {folder.path}" if options.output else ""
            print(f"sptc gemm: interrupted{kept}", file=sys.stderr)
            return 130
        report = _report(problem, folder.done.values())
        if options.plot:
            plot_errors({name: Errors(**values) for name, values in report["errors"].items()}, options.plot)
        if options.output:
            folder.finish(options.output)
            report["output"] = str(options.output)
    print(json.dumps(report, indent=1) if options.json else _as_text(report))
    return int(report["mismatches"] > 0)


def _instruction(options: argparse.Namespace) -> Instruction:
    if options.instruction:
        chosen = parse(options.instruction)
        require_architecture(chosen, options.arch)
        if chosen.family == "tcgen05" or not chosen.sparse:
            raise InstructionError(f"{chosen} is no mma.sp or wgmma.sp")
        return chosen
    fmt, scales = FORMATS[options.format], options.scales and FORMATS[options.scales]
    found = [
        i
        for i in every_instruction()
        if options.arch in i.architectures and i.sparse and i.scale_format is scales and i.a is i.b is fmt
        if i.d.name in ("f32", "s32") and i.n == 8 and (i.satfinite or not i.d.is_integer)
    ]
    if not found:
        scaled = f" with block scales of {options.scales}" if scales else ""
        raise InstructionError(f"{options.arch} has no sparse instruction for {options.format}{scaled}")

    def preferred(i: Instruction) -> tuple[bool, bool, bool, int]:
        """Rather computed than emulated, of a warp, with any order of indices, and long."""
        native = numerics(i, options.arch).method is not Method.EMULATED
        return native, i.family == "mma", i.sparse == "sp", i.k

    return max(found, key=preferred)


@contextmanager
def _folder(options: argparse.Namespace, instruction: Instruction) -> Iterator[ProductFolder]:
    wanted = _wanted(options, instruction)
    if options.output:
        with closing(ProductFolder(Path(f"{options.output}.partial"), wanted)) as folder:
            yield folder
    else:
        with tempfile.TemporaryDirectory() as scratch, closing(ProductFolder(Path(scratch), wanted)) as folder:
            yield folder


def _wanted(options: argparse.Namespace, instruction: Instruction) -> dict[str, Any]:
    """Return what decides the result, by the names of the options."""
    names = ("a_tensor", "b_tensor", "transpose_b", "random", "seed", "arch", "backend", "prune", "producer")
    wanted = {name: getattr(options, name) for name in (*names, "nan", "rows", "dense")}
    files = {name: _identity(path) for name, path in (("a", options.a), ("b", options.b)) if path}
    return {"version": __version__, "instruction": str(instruction), **files, **wanted}


def _identity(path: Path) -> str:
    """Name a file so that another one in its place is noticed."""
    try:
        state = path.stat()
    except OSError as error:
        raise FileError(f"{path} cannot be read ({error.strerror})") from None
    return f"{path.resolve()} of {state.st_size} bytes at {state.st_mtime_ns}"


def _prepared(options: argparse.Namespace, instruction: Instruction, folder: ProductFolder) -> Problem:
    if options.random:
        try:
            a, b = generate(folder.path, tuple(options.random), options.seed)
        except OSError as error:
            raise FileError(f"{folder.path} cannot hold the operands ({error.strerror})") from None
    else:
        a = Source(str(options.a.resolve()), options.a_tensor)
        b = Source(str(options.b.resolve()), options.b_tensor, options.transpose_b)
    choices = Choices(options.prune or bool(options.random), options.producer, options.nan)
    backends = tuple(options.backend)
    request = ProductRequest(str(instruction), options.arch, a, b, choices, options.rows, backends, options.dense)
    with progress_bar("row") as progress:
        problem = prepare(folder.path, request, progress)
    folder.begin(problem)
    return problem


def _compute(options: argparse.Namespace, problem: Problem, folder: ProductFolder) -> None:
    count, waiting = block_count(problem), folder.blocks(block_count(problem))
    for name in problem.backends:  # once, before the workers need it
        backend(name).make_ready(problem.arch)
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


def _report(problem: Problem, blocks: Any) -> dict[str, Any]:
    done: list[Block] = sorted(blocks, key=lambda block: block.index)
    i = problem.parsed
    macs = problem.rows * problem.columns * problem.k
    first = next((block.first for block in done if block.first), None)
    errors = {name: reduce(add, (block.errors[name] for block in done)) for name in done[0].errors}
    report: dict[str, Any] = {
        "instruction": problem.instruction,
        "arch": problem.arch,
        "shape": [problem.rows, problem.columns, problem.k],
        "backends": list(problem.backends),
        "outputs": sum(block.outputs for block in done),
        "mismatches": sum(block.mismatches for block in done),
        "first_mismatch": first,
        "dense_products": macs,
        "kept_products": macs // 2,
        "instructions": instruction_count(problem),
    }
    report |= _cycles(problem, i)
    return report | {"errors": {name: vars(value) for name, value in errors.items()}}


def _cycles(problem: Problem, i: Instruction) -> dict[str, Any]:
    """Return what a full pipeline of the datapath takes, and the share of its multipliers that useful products fill."""
    config = PRESETS[PRESET_OF_ARCHITECTURE[problem.arch]]
    if not config.holds(i) or numerics(i, problem.arch).method is Method.EMULATED:
        return {"cycles": None, "utilisation": None}
    steps = instruction_count(problem) * i.m * i.n * unit_steps(config, i)
    slots = 8 * config.step_bytes // i.container_bits
    useful = problem.rows * problem.columns * problem.k / 2
    return {"cycles": -(-steps // (config.rows * config.columns)), "utilisation": useful / (steps * slots)}


def _as_text(report: Mapping[str, Any]) -> str:
    rows, columns, k = report["shape"]
    first, *others = report["backends"]
    lines = [f"{report['instruction']} on {report['arch']}: {rows} x {columns} x {k}"]
    agree = f"{report['outputs']} outputs of {first}"
    lines.append(f"{agree}; {report['mismatches']} differ on {', '.join(others)}" if others else agree)
    if found := report["first_mismatch"]:
        lines.append("first mismatch: {}, row {}, column {}: 0x{:x}, not 0x{:x}".format(*found))
    kept = f"{report['kept_products']} of {report['dense_products']} products kept"
    lines.append(f"{kept}, {report['instructions']} instructions")
    if report["cycles"]:
        lines.append(f"{report['cycles']} cycles of the array, multipliers {100 * report['utilisation']:.1f} % used")
    lines.append(f"{'error against float64':38} {'largest':>10} {'mean':>10} {'mean of product':>16}")
    meanings = {
        "arithmetic": "of the operands as computed with",
        "whole": "of A and B as given",
        "dense": "of the same, with A dense",
    }
    for name, values in report["errors"].items():
        mean, product = (values[key] / report["outputs"] for key in ("total", "total_reference"))
        lines.append(f"  {meanings[name]:36} {values['largest']:10.4g} {mean:10.4g} {product:16.4g}")
    if "output" in report:
        lines.append(f"written to {report['output']}")
    return "\n".join(lines)
