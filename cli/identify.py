"""``sptc identify`` and ``diagnose``: find the method of summation, or the error, of a kernel from its result."""

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import OperandError
from ..gemm.epilogue import RESULTS
from ..gemm.identify import diagnose, identify
from ..gemm.probe import probe, write_probe
from ..gemm.ways import instruction_named
from ..infra.files import write_whole
from ..isa.architectures import same_numerics
from ..isa.numerics import Numerics
from .factors import (
    add_format,
    add_matrices,
    add_scalings,
    add_transpose,
    architecture_of,
    epilogue_words,
    factors,
    scale_words,
)
from .options import Commands, add, add_numerics, integer, refuse, refuse_others, replaced_numerics, switch
from .progress import searching
from .terminal import print_result

__all__ = ["add_parser"]

#: Default M, N and K of the matrix product whose input matrices ``--probe`` writes.
_SHAPE = (128, 128, 4096)
_ARCH = "sm_90"


def add_parser(commands: Commands) -> None:
    """Add the parsers of ``sptc identify`` and ``sptc diagnose`` to the command line."""
    parser = commands.add_parser(
        "identify",
        help="find the summation order of a kernel from its matrix product",
        description="Search for the method of summation along K that gives every bit of Y = A B. Methods differ in the "
        "instruction, the slices of K and the order of their addition, stream-K, the promotion of partial sums, the "
        "arithmetic of scales, the conversion of f32 numbers to tf32, and the rounding of the result. If a method "
        "gives every bit, print how many outputs distinguish it from the next best method. Otherwise, print the "
        "nearest method and the last instructions of the first output that differs. Matrices hold numbers or codes "
        "(uint8, uint16). With --probe, write input matrices for a kernel on which the methods differ most. Exit "
        "status 0: a method gives every bit. 1: no method does.",
    )
    _add_search_options(parser)
    probing = parser.add_argument_group("probe of a kernel")
    probing.add_argument(
        "--probe",
        type=Path,
        metavar="FOLDER",
        help="only write a.npy and b.npy, the inputs for the kernel, to this folder",
    )
    probing.add_argument(
        "--shape",
        nargs=3,
        type=integer(1, 1 << 20),
        metavar=("M", "N", "K"),
        help="M, N and K of the matrix product for --probe (default 128 128 4096)",
    )
    add(probing, "seed", note=" of --probe (default 0)")
    add(parser, "json")
    parser.set_defaults(execute=_execute)
    parser = commands.add_parser(
        "diagnose",
        help="find the kernel error that explains a wrong matrix product",
        description="Search for the method of summation that gives every bit of Y = A B. If no method does, search for "
        "an error of the kernel: outputs at wrong positions, operands read from wrong positions or as another type, "
        "wrong metadata or scales, slices of K that are missing or added twice, accumulators that are not cleared or "
        "not kept, and wrong rounding of results. Print the verdict and a map of the outputs that differ. An error "
        "explains a product only if it gives every bit. In JSON, `differing` is the number of outputs that differ, "
        "whereas the attribute `differing` of the result of `sptc.diagnose` in Python is their map. Exit status 0: the "
        "product is correct, or an error explains it. 1: no error does.",
    )
    _add_search_options(parser)
    add(parser, "svg", help="draw the map of the outputs that differ (needs pip install 'sptc[area]')")
    add(parser, "json")
    parser.set_defaults(execute=_diagnose)


def _add_search_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for a matrix product, its factors, and known properties of the kernel that computed it."""
    add_matrices(parser, "aby")
    add_transpose(parser)
    add_format(parser, " (default: the formats of the data types of A and B)")
    parser.add_argument("--result", choices=RESULTS, required=True, help="element type of Y, the given matrix product")
    add(parser, "arch", help=f"architecture that computed Y (default: that of the files of A, B and Y, or {_ARCH})")
    add(parser, "instruction", help="try only this instruction (default: all instructions of the format)")
    switch(parser, "--dense", "try only dense instructions, for a dense A")
    add(parser, "prune")
    add(parser, "nan", default="error", note=" (default %(default)s)")
    parser.add_argument(
        "--workers",
        type=integer(1),
        metavar="N",
        help="number of thread blocks of a stream-K kernel, if known (default: the SM counts of GPUs of --arch)",
    )
    parser.add_argument(
        "--promote", type=integer(0), metavar="N", help="instructions per partial sum that is added in f32, if known"
    )
    add_numerics(parser)
    add_scalings(parser, "epilogue of the kernel")


def _execute(options: argparse.Namespace) -> int:
    from ..show.chain import chain_of

    if options.probe:
        return _probe(options)
    refuse(options, ("shape", "seed"), "needs --probe")
    if not (options.a and options.b and options.y):
        raise OperandError(
            "name the files of A, B and their product with --a, --b and --y, or write inputs with --probe"
        )
    arguments = _search_arguments(options)
    with searching("sptc identify"):
        result = identify(**arguments)
    near = None if result.exact or arguments["numerics"] else result.nearest
    chain = near and chain_of(near)
    values = result.record() | {"chain": chain and chain.as_dict()}
    return print_result(options, values, result if chain is None else f"{result}\n{chain}", good=result.exact)


def _diagnose(options: argparse.Namespace) -> int:
    from ..show.chain import chain_of
    from ..show.difference_map import DifferenceMap

    if not (options.a and options.b and options.y):
        raise OperandError("name the files of A, B and their product with --a, --b and --y")
    arguments = _search_arguments(options)
    with searching("sptc diagnose"):
        diagnosis = diagnose(**arguments)
    differing = diagnosis.differing if diagnosis.differing.ndim == 2 else np.atleast_2d(diagnosis.differing).T
    picture = DifferenceMap(differing)
    if options.svg:
        write_whole(options.svg, picture.svg(diagnosis.text))
    near = None if diagnosis.explained or arguments["numerics"] else diagnosis.nearest
    chain = near and chain_of(near)
    text = "\n".join(map(str, [diagnosis, *([picture] if differing.any() else []), *([chain] if chain else [])]))
    values = diagnosis.record() | {"chain": chain and chain.as_dict()}
    return print_result(options, values, text, good=diagnosis.explained)


def _numerics(options: argparse.Namespace) -> Numerics | None:
    """Return the named instruction's numerics with the parameters that options change; None without such an option."""
    text, arch = options.instruction, same_numerics(options.arch)
    return replaced_numerics(options, instruction_named(text, arch) if text else None, arch)


def _search_arguments(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options as keyword arguments of a search; the files that options name are read into arrays."""
    options.arch = architecture_of(options, "aby") or _ARCH
    words = ("format", "result", "arch", "instruction", "dense", "prune", "nan", "workers", "promote")
    known = {name: getattr(options, name) for name in words}
    known["numerics"] = _numerics(options)
    return {**factors(options), **known, **epilogue_words(options), **scale_words(options)}


def _probe(options: argparse.Namespace) -> int:
    refuse_others(
        options, ("probe", "format", "result", "arch", "shape", "seed", "json"), "cannot be combined with --probe"
    )
    if not options.format:
        raise OperandError("--probe needs --format")
    shape = tuple(options.shape or _SHAPE)
    arch, seed = options.arch or _ARCH, options.seed or 0
    drawn = probe(shape, format=options.format, result=options.result, arch=arch, seed=seed)
    manifest = write_probe(options.probe, drawn)
    return print_result(options, manifest, drawn)
